"""Reasons for a plan over several node groups: other orders, one group alone, what would help."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from costmodels.groups import Mixed, MixedRows, price_mixed
from costmodels.model.flops import utilization
from costmodels.scenario import Scenario
from costmodels.strategy import Bools
from hardware.records import Between
from planner.answer.build import counted_flops, mean_peak
from planner.answer.plan import Advice, Alternative
from planner.answer.text import NOT_KNOWN, NOTABLE, told_seconds
from planner.errors import OutOfTime
from planner.explain.mixed_records import degrees_in_words, mixed_record
from planner.explain.what_helps import gained
from planner.request.pins import parse_pins
from planner.request.request import Resolved
from planner.search import mixed as mixed_search
from planner.search.best_first import search as search_one
from planner.search.mixed import Branches, MixedIncumbent, MixedOutcome, best_split
from planner.search.split import Incumbent
from planner.space.lattice import build as build_one
from planner.space.mixed import MixedSpace, build
from planner.trust.table import figures

PATIENCE = 3.0
"""Seconds that each of three kinds of reasons may take beside the plan, more where a longer time limit is asked for;
what is not proved by then is said not to be."""
_TOLD = ("tp", "cp", "pp", "dp", "vpp", "micro_batch_size")
"""Degrees in which alternatives are said to differ."""
EXPLAINED_WITHIN = 9.0
"""Seconds that all kinds may take, and no longer than the search was given; more where more is asked for."""


def _patience(until: float) -> float:
    """When one kind of reasons ends, by ``time.perf_counter``, where all of them end at ``until``."""
    now = time.perf_counter()
    return min(now + max(PATIENCE, (until - now) / 3), until)


class RunnersUp(NamedTuple):
    """The best branch of every layout that was looked at, best first, and whether there was time for all."""

    best: tuple[MixedIncumbent, ...]
    complete: bool


def runners_up(outcome: MixedOutcome, resolved: Resolved, mixed: Mixed, until: float) -> RunnersUp:
    """The winner, and the best of the branches that a search remembers, each under its best split."""
    assert outcome.best is not None
    deadline, seen, top = _patience(until), {_layout(outcome.best.row)}, resolved.request.top
    found, complete = [outcome.best], True
    for bound, one in promising(outcome):
        times = sorted(other.iteration for other in found)
        if len(times) > top and (top == 0 or bound >= times[top]):
            break
        if time.perf_counter() > deadline:
            complete = False
            break
        kind = _layout(one.rows)
        if kind not in seen and (solved := best_split(one, mixed, deadline=deadline)):
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
    differs = [said for name in _TOLD if (said := _degree(name, one.row, mixed)) != _degree(name, best.row, mixed)]
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
    return _compared("same degrees everywhere", found.best, best.iteration, proved=found.proved)


def _alike(rows: MixedRows) -> Bools:
    """Which rows give all groups the same degrees, (N,)."""
    first = rows.groups[0]
    return np.all([(group.tp == first.tp) & (group.dp == first.dp) for group in rows.groups], axis=0)


def _other_order(space: MixedSpace, mixed: Mixed, now: float, deadline: float) -> Advice:
    found = mixed_search.search(space, mixed, deadline=deadline)
    return _compared(in_words(space.orders[0].tolist(), mixed), found.best, now, proved=found.proved)


def _compared(subject: str, found: MixedIncumbent | Incumbent | None, now: float, *, proved: bool) -> Advice:
    if found is None:
        return Advice(subject=subject, text="nothing fits" if proved else NOT_KNOWN, proved=proved)
    text = ("" if proved else "at most ") + _slower(found.iteration, now)
    return Advice(subject=subject, text=text, iteration_seconds=found.iteration, proved=proved)


def _slower(seconds: float, now: float) -> str:
    share = seconds / now - 1
    return f"{told_seconds(seconds)}, as fast" if share < NOTABLE else f"{told_seconds(seconds)}, {share:.1%} longer"


def _alone(scenario: Scenario, now: float, deadline: float) -> Advice:
    """The same batch on one group, the others idle."""
    subject = f"{scenario.gpus} {scenario.group.name} alone"
    outcome = search_one(build_one(scenario, {}), scenario, deadline=deadline)
    found, proved = outcome.best, outcome.proved
    if found is None or found.iteration >= now * (1 - NOTABLE):
        return _compared(subject, found, now, proved=proved)
    most, least = ("", "") if proved else ("at most ", "at least ")
    shorter = f"{least}{1 - found.iteration / now:.1%} shorter: leave the others idle"
    text = f"{most}{told_seconds(found.iteration)}, {shorter}"
    return Advice(subject=subject, text=text, iteration_seconds=found.iteration, proved=proved)


def what_helps(
    resolved: Resolved, space: MixedSpace, mixed: Mixed, best: MixedIncumbent, *, until: float, one_width: bool
) -> tuple[Advice, ...]:
    """What a new plan would gain from better links, and from stages of different widths."""
    now = price_mixed(best.row, mixed, best.assignment).iteration
    other = _other_widths(resolved, mixed, now, until) if one_width else None
    lines = [
        _anew("links between groups 2x", space, _faster_between(mixed), best, now, until),
        _anew("networks 2x", space, _faster_networks(mixed), best, now, until),
        *([other] if other else []),
    ]
    return tuple(sorted(lines, key=lambda line: line.iteration_seconds or np.inf))


def _anew(subject: str, space: MixedSpace, changed: Mixed, best: MixedIncumbent, now: float, until: float) -> Advice:
    """What a plan with better links would be; at least what the strategy of today gains, if time ends the search."""
    found = mixed_search.search(space, changed, deadline=_patience(until))
    kept = price_mixed(best.row, changed, best.assignment).iteration
    seconds = min(kept, found.best.iteration) if found.best else kept
    return gained(subject, seconds, now, proved=found.proved)


def _other_widths(resolved: Resolved, mixed: Mixed, now: float, until: float) -> Advice | None:
    """What it saves where node groups may give their stages different numbers of ranks; None where it saves nothing."""
    subject = "stages of other widths"
    try:
        space = build(mixed, parse_pins(resolved.request.pins), one_width=False, deadline=until)
    except OutOfTime:
        return Advice(subject=subject, text=NOT_KNOWN, proved=False)
    found = mixed_search.search(space, mixed, deadline=_patience(until))
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
