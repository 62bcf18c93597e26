"""What a framework can start where it cannot start a plan."""

from __future__ import annotations

from planner.document import Plan
from planner.frameworks.table import FRAMEWORKS

SECONDS = 10.0
"""How long it is looked for."""
_DEGREES = ("tp", "cp", "pp", "dp", "ep", "etp")


def nearest_expressible(plan: Plan, target: str) -> str:
    """The end of a refusal: the fastest plan that the framework takes, of the same degrees where there is one.

    Nothing for a launcher, for an answer that cannot be asked again, and where no plan is left.
    """
    if target not in FRAMEWORKS or plan.strategy is None:
        return ""
    from planner.api import plan as ask
    from planner.errors import MeshwrightError
    from planner.request import PlanRequest

    fields = {name: value for name, value in plan.request.items() if name not in {"stack", "pins"}}
    same = {name: getattr(plan.strategy, name) for name in _DEGREES}
    for pins in (same, plan.request.get("pins", {}), {}):
        try:
            request = PlanRequest(**fields | {"framework": target, "pins": pins, "time_limit": SECONDS, "top": 0})
            found = ask(request)
        except (MeshwrightError, ValueError):
            continue
        if found.strategy and found.prediction:
            said = " ".join(f"{name} {getattr(found.strategy, name)}" for name in _DEGREES[:4])
            return f"; nearest: {said} in {found.prediction.iteration_seconds:.4g} s (plan --for {target})"
    return f"; no plan of this job is left under --for {target}"
