"""The three questions: the best plan, the price of one strategy, why not another one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from costmodels.memory import host_fits, host_need, memory_limit
from costmodels.offload import host_room
from costmodels.pricing import Quote, quote
from costmodels.scenario import Scenario
from costmodels.strategy import Recompute, Strategies
from planner import explain
from planner.arguments import counts, of_type
from planner.assemble import (
    goodput_record,
    memory_records,
    peak_bytes,
    prediction_record,
    provenance_record,
    request_record,
    strategy_record,
)
from planner.document import Plan, Prediction, Proof, Rejection, Strategy
from planner.errors import BadRequest, OutOfTime
from planner.given import broken_rules, single_row, split_or_given, with_recomputed
from planner.idle_pins import Lattice, idle_pins
from planner.memory_search import leanest
from planner.nearest import enough_gpus, nearest
from planner.pins import Pin, parse_pins, shown_value
from planner.recent import recent_space
from planner.request import DEFAULT_STACK, PlanRequest, Resolved, resolve
from planner.rules import binding
from planner.search import BESIDE, Outcome, search
from planner.shortage import rejections, why_nothing
from planner.space import Space, build
from planner.sparing import offloaded, said_so
from planner.ties import CLOSE, NEARLY_FULL, Choice, better_validated, choose, width
from planner.trust import outside, trust
from planner.validation.stack_words import COMPILED
from planner.verify import LARGEST_SIMULATION, Verdict, verify

EXPLAINED_WITHIN = 2.0
"""Seconds that the reasons may take beside the plan."""
HIGH = 0.85
"""Utilisation beyond which a device does less than is counted."""


def plan(request: PlanRequest) -> Plan:
    """The strategy with the best objective, proved best within the model, with reasons and runners-up.

    Raises:
        BadRequest and its kin: a request that cannot be understood or contradicts itself.
        OutOfTime: the time limit passed before any plan was found.
    """
    started = time.perf_counter()
    resolved = resolve(_question(request))
    if resolved.mixed:
        from planner.mixed import plan_mixed

        return plan_mixed(resolved, resolved.mixed, started, reasons=request.reasons)
    pins = parse_pins(request.pins)
    space = recent_space(resolved.scenario, pins)
    outcome = _searched(resolved, space, started + request.time_limit)
    if outcome.best is None and not outcome.proved:
        raise OutOfTime(f"no plan within {request.time_limit:g} s; {outcome.priced} strategies were priced")
    if outcome.best is None:
        moved = offloaded(request, resolved)
        return said_so(plan(moved)) if moved else _infeasible(resolved, space, outcome)
    return _found(resolved, space, outcome, started)


def _question(request: PlanRequest) -> PlanRequest:
    return of_type(request, PlanRequest, of="the question", such_as="PlanRequest(model='llama3-8b', gpus=64)")


def _searched(resolved: Resolved, space: Space, deadline: float) -> Outcome:
    if resolved.request.objective == "memory":
        return leanest(space, resolved.scenario, deadline=deadline)
    return search(space, aim(resolved), deadline=deadline, beside=beside(resolved))


def aim(resolved: Resolved) -> Scenario:
    """What the search prices: with interruptions and checkpoints where goodput is wanted."""
    wanted = resolved.request.objective == "goodput"
    return replace(resolved.scenario, stability=resolved.stability) if wanted else resolved.scenario


def conclude(resolved: Resolved, space: Space, outcome: Outcome, started: float) -> Plan:
    """What a search found, without reasons, runners-up, simulation or the nearest request that works.

    That is what a sweep keeps of a point; `plan` of the same request says the rest.

    Raises:
        OutOfTime: the search was stopped before it found a plan.
    """
    if outcome.best is None and not outcome.proved:
        raise OutOfTime(f"no plan within {resolved.request.time_limit:g} s; {outcome.priced} strategies were priced")
    if outcome.best is None:
        refused = why_nothing(resolved, space, outcome)
        return Plan(status="infeasible", fits=False, rejected=refused, **_frame(resolved))
    choice = choice_of(resolved, outcome)
    priced = quote(choice.taken.row, resolved.scenario, choice.taken.assignment)
    return Plan(**_settled(resolved, space, outcome, choice, priced, started=started, largest=0))


def _by_time(resolved: Resolved) -> bool:
    return resolved.request.objective not in {"memory", "goodput"}


def tied_within(resolved: Resolved) -> float:
    """How much slower than the fastest a plan may be and be taken in its place, as a share."""
    return width(resolved.request.ties) if _by_time(resolved) else 0.0


def beside(resolved: Resolved) -> float:
    """Up to how many times the best a search is to price what it sees, so that all that is tied is seen."""
    return max(BESIDE, 1.0 + tied_within(resolved))


def choice_of(resolved: Resolved, outcome: Outcome) -> Choice:
    """The fastest, or what is as good as that and better validated."""
    return choose(outcome, resolved.scenario, tied_within(resolved))


def _frame(resolved: Resolved) -> dict[str, Any]:
    return {
        "request": request_record(resolved),
        "defaults": resolved.defaults,
        "provenance": provenance_record(resolved),
    }


def _settled(
    resolved: Resolved, space: Space, outcome: Outcome, choice: Choice, priced: Quote, *, started: float, largest: int
) -> dict[str, Any]:
    """What is known of the plan without looking at anything else; ``largest`` passes are simulated at most."""
    scenario, best = resolved.scenario, choice.taken
    verdict = verify(best.row, best.assignment, priced, scenario, largest=largest)
    predicted = prediction_record(resolved, priced.iteration, best.row, best.assignment)
    lean = resolved.request.objective == "memory"
    proof = _proof(space, outcome, choice, verdict, started, priced.iteration, lean=lean)
    return {
        "status": "optimal" if outcome.proved and proof.gap <= CLOSE else "feasible",
        "strategy": strategy_record(best.row, best.assignment, scenario),
        "prediction": predicted,
        "goodput": goodput_record(resolved, best.row, predicted),
        "breakdown_seconds": priced.breakdown,
        "memory_bytes": memory_records(priced, scenario),
        "warnings": (*_warnings(priced, resolved), *_counted(predicted, resolved)),
        "proof": proof,
        **_frame(resolved),
    }


def _found(resolved: Resolved, space: Space, outcome: Outcome, started: float) -> Plan:
    assert outcome.best is not None
    scenario = resolved.scenario
    choice = choice_of(resolved, outcome)
    best = choice.taken
    priced = quote(best.row, scenario, best.assignment)
    settled = _settled(resolved, space, outcome, choice, priced, started=started, largest=LARGEST_SIMULATION)
    found, pins = trust(scenario, best.row), parse_pins(resolved.request.pins)
    idle = idle_pins(resolved, pins, space, Lattice(partial(build, scenario), binding(scenario)))
    settled |= {"warnings": (*settled["warnings"], *outside(found), *idle), "trust": found}
    settled["rejected"] = rejections(space, outcome, scenario)
    if not resolved.request.reasons:
        return Plan(**settled)
    patience = time.perf_counter() + EXPLAINED_WITHIN
    tried = explain.challenges(space, scenario, best, outcome.pool, deadline=patience)
    helps = explain.what_helps(space, scenario, best, priced, pins=pins, deadline=patience)
    return Plan(
        alternatives=explain.alternatives(outcome, tried, resolved, settled["strategy"], resolved.request.top),
        better_validated=better_validated(outcome, best, scenario) if _by_time(resolved) else None,
        why_not=explain.why_not_lines(tried, space, scenario, priced),
        what_helps=(*enough_gpus(resolved, priced.iteration, patience), *helps),
        closest_run=explain.closest_run(scenario),
        **settled,
    )


def _proof(
    space: Space, outcome: Outcome, choice: Choice, verdict: Verdict, started: float, value: float, *, lean: bool
) -> Proof:
    assert outcome.best is not None
    fastest = value * (outcome.best.iteration / choice.taken.iteration)
    bound = fastest if outcome.proved else fastest * min(outcome.lower_bound / outcome.best.iteration, 1.0)
    gap = max((value - bound) / value, 0.0)
    said = f"none can beat {fastest:.4g} s" if outcome.proved else f"proved within {gap:.1%}"
    if choice.reason:
        said += f"; taken: {value:.4g} s (+{value / fastest - 1:.2%}), tied with it, because it {choice.reason}"
    if lean and outcome.proved:
        said = f"no strategy needs less memory than {outcome.best.peak / 2**30:.4g} GiB allocated"
    return Proof(
        candidates=space.candidates,
        feasible=outcome.feasible,
        priced=outcome.priced,
        solves=outcome.solves,
        lower_bound_seconds=bound,
        gap=gap,
        wall_seconds=time.perf_counter() - started,
        simulated_pipeline_seconds=verdict.simulated,
        closed_form_pipeline_seconds=verdict.closed_form,
        statement=said,
        fastest_seconds=fastest if choice.reason else None,
    )


def _infeasible(resolved: Resolved, space: Space, outcome: Outcome) -> Plan:
    return Plan(
        status="infeasible",
        request=request_record(resolved),
        defaults=resolved.defaults,
        fits=False,
        rejected=why_nothing(resolved, space, outcome),
        nearest=nearest(resolved),
        provenance=provenance_record(resolved),
    )


def predict(request: PlanRequest, layers: Sequence[int] | None = None, recomputed: Sequence[int] | None = None) -> Plan:
    """Price one given strategy, without search; unpinned axes take their plainest value.

    ``layers`` gives the layers of every stage; without them the stages are split as in a search. ``recomputed`` gives
    how many of them each stage recomputes, the first ones, where recomputation is partial; without it as few as fit. A
    strategy that breaks a rule or does not fit in memory comes back with status ``infeasible`` and the reasons, in the
    second case with its prediction.

    Raises:
        BadRequest: an axis with several values, or degrees that do not make up the GPUs.
    """
    resolved = resolve(_question(request))
    layers, recomputed = counts("layers", layers), counts("recomputed", recomputed)
    if resolved.mixed:
        if recomputed is not None:
            raise BadRequest("recomputed layers are given for stages of one node group, not of several together")
        from planner.mixed import predict_mixed

        return predict_mixed(resolved, resolved.mixed, layers)
    scenario = resolved.scenario
    row = single_row(scenario, parse_pins(request.pins), layers)
    broken = broken_rules(row, scenario)
    base: dict[str, Any] = {
        "request": request_record(resolved),
        "defaults": resolved.defaults,
        "provenance": provenance_record(resolved),
    }
    if broken:
        return Plan(status="infeasible", fits=False, rejected=broken, **base)
    split = split_or_given(scenario, row, layers, request.time_limit, lean=request.objective == "memory")
    split = with_recomputed(row, split, recomputed)
    priced = quote(row, scenario, split)
    predicted = prediction_record(resolved, priced.iteration, row, split)
    on_host = bool(host_fits(row, scenario)[0])
    fits = on_host and bool(np.max(priced.footprint.allocated) <= memory_limit(scenario, row)[0])
    refused = _memory_rejection(priced, scenario) if on_host else _host_rejection(row, scenario)
    found = trust(scenario, row)
    return Plan(
        status="feasible" if fits else "infeasible",
        fits=fits,
        strategy=strategy_record(row, split, scenario),
        prediction=predicted,
        goodput=goodput_record(resolved, row, predicted),
        breakdown_seconds=priced.breakdown,
        memory_bytes=memory_records(priced, scenario),
        warnings=(*_warnings(priced, resolved), *_counted(predicted, resolved), *outside(found)) if fits else (),
        rejected=() if fits else (refused,),
        closest_run=explain.closest_run(scenario),
        trust=found,
        **base,
    )


def _warnings(priced: Quote, resolved: Resolved) -> tuple[str, ...]:
    """What could go wrong with a plan that is right within the model."""
    device, found = resolved.scenario.group.accelerator, []
    share = peak_bytes(priced) / device.usable_memory
    if share > NEARLY_FULL and not resolved.request.memory_margin:
        stage = int(np.argmax(priced.footprint.total))
        found.append(f"stage {stage} fills {share:.1%} of the usable memory; leave room with --memory-margin 10%")
    if device.name.startswith(COMPILED) and resolved.scenario.stack.name == DEFAULT_STACK:
        found.append(f"{DEFAULT_STACK} makes no programs for {device.name}, XLA does; --stack maxtext plans for it")
    return tuple(found)


def _counted(predicted: Prediction, resolved: Resolved) -> tuple[str, ...]:
    """What of the figures needs a word: utilisation beyond the peak, and costs that nobody knows."""
    found = []
    if max(predicted.mfu, predicted.hfu) > HIGH:
        found.append("MFU and HFU count causal attention whole, half of which is computed: long sequences pass 100 %")
    if resolved.request.objective == "cost" and predicted.cost_dollars is None:
        name = resolved.cluster.name
        found.append(f"{name} has no price, so that the cheapest is the fastest; give it price = '2 $/h'")
    return tuple(found)


def _memory_rejection(priced: Quote, scenario: Scenario) -> Rejection:
    needed, stage = peak_bytes(priced), int(np.argmax(priced.footprint.total))
    limit = scenario.group.accelerator.usable_memory
    words = f"stage {stage} needs {needed / 2**30:.1f} GiB, {limit / 2**30:.1f} GiB available"
    return Rejection(rule="memory", count=1, example=words)


def _host_rejection(row: Strategies, scenario: Scenario) -> Rejection:
    needed, room = host_need(row, scenario)[0], host_room(scenario)
    words = f"offload needs {needed / 2**30:.1f} GiB of the host per GPU, {room / 2**30:.1f} GiB available"
    return Rejection(rule="host-memory", count=1, example=words)


class WhyNot(BaseModel):
    """The answer to "why not this", schema ``why-not/1``: broken rules, or the price beside the best plan's."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: Literal["why-not/1"] = Field("why-not/1", alias="schema")
    strategy: Strategy | None
    pins: dict[str, str]
    rules: tuple[Rejection, ...]
    iteration_seconds: float | None
    best_iteration_seconds: float | None
    terms: dict[str, tuple[float, float]]
    """Seconds of each term: this strategy's, the best plan's."""
    verdict: str


def why_not(request: PlanRequest) -> WhyNot:
    """Compare the best strategy under the request's pins with the best of all.

    What the pins leave free is chosen as well as it can be, so that the comparison is fair.
    """
    pinned = plan(_question(request))
    best = plan(request.model_copy(update={"pins": {}}))
    mine = pinned.prediction.iteration_seconds if pinned.prediction else None
    theirs = best.prediction.iteration_seconds if best.prediction else None
    terms = {
        name: (pinned.breakdown_seconds[name], best.breakdown_seconds[name])
        for name in (best.breakdown_seconds if pinned.prediction and best.prediction else {})
    }
    return WhyNot(
        strategy=pinned.strategy,
        pins={name: _shown(name, value) for name, value in parse_pins(request.pins).items()},
        rules=pinned.rejected if pinned.status == "infeasible" else (),
        iteration_seconds=mine,
        best_iteration_seconds=theirs,
        terms=terms,
        verdict=explain.verdict(pinned, best, terms),
    )


def _shown(name: str, pin: Pin) -> str:
    if not pin.values:
        return f"{pin.low}..{pin.high}"
    return ",".join(shown_value(name, v) for v in pin.values)


__all__ = ["Recompute", "WhyNot", "plan", "predict", "why_not"]
