"""Tables of words in TOML files next to the code."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any


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


def pattern(names: Iterable[str]) -> str:
    """What matches any of some names."""
    return "|".join(".*".join(map(re.escape, name.split("*"))) for name in names)
