"""The network as records: how collectives run over one tier, the tiers inside out, and what a job uses of them."""

from typing import Annotated, Self

from pydantic import Field

from hardware.kernels import Label, Overhead, Record, Share
from hardware.units import BandwidthQuantity, ByteQuantity, within

LinkBandwidth = Annotated[BandwidthQuantity, within("1 Mb/s", "100 TB/s", "bandwidth")]


class Link(Record):
    """How collectives run over one tier of the network.

    With V the bytes that one device sends, n ranks, and one step for gather, scatter and all-to-all and
    two for all-reduce: time = base_latency + step_latency (n - 1) steps
    + V / (efficiency bandwidth (1 - group_penalty / n)) (1 + sqrt(saturation / V)).
    All-reduce divides the last term by all_reduce_gain from gain_ranks ranks on, all-to-all by its own gain. In a mesh
    the bandwidth of n ranks is (n - 1) / (mesh - 1) of it; in a torus log n / log N of it, at least that of one axis,
    with N the devices of the domain. What k ranks of a domain send takes no less than k V / (efficiency
    group_bandwidth), what a ring's only rank in a domain sends no less than V / lone_bandwidth.
    """

    bandwidth: LinkBandwidth
    """Nominal, one direction, per device: its share where several devices have one card or switch port."""
    efficiency: Share
    """Bus bandwidth of gather and scatter for endless messages and groups, over nominal."""
    saturation: Annotated[ByteQuantity, within("0 B", "1 TB", "bytes")]
    """Bytes at which the approach to the peak costs as much again as the transfer."""
    group_penalty: Annotated[float, "", Field(ge=-1000.0, lt=2.0)] = 0.0
    """Loss of small groups: two ranks reach 1 - group_penalty / 2 of the peak."""
    mesh: int = Field(default=0, strict=True, ge=0, le=2**10)
    """Devices joined in pairs without a switch, every pair by an equal share of a device's links; 0: by a switch."""
    axes: int = Field(default=0, strict=True, ge=0, le=8)
    """Axes of the torus that joins the devices of a domain, each with an equal share of a device's links, of which a
    group uses those that it lies along; 0: no torus [Austin25]."""
    base_latency: Overhead
    """Fixed time of a collective."""
    step_latency: Overhead
    """Time per rank and step."""
    all_reduce_gain: Annotated[float, "", Field(ge=1.0, le=100.0)] = 1.0
    """Bus bandwidth of all-reduce over the ring's, where switches add up on the way."""
    gain_ranks: int = Field(default=0, strict=True, ge=0, le=2**24)
    """From how many ranks on the gain holds; 0: never."""
    all_to_all_gain: Annotated[float, "", Field(ge=1.0, le=100.0)] = 1.0
    """Bus bandwidth of all-to-all over the ring's, where a ring crosses from one device to one other only."""
    group_bandwidth: LinkBandwidth | None = None
    """Nominal, most that one group takes out of a domain, however many ranks it has there: where a ring leaves by a
    single network card. None: every rank brings its share of the cards."""
    lone_bandwidth: LinkBandwidth | None = None
    """Most that a ring takes out of a domain in which it has one rank, as measured. None: no less than others."""
    point_to_point: Share
    """Share of nominal that a send and receive reach."""
    slowdown: Annotated[float, "", Field(ge=0.0, le=10.0)] | None = None
    """How much computation slows during a collective that stays in one domain; None: not known, as stacks say."""
    through_hosts: bool = False
    """Whether collectives pass the memory and the processors of hosts: their latency holds up whatever they serve."""
    source: str

    def times(self, factor: float) -> Self:
        """The link with so many times the bandwidth."""
        own = {name: getattr(self, name) for name in ("bandwidth", "group_bandwidth", "lone_bandwidth")}
        return self.model_copy(update={name: factor * rate for name, rate in own.items() if rate is not None})


class Tier(Record):
    """One level of the network, inside out: NVLink, leaf switch, pod, spine."""

    name: Label
    domain: int = Field(strict=True, ge=0, le=2**24)
    """Devices in one domain of this tier; 0: the whole cluster."""
    link: Link
    oversubscription: float = Field(default=1.0, ge=1.0, le=1000.0)
    """Bandwidth below the switches of this tier over the bandwidth above them."""
    lanes: int = Field(default=0, strict=True, ge=0, le=2**20)
    """Network cards of one node, for display: the link's bandwidth is theirs over the node's devices already, which is
    what each device has when all of its node send at once, as the groups of a training run do."""


def shared_out(tiers: tuple[Tier, ...], n: int, node: int) -> tuple[Tier, ...]:
    """The tiers as a job of n devices uses them: the innermost domain is filled alike everywhere.

    A scheduler spreads a job over as few domains as it takes, the same number of nodes in each; 256 devices on
    domains of 72 use 64 of each, so that groups of a power of two do not straddle them.
    """
    domain = tiers[0].domain
    if not domain or n % domain == 0:
        return tiers
    used = max((d for d in range(node, min(domain, n) + 1, node) if n % d == 0), default=domain)
    return (tiers[0].model_copy(update={"domain": used}), *tiers[1:])


def within_node(tiers: tuple[Tier, ...], n: int) -> tuple[Tier, ...]:
    """The tiers that part of one node can use: the first that holds n devices becomes the outermost."""
    kept = [tier for tier in tiers if 0 < tier.domain < n]
    outer = tiers[len(kept)]
    return (*kept, outer.model_copy(update={"domain": 0}))
