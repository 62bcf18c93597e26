"""The clauses of a run's words that no rule understood, for a person to complete."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

Row = Mapping[str, Any]

WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "cluster": ("accelerator_note", "intra_node", "inter_node"),
    "stack": ("framework", "notes", "overlap", "flags"),
    "model": ("notes",),
    "strategy": ("recompute_detail", "sharding_note", "precision_note"),
    "measured": ("memory_kind", "flops_convention", "notes"),
}
"""Fields in free text, by section; the run's own notes besides."""
_BETWEEN: Final = re.compile(r";\s*|\.\s+|\n+|,\s+(?![^(]*\))")
"""What is between two clauses."""


def unread_clauses(row: Row, heard: Collection[str]) -> list[str]:
    """Clauses that hold nothing of what any rule matched, each with its field.

    Args:
        row: the run.
        heard: words that rules matched, in lower case.
    """
    return [
        f"{field}: {clause}"
        for field, words in _texts(row)
        for clause in filter(None, (part.strip(" .,;") for part in _BETWEEN.split(words)))
        if not any(word in clause.lower() for word in heard) and clause not in _stated(row)
    ]


def _stated(row: Row) -> set[str]:
    """Values that have a field of their own, of which words say no more."""
    return {
        value
        for section in WORDS
        for name, value in row[section].items()
        if isinstance(value, str) and name not in WORDS[section]
    }


def _texts(row: Row) -> Iterator[tuple[str, str]]:
    for section, names in WORDS.items():
        for name in names:
            if isinstance(words := row[section].get(name), str):
                yield f"{section}.{name}", words
    if isinstance(row.get("notes"), str):
        yield "notes", row["notes"]
