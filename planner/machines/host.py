"""``lscpu`` and ``ibstat``: the processors of a node and the ports of its network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from planner.machines.findings import Node, Port, Reader

_ACTIVE: Final = "Active"
_GIGABIT: Final = 1e9
MEMORY_OF_A_SOCKET: Final = (
    ("*EPYC 9??5*", 576.0, "12 x DDR5-6000"),
    ("*EPYC 9??4*", 460.8, "12 x DDR5-4800"),
    ("*EPYC 7??3*", 204.8, "8 x DDR4-3200"),
    ("*EPYC 7??2*", 204.8, "8 x DDR4-3200"),
    ("*Xeon*69??P*", 614.4, "12 x DDR5-6400"),
    ("*Xeon*Platinum 85??*", 358.4, "8 x DDR5-5600"),
    ("*Xeon*Platinum 84??*", 307.2, "8 x DDR5-4800"),
    ("*Xeon*Gold 64??*", 307.2, "8 x DDR5-4800"),
    ("*Xeon*Platinum 83??*", 204.8, "8 x DDR4-3200"),
    ("*Xeon*Platinum 82??*", 140.8, "6 x DDR4-2933"),
    ("*Neoverse-V2*", 512.0, "LPDDR5X of a Grace"),
)
"""Names of processors, GB/s of one socket with every channel filled, and why: data sheets of AMD, Intel and NVIDIA."""


def _processors(text: str, name: str) -> list[Node]:
    said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    node, source = Node(), f"{name}: lscpu"
    sockets = said.get("Socket(s)", "")
    count = int(sockets) if sockets.isdecimal() else None
    node.say("sockets", count, f"{source}, Socket(s)")
    node.say("processor", said.get("Model name") or said.get("BIOS Model name"), f"{source}, Model name")
    return [node]


def memory_bandwidth(processor: str, sockets: int) -> tuple[float, str] | None:
    """Bytes a second of a node's memory and why, by the name of its processors; None of one that is not known."""
    for pattern, gigabytes, why in MEMORY_OF_A_SOCKET:
        if fnmatchcase(processor, pattern):
            return sockets * gigabytes * 1e9, f"{sockets} x {why}"
    return None


def _network(text: str, name: str) -> list[Node]:
    node = Node()
    ports = tuple(_ports(text))
    said = ", ".join(f"{port.card} {port.rate / _GIGABIT:g}" for port in ports)
    node.say(
        "ports", ports, f"{name}: ibstat, active ports in Gb/s: {said}" if ports else f"{name}: ibstat, no active port"
    )
    return [node]


def _ports(text: str) -> Iterator[Port]:
    """Active ports; ``ibstat`` says a card, then each of its ports with rate and link layer."""
    for block in re.split(r"^CA '", text, flags=re.MULTILINE)[1:]:
        card = block.partition("'")[0]
        for port in re.split(r"^\s+Port \d+:", block, flags=re.MULTILINE)[1:]:
            said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in port.splitlines())}
            rate = said.get("Rate", "")
            if said.get("State") == _ACTIVE and rate.replace(".", "", 1).isdecimal() and float(rate):
                layer = "Omni-Path" if card.startswith("hfi") else said.get("Link layer", "InfiniBand")
                yield Port(card, float(rate) * _GIGABIT, layer)


READERS: Final = (
    Reader("lscpu", lambda text: "Socket(s):" in text and "Model name:" in text, _processors),
    Reader("ibstat", lambda text: bool(re.search(r"^CA '", text, re.MULTILINE)) and "Physical state" in text, _network),
)
