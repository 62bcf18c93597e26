"""The three questions: the best plan, the price of one strategy, why not another one.

In: a `PlanRequest`. Out: a `Plan` or a `WhyNot`. ``answers`` turns a search or a given
strategy into a plan with its reasons, ``short`` into one without.
Imports: explain, search and below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from planner.answer.build import frame_record
from planner.answer.plan import Plan, Rejection
from planner.api.answers import best_plan, conclude, given_plan
from planner.errors import BadRequest
from planner.frameworks.registry import ANY
from planner.request.budget import Budget
from planner.request.fields import GIVEN_SPLIT
from planner.request.pins import Pin, parse_pins
from planner.request.progress import Tell
from planner.request.request import PlanRequest
from planner.request.resolve import Resolved, resolve
from planner.request.values import counts, expect_type
from planner.search.given_by_group import pins_by_group
from planner.search.question import resolve_search

if TYPE_CHECKING:
    from planner.explain.why_not import WhyNot


def plan(request: PlanRequest, *, progress: Tell | None = None) -> Plan:
    """The strategy with the best objective, proved best within the model, with reasons and runners-up.

    ``plan(PlanRequest(model="llama3-8b", gpus=64))`` fills in the rest and lists it under ``defaults`` of the answer;
    ``print(answer.summary())`` is the screen of the command.

    Args:
        request: the question; `help(PlanRequest)` has its fields.
        progress: called with a `Progress` after every batch of strategies.

    Raises:
        BadRequest and its kin: a request that cannot be understood or contradicts itself.
        OutOfTime: the effort or the time limit was spent before any plan was found.
    """
    request = _question(request)
    return best_plan(resolve_search(request), Budget(request.time_limit, progress=progress))


def predict(
    request: PlanRequest,
    layers: Sequence[int] | None = None,
    recomputed: Sequence[int] | None = None,
    *,
    chunked: bool = True,
    near: bool = True,
    as_ran: bool = False,
) -> Plan:
    """Price one given strategy, without search; unpinned axes take their plainest value.

    ``layers`` gives the layers of every stage, in place of the request's; without them the stages are split as in a
    search. ``recomputed`` gives how many of them each stage recomputes, the first ones, where recomputation is
    partial; without it as few as fit.
    Unless ``chunked`` they may make no equal chunks, as a job may have them that draws each of its own, and the answer
    warns of it. A strategy that breaks a rule or does not fit in memory comes back with status ``infeasible`` and the
    reasons and the nearest that works, unless ``near`` is False; in the second case with its prediction too.
    ``as_ran`` prices what really ran though it breaks a rule; the answer lists the rules with the price.

    Raises:
        BadRequest: an axis with several values, degrees that do not make up the GPUs, or layers that no such pipeline
            has.
    """
    request = _question(request)
    budget, resolved = Budget(request.time_limit), resolve(request)
    layers = request.layers_per_stage if layers is None else counts("layers", layers)
    recomputed = request.recomputed_per_stage if recomputed is None else counts("recomputed", recomputed)
    if resolved.mixed and recomputed is not None and layers is None:
        raise BadRequest("recomputed layers are given without layers; give the layers of every stage too")
    return given_plan(resolved, budget, layers, recomputed, chunked=chunked, near=near, as_ran=as_ran)


def why_not(request: PlanRequest, *, chunked: bool = True, progress: Tell | None = None) -> WhyNot:
    """Compare the best strategy under the request's pins with the best of all.

    What the pins leave free is chosen as well as it can be, so that the comparison is fair; where the request gives the
    layers of the stages, it is priced as by ``predict``, to which ``chunked`` goes. As many values as there are node
    groups are one for each, as ``predict`` reads them. ``progress`` is called in both searches, as by ``plan``.
    """
    from planner.explain.why_not import compared

    request = _question(request)
    if request.layers_per_stage is None:
        pinned, pins = _pinned(request, progress)
    else:
        pinned, pins = predict(request, chunked=chunked), parse_pins(request.pins)
    free: dict[str, Any] = {"pins": {}, "reasons": False, **dict.fromkeys(GIVEN_SPLIT)}
    return compared(request, pins, pinned, plan(request.model_copy(update=free), progress=progress))


def _question(request: PlanRequest) -> PlanRequest:
    """The request, of whatever a caller gave for one; raises BadRequest where it is none."""
    return expect_type("the question", request, PlanRequest, example="PlanRequest(model='llama3-8b', gpus=64)")


def _pinned(request: PlanRequest, progress: Tell | None) -> tuple[Plan, dict[str, Pin]]:
    """The best under the pins, and how these were read."""
    resolved = resolve(request)
    each = pins_by_group(resolved, resolved.mixed) if resolved.mixed else None
    pins = each or parse_pins(request.pins)
    if each and request.framework is None:  # which no framework starts; its price is what was asked for
        request = request.model_copy(update={"framework": ANY})
    try:
        budget = Budget(request.time_limit, progress=progress)
        return best_plan(resolve_search(request), budget, reasons=False, pins=each), pins
    except BadRequest as error:  # pins that are understood and leave no strategy: that is the reason
        return _unmade(resolved, str(error)), pins


def _unmade(resolved: Resolved, why: str) -> Plan:
    refused = Rejection(rule="pins", count=1, example=why)
    return Plan(status="infeasible", fits=False, rejected=(refused,), **frame_record(resolved))


__all__ = ["conclude", "plan", "predict", "why_not"]
