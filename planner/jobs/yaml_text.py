"""YAML of plain tables, lists and scalars, without a package: what the exporters write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def yaml_text(document: Mapping[str, Any]) -> str:
    """The document in block style, ending with a newline. Text that YAML might read otherwise is quoted."""
    return "\n".join(_lines(document)) + "\n"


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _entry(f"{_scalar(key)}:", below, indent="  ")
    else:
        for below in value:
            yield from _item(below)


def _entry(head: str, value: Any, *, indent: str) -> Iterator[str]:
    if isinstance(value, str) and "\n" in value.rstrip("\n"):
        yield f"{head} |"
        yield from (f"{indent}{line}".rstrip() for line in value.rstrip("\n").split("\n"))
    elif _nested(value):
        yield head
        yield from (f"{indent}{line}" for line in _lines(value))
    else:
        yield f"{head} {_scalar(value)}"


def _item(value: Any) -> Iterator[str]:
    if not _nested(value):
        yield from _entry("-", value, indent="  ")
        return
    lines = list(_lines(value))
    yield f"- {lines[0]}"
    yield from (f"  {line}" for line in lines[1:])


def _nested(value: Any) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str) and bool(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if isinstance(value, float) and "e" in (text := repr(value)) and "." not in text:
        return text.replace("e", ".0e")  # YAML 1.1 reads a number without a point as text
    return json.dumps(value, ensure_ascii=False)
