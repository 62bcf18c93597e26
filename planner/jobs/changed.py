"""The stack that was priced; what ``--set`` changed of it or of the model, and which of it a target's files say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from costmodels.model.model import Model
from costmodels.stack.choices import chosen
from costmodels.stack.stack import Stack, stack, stack_names
from planner.request.overrides import changed_stack, written
from planner.request.request import CHOICES
from planner.request.tables import stack_of

_MODEL: Final = tuple(f"model.{name}" for name in Model.model_fields)
_CARRIED: Final[Mapping[str, tuple[str, ...]]] = {
    "megatron-lm": (
        *("stack.overlap.tp_forward", "stack.tensor-parallel-overlap", "stack.overlap.ep"),
        *("stack.cuda_graphs", "stack.cuda_graph_scope", "stack.dispatcher", "stack.offload_fraction"),
        *("stack.optimizer", "stack.main_params", "stack.fp8_param_gather", "stack.expert_capacity"),
        *(
            "stack.supports.zero_stages",
            "stack.sharding.state_copies",
        ),  # Megatron-FSDP, which a strategy's own stage asks for
        *_MODEL,
    ),
    "megatron-bridge": ("stack.dispatcher", "stack.offload_fraction"),
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
    whole = chosen(changed, **{name: request[name] for name in CHOICES if request.get(name) is not None})
    capacity = request.get("expert_capacity")
    return whole if capacity is None else whole.changed({"switches.expert_capacity": capacity})


def _named_stack(given: object) -> Stack | None:
    if isinstance(given, Mapping):
        return stack_of(given)
    known = isinstance(given, str) and given.partition("@")[0] in stack_names()
    return stack(str(given)) if known else None


def dispatch_of(request: Mapping[str, Any]) -> str:
    """How the stack sends tokens to experts; one that the catalogue lacks, in Megatron's usual way."""
    assumed = assumed_stack(request)
    return assumed.switches.dispatcher if assumed else "alltoall"


def carries(target: str, path: str) -> bool:
    """Whether a target's files say, or remark on, what is changed at a path."""
    return path in _CARRIED.get(target, ())


def uncarried(request: Mapping[str, Any], target: str, *, said: Collection[str] = ()) -> tuple[str, ...]:
    """Changes that a target's files do not make, as they were given; fields of the stack that they say are left out."""
    changes: Mapping[str, Any] = request.get("changes") or {}
    known = {f"stack.{name}" for name in said}
    left = {path: new for path, new in changes.items() if path not in known and not carries(target, path)}
    return tuple(f"{path}={written(new)}" for path, new in left.items())
