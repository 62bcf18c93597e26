"""What files of a job are and hold: the answer first, then what was read, what is missing and what was assumed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hardware.errors import BadQuantity
from hardware.units import format_quantity, parse_quantity
from planner.answer.text import format_gib, plural, short_seconds
from planner.render.terminal.tables import columns, grid, indented, line, section
from planner.request.fields import FIELDS
from planner.rules.divisors import nearest_multiple

_DEGREES: Final = ("tp", "cp", "pp", "vpp", "ep", "dp")
_COPIES: Final = {"the model": ("tp", "cp", "pp"), "its experts": ("ep", "etp", "pp")}
"""Axes whose degrees make one copy of a part of the model."""


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


def print_reading(found: Reading, console: Console, *, whole: bool = False) -> None:
    """What the job is and whether it can be priced, then what is missing, what matters, what was filled in.

    Args:
        found: what to show.
        console: where; nothing is wider.
        whole: every value, also those that are as in any job.
    """
    line(console, f"{_job(found)}: {_verdict(found)}.", "bold")
    for path, title in found.files:
        line(console, f"  {path}: {title}")
    if found.measured:
        line(console, f"  measured: {_measured(found.measured)}")
    _print_list("Missing", found.missing, console)
    plain = [] if whole else [name for name, value in found.values.items() if _usual(name, value, found.values)]
    shown = {name: value for name, value in found.values.items() if name not in plain}
    if shown:
        section("Read", _table(shown, found.origins), console)
    if plain:
        said = ", ".join(f"{_named(name)} {_short(found.values[name])}" for name in plain)
        console.print(indented(Text(f"at their defaults: {said}")))
    _print_list("Read and not priced", found.unpriced, console)
    _print_list("Assumed", found.assumed, console)
    _print_list("Also", found.remarks, console)


def _print_list(heading: str, said: Sequence[str], console: Console) -> None:
    """A heading with a line for each that is said."""
    if said:
        section(heading, columns([Text("-"), Text(one)] for one in said), console)


def _table(values: Mapping[str, Any], origins: Mapping[str, str]) -> Table:
    """Values, and where they are from, where that is more than one place."""
    several = len({origins.get(name, "") for name in values}) > 1
    table = grid("", "value", *(["from"] if several else []), left=(0, 1, 2))
    for name, value in values.items():
        parts = {"": value} if not isinstance(value, Mapping) else _parts(value)
        for place, (part, inner) in enumerate(parts.items()):
            heading = _named(name) if not place else f"  {_PARTS.get(part, _words(part))}"
            table.add_row(*map(Text, (heading, _short(inner), *([origins.get(name, "")] * several))))
    return table


def _named(name: str) -> str:
    """A value's name as its option has it; those that say a file's own sizes in words."""
    axis = name.removeprefix("pins.")
    return _IN_STEPS.get(axis) or (FIELDS[axis].words[0] if axis in FIELDS else _words(axis))


_IN_STEPS: Final[Mapping[str, str]] = {
    "steps": "micro-batches per rank",
    "local": "sequences per rank",
    "copies": "copies of the states",
}
"""What pins say until the devices are known."""


def _parts(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table without its inner tables, which follow it by their names."""
    inner = {name: value for name, value in table.items() if isinstance(value, Mapping)}
    return {"": {name: value for name, value in table.items() if name not in inner}} | inner


_ABOUT: Final[Mapping[str, str]] = {"cp_kind": "cp", "etp": "ep", "rank_order": "", "schedule": "pp", "vpp": "pp"}
"""Axes that matter only where another one splits anything; the order of ranks is seldom any one's choice."""
_TOLD: Final = ("zero_stage", "micro_batch_size", "dp")
"""Axes that are always shown."""
_NEUTRAL: Final = ("1", "none", "False", "false", "ends")


_OFF: Final = (False, None, "none")
"""Values of a table that say that something is not there."""
_PARTS: Final = {"moe": "experts", "mla": "latent attention", "mtp": "multi-token prediction"}
"""What the tables of a model are called; others by their own words."""
_SAID: Final = {
    "num_layers": "{} layers",
    "hidden_size": "hidden size {}",
    "num_heads": "{} heads",
    "num_query_groups": "{} query groups",
    "ffn_hidden_size": "feed-forward size {}",
    "gated_ffn": "gated",
    "vocab_size": "vocabulary {}",
    "seq_length": "sequence {}",
    "position": "{} positions",
    "num_experts": "{} experts",
    "top_k": "top {}",
    "expert_ffn_hidden_size": "feed-forward size {}",
    "num_shared_experts": "{} shared",
    "shared_expert_ffn_hidden_size": "of size {}",
    "dense_layers": "the first {} layers dense",
    "tied_embeddings": "tied embeddings",
}
"""How an engineer says the sizes of a model; other fields by their own words."""
_OF_ONE: Final = {"router_groups", "router_group_top_k"}
"""Sizes that say nothing where they are 1."""


def _usual(name: str, value: Any, values: Mapping[str, Any]) -> bool:
    """Whether a value of a strategy changes nothing, as in any job."""
    if not name.startswith("pins."):
        return False
    axis = name.removeprefix("pins.")
    if axis in _TOLD:
        return False
    other = _ABOUT.get(axis)
    return str(value) in _NEUTRAL or (other is not None and str(values.get(f"pins.{other}", 1)) == "1")


def _job(found: Reading) -> str:
    """The job in a few words."""
    gpus = found.values.get("gpus")
    words = [found.model or "an unknown model"]
    words += [f"on {plural(gpus, 'GPU')}"] if isinstance(gpus, int) else []
    degrees = [(axis, found.values.get(f"pins.{axis}")) for axis in _DEGREES]
    split = " ".join(f"{axis.upper()} {value}" for axis, value in degrees if str(value) not in {"None", "1"})
    return " ".join(words).removesuffix(",") + (f", {split}" if split else "")


def _verdict(found: Reading) -> str:
    if found.refused:
        return f"it has no price: {found.refused}"
    if not found.missing:
        return _unfilled(found.values) or "it can be priced (plan predict)"
    lacks = plural(len(found.missing), "thing")
    return f"no price yet, {lacks} {'is' if len(found.missing) == 1 else 'are'} missing"


def _unfilled(values: Mapping[str, Any]) -> str:
    """That the devices are no whole number of copies of the model, as where users set the nodes, or the batch.

    A copy of the experts may take more devices than one of the other layers: its degrees share out data-parallel ranks.
    """
    gpus = values.get("gpus")
    copies = {part: [values.get(f"pins.{axis}", 1) for axis in axes] for part, axes in _COPIES.items()}
    if not isinstance(gpus, int) or not all(isinstance(one, int) for degrees in copies.values() for one in degrees):
        return ""
    sizes = {part: math.prod(degrees) for part, degrees in copies.items()}
    for part, size in sizes.items():
        if gpus % size:
            takes = f"one copy of {part} takes {plural(size, 'GPU')}"
            few = f"{gpus} are not enough" if gpus < size else f"{gpus} are no whole number of copies"
            return f"{takes}, so {few}; --gpus {math.lcm(*sizes.values())} holds one"
    return _undivided(values, gpus // sizes["the model"])


def _undivided(values: Mapping[str, Any], dp: int) -> str:
    """That the batch is no whole number of micro-batches of every replica."""
    micro, batch = values.get("pins.micro_batch_size"), values.get("global_batch_size")
    if not (isinstance(micro, int) and isinstance(batch, int) and micro * dp > 0 and batch % (micro * dp)):
        return ""
    would = nearest_multiple(batch, micro * dp)
    return f"it has no price: micro-batch {micro} x dp {dp} does not divide the global batch of {batch}; {would} would"


def _measured(measured: Mapping[str, Any]) -> str:
    memory = measured.get("peak_memory") or {}
    said = [f"{short_seconds(seconds)} an iteration"] if (seconds := measured.get("iteration_seconds")) else []
    said += [f"{format_gib(memory['bytes'])} GiB {memory.get('kind', '')}".rstrip()] if memory.get("bytes") else []
    said += ["out of memory"] if measured.get("out_of_memory") else []
    return ", ".join(said) or "nothing"


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(_said(name, inner) for name, inner in value.items() if _says(name, inner))
    if isinstance(value, list | tuple):
        tables = any(isinstance(one, Mapping) for one in value)
        return "; ".join(map(_short, value)) if tables else ", ".join(map(str, value))
    if isinstance(value, str) and value.endswith(" B/s"):
        with suppress(BadQuantity):
            return format_quantity(parse_quantity(value, "bandwidth"), "bandwidth")
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _says(name: str, value: Any) -> bool:
    """Whether a field of a table tells anything: what is there, or a change to what is not."""
    return "." in name or not (name == "name" or value in _OFF or (name in _OF_ONE and value == 1))


def _said(name: str, value: Any) -> str:
    """A field of a table as people say it: "top 6", "qkv bias", "overlap grad reduce off"."""
    if (form := _SAID.get(name)) is not None:
        return form.format(_short(value))
    if isinstance(value, bool):
        return _words(name) if value and "." not in name else f"{_words(name)} {'on' if value else 'off'}"
    return f"{_words(name)} {_short(value)}"


def _words(name: str) -> str:
    """The name of a field, or of a path such as ``stack.overlap_grad_reduce``, in words."""
    return name.rpartition(".")[2].replace("_", " ")
