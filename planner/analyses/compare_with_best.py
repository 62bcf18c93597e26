"""A configuration that somebody runs, compared with the best that there is for the same job."""

from __future__ import annotations

from planner.answer.plan import Advice, Alternative, Plan
from planner.answer.text import BEST, otherwise
from planner.api import plan as ask
from planner.explain.verdict import verdict
from planner.explain.why_not import objective_terms
from planner.frameworks.registry import goes_with
from planner.request.progress import Tell
from planner.request.request import PlanRequest


def compare_with_best(
    given: Plan, request: PlanRequest, framework: str | None = None, progress: Tell | None = None
) -> Plan:
    """The priced configuration with the best plan as its alternative, and how far it is from it and why.

    Args:
        given: what was priced.
        request: what it was priced by.
        framework: whose configuration it is: the best is then what that starts, unless the stack is another one's.
        progress: called with how far the search for the best plan has come.
    """
    best, own = _best(request, framework, progress)
    if best.strategy is None or best.prediction is None:
        return given
    terms = objective_terms(given, best) if given.prediction else {}
    seconds, whose = best.prediction.iteration_seconds, f" (of those that {own} starts)" if own and given.fits else ""
    said = Advice(subject=BEST, text=verdict(given, best, terms) + whose, iteration_seconds=seconds)
    other = Alternative(
        strategy=best.strategy,
        iteration_seconds=seconds,
        mfu=best.prediction.mfu,
        peak_memory_bytes=max(stage.total for stage in best.memory_bytes),
        differs=differs(given, best),
    )
    return given.model_copy(update={"alternatives": (other,) if other.differs else (), "why_not": (said,)})


def _best(request: PlanRequest, framework: str | None, progress: Tell | None) -> tuple[Plan, str | None]:
    """The best plan that the framework starts, and its name; of all plans where the stack is another's or none fits."""
    wanted = request.model_copy(update={"pins": {}, "top": 0, "reasons": False})
    stack = request.stack if isinstance(request.stack, str) else request.stack.name
    if framework and request.framework is None and goes_with(framework, stack):
        best = ask(wanted.model_copy(update={"framework": framework}), progress=progress)
        if best.strategy:
            return best, framework
    return ask(wanted, progress=progress), request.framework


def differs(given: Plan, best: Plan) -> str:
    """The axes in which the best is otherwise, in words; nothing where it is the same."""
    if given.strategy is None or best.strategy is None:
        return "the only one that runs"
    return otherwise(given.strategy, best.strategy)
