"""What ``--set`` changed of the stack or the model, and which of it a target's files say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.model import Model
from costmodels.stack import Stack, stack, stack_names
from planner.changes import changed_stack, written
from planner.inline import stack_of

_MODEL: Final = tuple(f"model.{name}" for name in Model.model_fields)
_CARRIED: Final[Mapping[str, tuple[str, ...]]] = {
    "megatron-lm": (
        *("stack.overlap.tp_forward", "stack.tensor-parallel-overlap", "stack.overlap.ep"),
        *("stack.cuda_graphs", "stack.graphs", "stack.dispatch"),
        *_MODEL,
    ),
    "nanotron": (
        *("model.hidden_size", "model.ffn_hidden_size", "model.num_layers", "model.num_heads"),
        *("model.num_query_groups", "model.tied_embeddings", "model.vocab_size"),
    ),
}
"""Paths that a target's files say, or remark on; other targets name the model, or leave it to the reader."""


def assumed_stack(request: Mapping[str, Any]) -> Stack | None:
    """The stack that was priced, changes and all; None where the answer holds only a name that the catalogue lacks.

    Args:
        request: the resolved request of an answer.
    """
    given, changes = request.get("stack"), request.get("changes") or {}
    if isinstance(given, Mapping):
        return changed_stack(stack_of(given), changes)
    return changed_stack(stack(given), changes) if given in stack_names() else None


def dispatch_of(request: Mapping[str, Any]) -> str:
    """How the stack sends tokens to experts; one that the catalogue lacks, in Megatron's usual way."""
    assumed = assumed_stack(request)
    return assumed.dispatch if assumed else "every-copy"


def carries(target: str, path: str) -> bool:
    """Whether a target's files say, or remark on, what is changed at a path."""
    return path in _CARRIED.get(target, ())


def uncarried(request: Mapping[str, Any], target: str) -> tuple[str, ...]:
    """The remark on changes that a target's files do not make; none where they make all of them."""
    changes: Mapping[str, Any] = request.get("changes") or {}
    said = [f"{path}={written(value)}" for path, value in changes.items() if not carries(target, path)]
    if not said:
        return ()
    return (f"priced with {', '.join(said)}, which these files for {target} do not carry",)
