"""verl on FSDP, its usual engine: overrides of the actor's training, and of supervised fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any, Final

from costmodels.stack.finetune import GENERATING
from planner.jobs.data import words
from planner.jobs.imported import ImportedJob
from planner.jobs.options import present
from planner.jobs.reader import CommandReader, Context, Launch
from planner.jobs.shell.processes import processes
from planner.jobs.transformers.arguments import Started
from planner.jobs.transformers.options import EFFECTS, OPTIONS
from planner.jobs.transformers.read import Command, command_job
from planner.jobs.transformers.trainer import Trainer
from planner.jobs.values import truth, whole
from planner.jobs.verl.overrides import ACTOR, LENGTHS, MODEL, SAMPLES, pairs_of

_SFT: Final = ("verl.trainer.fsdp_sft_trainer", "verl.trainer.sft_trainer")
_OF_ACTOR: Final = {
    f"{MODEL}path": "model_name_or_path",
    f"{MODEL}enable_gradient_checkpointing": "gradient_checkpointing",
    f"{MODEL}lora_rank": "lora_r",
    f"{MODEL}target_modules": "lora_target_modules",
    f"{MODEL}use_liger": "use_liger_kernel",
    f"{MODEL}use_remove_padding": "packing",
    f"{ACTOR}ulysses_sequence_parallel_size": "sequence_parallel_size",
    f"{ACTOR}fsdp_config.ulysses_sequence_parallel_size": "sequence_parallel_size",
    f"{ACTOR}fsdp_config.model_dtype": "dtype",
    f"{ACTOR}fsdp_config.offload_policy": "offload_policy",
    f"{ACTOR}fsdp_config.optimizer_offload": "optimizer_offload",
    f"{ACTOR}fsdp_config.param_offload": "param_offload",
    f"{ACTOR}fsdp_config.reshard_after_forward": "reshard",
    f"{ACTOR}fsdp_config.fsdp_size": "fsdp_size",
    f"{ACTOR}ppo_mini_batch_size": "batch",
    f"{ACTOR}ppo_micro_batch_size_per_gpu": "per_device_train_batch_size",
    f"{ACTOR}ppo_micro_batch_size": "micro_of_all",
    f"{ACTOR}use_dynamic_bsz": "use_dynamic_bsz",
    f"{ACTOR}use_kl_loss": "use_kl_loss",
    f"{MODEL}use_fused_kernels": "use_fused_kernels",
}
_OF_SFT: Final = {
    "model.partial_pretrain": "model_name_or_path",
    "model.path": "model_name_or_path",
    "model.enable_gradient_checkpointing": "gradient_checkpointing",
    "model.lora_rank": "lora_r",
    "model.target_modules": "lora_target_modules",
    "model.use_liger": "use_liger_kernel",
    "model.fsdp_config.model_dtype": "dtype",
    "model.fsdp_config.cpu_offload": "offload_policy",
    "use_remove_padding": "packing",
    "ulysses_sequence_parallel_size": "sequence_parallel_size",
    "data.max_length": "max_length",
    "data.train_batch_size": "batch",
    "data.micro_batch_size_per_gpu": "per_device_train_batch_size",
    "data.micro_batch_size": "micro_of_all",
}
"""Words of Transformers, or of the tables here, by the path of an override."""
_SEQUENCES, _PARTS, _WHOLE, _MICRO = 256, (512, 512), 1024, 4
"""Of a batch, tokens of prompt and response or of a whole sequence, and sequences that a device tunes on at a time."""
_TRAINER: Final = Trainer(
    "verl",
    OPTIONS,
    harmless=words("batch* micro_of_all offload_policy reshard fsdp_size fsdp fsdp_config"),
    effects={
        **EFFECTS,
        "optimizer_offload": "optimizer states are on the host during rollouts, not while the actor trains",
        "param_offload": "parameters are on the host during rollouts, not while the actor trains",
        "use_kl_loss": "a reference model's forward pass comes beside: more memory and time",
        "use_dynamic_bsz": "micro-batches hold as many tokens as fit, whole sequences of one size are priced",
        "use_fused_kernels": "a fused loss: less memory",
    },
    precision="bf16",
    adapters="asked",
    recompute=True,
)


def _program(launch: Launch) -> str:
    return next((word for word in launch.words if word.startswith(("verl.", "recipe.")) or "main_ppo" in word), "")


def _recognises(launch: Launch) -> bool:
    pairs = pairs_of(launch)
    sft = _program(launch) in _SFT and any(name.startswith(("data.", "model.")) for name in pairs)
    actor = any(name.startswith((ACTOR, MODEL)) for name in pairs)
    return sft or (actor and not any(".megatron." in name for name in pairs))


def _read(launch: Launch, context: Context) -> ImportedJob:
    pairs, program = pairs_of(launch), _program(launch)
    sft = program in _SFT
    made: dict[str, Any] = {
        name: pairs[path] for path, name in (_OF_SFT if sft else _OF_ACTOR).items() if path in pairs
    }
    gpus = processes(launch) if sft else prod(whole(pairs.get(f"trainer.{of}")) or usual for of, usual in _NODES)
    batch = _batch(made, pairs, gpus, sft=sft)
    made |= {"bf16": True, "attn_implementation": "flash_attention_2", "fsdp": "full_shard", **_fsdp(made)}
    if whole(made.get("lora_r")):
        made |= {"use_peft": True, "lora_target_modules": made.get("lora_target_modules", "all-linear")}
    estimator = pairs.get("algorithm.adv_estimator", "ppo").lower()
    task = "finetune" if sft else estimator if estimator in GENERATING else "ppo"
    start = Started((*launch.words[:1], "-m"), program, launch.words[1:])
    job = command_job(launch, context, _TRAINER, command=Command(start, made, None), task=task)
    degree = whole(made.get("fsdp_size")) or -1
    pins = {name: pin for name, pin in job.pins.items() if name != "steps"}
    pins |= present(sharding_degree=degree if degree > 1 and degree != gpus else None)
    split = job.pins.get("cp", 1) > 1  # as DeepSpeed's Ulysses does, for which Accelerate's FSDP has no rules
    pins |= {"cp_kind": "a2a"} if split else {}
    fields = {**job.fields, **present(global_batch_size=batch, gpus=gpus)}
    return replace(job, fields=fields, pins=pins, framework=None if split else job.framework)


_NODES: Final = (("nnodes", 1), ("n_gpus_per_node", 8))


def _batch(made: dict[str, Any], pairs: Mapping[str, str], gpus: int | None, *, sft: bool) -> int:
    """Sequences of an iteration; those of a device, and the tokens of one, are put among the options."""
    each = 1 if sft else whole(pairs.get(SAMPLES)) or 1
    sequences = (whole(made.get("batch")) or _SEQUENCES) * each
    replicas = max(1, (gpus or 1) // (whole(made.get("sequence_parallel_size")) or 1))
    if (of_all := whole(made.get("micro_of_all"))) and gpus:
        made.setdefault("per_device_train_batch_size", max(1, of_all // replicas))
    made.setdefault("per_device_train_batch_size", _MICRO if sft else 1)
    if sft:
        made.setdefault("max_length", _WHOLE)
    else:
        parts = zip(LENGTHS, _PARTS, strict=True)
        made["max_length"] = sum(whole(pairs.get(name)) or usual for name, usual in parts)
    return sequences


def _fsdp(made: Mapping[str, Any]) -> dict[str, Any]:
    """Transformers' words for how FSDP shards and offloads."""
    kept = truth(made.get("reshard", True)) is False
    words_ = ["shard_grad_op" if kept else "full_shard"]
    return {"fsdp": " ".join([*words_, *(["offload"] if truth(made.get("offload_policy", False)) else [])])}


READERS: Final = (CommandReader("verl", "overrides of verl on FSDP", "", _recognises, _read),)
