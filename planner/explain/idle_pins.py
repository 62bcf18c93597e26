"""Values of a pin that no strategy takes: asked for, refused before anything was priced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from planner.answer.plan import Rejection
from planner.errors import BadRequest
from planner.explain.reasons import telling
from planner.request.pins import Pin, shown_value
from planner.request.resolve import Resolved
from planner.rules.rule import Rule
from planner.space.lattice import Refusal, Space

if TYPE_CHECKING:
    from planner.space.mixed import MixedSpace

_SHARDING = ("zero_stage", "sharding_degree")
MOST_NAMED = 3
"""Values of one pin whose reasons are told."""


@dataclass(frozen=True)
class Lattice:
    """How a space is laid out under pins, and the rules that bind in it."""

    build: Callable[[Mapping[str, Pin]], Space | MixedSpace]
    rules: tuple[Rule, ...]


def idle_pins(resolved: Resolved, pins: Mapping[str, Pin], space: Space | MixedSpace, lattice: Lattice) -> list[str]:
    """A line for every value of a list that no strategy takes, with the rule that stands against it."""
    lines = []
    listed = {axis: pin for axis, pin in pins.items() if str(resolved.request.pins[axis]).strip().lower() != "any"}
    for axis, pin in listed.items():
        taken = set(_values(space, axis).tolist())
        idle = [value for value in pin.values if value not in taken] if len(pin.values) > 1 else []
        for value in idle[:MOST_NAMED]:
            why = _why(resolved, {**pins, axis: Pin(axis, (value,))}, lattice)
            lines.append(f"no strategy has {axis} {shown_value(axis, value)}: {why}")
        if idle[MOST_NAMED:]:
            rest = ", ".join(shown_value(axis, value) for value in idle[MOST_NAMED:])
            lines.append(f"nor has any {axis} {rest}")
    return lines


def _values(space: Space | MixedSpace, axis: str) -> NDArray[Any]:
    """The values of an axis among all strategies that pass every rule but memory."""
    if isinstance(space, Space):
        if axis == "zero_stage":
            return space.zero_stage[space.allowed.any(axis=0)]
        if axis == "sharding_degree":
            core, option = np.nonzero(space.allowed)
            return np.unique(space.degree[space.layout[core], option])
        return np.unique(getattr(space.cores, axis))
    if axis in _SHARDING:
        of_group = space.zero_stage if axis == "zero_stage" else space.degree
        return np.unique(of_group[space.allowed])
    return np.unique([getattr(group, axis) for group in space.cores.groups])


def _why(resolved: Resolved, pins: Mapping[str, Pin], lattice: Lattice) -> str:
    try:
        refusals = lattice.build(pins).refusals
    except BadRequest as error:
        return str(error)
    found = [_rejection(one) for one in refusals]
    told = telling(found, resolved, lattice.rules)
    return told[0].example if told else "other pins leave none"


def _rejection(one: Refusal) -> Rejection:
    return Rejection(rule=one.rule, count=one.count, example=one.example)
