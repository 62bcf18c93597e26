"""The cluster file: figures in TOML, the source of each in a comment above it, what is assumed and what to measure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any, Final

from pydantic import ValidationError

from hardware.assembly import cluster_record
from hardware.catalogue import accelerator
from hardware.errors import MeshwrightError, flatten
from hardware.files import entry
from hardware.units import format_quantity
from hardware.writing import toml
from planner.errors import BadRequest
from planner.machines.describe import usual_cluster
from planner.machines.findings import Node
from planner.machines.host import memory_bandwidth

WIDTH: Final = 100
_LOWERED: Final = 0.97
"""Share of a device's rated power below which a limit is one."""
_PCIE: Final = {3: "pcie3", 4: "pcie4-a100", 5: "pcie5"}
_LANES: Final = 16
_FOR_EXAMPLE: Final = {"nodes": 16, "price": "2.50 $/h", "host_memory": "2 TiB", "host_bandwidth": "614.4 GB/s"}
"""How a field is written that is not known."""
_OWN: Final = ("pcie", "socket")
"""Beginnings of links that are no faster than PCIe."""
_BETWEEN: Final = "Groups meet over both their networks, unless a link between two of them is stated:"
MEASURE: Final = (
    "what the GPUs really reach: plan probe -o probe.json (plan probe --print > measure.py where only PyTorch is)",
    "the links between GPUs: torchrun --nproc-per-node GPUS measure.py -o probe.json",
    "the links between nodes: all_reduce_perf of nccl-tests over 2 and more nodes, its output in a file",
    "then plan calibrate probe.json *.log --cluster THIS_FILE -o profile.toml, and plan --profile profile.toml",
)
Line = tuple[str, Any, str]
"""A field, its value, and why."""


def cluster_file(name: str, nodes: Sequence[Node], read: Sequence[str]) -> str:
    """The text of a cluster's file; every reader of such files takes it.

    Args:
        name: of the cluster.
        nodes: its kinds of nodes, each with accelerator, devices of a node and network.
        read: what it was made from, in words.

    Raises:
        BadRequest: what was said makes no cluster.
    """
    made = f"Written by plan init from {', '.join(read) or 'options and answers'}."
    notes = "The line above a figure says where it comes from.", "docs/machines.md explains the fields."
    head = [*(part for note in (made, *notes) for part in _comment(note)), ""]
    lines = [*head, _field("name", name), ""]
    if len(nodes) == 1:
        lines += _group(nodes[0], "")
    else:
        titles = _titles(nodes)
        for title, node in zip(titles, nodes, strict=True):
            lines += ["[[groups]]", _field("name", title), *_group(node, "groups."), ""]
        lines += [*_comment(_BETWEEN), *(f"# {line}" for line in _between(titles))]
    remarks = list(dict.fromkeys(remark for node in nodes for remark in node.remarks))
    for heading, said in (("Please check:", remarks), ("Not in any file, so measure it:", MEASURE)):
        if said:
            lines += ["", *_comment(heading), *(part for one in said for part in _comment(one, "- "))]
    text = "\n".join(lines) + "\n"
    try:
        cluster_record(tomllib.loads(text))
    except ValidationError as error:
        raise BadRequest(f"what was said makes no cluster: {flatten(error)}") from None
    except (MeshwrightError, ValueError) as error:
        raise BadRequest(f"what was said makes no cluster: {error}") from None
    return text


def _titles(nodes: Sequence[Node]) -> list[str]:
    """A name for each kind of node, the accelerator's, numbered where two have it."""
    titles: list[str] = []
    for node in nodes:
        title = str(node.value("accelerator"))
        count = sum(one.partition(" ")[0] == title for one in titles)
        titles.append(f"{title} {count + 1}" if count else title)
    return titles


def _between(titles: Sequence[str]) -> Iterator[str]:
    """How a link between two groups would be stated."""
    yield "[[between]]"
    yield _field("groups", list(titles[:2]))
    yield from (_field("bandwidth", "100 Gb/s"), _field("like", "ib-edr100"))


def _group(node: Node, table: str) -> Iterator[str]:
    """The fields of a kind of node, then the tables below it."""
    for field, value, why in _fields(node):
        yield from _comment(why)
        yield _field(field, value) if value is not None else f"# {_field(field, _FOR_EXAMPLE[field])}"
    for name, values, why in _links(node):
        yield ""
        yield f"[{table}{name}]"
        yield from _comment(why)
        yield from (_field(field, value) for field, value in values.items())


def _fields(node: Node) -> Iterator[Line]:
    for field in ("accelerator", "gpus_per_node", "nodes"):
        if found := node.figures.get(field):
            yield field, found.value, found.source
    if "nodes" not in node.figures:
        yield "nodes", None, "not stated: a plan may ask for as many as it likes"
    yield from _power(node)
    yield from _host(node)
    if found := node.figures.get("price"):
        yield "price", found.value, found.source
    else:
        yield "price", None, "not stated, and the catalogue has none; without it no costs are shown"


def _power(node: Node) -> Iterator[Line]:
    """A limit below what the device is rated for, and what the rest of a node draws."""
    limit, rated = node.figures.get("power_limit"), accelerator(str(node.value("accelerator"))).power
    if limit and limit.value < _LOWERED * rated:
        why = f"{limit.source}: held below the {rated:g} W that it is rated for"
        yield "power_limit", f"{limit.value:g} W", why
    near = usual_cluster(node)
    document = entry("cluster", near) if near else {}
    if "node_power_overhead" in document and document.get("gpus_per_node") == node.value("gpus_per_node"):
        said = f"assumed: as the catalogue's {near}, for CPUs, cards and fans; counts in energy alone"
        yield "node_power_overhead", document["node_power_overhead"], said


def _host(node: Node) -> Iterator[Line]:
    """The host's memory and its paths, which offloading needs."""
    if found := node.figures.get("host_memory"):
        yield "host_memory", format_quantity(float(found.value), "bytes", 4), found.source
    if found := node.figures.get("host_link"):
        generation, width = found.value
        yield "host_link", f"{16 * 2.0 ** (generation - 3) * width / _LANES:g} GB/s", found.source
    processor, sockets = node.figures.get("processor"), node.value("sockets")
    if processor and sockets and (known := memory_bandwidth(processor.value, sockets)):
        said = f'{processor.source}: "{processor.value}"; {known[1]}, every channel filled (assumed)'
        yield "host_bandwidth", f"{known[0] / 1e9:g} GB/s", said
    elif processor:
        said = f'{processor.source}: {sockets or "?"} x "{processor.value}"; its memory\'s bandwidth is not known'
        yield "host_bandwidth", None, said
    if not {"host_memory", "host_link"} & node.figures.keys():
        yield "host_memory", None, 'not stated; offloading to the host needs it, as "2 TiB"'


def _links(node: Node) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The tables of links: inside the node where they are not the accelerator's own, and between nodes."""
    between, own = node.figures.get("between_gpus"), accelerator(str(node.value("accelerator"))).scale_up or ""
    if between and between.value == "pcie" and own and not own.startswith(_OWN):
        generation = (node.value("host_link") or (4, _LANES))[0]
        like = _PCIE.get(generation, "pcie5" if generation > max(_PCIE) else "pcie3")
        yield "scale_up", {"like": like}, f"{between.source}: no {own} as others have it"
    if found := node.figures.get("network"):
        yield "network", {"bandwidth": found.value.bandwidth, "like": found.value.like}, found.source


def _field(name: str, value: Any) -> str:
    return toml({name: value}).strip()


def _comment(text: str, mark: str = "") -> list[str]:
    clean = "".join(one if one.isprintable() else "?" for one in " ".join(text.split()))
    return wrap(clean, WIDTH, initial_indent=f"# {mark}", subsequent_indent="# " + " " * len(mark))
