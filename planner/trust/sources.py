"""Who published a group of measured runs, in words: title, kind of document, and year."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from planner.trust.table import read_rows

FILE: Final = Path(__file__).with_name("sources.csv")


def describe_source(group: str) -> str:
    """The source of a group: "apple/axlearn (repository, 2023-2025)"; the group itself where the file has no row."""
    row = _rows().get(group)
    return f"{row['title']} ({', '.join(filter(None, (row['kind'], row['date'])))})" if row else group


def short_source(group: str, width: int) -> str:
    """Title and year of a group's source in so many characters; the title is cut."""
    row = _rows().get(group)
    if row is None:
        return group
    year = f" {row['date']}".rstrip()
    title = row["title"]
    return (title if len(title) + len(year) <= width else f"{title[: width - len(year) - 3]}...") + year


@cache
def _rows() -> Mapping[str, Mapping[str, str]]:
    return {row["group"]: row for row in read_rows(FILE)}
