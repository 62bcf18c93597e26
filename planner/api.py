"""The three questions: the best plan, the price of one strategy, why not another one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from costmodels.layout.split import Assignment
from costmodels.memory.host import host_fits, host_need, host_room
from costmodels.memory.rows import memory_limit
from costmodels.pricing import Price, price_strategy
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies
from planner.answer.build import causal_excess, frame_record, peak_bytes, priced_record
from planner.answer.plan import Plan, Prediction, Proof, Rejection
from planner.answer.text import all_but_full, foremost
from planner.errors import BadRequest, OutOfTime
from planner.explain import verdict as explain
from planner.explain.challenges import challenges, why_not_lines
from planner.explain.headroom import roomier
from planner.explain.idle_pins import Lattice, idle_pins
from planner.explain.infeasible import rejections, why_nothing
from planner.explain.nearest_request import nearest
from planner.explain.nearest_strategy import near_row
from planner.explain.runners_up import alternatives, runners_up
from planner.explain.startable import unstarted
from planner.explain.what_helps import what_helps
from planner.frameworks.vendors import XLA, needs_cuda
from planner.request.arguments import counts, of_type
from planner.request.pins import parse_pins
from planner.request.request import PlanRequest, Resolved, resolve
from planner.rules.core import binding
from planner.runs.words.stack_words import COMPILED
from planner.search.best_first import Outcome
from planner.search.choice import CLOSE, NEARLY_FULL, Choice, better_validated
from planner.search.given import broken_rules, checked_layers, drawn_chunks, single_row, split_or_given, with_recomputed
from planner.search.memory_savers import offloaded, said_so
from planner.search.objective import aim_of
from planner.search.split import as_it_runs
from planner.space.lattice import Space, build
from planner.space.recent import recent_space
from planner.space.scope import left_out
from planner.trust.interval import outside, trust
from planner.verify.check import LARGEST_SIMULATION, Verdict, verify

EXPLAINED_WITHIN = 3.0
"""Seconds that the reasons may take beside the plan, where no time limit is asked for that leaves them more."""
HIGH = 0.85
"""Utilisation beyond which a device does less than is counted."""
FLATTERED = 1.2
"""MFU over that of causal attention counted by half, from which on both are told."""


def plan(request: PlanRequest) -> Plan:
    """The strategy with the best objective, proved best within the model, with reasons and runners-up.

    Raises:
        BadRequest and its kin: a request that cannot be understood or contradicts itself.
        OutOfTime: the time limit passed before any plan was found.
    """
    started = time.perf_counter()
    resolved = resolve(question(request))
    if resolved.mixed:
        from planner.mixed import plan_mixed

        return plan_mixed(resolved, resolved.mixed, started, reasons=request.reasons)
    pins = parse_pins(request.pins)
    space = recent_space(resolved.scenario, pins)
    outcome = aim_of(resolved).search(space, deadline=started + request.time_limit)
    if outcome.best is None and not outcome.proved:
        raise OutOfTime(f"no plan within {request.time_limit:g} s; {outcome.priced} strategies were priced")
    if outcome.best is None:
        moved = offloaded(request, resolved)
        return said_so(plan(moved)) if moved else _infeasible(resolved, space, outcome)
    return found_plan(resolved, space, outcome, started)


def question(request: PlanRequest) -> PlanRequest:
    """The request, of whatever a caller gave for one; raises BadRequest where it is none."""
    return of_type(request, PlanRequest, of="the question", such_as="PlanRequest(model='llama3-8b', gpus=64)")


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
        return Plan(status="infeasible", fits=False, rejected=refused, **frame_record(resolved))
    return Plan(**_settled(resolved, space, outcome, aim_of(resolved).choice(outcome), started=started, largest=0))


def _settled(
    resolved: Resolved, space: Space, outcome: Outcome, choice: Choice, *, started: float, largest: int
) -> dict[str, Any]:
    """What is known of the plan without looking at anything else; ``largest`` passes are simulated at most."""
    scenario, best = resolved.scenario, choice.taken
    priced = price_strategy(as_it_runs(best.row, best.assignment), scenario, best.assignment)
    verdict = verify(best.row, best.assignment, priced, scenario, largest=largest)
    found = priced_record(resolved, best.row, best.assignment, priced)
    proof = _proof(resolved, space, outcome, choice, verdict=verdict, started=started, value=priced.iteration)
    return {
        "status": "optimal" if outcome.proved and proof.gap <= CLOSE else "feasible",
        "warnings": (*_warnings(priced, resolved), *_counted(found["prediction"], resolved)),
        "proof": proof,
        **found,
    }


def found_plan(resolved: Resolved, space: Space, outcome: Outcome, started: float) -> Plan:
    """What a search found, with its reasons.

    Where time ended the search, what the reasons come across may be better: that is the plan then.
    """
    aim, pins = aim_of(resolved), parse_pins(resolved.request.pins)
    choice = aim.choice(outcome)
    settled = _with_trust(resolved, space, outcome, choice, started)
    if not resolved.request.reasons:
        return Plan(**settled)
    asked, usual = explain.asked_until(resolved.request, started), time.perf_counter() + EXPLAINED_WITHIN
    tried = challenges(space, aim, choice.taken, outcome.pool, pins=pins, deadline=explain.later(usual, asked, of=3))
    left = usual - time.perf_counter()
    others = runners_up(outcome, tried, aim, choice.taken, resolved.request.top, until=asked)
    until = explain.later(time.perf_counter() + left, asked)  # runners-up have a time of their own
    assert outcome.best is not None
    if not outcome.proved and aim.better(others.best[0], outcome.best):
        outcome.best = others.best[0]  # the search had no time to see it, its runners-up did
        choice = Choice(outcome.best, "")
        settled = _with_trust(resolved, space, outcome, choice, started)
    best = choice.taken
    if not resolved.request.memory_margin:
        settled["warnings"] += roomier(space, aim, best, pins, until)
    settled["warnings"] = (*settled["warnings"], *unstarted(Plan(**settled), resolved.request))
    return Plan(
        alternatives=alternatives(others.best, aim, resolved, settled["strategy"], outcome.best),
        alternatives_complete=others.complete,
        better_validated=better_validated(outcome, best, aim.scenario) if aim.by_time else None,
        why_not=why_not_lines(tried, space, aim, best),
        what_helps=what_helps(resolved, space, aim, best, pins=pins, deadline=until),
        closest_run=explain.closest_run(resolved.scenario),
        **settled,
    )


def _with_trust(resolved: Resolved, space: Space, outcome: Outcome, choice: Choice, started: float) -> dict[str, Any]:
    """What is known of the plan, with what was measured of its like, what was refused, and pins that do nothing."""
    scenario, pins = resolved.scenario, parse_pins(resolved.request.pins)
    settled = _settled(resolved, space, outcome, choice, started=started, largest=LARGEST_SIMULATION)
    found = trust(scenario, choice.taken.row, mfu=settled["prediction"].mfu)
    idle = idle_pins(resolved, pins, space, Lattice(partial(build, scenario), binding(scenario)))
    warnings = (*settled["warnings"], *outside(found), *idle)
    return settled | {"warnings": warnings, "trust": found, "rejected": rejections(space, outcome, scenario)}


def _proof(
    resolved: Resolved,
    space: Space,
    outcome: Outcome,
    choice: Choice,
    *,
    verdict: Verdict,
    started: float,
    value: float,
) -> Proof:
    assert outcome.best is not None
    scenario, objective = resolved.scenario, resolved.request.objective
    scope = left_out(scenario, parse_pins(resolved.request.pins), space.cores, lean=objective == "memory")
    fastest = value * (outcome.best.iteration / choice.taken.iteration)
    bound = fastest if outcome.proved else fastest * min(outcome.lower_bound / outcome.best.iteration, 1.0)
    gap = max((value - bound) / value, 0.0)
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
        statement=_statement(outcome, choice, objective, value, gap, foremost(scope)),
        scope=scope,
        fastest_seconds=fastest if choice.reason else None,
    )


def _statement(outcome: Outcome, choice: Choice, objective: str, value: float, gap: float, scope: str) -> str:
    """What is proved, and the restriction that matters; ``value`` seconds are the plan's."""
    assert outcome.best is not None
    fastest = value * (outcome.best.iteration / choice.taken.iteration)
    if objective == "memory":
        least = f"{outcome.best.peak / 2**30:.4g} GiB allocated"
        said = f"no strategy needs less memory than {least} {scope}".rstrip()
        return said if outcome.proved else f"{least}; others were not looked at"
    if objective == "goodput" and outcome.proved:
        return f"none trains more per wall time {scope}".rstrip()
    said = f"none can beat {fastest:.4g} s {scope}".rstrip() if outcome.proved else f"proved within {gap:.1%}"
    if choice.reason:
        said += f"; taken: {value:.4g} s (+{value / fastest - 1:.2%}), tied with it, because it {choice.reason}"
    return said


def _infeasible(resolved: Resolved, space: Space, outcome: Outcome) -> Plan:
    near = nearest(resolved, short=outcome.memory_refused > 0)
    return Plan(
        status="infeasible",
        fits=False,
        rejected=why_nothing(resolved, space, outcome),
        nearest=near.advice,
        nothing_near=near.tried,
        **frame_record(resolved),
    )


def predict(
    request: PlanRequest,
    layers: Sequence[int] | None = None,
    recomputed: Sequence[int] | None = None,
    *,
    chunked: bool = True,
    near: bool = True,
) -> Plan:
    """Price one given strategy, without search; unpinned axes take their plainest value.

    ``layers`` gives the layers of every stage; without them the stages are split as in a search. ``recomputed`` gives
    how many of them each stage recomputes, the first ones, where recomputation is partial; without it as few as fit.
    Unless ``chunked`` they may make no equal chunks, as a job may have them that draws each of its own, and the answer
    warns of it. A strategy that breaks a rule or does not fit in memory comes back with status ``infeasible`` and the
    reasons, in the first case with the nearest that works unless ``near`` is False, in the second with its prediction.

    Raises:
        BadRequest: an axis with several values, degrees that do not make up the GPUs, or layers that no such pipeline
            has.
    """
    resolved = resolve(question(request))
    layers, recomputed = counts("layers", layers), counts("recomputed", recomputed)
    if resolved.mixed:
        if recomputed is not None:
            raise BadRequest("recomputed layers are given for stages of one node group, not of several together")
        from planner.mixed import predict_mixed

        return predict_mixed(resolved, resolved.mixed, layers, chunked=chunked)
    scenario = resolved.scenario
    pins = parse_pins(request.pins)
    row = single_row(scenario, pins, layers)
    if broken := broken_rules(row, scenario, layers):
        advice = near_row(scenario, pins, layers) if near else None
        return Plan(status="infeasible", fits=False, rejected=broken, nearest=advice, **frame_record(resolved))
    if layers is not None:
        layers = checked_layers(layers, row, scenario, chunked=chunked)
    split = split_or_given(scenario, row, layers, request.time_limit, lean=request.objective == "memory")
    return _predicted(resolved, row, with_recomputed(row, split, recomputed))


def _predicted(resolved: Resolved, row: Strategies, split: Assignment) -> Plan:
    """The price of one strategy that keeps to the rules, and whether it fits."""
    scenario = resolved.scenario
    priced = price_strategy(as_it_runs(row, split), scenario, split)
    found = priced_record(resolved, row, split, priced)
    known = trust(scenario, row, mfu=found["prediction"].mfu)
    refused = _too_large(row, priced, scenario)
    said = (*_warnings(priced, resolved), *_counted(found["prediction"], resolved))
    warnings = (*said, *outside(known), *drawn_chunks(split.layers.tolist(), row, scenario))
    return Plan(
        status="infeasible" if refused else "feasible",
        fits=not refused,
        warnings=() if refused else warnings,
        rejected=refused,
        closest_run=explain.closest_run(scenario),
        trust=known,
        **found,
    )


def _too_large(row: Strategies, priced: Price, scenario: Scenario) -> tuple[Rejection, ...]:
    """The memory that a strategy does not fit in, that of the hosts before that of the devices."""
    if not host_fits(row, scenario)[0]:
        return (_host_rejection(row, scenario),)
    fits = np.max(priced.footprint.allocated) <= memory_limit(scenario, row)[0]
    return () if fits else (_memory_rejection(priced, scenario),)


def _warnings(priced: Price, resolved: Resolved) -> tuple[str, ...]:
    """What could go wrong with a plan that is right within the model."""
    device, found = resolved.scenario.group.accelerator, []
    share = peak_bytes(priced) / device.usable_memory
    if share > NEARLY_FULL and not resolved.request.memory_margin:
        stage = int(np.argmax(priced.footprint.total))
        found.append(all_but_full(stage, share))
    stack = resolved.scenario.stack.name
    if device.name.startswith(COMPILED) and needs_cuda(stack):
        found.append(f"{stack} makes no programs for {device.name}, XLA does; --stack {XLA} plans for it")
    return tuple(found)


def _counted(predicted: Prediction, resolved: Resolved) -> tuple[str, ...]:
    """What of the figures needs a word: utilisation beyond the peak, and costs that nobody knows."""
    found = []
    halved = predicted.mfu / causal_excess(resolved.scenario)
    if predicted.mfu > FLATTERED * halved or max(predicted.mfu, predicted.hfu) > HIGH:
        whole = "MFU and HFU count causal attention whole, half of which is computed"
        found.append(f"{whole}: MFU is {halved:.1%} by that half, and long sequences pass 100 %")
    if resolved.request.objective == "cost" and predicted.cost_dollars is None:
        name = resolved.cluster.name
        found.append(f"{name} has no price, so that the cheapest is the fastest; give it price = '2 $/h'")
    return tuple(found)


def _memory_rejection(priced: Price, scenario: Scenario) -> Rejection:
    needed, stage = peak_bytes(priced), int(np.argmax(priced.footprint.total))
    limit = scenario.group.accelerator.usable_memory
    words = f"stage {stage} needs {needed / 2**30:.1f} GiB, {limit / 2**30:.1f} GiB available"
    return Rejection(rule="memory", count=1, example=words)


def _host_rejection(row: Strategies, scenario: Scenario) -> Rejection:
    needed, room = host_need(row, scenario)[0], host_room(scenario)
    words = f"offload needs {needed / 2**30:.1f} GiB of the host per GPU, {room / 2**30:.1f} GiB available"
    return Rejection(rule="host-memory", count=1, example=words)


__all__ = ["plan", "predict"]
