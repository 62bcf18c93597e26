"""Tables of words in TOML files next to the code, and values as parsers take them that are not strict."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final


@cache
def data(name: str) -> Mapping[str, Any]:
    """The tables of a file of this package, by its path without the ending."""
    return tomllib.loads(template(f"{name}.toml"))


def template(name: str) -> str:
    """The text of a file of this package, such as what an exporter fills in."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def put(tables: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set what stands at a path of tables within tables; those on the way are made, or copied, as needed."""
    *above, key = path
    for name in above:
        inner = tables.get(name)
        tables[name] = dict(inner) if isinstance(inner, Mapping) else {}
        tables = tables[name]
    tables[key] = value


def words(text: str) -> tuple[str, ...]:
    """Names that are written one behind the other; a star in one stands for anything."""
    return tuple(text.split())


def each_name(table: Mapping[str, str]) -> dict[str, str]:
    """A table by single names, where a row has several that are written one behind the other."""
    return {name: said for names, said in table.items() for name in words(names)}


def pattern(names: Iterable[str]) -> str:
    """What matches any of some names."""
    return "|".join(".*".join(map(re.escape, name.split("*"))) for name in names)


_TRUTH: Final = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}
"""``transformers.hf_argparser.string_to_bool``, and what YAML 1.1 calls on and off."""
ABSENT: Final = frozenset({"", "none", "null"})
_OFF: Final = frozenset({*ABSENT, "auto", "no", "false", "off", "0"})


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
