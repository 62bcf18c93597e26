"""Values as parsers take them that are not strict: numbers and switches in words, options under their older names."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Final

from planner.jobs.options import Option, Options

_TRUTH: Final = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}
"""``transformers.hf_argparser.string_to_bool``, and what YAML 1.1 calls on and off."""
_ABSENT: Final = frozenset({"", "none", "null"})
_OFF: Final = frozenset({*_ABSENT, "auto", "no", "false", "off", "0"})


def typed(values: Mapping[str, Any], options: Options, *, words: bool = True) -> dict[str, Any]:
    """A file's or a command line's values with those of the options as what they are, under their present names.

    Numbers may be words (``300_000_000``, ``2e9``), switches too (``True``, ``no``); ``none`` says nothing. What is no
    such value stays, and is refused where it is read.

    Args:
        values: of the file, tables within tables.
        options: of the framework, whose words are paths into them.
        words: whether a number may be one; what is none takes 2e8 for 200000000 all the same.
    """
    found = {str(name): dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    for row in options:
        for word in (row.word, *row.older):
            _retype(found, word, row, words=words)
    return found


def _retype(found: dict[str, Any], word: str, row: Option, *, words: bool) -> None:
    """Put the value of one spelling, if it is there, as it is meant where the present spelling stands."""
    at, key = _table(found, word)
    if at is None or key not in at:
        return
    value = at.pop(key)
    value = _meant(value, row) if words or row.kind == "flag" or not isinstance(value, str) else value
    place, name = (at, key) if word == row.word else _table(found, row.word)
    if place is None:
        place, name = at, key  # an older table as a whole
    if value is not None and name not in place:
        place[name] = value


def _table(found: dict[str, Any], word: str) -> tuple[dict[str, Any] | None, str]:
    """The table of a path, and its key in it; None where there is no such table."""
    *path, key = word.split(".")
    at: Any = found
    for name in path:
        inner = at.get(name)
        if not isinstance(inner, Mapping):
            return None, key
        if not isinstance(inner, dict):
            at[name] = inner = dict(inner)
        at = inner
    return at, key


def _meant(value: Any, row: Option) -> Any:
    if isinstance(value, str) and value.strip().lower() in _ABSENT and row.kind != "choice":
        return None
    if row.kind == "number":
        found = whole(value)
        return value if found is None else found
    if row.kind == "flag":
        found_truth = truth(value)
        return value if found_truth is None else found_truth
    if row.kind == "choice" and isinstance(value, bool):
        return "yes" if value else "no"  # YAML's no stands for itself in words
    return value


def whole(value: Any) -> int | None:
    """The whole number that a value is or says, None where it is none."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value) if isinstance(value, int | float) else float(str(value).strip())
        return int(number) if number == int(number) else None
    except (ValueError, OverflowError):
        return None


def truth(value: Any) -> bool | None:
    """Whether a value means on, None where it says neither."""
    if isinstance(value, bool):
        return value
    return _TRUTH.get(str(value).strip().lower())


def real(value: Any) -> float:
    """The number that a value is or says, 0 where it is none."""
    try:
        return float(value or 0.0)
    except (TypeError, ValueError):
        return 0.0


def program_of(text: str) -> ast.Module:
    """A program of Python by its syntax, never run; an empty one where a text is none."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def literal(text: str) -> Any:
    """A value as Python prints it; itself where it is text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def unpriced(values: Mapping[str, Any], effects: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for every path into a file's tables that is there and not off, with its effect on time or memory."""
    said = {word: at_path(values, word) for word in effects}
    on = [word for word, value in said.items() if value and str(value).strip().lower() not in _OFF]
    return tuple(f"{word} is read and not priced: {effects[word]}" for word in on)


def at_path(values: Mapping[str, Any], word: str) -> Any:
    """What a path such as ``model.optim`` has in tables within tables; None where nothing is."""
    found: Any = values
    for name in word.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def table_at(values: Mapping[str, Any], word: str) -> Mapping[str, Any]:
    """The table at a path, empty where none is."""
    found = at_path(values, word)
    return found if isinstance(found, Mapping) else {}


def has_all(values: Mapping[str, Any], *words: str) -> bool:
    """Whether tables within tables have something at each of some paths."""
    return all(at_path(values, word) is not None for word in words)
