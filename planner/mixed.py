"""The three questions where a cluster has several node groups: what ``api`` answers for one, for all of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from costmodels.groups import Mixed, MixedRows, price_mixed
from costmodels.pricing import Price, row_assignment
from planner.answer.build import frame_record, prediction_record
from planner.answer.plan import Advice, Plan, Proof, Rejection
from planner.answer.text import all_but_full
from planner.errors import BadRequest, OutOfTime
from planner.explain.idle_pins import Lattice, idle_pins
from planner.explain.mixed import EXPLAINED_WITHIN, alternatives, runners_up, what_helps, why_not_lines
from planner.explain.mixed_records import degrees_in_words, mixed_memory, mixed_record, stage_limits
from planner.explain.nearest_request import NEAREST_SECONDS, Near, tried, without
from planner.explain.plainer import plainer
from planner.explain.reasons import telling
from planner.explain.verdict import asked_until, later
from planner.request.pins import Pin, parse_pins
from planner.request.request import Resolved
from planner.rules.core import GROUP_RULES, binding
from planner.search.given import checked_layers, drawn_chunks
from planner.search.mixed import MixedIncumbent, MixedOutcome, best_split, given, given_split, price, search
from planner.search.mixed_given import broken_rules, given_row, in_every_order
from planner.space.mixed import MixedSpace, build
from planner.space.scope import left_out
from planner.trust.interval import trust
from planner.verify.check import Verdict, verify_mixed

NEARLY_FULL = 0.95
"""Share of the usable memory from which a plan is called tight."""


def plan_mixed(
    resolved: Resolved,
    mixed: Mixed,
    started: float,
    *,
    reasons: bool = True,
    each: Mapping[str, Pin] | None = None,
) -> Plan:
    """The fastest strategy over all node groups, proved fastest within the model.

    Every stage has as many ranks, as launchers ask for; only where no such strategy fits do widths differ. Runners-up,
    why not, what helps and the nearest request that works are left out without ``reasons``. ``each`` are the request's
    pins where they give every group its own; what refuses them is then looked for among stages of any widths.

    Raises:
        BadRequest: pinned degrees that cannot make up the groups.
        OutOfTime: the time limit passed before any plan was found.
    """
    pins, deadline = each or parse_pins(resolved.request.pins), started + resolved.request.time_limit
    space, outcome, one_width = space_that_fits(mixed, pins, deadline, any_width=bool(each))
    if outcome.best is None and not outcome.proved:
        raise OutOfTime(f"no plan within {resolved.request.time_limit:g} s; {outcome.priced} strategies were priced")
    if outcome.best is None:
        return _infeasible(resolved, mixed, space, outcome, reasons=reasons)
    return found_plan(resolved, mixed, space, outcome, started=started, one_width=one_width, reasons=reasons, pins=pins)


def space_that_fits(
    mixed: Mixed, pins: Mapping[str, Pin], deadline: float, *, any_width: bool = False
) -> tuple[MixedSpace, MixedOutcome, bool]:
    """A lattice with what a search finds there: of stages of one width, or of any widths where none of those fits.

    The last says whether it is of one width and something fits. Where nothing fits, it is the lattice of one width
    unless ``any_width``.
    """
    space = build(mixed, pins, deadline=deadline)
    outcome = search(space, mixed, deadline=deadline)
    if outcome.best is not None or not outcome.proved:
        return space, outcome, outcome.best is not None
    wider = build(mixed, pins, one_width=False, deadline=deadline)
    found = search(wider, mixed, deadline=deadline)
    return (wider, found, False) if any_width or found.best or not found.proved else (space, outcome, False)


def found_plan(
    resolved: Resolved,
    mixed: Mixed,
    space: MixedSpace,
    outcome: MixedOutcome,
    *,
    started: float,
    one_width: bool,
    reasons: bool,
    pins: Mapping[str, Pin] | None = None,
) -> Plan:
    """What a search found, with its reasons; where time ended the search, the best that those come across.

    ``pins`` are the request's, unless they are given as they were read.
    """
    assert outcome.best is not None
    took = time.perf_counter() - started
    usual = time.perf_counter() + min(EXPLAINED_WITHIN, resolved.request.time_limit)
    until = later(usual, asked_until(resolved.request, started))
    others = runners_up(outcome, resolved, mixed, until) if reasons else None
    if others and not outcome.proved and others.best[0].iteration < outcome.ceiling:
        outcome.best, took = others.best[0], time.perf_counter() - started  # the search had no time to see it
    best = outcome.best
    priced = price_mixed(best.row, mixed, best.assignment)
    verdict = verify_mixed(best.row, best.assignment, priced, mixed)
    pins = pins or parse_pins(resolved.request.pins)
    scope = _scope(space, mixed, pins, one_width=one_width)
    proof = _proof(space, outcome, verdict, took, one_width=one_width, scope=scope)
    why: dict[str, Any] = {}
    if others is not None:
        why = {
            "alternatives": alternatives(others.best, best, resolved, mixed),
            "alternatives_complete": others.complete,
            "why_not": why_not_lines(space, mixed, best, until),
            "what_helps": what_helps(resolved, space, mixed, best, until=until, one_width=one_width),
        }
    lattice = Lattice(partial(build, mixed, one_width=one_width), (*GROUP_RULES, *binding(resolved.scenario)))
    idle = idle_pins(resolved, pins, space, lattice)
    return Plan(
        status="optimal" if outcome.proved else "feasible",
        **why,
        warnings=(*_widths(best.row), *_warnings(priced, mixed, best.row, resolved), *idle),
        rejected=_rejections(space, outcome),
        proof=proof,
        **_priced(resolved, mixed, best, priced),
    )


def _priced(resolved: Resolved, mixed: Mixed, best: MixedIncumbent, priced: Price) -> dict[str, Any]:
    """What a found plan and a predicted one have in common."""
    lead = best.row.groups[int(best.row.order[0, 0])]
    prediction = prediction_record(resolved, priced.iteration, lead, best.assignment)
    return {
        "strategy": mixed_record(best.row, best.assignment, mixed),
        "prediction": prediction,
        "trust": trust(resolved.scenario, lead, mfu=prediction.mfu, mixture=True),
        "breakdown_seconds": priced.breakdown,
        "memory_bytes": mixed_memory(priced, mixed, best.row),
        **frame_record(resolved),
    }


def _scope(space: MixedSpace, mixed: Mixed, pins: Mapping[str, Pin], *, one_width: bool) -> tuple[str, ...]:
    """Among which strategies a plan is the best: what restricts the lattice of any group restricts it."""
    alone = {**pins, **parse_pins({"offload": "none", "recompute_num_layers": 1})}  # rules refuse all else
    parts = zip(mixed.scenarios, space.cores.groups, strict=True)
    said = (phrase for scenario, cores in parts for phrase in left_out(scenario, alone, cores))
    width = " with as many ranks on every stage" if one_width else ""
    return (f"among strategies over all node groups{width}", *dict.fromkeys(said))


def _proof(
    space: MixedSpace,
    outcome: MixedOutcome,
    verdict: Verdict,
    took: float,
    *,
    one_width: bool,
    scope: tuple[str, ...],
) -> Proof:
    assert outcome.best is not None
    value = outcome.best.iteration
    bound = value if outcome.proved else min(outcome.lower_bound, value)
    gap = (value - bound) / value
    among = " with as many ranks on every stage" if one_width else ""
    said = f"none{among} can beat {value:.4g} s" if outcome.proved else f"proved within {gap:.1%}"
    return Proof(
        candidates=space.candidates,
        feasible=outcome.feasible,
        priced=outcome.priced,
        solves=outcome.solves,
        lower_bound_seconds=bound,
        gap=gap,
        wall_seconds=took,
        simulated_pipeline_seconds=verdict.simulated,
        closed_form_pipeline_seconds=verdict.closed_form,
        statement=said,
        scope=scope,
    )


def _widths(row: MixedRows) -> tuple[str, ...]:
    ranks = {int(group.tp[0] * group.cp[0] * group.dp[0]) for group in row.groups}
    if len(ranks) == 1:
        return ()
    shown = " and ".join(map(str, sorted(ranks)))
    return (f"stages have {shown} ranks, so that tp x cp x pp x dp is not the number of GPUs; few launchers do that",)


def _warnings(priced: Price, mixed: Mixed, row: MixedRows, resolved: Resolved) -> tuple[str, ...]:
    share = priced.footprint.total / stage_limits(mixed, row)
    stage = int(np.argmax(share))
    if share[stage] <= NEARLY_FULL or resolved.request.memory_margin:
        return ()
    return (all_but_full(stage, float(share[stage])),)


def _rejections(space: MixedSpace, outcome: MixedOutcome) -> tuple[Rejection, ...]:
    rows = [Rejection(rule=r.rule, count=r.count, example=r.example) for r in space.refusals]
    if outcome.memory_refused:
        example = f"{outcome.memory_refused:,} of {outcome.priced:,} branches fit the groups' memory under no split"
        rows.append(Rejection(rule="memory", count=outcome.memory_refused, example=example))
    return tuple(rows)


def _infeasible(resolved: Resolved, mixed: Mixed, space: MixedSpace, outcome: MixedOutcome, *, reasons: bool) -> Plan:
    found = _rejections(space, outcome)
    near = _nearest(resolved, mixed) if reasons else Near(None, "")
    return Plan(
        status="infeasible",
        fits=False,
        rejected=telling(found, resolved, (*GROUP_RULES, *binding(resolved.scenario))),
        nearest=near.advice,
        nothing_near=near.tried,
        **frame_record(resolved),
    )


def _nearest(resolved: Resolved, mixed: Mixed) -> Near:
    """The same request without one of its pins, else without all of them, else without one of its options."""
    deadline = time.perf_counter() + min(NEAREST_SECONDS, resolved.request.time_limit)
    pins = parse_pins(resolved.request.pins)
    found = _fewer_pins(mixed, pins, deadline) or _fewer_options(resolved, pins, deadline)
    return Near(found, "" if found else tried(resolved, late=time.perf_counter() > deadline))


def _fewer_pins(mixed: Mixed, pins: Mapping[str, Pin], deadline: float) -> Advice | None:
    freed = {name: {other: pins[other] for other in pins if other != name} for name in pins if len(pins) > 1}
    works = {name: best for name, rest in freed.items() if (best := _best(mixed, rest, deadline))}
    if works:
        name = min(works, key=lambda pin: works[pin].iteration)
        return _described(without([name]), works[name], mixed)
    best = _best(mixed, {}, deadline) if pins else None
    return _described(without(pins), best, mixed) if best else None


def _fewer_options(resolved: Resolved, pins: Mapping[str, Pin], deadline: float) -> Advice | None:
    for subject, there in plainer(resolved, deadline):
        if there.mixed and (best := _best(there.mixed, pins, deadline)):
            return _described(subject, best, there.mixed)
    return None


def _best(mixed: Mixed, pins: Mapping[str, Pin], deadline: float) -> MixedIncumbent | None:
    """The best under some of the pins; None also where these alone make up no strategy."""
    try:
        space = build(mixed, pins, one_width=False)
    except BadRequest:
        return None
    return search(space, mixed, deadline=deadline).best


def _described(subject: str, best: MixedIncumbent, mixed: Mixed) -> Advice:
    return Advice(subject=subject, text=degrees_in_words(best.row, mixed), iteration_seconds=best.iteration)


def predict_mixed(resolved: Resolved, mixed: Mixed, layers: Sequence[int] | None, *, chunked: bool = True) -> Plan:
    """Price one given strategy in the best order of the groups, or in the cluster's where the layers are given.

    Unless ``chunked`` these may make no equal chunks.

    Raises:
        BadRequest: an axis with several values that are not one for each group, or degrees that do not fit.
    """
    row = given_row(resolved, mixed)
    broken = broken_rules(row, mixed)
    if broken:
        return Plan(status="infeasible", fits=False, rejected=broken, **frame_record(resolved))
    if layers is not None:
        layers = checked_layers(layers, row.groups[0], mixed.scenarios[0], counted=False, chunked=chunked)
    best, fits = _best_order(resolved, mixed, row, layers)
    priced = price_mixed(best.row, mixed, best.assignment)
    drawn = drawn_chunks(best.assignment.layers.tolist(), row.groups[0], mixed.scenarios[0], counted=False)
    warnings = (*_widths(best.row), *_warnings(priced, mixed, best.row, resolved), *drawn) if fits else ()
    return Plan(
        status="feasible" if fits else "infeasible",
        fits=fits,
        warnings=warnings,
        rejected=() if fits else (_too_big(priced, mixed, best.row),),
        **_priced(resolved, mixed, best, priced),
    )


def _too_big(priced: Price, mixed: Mixed, row: MixedRows) -> Rejection:
    limits = stage_limits(mixed, row)
    stage = int(np.argmax(priced.footprint.total / limits))
    needed, name = priced.footprint.total[stage], mixed.scenarios[int(row.group_at()[0, stage])].group.name
    words = f"stage {stage} on {name} needs {needed / 2**30:.1f} GiB, {limits[stage] / 2**30:.1f} GiB available"
    return Rejection(rule="memory", count=1, example=words)


def _best_order(
    resolved: Resolved, mixed: Mixed, row: MixedRows, layers: Sequence[int] | None
) -> tuple[MixedIncumbent, bool]:
    """The strategy with its order and split, the ``checked_layers`` where they are given, and whether it fits."""
    if layers is not None:
        one = price(row, mixed)
        split = given_split(one, mixed, layers)
    else:
        deadline = time.perf_counter() + resolved.request.time_limit
        orders = in_every_order(row)
        found = [best for one in orders if (best := best_split(price(one, mixed), mixed, deadline=deadline))]
        if found:
            return min(found, key=lambda best: best.iteration), True
        one, split = price(row, mixed), row_assignment(row.groups[0], mixed.scenarios[0].model.num_layers)
    run = given(row, mixed, split)
    needed = price_mixed(run.row, mixed, split).footprint.total
    return run, bool((needed <= stage_limits(mixed, row) * (1 + 1e-9)).all())
