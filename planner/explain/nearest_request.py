"""The nearest request that works, where the one asked for does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from costmodels.scenario import Scenario
from hardware.records import BadNodeCount
from planner.answer.plan import Advice
from planner.answer.text import NOT_KNOWN
from planner.errors import BadRequest
from planner.explain.plainer import given, option_of, plainer
from planner.request.budget import Budget
from planner.request.pins import Pin, parse_pins
from planner.request.request import Resolved
from planner.request.written import many
from planner.search.memory_savers import best_of, spared
from planner.search.objective import Aim
from planner.search.split import Incumbent
from planner.space.lattice import build

NEAREST = 5e6
"""Effort in which it is looked for, and no longer than a time limit leaves."""
HALVINGS = 4
"""Times that the gap between too few GPUs and enough of them is halved."""

MOST_TIMES = 64
"""Times the GPUs at which no more are tried."""
WORTH_IT = 0.1
"""Share of the time that twice the GPUs must save to be worth them."""


class Near(NamedTuple):
    """The nearest request that works, None where none was found, and in words what was tried then."""

    advice: Advice | None
    tried: str


def nearest(resolved: Resolved, budget: Budget, *, short: bool = True) -> Near:
    """The same request with fewer pins, on more GPUs, on fewer, or without one of its options; whichever works first.

    As in a plan itself, what saves memory at a price is allowed where nothing fits without it.

    Args:
        resolved: the request.
        budget: of the whole answer, which ends this with its time limit.
        short: whether memory is what lacks, so that GPUs are tried before options; the other way round where not.
    """
    budget = budget.part(NEAREST)
    pins = parse_pins(resolved.request.pins)
    ways: list[Callable[[], Advice | None]] = [
        lambda: _more_gpus(resolved, pins, budget),
        lambda: _more_gpus(resolved, {}, budget) if pins else None,
        lambda: _fewer_gpus(resolved, pins, budget),
    ]
    if not short:
        ways.insert(0, lambda: _fewer_options(resolved, pins, budget, same_job=True))
    ways.append(lambda: _fewer_options(resolved, pins, budget))
    ways.insert(0, lambda: _fewer_pins(resolved.scenario, pins, budget))
    ways.append(lambda: _several_changes(resolved, pins, budget))
    found = next((advice for way in ways if (advice := way())), None)
    return Near(found, "" if found else tried(resolved, late=budget.spent()))


def tried(resolved: Resolved, *, late: bool) -> str:
    """What was looked at and does not work either; no other number of GPUs where there are several node groups."""
    options = ", ".join(option_of(resolved.request, name) for name in given(resolved.request))
    said = ["fewer pins"] if resolved.request.pins else []
    if not resolved.mixed:
        said.append(f"up to {MOST_TIMES} times as many GPUs, and fewer than {resolved.scenario.gpus:,}")
    said += [f"without one of {options}"] if options else []
    said += ["the effort for it was spent before all of it was looked at"] if late else []
    return "; ".join(said) or "there is nothing to leave out"


def _fewer_options(
    resolved: Resolved, pins: Mapping[str, Pin], budget: Budget, *, same_job: bool = False
) -> Advice | None:
    """The same request without the first of its options that it does not work with."""
    for subject, there in plainer(resolved, budget, same_job=same_job):
        if not there.mixed and (best := best_of(there.scenario, pins, budget)):
            return _described(subject, best)
    return None


def _several_changes(resolved: Resolved, pins: Mapping[str, Pin], budget: Budget) -> Advice | None:
    """Without an option and all pins, or on more GPUs too: two obstacles are removed by two changes."""
    for subject, there in plainer(resolved, budget):
        if there.mixed:
            continue
        if pins and (best := best_of(there.scenario, {}, budget)):
            return _described(f"{subject}, and {without(pins)}", best)
        more = _more_gpus(there, pins, budget)
        if more := more or (_more_gpus(there, {}, budget) if pins else None):
            return more.model_copy(update={"subject": f"{subject}, on {more.subject}"})
    return None


def _fewer_pins(scenario: Scenario, pins: Mapping[str, Pin], budget: Budget) -> Advice | None:
    if len(pins) > 1:
        freed = {name: {other: pins[other] for other in pins if other != name} for name in pins}
        found = {name: best_of(scenario, rest, budget) for name, rest in freed.items()}
        works = {name: best for name, best in found.items() if best}
        if works:
            name = min(works, key=lambda pin: works[pin].iteration)
            return _described(without([name]), works[name])
    best = best_of(scenario, {}, budget) if pins else None
    return _described(without(pins), best) if best else None


def without(pins: Iterable[str]) -> str:
    """What the nearest request leaves out: "without the pinned tp, cp and pp"."""
    *others, last = pins
    return f"without the pinned {', '.join(others)} and {last}" if others else f"without the pinned {last}"


def _described(subject: str, best: Incumbent) -> Advice:
    at = best.row.row(0)
    words = " ".join(f"{name} {at[name]}" for name in ("tp", "cp", "pp", "dp"))
    return Advice(subject=subject, text=_and_spared(words, best), iteration_seconds=best.iteration)


def _and_spared(words: str, best: Incumbent) -> str:
    saved = spared(best.row)
    return f"{words}, {saved}" if saved else words


def _more_gpus(resolved: Resolved, pins: Mapping[str, Pin], budget: Budget) -> Advice | None:
    """The least number of GPUs found that fits under the pins: doubling first, then halving what lies between."""
    few, asked = resolved.scenario.gpus, parse_pins(resolved.request.pins)
    for larger in _doubled(resolved):
        if best := best_of(larger, pins, budget):
            gpus, best = _between(resolved, (few, larger.gpus), best, lambda at: best_of(at, pins, budget))
            freed = "" if len(pins) == len(asked) else f" {without(asked)}"
            text = f"the same request{freed} fits, with the same batch (--global-batch {larger.global_batch_size})"
            return Advice(subject=many(gpus, "GPU"), text=_and_spared(text, best), iteration_seconds=best.iteration)
        few = larger.gpus
    return None


def _fewer_gpus(resolved: Resolved, pins: Mapping[str, Pin], budget: Budget) -> Advice | None:
    """The most GPUs below, of rounder counts, that the batch can be divided among."""
    for count in _below(resolved.scenario.gpus):
        scenario = None if budget.spent() else with_gpus(resolved, count)
        if scenario and (found := best_of(scenario, pins, budget)):
            text = _and_spared("the same request fits, with the same batch", found)
            return Advice(subject=many(count, "GPU"), text=text, iteration_seconds=found.iteration)
    return None


def _below(count: int) -> Iterator[int]:
    """Rounder counts and halves, the most first."""
    while count > 1:
        yield from reversed(_rounder(count))
        count //= 2
        yield count


def _doubled(resolved: Resolved) -> Iterator[Scenario]:
    """The same question on 2, 4, ... 64 times the GPUs, in whole nodes."""
    for doublings in range(1, MOST_TIMES.bit_length()):
        times = 2**doublings
        if larger := with_gpus(resolved, resolved.scenario.gpus * times):
            yield larger


def _between(
    resolved: Resolved, ends: tuple[int, int], best: Incumbent, find: Callable[[Scenario], Incumbent | None]
) -> tuple[int, Incumbent]:
    few, enough = ends
    step = max(resolved.scenario.group.gpus_per_node, 1)
    for _ in range(HALVINGS):
        middle = (few + enough) // 2 // step * step
        if not few < middle < enough:
            break
        scenario = with_gpus(resolved, middle)
        if scenario and (found := find(scenario)):
            enough, best = middle, found
        else:
            few = middle
    return enough, best


def enough_gpus(resolved: Resolved, aim: Aim, now: float, budget: Budget) -> tuple[Advice, ...]:
    """Fewer GPUs that need little longer than ``now`` seconds, and fewer that need less; none where all are worth it.

    The former by halving, where a replica of one GPU has no sequence of its own: elsewhere half the GPUs take twice as
    long. The latter are rounder counts, where GPUs and batch do not divide each other.
    """
    few, batch, best = aim.scenario.gpus, aim.scenario.global_batch_size, None
    total, lines = few, []
    if few % batch and batch % few:
        tried = {count: _on(resolved, aim, count, budget) for count in _rounder(few)}
        faster = {count: found for count, found in tried.items() if found and found.seconds < now}
        if faster:
            count = min(faster, key=lambda count: faster[count].seconds)
            lines.append(_fewer(total, count, faster[count], now))
        elif late := [count for count, found in tried.items() if found and not found.proved]:
            lines.append(Advice(subject=many(late[0], "GPU"), text=NOT_KNOWN, proved=False))
    while few > batch and few % 2 == 0:
        found = _on(resolved, aim, few // 2, budget)
        if found is None or found.seconds > (1.0 + WORTH_IT) * now:
            if found and not found.proved:
                lines.append(Advice(subject=many(few // 2, "GPU"), text=NOT_KNOWN, proved=False))
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
    return Advice(subject=many(count, "GPU"), text=text, iteration_seconds=found.seconds, proved=found.proved)


def _on(resolved: Resolved, aim: Aim, gpus: int, budget: Budget) -> _Found | None:
    """The best of the same question on so many GPUs; None where there is no such cluster, or pins cannot make it up."""
    scenario = with_gpus(resolved, gpus)
    if scenario is None:
        return None
    there = aim.on(scenario)
    try:
        space = build(scenario, parse_pins(resolved.request.pins))
    except BadRequest:
        return None
    outcome = there.search(space, budget=budget)
    return _Found(there.value(outcome.best) if outcome.best else math.inf, outcome.proved)


def _rounder(count: int) -> list[int]:
    """Smaller counts that one, two and three more powers of two divide, above half of it."""
    lowest = count & -count
    return sorted({below for more in (2, 4, 8) if (below := count // (lowest * more) * lowest * more) > count // 2})


def with_gpus(resolved: Resolved, gpus: int) -> Scenario | None:
    """The question on so many GPUs with the same batch; None where such a cluster cannot be had."""
    try:
        group = resolved.machines.with_gpus(gpus).groups[0]
    except BadNodeCount:
        return None
    return replace(resolved.scenario, gpus=gpus, group=group)
