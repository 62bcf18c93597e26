"""What a file says of a job, before it is a request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Given:
    """Fields and pins of a request, and what else the file says.

    Attributes:
        fields: of ``PlanRequest``; what the file leaves open is absent.
        pins: the strategy, by axis.
        layers: of every stage, where the file says.
        remarks: what was not read, or cannot be.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    pins: Mapping[str, Any] = field(default_factory=dict)
    layers: tuple[int, ...] | None = None
    remarks: tuple[str, ...] = ()


def said(**values: Any) -> dict[str, Any]:
    """The values that are said: neither None nor empty."""
    return {name: value for name, value in values.items() if value is not None and value != ""}


def tables(document: Mapping[str, Any], *names: str) -> Iterator[Mapping[str, Any]]:
    """Tables of a document by name, empty where absent or something else."""
    for name in names:
        found = document.get(name)
        yield found if isinstance(found, Mapping) else {}
