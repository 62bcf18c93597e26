"""The answers over one node group: what a search or a given strategy comes to, with its reasons."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from costmodels.memory.host import host_fits, host_need, host_room
from costmodels.memory.rows import memory_limit
from costmodels.pricing import Price, effective_recompute, price_strategy
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies
from planner.answer.build import causal_excess, frame_record, peak_bytes, priced_record
from planner.answer.plan import Plan, Prediction, Proof, Rejection
from planner.answer.text import main_restriction, nearly_full_warning
from planner.errors import OutOfTime
from planner.explain import verdict as explain
from planner.explain.infeasible import refusal_reasons, rejections
from planner.explain.nearest import nearest_request, nearest_strategy
from planner.explain.runners_up import alternatives, runners_up
from planner.explain.warnings import Lattice, memory_headroom, not_startable, unused_pin_values
from planner.explain.what_helps import what_helps
from planner.explain.why_not import challenges, why_not_lines
from planner.frameworks.vendors import BY_XLA, XLA, needs_cuda
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.request.resolve import Resolved, resolve
from planner.search.best_first import Outcome
from planner.search.choice import CLOSE, NEARLY_FULL, Choice, better_validated
from planner.search.given import Given, drawn_chunks, given_strategy
from planner.search.memory_savers import note_savers, with_savers
from planner.search.objective import objective_of
from planner.space.active_rules import binding
from planner.space.cache import cached_space
from planner.space.lattice import Space, build
from planner.space.scope import left_out
from planner.trust.interval import interval, outside, trust
from planner.verify.check import LARGEST_SIMULATION, Verdict, verify

CHALLENGES = 5e5
"""Effort of the obvious other choices, which are searched as the plan was."""
RUNNERS_UP = 2.5e5
"""Effort in which runners-up are split."""
HELPS = 1.5e6
"""Effort of what would help, searched anew on other machines."""
HIGH = 0.85
"""Utilisation beyond which a device does less than is counted."""
FLATTERED = 1.2
"""MFU over that of causal attention counted by half, from which on both are told."""


def plan_one_group(resolved: Resolved, budget: Budget) -> Plan:
    """The best strategy with its reasons; where nothing fits as asked, with what saves memory at a price."""
    request = resolved.request
    space = cached_space(resolved.scenario, parse_pins(request.pins))
    outcome = objective_of(resolved).search(space, budget=budget)
    if outcome.best is None and not outcome.proved:
        raise OutOfTime(f"no plan after {outcome.priced} strategies were priced {budget.limit}")
    if outcome.best is None:
        moved = with_savers(request, resolved, budget)
        return (
            note_savers(plan_one_group(resolve(moved), budget))
            if moved
            else _infeasible(resolved, space, outcome, budget)
        )
    return found_plan(resolved, space, outcome, budget)


def conclude(resolved: Resolved, space: Space, outcome: Outcome, budget: Budget) -> Plan:
    """The plan that a search found, without reasons, runners-up, simulation or the nearest request that works.

    That is what a sweep keeps of a point; `plan` of the same request says the rest.

    Raises:
        OutOfTime: the search was stopped before it found a plan.
    """
    if outcome.best is None and not outcome.proved:
        raise OutOfTime(f"no plan after {outcome.priced} strategies were priced {budget.limit}")
    if outcome.best is None:
        refused = refusal_reasons(resolved, space, outcome)
        return Plan(status="infeasible", fits=False, rejected=refused, **frame_record(resolved))
    return Plan(**_settled(resolved, space, outcome, objective_of(resolved).choice(outcome), budget=budget, largest=0))


def _settled(
    resolved: Resolved, space: Space, outcome: Outcome, choice: Choice, *, budget: Budget, largest: int
) -> dict[str, Any]:
    """Fields that need only the plan itself: prediction, warnings, proof. At most ``largest`` passes are simulated."""
    scenario, best = resolved.scenario, choice.taken
    priced = price_strategy(effective_recompute(best.row, best.assignment), scenario, best.assignment)
    verdict = verify(best.row, best.assignment, priced, scenario, largest=largest)
    found = priced_record(resolved, best.row, best.assignment, priced, interval)
    proof = _proof(resolved, space, outcome, choice, verdict=verdict, budget=budget, value=priced.iteration)
    return {
        "status": "optimal" if outcome.proved and proof.gap <= CLOSE else "feasible",
        "warnings": (*_warnings(priced, resolved), *_counted(found["prediction"], resolved)),
        "proof": proof,
        **found,
    }


def found_plan(resolved: Resolved, space: Space, outcome: Outcome, budget: Budget) -> Plan:
    """The plan that a search found, with its reasons.

    Where the budget ended the search, what the reasons come across may be better: that is the plan then.
    """
    objective, pins = objective_of(resolved), parse_pins(resolved.request.pins)
    choice = objective.choice(outcome)
    settled = _with_trust(resolved, space, outcome, choice, budget)
    if not resolved.request.reasons:
        return Plan(**settled)
    part = budget.part(CHALLENGES, share=1 / 3)
    tried = challenges(space, objective, choice.taken, outcome.pool, pins=pins, budget=part)
    part = budget.part(RUNNERS_UP, share=1 / 2)
    others = runners_up(outcome, tried, objective, choice.taken, resolved.request.top, budget=part)
    assert outcome.best is not None
    if not outcome.proved and objective.better(others.best[0], outcome.best):
        outcome.best = others.best[0]  # the search had no effort left to see it, its runners-up did
        choice = Choice(outcome.best, "")
        settled = _with_trust(resolved, space, outcome, choice, budget)
    best, part = choice.taken, budget.part(HELPS, share=1.0)
    if not resolved.request.memory_margin:
        settled["warnings"] += memory_headroom(space, objective, best, pins, part)
    settled["warnings"] += not_startable(resolved.request, objective, best, outcome.pool)
    return Plan(
        alternatives=alternatives(others.best, objective, resolved, settled["strategy"], outcome.best),
        alternatives_complete=others.complete,
        better_validated=better_validated(outcome, best, objective.scenario) if objective.by_time else None,
        why_not=why_not_lines(tried, space, objective, best),
        what_helps=what_helps(resolved, space, objective, best, pins=pins, budget=part),
        closest_run=explain.closest_run(resolved.scenario),
        **settled,
    )


def _with_trust(resolved: Resolved, space: Space, outcome: Outcome, choice: Choice, budget: Budget) -> dict[str, Any]:
    """Fields of `_settled` with the interval, the refusals and a warning of pins that do nothing."""
    scenario, pins = resolved.scenario, parse_pins(resolved.request.pins)
    settled = _settled(resolved, space, outcome, choice, budget=budget, largest=LARGEST_SIMULATION)
    found = trust(scenario, choice.taken.row, mfu=settled["prediction"].mfu)
    idle = unused_pin_values(resolved, pins, space, Lattice(partial(build, scenario), binding(scenario)))
    warnings = (*settled["warnings"], *outside(found), *idle)
    return settled | {"warnings": warnings, "trust": found, "rejected": rejections(space, outcome, scenario)}


def _proof(
    resolved: Resolved,
    space: Space,
    outcome: Outcome,
    choice: Choice,
    *,
    verdict: Verdict,
    budget: Budget,
    value: float,
) -> Proof:
    assert outcome.best is not None
    scenario, objective = resolved.scenario, resolved.request.objective
    scope = left_out(scenario, parse_pins(resolved.request.pins), space.cores, by_memory=objective == "memory")
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
        wall_seconds=budget.elapsed,
        simulated_pipeline_seconds=verdict.simulated,
        closed_form_pipeline_seconds=verdict.closed_form,
        statement=_statement(outcome, choice, objective, value, gap, main_restriction(scope)),
        scope=scope,
        fastest_seconds=fastest if choice.reason else None,
    )


def _statement(outcome: Outcome, choice: Choice, objective: str, value: float, gap: float, scope: str) -> str:
    """The proof as a sentence, with the restriction that matters; the plan takes ``value`` seconds."""
    assert outcome.best is not None
    fastest = value * (outcome.best.iteration / choice.taken.iteration)
    if objective == "memory":
        least = f"{outcome.best.even_split_peak_bytes / 2**30:.4g} GiB allocated"
        said = f"no strategy needs less memory than {least} {scope}".rstrip()
        return said if outcome.proved else f"{least}; others were not looked at"
    if objective == "goodput" and outcome.proved:
        return f"none trains more per wall time {scope}".rstrip()
    said = f"none can beat {fastest:.4g} s {scope}".rstrip() if outcome.proved else f"proved within {gap:.1%}"
    if choice.reason:
        said += f"; taken: {value:.4g} s (+{value / fastest - 1:.2%}), tied with it, because it {choice.reason}"
    return said


def _infeasible(resolved: Resolved, space: Space, outcome: Outcome, budget: Budget) -> Plan:
    near = nearest_request(resolved, budget, short=outcome.memory_refused > 0)
    return Plan(
        status="infeasible",
        fits=False,
        rejected=refusal_reasons(resolved, space, outcome),
        nearest=near.advice,
        nothing_near=near.tried,
        **frame_record(resolved),
    )


def predict_one_group(
    resolved: Resolved,
    budget: Budget,
    layers: Sequence[int] | None,
    recomputed: Sequence[int] | None,
    *,
    chunked: bool,
    near: bool,
    as_ran: bool,
) -> Plan:
    """The price of the one strategy that the pins describe, or the rules that it breaks; arguments as of `predict`."""
    scenario, pins = resolved.scenario, parse_pins(resolved.request.pins)
    found = given_strategy(resolved, pins, layers, recomputed, budget=budget, chunked=chunked, as_ran=as_ran)
    if isinstance(found, Given):
        return _predicted(resolved, found)
    advice = nearest_strategy(scenario, pins, layers) if near else None
    return Plan(status="infeasible", fits=False, rejected=found, nearest=advice, **frame_record(resolved))


def _predicted(resolved: Resolved, given: Given) -> Plan:
    """The price of one strategy, and whether it fits."""
    scenario, row, split = resolved.scenario, given.row, given.split
    priced = given.price(scenario)
    found = priced_record(resolved, row, split, priced, interval)
    known = trust(scenario, row, mfu=found["prediction"].mfu)
    refused = _too_large(row, priced, scenario)
    said = (*_warnings(priced, resolved), *_counted(found["prediction"], resolved))
    warnings = (*said, *outside(known), *drawn_chunks(split.layers.tolist(), row, scenario))
    broken = tuple(f"breaks the rule {one.rule}: {one.example}; priced as it ran" for one in given.broken)
    return Plan(
        status="infeasible" if refused else "feasible",
        fits=not refused,
        warnings=broken if refused else (*broken, *warnings),
        rejected=(*given.broken, *refused),
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
    """Warnings of memory that is all but full, and of a stack that makes no programs for the device."""
    device, found = resolved.scenario.group.accelerator, []
    share = peak_bytes(priced) / device.usable_memory
    if share > NEARLY_FULL and not resolved.request.memory_margin:
        stage = int(np.argmax(priced.footprint.total))
        found.append(nearly_full_warning(stage, share))
    stack = resolved.scenario.stack.name
    if device.vendor in BY_XLA and needs_cuda(stack):
        found.append(f"{stack} makes no programs for {device.name}, XLA does; --stack {XLA} plans for it")
    return tuple(found)


def _counted(predicted: Prediction, resolved: Resolved) -> tuple[str, ...]:
    """Warnings about figures: utilisation beyond the peak, and a cost that nobody knows."""
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
