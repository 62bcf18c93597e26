"""What a file that is not what it should be looks like, so that a refusal can say who reads it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from typing import Any, Final

_OPTION: Final = re.compile(r"(?m)(?:^|\s)--[a-z][\w-]+")
_KEY: Final = re.compile(r"(?m)^\s*[\w.-]+:(\s|$)")
_TABLES: Final[tuple[tuple[str, str, Callable[[str], Any]], ...]] = (
    ("JSON", "deepspeed", json.loads),
    ("TOML", "torchtitan", tomllib.loads),
)
"""Kinds with a parser, and the format that reads them."""


def refusal(text: str, wanted: str, error: str) -> str:
    """Why a text is not of the kind that is wanted, in a line: what it looks like, or what its parser says.

    Args:
        text: of the file.
        wanted: "JSON" or "TOML".
        error: what the parser of that says.
    """
    seen = _kind(text)
    if seen is None:
        return f"no {wanted}: {error}"
    kind, reads = seen
    return f"no {wanted}: it looks like {kind}" + (f", which --from {reads} reads" if reads else "")


def _kind(text: str) -> tuple[str, str] | None:
    """What a text looks like, and the format that reads it, if any does."""
    if not text.strip():
        return "an empty file", ""
    for kind, reads, parse in _TABLES:
        if _parses(parse, text):
            return kind, reads
    if text.startswith("#!") or _OPTION.search(text):
        return "a script or a command line", "megatron-args"
    if text.lstrip().startswith(("{", "[")):
        return None  # what was meant is plain, and the parser knows where it goes wrong
    return ("YAML", "") if _KEY.search(text) else ("plain text", "")


def _parses(parse: Callable[[str], Any], text: str) -> bool:
    try:
        return isinstance(parse(text), dict)
    except (ValueError, RecursionError):
        return False
