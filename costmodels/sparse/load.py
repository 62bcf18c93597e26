"""What one example of a sparse model asks of every group of nodes, and how many examples a second that allows.

Everything is counted in node-seconds per example: bytes, products and row accesses over what one node of the group
has of that resource. Loads of tables, layers and transfers add up, so that a price is a sum, the same one for the
search, for brute force and for one given plan.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from costmodels.arrays import Floats

Mode = Literal["sync", "async", "geo"]
MODES: Final[tuple[Mode, ...]] = ("sync", "async", "geo")
"""By what a gradient may be late: nothing, the steps of the other workers, those of a whole period of them."""
RESOURCES: Final = ("cores", "memory", "ssd", "nic_in", "nic_out", "devices", "device_link", "host_link")
"""What a node has of which there may be too little; a group without it is never asked for it."""
CORES, MEMORY, SSD, NIC_IN, NIC_OUT, DEVICES, DEVICE_LINK, HOST_LINK = range(len(RESOURCES))
NICS: Final = [NIC_IN, NIC_OUT]
TIERS: Final = ("hbm", "dram", "ssd")
"""Where rows are stored, the most popular ones first."""
ALL, STEP = 0, 1
"""Of a load: everything, and the part inside a step that a barrier ends."""


@dataclass(frozen=True, slots=True)
class Load:
    """What an example costs, over G groups; loads add up.

    Attributes:
        work: node-seconds per example, shape (2, G, R): all of it, and what is inside a step.
        inside: of the network's, in and out alike, what stays on the node with probability 1 / nodes, (2, G).
        messages: node-seconds of cores per example and node of the second group that is asked, (G, G).
        stored: bytes by tier, over all nodes of a group, (G, 3).
        copies: bytes on every node, (G, 2).
    """

    work: Floats
    inside: Floats
    messages: Floats
    stored: Floats
    copies: Floats

    @classmethod
    def none(cls, groups: int) -> Self:
        """No load; its arrays may be filled."""
        shapes = (2, groups, len(RESOURCES)), (2, groups), (groups, groups), (groups, 3), (groups, 2)
        return cls(*(np.zeros(shape) for shape in shapes))

    def __add__(self, other: Load) -> Load:
        return Load(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, other: Load) -> Load:
        return Load(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))

    def spend(self, group: int, resource: int, seconds: float, *, ahead: bool = False) -> None:
        """Add node-seconds per example; what is done ahead of a step is not inside it."""
        self.work[: STEP if ahead else STEP + 1, group, resource] += seconds

    def exchange(self, group: int, seconds: float, *, ahead: bool = False) -> None:
        """Add traffic among the nodes of one group: as much comes in as goes out, and 1 / nodes of it stays."""
        for nic in NICS:
            self.spend(group, nic, seconds, ahead=ahead)
        self.inside[: STEP if ahead else STEP + 1, group] += seconds


def node_seconds(load: Load, nodes: NDArray[np.int64]) -> Floats:
    """Node-seconds per example at given numbers of nodes, shape (2, G, R).

    Of rows that nodes of one group hold for each other the share 1 - 1 / k travels; requests grow with the nodes
    that are asked. With k nodes a group's examples take w / k + c seconds each, with c from the messages, which is
    the law 1 - a + a / k of Amdahl that HeterPS fits to its stages [Liu21].
    """
    seconds = load.work.copy()
    k = np.maximum(nodes, 1)
    for nic in NICS:
        seconds[:, :, nic] -= load.inside / k
    seconds[:, :, CORES] += load.messages @ nodes
    return seconds


def straggler(nodes: NDArray[np.int64], *, variation: float) -> Floats:
    """The slowest of n nodes over the mean: 1 + v sqrt(2 ln n), the growth of the largest of n normal variables."""
    return 1.0 + variation * np.sqrt(2.0 * np.log(np.maximum(nodes, 1)))


def group_rates(load: Load, nodes: NDArray[np.int64], *, mode: Mode, variation: float) -> Floats:
    """Examples per second that each group keeps up with, shape (G,); infinite where nothing is asked of it.

    Work on different resources overlaps over examples, so the scarcest one sets the pace:
    ``rate = k / max over r of w(r)``. In sync mode a barrier ends every step; inside a step nothing overlaps, and
    the slowest node sets the pace: ``rate <= k / (straggler(k) sum over r of w(r))``. Groups work as a pipeline, so
    that the slowest one sets the pace of all [Liu21].
    """
    seconds = node_seconds(load, nodes)
    busiest = seconds[ALL].max(axis=1)
    if mode == "sync":
        busiest = np.maximum(busiest, straggler(nodes, variation=variation) * seconds[STEP].sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(busiest > 0.0, nodes / busiest, np.inf)
