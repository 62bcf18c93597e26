"""Reasons for a plan over several node groups: other orders, one group alone, what would help."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from costmodels.flops import utilization
from costmodels.groups import Mixed, MixedRows, mixed_quote
from costmodels.pricing import Quote
from costmodels.scenario import Scenario
from costmodels.strategy import Bools
from hardware.records import Between
from planner import mixed_search
from planner.assemble import counted_flops, mean_peak
from planner.branches import MixedSpace, build
from planner.document import Advice, Alternative
from planner.errors import OutOfTime
from planner.helps import gained
from planner.measured import figures
from planner.mixed_records import degrees_in_words, mixed_record
from planner.mixed_search import Branches, MixedIncumbent, MixedOutcome, best_split
from planner.pins import parse_pins
from planner.request import Resolved
from planner.search import search as search_one
from planner.space import build as build_one
from planner.told import NOTABLE, told_seconds

PATIENCE = 3.0
"""Seconds that each kind of reasons may take beside the plan; what is not proved by then is left out."""
EXPLAINED_WITHIN = 9.0
"""Seconds that all kinds may take, and no longer than the search was given."""


def _patience(until: float) -> float:
    """When one kind of reasons ends, by ``time.perf_counter``, where all of them end at ``until``."""
    return min(time.perf_counter() + PATIENCE, until)


def alternatives(outcome: MixedOutcome, resolved: Resolved, mixed: Mixed, until: float) -> tuple[Alternative, ...]:
    """The best branches that differ in layout from the winner and each other, each under its best split."""
    assert outcome.best is not None
    deadline, seen, top = _patience(until), {_layout(outcome.best.row)}, resolved.request.top
    found: list[MixedIncumbent] = []
    for bound, one in promising(outcome):
        times = sorted(other.iteration for other in found)
        if time.perf_counter() > deadline or (len(times) >= top and (top == 0 or bound >= times[top - 1])):
            break
        kind = _layout(one.rows)
        if kind not in seen and (solved := best_split(one, mixed, deadline=deadline)):
            found.append(solved)
            seen.add(kind)
    best = sorted(found, key=lambda other: other.iteration)[:top]
    return tuple(_alternative(one, outcome.best, resolved, mixed) for one in best)


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
    chosen = mixed_record(best.row, best.assignment, mixed)
    flops = counted_flops(resolved.scenario) * resolved.scenario.tokens
    names = [
        name for name in ("tp", "cp", "pp", "vpp", "micro_batch_size") if getattr(record, name) != getattr(chosen, name)
    ]
    differs = [f"{name} {getattr(record, name)}" for name in names]
    if (one.row.order != best.row.order).any():
        differs.append(in_words(one.row.order[0].tolist(), mixed))
    return Alternative(
        strategy=record,
        iteration_seconds=one.iteration,
        mfu=utilization(flops=flops, seconds=one.iteration, gpus=mixed.gpus, peak=mean_peak(resolved)),
        peak_memory_bytes=float(np.max(mixed_quote(one.row, mixed, one.assignment).footprint.total)),
        differs=", ".join(differs),
        tied=one.iteration <= best.iteration * (1.0 + figures().tie),
    )


def in_words(order: list[int], mixed: Mixed) -> str:
    """An order of the groups: "h100 before a100"."""
    return " before ".join(mixed.scenarios[group].group.name for group in order)


def why_not_lines(space: MixedSpace, mixed: Mixed, best: MixedIncumbent, until: float) -> tuple[Advice, ...]:
    """The best with one layout, in another order, on one group alone: each searched as the best was."""
    deadline = _patience(until)
    alone = [_alone(one, best.iteration, deadline) for one in mixed.scenarios]
    others = [order for order in space.orders if (order != best.row.order[0]).any()]
    lines = [_other_order(replace(space, orders=order[None, :]), mixed, best.iteration, deadline) for order in others]
    return tuple(line for line in (_one_layout(space, mixed, best, deadline), *lines, *alone) if line)


def _one_layout(space: MixedSpace, mixed: Mixed, best: MixedIncumbent, deadline: float) -> Advice | None:
    """The best with the same tp and dp on every group, which is all that most launchers can say."""
    if _alike(best.row)[0]:
        return None
    found = mixed_search.search(space, mixed, deadline=deadline, among=np.flatnonzero(_alike(space.cores)))
    return _compared("same degrees everywhere", found.best, best.iteration) if found.proved else None


def _alike(rows: MixedRows) -> Bools:
    """Which rows give all groups the same degrees, (N,)."""
    first = rows.groups[0]
    return np.all([(group.tp == first.tp) & (group.dp == first.dp) for group in rows.groups], axis=0)


def _other_order(space: MixedSpace, mixed: Mixed, now: float, deadline: float) -> Advice | None:
    found = mixed_search.search(space, mixed, deadline=deadline)
    return _compared(in_words(space.orders[0].tolist(), mixed), found.best, now) if found.proved else None


def _compared(subject: str, found: MixedIncumbent | None, now: float) -> Advice:
    if found is None:
        return Advice(subject=subject, text="nothing fits")
    return Advice(subject=subject, text=_slower(found.iteration, now), iteration_seconds=found.iteration)


def _slower(seconds: float, now: float) -> str:
    share = seconds / now - 1
    return f"{told_seconds(seconds)}, as fast" if share < NOTABLE else f"{told_seconds(seconds)}, {share:.1%} longer"


def _alone(scenario: Scenario, now: float, deadline: float) -> Advice | None:
    """The same batch on one group, the others idle."""
    subject = f"{scenario.gpus} {scenario.group.name} alone"
    outcome = search_one(build_one(scenario, {}), scenario, deadline=deadline)
    found = outcome.best
    if not outcome.proved:
        return None
    if found is None:
        return Advice(subject=subject, text="nothing fits")
    if found.iteration < now * (1 - NOTABLE):
        text = f"{told_seconds(found.iteration)}, {1 - found.iteration / now:.1%} shorter: leave the others idle"
    else:
        text = _slower(found.iteration, now)
    return Advice(subject=subject, text=text, iteration_seconds=found.iteration)


def what_helps(
    resolved: Resolved, mixed: Mixed, best: MixedIncumbent, priced: Quote, *, until: float, one_width: bool
) -> tuple[Advice, ...]:
    """What the same strategy would gain from better links, and another from stages of different widths."""
    lines = [
        gained("links between groups 2x", _requoted(_faster_between(mixed), best), priced.iteration),
        gained("networks 2x", _requoted(_faster_networks(mixed), best), priced.iteration),
    ]
    if one_width and (wider := _other_widths(resolved, mixed, until)) and wider.iteration < priced.iteration:
        line = gained("stages of other widths", wider.iteration, priced.iteration)
        lines.append(line.model_copy(update={"text": f"{line.text}: {degrees_in_words(wider.row, mixed)}"}))
    return tuple(sorted(lines, key=lambda line: line.iteration_seconds or np.inf))


def _requoted(mixed: Mixed, best: MixedIncumbent) -> float:
    return mixed_quote(best.row, mixed, best.assignment).iteration


def _other_widths(resolved: Resolved, mixed: Mixed, until: float) -> MixedIncumbent | None:
    """The best where node groups may give their stages different numbers of ranks."""
    try:
        space = build(mixed, parse_pins(resolved.request.pins), one_width=False, deadline=until)
    except OutOfTime:
        return None
    return mixed_search.search(space, mixed, deadline=_patience(until)).best


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
