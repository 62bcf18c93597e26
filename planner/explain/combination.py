"""Pins that contradict each other: the nearest combination of all of them that works."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import chain, islice
from typing import Final

import numpy as np

from costmodels.names import VALUE_NAMES
from costmodels.pricing import price_together, seconds_if_it_fits
from costmodels.scenario import Scenario
from costmodels.strategy import Ints, Strategies, concatenate
from planner.errors import BadRequest, UnfilledPins
from planner.request.budget import Budget
from planner.request.fields import FIELDS
from planner.request.pins import Pin, shown_value
from planner.rules.divisors import divisors
from planner.search.given import CHUNKS, broken_rules, checked_layers, single_strategy, split_or_given
from planner.search.memory_savers import best_of
from planner.space.active_rules import binding, passing
from planner.space.lattice import MESH_AXES, layouts

LAYOUTS: Final = 200
"""Layouts of the GPUs that are combined with other pins, the nearest first."""
VALUES: Final = 5
"""Values of every other pin."""
TRIED: Final = 2000
"""Combinations that are held against the rules: a number, so that a busy machine names the same as an idle one."""
FEWEST: Final = 4
"""Of these, how many are held against the rules at once at first."""
PRICED: Final = 200
"""Of these, what keeps to the rules and is split and priced."""
SEARCHED: Final = 32
"""Combinations that a search is asked about, where pins leave axes free."""
_CHANGED: Final = 0.1
"""What a pin that changes at all counts besides its distance, a logarithm, so that few change."""
_RENAMED: Final = 3.0
"""What another name counts, such as another schedule."""

Values = Mapping[str, int]


def nearest_given(
    scenario: Scenario, pins: Mapping[str, Pin], layers: Sequence[int] | None
) -> tuple[Values, Strategies] | None:
    """The nearest combination that makes one strategy which keeps to the rules and fits.

    Degrees that are not pinned are 1, and change like the pinned ones; other axes have their plainest value.

    Returns:
        the pins that change, and the strategy; None where none was found.
    """
    plain = {"tp": 1, "cp": 1, "pp": len(layers) if layers else 1}
    every = {axis: Pin(axis, (value,)) for axis, value in plain.items()} | dict(pins)
    tried = islice(_combinations(scenario, every), TRIED)
    allowed = chain.from_iterable(_allowed(scenario, pins, block, layers) for block in _blocks(tried))
    fitting = (
        found
        for found in islice(allowed, PRICED)
        if seconds_if_it_fits(found[1], scenario, split_or_given(scenario, found[1], layers)) is not None
    )
    return next(fitting, None)


def nearest_searched(scenario: Scenario, pins: Mapping[str, Pin], budget: Budget) -> Values | None:
    """The pins that change in the nearest combination under which a search finds a strategy that fits."""
    for changed in islice(_combinations(scenario, pins), SEARCHED):
        try:
            if best_of(scenario, _with(pins, changed), budget):
                return changed
        except UnfilledPins:
            continue
    return None


def contradiction(error: UnfilledPins, pins: Mapping[str, Pin], changed: Values | None) -> UnfilledPins:
    """What is wrong with pins, and in place of what would mend one of them, all that works together."""
    if not changed or len(pins) < 2:
        return error
    rest = ", the rest as asked" if pins.keys() - changed.keys() else ""
    return UnfilledPins(f"{str(error).partition('; ')[0]}; the nearest that works: {flags(changed)}{rest}")


def flags(changed: Values) -> str:
    """Pins as options: "--tp 4 --pp 8"."""
    return " ".join(f"--{FIELDS[axis].words[0]} {shown_value(axis, value)}" for axis, value in changed.items())


def saver_flags(row: Strategies) -> str:
    """What a strategy saves memory by, as options: "--offload optimizer"; empty where it has none."""
    plain = {"recompute_num_layers": 1, "offload": 0}
    return flags({axis: value for axis in plain if (value := int(getattr(row, axis)[0])) > plain[axis]})


def _with(pins: Mapping[str, Pin], changed: Values) -> dict[str, Pin]:
    return {**pins, **{axis: Pin(axis, (value,)) for axis, value in changed.items()}}


def _blocks(items: Iterator[Values]) -> Iterator[list[Values]]:
    """Few at first, since the nearest often works, then ever more, which cost little more than one."""
    size = FEWEST
    while block := list(islice(items, size)):
        yield block
        size *= 2


def _allowed(
    scenario: Scenario, pins: Mapping[str, Pin], block: list[Values], layers: Sequence[int] | None
) -> list[tuple[Values, Strategies]]:
    """Of some combinations those that break no rule, each with its strategy; they know the terms of their prices."""
    whole = [(changed, row) for changed in block if (row := _whole(scenario, _with(pins, changed), layers))]
    if not whole:
        return []
    rules = (rule for rule in binding(scenario) if layers is None or rule.name != CHUNKS)  # layers may fill chunks
    kept = passing(concatenate([row for _, row in whole]), rules, scenario)
    found = [whole[place] for place in np.flatnonzero(kept)]
    if layers is not None:
        found = [one for one in found if _go_with(layers, one[1], scenario)]
    if found:
        price_together([row for _, row in found], scenario)
    return found


def _whole(scenario: Scenario, pins: Mapping[str, Pin], layers: Sequence[int] | None) -> Strategies | None:
    """The strategy that pins describe; None where the GPUs or the batch are no multiple of its degrees."""
    with suppress(BadRequest):
        return single_strategy(scenario, pins, layers)
    return None


def _go_with(layers: Sequence[int], row: Strategies, scenario: Scenario) -> bool:
    """Whether a strategy can have these layers by stage."""
    with suppress(BadRequest):
        return not broken_rules(row, scenario, layers) and bool(checked_layers(layers, row, scenario))
    return False


def _combinations(scenario: Scenario, pins: Mapping[str, Pin]) -> Iterator[Values]:
    """The pins that change, in every combination of values near the pinned ones, the nearest first."""
    degrees = _layouts(scenario, {axis: pin for axis, pin in pins.items() if axis in MESH_AXES})
    parts = [degrees, *(_near(scenario, pin) for axis, pin in pins.items() if axis not in MESH_AXES)]
    first = (0,) * len(parts)
    waiting, seen = [(sum(part[0][0] for part in parts), first)], {first}
    while waiting:
        _, at = heappop(waiting)
        taken = [part[place] for part, place in zip(parts, at, strict=True)]
        yield {axis: value for _, values in taken for axis, value in values.items()}
        for which, part in enumerate(parts):
            further = (*at[:which], at[which] + 1, *at[which + 1 :])
            if further[which] < len(part) and further not in seen:
                seen.add(further)
                far = sum(one[place][0] for one, place in zip(parts, further, strict=True))
                heappush(waiting, (far, further))


_Part = tuple[float, Values]
"""How far off values are, and those of them that change."""


def _layouts(scenario: Scenario, pins: Mapping[str, Pin]) -> list[_Part]:
    """The nearest degrees that make up the GPUs; tensor ranks that begin to leave the node are as far as a name."""
    columns = layouts(scenario.gpus, {})
    rows: Ints = np.stack([columns[axis] for axis in (*pins, "tp")], axis=1)
    node = max(scenario.group.gpus_per_node, 1)
    found = {}
    for *degrees, tp in np.unique(rows, axis=0).tolist():
        away, changed = _part(dict(zip(pins, degrees, strict=True)), pins)
        found[tuple(degrees)] = (away + (_RENAMED if tp > node and "tp" in changed else 0.0), changed)
    return sorted(found.values(), key=lambda part: part[0])[:LAYOUTS]


def _near(scenario: Scenario, pin: Pin) -> list[_Part]:
    """The nearest values of an axis that is no degree, and the least, which most often goes with everything."""
    values = sorted({*_values(scenario, pin.axis), *pin.values}, key=lambda value: _times_off(pin, value))
    near = dict.fromkeys([*values[:VALUES], min(values)])
    return sorted((_part({pin.axis: value}, {pin.axis: pin}) for value in near), key=lambda part: part[0])


def _values(scenario: Scenario, axis: str) -> Sequence[int]:
    model = scenario.model
    usual: dict[str, Callable[[], Sequence[int]]] = {
        "vpp": lambda: divisors(model.num_layers),
        "recompute_num_layers": lambda: divisors(model.num_layers),
        "micro_batch_size": lambda: divisors(scenario.global_batch_size),
        "ep": lambda: divisors(model.moe.num_experts) if model.moe else [1],
        "zero_stage": lambda: range(4),
        "recompute_modules": lambda: (),
    }
    if axis in VALUE_NAMES:
        return range(len(VALUE_NAMES[axis]))
    return usual.get(axis, lambda: divisors(scenario.gpus))()


def _part(values: Values, pins: Mapping[str, Pin]) -> _Part:
    away = {axis: _times_off(pins[axis], value) for axis, value in values.items()}
    return sum(away.values()), {axis: value for axis, value in values.items() if away[axis] > 0.0}


def _times_off(pin: Pin, value: int) -> float:
    """How far a value is from the nearest that a pin allows."""
    wanted = pin.values or (min(max(value, pin.low), pin.high),)
    if value in wanted:
        return 0.0
    if pin.axis in VALUE_NAMES:
        return _RENAMED
    return _CHANGED + min(abs(math.log(max(value, 0.5) / max(one, 0.5))) for one in wanted)
