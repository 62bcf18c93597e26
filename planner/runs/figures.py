"""Tables of figures, a line a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from planner.trust.sources import short_source

FIRST: Final = 30
"""Characters of the column of names."""


class Column(NamedTuple):
    """A figure of every line."""

    key: str
    heading: str
    width: int
    show: Callable[[Any], str]


def line(name: str, figures: Mapping[str, Any], columns: tuple[Column, ...], wide: int = FIRST) -> str:
    """The figures of one group; a place is empty where there is none."""
    cells = (f"{'' if (v := figures.get(c.key)) is None else c.show(v):>{c.width}s}" for c in columns)
    return f"{name:{wide}s}{''.join(cells)}".rstrip()


def table(
    rows: Mapping[str, Mapping[str, Any]], columns: tuple[Column, ...], first: str = "source", wide: int = FIRST
) -> list[str]:
    """Headings, and a line for every group by its source, whose title takes ``wide`` characters."""
    head = f"{first:{wide}s}" + "".join(f"{column.heading:>{column.width}s}" for column in columns)
    return [head, *(line(short_source(name, wide - 1), figures, columns, wide) for name, figures in rows.items())]
