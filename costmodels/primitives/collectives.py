"""Seconds of collective operations over groups that span the tiers of a network.

A buffer of S bytes is gathered or scattered over n ranks by rings: every link of a ring passes all but one of
the n pieces on. A domain of tier i - 1 holds k_(i-1) of the ranks, each with its own lane of tier i, so that as
many rings share the way out. The lanes of all tiers work at once, and the slowest tier sets the bandwidth term
[NCCL-tuning]:

    V_i = S (n - 1) / (n k_(i-1))
    t   = latency + max_i  V_i / (e_i B_i (1 - q_i / k_i)) (1 + sqrt(V0_i / V_i))

In an all-to-all every rank sends its own S, of which (n - k_(i-1)) / n leaves the domain.

The square root is how measured bus bandwidth approaches its peak [aiconfigurator].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from costmodels.arrays import Floats, Number
from costmodels.primitives.rank_groups import Crossing, Groups, all_to_all_share
from hardware.links import Tier

CHUNK = 512 * 1024.0
"""Bytes that NCCL passes on at a time: an eighth of its buffer of 4 MiB [NCCL-tuning]."""
TREE_BANDWIDTH = 0.92
"""Share of the ring's bandwidth that NCCL grants its trees [NCCL-tuning]."""


def link_seconds(volume: Number, *, rate: Number, saturation: Number) -> Floats:
    """Seconds of a volume on a link whose bandwidth is reached with large messages only.

        t = (V + sqrt(V0 V)) / B

    Args:
        volume: V, bytes, shape (N,).
        rate: B, bytes per second of large messages.
        saturation: V0, bytes at which half of that is reached.

    Returns:
        Seconds, shape (N,).

    Source:
        Form and constants fitted to measured bus bandwidths [aiconfigurator].

    >>> float(link_seconds(4e6, rate=4e9, saturation=4e6))
    0.002
    """
    return (volume + np.sqrt(saturation * volume)) / rate


def tree_depth(domains: Number, *, chained: bool) -> Floats:
    """Hops from the leaves of a tree to its root.

        log2 n;  inside one domain  min(n - 1, 2 log2 n), a chain where that is shorter

    Args:
        domains: n, ranks, or domains of the tier below, that the tree joins, shape (N,).
        chained: whether it joins ranks of one domain.

    Returns:
        Hops, shape (N,).

    Source:
        [NCCL-tuning]; P. Sanders et al., "Two-tree algorithms for full bandwidth broadcast", 2009.

    >>> float(tree_depth(64, chained=False)), float(tree_depth(4, chained=True))
    (6.0, 3.0)
    """
    depth = np.log2(domains)
    return np.minimum(domains - 1.0, 2.0 * depth) if chained else depth


def distinct_places(places: Number, draws: int) -> Floats:
    """Different places that so many draws meet on average: domains that the copies of a token enter.

        n (1 - (1 - 1 / n)^k)

    Args:
        places: n, all as likely, shape (N,).
        draws: k.

    Returns:
        Places, at most the smaller of both, shape (N,).

    Source:
        Occupancy, W. Feller, "An Introduction to Probability Theory", volume 1, section IV.2.

    >>> float(distinct_places(8.0, 8).round(2))
    5.25
    """
    return np.asarray(places * (1.0 - (1.0 - 1.0 / places) ** draws))


def message_seconds(size: Number, *, latency: Number, rate: Number) -> Floats:
    """Seconds of one message from rank to rank.

        t = a + S / B

    Args:
        size: S, bytes, shape (N,).
        latency: a, seconds.
        rate: B, bytes per second between two ranks.

    Returns:
        Seconds, shape (N,).

    Source:
        R. Hockney, "The communication challenge for MPP", Parallel Computing 20(3), 1994.

    >>> message_seconds(16e6, latency=1e-3, rate=16e9)
    0.002
    """
    return latency + size / rate


def gather_seconds(size: Floats, group: Groups, tiers: Sequence[Tier]) -> Floats:
    """Seconds of one all-gather or reduce-scatter over rings, shape (N,).

        t = sum over tiers of s a + b + max over tiers of link_seconds(S ring_share)

    s hops of a tier take a seconds each whatever their size; b is the outermost tier's start of a collective.

    Args:
        size: S, bytes of the whole buffer, shape (N,), or of K buffers of each group, (K, N).
        group: the ranks of each of N groups.
        tiers: of the network, innermost first.

    Returns:
        Seconds, in the shape of ``size``; a group of one rank moves nothing.

    Source:
        [NCCL-tuning].
    """
    return _ring_latency(group, tiers) + _bandwidth_seconds(size, group, tiers, passes=1.0)


def all_reduce_seconds(size: Floats, group: Groups, tiers: Sequence[Tier]) -> Floats:
    """Seconds of one all-reduce, the better of ring and tree, shape (N,).

        ring  2 (s a + b) + T;  tree  2 depth a + b + T / 0.92

    Both move 2 ring_share of the buffer in T; a tree has the shorter way.

    Args:
        size: bytes of the buffer that every rank has, shape (N,).
        group: the ranks of each of N groups.
        tiers: of the network, innermost first.

    Returns:
        Seconds, shape (N,).

    Source:
        [NCCL-tuning].
    """
    moving = _bandwidth_seconds(size, group, tiers, passes=2.0)
    ring = 2.0 * _ring_latency(group, tiers) + moving
    tree = _tree_latency(group, tiers) + moving / TREE_BANDWIDTH
    return np.minimum(ring, tree)


def all_to_all_seconds(
    size: Floats,
    group: Groups,
    tiers: Sequence[Tier],
    *,
    copies: int = 1,
    groups: tuple[int, int] = (1, 1),
    nearest: float | None = None,
) -> Floats:
    """Seconds of one all-to-all where every rank sends ``size`` bytes in all, shape (N,).

    ``copies`` is how many ranks each piece goes to, counted in ``size``, where a piece enters a domain once and is
    copied inside, as DeepEP does; ``groups`` (how many, of how many) are the equal parts of the ranks that all
    copies of a piece go to [DeepSeek24]. ``nearest`` is the share of the innermost link's bandwidth that a kernel of
    its own reaches there, in place of what NCCL does.
    """
    moving = _bandwidth_seconds(size, group, tiers, passes=1.0, copies=copies, groups=groups, nearest=nearest)
    return _ring_latency(group, tiers) + moving


def broadcast_seconds(size: Floats, group: Groups, tiers: Sequence[Tier]) -> Floats:
    """Seconds in which every rank in turn broadcasts its part of ``size`` bytes to all others, shape (N,).

    Every part enters a domain once, and goes down a chain of all ranks in pieces of ``CHUNK``, of which the last
    rank sees the first one when every rank before it has passed it on.
    """
    moving = _bandwidth_seconds(size, group, tiers, passes=1.0, copies=1, shared=True)
    piece = np.minimum(CHUNK, size / np.maximum(group.size, 1))
    filling = np.zeros(len(group.size))
    for tier, way in _crossed(group, tiers):
        filling = filling + way.hops * piece / (tier.link.efficiency * tier.link.bandwidth)
    return moving + group.size * (_ring_latency(group, tiers) + filling)


def send_seconds(size: Floats, step: Floats, reach: Floats, tiers: Sequence[Tier]) -> Floats:
    """Seconds to send ``size`` bytes to a rank ``step`` ranks away, in a chain of ``reach`` ranks, shape (N,).

    The tier is the innermost that holds the whole chain: a pipeline is as slow as its slowest hop.
    """
    latency, rate = slowest_hop(step, reach, tiers)
    return np.where(reach > 1, message_seconds(size, latency=latency, rate=rate), 0.0)


def slowest_hop(step: Floats, reach: Floats, tiers: Sequence[Tier]) -> tuple[Floats, Floats]:
    """Latency in seconds, and bytes a second, of the slowest message in a chain as in ``send_seconds``, (N,) each."""
    latency, rate = np.zeros(len(reach)), np.full(len(reach), np.inf)
    placed = np.zeros(len(reach), dtype=bool)
    for tier in tiers:
        here = ~placed
        if tier.domain:  # where it is no multiple of the chain, some hop of some chain leaves the domain
            here = here & (np.mod(float(tier.domain), reach * step) == 0)
        latency[here] = tier.link.base_latency
        rate[here] = tier.link.bandwidth * tier.link.point_to_point / tier.oversubscription
        placed |= here
    return latency, rate


def _bandwidth_seconds(
    size: Floats,
    group: Groups,
    tiers: Sequence[Tier],
    *,
    passes: float,
    copies: int = 0,
    groups: tuple[int, int] = (1, 1),
    shared: bool = False,
    nearest: float | None = None,
) -> Floats:
    """``copies``: 0 for rings, else as in an all-to-all; ``shared``: the ranks of a domain share what enters it."""
    moved = passes * size
    slowest = np.zeros(np.shape(moved))
    for tier, way in _crossed(group, tiers):
        volume = moved * (_sent(group, way, copies, groups) if copies else way.ring_share)
        volume = volume / way.inside if shared else volume
        if nearest is not None and way.tier == 0:
            slowest = np.maximum(slowest, volume / (nearest * tier.link.bandwidth))
            continue
        seconds = _link_seconds(volume, tier, way) * tier.oversubscription
        if tier.link.lone_bandwidth is not None and not copies:
            alone = np.where(way.inside > 1, 0.0, volume / tier.link.lone_bandwidth)
            seconds = np.maximum(seconds, alone)
        if tier.link.group_bandwidth is not None:  # a group leaves the domain by one card only
            alone = seconds / tier.oversubscription * way.inside * tier.link.bandwidth / tier.link.group_bandwidth
            seconds = np.maximum(seconds, alone)
        seconds = seconds / tier.link.all_to_all_gain if copies and not shared else seconds
        if passes > 1 and tier.link.gain_ranks:
            seconds = np.where(way.within >= tier.link.gain_ranks, seconds / tier.link.all_reduce_gain, seconds)
        slowest = np.maximum(slowest, seconds)
    return slowest


def _crossed(group: Groups, tiers: Sequence[Tier]) -> Iterator[tuple[Tier, Crossing]]:
    for way in group.crossings(tuple(tier.domain for tier in tiers)):
        yield tiers[way.tier], way


def _sent(group: Groups, way: Crossing, copies: int, groups: tuple[int, int]) -> Floats:
    """Of what a rank sends in an all-to-all: how much crosses a tier."""
    n, inside = group.size, way.inside
    share = np.where(way.crossed, all_to_all_share(n, inside), 0.0)
    return share * _entered(n / inside, copies, groups) / copies if copies > 1 else share


def _entered(domains: Floats, copies: int, groups: tuple[int, int]) -> Floats:
    """Domains that a piece enters when its copies go to any of them alike, or to those of a few groups."""
    chosen, of = groups
    if chosen == of:
        return distinct_places(domains, copies)
    inside = distinct_places(np.maximum(domains * chosen / of, 1.0), copies)
    anywhere = np.minimum(distinct_places(domains, copies), distinct_places(domains, chosen))
    return np.where(domains >= of, inside, anywhere)


def _link_seconds(volume: Floats, tier: Tier, way: Crossing) -> Floats:
    link = tier.link
    rate: Floats | float = link.efficiency * link.bandwidth
    if link.group_penalty or link.mesh or link.axes:
        ranks = np.maximum(way.fan, 2.0)
        rate = rate * (1.0 - link.group_penalty / ranks)
        if link.mesh:  # links to devices outside the group lie idle
            rate = rate * np.minimum((ranks - 1.0) / max(link.mesh - 1.0, 1.0), 1.0)
        if link.axes and tier.domain:  # so do axes that the group does not lie along
            rate = rate * np.clip(np.log(ranks) / np.log(tier.domain), 1.0 / link.axes, 1.0)
    return link_seconds(volume, rate=rate, saturation=link.saturation)


def _ring_latency(group: Groups, tiers: Sequence[Tier]) -> Floats:
    """One pass around: every tier's share of the n - 1 steps at its own step latency, plus the outermost base."""
    return _latency(group, tiers, lambda way: way.hops)


def _tree_latency(group: Groups, tiers: Sequence[Tier]) -> Floats:
    """Up and down a tree [NCCL-tuning].

    A chain, or a tree where that is shorter, inside the innermost domain; log2 of the domains outside it.
    """
    return _latency(group, tiers, lambda way: 2.0 * tree_depth(way.fan, chained=way.tier == 0))


def _latency(group: Groups, tiers: Sequence[Tier], steps: Callable[[Crossing], Floats]) -> Floats:
    def add_up(groups: Groups) -> Floats:
        seconds, base = np.zeros(len(groups.size)), np.zeros(len(groups.size))
        for tier, way in _crossed(groups, tiers):
            seconds = seconds + tier.link.step_latency * steps(way)
            base = np.where(way.crossed, tier.link.base_latency, base)
        return seconds + base

    return group.each(add_up)


def host_seconds(group: Groups, tiers: Sequence[Tier]) -> Floats:
    """What one pass around a ring waits for hosts, shape (N,): its latency on the tiers that lead through them."""

    def add_up(groups: Groups) -> Floats:
        seconds = np.zeros(len(groups.size))
        for tier, way in _crossed(groups, tiers):
            if tier.link.through_hosts:
                base = np.where(way.crossed, tier.link.base_latency, 0.0)
                seconds = seconds + tier.link.step_latency * way.hops + base
        return seconds

    return group.each(add_up)
