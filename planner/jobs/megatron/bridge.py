"""Megatron-Bridge: overrides of a recipe's configuration, in the words of Megatron-Core's own fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from costmodels.model.catalogue import names
from costmodels.model.model import Model
from planner.jobs.job import Export, Job, refuse
from planner.jobs.launchers import shell
from planner.jobs.megatron.options import OPTIONS
from planner.jobs.megatron.write import strategy_lacks, strategy_values
from planner.jobs.megatron.write_stack import state_lacks, state_values

FILE: Final = "bridge-overrides.sh"
_MIXED: Final = {
    "bf16": "bf16_mixed",
    "fp16": "fp16_mixed",
    "fp8": "bf16_with_fp8_delayed_scaling_mixed",
    "fp8-current": "bf16_with_fp8_current_scaling_mixed",
    "fp8-block": "bf16_with_fp8_subchannel_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
_WIDE_ENDS: Final = frozenset({"fp8-current"})
"""Recipes that leave layers at the ends of the model in 16 bits (``first_last_layers_bf16``)."""
_MODEL: Final = (
    *("tp", "pp", "cp", "ep", "etp", "layout", "recompute", "recompute_method", "recompute_num_layers"),
    *("recompute_modules", "cp_kind", "hierarchical_context_parallel_sizes", "dispatch", "moe_flex_dispatcher_backend"),
    *("expert_capacity", "moe_pad_expert_input_to_capacity", "fine_grained_activation_offloading", "offload_modules"),
)
_DATA: Final = (
    *("use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather", "use_megatron_fsdp"),
    *("zero_stage", "copies"),
)
_OPTIMIZER: Final = (
    *("optimizer", "use_precision_aware_optimizer", "main_params", "moments", "second_moments"),
    *("optimizer_cpu_offload", "offload_fraction", "overlap_cpu_optimizer_d2h_h2d"),
)
"""Fields of Megatron-LM's options by the part of a recipe that has them under the same name; formats of the optimizer
are read back by ``str_to_dtype``."""


CARRIED: Final = (
    "optimizer",
    "main_params",
    "expert_capacity",
    "dropout",
    "stack.dispatcher",
    "stack.offload_fraction",
)
"""Choices and paths of changes that its overrides have."""


def bridge(job: Job, version: str) -> Export:
    """Overrides for ``run_recipe``, as of Megatron-Bridge 0.6.

    Raises:
        Inexpressible: Megatron-Core lacks a part of the plan.
    """
    strategy, request = job.strategy, job.plan.request
    lacks = (*strategy_lacks(strategy, request), *state_lacks(strategy, request))
    refuse("megatron-bridge cannot start this plan:", ((True, lack) for lack in lacks))
    words = [f"{name}={_value(value)}" for name, value in overrides(job).items()]
    remarks = tuple(_remarks(job))
    lines = [*shell.header(f"Megatron-Bridge {version}"), *shell.remarks(remarks)]
    text = shell.text(lines, shell.array("BRIDGE_OVERRIDES", words))
    return Export(files={FILE: text}, program=("run_recipe.py", *words), remarks=remarks)


def _remarks(job: Job) -> Iterator[str]:
    if job.model.name in names():
        yield "the recipe brings model and data; give its dataset the same sequence length"
    else:
        lack = f"no recipe brings {job.model.name}, which the catalogue does not hold: take one of a model of its kind"
        yield f"{lack}, give it {' '.join(_sizes(job.model))}, and its dataset the same sequence length"
    if job.stack.startswith("nemo"):
        yield "overlap of tensor and expert ranks, and CUDA graphs, are a performance recipe's: override one of those"
    if job.precision in _WIDE_ENDS:
        yield f"{_MIXED[job.precision]} leaves the first and the last layer in bf16, the plan none"
    if job.adapters:
        yield "adapters want a recipe that has some: --mode lora"


def _sizes(model: Model) -> Iterator[str]:
    """What a recipe of another model has otherwise, in the fields of Megatron-Core."""
    fields = {"num_layers": model.num_layers, "hidden_size": model.hidden_size}
    fields |= {"ffn_hidden_size": model.ffn_hidden_size, "num_attention_heads": model.num_heads}
    fields |= {"num_query_groups": model.num_query_groups, "vocab_size": model.vocab_size}
    if moe := model.moe:
        fields |= {"num_moe_experts": moe.num_experts, "moe_router_topk": moe.top_k}
        fields |= {"moe_ffn_hidden_size": moe.expert_ffn_hidden_size}
    return (f"model.{name}={size}" for name, size in fields.items())


def overrides(job: Job) -> dict[str, Any]:
    """Every override by its dotted name."""
    strategy, request = job.strategy, job.plan.request
    values = strategy_values(strategy, request)[0] | state_values(strategy, request)[0]
    undropped = {} if job.switches.dropout else {"attention_dropout": "0.0", "hidden_dropout": "0.0"}
    chunks = {"virtual_pipeline_model_parallel_size": strategy.vpp} if strategy.vpp > 1 else {}
    model = _part(values, _MODEL) | ({} if "layout" in values else chunks)
    model |= {"microbatch_group_size_per_vp_stage": values["chunk_group"]} if "chunk_group" in values else {}
    model |= {"sequence_parallel": strategy.sequence_parallel, "seq_length": job.seq_length}
    batch = {name: values[name] for name in ("micro_batch_size", "global_batch_size")}
    found = [("model", model), ("train", batch), ("ddp", _part(values, _DATA))]
    found += [("optimizer", _part(values, _OPTIMIZER)), ("model", undropped)]
    found += [("dist", {"use_tp_pp_dp_mapping": True} if values["use_tp_pp_dp_mapping"] else {})]
    precision = {"mixed_precision": _MIXED[job.precision]} if job.precision in _MIXED else {}
    return (
        {f"{part}.{name}": value for part, named in found for name, value in named.items()} | _adapters(job) | precision
    )


def _part(values: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    """Values of some fields by Megatron-Core's names; what is off is left out."""
    rows = ((OPTIONS[field], values.get(field)) for field in fields)
    return {
        row.word.replace("-", "_"): row.spelled(value)
        for row, value in rows
        if value is not None and value is not False
    }


def _adapters(job: Job) -> dict[str, Any]:
    """Fields of ``megatron.bridge.peft.lora.LoRA``."""
    found = job.adapters
    return {"peft.dim": found.rank, "peft.target_modules": list(found.modules)} if found else {}


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(str, value))}]"
    if isinstance(value, float):
        return f"{value:g}"
    return f"'{value}'" if isinstance(value, str) and "|" in value else str(value)
