"""The nearest strategy that works, where one that somebody has in mind breaks a rule: one pin is otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import numpy as np

from costmodels.memory.host import host_fits
from costmodels.memory.rows import memory_limit
from costmodels.pricing import price_strategy
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies
from planner.answer.plan import Advice
from planner.errors import BadRequest
from planner.request.pins import NAMED, Pin, shown_value
from planner.search.given import broken_rules, checked_layers, single_row, split_or_given
from planner.search.split import as_it_runs
from planner.space.lattice import LAYOUT, divisors

TRIED: Final = 400
"""Values that are tried, the nearest first: by their number, so that a busy machine names the same as an idle one."""
PRICED: Final = 40
"""Of these, what keeps to the rules and is split and priced."""
SPLIT_SECONDS: Final = 10.0
"""The longest that one split may be looked for, which takes hundredths of one."""


def near_row(scenario: Scenario, pins: Mapping[str, Pin], layers: Sequence[int] | None) -> Advice | None:
    """The strategy with one pin otherwise that breaks no rule and fits; None where none was found.

    Degrees and sizes a few times off come before other names. Data parallelism takes what other degrees leave.
    """
    for axis, value, row in islice(_allowed(scenario, pins, layers), PRICED):
        if (seconds := _seconds(scenario, row, layers)) is not None:
            words = " ".join(f"{name} {getattr(row, name)[0]}" for name in LAYOUT)
            return Advice(subject=f"{axis} {shown_value(axis, value)}", text=words, iteration_seconds=seconds)
    return None


def _allowed(
    scenario: Scenario, pins: Mapping[str, Pin], layers: Sequence[int] | None
) -> Iterator[tuple[str, int, Strategies]]:
    """The strategies with one pin otherwise that break no rule, the nearest first."""
    nearest = sorted(_others(scenario, pins), key=lambda other: _times_off(pins[other[0]], other[1]))
    for axis, value in nearest[:TRIED]:
        changed = {name: pin for name, pin in pins.items() if not (axis in LAYOUT and name == "dp")}
        try:
            row = single_row(scenario, changed | {axis: Pin(axis, (value,))}, layers)
            if broken_rules(row, scenario, layers):
                continue
            if layers is not None:
                checked_layers(layers, row, scenario)
        except BadRequest:  # degrees, a batch or layers that do not go together
            continue
        yield axis, value, row


def _others(scenario: Scenario, pins: Mapping[str, Pin]) -> Iterator[tuple[str, int]]:
    """Every other value of one pinned axis."""
    for axis, pin in pins.items():
        yield from ((axis, value) for value in _values(scenario, axis) if value != pin.values[0])


def _values(scenario: Scenario, axis: str) -> Iterable[int]:
    if axis in NAMED:
        return range(len(NAMED[axis]))
    if axis in ("vpp", "recompute_num_layers"):
        return divisors(scenario.model.num_layers)
    if axis == "micro_batch_size":
        return divisors(scenario.global_batch_size)
    return range(4) if axis == "zero_stage" else () if axis == "recompute_modules" else divisors(scenario.gpus)


def _times_off(pin: Pin, value: int) -> float:
    if pin.axis in NAMED:
        return 100.0 + abs(pin.values[0] - value)
    return abs(math.log(max(value, 0.5) / max(pin.values[0], 0.5)))


def _seconds(scenario: Scenario, row: Strategies, layers: Sequence[int] | None) -> float | None:
    """Per iteration; None where it does not fit."""
    split = split_or_given(scenario, row, layers, SPLIT_SECONDS)
    priced = price_strategy(as_it_runs(row, split), scenario, split)
    fits = host_fits(row, scenario)[0] and np.max(priced.footprint.allocated) <= memory_limit(scenario, row)[0]
    return priced.iteration if fits else None
