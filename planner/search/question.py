"""A question as it is searched: what it leaves open is settled so that the plan fits and starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from costmodels.node_groups import AnyScenario, Mixed, parts_of
from planner.errors import BadRequest
from planner.frameworks.registry import FRAMEWORKS, usual_framework
from planner.request.fields import GIVEN_SPLIT
from planner.request.request import PlanRequest
from planner.request.resolve import Resolved, describe_gradients, resolve, written_gradients
from planner.trust.memory import SURE, usual_margin

USUAL_MARGIN: Final = "sure to fit"
"""By what a plan's document tells a margin that nobody asked for, which another stack has otherwise."""


def resolve_search(request: PlanRequest) -> Resolved:
    """The question with what a search leaves open settled: the stack's framework, a margin of memory.

    Raises:
        BadRequest: layers of the stages are given, which a search would not keep to; and as `resolve`.
    """
    for name in GIVEN_SPLIT:
        if getattr(request, name) is not None:
            raise BadRequest(
                f"{name}: a search chooses the split of the layers itself; `plan predict` prices a given one"
            )
    usual = request.memory_margin is None and request.objective != "memory"
    margin_of = usual_margin if usual else None
    found = resolve(request, margin_of=margin_of)
    by = " by runs of yours" * (found.software.calibrated.memory_margin is not None)
    sure = f"{SURE:.0%} {USUAL_MARGIN}{by}; --memory-margin 0 leaves none"
    said = [f"memory margin {100 * found.margin:.3g}% ({sure})"] if usual else []
    if request.framework is None and (framework := _usual_framework(found)):
        if grads := written_gradients(found.request, framework):
            found = resolve(request.model_copy(update={"main_grads": grads}), margin_of=margin_of)
            said = [*describe_gradients(grads, framework), *said]
        groups = found.mixed and _on_groups(found.mixed, framework)
        found = replace(found, scenario=replace(found.scenario, framework=framework), mixed=groups)
        said.append(f"a plan that {framework} starts (--for any allows others)")
    scenario = found.scenario
    if scenario.framework and (lacks := ", ".join(FRAMEWORKS[scenario.framework].model_lacks(scenario.model))):
        said.append(f"code of yours for what {scenario.framework} lacks of {scenario.model.name}: {lacks}")
    return replace(found, request=request, defaults=(*found.defaults, *said))


def _usual_framework(found: Resolved) -> str:
    """The framework that a plan is for where none is asked for: on several node groups, one that starts on each."""
    names = {usual_framework(one) for one in parts_of(found.question)}
    return names.pop() if len(names) == 1 else ""


def for_framework(question: AnyScenario, framework: str) -> AnyScenario:
    """The question with plans that a framework starts, on every node group; "" is any."""
    if isinstance(question, Mixed):
        return _on_groups(question, framework)
    return replace(question, framework=framework)


def _on_groups(mixed: Mixed, framework: str) -> Mixed:
    return replace(mixed, scenarios=tuple(replace(one, framework=framework) for one in mixed.scenarios))
