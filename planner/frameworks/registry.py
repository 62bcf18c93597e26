"""The table of frameworks, by the name of their exporter, and which stacks each can be priced as."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from costmodels.model.model import Model
from costmodels.scenario import Scenario
from costmodels.stack.stack import stack_names
from hardware.records import Cluster
from planner.errors import BadRequest
from planner.frameworks import accelerate, deepspeed, maxtext, megatron, nanotron, paddle, pytorch, torchtitan
from planner.frameworks.conditions import FrameworkRule, facts_of
from planner.frameworks.vendors import XLA, needs_cuda, tpu_of
from planner.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework that plans are written for.

    Attributes:
        stacks: what it can be priced as, the usual one first: its releases, its forks, its sharding in other programs.
        constraints: what it refuses.
        recompute: "free" takes any number of recomputed layers on every stage, "alike" one number for all stages,
            "whole" every layer or none.
        dropped: usual rules that do not hold: they prefer what this framework refuses.
        cut: layers of every stage where the framework itself divides them; None lets the plan divide them.
        wide_gradients: formats of the products under which its files add gradients up in fp32, whatever its stack does.
        launches: stacks that a job is launched with by its files where no framework is asked for.
        own_code: what it starts only from a user's code that is written for it, which a search proposes where it is
            pinned.
        model_lacks: what of a model its own options or models lack, which takes a user's code.
    """

    stacks: tuple[str, ...]
    constraints: tuple[FrameworkRule, ...]
    recompute: Literal["free", "alike", "whole"] = "free"
    dropped: tuple[str, ...] = ()
    cut: Callable[[Model, int], list[int]] | None = None
    wide_gradients: tuple[str, ...] = ()
    launches: tuple[str, ...] = ()
    own_code: tuple[FrameworkRule, ...] = ()
    model_lacks: Callable[[Model], Iterable[str]] = lambda _model: ()

    @property
    def stack(self) -> str:
        """What is priced unless another stack is asked for."""
        return self.stacks[0]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The constraints of the newest version as rules of a search."""
        return tuple(as_rule(one) for one in self.constraints if one.holds_in(""))

    def searched(self, pinned: frozenset[str]) -> tuple[Rule, ...]:
        """The same with what takes a user's code, but of axes that are pinned."""
        return (*self.rules, *(as_rule(one) for one in self.own_code if not pinned & set(one.reads)))


def as_rule(one: FrameworkRule) -> Rule:
    """A framework's rule as one of a search, which asks a scenario."""
    holds = one.holds
    return Rule(one.name, "framework", one.reads, one.sentence, one.source, lambda c, x: holds(c, facts_of(x)))


_NEMO: Final = ("nemo", "nemo-26.06")
_MEGATRON: Final = (
    *("megatron-core", *_NEMO, "megatron-lm-2022", "megatron-lm-2021", "megatron-lm-2020", "megascale", "yuan2"),
    *("zero-bubble", "vocabulary-parallel", "megatron-deepspeed", "megatron-deepspeed-2021"),
)
_DEEPSPEED: Final = ("deepspeed", "deepspeed-2021", "megatron-deepspeed", "megatron-deepspeed-2021")
ANY: Final = "any"
"""What is asked for where a plan may be one that no framework starts."""
_ANY: Final = "generic"
"""The stack that means no framework in particular, and so goes with every one."""
_PARTS: Final = ("full-recompute", "full-recompute-hides")
"""Rules about what is dominated only where layers can be recomputed one by one."""

FRAMEWORKS: Final[Mapping[str, Framework]] = {
    "megatron-lm": Framework(
        _MEGATRON,
        (*megatron.RULES, *megatron.ALONE),
        "alike",
        launches=_MEGATRON[:3],
        model_lacks=megatron.model_lacks,
    ),
    "megatron-bridge": Framework(
        (*_NEMO, "megatron-core"),
        (*megatron.BRIDGE, *megatron.RULES),
        "alike",
        wide_gradients=megatron.WIDE_GRADIENTS,
    ),
    "deepspeed": Framework(
        _DEEPSPEED, deepspeed.RULES, "whole", _PARTS, launches=_DEEPSPEED[:1], own_code=deepspeed.OWN_CODE
    ),
    "torchtitan": Framework(
        ("torchtitan",),
        torchtitan.RULES,
        "whole",
        _PARTS,
        launches=("torchtitan",),
        model_lacks=torchtitan.model_lacks,
    ),
    "accelerate": Framework(
        ("fsdp", "transformers", "torchtitan"),
        accelerate.RULES,
        "whole",
        _PARTS,
        launches=("fsdp", "transformers"),
        own_code=accelerate.OWN_CODE,
    ),
    "pytorch": Framework(("torchtitan", "fsdp"), pytorch.RULES, "whole", _PARTS),
    "paddle": Framework(
        ("paddle", "paddle-2021"),
        paddle.RULES,
        "whole",
        _PARTS,
        wide_gradients=paddle.WIDE_GRADIENTS,
        launches=("paddle",),
        model_lacks=paddle.model_lacks,
    ),
    "nanotron": Framework(
        ("nanotron",), nanotron.RULES, "whole", _PARTS, nanotron.stage_layers, launches=("nanotron",)
    ),
    "maxtext": Framework(("maxtext",), maxtext.RULES, "whole", _PARTS, launches=("maxtext",)),
}


TRAINERS: Final = {"trl": "accelerate", "llamafactory": "accelerate", "axolotl": "deepspeed", "swift": "deepspeed"}
"""Trainers whose files plans are written for, and the framework that shards under each."""


_OF_ADAPTERS: Final = {"megatron-lm": "megatron-bridge"}
"""For a framework that trains no adapters, the one on the same stack that does."""


def framework_of(stack: str, *, adapters: object = None) -> str | None:
    """The framework whose files launch a job of a stack, with ``adapters`` if any train; None where it is not known."""
    name = next((name for name, framework in FRAMEWORKS.items() if stack in framework.launches), None)
    return _OF_ADAPTERS.get(name, name) if name and adapters else name


def usual_framework(scenario: Scenario) -> str:
    """The framework that a plan is for where none is asked for: that of the stack; "" where it starts no such job."""
    name = framework_of(scenario.stack.name, adapters=scenario.frozen)
    if name is None:
        return ""
    any_row, facts = {"tp": np.ones(1, dtype=np.int64)}, facts_of(scenario)
    of_the_job = (one for one in FRAMEWORKS[name].constraints if one.reads == ("tp",) and one.holds_in(""))
    return name if all(np.all(one.holds(any_row, facts)) for one in of_the_job) else ""


def usual_stack(framework: str | None, cluster: Cluster) -> str | None:
    """The stack that a framework or a cluster is planned with where none is asked for; None where any would do."""
    if framework is not None:
        return FRAMEWORKS[framework].stack
    return XLA if tpu_of(cluster) else None


def check_programs(stack: str, framework: str | None, cluster: Cluster) -> None:
    """Refuse a stack of the catalogue, or a framework, on TPUs that it makes no programs for.

    Raises:
        BadRequest: it makes none, with the one that does.
    """
    device = tpu_of(cluster)
    if device is None:
        return
    if framework not in {None, XLA}:
        raise BadRequest(f"framework {framework} makes no programs for {device}; {XLA} does")
    if needs_cuda(stack):
        raise BadRequest(f"stack {stack} makes no programs for {device}; {XLA} does")


def goes_with(framework: str, stack: str) -> bool:
    """Whether a framework may be what a stack is of; a stack of somebody's own, by whatever name, may be of any."""
    return stack in (*FRAMEWORKS[framework].stacks, _ANY) or stack not in stack_names()


def check_goes_with(framework: str | None, stack: str) -> None:
    """Refuse a framework with the stack of another one.

    Raises:
        BadRequest: it is, with the stacks that go with it.
    """
    if framework is None or goes_with(framework, stack):
        return
    fit = ", ".join((*FRAMEWORKS[framework].stacks, _ANY))
    others = [other for other in FRAMEWORKS if goes_with(other, stack)]
    for_it = f"; framework {' or '.join(others)} goes with {stack}" if others else ""
    raise BadRequest(f"framework {framework} does not go with stack {stack}; {fit} do{for_it}")
