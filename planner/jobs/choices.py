"""The choices that were priced beside the strategy, and which of them the files of a framework carry.

A choice is a field of the request or of its stack that changes the price: the optimizer, formats of states, the loss,
what ``--set`` changed. A framework's files carry a choice, or the framework does it unasked; what is left is named in a
remark, so that no file silently starts another run than the one that was priced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from costmodels.model.model import Model
from costmodels.scenario import REDUCED
from costmodels.stack.choices import chosen
from costmodels.stack.stack import Stack, stack, stack_names
from planner.frameworks.registry import FRAMEWORKS
from planner.request.fields import STACK_CHOICES
from planner.request.overrides import changed_stack, written
from planner.request.tables import stack_of

_MODEL: Final = tuple(f"model.{name}" for name in Model.model_fields)
_CARRIED: Final[Mapping[str, tuple[str, ...]]] = {
    "megatron-lm": (
        *("stack.overlap.tp_forward", "stack.tensor-parallel-overlap", "stack.overlap.ep"),
        *("stack.cuda_graphs", "stack.graphs", "stack.dispatch", "stack.offload_fraction"),
        *("stack.optimizer", "stack.main_params", "stack.fp8_param_gather", "stack.expert_capacity"),
        *("stack.zero_stages", "stack.state_copies"),  # Megatron-FSDP, which a strategy's own stage asks for
        *_MODEL,
    ),
    "megatron-bridge": ("stack.dispatch", "stack.offload_fraction"),
    "deepspeed": ("stack.offload_fraction",),
    "nanotron": (
        *("model.hidden_size", "model.ffn_hidden_size", "model.num_layers", "model.num_heads"),
        *("model.num_query_groups", "model.tied_embeddings", "model.vocab_size"),
    ),
}
"""Paths that a target's files say, or remark on; other targets name the model, or leave it to the reader."""


def assumed_stack(request: Mapping[str, Any]) -> Stack | None:
    """The stack that was priced, in its precision, with all that the request chose and changed of it.

    Args:
        request: the resolved request of an answer.

    Returns:
        None where the answer holds only a name that the catalogue lacks.
    """
    known = _named_stack(request.get("stack"))
    return None if known is None else with_choices(known, request)


def with_choices(known: Stack, request: Mapping[str, Any]) -> Stack:
    """A stack with what a resolved request says of it."""
    changed = changed_stack(known.at(str(request.get("precision") or "bf16")), request.get("changes") or {})
    whole = chosen(changed, **{name: request[name] for name in STACK_CHOICES if request.get(name) is not None})
    capacity = request.get("expert_capacity")
    return whole if capacity is None else whole.model_copy(update={"expert_capacity": capacity})


def _named_stack(given: object) -> Stack | None:
    if isinstance(given, Mapping):
        return stack_of(given)
    return stack(given) if isinstance(given, str) and given in stack_names() else None


def dispatch_of(request: Mapping[str, Any]) -> str:
    """How the stack sends tokens to experts; one that the catalogue lacks, in Megatron's usual way."""
    assumed = assumed_stack(request)
    return assumed.dispatch if assumed else "every-copy"


def carries(target: str, path: str) -> bool:
    """Whether a target's files say, or remark on, what is changed at a path."""
    return path in _CARRIED.get(target, ())


def uncarried(request: Mapping[str, Any], target: str, *, said: Collection[str] = ()) -> tuple[str, ...]:
    """Changes that a target's files do not make, as they were given; fields of the stack that they say are left out."""
    changes: Mapping[str, Any] = request.get("changes") or {}
    known = {f"stack.{name}" for name in said}
    left = {path: new for path, new in changes.items() if path not in known and not carries(target, path)}
    return tuple(f"{path}={written(new)}" for path, new in left.items())


_ON: Final = {True: "on", False: "off"}


def _gradients(priced: Stack, precision: str) -> str:
    """The format that gradients are added up in, and the one that they travel in where it is another."""
    formats = {4: "fp32", 2: "fp16" if precision == "fp16" else "bf16"}
    kept, sent = (formats.get(size, f"{size} bytes") for size in (priced.gradient_bytes, priced.reduce_bytes))
    return kept if kept == sent else f"{kept} reduced in {sent}"


_PRICED: Final[Mapping[str, Callable[[Stack, str], str]]] = {
    "optimizer": lambda priced, _: priced.optimizer,
    "main_grads": _gradients,
    "main_params": lambda priced, _: priced.main_params,
    "fp8_param_gather": lambda priced, precision: _ON[priced.fp8_param_gather and precision in REDUCED],
    "loss": lambda priced, _: priced.loss,
    "loss_block": lambda priced, _: f"{priced.loss_block} tokens" if priced.loss_block else "whole",
    "expert_capacity": lambda priced, _: f"{priced.expert_capacity:g}" if priced.expert_capacity else "unlimited",
    "dropout": lambda priced, _: _ON[priced.dropout],
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
    own = {name: word(usual.at(precision), precision) for name, word in _PRICED.items()} | _own(target, precision)
    wanted = {name: word(priced, precision) for name, word in _PRICED.items()}
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
