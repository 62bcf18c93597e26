"""Machines as records: accelerators, the links between them, and clusters of one or several node groups.

A record holds facts and says nothing about models or about how work is split. Every quantity is a float
in SI units; in files it is a string with its unit.
"""

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from hardware.errors import MeshwrightError
from hardware.filling import filled, neighbours
from hardware.kernels import Kernels, Label, Record
from hardware.links import Link, LinkBandwidth, Tier, shared_out, within_node
from hardware.power import LEAST, clock
from hardware.units import (
    BandwidthQuantity,
    ByteQuantity,
    FailureQuantity,
    PowerQuantity,
    PriceQuantity,
    RateQuantity,
    within,
)

Memory = Annotated[ByteQuantity, within("1 GB", "100 TB", "bytes")]
MemoryBandwidth = Annotated[BandwidthQuantity, within("1 GB/s", "1 PB/s", "bandwidth")]
Peak = Annotated[RateQuantity, within("1 GFLOP/s", "1 EFLOP/s", "rate")]
Power = Annotated[PowerQuantity, within("0 W", "1 MW", "power")]
Price = Annotated[PriceQuantity, within("0 $/h", "10000 $/h", "price")]
Failure = Annotated[FailureQuantity, within("0 /s", "1 per 1 h", "frequency")]
Units = Annotated[int, Field(strict=True, gt=0, le=2**20)]
"""How many there are of something inside a device or node; neither true nor a fraction counts."""
Nodes = Annotated[int, Field(strict=True, gt=0, le=2**24)]

DTYPE_PEAK: Final = {name: name for name in ("bf16", "fp16", "fp32", "tf32", "int8", "fp8", "fp4")} | {
    **dict.fromkeys(("fp8_block", "mxfp8"), "fp8"),
    "nvfp4": "fp4",
}
"""Number formats to the peak that bounds them: scaled variants run on the same arithmetic units."""

MICROSCALED: Final = ("mxfp8",)
"""Formats whose blocks of 32 the arithmetic units scale themselves: those that multiply fp4 do [TransformerEngine]."""


class UnsupportedDtype(MeshwrightError):
    """An accelerator that cannot multiply in the wanted number format."""


class BadNodeCount(MeshwrightError):
    """A number of accelerators that whole nodes cannot make up."""


class Accelerator(Record):
    """One device as programs see it."""

    name: Label
    """Catalogue id ("h100-sxm")."""
    title: Label
    """Name for people."""
    vendor: str
    year: int
    architecture: str
    peak: dict[str, Peak]
    """Dense peak rate by number format (fp32, tf32, fp16, bf16, int8, fp8, fp4); absent means unsupported."""
    memory: Memory
    """Nominal device memory."""
    usable_memory: Memory
    """Device memory that programs see."""
    memory_bandwidth: MemoryBandwidth
    """Nominal bandwidth of the device memory."""
    compute_units: Units
    """Streaming multiprocessors, compute units or matrix cores: how many tiles run at once."""
    power: Power
    """Rated power of the device, or of a module that it shares with a host."""
    power_limit: Power | None = None
    """Most that it is allowed of it; None: all."""
    host_power: Power = 0.0
    """What the host of a module takes first."""
    kernel_power: Power | None = None
    """Power within which the tables of its kernels were measured; None: the rated one."""
    price: Price | None = None
    """Rent of one device on demand."""
    failure: Failure | None = None
    """Interruptions of a job per device and second, from whatever cause."""
    scale_up: str = ""
    """Catalogue name of the link that joins the devices of a node unless the cluster says otherwise."""
    training_rate: Annotated[float, "", Field(ge=0.01, le=1.5)] = 1.0
    """Rate of products in real training runs over the rate that kernel tables promise: clocks, power caps, the
    difference between a benchmark and a step. Fused attention keeps its tables' rate. Calibrated on published runs;
    1 where none were seen."""
    host: Annotated[float, "", Field(ge=0.1, le=10.0)] = 1.0
    """Time that the host takes for its calls over that of a DGX H100's host (Xeon Platinum 8480C); 1 where unknown."""
    kernels: Kernels
    sources: dict[str, str]
    """Field path (or its prefix) to a source key."""

    def peak_rate(self, dtype: str) -> float:
        """Dense peak of a number format, FLOP/s.

        Args:
            dtype: one of ``DTYPE_PEAK``.

        Raises:
            UnsupportedDtype: the accelerator has no such units.
        """
        if not self.multiplies(dtype):
            supported = ", ".join(sorted(self.peak))
            raise UnsupportedDtype(f"{self.name} does not compute in {dtype}; it supports {supported}")
        return self.peak[DTYPE_PEAK.get(dtype, dtype)]

    def multiplies(self, dtype: str) -> bool:
        """Whether there are units for a number format."""
        return DTYPE_PEAK.get(dtype, dtype) in self.peak and (dtype not in MICROSCALED or "fp4" in self.peak)

    @property
    def half_rate(self) -> float:
        """Dense peak of 16-bit multiplication, FLOP/s: bf16, or fp16 on devices older than bf16."""
        return max(self.peak_rate(dtype) for dtype in ("bf16", "fp16") if dtype in self.peak)

    @property
    def drawn(self) -> float:
        """Power under load: what is allowed, W."""
        return self.power if self.power_limit is None else self.power_limit

    def clock(self, dtype: str) -> float:
        """Rate of products and attention by its power over that of kernels' tables; vector units are not held."""
        full, left = self.kernel_power or self.power, self.drawn - self.host_power
        return 1.0 if dtype == "fp32" or left >= full else clock(left / full, self.architecture)

    def wrong_limit(self, limit: float) -> str | None:
        """What is wrong with holding it to ``limit`` W; None if nothing."""
        least = self.host_power + LEAST * (self.kernel_power or self.power)
        if limit > self.power:
            rated = f"{self.name} is rated for {self.power:g} W"
            return f"{rated}, less than the power_limit of {limit:g} W; leave it out"
        if limit < least:
            unknown = f"{self.name} has {self.power:g} W, and its speed at a power_limit of {limit:g} W is not known"
            return f"{unknown}; {least:g} W works"
        return None

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if not {"bf16", "fp16"} & self.peak.keys():
            raise ValueError(f"peak needs bf16 or fp16, got {sorted(self.peak)}")
        if unknown := self.peak.keys() - set(DTYPE_PEAK.values()):
            raise ValueError(f"peak knows {sorted(set(DTYPE_PEAK.values()))}, got {sorted(unknown)}")
        if wrong := self.wrong_limit(self.drawn):
            raise ValueError(wrong)
        return self


class NodeGroup(Record):
    """Equal nodes with one kind of accelerator."""

    name: Label
    accelerator: Accelerator
    gpus_per_node: Units
    nodes: Nodes | None = None
    """How many there are, and no job gets more; absent: as many as asked for."""
    tiers: tuple[Tier, ...] = Field(min_length=1)
    """Inner to outer; the last one spans the cluster."""
    host_memory: Annotated[ByteQuantity, within("1 GB", "1 PB", "bytes")] | None = None
    """Memory of one node's CPUs."""
    host_link: LinkBandwidth | None = None
    """Bandwidth between one device and its host, one direction."""
    host_bandwidth: MemoryBandwidth | None = None
    """Nominal bandwidth of one node's CPU memory, all sockets together."""
    node_power_overhead: Power | None = None
    """CPUs, network cards and fans of one node; None where nobody says it, and energy is that of the devices."""
    price: Price | None = None
    """Rent of one device, where it differs from the accelerator's."""

    @model_validator(mode="after")
    def _tiers_widen(self) -> Self:
        domains = [tier.domain for tier in self.tiers]
        inner = domains[:-1]
        if domains[-1] != 0 or any(domain == 0 for domain in inner) or sorted(set(inner)) != inner:
            raise ValueError(
                "tiers must go from the inner to the outer network, with growing domains and 0 at the "
                f"end, got {domains}"
            )
        return self

    @property
    def gpus(self) -> int | None:
        """Devices of the group; None while the number of nodes is open."""
        return None if self.nodes is None else self.nodes * self.gpus_per_node

    @property
    def rent(self) -> float | None:
        """Dollars per second and device, or None where no price is known."""
        return self.accelerator.price if self.price is None else self.price


class Between(Record):
    """The link between two node groups, where it is neither group's own network."""

    groups: tuple[str, str]
    link: Link


class Cluster(Record):
    """Machines that work on one job: one node group, or several of different kinds."""

    name: Label
    title: Label
    groups: tuple[NodeGroup, ...] = Field(min_length=1)
    between: tuple[Between, ...] = ()
    """Links between pairs of groups; other pairs meet over both their outermost tiers."""
    sources: dict[str, str]
    """Field path (or its prefix) to a source key."""

    @model_validator(mode="after")
    def _links_join_groups(self) -> Self:
        names = [group.name for group in self.groups]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"groups: two are called {twice[0]}; give each a name of its own: name = '{twice[0]}-2'")
        for link in self.between:
            if len(set(link.groups)) < 2 or not set(link.groups) <= set(names):
                raise ValueError(f"between: expected two of the groups {', '.join(names)}, got {list(link.groups)}")
        return self

    def crossing(self, one: str, other: str) -> tuple[Tier, Tier]:
        """What traffic between two groups goes through, as either of them sees it: its own way out, unless stated."""
        for link in self.between:
            if {one, other} == set(link.groups):
                tier = Tier(name="between", domain=0, link=link.link)
                return tier, tier
        outer = {group.name: group.tiers[-1] for group in self.groups}
        return outer[one], outer[other]

    @property
    def gpus(self) -> int | None:
        """Devices of the cluster; None while the number of nodes is open."""
        counts = [group.gpus for group in self.groups]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    @property
    def accelerator(self) -> Accelerator:
        """The accelerator of a cluster with one node group.

        Raises:
            BadNodeCount: the cluster mixes several.
        """
        if len(self.groups) > 1:
            names = ", ".join(group.name for group in self.groups)
            raise BadNodeCount(f"{self.name} has no single accelerator: its node groups are {names}")
        return self.groups[0].accelerator

    @property
    def usd_per_gpu_hour(self) -> float | None:
        """Dollars per device and hour, averaged over the groups; None where a price is unknown."""
        rents = [group.rent for group in self.groups]
        weights = [group.gpus or 1 for group in self.groups]
        known = [rent * weight for rent, weight in zip(rents, weights, strict=True) if rent is not None]
        return 3600.0 * sum(known) / sum(weights) if len(known) == len(rents) else None

    def with_gpus(self, n: int) -> Self:
        """The same kind of cluster with n devices.

        Args:
            n: a multiple of the devices of a node, or fewer than one node holds; at most what there is.

        Returns:
            a cluster whose only group has as many nodes as n devices need. Of several groups those with the
            fastest devices give as many whole nodes as leave the others whole nodes to give.

        Raises:
            BadNodeCount: n is neither or too large, or the cluster mixes groups without a number of nodes.
        """
        if len(self.groups) > 1:
            return self.model_copy(update=_fastest_first(self, n))
        return self.model_copy(update={"groups": (_resized(self.groups[0], n, self.name),)})


def _fastest_first(cluster: Cluster, n: int) -> dict[str, object]:
    """Groups and links of a mixed cluster of which a job takes n devices; the groups keep their order."""
    if unsaid := [group.name for group in cluster.groups if group.nodes is None]:
        raise BadNodeCount(
            f"{cluster.name} has several node groups; group {unsaid[0]} needs its number of nodes, such as nodes = 8"
        )
    has = " + ".join(f"{group.gpus} {group.name}" for group in cluster.groups)
    if not 0 < n <= (cluster.gpus or 0):
        most = cluster.gpus
        raise BadNodeCount(f"{cluster.name} has {has} = {most} GPUs; {n} were asked for; at most {most} works")
    fastest = sorted(cluster.groups, key=lambda group: -group.accelerator.half_rate * group.accelerator.clock("bf16"))
    counts = filled(sizes := [(group.gpus_per_node, group.nodes or 0) for group in fastest], n)
    if counts is None:
        nodes = " and ".join(f"{group.gpus_per_node} {group.name}" for group in cluster.groups)
        near = " and ".join(map(str, neighbours(sizes, n)))
        said = f"{n} GPU{'s' if n > 1 else ''} cannot fill whole nodes of {nodes}; {near} can"
        raise BadNodeCount(f"{cluster.name}: {said}")
    taken = {g.name: g.model_copy(update={"nodes": count}) for g, count in zip(fastest, counts, strict=True)}
    kept = [taken[group.name] for group in cluster.groups if taken[group.name].nodes]
    names = {group.name for group in kept}
    return {"groups": tuple(kept), "between": tuple(b for b in cluster.between if set(b.groups) <= names)}


def _resized(group: NodeGroup, n: int, cluster: str) -> NodeGroup:
    size = group.gpus_per_node
    if n < 1:
        raise BadNodeCount(f"{cluster}: {n} GPUs is not possible; the smallest number is 1")
    if group.nodes is not None and n > group.nodes * size:
        has = f"{group.nodes} node{'s' if group.nodes > 1 else ''} x {size} = {group.nodes * size} GPUs"
        raise BadNodeCount(f"{cluster} has {has}; {n} were asked for; at most {group.nodes * size} works")
    if n < size:
        return group.model_copy(update={"nodes": 1, "gpus_per_node": n, "tiers": within_node(group.tiers, n)})
    if n % size:
        below = n - n % size
        raise BadNodeCount(f"{cluster}: {n} GPUs do not fill nodes of {size}; {below} and {below + size} do")
    return group.model_copy(update={"nodes": n // size, "tiers": shared_out(group.tiers, n, size)})
