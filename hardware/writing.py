"""From a cluster's record back to the table that its file holds, and tables to TOML.

``cluster_record(cluster_document(cluster)) == cluster`` for every cluster, so that what a program has changed can be
kept in a file and read by the same reader as any other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hardware.assembly import accelerator_record
from hardware.errors import UnknownName
from hardware.files import Document, entry
from hardware.records import Accelerator, Cluster, NodeGroup
from hardware.units import Dimension, format_quantity, parse_quantity

_BASES: Final[Mapping[str, Dimension]] = {"B": "bytes", "B/s": "bandwidth", "s": "time", "FLOP/s": "rate", "W": "power"}
_EXACT: Final = re.compile(r"([0-9.e+-]+) (B|B/s|s|FLOP/s|W)")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def cluster_document(cluster: Cluster) -> Document:
    """The table of a cluster file that reads as this cluster."""
    top: Document = {"name": cluster.name, "title": cluster.title}
    if len(cluster.groups) == 1:
        group = _group(cluster.groups[0])
        if group["name"] == cluster.groups[0].accelerator.name:
            del group["name"]
        top |= group | {"name": cluster.name}
    else:
        top["groups"] = [_group(group) for group in cluster.groups]
        top["between"] = [{"groups": list(b.groups), "link": _plain(b.link)} for b in cluster.between]
    return _filled(top | {"sources": dict(cluster.sources)})


def _group(group: NodeGroup) -> Document:
    return _plain(group) | _device(group.accelerator)


def _device(device: Accelerator) -> Document:
    """The name of an accelerator that the catalogue holds and the power that it is held to, else all of it."""
    try:
        known = accelerator_record(entry("accelerator", device.name))
    except UnknownName:
        known = None
    if known != device.model_copy(update={"power_limit": None}):
        return {"accelerator": _plain(device)}
    limit = {} if device.power_limit is None else {"power_limit": _plain(device)["power_limit"]}
    return {"accelerator": device.name} | limit


def _plain(record: Any) -> Document:
    """A record as a table of what its file would say; quantities in the largest unit that loses nothing."""
    return _filled(_shortened(record.model_dump(mode="json", exclude_none=True)))


def _filled(table: Document) -> Document:
    return {key: value for key, value in table.items() if value not in ({}, [], ())}


def _shortened(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _shortened(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_shortened(one) for one in value]
    return short_quantity(value) if isinstance(value, str) else value


def short_quantity(text: str) -> str:
    """An exact quantity, such as "3350000000000.0 B/s", in the largest unit that keeps it exact: "3.35 TB/s"."""
    found = _EXACT.fullmatch(text)
    if found is None:
        return text
    dimension = _BASES[found[2]]
    exact = parse_quantity(text, dimension)
    for unit in ("TiB", "GiB") if dimension == "bytes" and exact else ():  # of which memory has a whole number
        if exact % (size := parse_quantity(f"1 {unit}", "bytes")) == 0.0:
            return f"{exact / size:.0f} {unit}"
    for digits in (3, 6, 12):
        shown = format_quantity(exact, dimension, digits)
        if parse_quantity(shown, dimension) == exact:
            return shown
    return text


def toml(document: Mapping[str, Any]) -> str:
    """A table of text, numbers, booleans, lists and tables as TOML; ``tomllib`` reads the same table back."""
    return "\n".join(_lines(document, ())).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: Sequence[str]) -> list[str]:
    """Values before tables, as TOML asks."""
    below = {key: value for key, value in table.items() if isinstance(value, Mapping) or _is_tables(value)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in table.items() if key not in below]
    for key, value in below.items():
        here = (*path, key)
        name = ".".join(map(_key, here))
        if isinstance(value, Mapping):
            lines += ["", f"[{name}]", *_lines(value, here)]
        else:
            for one in value:
                lines += ["", f"[[{name}]]", *_lines(one, here)]
    return lines


def _is_tables(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, Mapping) for one in value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return _text(value) if isinstance(value, str) else repr(value)


def _text(text: str) -> str:
    """A basic string: JSON's escapes, and the one control character that JSON leaves alone."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
