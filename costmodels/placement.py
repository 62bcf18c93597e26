"""Where the ranks of a parallel group sit: how many of them share a domain of each network tier."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from costmodels.strategy import RANK_ORDERS, SHARDING_INSIDE, Floats, Ints, Strategies

_DIMENSIONS = ("tp", "cp", "dp", "pp", "sharding")
_ORDERS = tuple(tuple(d for d in order.split("-") if d in _DIMENSIONS) for order in RANK_ORDERS)


@dataclass(frozen=True, slots=True)
class Group:
    """Parallel groups of N rows: ``size`` ranks made of nested parts, each (size, stride in ranks)."""

    size: Ints
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
            inside = np.ones_like(self.size)
            for size, stride in self.parts:
                inside = inside * np.clip(np.gcd(size * stride, domain) // stride, 1, size)
            self._within[domain] = np.minimum(inside, self.size)
        return self._within[domain]

    def widest_step(self) -> Ints:
        """Distance in ranks between neighbours of the outermost part, shape (N,)."""
        return self.parts[-1][1]


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
    result = {name: np.ones(len(rows), dtype=np.int64) for name in _DIMENSIONS}
    for code, order in enumerate(_ORDERS):
        mine = rows.rank_order == code
        if not mine.any():
            continue
        stride = np.ones(len(rows), dtype=np.int64)
        for name in order:
            result[name] = np.where(mine, stride, result[name])
            stride = stride * sizes[name]
    return result


def group_of(rows: Strategies, *names: str) -> Group:
    """The group formed by the named dimensions, inner to outer, such as ``group_of(rows, "cp", "dp")``."""
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


def crosses(group: Group, domain: int) -> Floats:
    """1.0 where the group leaves a domain of that many GPUs, else 0.0, shape (N,)."""
    return (group.ranks_within(domain) < group.size).astype(np.float64)
