"""What would help: better machines, another batch, more memory; or fewer machines that do nearly as much."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from costmodels.names import SHARDED_GRADIENTS, Recompute
from costmodels.node_groups import Mixed, MixedStrategies
from costmodels.pricing import seconds_if_it_fits
from costmodels.strategy import Bools
from planner.answer.build import degrees_in_words
from planner.answer.plan import Advice
from planner.answer.text import NOT_KNOWN, NOTABLE, format_bytes, format_seconds, plural
from planner.errors import BadRequest, OutOfTime
from planner.explain.levers import faster_between, faster_networks, scale_compute, scale_device, scale_links
from planner.explain.nearest import rounder_counts, with_gpus
from planner.request.budget import Budget
from planner.request.pins import Pin, parse_pins
from planner.rules.divisors import divisors
from planner.search.best_first import Outcome
from planner.search.core_bounds import known_bound, mixed_layer_bound
from planner.search.fitting import those_that_may_fit
from planner.search.memory_savers import DEGREES, describe_savers, saved_below, saver_flags, saver_options, values_of
from planner.search.objective import Objective, Search
from planner.search.split import Incumbent
from planner.space.lattice import LARGEST_MICRO_BATCH
from planner.space.mixed import MixedSpace
from planner.space.mixed import build as build_mixed
from planner.space.scope import offloads

MORE_MEMORY = "memory 2x"
ANY_OFFLOAD = "offload any"
WINS = 0.05
"""Share of the time from which what saves memory at a price is shown with the plan."""
WORTH_IT = 0.1
"""Share of the time that twice the GPUs must save to be worth them."""
PART = 1e6
"""Effort of each search over several node groups, on top of that of the plan."""
MOST_BATCHES = 512
"""Batch sizes on either side that are looked at for one with more divisors."""


def what_helps(search: Search, budget: Budget) -> tuple[Advice, ...]:
    """Changes that would make the plan better by its objective, the most useful first."""
    if isinstance(search.space, MixedSpace):
        return _better_groups(search, search.space, budget)
    if search.objective.by_memory:
        return _less_memory(search, budget)
    return (*_enough_gpus(search, budget), *_faster(search, budget))


def _better_groups(search: Search, space: MixedSpace, budget: Budget) -> tuple[Advice, ...]:
    """Gains over several node groups: from better links, and from stages of different widths."""
    mixed, objective = search.objective.question, search.objective
    assert isinstance(mixed, Mixed)
    other = _other_widths(search, mixed, budget) if space.one_width else None
    changes = {"links between groups 2x": faster_between(mixed), "networks 2x": faster_networks(mixed)}
    lines = [
        _replanned(subject, objective.on(changed), search, budget.part(PART, share=1 / 2))
        for subject, changed in changes.items()
    ]
    return tuple(sorted([*lines, *([other] if other else [])], key=lambda line: line.iteration_seconds or math.inf))


def _other_widths(search: Search, mixed: Mixed, budget: Budget) -> Advice | None:
    """The gain where stages of node groups may differ in their ranks; None where there is none."""
    subject, now = "stages of other widths", search.value

    def likely(rows: MixedStrategies) -> Bools:
        return mixed_layer_bound(rows, mixed) < now

    limit = budget.part(3 * PART, share=1 / 2)
    try:
        space = build_mixed(mixed, search.pins, one_width=False, budget=limit, likely=likely)
    except OutOfTime:
        return Advice(subject=subject, text=NOT_KNOWN, proved=False)
    found = search.objective.search(space, budget=budget.part(PART, share=1 / 2), below=now)
    line = gained(subject, found.best.iteration if found.best else now, now, proved=found.proved)
    if found.best is None or found.best.iteration >= now:
        return None if found.proved else line
    return line.model_copy(update={"text": f"{line.text}: {degrees_in_words(found.best.row, mixed)}"})


def _enough_gpus(search: Search, budget: Budget) -> tuple[Advice, ...]:
    """Fewer GPUs that need little longer than the plan, and fewer that need less; none where all are worth it.

    The former by halving, where a replica of one GPU has no sequence of its own: elsewhere half the GPUs take twice as
    long. The latter are rounder counts, where GPUs and batch do not divide each other.
    """
    scenario, now = search.objective.scenario, search.value
    few, batch, best = scenario.gpus, scenario.global_batch_size, None
    total, lines = few, []
    if few % batch and batch % few:
        tried = {count: _best_with_gpus(search, count, budget, within=1.0) for count in rounder_counts(few)}
        faster = {count: found for count, found in tried.items() if found and found.seconds < now}
        if faster:
            count = min(faster, key=lambda count: faster[count].seconds)
            lines.append(_fewer(total, count, faster[count], now))
        elif unproved := [count for count, found in tried.items() if found and not found.proved]:
            lines.append(Advice(subject=plural(unproved[0], "GPU"), text=NOT_KNOWN, proved=False))
    while few > batch and few % 2 == 0:
        found = _best_with_gpus(search, few // 2, budget, within=1.0 + WORTH_IT)
        if found is None or found.seconds > (1.0 + WORTH_IT) * now:
            if found and not found.proved:
                lines.append(Advice(subject=plural(few // 2, "GPU"), text=NOT_KNOWN, proved=False))
            break
        few, best = few // 2, found
    return (*lines, *([_fewer(total, few, best, now)] if best else []))


class _Found(NamedTuple):
    """Seconds of the best that a search found, infinite where it found none, and whether it proved that."""

    seconds: float
    proved: bool


def _fewer(total: int, count: int, found: _Found, now: float) -> Advice:
    change, share = found.seconds / now - 1.0, count / total
    most, least = ("", "") if found.proved else ("at most ", "at least ")
    text = f"{most}{change:+.1%} of the time, {least}{1.0 - share * (1.0 + change):.0%} fewer GPU hours"
    return Advice(subject=plural(count, "GPU"), text=text, iteration_seconds=found.seconds, proved=found.proved)


def _best_with_gpus(search: Search, gpus: int, budget: Budget, *, within: float) -> _Found | None:
    """The best of the same question on so many GPUs, infinite where it takes more than ``within`` times the plan.

    None where there is no such cluster, or pins cannot make it up.
    """
    scenario = with_gpus(search.resolved, gpus)
    if scenario is None:
        return None
    there = search.objective.on(scenario)
    longest = within * search.objective.compared(search.taken) if there.by_time else math.inf
    try:
        outcome = there.search_below(search.pins, longest, budget=budget)
    except (BadRequest, OutOfTime):
        return None
    return _Found(there.value(outcome.best) if outcome.best else math.inf, outcome.proved)


def _less_memory(search: Search, budget: Budget) -> tuple[Advice, ...]:
    """Bytes of the fullest device that twice the devices would save, and ways to save memory at a price.

    Faster machines spare none.
    """
    objective, questions = search.objective, {}
    for axis, values in saver_options(search.pins, objective.scenario):
        asked = {**search.pins, **parse_pins({axis: values})}
        questions[f"{axis.replace('_', ' ')} {values}"] = (objective, asked)
    if larger := with_gpus(search.resolved, 2 * objective.scenario.gpus):
        questions[plural(larger.gpus, "GPU")] = (objective.on(larger), dict(search.pins))
    lines = [_memory_saved(subject, one, some, search.value, budget) for subject, (one, some) in questions.items()]
    return tuple(sorted(lines, key=lambda line: line.peak_memory_bytes or math.inf))


def _memory_saved(subject: str, objective: Objective, pins: Mapping[str, Pin], now: float, budget: Budget) -> Advice:
    """How much less the fullest device needs, where a question is a little another."""
    if budget.spent():
        return Advice(subject=subject, text=NOT_KNOWN, proved=False)
    try:
        found = objective.search_below(pins, now, budget=budget)
    except OutOfTime:
        return Advice(subject=subject, text=NOT_KNOWN, proved=False)
    except BadRequest:  # pins that so many devices cannot make up
        return Advice(subject=subject, text="the pins make up no strategy there")
    needed = min(objective.value(found.best), now) if found.best else now
    text = _saves(f"-{format_bytes(now - needed)}", needed / now - 1.0, proved=found.proved)
    return Advice(subject=subject, text=text, peak_memory_bytes=needed, proved=found.proved)


def _faster(search: Search, budget: Budget) -> tuple[Advice, ...]:
    """Gains of a new plan on better machines or with a larger batch, most useful first."""
    scenario, objective = search.objective.scenario, search.objective
    changes = {
        MORE_MEMORY: (scale_device(scenario, usable_memory=2.0), 1.0),  # its bounds are those of the plan
        "network 2x": (scale_links(scenario, 2.0, inner=False), 2.0),
        "node links 2x": (scale_links(scenario, 2.0, inner=True), 2.0),
        "memory bandwidth 2x": (scale_device(scenario, memory_bandwidth=2.0), 2.0),
        "arithmetic 1.25x": (scale_compute(scenario, 1.25), 1.25),
    }
    lines = [
        _replanned(subject, objective.on(changed), search, budget, times=times)
        for subject, (changed, times) in changes.items()
    ]
    lines.append(_larger_batch(search, budget))
    lines.extend(_rounder_batch(search, budget))
    if _memory_is_short(search.taken, lines):
        lines.extend(_offloading(search, budget))
    return tuple(sorted(lines, key=lambda line: line.iteration_seconds or math.inf))


def _replanned(
    subject: str, changed: Objective, search: Search, budget: Budget, *, times: float | None = None
) -> Advice:
    """The gain of the fastest plan on other machines of the same shape, hence in the same lattice, over that of today.

    What is fastest today is what it gains at least, and what others must beat. Where machines are so many ``times``
    faster in one respect, no strategy gains more: those that would have to are left out.
    """
    if budget.late:
        return Advice(subject=subject, text=NOT_KNOWN, proved=False)
    fastest, space, near = search.fastest, search.space, None
    there = changed.compared(fastest)
    if times is not None:
        try:
            space = space if times * there < space.below else search.whole(budget)
        except OutOfTime:
            return Advice(subject=subject, text=NOT_KNOWN, proved=False)
        near = np.flatnonzero(known_bound(space.cores, search.objective.scenario) < times * there)
        near = those_that_may_fit(space, near, changed.scenario)
    found = changed.search(space, budget=budget, among=near, margin=1.0, confirm=False, below=there)
    now = there if changed.by_time else changed.revalue(fastest)
    least = min(now, changed.value(found.best) if found.best else math.inf)
    return gained(subject, least, search.objective.value(fastest), proved=found.proved)


def gained(subject: str, seconds: float, now: float, *, proved: bool = True) -> Advice:
    """Advice with what a change saves of ``now`` seconds; nothing where it lengthens them.

    What a search found that its budget ended is no more than it saves at least.
    """
    text = _saves(format_seconds(seconds - now), seconds / now - 1.0, proved=proved)
    return Advice(subject=subject, text=text, iteration_seconds=min(seconds, now), proved=proved)


def _saves(amount: str, share: float, *, proved: bool) -> str:
    """What is saved, as a sentence has it: "nothing", or at least so much where the budget ended the search."""
    if share > -NOTABLE:
        return "nothing" if proved else NOT_KNOWN
    return f"{'' if proved else 'at least '}{amount} ({share:+.1%})"


def _memory_is_short(best: Incumbent, lines: Iterable[Advice]) -> bool:
    """Whether time is spent on saving memory: another strategy would be taken with more, or this one repeats passes."""
    at = best.row.row(0)
    more = next(line for line in lines if line.subject == MORE_MEMORY)
    saves = at["recompute"] != Recompute.NONE or at["zero_stage"] >= SHARDED_GRADIENTS
    return saves or not more.proved or more.text != "nothing"


def _offloading(search: Search, budget: Budget) -> list[Advice]:
    """The gain of what saves memory at a price, which is searched only where it is asked for."""
    objective, best, now = search.objective, search.taken, search.value
    kinds = _ways_to_save(search)
    ceiling = now * (1.0 + NOTABLE) if objective.by_time else best.iteration
    left = _degrees_below(search, kinds, ceiling) if kinds else {}
    if not left:
        return []
    if budget.spent():
        return [gained(ANY_OFFLOAD, now, now, proved=False)]
    found = _search(objective, {**search.pins, **left, **kinds}, budget, ceiling, confirm=False)
    if found is None:
        return [gained(ANY_OFFLOAD, now, now, proved=False)]
    seconds = min(now, objective.value(found.best)) if found.best else now
    subject = describe_savers(found.best.row) if found.best and found.proved else ANY_OFFLOAD
    return _worth_saying(gained(subject or ANY_OFFLOAD, seconds, now, proved=found.proved))


def _ways_to_save(search: Search) -> dict[str, Pin]:
    """States or activations on the hosts, and layers recomputed together where layers are recomputed at all."""
    scenario = search.objective.scenario
    hosts = offloads(scenario, search.pins)
    again = bool(search.taken.row.recompute[0] >= Recompute.FULL) and scenario.stack.supports.recompute_groups
    if not again or "recompute_num_layers" in search.pins:
        return parse_pins({"offload": ",".join(hosts) or None})
    return parse_pins({"offload": ",".join(("none", *hosts)) if hosts else None, "recompute_num_layers": "1.."})


def wins_by_saving(lines: Iterable[Advice], now: float) -> Advice | None:
    """Of what would help, what saves memory at a price where the plan is faster with it by a margin; else None."""
    for line in lines:
        gain = 1.0 - line.iteration_seconds / now if line.iteration_seconds else 0.0
        if (options := saver_flags(line.subject)) and gain >= WINS:
            least = "" if line.proved else "at least "
            return line.model_copy(update={"text": f"{least}{gain:.1%} faster with {line.subject} ({options})"})
    return None


def _search(
    objective: Objective, pins: Mapping[str, Pin], budget: Budget, below: float, **known: Any
) -> Outcome | None:
    """The search of another lattice; None where the time limit passed before it was laid out."""
    try:
        return objective.search_below(pins, below, budget=budget, **known)
    except OutOfTime:
        return None


def _worth_saying(line: Advice) -> list[Advice]:
    return [] if line.text == "nothing" else [line]


def _degrees_below(search: Search, kinds: Mapping[str, Pin], ceiling: float) -> dict[str, Pin]:
    """The degrees of the cores that may take less than so many seconds and fit once memory is saved."""
    cores = search.space.cores
    return values_of(cores.take(saved_below(cores, search.objective.scenario, kinds, ceiling)), DEGREES)


def _larger_batch(search: Search, budget: Budget) -> Advice:
    """The gain of a plan with twice the batch, per sequence."""
    if budget.late:
        return Advice(subject="batch 2x", text=NOT_KNOWN, proved=False)
    scenario, fastest = search.objective.scenario, search.fastest
    double = search.objective.on(replace(scenario, global_batch_size=2 * scenario.global_batch_size))
    same = replace(fastest, row=replace(fastest.row, num_microbatches=2 * fastest.row.num_microbatches))
    fits = seconds_if_it_fits(same.row, double.scenario, same.assignment) is not None  # more may be under way
    below = double.compared(same) if fits else 2.0 * search.objective.compared(fastest)
    found = None if budget.spent() else _search(double, search.pins, budget, below, confirm=False)
    now = search.objective.value(fastest)
    least = min(
        double.revalue(same) if fits else 2 * now, double.value(found.best) if found and found.best else math.inf
    )
    return gained("batch 2x", least / 2, now, proved=bool(found and found.proved))


def _rounder_batch(search: Search, budget: Budget) -> list[Advice]:
    """A batch within 1 % that has far more divisors, hence more ways to split it, per sequence."""
    scenario, now = search.objective.scenario, search.value
    batch = scenario.global_batch_size
    reach = min(batch // 100, MOST_BATCHES)
    near = range(max(batch - reach, 1), batch + reach + 1)
    ways = {size: len(divisors(math.gcd(size, scenario.gpus * LARGEST_MICRO_BATCH))) for size in near}
    rounder = max(near, key=lambda size: (ways[size], -abs(size - batch)))
    if ways[rounder] < 2 * ways[batch]:
        return []
    if budget.spent():
        return [gained(f"batch {rounder}", now, now, proved=False)]
    other = search.objective.on(replace(scenario, global_batch_size=rounder))
    found = _search(other, search.pins, budget, search.taken.iteration * rounder / batch)
    if found is None:
        return [gained(f"batch {rounder}", now, now, proved=False)]
    seconds = other.value(found.best) * batch / rounder if found.best else now
    return _worth_saying(gained(f"batch {rounder}", seconds, now, proved=found.proved))
