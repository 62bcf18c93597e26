"""What Transformers' TrainingArguments and the scripts around them say, as of Transformers 5; older names are read.

Trainers that are built on them have these options too, with a few of their own beside them or in their place.
"""

from __future__ import annotations

from typing import Final

from planner.jobs.options import Option, Options, flag, number, text

_ROWS: Final = (
    text("model_name_or_path", "model", older=(
        "model_name", "model_id", "base_model", "pretrained_model_name_or_path", "model_path", "base_model_name_or_path",
        "pretrained_model", "pretrained_model_path", "model_id_or_path", "model")),
    number("max_length", "seq_length", least=-1, older=(
        "max_seq_length", "model_max_length", "cutoff_len", "block_size", "max_seq_len", "seq_length", "max_len",
        "sequence_length", "sequence_len", "seq_len", "context_length", "max_source_length")),
    number("per_device_train_batch_size", "micro_batch_size", 8, older=(
        "per_gpu_train_batch_size", "per_device_batch_size", "micro_batch_size")),
    number("gradient_accumulation_steps", "steps", 1, least=0, older=("gradient_accumulation", "grad_accum_steps")),
    number("max_steps", "max_steps", -1, least=-1),
    text("num_train_epochs", "epochs", older=("num_epochs", "epochs")),
    flag("bf16"),
    flag("fp16"),
    flag("tf32"),
    text("dtype", "weights", older=("torch_dtype", "model_dtype")),
    flag("gradient_checkpointing", "recompute", older=("activation_checkpointing", "use_gradient_checkpointing")),
    text("optim", "optimizer", older=("optimizer",)),
    text("deepspeed", older=("deepspeed_config", "deepspeed_config_file", "deepspeed_config_path")),
    text("fsdp"),
    text("fsdp_config"),
    flag("torch_compile", "compile"),
    flag("use_liger_kernel", "liger", older=("enable_liger_kernel", "use_liger", "liger_kernel")),
    text("attn_implementation", "attention", older=(
        "flash_attn", "attn_impl", "attention_implementation", "use_flash_attn", "use_flash_attention_2",
        "use_flash_attention", "flash_attention", "enable_flash_attn", "attn_type")),
    flag("packing", older=("pack", "neat_packing", "sample_packing")),
    text("finetuning_type", "method", older=("tuner_type", "train_type", "sft_type", "peft_type", "training_type")),
    flag("use_peft", older=("use_lora", "lora_enable", "enable_lora", "peft", "lora", "use_peft_lora")),
    number("lora_r", "rank", older=("lora_rank", "lora_dim")),
    text("lora_target_modules", "targets", older=("lora_target", "target_modules", "lora_modules", "lora_trainable")),
    text("lora_dropout"),
    flag("load_in_4bit", "four_bits", older=("use_4bit_quantization", "use_4bit", "q_lora", "qlora", "use_qlora")),
    flag("load_in_8bit", "eight_bits", older=("use_8bit_quantization", "use_8bit", "use_int8_training")),
    number("quantization_bit", "bits", older=("quant_bits", "bits", "quantization_bits")),
    text("stage", older=("rlhf_type",)),
    number("tensor_parallel_size", "tp", 1),
    number("context_parallel_size", "cp", 1, older=("sequence_parallel_size", "sequence_parallel_degree")),
    text("ddp_backend"),
)  # fmt: skip


def training_options(*own: Option, without: tuple[str, ...] = ()) -> Options:
    """TrainingArguments with a trainer's own options, each in the place of the one of its field if there is one."""
    rows = {row.field: row for row in _ROWS if row.field not in without} | {row.field: row for row in own}
    return Options(*rows.values())


OPTIONS: Final = training_options()

OPTIMIZERS: Final = {
    **dict.fromkeys(("adamw_torch", "adamw_hf", "adamw", "adam", "adamw_apex_fused", "adamw_torch_xla",
                     "adamw_torch_fused", "adamw_torch_npu_fused", "paged_adamw_32bit", "paged_adamw"), "adam"),
    **dict.fromkeys(("adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit", "adamw_torch_8bit", "ao_adamw_8bit"),
                    "adam-8bit"),
    "adamw_anyprecision": "adam-bf16",
    "adafactor": "adafactor",
    "sgd": "sgd",
    "muon": "muon",
}  # fmt: skip
"""What ``optim`` is priced as."""
UNPRICED_OPTIMIZERS: Final = {
    "galore": ("adam", "moments of a projection: less memory"),
    "q_galore": ("adam", "moments of a projection, in 8 bits: less memory"),
    "apollo": ("adam", "moments of a projection: less memory"),
    "adalomo": ("adafactor", "gradients are used as they are made: less memory"),
    "lomo": ("sgd", "gradients are used as they are made, and no state is kept: less memory"),
    "lion": ("sgd", "one moment, as momentum has"),
    "paged_lion": ("sgd", "one moment, as momentum has"),
    "ademamix": ("adam", "a third moment: more memory"),
    "paged_ademamix": ("adam", "a third moment: more memory"),
    "adamw_torch_4bit": ("adam-8bit", "moments in 4 bits: less memory"),
    "ao_adamw_4bit": ("adam-8bit", "moments in 4 bits: less memory"),
    "ao_adamw_fp8": ("adam-8bit", "moments in 8 bits, as floating-point numbers"),
    "schedule_free": ("adam", "states as Adam's"),
    "stable_adamw": ("adam", "states as Adam's"),
    "grokadamw": ("adam", "a third state: more memory"),
    "rmsprop": ("sgd", "one moment, as momentum has"),
    "adagrad": ("sgd", "one moment, as momentum has"),
    "optimi_adamw": ("adam", "states as Adam's"),
    "came_pytorch": ("adafactor", "a momentum beside the factors: more memory"),
    "adopt_adamw": ("adam", "states as Adam's"),
    "dion": ("muon", "orthogonalisation of a low rank"),
}
"""By the beginning of its name, what an optimizer that has no price is priced as, and what its own would differ in."""
PAGED: Final = "paged_"
"""Begins the names of optimizers whose states move to the host where the device runs out."""

ATTENTION: Final = {
    **dict.fromkeys(("eager", "off", "disabled"), ("unfused",)),
    **dict.fromkeys(("flash_attention_2", "fa2", "flash_attn", "true", "kernels-community/flash-attn2"),
                    ("flash-2", "flash-1")),
    **dict.fromkeys(("flash_attention_3", "fa3", "flash_attention_4", "kernels-community/flash-attn3",
                     "kernels-community/vllm-flash-attn3"), ("flash-3", "flash-2")),
    **dict.fromkeys(("sdpa", "auto", "false", ""), None),
}  # fmt: skip
"""Kernels by what ``attn_implementation`` says; None: as PyTorch's scaled_dot_product_attention chooses."""

TARGETS: Final = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "c_attn", "w_pack", "wqkv", "wq", "wk",
                     "wv", "q", "k", "v", "query", "key", "value", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa",
                     "kv_b_proj", "qkv"), "linear_qkv"),
    **dict.fromkeys(("o_proj", "dense", "out_proj", "wo", "o", "attn.c_proj"), "linear_proj"),
    **dict.fromkeys(("gate_proj", "up_proj", "gate_up_proj", "dense_h_to_4h", "fc1", "fc_in", "w1", "w3", "c_fc", "wi",
                     "wi_0", "wi_1"), "linear_fc1"),
    **dict.fromkeys(("down_proj", "dense_4h_to_h", "fc2", "fc_out", "w2", "mlp.c_proj"), "linear_fc2"),
}  # fmt: skip
"""Modules of Transformers' models by the names of Megatron's."""
EVERYWHERE: Final = frozenset({"all", "all-linear", "all_linear", "auto", "dit"})

EFFECTS: Final = {
    "auto_find_batch_size": "the batch shrinks until it fits: another batch than the one given",
    "use_cpu": "the job runs on CPUs",
    "no_cuda": "the job runs on CPUs",
    "torch_empty_cache_steps": "freed memory goes back to the driver: less memory, longer steps",
    "activation_offloading": "activations move to the host: less memory, longer passes",
    "label_smoothing_factor": "the Trainer smooths labels in a pass over the logits: more memory",
    "use_unsloth": "Unsloth's kernels: a shorter iteration, less memory",
    "use_unsloth_gc": "recomputed inputs move to the host: less memory",
    "padding_free": "sequences are joined without padding, and priced at their full length",
    "group_by_length": "sequences of like lengths are batched: less padding than priced",
    "neat_packing": "packed documents do not attend to each other: less attention than priced",
    "sharded_ddp": "FairScale shards states, which is priced as not sharded: less memory",
    "use_dora": "a norm of every adapted weight: more work",
    "lora_modules_to_save": "modules that train whole beside the adapters: more memory",
    "modules_to_save": "modules that train whole beside the adapters: more memory",
    "additional_target": "modules that train whole beside the adapters: more memory",
    "freeze_backbone": "frozen weights owe no states: less memory, a shorter backward pass",
    "tune_mm_mlp_adapter": "only the projector trains: less memory, a shorter backward pass",
    "vision_tower": "a vision tower beside the text model: more time and memory",
    "mm_projector_lr": "a vision tower beside the text model: more time and memory",
    "full_determinism": "deterministic kernels: a longer iteration",
    "parallelism_config": "degrees of parallelism that the script sets",
}
"""What options do that are read and not priced."""

HARMLESS: Final = "|".join((
    r"(hub|logging|eval|evaluation|save|wandb|lr_scheduler|adam|push_to_hub|resume|warmup|trackio|swanlab|mlflow|comet)_.*",
    r"output_dir|overwrite_output_dir|output|report_to|run_name|project|log_level.*|log_on_each_node|log_completions",
    r"learning_rate|lr|embedding_lr|weight_decay|max_grad_norm|gradient_clipping|beta|seed|data_seed|max_train_samples",
    r"max_eval_samples|max_samples|do_train|do_eval|do_predict|disable_tqdm|prediction_loss_only|resume.*|warmup.*",
    r"per_device_eval_batch_size|per_gpu_eval_batch_size|num_train_epochs|include_.*|greater_is_better|label_names",
    r"load_best_model_at_end|metric_for_best_model|ignore_data_skip|dataloader_.*|remove_unused_columns|length_column_name",
    r"ddp_(timeout|find_unused_parameters|broadcast_buffers|static_graph|backend)|local_rank|local-rank|debug|bf16_full_eval",
    r"fp16_full_eval|fp16_opt_level|fp16_backend|half_precision_backend|torch_compile_(backend|mode)|liger_kernel_config",
    r"gradient_checkpointing_kwargs|activation_checkpointing_kwargs|optim_args|neftune_.*|average_tokens_.*|use_cache",
    r"skip_memory_metrics|train_sampling_strategy|accelerator_config|batch_eval_metrics|past_index|lora_(alpha|bias)",
    r"jit_mode_eval|overwrite_cache|tokenizer_.*|cache_dir|config_name|model_revision|trust_remote_code|use_fast_tokenizer",
    r"use_auth_token|token|hf_token|low_cpu_mem_usage|preprocessing_num_workers|streaming|train_file|validation_file",
    r"test_file|dataset|dataset_(name|config|config_name|path|dir|text_field|num_proc|mixer|kwargs|train_split|test_split|"
    r"splits|split|mixture)|data_(path|dir|files)|train_data.*|valid(ation)?_data.*|validation_split.*|chat_template.*",
    r"template|system_prompt.*|prompt_template.*|conv_template|ddp|lora_task_type|bnb_4bit_.*|use_bnb_nested_quant",
    r"load_args|enable_jit_checkpoint|restore_callback_.*|keep_linebreaks|completion_only_loss|assistant_only_loss|prompt_.*",
    r"group_by_modality_length|image_folder|image_aspect_ratio|lazy_preprocess|is_multimodal|mm_.*|version|callbacks",
    r"save|benchmark.*|callback.*|ignore_pad_token_for_loss|shuffle.*|split|add_.*token|eos_token|pad_token|exp_name",
    r"lora_weights_init|router_aux_loss_coef|num_workers|world_size|rank",
))  # fmt: skip
"""Options that change neither time nor memory of an iteration."""
