"""Which stacks a framework can be priced as: its own, and those of the programs that it descends from or stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from costmodels.stack.stack import stack_names
from planner.errors import BadRequest

_NEMO: Final = ("nemo", "nemo-26.06")
_ANY: Final = "generic"
"""No framework in particular is meant, and so any may be."""
STACKS: Final[Mapping[str, tuple[str, ...]]] = {
    "megatron-lm": (
        *("megatron-core", *_NEMO, "megatron-lm-2022", "megatron-lm-2021", "megatron-lm-2020", "megascale", "yuan2"),
        *("zero-bubble", "vocabulary-parallel", "megatron-deepspeed", "megatron-deepspeed-2021"),
    ),
    "megatron-bridge": (*_NEMO, "megatron-core"),
    "deepspeed": ("deepspeed", "deepspeed-2021", "megatron-deepspeed", "megatron-deepspeed-2021"),
    "torchtitan": ("torchtitan",),
    "accelerate": ("fsdp", "torchtitan"),
    "pytorch": ("torchtitan", "fsdp"),
    "paddle": ("paddle", "paddle-2021"),
    "nanotron": ("nanotron",),
    "maxtext": ("maxtext",),
}
"""Stacks of the catalogue by framework: what its releases, its forks and its own sharding (FSDP2 of Accelerate's and
of a script) are priced as."""

STARTED_WITH: Final[Mapping[str, str]] = {
    "megatron-core": "megatron-lm",
    "nemo": "megatron-lm",
    "nemo-26.06": "megatron-lm",
    "deepspeed": "deepspeed",
    "torchtitan": "torchtitan",
    "fsdp": "accelerate",
    "paddle": "paddle",
    "nanotron": "nanotron",
    "maxtext": "maxtext",
}
"""The framework that starts plans of a stack of the catalogue."""


def goes_with(framework: str, stack: str) -> bool:
    """Whether a framework may be what a stack is of; a stack of somebody's own, by whatever name, may be of any."""
    return stack in (*STACKS[framework], _ANY) or stack not in stack_names()


def check_goes_with(framework: str | None, stack: str) -> None:
    """Refuse a framework with the stack of another one.

    Raises:
        BadRequest: it is, with the stacks that go with it.
    """
    if framework is None or goes_with(framework, stack):
        return
    fit = ", ".join((*STACKS[framework], _ANY))
    others = [other for other in STACKS if goes_with(other, stack)]
    for_it = f"; framework {' or '.join(others)} goes with {stack}" if others else ""
    raise BadRequest(f"framework {framework} does not go with stack {stack}; {fit} do{for_it}")
