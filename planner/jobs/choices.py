"""The choices that were priced in addition to the strategy, and which of them the files of a framework carry.

A choice is a field of the request or of its stack that changes the price: the optimizer, formats of states, the loss,
what ``--set`` changed. A framework's files carry a choice, or the framework does it unasked; what is left is named in a
remark, so that no file silently starts another run than the one that was priced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from costmodels.scenario import REDUCED
from costmodels.stack.choices import chosen
from costmodels.stack.stack import Stack, stack, stack_names
from costmodels.stack.switches import Switches
from planner.frameworks.registry import FRAMEWORKS
from planner.request.fields import STACK_CHOICES
from planner.request.overrides import changed_stack, written
from planner.request.tables import stack_of


def assumed_stack(request: Mapping[str, Any]) -> Stack | None:
    """The stack that was priced, in its precision, with all that a resolved request chose and changed of it.

    None where the answer holds only a name that the catalogue lacks.
    """
    known = _named_stack(request.get("stack"))
    return None if known is None else with_choices(known, request)


def with_choices(known: Stack, request: Mapping[str, Any]) -> Stack:
    """A stack with what a resolved request says of it."""
    changed = changed_stack(known.at(str(request.get("precision") or "bf16")), request.get("changes") or {})
    whole = chosen(changed, **{name: request[name] for name in STACK_CHOICES if request.get(name) is not None})
    capacity = request.get("expert_capacity")
    return whole if capacity is None else whole.changed({"switches.expert_capacity": capacity})


def _named_stack(given: object) -> Stack | None:
    if isinstance(given, Mapping):
        return stack_of(given)
    known = isinstance(given, str) and given.partition("@")[0] in stack_names()
    return stack(str(given)) if known else None


def switches_of(request: Mapping[str, Any]) -> Switches:
    """The switches of the stack that was priced; where the catalogue lacks it, the usual ones and those chosen."""
    unknown = Stack(name="unknown", title="unknown", source="none")
    return (assumed_stack(request) or with_choices(unknown, request)).switches


_ON: Final = {True: "on", False: "off"}
_TASK: Final = {"finetune": "pretrain"}
"""Tasks that learn from the same passes as another: what a file says of one it says of both."""


def _gradients(priced: Stack, precision: str) -> str:
    """The format that gradients are added up in, and the one that they travel in where it is another."""
    formats = {4: "fp32", 2: "fp16" if precision == "fp16" else "bf16"}
    kept, sent = (
        formats.get(size, f"{size} bytes") for size in (priced.gradients.gradient_bytes, priced.gradients.reduce_bytes)
    )
    return kept if kept == sent else f"{kept} reduced in {sent}"


_CHOICES: Final[Mapping[str, Callable[[Any], str]]] = {
    "loss": str,
    "loss_block": lambda tokens: f"{tokens} tokens" if tokens else "whole",
    "expert_capacity": lambda factor: f"{factor:g}" if factor else "unlimited",
    "dropout": _ON.__getitem__,
    "base_precision": lambda name: name or "as trained",
    "task": lambda name: _TASK.get(name, name),
    "reference_model": str,
    "document_length": lambda tokens: f"{tokens} tokens",
    "frozen_layers": str,
    "frozen_embeddings": _ON.__getitem__,
    "images_per_sample": str,
    "image_tokens": lambda tokens: str(tokens or "as the tower has it"),
    "train_tower": _ON.__getitem__,
}
"""Choices that a switch of the stack says alone, and the words for its value."""


def _in_words(priced: Stack, precision: str) -> dict[str, str]:
    """Every choice with its value in words, from the priced stack and the precision."""
    at = priced.switches
    formats = {"optimizer": at.optimizer, "main_grads": _gradients(priced, precision), "main_params": at.main_params}
    formats |= {"fp8_param_gather": _ON[at.fp8_param_gather and precision in REDUCED]}
    return formats | {name: word(getattr(at, name)) for name, word in _CHOICES.items()}


_BRIDGE_GATHERS: Final = frozenset({"fp8", "fp8-current", "mxfp8"})
"""Recipes of Megatron-Bridge that keep weights in 8 bits (``megatron.bridge.training.mixed_precision``)."""


def _own(target: str, precision: str) -> dict[str, str]:
    """What a framework does as its files are written, where its stack does otherwise."""
    if target == "megatron-bridge":
        grads = "fp16" if precision == "fp16" else "fp32"
        return {"main_grads": grads, "fp8_param_gather": _ON[precision in _BRIDGE_GATHERS]}
    return {"main_grads": "fp32"} if target == "paddle" else {}


def uncarried_choices(
    request: Mapping[str, Any], target: str, carried: Collection[str], what: str = "files"
) -> tuple[str, ...]:
    """The remark on what was chosen or changed and a target's files leave out; none where they have all of it.

    Args:
        request: the resolved request of an answer.
        target: the name of what reads the files.
        carried: choices, and paths of changes, that the files have or that their exporter remarks on.
        what: is written.
    """
    changes: Mapping[str, Any] = request.get("changes") or {}
    known = {*carried, *(f"stack.{name}" for name in carried)}
    left = [f"{name} {value}" for name, value in _differing(request, target).items() if name not in carried]
    left += [f"{path}={written(new)}" for path, new in changes.items() if path not in known]
    return (f"priced with {', '.join(left)}, which these {what} for {target} cannot express",) if left else ()


def _differing(request: Mapping[str, Any], target: str) -> dict[str, str]:
    """Choices of a request that a framework does not make unasked, with their values in words; changes apart."""
    if target not in FRAMEWORKS:
        return {}
    precision, usual = str(request.get("precision") or "bf16"), stack(FRAMEWORKS[target].stack)
    priced = assumed_stack(request) or with_choices(usual, request)
    own, wanted = _in_words(usual.at(precision), precision) | _own(target, precision), _in_words(priced, precision)
    given = request.get("changes") or {}
    # Of Accelerate, TorchAO alone gathers weights in 8 bits.
    narrow = {"fp8_param_gather"} if (target, precision) == ("accelerate", "fp8-current") else set[str]()
    return {
        name: value
        for name, value in wanted.items()
        if value != own[name] and name not in narrow and f"stack.{name}" not in given
    }
