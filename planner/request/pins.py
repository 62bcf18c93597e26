"""Pins and ranges of axes: "8", "4,8", "..8", "2..16", numbers, lists, names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from costmodels.layer.recompute_modules import module_mask, module_names
from costmodels.names import (
    VALUE_NAMES,
)
from costmodels.pipeline.schedules import ALIASES
from planner.errors import BadRequest

_RANGE = re.compile(r"^(\d{1,12})?\.\.(\d{1,12})?$", re.ASCII)
_NUMBER = re.compile(r"^\d{1,12}$", re.ASCII)
_LARGEST = 2**31

_WIDER: Mapping[str, tuple[str, ...]] = {"offload": ("any",)}
"""Words that stand for all values of an axis of which nothing but the first is tried unasked."""


@dataclass(frozen=True, slots=True)
class Pin:
    """What a request allows on one axis: exactly these values, or a range (inclusive).

    ``each`` is one value for every node group, in the cluster's order, where the values are that and not a choice.
    """

    axis: str
    values: tuple[int, ...] = ()
    low: int = 0
    high: int = _LARGEST
    each: tuple[int, ...] = ()

    def of(self, group: int) -> Pin:
        """What it allows on one node group."""
        return Pin(self.axis, (self.each[group],)) if self.each else self

    @property
    def listed(self) -> bool:
        """Whether it names several values, each of which an answer speaks of; not where one word stands for all."""
        whole = self.axis in _WIDER and self.values == tuple(range(len(VALUE_NAMES[self.axis])))
        return len(self.values) > 1 and not whole

    def span(self) -> str:
        """A range as it is written, an open end left open."""
        return f"{self.low or ''}..{'' if self.high == _LARGEST else self.high}"

    def restrict(self, usual: Iterable[int]) -> tuple[int, ...]:
        """The axis under this pin: the pinned values, or the usual values inside the range."""
        if self.values:
            return self.values
        return tuple(value for value in usual if self.low <= value <= self.high)


def without_numpy(axis: str, given: Any) -> Any:
    """What is given on one axis without numpy: arrays as lists, their numbers as Python's; a switch as its word.

    Raises:
        ValueError: bytes, or a table of values.
    """
    plain = given.tolist() if hasattr(given, "tolist") and not isinstance(given, memoryview) else given
    parts = plain if isinstance(plain, list | tuple) else [plain]
    if any(isinstance(part, bytes | bytearray | memoryview | list | tuple | Mapping) for part in parts):
        raise ValueError(
            f"{axis}: expected a value such as 8, several as [4, 8] or a range as '..8', got {plain!r:.40}"
        )
    return str(plain).lower() if isinstance(plain, bool) else plain


def parse_pins(pins: Mapping[str, Any]) -> dict[str, Pin]:
    """Read every pin of a request; None and "" mean free.

    Raises:
        BadRequest: text that is neither values nor a range, an unknown name, a value below the least.
    """
    return {axis: _parse(axis, given) for axis, given in pins.items() if given is not None and given != ""}


def _parse(axis: str, given: Any) -> Pin:
    if axis == "recompute_modules":
        return Pin(axis, (_modules(given),))
    if isinstance(given, str) and (found := _RANGE.match(given.strip())) and axis not in VALUE_NAMES:
        return _range(axis, given, found)
    parts = given.split(",") if isinstance(given, str) else given if isinstance(given, (list, tuple)) else [given]
    if any(str(part).strip().lower() in _WIDER.get(axis, ()) for part in parts):
        return Pin(axis, tuple(range(len(VALUE_NAMES[axis]))))
    values = tuple(dict.fromkeys(_value(axis, part) for part in parts))
    if not values:
        raise BadRequest(f"{axis}: no value given; write one such as 8, several as 4,8 or a range as ..8")
    return Pin(axis, values)


def _range(axis: str, given: str, found: re.Match[str]) -> Pin:
    low, high = int(found.group(1) or 0), int(found.group(2) or _LARGEST)
    if low > high or given.strip() == "..":
        raise BadRequest(f"{axis}: range {given!r} is empty; write the smaller end first, such as 2..8")
    return Pin(axis, low=low, high=high)


def _value(axis: str, part: Any) -> int:
    text = str(part).strip().lower()
    if axis in VALUE_NAMES:
        return _named(axis, text)
    if isinstance(part, float) and part.is_integer():
        text = str(int(part))
    if not _NUMBER.match(text):
        raise BadRequest(f"{axis}: expected a whole number such as 8, a list 4,8 or a range ..8, got {str(part)!r:.40}")
    value = int(text)
    least = 0 if axis == "zero_stage" else 1
    if not least <= value <= _LARGEST:
        raise BadRequest(f"{axis}: {value} is out of range; {least} to {_LARGEST} works")
    if axis == "zero_stage" and value > 3:
        raise BadRequest(f"zero_stage: {value} does not exist; 0, 1, 2 and 3 do")
    return value


def _modules(given: Any) -> int:
    """One set of modules, by their names: "layernorm,moe_act", or "none"."""
    parts = list(given) if isinstance(given, (list, tuple)) else str(given).replace(" ", ",").split(",")
    names = [name for part in parts if (name := str(part).strip().lower())]
    try:
        return 0 if names in ([], ["none"]) else module_mask(names)
    except ValueError as error:
        raise BadRequest(f"recompute_modules: {error}, or none alone") from None


def shown_value(axis: str, value: int) -> str:
    """A value of an axis as it can be asked again."""
    if axis == "recompute_modules":
        return ",".join(module_names(value)) or "none"
    return VALUE_NAMES[axis][value] if axis in VALUE_NAMES else str(value)


def _named(axis: str, text: str) -> int:
    names = VALUE_NAMES[axis]
    if axis == "sequence_parallel":
        text = {"1": "true", "0": "false", "on": "true", "off": "false"}.get(text, text)
    if axis == "schedule":
        text = ALIASES.get(text, text)
    if text not in names:
        raise BadRequest(f"{axis}: unknown value {text!r}; there are {', '.join((*names, *_WIDER.get(axis, ())))}")
    return names.index(text)
