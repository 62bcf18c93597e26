"""A study: axes over the fields of a request and of the machines, which combinations of them to ask, and its points.

Points are made one at a time: a study of a hundred thousand takes no more memory than one of ten.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from planner.studies.filters import Filter

SCENARIO: Final = "scenario"
"""The axis of named scenarios."""

Mode = Literal["search", "predict"]


@dataclass(frozen=True)
class Axis:
    """One field and the values that it takes; several in step have as many."""

    field: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Study:
    """What to ask: factors are crossed, the axes of one factor go in step."""

    name: str
    mode: Mode
    factors: tuple[tuple[Axis, ...], ...]
    scenarios: Mapping[str, Mapping[str, Any]]
    where: tuple[Filter, ...]
    baseline: Mapping[int, int]
    """Factor to the place of its value in the points that others are compared with."""

    @property
    def product(self) -> int:
        """Points before filters."""
        return math.prod(len(factor[0].values) for factor in self.factors)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of more than one value, in the order of the file."""
        return tuple(axis for factor in self.factors for axis in factor if len(axis.values) > 1)


@dataclass(frozen=True, slots=True)
class Point:
    """One question of a study: its place in the product, and every field that the study sets."""

    index: int
    fields: Mapping[str, Any]
    axes: Mapping[str, Any]
    """The values that tell it from the others."""
    lattice: int
    """Equal for neighbours whose machines alone differ: what is worked out for one serves the others."""


def points_of(study: Study, *, shard: tuple[int, int] = (1, 1)) -> Iterator[Point]:
    """Every point that the filters keep, those whose machines alone differ one after the other.

    Args:
        study: what to ask.
        shard: the k-th of n equal parts, k from 1.
    """
    alone = _machine_factors(study)
    return _walk(study, sorted(range(len(study.factors)), key=alone.__getitem__), shard)


BLOCK = 8
"""Neighbours that stay in one shard."""


def in_order(study: Study) -> Iterator[Point]:
    """Every point that the filters keep, in the order of the file: the last axis varies fastest."""
    return _walk(study, range(len(study.factors)))


def _walk(study: Study, order: Sequence[int], shard: tuple[int, int] = (1, 1)) -> Iterator[Point]:
    """Points whose factors count from slow to fast in an order."""
    part, parts = shard
    alone = _machine_factors(study)
    for position in range(study.product):
        if position // BLOCK % parts == part - 1:
            point = _point(study, _places(study, position, order), alone)
            if passes(study, point):
                yield point


def passes(study: Study, point: Point) -> bool:
    """Whether the filters keep a point."""
    return all(one.keeps(point.fields) for one in study.where)


def baseline_of(study: Study, point: Point) -> Point | None:
    """The point that another is compared with; None where there is none, or the filters leave it out."""
    if not study.baseline:
        return None
    digits = _places(study, point.index, range(len(study.factors)))
    digits = [study.baseline.get(number, digit) for number, digit in enumerate(digits)]
    base = _point(study, digits, _machine_factors(study))
    return base if passes(study, base) else None


def _machine_factors(study: Study) -> list[bool]:
    """Which factors change the machines alone, and with them no choice of strategies."""
    inside = {field for scenario in study.scenarios.values() for field in scenario}
    fields = [{axis.field for axis in factor} for factor in study.factors]
    return [
        all(field.startswith("cluster.") for field in ((one - {SCENARIO} | inside) if SCENARIO in one else one))
        for one in fields
    ]


def _places(study: Study, number: int, order: Sequence[int]) -> list[int]:
    """Place in every factor, of a number whose factors count from slow to fast in that order."""
    digits = [0] * len(study.factors)
    for factor in reversed(order):
        number, digits[factor] = divmod(number, len(study.factors[factor][0].values))
    return digits


def _point(study: Study, digits: list[int], alone: list[bool]) -> Point:
    fields: dict[str, Any] = {}
    axes: dict[str, Any] = {}
    index, lattice = 0, 0
    for factor, digit, machines in zip(study.factors, digits, alone, strict=True):
        size = len(factor[0].values)
        index = index * size + digit
        lattice = lattice if machines else lattice * size + digit
        for axis in factor:
            fields[axis.field] = axis.values[digit]
            if size > 1:
                axes[axis.field] = axis.values[digit]
    if SCENARIO in fields:
        axes[SCENARIO] = fields[SCENARIO]
        fields |= study.scenarios[fields[SCENARIO]]
    return Point(index, fields, axes, lattice)
