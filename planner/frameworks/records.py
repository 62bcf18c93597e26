"""A framework and its rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from costmodels.model.model import Model
from planner.frameworks.conditions import Condition, facts_of
from planner.rules.rule import Rule

SHARD = ("cp", "dp", "zero_stage", "sharding_degree")
"""The axes that say over which ranks states are sharded."""
NO_GPUS = ("Google", "AWS", "Huawei", "Intel", "Baidu", "Moore Threads")
"""Makers of accelerators that neither CUDA nor ROCm programs."""
FSDP2 = "torch.distributed.fsdp.fully_shard"
"""What shards the states of the frameworks on PyTorch."""


@dataclass(frozen=True, slots=True)
class FrameworkRule:
    """One constraint of a framework; its condition reads less than a scenario, so that a saved plan answers it."""

    name: str
    reads: tuple[str, ...]
    sentence: str
    source: str
    holds: Condition


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework that plans are written for.

    Attributes:
        stack: the stack that is priced unless another is asked for.
        constraints: what it refuses.
        recompute: "free" takes any number of recomputed layers on every stage, "alike" one number for all stages,
            "whole" every layer or none.
        beside: usual rules that do not hold: they prefer what this framework refuses.
        cut: layers of every stage where the framework itself divides them; None lets the plan divide them.
        main_grads: the format of gradients that its files have, where its stack's own recipes have another.
    """

    stack: str
    constraints: tuple[FrameworkRule, ...]
    recompute: Literal["free", "alike", "whole"] = "free"
    beside: tuple[str, ...] = ()
    cut: Callable[[Model, int], list[int]] | None = None
    main_grads: Literal["fp32"] | None = None

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The constraints as rules of a search."""
        return tuple(_as_rule(one) for one in self.constraints)


def _as_rule(one: FrameworkRule) -> Rule:
    holds = one.holds
    return Rule(one.name, "framework", one.reads, one.sentence, one.source, lambda c, x: holds(c, facts_of(x)))
