"""Where the ranks of a parallel group sit: how many of them share a domain of each network tier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from costmodels.names import RANK_ORDERS, SHARDING_INSIDE
from costmodels.strategy import (
    Bools,
    Floats,
    Ints,
    Strategies,
)

_DIMENSIONS = ("tp", "cp", "dp", "pp", "sharding")
_ORDERS = tuple(tuple(d for d in order.split("-") if d in _DIMENSIONS) for order in RANK_ORDERS)


@dataclass(frozen=True, slots=True)
class Crossing:
    """How groups of N rows cross one tier of the network; all arrays have shape (N,)."""

    tier: int
    inside: Floats
    """Ranks inside a domain of the tier below."""
    within: Floats
    """Ranks inside a domain of this tier; as many as ``inside`` where a group does not cross it."""
    crossed: Bools
    fan: Floats
    """``within`` over ``inside``: domains of the tier below that share one of this tier."""
    hops: Floats
    """Links of this tier on the way from rank to rank through the whole group."""
    ring_share: Floats
    """Of a buffer that is passed around: how much each link of this tier carries, (n - 1) / (n ``inside``)."""


def _crossing(tier: int, size: Ints, inside: Floats, within: Floats) -> Crossing:
    crossed, ranks = within > inside, size.astype(np.float64)
    return Crossing(
        tier=tier,
        inside=inside,
        within=within,
        crossed=crossed,
        fan=within / inside,
        hops=ranks / inside - ranks / within,
        ring_share=np.where(crossed, (ranks - 1.0) / (ranks * inside), 0.0),
    )


@dataclass(frozen=True, slots=True)
class Group:
    """Parallel groups of N rows: ``size`` ranks made of nested parts, each (size, stride in ranks)."""

    size: Ints
    parts: tuple[tuple[Ints, Ints], ...]
    _within: dict[int, Ints] = field(default_factory=dict, init=False, compare=False, repr=False)
    _crossings: dict[tuple[int, ...], tuple[Crossing, ...]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def ranks_within(self, domain: int) -> Ints:
        """Ranks of the group inside one domain of that many GPUs (0: the whole cluster), shape (N,).

        Groups start at multiples of their span and domains at multiples of their size, so that where neither
        divides the other some group straddles two domains: its smaller share counts, gcd(span, domain).
        """
        if domain == 0:
            return self.size
        if domain not in self._within:
            inside = np.ones(len(self.size))
            divisors = np.gcd(np.arange(domain), domain).astype(np.float64)  # of span modulo domain as of span
            for size, stride in self.parts:
                span = size * stride
                shared = divisors[span - span // domain * domain]  # dividing by one number is faster than its rest
                inside = inside * np.minimum(np.maximum(np.floor(shared / stride), 1.0), size)
            self._within[domain] = np.minimum(inside, self.size).astype(np.int64)
        return self._within[domain]

    def crossings(self, domains: tuple[int, ...]) -> tuple[Crossing, ...]:
        """The tiers that some of the groups cross, innermost first, where tiers have domains of so many GPUs."""
        if domains not in self._crossings:
            self._crossings[domains] = tuple(self._crossed(domains))
        return self._crossings[domains]

    def _crossed(self, domains: tuple[int, ...]) -> Iterator[Crossing]:
        inside = np.ones(len(self.size))
        for tier, domain in enumerate(domains):
            within = np.maximum(self.ranks_within(domain), inside)
            if (within > inside).any():
                yield _crossing(tier, self.size, inside, within)
                inside = within


@dataclass(frozen=True, slots=True)
class Ends(Group):
    """The first and the last rank of groups of one part, in one domain only where all between them are."""

    def ranks_within(self, domain: int) -> Ints:
        """Both ranks of a group that lies in one domain of that many GPUs, else 1, shape (N,)."""
        whole = Group(np.prod([size for size, _stride in self.parts], axis=0), self.parts)
        return np.where(whole.ranks_within(domain) < whole.size, 1, self.size)


def ends_of(group: Group) -> Group:
    """The first and the last rank of each group; groups of one rank stay as they are."""
    return Ends(np.minimum(group.size, 2), group.parts)


def strides(rows: Strategies) -> dict[str, Ints]:
    """Distance in ranks between neighbours of each dimension under each row's rank order, arrays (N,).

    Where data ranks lie apart, "sharding" are the inner ones and "dp" the outer; elsewhere all of them are "dp".
    """
    return rows.once("strides", lambda: _strides(rows))


def inner_data_ranks(rows: Strategies) -> Ints:
    """Data ranks that lie inside the pipeline because they share their states, shape (N,); 1 under other orders.

    Context ranks are the nearer ones of a sharding group; what they do not make up is taken from data ranks.
    """
    if not (rows.rank_order == SHARDING_INSIDE).any():
        return np.ones_like(rows.dp)
    beyond = rows.sharding_degree // np.gcd(rows.sharding_degree, rows.cp)
    return np.where(rows.rank_order == SHARDING_INSIDE, np.gcd(beyond, rows.dp), 1)


def _strides(rows: Strategies) -> dict[str, Ints]:
    inner = inner_data_ranks(rows)
    apart = (inner > 1).any()
    sizes = {
        "tp": rows.tp,
        "cp": rows.cp,
        "pp": rows.pp,
        "sharding": inner,
        "dp": rows.dp // inner if apart else rows.dp,
    }
    result: dict[str, Ints] = {}
    for code, order in enumerate(_ORDERS):
        mine = rows.rank_order == code
        if not mine.any():
            continue
        own = {name: np.ones(len(rows), dtype=np.int64) for name in _DIMENSIONS if name not in order}
        stride = np.ones(len(rows), dtype=np.int64)
        for name in order:
            own[name] = stride
            stride = stride * sizes[name]
        result = {name: np.where(mine, own[name], result[name]) for name in own} if result else own
    return result or {name: np.ones(0, dtype=np.int64) for name in _DIMENSIONS}


def group_of(rows: Strategies, *names: str) -> Group:
    """The group formed by the named dimensions, inner to outer, such as ``group_of(rows, "cp", "dp")``."""
    return rows.once(f"group of {names}", lambda: _group_of(rows, names))


def sharding_groups(rows: Strategies) -> tuple[Group, Group]:
    """Ranks that share states among them, and the replicas of one shard: context and data ranks cut in two."""
    return rows.once("sharding groups", lambda: split_group(group_of(rows, "cp", "dp"), rows.sharding_degree))


def _group_of(rows: Strategies, names: tuple[str, ...]) -> Group:
    step, inner = strides(rows), rows.once("inner data ranks", lambda: inner_data_ranks(rows))
    sizes = [getattr(rows, name) for name in names]
    parts: list[tuple[Ints, Ints]] = []
    for size, name in zip(sizes, names, strict=True):
        if name == "dp" and (inner > 1).any():
            parts += [(inner, step["sharding"]), (size // inner, step["dp"])]
        else:
            parts.append((size, step[name]))
    return Group(size=np.prod(sizes, axis=0), parts=tuple(parts))


def split_group(group: Group, inner: Ints) -> tuple[Group, Group]:
    """A group cut in two: the ``inner`` nearest ranks, and the ranks that hold the same place in each cut.

    Shapes (N,); ``inner`` must divide the group's size (sharding degree inside data parallel, for example).
    """
    near: list[tuple[Ints, Ints]] = []
    far: list[tuple[Ints, Ints]] = []
    left = inner
    for size, stride in group.parts:
        take = np.gcd(left, size)
        left = left // take
        near.append((take, stride))
        far.append((size // take, stride * take))
    return Group(inner, tuple(near)), Group(group.size // np.maximum(inner, 1), tuple(far))


def expert_group(rows: Strategies) -> Group:
    """Ranks that hold different experts: ``ep`` of them, ``etp`` apart.

    Under either rank order: where data ranks lie apart, expert ranks stay within tensor x context ranks (the rule
    "experts-order").
    """
    return Group(rows.ep, ((rows.ep, rows.etp),))


def expert_data_group(rows: Strategies) -> Group:
    """Ranks that hold the same experts: what is left of tensor x context x data ranks."""
    shards = rows.ep * rows.etp
    return rows.once("expert data group", lambda: split_group(group_of(rows, "tp", "cp", "dp"), shards)[1])


def expert_shards(rows: Strategies) -> Ints:
    """Ranks over which the states of one expert are sharded where the dense states are, shape (N,)."""
    return np.where(rows.zero_stage > 0, expert_data_group(rows).size, 1)
