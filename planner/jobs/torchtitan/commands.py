"""Words of torchtitan's command line as the tables of its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from planner.jobs.options import Options
from planner.jobs.torchtitan.options import OPTIONS

_FILE: Final = ("job.config_file",)
_TRUE: Final = {"true": True, "false": False}


def named(words: Sequence[str], *names: str) -> str | None:
    """The value of the first of some options that a command line has."""
    for place, word in enumerate(words):
        name, sign, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and name.replace("-", "_") in names:
            return value if sign else next(iter(words[place + 1 : place + 2]), None)
    return None


def configuration_file(words: Sequence[str]) -> str | None:
    """The TOML that a command line names."""
    return named(words, *_FILE)


def overridden(document: Mapping[str, Any], words: Sequence[str], options: Options = OPTIONS) -> dict[str, Any]:
    """The configuration with what a command line says otherwise: ``--training.local_batch_size 2``.

    Switches stand alone, as ``--training.compile`` and ``--compile.no-enable`` do.
    """
    tables = {name: dict(table) if isinstance(table, Mapping) else table for name, table in document.items()}
    kinds = {word: row.kind for row in options for word in (row.word, *row.older)}
    for place, word in enumerate(words):
        if not word.startswith("--") or "." not in word:
            continue
        name, sign, value = word[2:].partition("=")
        path, _, key = name.replace("-", "_").rpartition(".")
        on = not key.startswith("no_")
        key = key.removeprefix("no_")
        after = [] if sign else _until_option(words[place + 1 :])
        said = [value] if sign else after
        held = tables.setdefault(path.partition(".")[0], {})
        for part in path.split(".")[1:]:
            held = held.setdefault(part, {}) if isinstance(held, dict) else {}
        if isinstance(held, dict):
            held[key] = _value(said, kinds.get(f"{path}.{key}", "text")) if said else on
    return tables


def _until_option(words: Sequence[str]) -> list[str]:
    found = []
    for word in words:
        if word.startswith("--"):
            break
        found.append(word)
    return found


def _value(said: Sequence[str], kind: str) -> Any:
    """Words as TOML would hold them."""
    if len(said) > 1:
        return list(said)
    text = said[0]
    if kind == "flag" or text.lower() in _TRUE:
        return _TRUE.get(text.lower(), text)
    plain = text.removeprefix("-")
    return int(text) if kind != "choice" and plain.isascii() and plain.isdecimal() else text
