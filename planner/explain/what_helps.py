"""What would help: better machines, another batch, more memory; or fewer machines that do nearly as much."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from costmodels.groups import Mixed
from costmodels.names import SHARDED_GRADIENTS, Recompute
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies
from hardware.links import Tier
from hardware.records import Between
from planner.answer.build import degrees_in_words
from planner.answer.plan import Advice
from planner.answer.text import NOT_KNOWN, NOTABLE, format_bytes, format_seconds, plural
from planner.errors import BadRequest, OutOfTime
from planner.explain.nearest import rounder_counts, with_gpus
from planner.request.budget import Budget
from planner.request.pins import Pin, parse_pins
from planner.request.resolve import Resolved
from planner.search.best_first import known_bound
from planner.search.memory_savers import describe_savers, saver_options
from planner.search.objective import Objective
from planner.search.split import Incumbent
from planner.space.divisors import divisors
from planner.space.lattice import LARGEST_MICRO_BATCH, Space, build
from planner.space.mixed import MixedSpace, lay_out
from planner.space.scope import offloads

Lever = Callable[[Scenario, float], Scenario]
"""A scenario with a factor on one of its quantities."""


def scale_compute(scenario: Scenario, factor: float) -> Scenario:
    """Peak rates of every precision times a factor."""
    peak = {name: rate * factor for name, rate in scenario.group.accelerator.peak.items()}
    return _with_device(scenario, {"peak": peak})


def scale_device(scenario: Scenario, **factors: float) -> Scenario:
    """Quantities of the accelerator times a factor each."""
    device = scenario.group.accelerator
    return _with_device(scenario, {name: getattr(device, name) * factor for name, factor in factors.items()})


def scale_links(scenario: Scenario, factor: float, *, inner: bool) -> Scenario:
    """Bandwidth inside the node, or of all tiers beyond it, times a factor."""
    tiers = scenario.group.tiers
    return _with_tiers(
        scenario, [_tier_times(tier, factor) if (i == 0) == inner else tier for i, tier in enumerate(tiers)]
    )


def machine_levers(scenario: Scenario) -> Mapping[str, Lever]:
    """Levers on the machines by name: every tier has its bandwidth, all of them share a latency."""
    tiers = {f"{tier.name} bandwidth": partial(_one_tier, i) for i, tier in enumerate(scenario.group.tiers)}
    return {
        "arithmetic": scale_compute,
        "memory bandwidth": lambda asked, factor: scale_device(asked, memory_bandwidth=factor),
        "memory": lambda asked, factor: scale_device(asked, usable_memory=factor),
        **tiers,
        "latency": _latency_times,
    }


def uncertain_levers(scenario: Scenario) -> Mapping[str, Lever]:
    """Levers on what a prediction may be wrong about: bandwidths, and with the arithmetic its efficiency."""
    some: dict[str, Lever] = {
        "arithmetic": scale_compute,
        "memory bandwidth": lambda asked, factor: scale_device(asked, memory_bandwidth=factor),
        "node links": lambda asked, factor: scale_links(asked, factor, inner=True),
    }
    beyond = {"network": lambda asked, factor: scale_links(asked, factor, inner=False)}
    return some | (beyond if len(scenario.group.tiers) > 1 else {})


def _one_tier(place: int, scenario: Scenario, factor: float) -> Scenario:
    tiers = scenario.group.tiers
    return _with_tiers(scenario, [_tier_times(tier, factor) if i == place else tier for i, tier in enumerate(tiers)])


def _latency_times(scenario: Scenario, factor: float) -> Scenario:
    """Every tier's times that do not depend on bytes, times a factor."""

    def slower(tier: Tier) -> Tier:
        link = tier.link
        update = {"base_latency": link.base_latency * factor, "step_latency": link.step_latency * factor}
        return tier.model_copy(update={"link": link.model_copy(update=update)})

    return _with_tiers(scenario, [slower(tier) for tier in scenario.group.tiers])


def _tier_times(tier: Tier, factor: float) -> Tier:
    return tier.model_copy(update={"link": tier.link.times(factor)})


def _with_tiers(scenario: Scenario, tiers: list[Tier]) -> Scenario:
    return replace(scenario, group=scenario.group.model_copy(update={"tiers": tuple(tiers)}))


def _with_device(scenario: Scenario, update: dict[str, Any]) -> Scenario:
    device = scenario.group.accelerator.model_copy(update=update)
    return replace(scenario, group=scenario.group.model_copy(update={"accelerator": device}))


MORE_MEMORY = "memory 2x"
ANY_OFFLOAD = "offload any"
_LAYOUT = ("tp", "cp", "pp", "dp", "ep")
_DEGREES = ("tp", "cp", "pp", "dp", "vpp", "ep", "etp", "micro_batch_size")
"""Axes that a bound depends on and no rule of dominance ends with: fewer of their values leave the best in."""
UNLIMITED = 1e6
"""Times a device's memory that nothing needs more of."""
WORTH_IT = 0.1
"""Share of the time that twice the GPUs must save to be worth them."""
PART = 1e6
"""Effort of each search over several node groups, on top of that of the plan."""
MOST_BATCHES = 512
"""Batch sizes on either side that are looked at for one with more divisors."""


def what_helps(
    resolved: Resolved, space: Space, objective: Objective, best: Incumbent, *, pins: Mapping[str, Pin], budget: Budget
) -> tuple[Advice, ...]:
    """Changes that would make the plan better by its objective, the most useful first."""
    if isinstance(space, MixedSpace):
        return _better_groups(objective, space, best, pins, budget)
    if objective.by_memory:
        return _less_memory(resolved, objective, best, pins, budget)
    fewer = _enough_gpus(resolved, objective, objective.value(best), budget)
    return (*fewer, *_faster(space, objective, best, pins=pins, budget=budget))


def _better_groups(
    objective: Objective, space: MixedSpace, best: Incumbent, pins: Mapping[str, Pin], budget: Budget
) -> tuple[Advice, ...]:
    """Gains over several node groups: from better links, and from stages of different widths."""
    mixed, now = objective.question, objective.value(best)
    assert isinstance(mixed, Mixed)
    other = _other_widths(objective, mixed, now, pins, budget) if space.one_width else None
    changes = {"links between groups 2x": faster_between(mixed), "networks 2x": faster_networks(mixed)}
    lines = [
        _replanned(subject, objective.on(changed), space, best, now, budget.part(PART, share=1 / 2))
        for subject, changed in changes.items()
    ]
    return tuple(sorted([*lines, *([other] if other else [])], key=lambda line: line.iteration_seconds or math.inf))


def _other_widths(
    objective: Objective, mixed: Mixed, now: float, pins: Mapping[str, Pin], budget: Budget
) -> Advice | None:
    """The gain where stages of node groups may differ in their ranks; None where there is none."""
    subject = "stages of other widths"
    try:
        space = lay_out(mixed, pins, one_width=False, budget=budget.part(3 * PART, share=1 / 2))
    except OutOfTime:
        return Advice(subject=subject, text=NOT_KNOWN, proved=False)
    found = objective.search(space, budget=budget.part(PART, share=1 / 2))
    line = gained(subject, found.best.iteration if found.best else now, now, proved=found.proved)
    if found.best is None or found.best.iteration >= now:
        return None if found.proved else line
    return line.model_copy(update={"text": f"{line.text}: {degrees_in_words(found.best.row, mixed)}"})


def faster_between(mixed: Mixed) -> Mixed:
    """Links between groups of twice the bandwidth, the groups' own unchanged."""
    links = []
    for pair in combinations([one.group.name for one in mixed.scenarios], 2):
        link = min((tier.link for tier in mixed.cluster.crossing(*pair)), key=lambda link: link.bandwidth)
        links.append(Between.model_construct(groups=pair, link=link.times(2.0)))
    return replace(mixed, cluster=mixed.cluster.model_copy(update={"between": tuple(links)}))


def faster_networks(mixed: Mixed) -> Mixed:
    """Every tier outside the nodes with twice the bandwidth."""
    parts = tuple(scale_links(one, 2.0, inner=False) for one in mixed.scenarios)
    return Mixed(mixed.cluster.model_copy(update={"groups": tuple(one.group for one in parts)}), parts)


def _enough_gpus(resolved: Resolved, objective: Objective, now: float, budget: Budget) -> tuple[Advice, ...]:
    """Fewer GPUs that need little longer than ``now`` seconds, and fewer that need less; none where all are worth it.

    The former by halving, where a replica of one GPU has no sequence of its own: elsewhere half the GPUs take twice as
    long. The latter are rounder counts, where GPUs and batch do not divide each other.
    """
    few, batch, best = objective.scenario.gpus, objective.scenario.global_batch_size, None
    total, lines = few, []
    if few % batch and batch % few:
        tried = {count: _best_with_gpus(resolved, objective, count, budget) for count in rounder_counts(few)}
        faster = {count: found for count, found in tried.items() if found and found.seconds < now}
        if faster:
            count = min(faster, key=lambda count: faster[count].seconds)
            lines.append(_fewer(total, count, faster[count], now))
        elif late := [count for count, found in tried.items() if found and not found.proved]:
            lines.append(Advice(subject=plural(late[0], "GPU"), text=NOT_KNOWN, proved=False))
    while few > batch and few % 2 == 0:
        found = _best_with_gpus(resolved, objective, few // 2, budget)
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


def _best_with_gpus(resolved: Resolved, objective: Objective, gpus: int, budget: Budget) -> _Found | None:
    """The best of the same question on so many GPUs; None where there is no such cluster, or pins cannot make it up."""
    scenario = with_gpus(resolved, gpus)
    if scenario is None:
        return None
    there = objective.on(scenario)
    try:
        space = build(scenario, parse_pins(resolved.request.pins))
    except BadRequest:
        return None
    outcome = there.search(space, budget=budget)
    return _Found(there.value(outcome.best) if outcome.best else math.inf, outcome.proved)


def _less_memory(
    resolved: Resolved, objective: Objective, best: Incumbent, pins: Mapping[str, Pin], budget: Budget
) -> tuple[Advice, ...]:
    """Bytes of the fullest device that twice the devices would save, and ways to save memory at a price.

    Faster machines spare none.
    """
    asked = {
        f"{axis.replace('_', ' ')} {values}": parse_pins({axis: values})
        for axis, values in saver_options(pins, objective.scenario)
    }
    questions = {subject: (objective, {**pins, **more}) for subject, more in asked.items()}
    if larger := with_gpus(resolved, 2 * objective.scenario.gpus):
        questions[plural(larger.gpus, "GPU")] = (objective.on(larger), dict(pins))
    now = objective.value(best)
    lines = [_memory_saved(subject, one, some, now, budget) for subject, (one, some) in questions.items()]
    return tuple(sorted(lines, key=lambda line: line.peak_memory_bytes or math.inf))


def _memory_saved(subject: str, objective: Objective, pins: Mapping[str, Pin], now: float, budget: Budget) -> Advice:
    """How much less the fullest device needs, where a question is a little another."""
    if budget.spent():
        return Advice(subject=subject, text=NOT_KNOWN, proved=False)
    try:
        found = objective.search(build(objective.scenario, pins), budget=budget)
    except BadRequest:  # pins that so many devices cannot make up
        return Advice(subject=subject, text="the pins make up no strategy there")
    needed = min(objective.value(found.best), now) if found.best else now
    share = needed / now - 1.0
    text = f"-{format_bytes(now - needed)} ({share:+.1%})" if share <= -NOTABLE else "nothing"
    if not found.proved:
        text = NOT_KNOWN if text == "nothing" else f"at least {text}"
    return Advice(subject=subject, text=text, peak_memory_bytes=needed, proved=found.proved)


def _faster(
    space: Space, objective: Objective, best: Incumbent, *, pins: Mapping[str, Pin], budget: Budget
) -> tuple[Advice, ...]:
    """Gains of a new plan on better machines or with a larger batch, most useful first."""
    scenario, now = objective.scenario, objective.value(best)
    memory = scale_device(scenario, usable_memory=2.0)
    changes = {
        "network 2x": scale_links(scenario, 2.0, inner=False),
        "node links 2x": scale_links(scenario, 2.0, inner=True),
        "memory bandwidth 2x": scale_device(scenario, memory_bandwidth=2.0),
        "arithmetic 1.25x": scale_compute(scenario, 1.25),
    }
    lines = [
        _replanned(MORE_MEMORY, objective.on(memory), space, best, now, budget)
    ]  # its bounds are those of the plan
    lines += [
        _replanned(subject, objective.on(changed), space, best, now, budget) for subject, changed in changes.items()
    ]
    lines.append(_larger_batch(objective, best, now, pins, budget))
    lines.extend(_rounder_batch(objective, now, pins, budget))
    if _memory_is_short(best, lines):
        lines.extend(_offloading(space, objective, best, pins, budget))
    return tuple(sorted(lines, key=lambda line: line.iteration_seconds or math.inf))


def _replanned(subject: str, changed: Objective, space: Space, best: Incumbent, now: float, budget: Budget) -> Advice:
    """The gain of a new plan on other machines of the same shape, hence in the same lattice.

    The strategy of today is what it gains at least, if the budget ends the search.
    """
    found = changed.search(space, budget=budget, margin=1.0 + changed.tie_width, confirm=False)
    if found.best and found.proved:
        return gained(subject, changed.value(changed.choice(found).taken), now)
    known = [changed.revalue(best), *([changed.value(found.best)] if found.best else [])]
    return gained(subject, min(known), now, proved=False)


def gained(subject: str, seconds: float, now: float, *, proved: bool = True) -> Advice:
    """Advice with what a change saves of ``now`` seconds; nothing where it lengthens them.

    What a search found that its budget ended is no more than it saves at least.
    """
    share = seconds / now - 1
    saves = share <= -NOTABLE
    text = f"{format_seconds(seconds - now)} ({share:+.1%})" if saves else "nothing"
    if not proved:
        text = f"at least {text}" if saves else NOT_KNOWN
    return Advice(subject=subject, text=text, iteration_seconds=min(seconds, now), proved=proved)


def _memory_is_short(best: Incumbent, lines: Iterable[Advice]) -> bool:
    """Whether time is spent on saving memory: another strategy would be taken with more, or this one repeats passes."""
    at = best.row.row(0)
    more = next(line for line in lines if line.subject == MORE_MEMORY)
    saves = at["recompute"] != Recompute.NONE or at["zero_stage"] >= SHARDED_GRADIENTS
    return saves or not more.proved or more.text != "nothing"


def _offloading(
    space: Space, objective: Objective, best: Incumbent, pins: Mapping[str, Pin], budget: Budget
) -> list[Advice]:
    """The gain of states or activations on the hosts, which are searched only where they are asked for.

    In the layouts of the plan and of the best without a limit on memory first, which tell how much at least.
    """
    now = seconds = objective.value(best)
    kinds = parse_pins({"offload": ",".join(offloads(objective.scenario, pins)) or None})
    if not kinds or not _degrees_below(space, objective, best.iteration):
        return []
    for likely in (best, _unlimited(space, objective, budget)):
        if likely and not budget.spent():
            layout = _values_of(likely.row, _LAYOUT)
            found = objective.search(build(objective.scenario, {**pins, **layout, **kinds}), budget=budget)
            seconds = min(seconds, objective.value(found.best)) if found.best else seconds
    if budget.spent():
        return [gained(ANY_OFFLOAD, seconds, now, proved=False)]
    left = _degrees_below(space, objective, seconds * (1.0 + NOTABLE) if objective.by_time else best.iteration)
    found = objective.search(
        build(objective.scenario, {**pins, **left, **kinds}), budget=budget, margin=1.0, confirm=False
    )
    seconds = min(seconds, objective.value(found.best)) if found.best else seconds
    subject = describe_savers(found.best.row) if found.best and found.proved else ANY_OFFLOAD
    gain = gained(subject, seconds, now, proved=found.proved)
    return [] if gain.text == "nothing" else [gain]


def _unlimited(space: Space, objective: Objective, budget: Budget) -> Incumbent | None:
    """The best were memory no limit: moving anything to the host only adds to its time."""
    roomy = objective.on(scale_device(objective.scenario, usable_memory=UNLIMITED))
    return roomy.search(space, budget=budget, margin=1.0, confirm=False).best


def _degrees_below(space: Space, objective: Objective, ceiling: float) -> dict[str, Pin]:
    """The degrees of the cores whose bound is below so many seconds of an iteration."""
    return _values_of(space.cores.take(known_bound(space.cores, objective.scenario) < ceiling), _DEGREES)


def _values_of(some: Strategies, axes: Iterable[str]) -> dict[str, Pin]:
    values = {axis: np.unique(getattr(some, axis)).astype(int).tolist() for axis in axes}
    return {axis: Pin(axis, tuple(found)) for axis, found in values.items() if found}


def _larger_batch(objective: Objective, best: Incumbent, now: float, pins: Mapping[str, Pin], budget: Budget) -> Advice:
    """The gain of a plan with twice the batch, per sequence."""
    double = objective.on(replace(objective.scenario, global_batch_size=2 * objective.scenario.global_batch_size))
    if not budget.spent():
        space, margin = build(double.scenario, pins), 1.0 + double.tie_width
        found = double.search(space, budget=budget, margin=margin, confirm=False)
        if found.best and found.proved:
            return gained("batch 2x", double.value(double.choice(found).taken) / 2, now)
    rows = replace(best.row, num_microbatches=2 * best.row.num_microbatches)
    return gained("batch 2x", double.revalue(replace(best, row=rows)) / 2, now, proved=False)


def _rounder_batch(objective: Objective, now: float, pins: Mapping[str, Pin], budget: Budget) -> list[Advice]:
    """A batch within 1 % that has far more divisors, hence more ways to split it, per sequence."""
    batch = objective.scenario.global_batch_size
    reach = min(batch // 100, MOST_BATCHES)
    near = range(max(batch - reach, 1), batch + reach + 1)
    useful = objective.scenario.gpus * LARGEST_MICRO_BATCH
    ways = {size: len(divisors(math.gcd(size, useful))) for size in near}
    rounder = max(near, key=lambda size: (ways[size], -abs(size - batch)))
    if ways[rounder] < 2 * ways[batch]:
        return []
    if budget.spent():
        return [gained(f"batch {rounder}", now, now, proved=False)]
    other = objective.on(replace(objective.scenario, global_batch_size=rounder))
    found = other.search(build(other.scenario, pins), budget=budget)
    seconds = other.value(found.best) * batch / rounder if found.best else now
    gain = gained(f"batch {rounder}", seconds, now, proved=found.proved)
    return [] if gain.text == "nothing" else [gain]
