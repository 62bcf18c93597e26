"""Where the ranks of a parallel group sit: how many of them share a domain of each network tier."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from costmodels.names import RANK_ORDERS, SHARDING_INSIDE
from costmodels.primitives.rank_groups import Group, Groups, alike, split_group
from costmodels.strategy import Ints, Strategies

_DIMENSIONS = ("tp", "cp", "dp", "pp", "sharding")
_MESH = ("tp", "cp", "pp", "dp", "rank_order")
"""What the places of ranks depend on, where data ranks do not lie apart."""
_ORDERS = tuple(tuple(d for d in order.split("-") if d in _DIMENSIONS) for order in RANK_ORDERS)


def strides(strategies: Strategies) -> dict[str, Ints]:
    """Distance in ranks between neighbours of each dimension under each strategy's rank order, arrays (N,).

    Where data ranks lie apart, "sharding" are the inner ones and "dp" the outer; elsewhere all of them are "dp".
    """

    def gather() -> dict[str, Ints]:
        few, inverse = distinct_meshes(strategies)
        return {name: stride.take(inverse) for name, stride in _strides(few).items()}

    return strategies.once("strides", gather)


def distinct_meshes(strategies: Strategies) -> tuple[Strategies, Ints]:
    """Strategies whose ranks lie differently, and which of them every one is, as ``Strategies.distinct`` has it."""
    return strategies.distinct(*mesh_axes(strategies))


def mesh_axes(strategies: Strategies) -> tuple[str, ...]:
    """What the places of ranks depend on."""
    apart = (strategies.rank_order == SHARDING_INSIDE).any()
    return (*_MESH, "sharding_degree") if apart else _MESH


def inner_data_ranks(strategies: Strategies) -> Ints:
    """Data ranks that lie inside the pipeline because they share their states, shape (N,); 1 under other orders.

    Context ranks are the nearer ones of a sharding group; what they do not make up is taken from data ranks.
    """
    if not (strategies.rank_order == SHARDING_INSIDE).any():
        return np.ones_like(strategies.dp)
    beyond = strategies.sharding_degree // np.gcd(strategies.sharding_degree, strategies.cp)
    return np.where(strategies.rank_order == SHARDING_INSIDE, np.gcd(beyond, strategies.dp), 1)


def _strides(strategies: Strategies) -> dict[str, Ints]:
    inner = inner_data_ranks(strategies)
    apart = (inner > 1).any()
    sizes = {
        "tp": strategies.tp,
        "cp": strategies.cp,
        "pp": strategies.pp,
        "sharding": inner,
        "dp": strategies.dp // inner if apart else strategies.dp,
    }
    result: dict[str, Ints] = {}
    for code, order in enumerate(_ORDERS):
        mine = strategies.rank_order == code
        if not mine.any():
            continue
        own = {name: np.ones(len(strategies), dtype=np.int64) for name in _DIMENSIONS if name not in order}
        stride = np.ones(len(strategies), dtype=np.int64)
        for name in order:
            own[name] = stride
            stride = stride * sizes[name]
        result = {name: np.where(mine, own[name], result[name]) for name in own} if result else own
    return result or {name: np.ones(0, dtype=np.int64) for name in _DIMENSIONS}


def group_of(strategies: Strategies, *names: str) -> Group:
    """The group formed by the named dimensions, inner to outer, such as ``group_of(strategies, "cp", "dp")``."""
    return strategies.once(f"group of {names}", lambda: _group_of(strategies, names))


def data_groups(strategies: Strategies) -> Groups:
    """Context and data ranks, which share the gradients of the same parameters."""
    return strategies.once("data groups", lambda: _alike(strategies, lambda few: [group_of(few, "cp", "dp")])[0])


def sharding_groups(strategies: Strategies) -> tuple[Groups, Groups]:
    """Ranks that share states among them, and the replicas of one shard: context and data ranks cut in two."""

    def split() -> tuple[Groups, Groups]:
        def cut(few: Strategies) -> tuple[Groups, Groups]:
            return split_group(group_of(few, "cp", "dp"), few.sharding_degree)

        near, far = _alike(strategies, cut, "sharding_degree")
        return near, far

    return strategies.once("sharding groups", split)


def _alike(strategies: Strategies, groups: Callable[[Strategies], Iterable[Groups]], *axes: str) -> tuple[Groups, ...]:
    """Groups of strategies whose ranks lie where the mesh and further axes say."""
    few, places = strategies.distinct(*dict.fromkeys((*mesh_axes(strategies), *axes)))
    if 2 * len(few) > len(strategies):
        return tuple(groups(strategies))
    return tuple(alike(some, places) for some in groups(few))


def _group_of(strategies: Strategies, names: tuple[str, ...]) -> Group:
    step, inner = strides(strategies), strategies.once("inner data ranks", lambda: inner_data_ranks(strategies))
    sizes = [getattr(strategies, name) for name in names]
    parts: list[tuple[Ints, Ints]] = []
    for size, name in zip(sizes, names, strict=True):
        if name == "dp" and (inner > 1).any():
            parts += [(inner, step["sharding"]), (size // inner, step["dp"])]
        else:
            parts.append((size, step[name]))
    return Group(size=np.prod(sizes, axis=0), parts=tuple(parts))


def expert_group(strategies: Strategies) -> Group:
    """Ranks that hold different experts: ``ep`` of them, ``etp`` apart.

    Under either rank order: where data ranks lie apart, expert ranks stay within tensor x context ranks (the rule
    "experts-order").
    """
    return Group(strategies.ep, ((strategies.ep, strategies.etp),))


def expert_data_group(strategies: Strategies) -> Groups:
    """Ranks that hold the same experts: what is left of tensor x context x data ranks."""

    def split() -> Groups:
        def cut(few: Strategies) -> tuple[Groups]:
            return (split_group(group_of(few, "tp", "cp", "dp"), few.ep * few.etp)[1],)

        return _alike(strategies, cut, "ep", "etp")[0]

    return strategies.once("expert data group", split)


def expert_shards(strategies: Strategies) -> Ints:
    """Ranks over which the states of one expert are sharded where the dense states are, shape (N,).

    At least one, also where a run says more expert ranks than it has.
    """
    return np.where(strategies.zero_stage > 0, np.maximum(expert_data_group(strategies).size, 1), 1)
