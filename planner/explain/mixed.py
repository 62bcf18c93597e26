"""Reasons for a plan over several node groups, and such a plan as the result document states it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from costmodels.groups import Mixed, MixedRows, price_mixed
from costmodels.layout.split import Assignment
from costmodels.model.flops import utilization
from costmodels.pricing import Price
from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Floats
from hardware.records import Between
from planner.answer.build import counted_flops, mean_peak, memory_records, strategy_record
from planner.answer.plan import Advice, Alternative, Stage, StageMemory, Strategy
from planner.answer.text import NOT_KNOWN, NOTABLE, format_seconds
from planner.errors import OutOfTime
from planner.explain.what_helps import gained
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.request.resolve import Resolved
from planner.search import mixed as mixed_search
from planner.search.best_first import search as search_one
from planner.search.mixed import Branches, MixedIncumbent, MixedOutcome, best_split
from planner.search.split import Incumbent
from planner.space.lattice import build as build_one
from planner.space.mixed import PER_GROUP, MixedSpace, build
from planner.trust.table import figures


def mixed_record(row: MixedRows, assignment: Assignment, mixed: Mixed) -> Strategy:
    """A strategy over groups: the degrees of its first stage, and at each stage those that differ between groups."""
    first = int(row.order[0, 0])
    whole = strategy_record(row.groups[first], assignment, mixed.scenarios[first])
    at = [group.row(0) for group in row.groups]
    apart = [name for name in (*PER_GROUP, "sharding_degree") if len({one[name] for one in at}) > 1]
    stages = tuple(
        Stage(
            layers=stage.layers,
            recompute_layers=stage.recompute_layers,
            group=mixed.scenarios[group].group.name,
            **{name: int(at[group][name]) for name in apart},
        )
        for stage, group in zip(whole.stages, row.group_at()[0].tolist(), strict=True)
    )
    zero = max(one["zero_stage"] for one in at)
    degree = (
        max(one["sharding_degree"] for one in at) if zero and not at[first]["zero_stage"] else whole.sharding_degree
    )
    return whole.model_copy(update={"stages": stages, "zero_stage": zero, "sharding_degree": degree})


def degrees_in_words(row: MixedRows, mixed: Mixed) -> str:
    """The degrees of every group: "a100 tp 2 cp 1 dp 8, h100 tp 1 cp 1 dp 8"."""
    parts = zip(mixed.scenarios, row.groups, row.stages[0].tolist(), strict=True)
    return ", ".join(
        f"{one.group.name} {stages} stages tp {group.tp[0]} cp {group.cp[0]} dp {group.dp[0]}"
        for one, group, stages in parts
    )


def mixed_memory(priced: Price, mixed: Mixed, row: MixedRows) -> tuple[StageMemory, ...]:
    """The footprint of every stage against its own group's device."""
    limits = stage_limits(mixed, row)
    records = memory_records(priced, mixed.scenarios[0])
    return tuple(one.model_copy(update={"limit": float(limits[one.stage])}) for one in records)


def stage_limits(mixed: Mixed, row: MixedRows) -> Floats:
    """Usable bytes of the device of every stage of a single row, (pp,)."""
    usable = np.array([one.group.accelerator.usable_memory for one in mixed.scenarios])
    return usable[row.group_at()[0]]


PART = 1e6
"""Effort of each of three kinds of reasons beside the plan, and of each search among what helps; what is not proved by
then is said not to be. Where a time limit is given, each kind has its part of what the search leaves of it."""
_COMPARED_DEGREES = ("tp", "cp", "pp", "dp", "vpp", "micro_batch_size")
"""Degrees in which alternatives are said to differ."""


class RunnersUp(NamedTuple):
    """The best branch of every layout that was looked at, best first, and whether all were looked at."""

    best: tuple[MixedIncumbent, ...]
    complete: bool


def runners_up(outcome: MixedOutcome, resolved: Resolved, mixed: Mixed, budget: Budget) -> RunnersUp:
    """The winner, and the best of the branches that a search remembers, each under its best split."""
    assert outcome.best is not None
    seen, top = {_layout(outcome.best.row)}, resolved.request.top
    budget = budget.part(PART, share=1 / 3)
    found, complete = [outcome.best], True
    for bound, one in promising(outcome):
        times = sorted(other.iteration for other in found)
        if len(times) > top and (top == 0 or bound >= times[top]):
            break
        if budget.spent():
            complete = False
            break
        kind = _layout(one.rows)
        if kind not in seen and (solved := best_split(one, mixed, budget=budget)):
            found.append(solved)
            seen.add(kind)
    return RunnersUp(tuple(sorted(found, key=lambda other: other.iteration)), complete)


def alternatives(
    others: Iterable[MixedIncumbent], best: MixedIncumbent, resolved: Resolved, mixed: Mixed
) -> tuple[Alternative, ...]:
    """The first of the runners-up as the document shows them, without the winner."""
    shown = islice((one for one in others if one is not best), resolved.request.top)
    return tuple(_alternative(one, best, resolved, mixed) for one in shown)


def promising(outcome: MixedOutcome) -> Iterator[tuple[float, Branches]]:
    """The branches that a search remembers and that fit, in the order of their bounds."""
    places = [
        (float(part.bound[i]), n, int(i)) for n, part in enumerate(outcome.pool) for i in np.flatnonzero(part.fits)
    ]
    for bound, n, i in sorted(places):
        yield bound, outcome.pool[n].take(np.array([i]))


def _layout(row: MixedRows) -> tuple[int, ...]:
    degrees = (int(getattr(group, name)[0]) for group in row.groups for name in ("tp", "cp", "dp"))
    return (*degrees, *row.order[0].tolist())


def _alternative(one: MixedIncumbent, best: MixedIncumbent, resolved: Resolved, mixed: Mixed) -> Alternative:
    record = mixed_record(one.row, one.assignment, mixed)
    flops = counted_flops(resolved.scenario) * resolved.scenario.tokens
    differs = [
        said for name in _COMPARED_DEGREES if (said := _degree(name, one.row, mixed)) != _degree(name, best.row, mixed)
    ]
    if (one.row.order != best.row.order).any():
        differs.append(in_words(one.row.order[0].tolist(), mixed))
    return Alternative(
        strategy=record,
        iteration_seconds=one.iteration,
        mfu=utilization(flops=flops, seconds=one.iteration, gpus=mixed.gpus, peak=mean_peak(resolved)),
        peak_memory_bytes=float(np.max(price_mixed(one.row, mixed, one.assignment).footprint.total)),
        differs=", ".join(differs),
        tied=one.iteration <= best.iteration * (1.0 + figures().tie),
    )


def _degree(name: str, row: MixedRows, mixed: Mixed) -> str:
    """An axis of a strategy in words, by node group where they differ: "tp 2 on old, 1 on new"."""
    values = [int(row.pp[0])] if name == "pp" else [int(getattr(group, name)[0]) for group in row.groups]
    if len(set(values)) == 1:
        return f"{name} {values[0]}"
    return f"{name} " + ", ".join(
        f"{value} on {one.group.name}" for value, one in zip(values, mixed.scenarios, strict=True)
    )


def in_words(order: list[int], mixed: Mixed) -> str:
    """An order of the groups: "h100 before a100"."""
    return " before ".join(mixed.scenarios[group].group.name for group in order)


def why_not_lines(space: MixedSpace, mixed: Mixed, best: MixedIncumbent, budget: Budget) -> tuple[Advice, ...]:
    """The best with one layout, in another order, on one group alone: each searched as the best was."""
    budget = budget.part(PART, share=1 / 2)
    alone = [_alone(one, best.iteration, budget) for one in mixed.scenarios]
    others = [order for order in space.orders if (order != best.row.order[0]).any()]
    lines = [_other_order(replace(space, orders=order[None, :]), mixed, best.iteration, budget) for order in others]
    return tuple(line for line in (_one_layout(space, mixed, best, budget), *lines, *alone) if line)


def _one_layout(space: MixedSpace, mixed: Mixed, best: MixedIncumbent, budget: Budget) -> Advice | None:
    """The best with the same tp and dp on every group, which is all that most launchers can say."""
    if _alike(best.row)[0]:
        return None
    found = mixed_search.search(space, mixed, budget=budget, among=np.flatnonzero(_alike(space.cores)))
    return _compared("same degrees everywhere", found.best, best.iteration, proved=found.proved)


def _alike(rows: MixedRows) -> Bools:
    """Which rows give all groups the same degrees, (N,)."""
    first = rows.groups[0]
    return np.all([(group.tp == first.tp) & (group.dp == first.dp) for group in rows.groups], axis=0)


def _other_order(space: MixedSpace, mixed: Mixed, now: float, budget: Budget) -> Advice:
    found = mixed_search.search(space, mixed, budget=budget)
    return _compared(in_words(space.orders[0].tolist(), mixed), found.best, now, proved=found.proved)


def _compared(subject: str, found: MixedIncumbent | Incumbent | None, now: float, *, proved: bool) -> Advice:
    if found is None:
        return Advice(subject=subject, text="nothing fits" if proved else NOT_KNOWN, proved=proved)
    text = ("" if proved else "at most ") + _slower(found.iteration, now)
    return Advice(subject=subject, text=text, iteration_seconds=found.iteration, proved=proved)


def _slower(seconds: float, now: float) -> str:
    share = seconds / now - 1
    return (
        f"{format_seconds(seconds)}, as fast" if share < NOTABLE else f"{format_seconds(seconds)}, {share:.1%} longer"
    )


def _alone(scenario: Scenario, now: float, budget: Budget) -> Advice:
    """How long the batch takes on one group with the others idle."""
    subject = f"{scenario.gpus} {scenario.group.name} alone"
    outcome = search_one(build_one(scenario, {}), scenario, budget=budget)
    found, proved = outcome.best, outcome.proved
    if found is None or found.iteration >= now * (1 - NOTABLE):
        return _compared(subject, found, now, proved=proved)
    most, least = ("", "") if proved else ("at most ", "at least ")
    shorter = f"{least}{1 - found.iteration / now:.1%} shorter: leave the others idle"
    text = f"{most}{format_seconds(found.iteration)}, {shorter}"
    return Advice(subject=subject, text=text, iteration_seconds=found.iteration, proved=proved)


def what_helps(
    resolved: Resolved, space: MixedSpace, mixed: Mixed, best: MixedIncumbent, *, budget: Budget, one_width: bool
) -> tuple[Advice, ...]:
    """Gains from better links, and from stages of different widths."""
    now = price_mixed(best.row, mixed, best.assignment).iteration
    other = _other_widths(resolved, mixed, now, budget) if one_width else None
    lines = [
        _replanned("links between groups 2x", space, _faster_between(mixed), best, now, budget),
        _replanned("networks 2x", space, _faster_networks(mixed), best, now, budget),
        *([other] if other else []),
    ]
    return tuple(sorted(lines, key=lambda line: line.iteration_seconds or np.inf))


def _replanned(
    subject: str, space: MixedSpace, changed: Mixed, best: MixedIncumbent, now: float, budget: Budget
) -> Advice:
    """The gain of a new plan with better links; at least what today's strategy gains, if the budget is spent."""
    found = mixed_search.search(space, changed, budget=budget.part(PART, share=1 / 2))
    kept = price_mixed(best.row, changed, best.assignment).iteration
    seconds = min(kept, found.best.iteration) if found.best else kept
    return gained(subject, seconds, now, proved=found.proved)


def _other_widths(resolved: Resolved, mixed: Mixed, now: float, budget: Budget) -> Advice | None:
    """The gain where stages of node groups may differ in their ranks; None where there is none."""
    subject = "stages of other widths"
    try:
        space = build(
            mixed, parse_pins(resolved.request.pins), one_width=False, budget=budget.part(3 * PART, share=1 / 2)
        )
    except OutOfTime:
        return Advice(subject=subject, text=NOT_KNOWN, proved=False)
    found = mixed_search.search(space, mixed, budget=budget.part(PART, share=1 / 2))
    line = gained(subject, found.best.iteration if found.best else now, now, proved=found.proved)
    if found.best is None or found.best.iteration >= now:
        return None if found.proved else line
    return line.model_copy(update={"text": f"{line.text}: {degrees_in_words(found.best.row, mixed)}"})


def _faster_between(mixed: Mixed) -> Mixed:
    """Links between groups of twice the bandwidth, the groups' own unchanged."""
    names = [one.group.name for one in mixed.scenarios]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    links = []
    for pair in pairs:
        link = min((tier.link for tier in mixed.cluster.crossing(*pair)), key=lambda link: link.bandwidth)
        faster = link.times(2.0)
        links.append(Between.model_construct(groups=pair, link=faster))
    return replace(mixed, cluster=mixed.cluster.model_copy(update={"between": tuple(links)}))


def _faster_networks(mixed: Mixed) -> Mixed:
    """Every tier outside the nodes with twice the bandwidth."""
    parts = []
    for one in mixed.scenarios:
        inner, *outer = one.group.tiers
        faster = [tier.model_copy(update={"link": tier.link.times(2.0)}) for tier in outer]
        parts.append(replace(one, group=one.group.model_copy(update={"tiers": (inner, *faster)})))
    groups = tuple(one.group for one in parts)
    return Mixed(mixed.cluster.model_copy(update={"groups": groups}), tuple(parts))
