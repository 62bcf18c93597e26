"""``nvidia-smi -q``, ``-L`` and ``topo -m``: the devices of one node, and how they are joined."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from planner.machines.findings import MIB, Node, Reader

_DEVICE: Final = re.compile(r"GPU [0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+\.[0-9A-Fa-f]+$")
_LISTED: Final = re.compile(r"GPU \d+: (.+?)(?: \(UUID: .*\))?$")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_ATTACHED: Final = re.compile(r"^Attached GPUs +: (\d+)", re.MULTILINE)
_GENERATIONS: Final = tuple("1234567")
_WIDTHS: Final = ("1x", "2x", "4x", "8x", "16x")
_MIG: Final = "MIG is enabled; whole devices are priced, parts of them are not"
_NEAR: Final = ("PIX", "PXB")
"""How a card is joined to a device that shares no host bridge with others."""


def _queried(text: str, name: str) -> list[Node]:
    """A node of ``nvidia-smi -q``: its devices are alike, or the file is refused by what follows from their names."""
    node, devices = Node(), list(_devices(text))
    source = f"{name}: nvidia-smi -q"
    products = Counter(one[key] for one in devices if (key := "Product Name") in one)
    if products:
        product, count = products.most_common(1)[0]
        node.say("gpu", product, f"{source}, Product Name")
        node.say("gpus_per_node", count, f"{source}, {count} devices of that name")
        if len(products) > 1:
            others = ", ".join(f"{number} x {other}" for other, number in products.items() if other != product)
            node.remarks.append(f"{source}: {others} and {count} x {product}; a node has one kind here")
    else:
        node.say("gpus_per_node", len(devices) or None, f"{source}, attached devices")
        node.remarks.append(f"{source}: no Product Name; without -d it tells the device")
    attached = _ATTACHED.search(text)
    if attached and attached[1] != str(len(devices)):
        node.remarks.append(
            f"{source}: {attached[1]} GPUs are attached, {len(devices)} are listed; is the file cut short?"
        )
    first = next((one for one in devices if one.get("Product Name") == node.value("gpu")), {})
    _say_memory(node, first, source)
    _say_power(node, first, source)
    _say_host_link(node, first, source)
    if any(one.get("MIG Mode/Current") == "Enabled" for one in devices):
        node.remarks.append(f"{source}: {_MIG}")
    return [node]


def _devices(text: str) -> Iterator[Mapping[str, str]]:
    """Every device as ``section/key`` to value; indentation makes the sections."""
    found: dict[str, str] | None = None
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        stripped = line.strip()
        if _DEVICE.match(stripped):
            if found is not None:
                yield found
            found, path = {}, []
        elif found is not None and stripped:
            depth = len(line) - len(line.lstrip())
            while path and path[-1][0] >= depth:
                path.pop()
            key, colon, value = (part.strip() for part in stripped.partition(" : "))
            if colon:
                found.setdefault("/".join([*(section for _, section in path), key]), value)
            else:
                path.append((depth, stripped))
    if found is not None:
        yield found


def _number(text: str | None, unit: str) -> float | None:
    """The number of "81559 MiB"; None of "N/A"."""
    value, _, said = (text or "").partition(" ")
    return float(value) if said == unit and value.replace(".", "", 1).isdecimal() else None


def _say_memory(node: Node, device: Mapping[str, str], source: str) -> None:
    total = _number(device.get("FB Memory Usage/Total"), "MiB")
    node.say("gpu_memory", None if total is None else total * MIB, f"{source}, FB Memory Usage")


def _say_power(node: Node, device: Mapping[str, str], source: str) -> None:
    """The limit that is set and the one that a device comes with, in the sections of old and new drivers."""
    sections = ("GPU Power Readings", "Power Readings")
    for name, keys in (
        ("power_limit", ("Current Power Limit", "Power Limit")),
        ("rated_power", ("Default Power Limit",)),
    ):
        places = (device.get(f"{section}/{key}") for section in sections for key in keys)
        watts = next((found for place in places if (found := _number(place, "W")) is not None), None)
        node.say(name, watts, f"{source}, {keys[0]}")


def _say_host_link(node: Node, device: Mapping[str, str], source: str) -> None:
    sections = ("PCI/GPU Link Info/PCIe Generation", "PCI/GPU Link Info/Link Width")
    generation, width = (device.get(f"{section}/Max") for section in sections)
    if generation in _GENERATIONS and width in _WIDTHS:
        lanes = width.rstrip("x")
        node.say("host_link", (int(generation), int(lanes)), f"{source}, GPU Link Info: PCIe {generation} x{lanes}")


def _listed(text: str, name: str) -> list[Node]:
    """A node of ``nvidia-smi -L``."""
    node = Node()
    names = Counter(found[1] for line in text.splitlines() if (found := _LISTED.match(line.strip())))
    product, count = names.most_common(1)[0]
    node.say("gpu", product, f"{name}: nvidia-smi -L")
    node.say("gpus_per_node", count, f"{name}: nvidia-smi -L, {count} lines")
    if re.search(r"^\s+MIG ", text, re.MULTILINE):
        node.remarks.append(f"{name}: nvidia-smi -L: {_MIG}")
    return [node]


def _joined(text: str, name: str) -> list[Node]:
    """A node of ``nvidia-smi topo -m``: what joins its devices, and the cards near them."""
    rows = [line.split() for line in _COLOUR.sub("", text).splitlines() if line.strip()]
    header = next(row for row in rows if row[0].startswith("GPU0"))
    devices = [column for column in header if re.fullmatch(r"GPU\d+", column)]
    body = {row[0]: row[1:] for row in rows if row[0] in devices and row is not header}
    count, source = len(devices), f"{name}: nvidia-smi topo -m"
    links = Counter(cell for row in body.values() for cell in row[:count] if cell != "X")
    node = Node()
    node.say("gpus_per_node", count, f"{source}, {count} devices")
    if links:
        woven = sum(number for link, number in links.items() if re.fullmatch(r"NV\d+", link))
        usual = links.most_common(1)[0][0]
        node.say("between_gpus", "nvlink" if woven else "pcie", f"{source}: {usual} between devices")
        if 0 < woven < links.total():
            node.remarks.append(f"{source}: NVLink joins only some pairs of devices; the others meet over {usual}")
    _say_cards(node, header, body, count, source)
    return [node]


def _say_cards(node: Node, header: list[str], body: Mapping[str, list[str]], count: int, source: str) -> None:
    """How many network cards share a PCIe switch with a device, by name of the column."""
    cards = [
        (place, column) for place, column in enumerate(header) if re.fullmatch(r"NIC\d+|mlx\d_\w+|hfi\d_\w+", column)
    ]
    near = {column for place, column in cards for row in body.values() if place < len(row) and row[place] in _NEAR}
    if near and count:
        node.remarks.append(f"{source}: {len(near)} of {len(cards)} network cards share a PCIe switch with a device")


def _is_matrix(text: str) -> bool:
    """Whether a row or the head of the matrix of devices stands in a text."""
    return bool(re.search(r"^[ \t]*GPU0\b.*(\bX\b|\bGPU1\b|CPU Affinity)", _COLOUR.sub("", text), re.MULTILINE))


READERS: Final = (
    Reader("nvidia-smi -q", lambda text: "NVSMI LOG" in text or "Attached GPUs" in text, _queried),
    Reader(
        "nvidia-smi topo -m",
        _is_matrix,
        _joined,
    ),
    Reader("nvidia-smi -L", lambda text: bool(re.search(r"^GPU \d+: +\S", text, re.MULTILINE)), _listed),
)
