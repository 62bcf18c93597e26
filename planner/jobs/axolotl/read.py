"""axolotl's YAML as a question, as of axolotl 0.19."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from planner.jobs.imported import ImportedJob
from planner.jobs.options import flag, number, text
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch
from planner.jobs.transformers.arguments import started
from planner.jobs.transformers.options import EFFECTS, HARMLESS, training_options
from planner.jobs.transformers.read import command_job, command_of, file_job
from planner.jobs.transformers.trainer import Trainer, zero
from planner.jobs.values import truth, whole, words

OPTIONS: Final = training_options(
    text("base_model", "model"),
    number("sequence_len", "seq_length"),
    number("micro_batch_size", "micro_batch_size", 1),
    number("gradient_accumulation_steps", "steps", 1),
    text("optimizer"),
    text("num_epochs", "epochs"),
    text("adapter", "method"),
    flag("sample_packing", "packing"),
    text("rl", "stage"),
    text("attn_implementation", "attention"),
    flag("liger_fused_linear_cross_entropy", "liger", older=("cut_cross_entropy", "chunked_cross_entropy")),
    number("context_parallel_size", "cp", 1, older=("sequence_parallel_degree",)),
    number("dp_shard_size", "shard"),
    number("dp_replicate_size", "replicas"),
)
_ATTENTION: Final = {
    "flash_attention": "flash_attention_2", "eager_attention": "eager", "sdp_attention": "sdpa",
    "xformers_attention": "xformers", "flex_attention": "flex_attention", "sage_attention": "sage",
}  # fmt: skip
"""Switches in place of ``attn_implementation``."""
_EFFECTS: Final = {
    **EFFECTS,
    "activation_offloading": "activations move to the host: less memory, longer passes",
    "layer_offloading": "frozen layers move to the host: less memory, longer passes",
    "unfrozen_parameters": "only some weights train: less memory",
    "lora_mlp_kernel": "fused adapter kernels: a shorter iteration, less memory",
    "lora_qkv_kernel": "fused adapter kernels: a shorter iteration, less memory",
    "lora_o_kernel": "fused adapter kernels: a shorter iteration, less memory",
    "relora": "adapters are merged now and then",
    "tiled_mlp": "feed-forward layers run over parts of the sequence: less memory",
    "fp8": "matrix products in 8 bits: a shorter iteration",
    "qat": "weights are also rounded in each step: more work",
    "lisa_n_layers": "only a few layers train at a time: less memory",
    "deepcompile": "a compiler schedules gathers and kernels: a shorter iteration",
    "eval_sample_packing": "evaluation is not priced",
    "use_kernels": "kernels from the hub replace those of Transformers: a shorter iteration",
    "vllm": "vLLM generates samples, on these GPUs or others: more time and memory",
    "flash_attn_fuse_mlp": "a fused feed-forward layer: a shorter iteration",
    "flash_attn_fuse_qkv": "one matrix product for queries, keys and values: a shorter iteration",
    "liger_rms_norm": "Liger's norms: a little less time and memory",
    "liger_glu_activation": "Liger's activations: a little less time and memory",
    "max_packed_sequence_len": "documents are packed to that length",
    "quantize_moe_experts": "experts in 4 or 8 bits: less memory",
    "experts_implementation": "other kernels of experts",
    "expert_parallel_size": "experts are spread over ranks: less memory, more communication",
    "s2_attention": "attention in groups: less computation",
    "unsloth_lora_mlp": "fused adapter kernels: a shorter iteration, less memory",
    "unsloth_lora_qkv": "fused adapter kernels: a shorter iteration, less memory",
    "unsloth_lora_o": "fused adapter kernels: a shorter iteration, less memory",
    "unsloth_cross_entropy_loss": "a fused loss: less memory",
    "multipack_real_batches": "batches are kept separate",
}
_HARMLESS: Final = HARMLESS + words("""
    adam_* added* auto_resume* axolotl_* base_model_config batch_size base_model_ignore_patterns bfloat16 bnb_*
    chat_template* comet* cosine_* dataloader_* dataset* ddp_* debug default_system_message device_map do_* dpo_*
    early_stopping_patience embeddings_skip_upcast eot_tokens eta_min eval* excess_length* experimental_*
    flash_attn_cross_entropy flash_attn_rms_norm flash_optimum float16 float32 fsdp_final_* fsdp_version
    gc_collect_steps gc_steps gptq* gpu_memory_limit gradient_checkpointing_kwargs group_by_length heads_k_stride
    hf* hub* image_* is_*_derived_model kto_* learning_rate liger_cross_entropy liger_layer_norm liger_rope
    liger_swiglu liger_use_token_scaling load_best* local_rank logging* lora_alpha lora_dropout lora_fan_in_fan_out
    lora_model_dir lora_on_cpu lora_target_linear loraplus* loss_watchdog* lr_* max_grad_norm max_prompt_len
    min_sample_len mlflow* model_config model_type neftune_* noisy_* num_labels orpo_alpha output_dir
    overrides_of_model* pad_to_sequence_len peft peft_* plugins pretraining* processor_type profiler_steps*
    push_dataset_to_hub push_to_hub* qlora_* ray_* reinit_weights remove_unused_columns resize_token_*
    resume_from_checkpoint revision_of_model reward_model ring_attn_func rl_* roles_* sample_packing_* save*
    scaling_softmax* seed shuffle_* skip_prepare_dataset special* split_* streaming strict test_datasets* tokenizer*
    tokens torchdistx_path train_on_inputs trainer_cls trl trust_remote_code type_of_model use_tensorboard use_wandb
    val_set_size wandb* warmup* weight_decay
""")


def _translated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options that stand for others here: switches of attention and of formats, and adapters of every module."""
    made = dict(values)
    for switch, word in _ATTENTION.items():
        if truth(made.pop(switch, False)):
            made.setdefault("attn_implementation", word)
    if str(made.get("bf16", "auto")).lower() in {"auto", "full"} and not truth(made.get("fp16", False)):
        made["bf16"] = True
    if truth(made.get("float32", False)):
        made |= {"dtype": "float32", "bf16": False}
    made["gradient_checkpointing"] = str(made.get("gradient_checkpointing", "false")).lower() not in {
        "false",
        "none",
        "",
    }
    if truth(made.get("lora_target_linear", False)):
        made["lora_target_modules"] = "all-linear"
    batch, micro = (whole(values.get(name)) for name in ("batch_size", "micro_batch_size"))
    if batch and not made.get("gradient_accumulation_steps"):
        made["gradient_accumulation_steps"] = max(1, batch // (micro or 1))
    tasks = {"reward_model": "reward", "pretraining_dataset": "pretrain"}
    made["rl"] = made.get("rl") or next((task for name, task in tasks.items() if values.get(name)), "finetune")
    made.setdefault("adapter", "full")
    return made if made["adapter"] else {**made, "adapter": "full"}


AXOLOTL: Final = Trainer(
    "axolotl",
    OPTIONS,
    harmless=_HARMLESS,
    effects=_EFFECTS,
    double=True,
    precision="bf16",
    weights="products",
    adapters="asked",
    seq_length=512,
    deepspeed={
        "zero1": zero(1, overlap_comm=True),
        "zero1_torch_compile": zero(1, overlap_comm=True),
        "zero2": zero(2, overlap_comm=True),
        "zero2_torch_compile": zero(2, overlap_comm=True),
        "zero3": zero(3, overlap_comm=True, reduce_bucket_size="auto"),
        "zero3_bf16": {**zero(3, overlap_comm=True, reduce_bucket_size="auto"), "bf16": {"enabled": True}},
        "zero3_bf16_cpuoffload_all": {
            **zero(3, offload=True, overlap_comm=True, reduce_bucket_size="auto"), "bf16": {"enabled": True}
        },
    },
    translated=_translated,
)  # fmt: skip


def _recognises(launch: Launch) -> bool:
    start = started(launch.words)
    return Path(start.program).name == "axolotl" or start.program in {"axolotl.cli.train", "scripts/finetune.py"}


def _read(launch: Launch, context: Context) -> ImportedJob:
    start = started(launch.words)
    words = start.words[1:] if start.words[:1] in {("train",), ("preprocess",)} else start.words
    return command_job(launch, context, AXOLOTL, command=command_of(launch, context, AXOLOTL, words))


def _recognises_file(file: JobFile) -> bool:
    keys = set(file.document or ())
    return "base_model" in keys and bool(keys & {"sequence_len", "micro_batch_size", "datasets", "adapter"})


def _read_file(file: JobFile, context: Context) -> ImportedJob:
    return file_job(file, context, AXOLOTL)


READERS: Final = (
    CommandReader("axolotl", "a command line of axolotl", "", _recognises, _read),
    DocumentReader("axolotl", "a configuration of axolotl", "", _recognises_file, _read_file),
)
