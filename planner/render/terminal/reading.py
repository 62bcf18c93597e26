"""What files of a job are and hold: the answer first, then what was read, what is missing and what was assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from planner.answer.text import format_gib, plural, short_seconds
from planner.render.terminal.tables import grid, section

_DEGREES: Final = ("tp", "cp", "pp", "vpp", "ep", "dp")
_LONGEST: Final = 34
"""Characters of a value in the table."""


@dataclass(frozen=True)
class Reading:
    """What the table shows.

    Attributes:
        files: name and kind of each.
        values: of the question, by field and by pin as ``pins.tp``.
        origins: the file or option that gave each.
        model: in words; empty where none is said.
        refused: what is wrong with the question, where nothing of it is missing.
        measured: of a run: seconds of an iteration, memory.
        missing: what must be said before there is a price.
        assumed: what was filled in.
        unpriced: what was read and is not priced, with its likely effect.
        remarks: what else there is to know.
    """

    files: tuple[tuple[str, str], ...]
    values: Mapping[str, Any]
    origins: Mapping[str, str]
    measured: Mapping[str, Any]
    model: str = ""
    refused: str = ""
    missing: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def print_reading(found: Reading, console: Console) -> None:
    """All of it, within the width of the console."""
    console.print(Text(f"{_job(found)}: {_verdict(found)}", style="bold"), overflow="fold")
    for path, title in found.files:
        console.print(Text(f"  {path}: {title}"), overflow="fold")
    if found.measured:
        console.print(Text(f"  measured: {_measured(found.measured)}"), overflow="fold")
    table = grid("", "value", "from", left=(0, 1, 2), whole=True)
    for name, value in found.values.items():
        table.add_row(name.removeprefix("pins."), _short(value), found.origins.get(name, ""))
    if table.row_count:
        section("Read", table, console)
    lists = {
        "Missing": found.missing,
        "Assumed": found.assumed,
        "Read and not priced": found.unpriced,
        "Also": found.remarks,
    }
    for heading, lines in lists.items():
        if lines:
            console.print()
            console.print(Text(heading, style="bold"))
            for line in lines:
                console.print(Padding(Text(f"- {line}"), (0, 0, 0, 2)), overflow="fold")


def _job(found: Reading) -> str:
    """The job in a few words."""
    gpus = found.values.get("gpus")
    words = [found.model or "a model that is not said"]
    words += [f"on {plural(gpus, 'GPU')}"] if isinstance(gpus, int) else []
    degrees = [(axis, found.values.get(f"pins.{axis}")) for axis in _DEGREES]
    split = " ".join(f"{axis.upper()} {value}" for axis, value in degrees if str(value) not in {"None", "1"})
    return " ".join(words).removesuffix(",") + (f", {split}" if split else "")


def _verdict(found: Reading) -> str:
    if found.refused:
        return f"it has no price: {found.refused}"
    if not found.missing:
        return "it can be priced (plan predict)"
    return f"{plural(len(found.missing), 'thing')} must be said before it has a price"


def _measured(measured: Mapping[str, Any]) -> str:
    memory = measured.get("peak_memory") or {}
    said = [f"{short_seconds(seconds)} an iteration"] if (seconds := measured.get("iteration_seconds")) else []
    said += [f"{format_gib(memory['bytes'])} GiB {memory.get('kind', '')}".rstrip()] if memory.get("bytes") else []
    said += ["out of memory"] if measured.get("out_of_memory") else []
    return ", ".join(said) or "nothing"


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        value = ", ".join(f"{name}={inner}" for name, inner in value.items() if name != "name")
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
