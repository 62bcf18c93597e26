"""A run's flags as a table of names and values, however they are written down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from run_words import heard as re

Row = Mapping[str, Any]

SWITCHES = {"true": True, "yes": True, "on": True, "": True, "false": False, "no": False, "off": False}


def as_flagged(row: Row) -> Row:
    """The run with its flags as a table: a list or a line of "--name value" and "name=value" reads the same."""
    said = row["stack"].get("flags")
    if not isinstance(said, str | list):
        return row
    words = re.split(r"[\s,;]+(?=--)|[,;]\s*", said) if isinstance(said, str) else map(str, said)
    return {**row, "stack": {**row["stack"], "flags": table(words)}}


def table(words: Iterable[str]) -> dict[str, Any]:
    """Values by name, with "_" for "-": a name alone is true, "no-" before it false."""
    pairs = (re.split(r"\s*[=:]\s*|\s+", word.strip().removeprefix("--"), maxsplit=1) for word in words)
    named = ((name.replace("-", "_"), rest[0] if rest else "") for name, *rest in pairs if name)
    return dict(_flag(name, value) for name, value in named)


def _flag(name: str, value: str) -> tuple[str, Any]:
    if not value and name.startswith("no_"):
        return name.removeprefix("no_"), False
    number = float(value) if re.fullmatch(r"\d+(\.\d+)?", value) else None
    return name, SWITCHES.get(value.lower(), value) if number is None else number
