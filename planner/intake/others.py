"""DeepSpeed's JSON and torchtitan's TOML as questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.errors import BadRequest
from planner.export.torchtitan_words import PARAMETERS, SCHEDULES
from planner.intake.given import Asked, Given, said, tables

_MODELS: Final = {
    ("llama3", "8B"): "llama3-8b",
    ("llama3", "70B"): "llama3-70b",
    ("llama3", "405B"): "llama3.1-405b",
    ("deepseek_v3", "671B"): "deepseek-v3",
}
_SIXTEEN: Final = {"float32": "fp32"}
_ROTATIONS: Final = {"allgather": "all-gather", "alltoall": "p2p"}
_SHARDED: Final = 2
_OFFLOADED: Final = ("offload_optimizer", "offload_param")
_PLACES: Final = ("cpu", "none", None)
_HARMLESS: Final = (
    r"optimizer|scheduler|gradient_clipping|steps_per_print|wall_clock_breakdown|tensorboard|wandb|csv_monitor|comet|"
    r"flops_profiler|comms_logger|zero_allow_untested_optimizer|dump_state|memory_breakdown|checkpoint|aio|"
    r"prescale_gradients|gradient_predivide_factor|data_types|zero_force_ds_cpu_optimizer|elasticity|data_parallel_size"
)
"""Keys of DeepSpeed that change no price."""
_OF_RUN: Final = (
    r"dataset.*|max_norm|steps|gc_.*|deterministic|seed|debug.*|data_parallel_replicate_degree|disable_loss_parallel"
)
"""Keys of torchtitan's ``training`` and ``parallelism`` that change no price."""
_OVERLAPPED: Final = (
    r".*bucket_size|.*bucket_elements|overlap_comm|contiguous_gradients|reduce_scatter|allgather_partitions|stage3_.*|"
    r"sub_group_size|round_robin_gradients|ignore_unused_parameters|elastic_checkpoint"
)
"""Keys of its ``zero_optimization`` that are priced as the stack has them."""


def deepspeed_job(document: Mapping[str, Any]) -> Given:
    """The job of a DeepSpeed configuration; it knows neither model nor machines.

    Raises:
        BadRequest: it has no key of DeepSpeed.
    """
    if not {"zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu"} & set(document):
        raise BadRequest("no key of DeepSpeed in it, such as zero_optimization")
    document = Asked(document)
    zero, tensor, bf16, fp16 = map(Asked, tables(document, "zero_optimization", "tensor_parallel", "bf16", "fp16"))
    host, parameters = (
        _on_host(name, table) for name, table in zip(_OFFLOADED, tables(zero, *_OFFLOADED), strict=True)
    )
    precision = "bf16" if bf16.get("enabled") else "fp16" if fp16.get("enabled") else "fp32"
    fields = said(
        global_batch_size=_whole(document, "train_batch_size"),
        precision=precision,
        offload_fraction=next(tables(zero, "offload_optimizer")).get("ratio"),
    )
    pins = said(
        micro_batch_size=_whole(document, "train_micro_batch_size_per_gpu"),
        zero_stage=zero.get("stage", 0),
        tp=tensor.get("autotp_size") or 1,
        cp=document.get("sequence_parallel_size", 1),
        cp_kind="a2a" if document.get("sequence_parallel_size", 1) > 1 else None,
        sequence_parallel="false",
        offload="optimizer+parameters" if parameters else "optimizer" if host else "none",
    )
    steps = _whole(document, "gradient_accumulation_steps")
    pins |= {"steps": steps} if steps and "global_batch_size" not in fields else {}
    remarks = (*document.unread(_HARMLESS), *zero.unread(_OVERLAPPED, prefix="zero_optimization."))
    return Given(fields, pins, remarks=remarks)


def _on_host(name: str, table: Mapping[str, Any]) -> bool:
    """Whether states are kept in the hosts' memory."""
    place = table.get("device")
    if place not in _PLACES:
        raise BadRequest(f"zero_optimization.{name}.device: {place!r:.40} is not priced; cpu and none are")
    return place == "cpu"


def _whole(document: Mapping[str, Any], name: str) -> int | None:
    value = document.get(name)
    return value if isinstance(value, int) else None


def torchtitan_job(document: Mapping[str, Any]) -> Given:
    """The job of a torchtitan TOML, as of 0.2.

    Raises:
        BadRequest: it has no table of torchtitan.
    """
    if not {"parallelism", "training"} & set(document):
        raise BadRequest("no table of torchtitan in it, such as [parallelism]")
    names = ("model", "training", "parallelism", "activation_checkpoint")
    model, training, parallel, again = map(Asked, tables(document, *names))
    pp, local = parallel.get("pipeline_parallel_degree", 1), training.get("local_batch_size", 8)
    cp, shard = parallel.get("context_parallel_degree", 1), parallel.get("data_parallel_shard_degree", -1)
    schedule = str(parallel.get("pipeline_parallel_schedule", "1F1B")).lower()
    ours = next((name for name, theirs in SCHEDULES.items() if theirs.lower() == schedule), schedule)
    ep, etp = (parallel.get(f"expert{name}_parallel_degree", 1) for name in ("", "_tensor"))
    parts = parallel.get("module_fqns_per_model_part")
    kept = parallel.get("fsdp_reshard_after_forward", "default")
    sharded = shard != 1 or cp > 1
    whole = kept == "always" or (kept == "default" and pp == 1)
    pins = said(
        tp=parallel.get("tensor_parallel_degree", 1),
        cp=cp,
        pp=pp,
        vpp=len(parts) // pp if parts and pp > 1 else None,
        ep=ep,
        etp=etp if ep > 1 else 1,
        micro_batch_size=parallel.get("pipeline_parallel_microbatch_size", 1) if pp > 1 else local,
        schedule=ours if pp > 1 else "none",
        cp_kind=_ROTATIONS.get(parallel.get("context_parallel_rotate_method", "allgather")) if cp > 1 else None,
        zero_stage=0 if not sharded else PARAMETERS if whole else _SHARDED,
        sharding_degree=shard * cp if sharded and shard > 0 else None,
        recompute=again.get("mode", "selective"),
        offload="optimizer+parameters" if training.get("enable_cpu_offload") else "none",
    )
    batch = training.get("global_batch_size", -1)
    fields = said(
        model=_MODELS.get((str(model.get("name")), str(model.get("flavor")))),
        global_batch_size=batch if batch > 0 else None,
        seq_length=training.get("seq_len"),
        precision=_converted(document, model) or _SIXTEEN.get(training.get("mixed_precision_param"), "bf16"),
    )
    layers = _layers(parts, pp) if parts and ours not in {"zb-v", "dualpipe-v"} else None
    found = zip((training, parallel), names[1:], strict=False)
    return Given(fields, pins, layers, sum((table.unread(_OF_RUN, prefix=f"{name}.") for table, name in found), ()))


def _converted(document: Mapping[str, Any], model: Asked) -> str | None:
    """The format of the products that a converter of the model makes, None without one."""
    linear = (document.get("quantize") or {}).get("linear") or {}
    converters = model.get("converters", [])
    if "quantize.linear.mx" in converters:
        return "mxfp8"
    if "quantize.linear.float8" not in converters:
        return None
    recipe = str((linear.get("float8") or {}).get("recipe_name") or "tensorwise")
    return "fp8-rowwise" if recipe.startswith("rowwise") else "fp8-current"


def _layers(parts: list[list[str]], pp: int) -> tuple[int, ...]:
    held = [sum(name.startswith("layers.") for name in part) for part in parts]
    return tuple(sum(held[stage::pp]) for stage in range(pp))
