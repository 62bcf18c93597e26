"""What fields and axes are called beside their own names; imports next to nothing, for a quick start."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from planner.errors import BadRequest

ALIASES: Final = {
    "global_batch": "global_batch_size",
    "global_batches": "global_batch_size",
    "seq_len": "seq_length",
    "seq_lens": "seq_length",
    "for": "framework",
    "lora": "adapters",
    "set": "changes",
    "moe_expert_capacity_factor": "expert_capacity",
    "main_grads_dtype": "main_grads",
    "main_params_dtype": "main_params",
    "micro_batch": "micro_batch_size",
    "zero": "zero_stage",
    "cp_comm_type": "cp_kind",
    "recompute_granularity": "recompute",
    "num_virtual_stages_per_pipeline_rank": "vpp",
    "tensor_model_parallel_size": "tp",
    "context_parallel_size": "cp",
    "pipeline_model_parallel_size": "pp",
    "data_parallel_size": "dp",
    "expert_model_parallel_size": "ep",
    "expert_tensor_parallel_size": "etp",
}
"""Words of the command line and of studies, and the name of the field or the axis."""


def own_name(word: str) -> str:
    """What a field or an axis is called in files, of whatever people call it."""
    plain = word.replace("-", "_")
    return ALIASES.get(plain, plain)


def respelled(table: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The table with the known fields under their own names.

    Raises:
        BadRequest: a field is there under two names.
    """
    found: dict[str, Any] = {}
    said: dict[str, str] = {}
    for word, value in table.items():
        name = word if word in known or own_name(str(word)) not in known else own_name(str(word))
        if name in found:
            raise BadRequest(f"{said[name]} and {word} say the same thing twice; give one of them")
        found[name], said[name] = value, str(word)
    return found
