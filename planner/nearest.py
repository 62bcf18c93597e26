"""The nearest request that works, where the one asked for does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from costmodels.scenario import Scenario
from hardware.records import BadNodeCount
from planner.document import Advice
from planner.errors import BadRequest
from planner.pins import Pin, parse_pins
from planner.request import Resolved
from planner.search import Incumbent, search
from planner.space import around, build, divisors
from planner.sparing import best_of, spared
from planner.written import many

NEAREST_SECONDS = 10.0
"""How long it is looked for, unless the request gives less time."""
HALVINGS = 4
"""Times that the gap between too few GPUs and enough of them is halved."""

WORTH_IT = 0.1
"""Share of the time that twice the GPUs must save to be worth them."""


Find = Callable[[Scenario, Mapping[str, Pin], float], Incumbent | None]
"""The fastest strategy under some pins by a deadline."""


def nearest(resolved: Resolved, best_of: Find = best_of) -> Advice | None:
    """The same request without one of its pins, else without all of them, else on more GPUs, with and without them.

    As in a plan itself, what saves memory at a price is allowed where nothing fits without it, but for ``plain_best``.
    """
    deadline = time.perf_counter() + min(NEAREST_SECONDS, resolved.request.time_limit)
    pins = parse_pins(resolved.request.pins)
    found = _fewer_pins(resolved.scenario, pins, deadline, best_of) or _more_gpus(resolved, pins, deadline, best_of)
    return found or (_more_gpus(resolved, {}, deadline, best_of) if pins else None)


def _fewer_pins(scenario: Scenario, pins: Mapping[str, Pin], deadline: float, best_of: Find) -> Advice | None:
    if len(pins) > 1:
        freed = {name: {other: pins[other] for other in pins if other != name} for name in pins}
        found = {name: best_of(scenario, rest, deadline) for name, rest in freed.items()}
        works = {name: best for name, best in found.items() if best}
        if works:
            name = min(works, key=lambda pin: works[pin].iteration)
            return _described(without([name]), works[name])
    best = best_of(scenario, {}, deadline) if pins else None
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


def _more_gpus(resolved: Resolved, pins: Mapping[str, Pin], deadline: float, best_of: Find) -> Advice | None:
    """The least number of GPUs found that fits under the pins: doubling first, then halving what lies between."""
    few, asked = resolved.scenario.gpus, parse_pins(resolved.request.pins)
    for larger in _doubled(resolved):
        if best := best_of(larger, pins, deadline):
            gpus, best = _between(resolved, (few, larger.gpus), best, lambda at: best_of(at, pins, deadline))
            freed = "" if len(pins) == len(asked) else f" {without(asked)}"
            text = f"the same request{freed} fits, with the same batch (--global-batch {larger.global_batch_size})"
            return Advice(subject=many(gpus, "GPU"), text=_and_spared(text, best), iteration_seconds=best.iteration)
        few = larger.gpus
    return None


def _doubled(resolved: Resolved) -> Iterator[Scenario]:
    """The same question on 2, 4, ... 64 times the GPUs, in whole nodes."""
    for times in (2, 4, 8, 16, 32, 64):
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


def enough_gpus(resolved: Resolved, now: float, deadline: float) -> tuple[Advice, ...]:
    """The fewest GPUs, by halving, that need little longer than ``now`` seconds; none where all of them are worth it.

    Asked only where a replica of one GPU has no sequence of its own: elsewhere half the GPUs take twice as long.
    """
    scenario, pins = resolved.scenario, parse_pins(resolved.request.pins)
    few, best = scenario.gpus, None
    while few > scenario.global_batch_size and few % 2 == 0 and (fewer := with_gpus(resolved, few // 2)):
        try:
            found = search(build(fewer, pins), fewer, deadline=deadline).best
        except BadRequest:
            break
        if found is None or found.iteration > (1.0 + WORTH_IT) * now:
            break
        few, best = few // 2, found
    if best is None:
        return ()
    change, share = best.iteration / now - 1.0, few / scenario.gpus
    text = f"{change:+.1%} of the time, {1.0 - share * (1.0 + change):.0%} fewer GPU hours"
    return (Advice(subject=many(few, "GPU"), text=text, iteration_seconds=best.iteration),)


def with_gpus(resolved: Resolved, gpus: int) -> Scenario | None:
    """The question on so many GPUs with the same batch; None where such a cluster cannot be had."""
    try:
        group = resolved.machines.with_gpus(gpus).groups[0]
    except BadNodeCount:
        return None
    return replace(resolved.scenario, gpus=gpus, group=group)


def nearest_divisor(number: int, wanted: int) -> str:
    """The divisors of ``number`` on either side of ``wanted``, as the end of a sentence."""
    return around(divisors(number), wanted)


def nearest_multiple(number: int, step: int) -> int:
    """The multiple of ``step`` nearest to ``number``, at least one step."""
    return max(round(number / step), 1) * step
