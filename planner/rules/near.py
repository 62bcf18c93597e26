"""The nearest that works where a rule refuses a strategy, as the end of its sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from costmodels.scenario import Scenario
from planner.rules.divisors import around, divisors, nearest_divisor, nearest_multiple

Words = Mapping[str, Any]
"""What the places of a sentence stand for, by name."""


def dividing(axis: str, count: Callable[[Scenario], int]) -> Callable[[Words, Scenario], str]:
    """The degrees of an axis on either side of the given one that divide a count, and the GPUs."""
    return lambda words, scenario: nearest_divisor(math.gcd(count(scenario), scenario.gpus), int(words[axis]))


def heads(words: Words, scenario: Scenario) -> str:
    """Degrees of tensor parallelism that divide the attention heads of every layer, and the GPUs."""
    return nearest_divisor(_heads(scenario), int(words["tp"]))


def _heads(scenario: Scenario) -> int:
    kinds = [kind for kind in scenario.depth.kinds if kind.attends]
    heads = (scenario.model.with_sizes_of(kind.variant).num_heads for kind in kinds)
    return math.gcd(scenario.gpus, *heads)


def query_groups(words: Words, scenario: Scenario) -> str:
    """Degrees of tensor parallelism that divide the heads, and the query groups or are a multiple of them."""
    groups = scenario.model.num_query_groups
    good = [tp for tp in divisors(_heads(scenario)) if groups % tp == 0 or tp % groups == 0]
    return around(good, int(words["tp"]))


def expert_ranks(words: Words, _scenario: Scenario) -> str:
    """Numbers of expert ranks that divide the ranks of a stage."""
    ranks = int(words["tp"]) * int(words["cp"]) * int(words["dp"])
    return nearest_divisor(ranks, int(words["ep"]) * int(words["etp"]))


def shards(words: Words, _scenario: Scenario) -> str:
    """Degrees of sharding that divide the data and context ranks."""
    return nearest_divisor(int(words["dp"]) * int(words["cp"]), int(words["sharding_degree"]))


def chunks(words: Words, scenario: Scenario) -> str:
    """Degrees of context parallelism whose ranks take two chunks of the sequence each."""
    half = scenario.seq_length // 2 if scenario.seq_length % 2 == 0 else 1
    return f"cp {nearest_divisor(math.gcd(half, scenario.gpus), int(words['cp']))}"


def batches(words: Words, _scenario: Scenario) -> str:
    """The batch nearest to the given one that micro-batches of all replicas make up."""
    step = max(round(words["micro_batch_size"] * words["dp"]), 1)
    return f"{nearest_multiple(int(words['global_batch_size']), step)} would"


def schedules(words: Words, _scenario: Scenario) -> str:
    """A schedule that runs the stages and chunks."""
    pp, vpp = int(words["pp"]), int(words["vpp"])
    if pp == 1:
        return "without a pipeline, schedule none does with vpp 1"
    return "1f1b does" if vpp == 1 else "interleaved-1f1b does"
