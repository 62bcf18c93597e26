"""Groups of ranks: how many of them share a domain of each network tier, and how a ring crosses the tiers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from costmodels.arrays import Bools, Columns, Floats, Ints, Number


def ring_share(ranks: Number, lanes: Number) -> Floats:
    """Share of a buffer that each lane carries in one pass around a ring: an all-gather, or a reduce-scatter.

        (n - 1) / (n k)

    An all-reduce is two passes.

    Args:
        ranks: n, of the ring, shape (N,).
        lanes: k, links that work side by side, one for each rank of a domain.

    Returns:
        Share of the whole buffer, shape (N,).

    Source:
        R. Thakur et al., "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005.

    >>> ring_share(8, 1), 2 * ring_share(8, 1)
    (0.875, 1.75)
    """
    return (ranks - 1.0) / (ranks * lanes)


def all_to_all_share(ranks: Number, inside: Number) -> Floats:
    """Share of what a rank sends in an all-to-all that leaves its domain.

        (n - k) / n

    Args:
        ranks: n, shape (N,).
        inside: k, ranks of the same domain, itself included.

    Returns:
        Share of what it sends to all ranks, itself included, shape (N,).

    Source:
        [Lepikhin20], section 3.3.

    >>> all_to_all_share(64, 8)
    0.875
    """
    return (ranks - inside) / ranks


@dataclass(frozen=True, slots=True)
class Crossing(Columns):
    """How groups of N rows cross one tier of the network; all arrays have shape (N,)."""

    tier: int
    size: Ints
    """Ranks of the whole group."""
    inside: Floats
    """Ranks inside a domain of the tier below."""
    within: Floats
    """Ranks inside a domain of this tier; as many as ``inside`` where a group does not cross it."""
    ring_share: Floats
    """Of a buffer that is passed around: how much each link of this tier carries, (n - 1) / (n ``inside``)."""

    @property
    def crossed(self) -> Bools:
        """Whether the group crosses this tier."""
        return self.within > self.inside

    @property
    def fan(self) -> Floats:
        """``within`` over ``inside``: domains of the tier below that share one of this tier."""
        return self.within / self.inside

    @property
    def hops(self) -> Floats:
        """Links of this tier on the way from rank to rank through the whole group."""
        return self.size / self.inside - self.size / self.within


def _crossing(tier: int, size: Ints, inside: Floats, within: Floats) -> Crossing:
    shared = ring_share(size.astype(np.float64), inside)
    return Crossing(tier, size, inside, within, np.where(within > inside, shared, 0.0))


@dataclass(frozen=True, slots=True)
class Groups(ABC):
    """Parallel groups of N rows, of ``size`` ranks each."""

    size: Ints
    _crossings: dict[tuple[int, ...], tuple[Crossing, ...]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @abstractmethod
    def ranks_within(self, domain: int) -> Ints:
        """Ranks of the group inside one domain of that many GPUs (0: the whole cluster), shape (N,)."""

    @abstractmethod
    def within(self, domain: int) -> Groups:
        """The nearest ranks of each group, those inside one domain of that many GPUs."""

    def crossings(self, domains: tuple[int, ...]) -> tuple[Crossing, ...]:
        """The tiers that some of the groups cross, innermost first, where tiers have domains of so many GPUs."""
        if domains not in self._crossings:
            self._crossings[domains] = tuple(self._crossed(domains))
        return self._crossings[domains]

    def each(self, quantity: Callable[[Groups], Floats]) -> Floats:
        """A quantity of every group that depends on where its ranks lie alone, shape (N,)."""
        return quantity(self)

    def _crossed(self, domains: tuple[int, ...]) -> Iterator[Crossing]:
        inside = np.ones(len(self.size))
        for tier, domain in enumerate(domains):
            within = np.maximum(self.ranks_within(domain), inside)
            if (within > inside).any():
                yield _crossing(tier, self.size, inside, within)
                inside = within


@dataclass(frozen=True, slots=True)
class Group(Groups):
    """Groups made of nested parts, each (size, stride in ranks)."""

    parts: tuple[tuple[Ints, Ints], ...]
    _within: dict[int, Ints] = field(default_factory=dict, init=False, compare=False, repr=False)

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

    def within(self, domain: int) -> Groups:
        """The nearest ranks of each group, those inside one domain of that many GPUs."""
        return split_group(self, self.ranks_within(domain))[0]


@dataclass(frozen=True, slots=True)
class Alike(Groups):
    """Groups of which many are alike: what depends on where ranks lie is worked out for the ``few``, and gathered."""

    few: Groups
    places: Ints
    """Which of the few each group is, shape (N,)."""

    def ranks_within(self, domain: int) -> Ints:
        """Those of the few, gathered."""
        return self.few.ranks_within(domain).take(self.places)

    def within(self, domain: int) -> Groups:
        """Those of the few, gathered."""
        return alike(self.few.within(domain), self.places)

    def each(self, quantity: Callable[[Groups], Floats]) -> Floats:
        """The quantity of the few, gathered."""
        return self.few.each(quantity).take(self.places)

    def _crossed(self, domains: tuple[int, ...]) -> Iterator[Crossing]:
        for way in self.few.crossings(domains):
            yield way.take(self.places).changed(tier=way.tier, size=self.size)


def alike(few: Groups, places: Ints) -> Groups:
    """The groups at so many places of a few, shape (N,)."""
    return Alike(few.size.take(places), few=few, places=places)


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
