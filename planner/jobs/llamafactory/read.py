"""LLaMA-Factory's recipes and command lines as questions, as of LLaMA-Factory 0.9."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from planner.jobs.imported import ImportedJob
from planner.jobs.options import number, text
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch
from planner.jobs.transformers.arguments import started
from planner.jobs.transformers.options import EFFECTS, HARMLESS, training_options
from planner.jobs.transformers.read import command_job, command_of, file_job, names_in
from planner.jobs.transformers.trainer import Trainer, zero
from planner.jobs.values import truth, words

_KEYS: Final = frozenset({"finetuning_type", "cutoff_len", "lora_target", "pref_loss", "flash_attn"})
OPTIONS: Final = training_options(
    number("cutoff_len", "seq_length", older=("model_max_length", "max_length")),
    text("flash_attn", "attention"),
    number("lora_rank", "rank", least=0),
    text("lora_target", "targets"),
)
_OPTIMIZERS: Final = {
    "use_galore": "galore", "use_apollo": "apollo", "use_badam": "badam", "use_adam_mini": "adam_mini",
    "use_muon": "muon",
}  # fmt: skip
"""Switches that stand above ``optim``."""
_PAIRED: Final = frozenset({"orpo", "simpo"})
_EFFECTS: Final = {
    **EFFECTS,
    "mixture_of_depths": "some tokens skip some layers: less computation",
    "shift_attn": "attention in groups: less computation",
    "use_llama_pro": "only the added layers train: less memory",
    "upcast_layernorm": "norms in fp32: a longer iteration",
    "upcast_lmhead_output": "logits in fp32: more memory",
    "use_kt": "experts are computed on the hosts",
    "use_mca": "Megatron-Core trains in place of Transformers",
    "use_v1_kernels": "fused kernels: a shorter iteration",
    "fp8": "matrix products in 8 bits: a shorter iteration",
    "resize_vocab": "a few more rows of the vocabulary",
    "image_max_pixels": "images become tokens of a vision tower: more time and memory",
    "video_max_pixels": "videos become tokens of a vision tower: more time and memory",
    "freeze_language_model": "the language model is frozen: less memory",
}
_HARMLESS: Final = HARMLESS + words("""
    adapter_* add_* apollo_* audio_* badam_* buffer_* cache_path compute_accuracy create_new_adapter crop_to_patches
    data_shared_file_system dataset_* default_* disable_gradient_checkpointing disable_shuffling do_sample
    double_quantization dpo_* early_stopping_steps enable_thinking enable_torch_* eval_on_each_dataset export_*
    finetuning_type fp8_* freeze_* galore_* hf_hub_token ignore_pad_token_for_loss image_*
    include_effective_tokens_per_second infer_* init_special_* interleave_* kto_* loraplus_* mask_history
    max_samples media_* mix_* moe_aux_loss_coef ms_hub_token new_special_* offload_folder oft_* om_hub_token
    overwrite_* pissa_* plot_loss ppo_* predict_with_generate pref_* preprocessing_* print_param_status profiler_*
    pure_bf16 push_to_hub* quantization_device_map quantization_method quantization_type ray_* ref_model* resize_*
    reward_model* rope_scaling simpo_* split_special_* stage streaming swanlab* template tokenized_* tool_*
    train_on_prompt use_asft_loss use_audio_in_video use_dft_loss use_eaft_loss use_kv_cache use_reentrant_gc
    use_rslora use_swanlab val_size video_* vllm_*
""")


def _translated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options that stand for others here: recomputation is on unless it is disabled, and adapters train unless said."""
    made: dict[str, Any] = {"finetuning_type": "lora", "lora_target": "all"}
    made |= {name: value for name, value in values.items() if name not in _OPTIMIZERS}
    made["gradient_checkpointing"] = not truth(values.get("disable_gradient_checkpointing", False))
    if truth(values.get("pure_bf16", False)):
        made |= {"bf16": True, "dtype": "bfloat16"}
    chosen = next((name for switch, name in _OPTIMIZERS.items() if truth(values.get(switch, False))), None)
    made |= {"optim": chosen} if chosen else {}
    loss = str(values.get("pref_loss", "")).lower()
    return made | ({"stage": loss} if made.get("stage") == "dpo" and loss in _PAIRED else {})


LLAMA_FACTORY: Final = Trainer(
    "LLaMA-Factory",
    OPTIONS,
    harmless=_HARMLESS,
    effects=_EFFECTS,
    double=True,
    precision="bf16",
    weights="masters",
    adapters="unless",
    recompute=True,
    seq_length=2048,
    deepspeed={
        "ds_z0_config": zero(0),
        "ds_z2_config": zero(2, reduce_bucket_size=5e8),
        "ds_z2_offload_config": zero(2, offload=True, reduce_bucket_size=5e8),
        "ds_z3_config": zero(3, overlap_comm=False, reduce_bucket_size="auto"),
        "ds_z3_offload_config": zero(3, offload=True, overlap_comm=False, reduce_bucket_size="auto"),
    },
    translated=_translated,
)


def _recognises(launch: Launch) -> bool:
    program = Path(started(launch.words).program).name
    return program in {"llamafactory-cli", "lmf"} or bool(names_in(launch) & {"finetuning_type", "cutoff_len"})


def _read(launch: Launch, context: Context) -> ImportedJob:
    start = started(launch.words)
    words = start.words[1:] if start.words[:1] == ("train",) else start.words
    return command_job(launch, context, LLAMA_FACTORY, command=command_of(launch, context, LLAMA_FACTORY, words))


def _recognises_file(file: JobFile) -> bool:
    keys = set(file.document or ())
    return bool(keys & _KEYS) and "model_name_or_path" in keys


def _read_file(file: JobFile, context: Context) -> ImportedJob:
    return file_job(file, context, LLAMA_FACTORY)


READERS: Final = (
    CommandReader("llamafactory", "a command line of LLaMA-Factory", "", _recognises, _read),
    DocumentReader("llamafactory", "a recipe of LLaMA-Factory", "", _recognises_file, _read_file),
)
