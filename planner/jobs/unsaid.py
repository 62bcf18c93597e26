"""What was priced beside the strategy, in words, and which of it the files of a framework say.

A choice is a field of the request or of its stack that changes the price: the optimizer, formats of states, the loss.
A framework's files say a choice, or the framework does it unasked; what is left is named in a remark, so that no file
starts another run than the one that was priced without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from costmodels.scenario import REDUCED
from costmodels.stack.stack import Stack, stack
from planner.frameworks.registry import FRAMEWORKS
from planner.jobs.changed import assumed_stack, uncarried, with_choices

_ON: Final = {True: "on", False: "off"}


def _gradients(priced: Stack, precision: str) -> str:
    """The format that gradients are added up in, and the one that they travel in where it is another."""
    formats = {4: "fp32", 2: "fp16" if precision == "fp16" else "bf16"}
    kept, sent = (
        formats.get(size, f"{size} bytes") for size in (priced.gradients.gradient_bytes, priced.gradients.reduce_bytes)
    )
    return kept if kept == sent else f"{kept} reduced in {sent}"


CHOICES: Final[Mapping[str, Callable[[Stack, str], str]]] = {
    "optimizer": lambda priced, _: priced.switches.optimizer,
    "main_grads": _gradients,
    "main_params": lambda priced, _: priced.switches.main_params,
    "fp8_param_gather": lambda priced, precision: _ON[priced.switches.fp8_param_gather and precision in REDUCED],
    "loss": lambda priced, _: priced.switches.loss,
    "loss_block": lambda priced, _: f"{priced.switches.loss_block} tokens" if priced.switches.loss_block else "whole",
    "expert_capacity": lambda priced, _: (
        f"{priced.switches.expert_capacity:g}" if priced.switches.expert_capacity else "unlimited"
    ),
    "dropout": lambda priced, _: _ON[priced.switches.dropout],
}
"""Every choice with its value in words, from the priced stack and the precision."""

_SAID: Final[Mapping[str, tuple[str, ...]]] = {
    "megatron-lm": ("optimizer", "main_grads", "main_params", "fp8_param_gather", "expert_capacity", "dropout"),
    "megatron-bridge": ("optimizer", "main_params", "expert_capacity", "dropout"),
    "deepspeed": ("optimizer",),
    "nanotron": ("optimizer",),
    "maxtext": ("optimizer",),
}
"""Choices that the files of a framework say, or that its exporter remarks on, whatever they are."""

_BRIDGE_GATHERS: Final = frozenset({"fp8", "fp8-current", "mxfp8"})
"""Recipes of Megatron-Bridge that keep weights in 8 bits (``megatron.bridge.training.mixed_precision``)."""


def _own(target: str, precision: str) -> dict[str, str]:
    """What a framework does as its files are written, where its stack does otherwise."""
    if target == "megatron-bridge":
        grads = "fp16" if precision == "fp16" else "fp32"
        return {"main_grads": grads, "fp8_param_gather": _ON[precision in _BRIDGE_GATHERS]}
    return {"main_grads": "fp32"} if target == "paddle" else {}


def unsaid_choices(request: Mapping[str, Any], target: str, what: str = "files") -> tuple[str, ...]:
    """The remark on what was chosen or changed and a framework's files do not say; none where they say all of it."""
    left = [*_left(request, target), *uncarried(request, target, said=_SAID.get(target, ()))]
    return (f"priced with {', '.join(left)}, which these {what} for {target} do not carry",) if left else ()


def _left(request: Mapping[str, Any], target: str) -> list[str]:
    """Choices that the files leave out, as name and value."""
    if target not in FRAMEWORKS:
        return []
    precision, usual = str(request.get("precision") or "bf16"), stack(FRAMEWORKS[target].stack)
    priced = assumed_stack(request) or with_choices(usual, request)
    own = {name: word(usual.at(precision), precision) for name, word in CHOICES.items()} | _own(target, precision)
    wanted = {name: word(priced, precision) for name, word in CHOICES.items()}
    given = request.get("changes") or {}
    return [
        f"{name} {value}"
        for name, value in wanted.items()
        if value != own[name] and not _says(target, name, precision) and f"stack.{name}" not in given
    ]


def _says(target: str, name: str, precision: str) -> bool:
    """Whether a framework's files say a choice: of Accelerate, TorchAO alone gathers weights in 8 bits."""
    narrow = (target, name, precision) == ("accelerate", "fp8_param_gather", "fp8-current")
    return narrow or name in _SAID.get(target, ())
