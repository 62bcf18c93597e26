"""The three questions where a cluster has several node groups: what ``api`` answers for one, for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from costmodels.groups import Mixed, MixedRows, price_mixed
from costmodels.pricing import Price, row_assignment
from planner.answer.build import frame_record, prediction_record
from planner.answer.plan import Advice, Plan, Proof, Rejection
from planner.answer.text import nearly_full_warning
from planner.errors import BadRequest, OutOfTime
from planner.explain.infeasible import as_rejections, order_refusals
from planner.explain.mixed import (
    alternatives,
    degrees_in_words,
    mixed_memory,
    mixed_record,
    runners_up,
    stage_limits,
    what_helps,
    why_not_lines,
)
from planner.explain.nearest import NEAREST, Near, tried, without, without_one_option
from planner.explain.warnings import Lattice, unused_pin_values
from planner.request.budget import Budget
from planner.request.pins import Pin, parse_pins
from planner.request.resolve import Resolved
from planner.rules.core import GROUP_RULES
from planner.search.choice import NEARLY_FULL
from planner.search.given import checked_layers, drawn_chunks
from planner.search.mixed import MixedIncumbent, MixedOutcome, best_split, given, given_split, price, search
from planner.search.mixed_given import broken_rules, given_row, in_every_order
from planner.space.active_rules import binding
from planner.space.mixed import MixedSpace, build
from planner.space.scope import left_out
from planner.trust.interval import interval, trust
from planner.verify.check import Verdict, verify_mixed


def plan_mixed(
    resolved: Resolved,
    mixed: Mixed,
    budget: Budget,
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
    pins = each or parse_pins(resolved.request.pins)
    space, outcome, one_width = space_that_fits(mixed, pins, budget, any_width=bool(each))
    if outcome.best is None and not outcome.proved:
        raise OutOfTime(f"no plan after {outcome.priced} strategies were priced {budget.limit}")
    if outcome.best is None:
        return _infeasible(resolved, mixed, space, outcome, budget if reasons else None)
    return found_plan(resolved, mixed, space, outcome, budget=budget, one_width=one_width, reasons=reasons, pins=pins)


def space_that_fits(
    mixed: Mixed, pins: Mapping[str, Pin], budget: Budget, *, any_width: bool = False
) -> tuple[MixedSpace, MixedOutcome, bool]:
    """A lattice with what a search finds there: of stages of one width, or of any widths where none of those fits.

    The last says whether it is of one width and something fits. Where nothing fits, it is the lattice of one width
    unless ``any_width``.
    """
    space = build(mixed, pins, budget=budget)
    outcome = search(space, mixed, budget=budget)
    if outcome.best is not None or not outcome.proved:
        return space, outcome, outcome.best is not None
    wider = build(mixed, pins, one_width=False, budget=budget)
    found = search(wider, mixed, budget=budget)
    return (wider, found, False) if any_width or found.best or not found.proved else (space, outcome, False)


def found_plan(
    resolved: Resolved,
    mixed: Mixed,
    space: MixedSpace,
    outcome: MixedOutcome,
    *,
    budget: Budget,
    one_width: bool,
    reasons: bool,
    pins: Mapping[str, Pin] | None = None,
) -> Plan:
    """The plan that a search found, with its reasons; a better one if these come across it once the budget is spent.

    ``pins`` are the request's, unless they are given as they were read.
    """
    assert outcome.best is not None
    took = budget.elapsed
    others = runners_up(outcome, resolved, mixed, budget) if reasons else None
    if others and not outcome.proved and others.best[0].iteration < outcome.ceiling:
        outcome.best, took = others.best[0], budget.elapsed  # the search had no effort left to see it
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
            "why_not": why_not_lines(space, mixed, best, budget),
            "what_helps": what_helps(resolved, space, mixed, best, budget=budget, one_width=one_width),
        }
    lattice = Lattice(partial(build, mixed, one_width=one_width), (*GROUP_RULES, *binding(resolved.scenario)))
    idle = unused_pin_values(resolved, pins, space, lattice)
    return Plan(
        status="optimal" if outcome.proved else "feasible",
        **why,
        warnings=(*_widths(best.row), *_warnings(priced, mixed, best.row, resolved), *idle),
        rejected=_rejections(space, outcome),
        proof=proof,
        **_priced(resolved, mixed, best, priced),
    )


def _priced(resolved: Resolved, mixed: Mixed, best: MixedIncumbent, priced: Price) -> dict[str, Any]:
    """Fields that a found plan and a predicted one share: strategy, prediction, interval, breakdown, memory."""
    lead = best.row.groups[int(best.row.order[0, 0])]
    prediction = prediction_record(resolved, priced.iteration, lead, best.assignment, interval)
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
    return (nearly_full_warning(stage, float(share[stage])),)


def _rejections(space: MixedSpace, outcome: MixedOutcome) -> tuple[Rejection, ...]:
    refused = as_rejections(space.refusals)
    if not outcome.memory_refused:
        return refused
    example = f"{outcome.memory_refused:,} of {outcome.priced:,} branches fit the groups' memory under no split"
    return (*refused, Rejection(rule="memory", count=outcome.memory_refused, example=example))


def _infeasible(
    resolved: Resolved, mixed: Mixed, space: MixedSpace, outcome: MixedOutcome, budget: Budget | None
) -> Plan:
    """The refusals, and the nearest request that works where there is a budget to look for it."""
    found = _rejections(space, outcome)
    near = _nearest(resolved, mixed, budget) if budget else Near(None, "")
    return Plan(
        status="infeasible",
        fits=False,
        rejected=order_refusals(found, resolved, (*GROUP_RULES, *binding(resolved.scenario))),
        nearest=near.advice,
        nothing_near=near.tried,
        **frame_record(resolved),
    )


def _nearest(resolved: Resolved, mixed: Mixed, budget: Budget) -> Near:
    """The nearest request: without one of its pins, else without all of them, else without one of its options."""
    budget, pins = budget.part(NEAREST), parse_pins(resolved.request.pins)
    found = _fewer_pins(mixed, pins, budget) or _fewer_options(resolved, pins, budget)
    return Near(found, "" if found else tried(resolved, late=budget.spent()))


def _fewer_pins(mixed: Mixed, pins: Mapping[str, Pin], budget: Budget) -> Advice | None:
    freed = {name: {other: pins[other] for other in pins if other != name} for name in pins if len(pins) > 1}
    works = {name: best for name, rest in freed.items() if (best := _best(mixed, rest, budget))}
    if works:
        name = min(works, key=lambda pin: works[pin].iteration)
        return _described(without([name]), works[name], mixed)
    best = _best(mixed, {}, budget) if pins else None
    return _described(without(pins), best, mixed) if best else None


def _fewer_options(resolved: Resolved, pins: Mapping[str, Pin], budget: Budget) -> Advice | None:
    for subject, there in without_one_option(resolved, budget):
        if there.mixed and (best := _best(there.mixed, pins, budget)):
            return _described(subject, best, there.mixed)
    return None


def _best(mixed: Mixed, pins: Mapping[str, Pin], budget: Budget) -> MixedIncumbent | None:
    """The best under some of the pins; None also where these make up none, or the budget is spent."""
    try:
        space = build(mixed, pins, one_width=False, budget=budget)
    except (BadRequest, OutOfTime):
        return None
    return search(space, mixed, budget=budget).best


def _described(subject: str, best: MixedIncumbent, mixed: Mixed) -> Advice:
    return Advice(subject=subject, text=degrees_in_words(best.row, mixed), iteration_seconds=best.iteration)


def predict_mixed(
    resolved: Resolved, mixed: Mixed, budget: Budget, layers: Sequence[int] | None, *, chunked: bool = True
) -> Plan:
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
    best, fits = _best_order(mixed, row, layers, budget)
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
    mixed: Mixed, row: MixedRows, layers: Sequence[int] | None, budget: Budget
) -> tuple[MixedIncumbent, bool]:
    """The strategy with its order and split, the ``checked_layers`` where they are given, and whether it fits."""
    if layers is not None:
        one = price(row, mixed)
        split = given_split(one, mixed, layers)
    else:
        orders = in_every_order(row)
        found = [best for one in orders if (best := best_split(price(one, mixed), mixed, budget=budget))]
        if found:
            return min(found, key=lambda best: best.iteration), True
        one, split = price(row, mixed), row_assignment(row.groups[0], mixed.scenarios[0].model.num_layers)
    run = given(row, mixed, split)
    needed = price_mixed(run.row, mixed, split).footprint.total
    return run, bool((needed <= stage_limits(mixed, row) * (1 + 1e-9)).all())
