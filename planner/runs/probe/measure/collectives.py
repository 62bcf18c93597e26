"""Collectives over all ranks, those of a node, and one of each node."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from planner.runs.probe.measure.timing import (
    DEVICE,
    PER_NODE,
    RANK,
    SMALL,
    WORLD,
    Entry,
    Left,
    attempt,
    normal,
    spread,
    wait,
)

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")


def collectives(_: Left) -> Iterator[Entry]:
    """Every collective over all ranks, over those of a node, and over one of each node; bytes as nccl-tests counts."""
    nodes = WORLD // PER_NODE
    parts = {"all": [list(range(WORLD))]}
    if 1 < PER_NODE < WORLD:
        parts["node"] = [[node * PER_NODE + one for one in range(PER_NODE)] for node in range(nodes)]
        parts["rail"] = [[node * PER_NODE + one for node in range(nodes)] for one in range(PER_NODE)]
    for tier, members in parts.items():
        groups = [dist.new_group(one) for one in members]
        mine = next(place for place, one in enumerate(members) if RANK in one)
        about = {"tier": tier, "ranks": len(members[0]), "nodes": 1 if tier == "node" else nodes}
        for size in (2**12, 2**16) if SMALL else (2**14, 2**17, 2**20, 2**23, 2**26, 2**28, 2**30):
            for name in COLLECTIVES:
                entry = {"what": name} | about | {"bytes": size}
                yield attempt(entry, partial(collective, name, size, groups[mine], members[mine]))


def collective(name: str, size: int, group: Any, ranks: list[int]) -> Entry:
    """One collective of one size: seconds of this rank, and of the slowest."""
    many, place = len(ranks), ranks.index(RANK)
    width = size // 2 // many * many
    whole, part, other = normal(width), normal(width // many), normal(width)
    behind, before = ranks[(place + 1) % many], ranks[(place - 1) % many]

    def ring() -> None:
        sent = [dist.P2POp(dist.isend, whole, behind, group), dist.P2POp(dist.irecv, other, before, group)]
        for work in dist.batch_isend_irecv(sent):
            work.wait()

    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": partial(dist.all_reduce, whole, group=group),
        "all_gather": partial(dist.all_gather_into_tensor, whole, part, group=group),
        "reduce_scatter": partial(dist.reduce_scatter_tensor, part, whole, group=group),
        "alltoall": partial(dist.all_to_all_single, other, whole, group=group),
        "broadcast": partial(dist.broadcast, whole, ranks[0], group=group),
        "sendrecv": ring,
    }
    call = calls[name]
    count, found = 3 if SMALL or size > 2**26 else 20, []
    for _ in range(3 if SMALL else 7):
        dist.barrier(group=group)
        wait()
        start = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        found.append((time.perf_counter() - start) / count)
    slowest = torch.tensor([statistics.median(found[1:])], device=DEVICE, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=group)
    return spread(found[1:]) | {"slowest": float(slowest)}
