"""What a file tells of machines: figures, each with the place that it stands in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple


class Figure(NamedTuple):
    """A value, and the words that say where it is from."""

    value: Any
    source: str


@dataclass
class Node:
    """One kind of node, as far as a file tells it.

    Attributes:
        figures: by name: ``gpu`` as the driver or the scheduler calls it, ``gpus_per_node``, ``nodes``, ``gpu_memory``
            (bytes), ``power_limit`` and ``rated_power`` (watts), ``host_memory`` (bytes), ``host_link`` (generation and
            width of PCIe), ``processor``, ``sockets``, ``between_gpus`` (nvlink or pcie), ``ports`` (of the network),
            ``machine`` (a cloud's name for it).
        remarks: what else a reader of the answer should know.
    """

    figures: dict[str, Figure] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def say(self, name: str, value: Any, source: str) -> None:
        """Keep a figure, unless there is none."""
        if value is not None:
            self.figures[name] = Figure(value, source)

    def value(self, name: str) -> Any:
        """A figure's value, None where it is not known."""
        found = self.figures.get(name)
        return None if found is None else found.value


class Port(NamedTuple):
    """An active port of the network."""

    card: str
    rate: float
    """Bits a second."""
    layer: str
    """InfiniBand, Ethernet or Omni-Path."""


@dataclass(frozen=True)
class Reader:
    """How one kind of file is recognised and read.

    Attributes:
        title: the command that wrote it.
        is_mine: whether a text is of this kind.
        read: the kinds of nodes that it tells, of its text and its name.
        counts: whether it tells of a whole cluster, kinds of nodes with their number, and not of one node.
    """

    title: str
    is_mine: Callable[[str], bool]
    read: Callable[[str, str], list[Node]]
    counts: bool = False


MIB: Final = 2**20
