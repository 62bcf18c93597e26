"""A study: axes over the fields of a request and of the machines, and which combinations of them to ask."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
