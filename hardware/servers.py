"""Machines of parameter servers: groups of nodes with CPUs, solid-state drives and, in some, accelerators.

A node's cores, memories and network cards are what sparse models spend their time on, so a record here says more
about a node than `hardware.records.NodeGroup` does, and nothing about the tiers of a network: rows travel between
any two nodes. A file lists ``[[groups]]``; ``examples/my-servers.toml`` is one. ::

    name = "my-servers"

    [[groups]]
    name = "cpu"
    nodes = 40                       # how many can be rented
    cores = 32
    core_peak = "70 GFLOP/s"         # of one core, single precision
    memory = "256 GB"
    memory_bandwidth = "150 GB/s"
    network = "25 Gb/s"              # of one node, one direction
    price = "1.5 $/h"                # of one node

A group may have ``ssd``, ``ssd_bandwidth`` and ``ssd_reads`` (blocks per second, both of one node), and
``accelerator`` (a name of `plan list accelerators`), ``gpus_per_node``, ``host_link`` and ``device_link`` (one device,
one direction).
"""

from functools import cache
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from hardware import files
from hardware.catalogue import accelerator
from hardware.files import Document
from hardware.kernels import Label, Record
from hardware.links import LinkBandwidth
from hardware.records import Accelerator, Memory, MemoryBandwidth, Peak
from hardware.units import ByteQuantity, CountQuantity, Matching, PriceQuantity, within

StockOfNodes = Annotated[int, Field(strict=True, gt=0, le=2000)]
Cores = Annotated[int, Field(strict=True, gt=0, le=4096)]
Reads = Annotated[CountQuantity, within("1k", "1B", "count")]


class ServerGroup(Record):
    """Equal nodes: CPUs, memory, drives, a network card, and accelerators or none."""

    name: Annotated[str, Matching("[A-Za-z0-9][A-Za-z0-9_-]*", "a name of letters, digits, - and _")]
    nodes: StockOfNodes
    """How many can be rented."""
    cores: Cores
    """Threads of one node that work at once."""
    core_peak: Peak
    """Single-precision peak of one core, FLOP/s."""
    memory: Memory
    """Of one node's CPUs, bytes."""
    memory_bandwidth: MemoryBandwidth
    """Of one node's CPU memory, nominal, bytes/s."""
    ssd: Annotated[ByteQuantity, within("0 B", "1 PB", "bytes")] = 0.0
    """Solid-state drives of one node, bytes; 0: none."""
    ssd_bandwidth: MemoryBandwidth | None = None
    """Of all drives of a node, bytes/s."""
    ssd_reads: Reads | None = None
    """Blocks that all drives of a node read in a second, at random."""
    network: LinkBandwidth
    """Of one node, one direction, bytes/s."""
    price: Annotated[PriceQuantity, within("0.001 $/h", "10000 $/h", "price")]
    """Rent of one whole node."""
    accelerator: Accelerator | None = None
    gpus_per_node: Annotated[int, Field(strict=True, ge=0, le=1024)] = 0
    host_link: LinkBandwidth | None = None
    """Between one device and its host, one direction, bytes/s."""
    device_link: LinkBandwidth | None = None
    """Of one device to the others of its node, one direction, bytes/s."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.accelerator is None) != (self.gpus_per_node == 0):
            raise ValueError("accelerator and gpus_per_node go together; give both or neither")
        if self.accelerator is not None and (self.host_link is None or self.device_link is None):
            raise ValueError("a group with accelerators needs host_link, such as '16 GB/s', and device_link")
        if self.ssd and (self.ssd_bandwidth is None or self.ssd_reads is None):
            raise ValueError("a group with ssd needs ssd_bandwidth, such as '6 GB/s', and ssd_reads, such as '1M'")
        return self


class SparseCluster(Record):
    """Groups of nodes that can be rented for a sparse model."""

    name: Label
    title: Label = ""
    groups: tuple[ServerGroup, ...] = Field(min_length=1, max_length=6)
    sources: dict[str, str] = Field(default_factory=dict)
    """Field path (or its prefix) to a source key."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [group.name for group in self.groups]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"groups: two are called {twice[0]}; give each a name of its own")
        return self


def sparse_cluster(name_or_path: str | Path) -> SparseCluster:
    """Parameter-server machines of the catalogue (`plan list servers`), or from a TOML or JSON file.

    Raises:
        UnknownName: no such name.
        BadFile: the file is missing or wrong.
    """
    if (path := files.as_path(name_or_path)) is not None:
        return files.load(path, _record)
    return _catalogued(files.canonical("server", str(name_or_path)))


@cache
def _catalogued(name: str) -> SparseCluster:
    return files.load(files.file_of("server", name), _record)


def _record(document: Document) -> SparseCluster:
    """The record of a file, in which accelerators may be names."""
    groups = document.get("groups")
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise ValueError(f"groups: expected a list of tables ([[groups]]), got {groups!r:.60}")
    return SparseCluster.model_validate(document | {"groups": [_with_device(group) for group in groups]})


def _with_device(group: Document) -> Document:
    device = group.get("accelerator")
    return group | {"accelerator": accelerator(device)} if isinstance(device, str) else group
