"""How states may be sharded: the options of a layout, and the ranks behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodels.names import SHARDED_GRADIENTS
from costmodels.scenario import Scenario
from costmodels.strategy import Ints, Strategies
from planner.rules.conditions import REPEATS

SHARDING = frozenset({"zero_stage", "sharding_degree"})
"""Axes of sharding; the other ones, with those of the layout, make a core."""
DEGREES = ("tp", "cp", "dp")
"""Axes that tell over how many ranks states are sharded."""
NODES_OF_SHARDS = (1, 4)
"""Innermost domains that one copy of sharded states may span, where it does not span everything."""
PARTS_OF_SHARDS = (2, 4)
"""Parts of all devices, each of which one copy of sharded gradients may span."""


def sharding_domains(scenario: Scenario, stage: int) -> list[int]:
    """Devices within which states are sharded where not over all: a node, a domain of a tier, a few innermost ones.

    From the stage on that shards gradients, halves and quarters of all devices too, as the traffic of a group may grow
    with it faster than its memory shrinks.
    """
    group = scenario.group
    inner = group.tiers[0].domain or group.gpus_per_node
    few = {inner * number for number in NODES_OF_SHARDS}
    parts = {scenario.gpus // number for number in PARTS_OF_SHARDS} if stage >= SHARDED_GRADIENTS else set()
    domains = {group.gpus_per_node, *few, *parts, *(tier.domain for tier in group.tiers)}
    return sorted(domain for domain in domains if 1 < domain < scenario.gpus)


def by_option(layouts: Strategies, axes: Iterable[str], options: Ints) -> tuple[dict[str, NDArray[Any]], Ints]:
    """The distinct rows of these axes, those of sharding by option, (F, 1) or (F, Z), and which one each layout has."""
    degrees = DEGREES if "sharding_degree" in axes else ()
    names = dict.fromkeys((*degrees, *(axis for axis in axes if axis not in SHARDING)))
    few, which = layouts.distinct(*names)
    wide = {name: getattr(few, name)[:, None] for name in names}
    wide["zero_stage"] = options[:, 0][None, :]
    if degrees:
        wide["sharding_degree"] = sharding_degrees(wide, options[:, 1][None, :])
    return wide, which


def sharding_degrees(columns: Mapping[str, NDArray[Any]], degree: Ints) -> Ints:
    """Ranks behind the symbols, (L, Z): 0 all data and context ranks; -D as many of them as D devices hold.

    A group that would be everything, or one rank, or what a smaller domain gives, repeats another row.
    """
    ranks = columns["dp"] * columns["cp"]
    near = np.gcd(ranks, np.maximum(-degree // columns["tp"], 1))
    near = np.where((near < ranks) & (near > 1), near, REPEATS)
    stage = columns["zero_stage"]
    for place in range(1, degree.shape[1]):
        mine = near[:, [place]]
        before = (stage[:, :place] == stage[:, place]) & (degree[:, :place] < 0) & (near[:, :place] == mine)
        near[:, [place]] = np.where(before.any(axis=1, keepdims=True), REPEATS, mine)
    return np.where(degree == 0, ranks, np.where(degree < 0, near, degree))
