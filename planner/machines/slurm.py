"""``sinfo`` and ``scontrol show node``: kinds of nodes and how many there are."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from planner.answer.text import plural
from planner.machines.findings import MIB, Node, Reader

_GRES: Final = re.compile(r"gpu:(?:([^:,()\s]+):)?(\d+)(?=[,(\s]|$)")
_FIELD: Final = re.compile(r"(?<!\S)(\w[\w/]*)=(\S*)")
_GONE: Final = ("down", "drain", "fail", "maint", "unk")
_NAMES: Final[Mapping[str, str]] = {
    "HOSTNAMES": "NODELIST",
    "NODE": "NODELIST",
    "NODES(A/I/O/T)": "NODES",
    "AVAIL_FEATURES": "FEATURES",
}
"""Headings that say the same."""
_MOST_NODES: Final = 2**17
_PART: Final = re.compile(r"\dg\.\d+gb", re.IGNORECASE)
"""How a part of a device is called that MIG cut off."""


def gres(text: str) -> tuple[str | None, int] | None:
    """Name and number of a node's devices, of "gpu:a100:8(S:0-1)": the most of one kind; None where there are none."""
    return max(_whole(text), key=lambda kind: kind[1], default=None)


def _whole(text: str) -> list[tuple[str | None, int]]:
    """Every kind of whole devices."""
    found = ((one[1], int(one[2])) for one in _GRES.finditer(text))
    return [(name, count) for name, count in found if count and not _PART.search(name or "")]


def hosts(text: str) -> Iterator[str]:
    """The names that "n[001-003,7],login" stands for."""
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*", text):
        prefix, bracket, rest = part.partition("[")
        if not bracket:
            yield part
            continue
        inner, _, suffix = rest.partition("]")
        for span in inner.split(","):
            low, dash, high = span.partition("-")
            if not (dash and low.isdecimal() and high.isdecimal()):
                yield from hosts(f"{prefix}{span}{suffix}")
                continue
            for number in range(int(low), int(high) + 1):
                yield from hosts(f"{prefix}{number:0{len(low)}}{suffix}")


def _names(text: str) -> set[str]:
    """The names of so many nodes as a cluster may have.

    Raises:
        ValueError: they are more.
    """
    found = set(islice(hosts(text), _MOST_NODES + 1))
    if len(found) > _MOST_NODES:
        raise ValueError(f"{text!r:.40} stands for more than {_MOST_NODES:,} nodes")
    return found - {""}


def _sinfo(text: str, name: str) -> list[Node]:
    """Kinds of nodes by their devices; nodes of several partitions or states count once."""
    rows = list(_rows(text))
    if not any("GRES" in row for row in rows):
        return [_uncounted(rows, name)]
    named: dict[tuple[str | None, int], set[str]] = defaultdict(set)
    counted: dict[tuple[str | None, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    memory: dict[tuple[str | None, int], str] = {}
    for row in rows:
        if (kind := gres(row.get("GRES", ""))) is None:
            continue
        named[kind].update(_names(row.get("NODELIST", "")))
        number = row.get("NODES", "").rpartition("/")[2]
        counted[kind][row.get("PARTITION", "")] += int(number) if number.isdecimal() else 0
        memory.setdefault(kind, row.get("MEMORY", "").rstrip("+"))
    nodes = []
    for kind, parts in counted.items():
        count = len(named[kind]) or max(parts.values())
        node = _node(kind, count, f"{name}: sinfo, {plural(count, 'node')} with that in GRES", f"{name}: sinfo, GRES")
        _say_memory(node, memory[kind], f"{name}: sinfo, MEMORY")
        nodes.append(node)
    return _with_parts(nodes, text, f"{name}: sinfo")


def _with_parts(nodes: list[Node], text: str, source: str) -> list[Node]:
    """The same, with a word on parts of devices, which are no kind of node here; at least that."""
    found = nodes or [Node(remarks=[f"{source}: no node has whole GPUs in GRES"])]
    if mixed := sorted({one for one in re.findall(r"\bgpu:\S+", text) if len(dict(_whole(one))) > 1}):
        found[0].remarks.append(f"{source}: {mixed[0]} is several kinds in a node; the most of one kind is taken")
    if _PART.search(text):
        found[0].remarks.append(f"{source}: some devices are cut by MIG; whole devices are priced, parts left out")
    return found


def _uncounted(rows: Iterable[Mapping[str, str]], name: str) -> Node:
    """Nodes whose devices the file does not tell."""
    node, every = Node(), {host for row in rows for host in _names(row.get("NODELIST", ""))}
    node.say("nodes", len(every) or None, f"{name}: sinfo, {len(every)} nodes in NODELIST, with or without GPUs")
    counted = f", so {len(every)} nodes are counted, those without GPUs too" if every else ""
    node.remarks.append(f'{name}: no GRES{counted}; sinfo -o "%P %G %D %m %N" tells the GPUs of every kind of node')
    return node


def _rows(text: str) -> Iterator[dict[str, str]]:
    """The lines of a table by the words of its head."""
    lines = [line for line in text.splitlines() if line.strip()]
    start = next(
        (n for n, line in enumerate(lines) if "NODELIST" in line or "PARTITION" in line or "GRES" in line), None
    )
    if start is None:
        return
    split = (lambda line: [cell.strip() for cell in line.split("|")]) if "|" in lines[start] else str.split
    head = [_NAMES.get(word, word) for word in split(lines[start])]
    for line in lines[start + 1 :]:
        cells = split(line)
        if len(cells) >= len(head):
            yield dict(zip(head, cells, strict=False))


def _node(kind: tuple[str | None, int], count: int, counted: str, source: str) -> Node:
    node = Node()
    gpu, number = kind
    node.say("gpu", gpu, source)
    node.say("gpus_per_node", number, source)
    node.say("nodes", count or None, counted)
    return node


def _say_memory(node: Node, megabytes: str, source: str) -> None:
    node.say("host_memory", float(megabytes) * MIB if megabytes.isdecimal() and int(megabytes) > 1 else None, source)


def _scontrol(text: str, name: str) -> list[Node]:
    """Kinds of nodes of ``scontrol show node``, one record a node."""
    records = [dict(_FIELD.findall("NodeName=" + part)) for part in re.split(r"(?:^|\s)NodeName=", text)[1:]]
    kinds: dict[tuple[str | None, int], list[dict[str, str]]] = defaultdict(list)
    for record in records:
        if kind := gres(record.get("Gres", "")) or gres(_of_tres(record.get("CfgTRES", ""))):
            kinds[kind].append(record)
    source, found = f"{name}: scontrol show node", []
    for kind, members in kinds.items():
        node = _node(kind, len(members), f"{source}, {plural(len(members), 'node')} with that", f"{source}, Gres")
        _say_memory(node, members[0].get("RealMemory", ""), f"{source}, RealMemory")
        sockets = members[0].get("Sockets", "")
        node.say("sockets", int(sockets) if sockets.isdecimal() else None, f"{source}, Sockets")
        if gone := sum(any(word in one.get("State", "").lower() for word in _GONE) for one in members):
            node.remarks.append(f"{source}: {gone} of {len(members)} nodes are down, drained or in maintenance")
        node.say("machine", members[0].get("InstanceType"), f"{source}, InstanceType")
        found.append(node)
    return _with_parts(found, text, source)


def _of_tres(text: str) -> str:
    """The devices of a node's resources, "gres/gpu:a100=8", as GRES writes them."""
    found = re.search(r"gres/(gpu:[^=,]+)=(\d+)", text) or re.search(r"gres/(gpu)=(\d+)", text)
    return f"{found[1]}:{found[2]}" if found else ""


READERS: Final = (
    Reader("scontrol show node", lambda text: "NodeName=" in text and "RealMemory=" in text, _scontrol, counts=True),
    Reader(
        "sinfo",
        lambda text: bool(re.search(r"\b(NODELIST|GRES)\b", text)) and "NodeName=" not in text,
        _sinfo,
        counts=True,
    ),
)
