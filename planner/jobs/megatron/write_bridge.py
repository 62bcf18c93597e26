"""Megatron-Bridge: overrides of a recipe's configuration, in the words of Megatron-Core's own fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from costmodels.model.catalogue import names
from costmodels.model.model import Model
from planner.jobs.changed import dispatch_of
from planner.jobs.job import Export, Job, refuse
from planner.jobs.launchers import shell
from planner.jobs.megatron.write_savers import chosen_of, saver_arguments, savers_unsaid, shards_by_itself
from planner.jobs.megatron.write_words import megatron_arguments, unsaid

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
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "pipeline_model_parallel_layout",
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "recompute_modules",
    "cp_comm_type",
    "hierarchical_context_parallel_sizes",
    "moe_token_dispatcher_type",
    "moe_flex_dispatcher_backend",
    "moe_expert_capacity_factor",
    "moe_pad_expert_input_to_capacity",
    "fine_grained_activation_offloading",
    "offload_modules",
)
"""Fields of the model that are named as Megatron-LM's arguments are."""
_LISTS: Final = frozenset({"recompute_modules", "hierarchical_context_parallel_sizes", "offload_modules"})
_OPTIMIZER: Final = (
    *("optimizer", "use_precision_aware_optimizer", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"),
    *("optimizer_cpu_offload", "optimizer_offload_fraction", "overlap_cpu_optimizer_d2h_h2d"),
)
"""Fields of the optimizer that are named likewise; formats are read back by ``str_to_dtype``."""
_DATA_VALUES: Final = ("data_parallel_sharding_strategy", "num_distributed_optimizer_instances")
_DATA: Final = ("use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather", "use_megatron_fsdp")


def bridge(job: Job, version: str) -> Export:
    """Overrides for ``run_recipe``, as of Megatron-Bridge 0.6.

    Raises:
        Inexpressible: Megatron-Core lacks a part of the plan.
    """
    lacks = (*unsaid(job.strategy, experts=job.model.moe is not None), *savers_unsaid(job.strategy, job.plan.request))
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
    strategy = job.strategy
    at = _as_fields(job)
    model: dict[str, Any] = {name: at[name] for name in _MODEL if name in at}
    if strategy.vpp > 1 and "pipeline_model_parallel_layout" not in at:
        model["virtual_pipeline_model_parallel_size"] = strategy.vpp
    if "microbatch_group_size_per_virtual_pipeline_stage" in at:
        model["microbatch_group_size_per_vp_stage"] = at["microbatch_group_size_per_virtual_pipeline_stage"]
    precision = {"mixed_precision": _MIXED[job.precision]} if job.precision in _MIXED else {}
    data: dict[str, Any] = {name: True for name in _DATA if name in at}
    data |= {name: at[name] for name in _DATA_VALUES if name in at}
    return (
        {f"model.{name}": value for name, value in model.items()}
        | {"model.sequence_parallel": strategy.sequence_parallel, "model.seq_length": job.seq_length}
        | {"train.micro_batch_size": strategy.micro_batch_size, "train.global_batch_size": strategy.global_batch_size}
        | {f"ddp.{name}": value for name, value in data.items()}
        | {f"optimizer.{name}": at[name] for name in _OPTIMIZER if name in at}
        | (
            {}
            if job.priced and job.priced.switches.dropout
            else {"model.attention_dropout": 0.0, "model.hidden_dropout": 0.0}
        )
        | ({"dist.use_tp_pp_dp_mapping": True} if "use_tp_pp_dp_mapping" in at else {})
        | _adapters(job)
        | precision
    )


def _adapters(job: Job) -> dict[str, Any]:
    """Fields of ``megatron.bridge.peft.lora.LoRA``."""
    found = job.adapters
    return {"peft.dim": found.rank, "peft.target_modules": list(found.modules)} if found else {}


def _as_fields(job: Job) -> dict[str, Any]:
    """Megatron-LM's arguments of the strategy by field: numbers, text, lists, or True."""
    request = job.plan.request
    words, _ = megatron_arguments(
        job.strategy,
        precision="fp32",
        experts=job.model.moe is not None,
        mtp_layers=job.model.mtp_layers,
        expert_capacity=chosen_of(request, "expert_capacity"),
        dispatch=dispatch_of(request),
        by_itself=shards_by_itself(request),
    )
    words = [*words, *saver_arguments(job.strategy, request)[0]]
    found: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            found[name] = [] if name in _LISTS else True
        elif name in _LISTS:
            found[name].append(int(word) if word.isdecimal() else word)
        else:
            found[name] = int(word) if word.isdecimal() else word
    return found


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return f"'{value}'" if isinstance(value, str) and "|" in value else str(value)
