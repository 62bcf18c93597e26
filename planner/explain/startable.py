"""Whether the framework that a stack stands for starts the plan that was found, and what it starts if not."""

from __future__ import annotations

from typing import Final

from planner.answer.plan import Plan, Strategy
from planner.answer.text import format_seconds
from planner.errors import MeshwrightError
from planner.request.request import PlanRequest

WITHIN: Final = 2.0
"""Seconds that the search for what it starts may take."""
_DEGREES: Final = ("tp", "cp", "pp", "ep", "dp")


def unstarted(plan: Plan, request: PlanRequest) -> tuple[str, ...]:
    """The remark that a plan cannot be started, where no framework was asked for; none where it can, or nobody knows.

    Which framework a stack of somebody's own stands for is not known.
    """
    from planner.frameworks.registry import framework_of
    from planner.jobs.check import broken, device_lack
    from planner.jobs.job import job_of

    job = job_of(plan)
    framework = framework_of(job.stack)
    if request.framework or framework is None or request.adapters or device_lack(job, framework):
        return ()
    lack = next(broken(job, framework), None)
    if lack is None:
        return ()
    return (f"{framework} cannot start this plan: {lack.partition(' (')[0]}; {_instead(plan, request, framework)}",)


def _instead(plan: Plan, request: PlanRequest, framework: str) -> str:
    """What the same question for the framework would give."""
    from planner.api import plan as ask

    limit = min(request.time_limit, WITHIN)
    wanted = {"framework": framework, "reasons": False, "top": 0, "time_limit": limit}
    try:
        found = ask(request.model_copy(update=wanted))
    except MeshwrightError:
        return f"--for {framework} searches for one that it can"
    if found.strategy is None or found.prediction is None or plan.prediction is None:
        near = f", the nearest is {found.nearest.subject}" if found.nearest else ""
        return f"--for {framework} finds none that fits{near}"
    mine, theirs = plan.prediction.iteration_seconds, found.prediction.iteration_seconds
    return f"--for {framework} finds {_shown(found.strategy)}: {format_seconds(theirs)} ({theirs / mine - 1:+.1%})"


def _shown(strategy: Strategy) -> str:
    named = ((name, getattr(strategy, name)) for name in _DEGREES)
    return " ".join(f"{name} {degree}" for name, degree in named if degree > 1 or name == "dp")
