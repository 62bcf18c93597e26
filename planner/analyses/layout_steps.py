"""From one layout to another option by option, through runs that every rule allows.

Options are taken greedily: of those whose run is allowed, the one that saves most comes next; GPUs come first and the
batch last. So many options take at most n (n + 1) / 2 prices, or about n^2 where pairs must be tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final, NamedTuple

import numpy as np

from costmodels.layout.split import Assignment, even_stages
from costmodels.names import Recompute
from costmodels.pricing import price_strategy
from costmodels.scenario import Scenario
from costmodels.strategy import AXES, Strategies, strategies
from planner.search.given import as_frameworks_mean, broken_rules

DEGREES: Final = (("TP", "tp", ("sequence_parallel",)), ("CP", "cp", ("cp_kind",)), ("PP", "pp", ("vpp", "schedule")))
"""Degrees, and what has no meaning where one of them is 1, so that it changes with it."""
FURTHER: Final[Mapping[str, tuple[str, ...]]] = {
    "sequence parallelism": ("sequence_parallel",),
    "kind of CP": ("cp_kind",),
    "schedule": ("schedule", "vpp"),
    "expert ranks": ("ep", "etp"),
    "ZeRO": ("zero_stage",),
    "micro-batch": ("micro_batch_size",),
    "recomputation": ("recompute", "recompute_modules", "recompute_num_layers"),
    "rank order": ("rank_order",),
    "offloading": ("offload",),
    "vocabulary": ("vocabulary",),
}
"""Other options and their axes. Replicas, micro-batches and the ranks that share states follow from all of them."""
FIRST, LAST = "GPUs", "batch"


@dataclass(frozen=True)
class Layout:
    """What runs: a strategy with its layers per stage, on so many GPUs and sequences."""

    scenario: Scenario
    row: Strategies
    split: Assignment

    def seconds(self) -> float:
        """Seconds of an iteration per token."""
        return price_strategy(self.row, self.scenario, self.split).iteration / self.scenario.tokens


class Reached(NamedTuple):
    """A layout on the way, the options that led to it from the one before, and why they changed together, if so."""

    options: tuple[str, ...]
    together: str
    layout: Layout


def layout_steps(a: Layout, b: Layout) -> Iterator[Reached]:
    """The layouts from ``a`` to ``b``, which differ in layout, GPUs and batch alone; ``b`` is the last."""
    left, done = _options(a, b), dict[str, dict[str, Any]]()
    allowed = _broken(a) | _broken(b)
    while left:
        names, why = _next(left, done, a, b, allowed)
        done |= {name: left.pop(name) for name in names}
        there = _at(done, a, b) if left else b
        assert there is not None  # what does not divide is not taken but with all the rest
        yield Reached(names, why, there)


def _options(a: Layout, b: Layout) -> dict[str, dict[str, Any]]:
    """What differs: option to the values of its axes in ``b``."""
    old, new = a.row.row(0), b.row.row(0)
    taken, found = set[str](), dict[str, dict[str, Any]]()
    for name, degree, followers in DEGREES:
        if old[degree] != new[degree]:
            axes = (degree, *followers) if 1 in (old[degree], new[degree]) else (degree,)
            taken |= set(axes)
            found[name] = {axis: new[axis] for axis in axes}
    for name, axes in FURTHER.items():
        if any(old[axis] != new[axis] for axis in axes if axis not in taken):
            found[name] = {axis: new[axis] for axis in axes if axis not in taken}
    if a.scenario.gpus != b.scenario.gpus:
        found[FIRST] = {}
    if a.scenario.global_batch_size != b.scenario.global_batch_size:
        found[LAST] = {}
    same_layers = a.split.layers.tolist() == b.split.layers.tolist()
    if not found or ("PP" not in found and "schedule" not in found and not same_layers):
        found["layers per stage"] = {}
    return found


def _next(
    left: Mapping[str, Any], done: Mapping[str, Any], a: Layout, b: Layout, allowed: frozenset[str]
) -> tuple[tuple[str, ...], str]:
    """The options that change next, and why together: one that is allowed alone, else two, else all that are left."""
    if len(left) == 1:
        return tuple(left), ""
    why = ""
    for count in (1, 2):
        ways = []
        for names in combinations(left, count):
            reached = _at({**done, **{name: left[name] for name in names}}, a, b)
            refused = _refusal(reached, allowed)
            why = why or f"{names[0]} alone: {refused}"
            if reached is not None and not refused:
                rank = 0 if FIRST in names else 2 if LAST in names else 1
                ways.append((rank, reached.seconds(), names))
        if ways:
            return min(ways)[2], why if count > 1 else ""
    return tuple(left), why


def _refusal(layout: Layout | None, allowed: frozenset[str]) -> str:
    """Why a layout cannot run, of what neither end does; empty where it can."""
    if layout is None:
        return "GPUs or batch do not divide"
    broken = broken_rules(layout.row, layout.scenario)
    return next((one.example for one in broken if one.rule not in allowed), "")


def _broken(layout: Layout) -> frozenset[str]:
    return frozenset(one.rule for one in broken_rules(layout.row, layout.scenario))


def _at(done: Mapping[str, Mapping[str, Any]], a: Layout, b: Layout) -> Layout | None:
    """The layout of ``a`` with such options as in ``b``; None where replicas or micro-batches are no whole number."""
    here = b if FIRST in done or a.scenario.gpus == b.scenario.gpus else a
    batch = (b if LAST in done else a).scenario.global_batch_size
    scenario = replace(here.scenario, global_batch_size=batch)
    axes = a.row.row(0)
    for values in done.values():
        axes |= values
    dp, odd = divmod(scenario.gpus, axes["tp"] * axes["cp"] * axes["pp"])
    batches = scenario.global_batch_size / (max(dp, 1) * axes["micro_batch_size"])
    if odd or not dp or batches != int(batches):
        return None
    axes |= {"dp": dp, "num_microbatches": int(batches)}
    axes["sharding_degree"] = _sharding(axes, b if "ZeRO" in done or not a.row.zero_stage[0] else a)
    row, _ = as_frameworks_mean(strategies(**{name: axes[name] for name in AXES}), scenario)
    return Layout(scenario, row, _split(row, a, b, done))


def _sharding(axes: Mapping[str, Any], like: Layout) -> int:
    """Ranks that share states: all that hold the same where that is so in ``like``, else as many as there."""
    if not axes["zero_stage"]:
        return 1
    given, ranks = like.row.row(0), axes["dp"] * axes["cp"]
    everywhere = given["sharding_degree"] == given["dp"] * given["cp"]
    return int((ranks if everywhere or ranks % given["sharding_degree"] else given["sharding_degree"]) or 1)


def _split(row: Strategies, a: Layout, b: Layout, done: Mapping[str, Any]) -> Assignment:
    """Layers of every stage as one end has them where its stages are as many, else as even as they go."""
    pp, vpp = int(row.pp[0]), int(row.vpp[0])
    ends = (b, a) if "layers per stage" in done else (a, b)
    fitting = [end.split for end in ends if (end.row.pp[0], end.row.vpp[0]) == (pp, vpp)]
    layers = fitting[0].layers if fitting else even_stages(a.scenario.model.num_layers, pp, vpp)
    recompute = (b if "recomputation" in done else a).split
    share = recompute.recomputed.sum() / recompute.layers.sum()
    partial = row.recompute[0] == Recompute.PARTIAL
    again = layers if row.recompute[0] == Recompute.FULL else np.round(share * layers * partial).astype(np.int64)
    return Assignment(layers, recompute.recomputed if partial and fitting and recompute is fitting[0] else again)
