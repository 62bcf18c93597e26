"""Memory that a run prints, by its kind, and that it ran out of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from planner.jobs.logs.lines import last_digit, number_in, rank_of

Kind = Literal["allocated", "reserved", "device"]
_BYTES: Final = {"B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 2**10, "MB": 2**20, "GB": 2**30, "1E9": 10**9}
"""Frameworks divide by powers of two whatever they call the unit, but for those that a table says."""


@dataclass(frozen=True, slots=True)
class MemoryForm:
    """A form of line that tells the peak of a device.

    Attributes:
        mark: what all such lines have.
        pattern: ``bytes`` is the figure, ``unit`` its unit, ``rank`` the rank where the line says it.
        kind: handed out to tensors, reserved by the allocator, or all that the driver shows.
        unit: where no group says it.
    """

    mark: str
    pattern: re.Pattern[str]
    kind: Kind
    unit: str = "GIB"


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest memory of a device."""

    bytes: float
    kind: Kind
    rank: str
    rounding: float


def peaks_in(line: str, forms: Iterable[MemoryForm]) -> Iterator[Peak]:
    """Every peak that a line tells."""
    for form in forms:
        if form.mark in line:
            for found in form.pattern.finditer(line):
                groups = found.groupdict()
                value, factor = number_in(found["bytes"]), _BYTES[(groups.get("unit") or form.unit).upper()]
                if value:
                    fine = last_digit(found["bytes"]) / 2.0 / value
                    yield Peak(value * factor, form.kind, groups.get("rank") or rank_of(line), min(fine, 1.0))


def peak_memory(found: Mapping[tuple[Kind, str], Peak]) -> dict[str, Any] | None:
    """The record of the fullest device, of tensors if the log has them; of the first stage if only rank 0 prints."""
    for kind in ("allocated", "reserved", "device"):
        alike = [one for one in found.values() if one.kind == kind]
        if alike:
            most = max(alike, key=lambda one: one.bytes)
            alone = {"stage": 0} if {one.rank for one in alike} == {"0"} else {}
            return {"bytes": most.bytes, "kind": kind, "rounding": most.rounding, **alone}
    return None


_OUT: Final = re.compile(
    r"OutOfMemoryError|(?:CUDA|HIP|NPU|XPU|MUSA) out of memory|RESOURCE_EXHAUSTED: Out of memory"
    r"|CUDA error: out of memory"
    r"|failed to allocate (?:request for )?[\d.]+\s*[KMG]iB"
)


def ran_out(line: str) -> bool:
    """Whether a line says that a device is out of memory."""
    return "emory" in line and bool(_OUT.search(line))
