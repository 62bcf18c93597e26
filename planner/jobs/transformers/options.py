"""What Transformers' TrainingArguments and the scripts around them say, as of Transformers 5; older names are read.

Trainers that are built on them have these options too, with a few of their own beside them or in their place.
"""

from __future__ import annotations

from typing import Final

from planner.jobs.options import Option, Options, flag, number, text
from planner.jobs.values import words

_ROWS: Final = (
    text("model_name_or_path", "model", older=(
        "model_name", "model_id", "base_model", "pretrained_model_name_or_path", "model_path",
        "base_model_name_or_path", "pretrained_model", "pretrained_model_path", "model_id_or_path", "model")),
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
    number("zero_stage", least=0, older=("deepspeed_stage", "ds_stage")),
    flag("offload", older=("zero_offload", "cpu_offload")),
    text("fsdp"),
    text("fsdp_config"),
    flag("torch_compile", "compile"),
    flag("use_liger_kernel", "liger", older=("enable_liger_kernel", "use_liger", "liger_kernel")),
    text("attn_implementation", "attention", older=(
        "flash_attn", "attn_impl", "attention_implementation", "use_flash_attn", "use_flash_attention_2",
        "use_flash_attention", "flash_attention", "enable_flash_attn", "attn_type")),
    flag("packing", older=("pack", "neat_packing", "sample_packing")),
    text("finetuning_type", "method", older=("tuner_type", "train_type", "sft_type", "peft_type", "training_type")),
    flag("use_peft", older=("use_lora", "lora_enable", "enable_lora", "peft", "lora", "use_peft_lora",
        "peft_enabled", "enable_peft", "lora_enabled")),
    number("lora_r", "rank", least=0, older=("lora_rank", "lora_dim", "peft_lora_r")),
    text("lora_target_modules", "targets", older=("lora_target", "target_modules", "lora_modules", "lora_trainable",
        "trainable")),
    text("lora_dropout"),
    flag("load_in_4bit", "four_bits", older=("use_4bit_quantization", "use_4bit", "q_lora", "qlora", "use_qlora")),
    flag("load_in_8bit", "eight_bits", older=("use_8bit_quantization", "use_8bit", "use_int8_training")),
    number("quantization_bit", "bits", older=("quant_bits", "bits", "quantization_bits", "load_in_kbits")),
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

RANKED: Final = {
    "galore": "adam", "q_galore": "adam", "qgalore": "adam", "apollo": "adam", "badam": "adam", "flora": "adafactor",
    "adalomo": "adafactor", "lomo": "sgd-plain",
}  # fmt: skip
"""By the beginning of its name, what an optimizer is priced as whose states are fewer than any bytes per parameter."""
PAGED: Final = "paged_"
"""Begins the names of optimizers whose states move to the host where the device runs out."""

ATTENTION: Final = {
    **dict.fromkeys(("eager", "off", "disabled"), ("unfused",)),
    **dict.fromkeys(("flash_attention_2", "fa2", "flash_attn", "true", "1", "yes", "kernels-community/flash-attn2"),
                    ("flash-2", "flash-1")),
    **dict.fromkeys(("flash_attention_3", "fa3", "flash_attention_4", "kernels-community/flash-attn3",
                     "kernels-community/vllm-flash-attn3"), ("flash-3", "flash-2")),
    **dict.fromkeys(("sdpa", "auto", "false", "0", "no", "none", ""), None),
}  # fmt: skip
"""Kernels by what ``attn_implementation`` says; None: as PyTorch's scaled_dot_product_attention chooses."""

FORMATS: Final = {
    **dict.fromkeys(("bfloat16", "bf16"), "bf16"),
    **dict.fromkeys(("float16", "fp16", "half"), "fp16"),
    **dict.fromkeys(("float32", "fp32", "float"), "fp32"),
}
"""Formats by what ``dtype`` says."""

TARGETS: Final = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "c_attn", "w_pack", "wqkv", "wq",
                     "wk", "wv", "q", "k", "v", "query", "key", "value", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa",
                     "kv_b_proj", "qkv"), "linear_qkv"),
    **dict.fromkeys(("o_proj", "dense", "out_proj", "wo", "o", "attn.c_proj"), "linear_proj"),
    **dict.fromkeys(("gate_proj", "up_proj", "gate_up_proj", "dense_h_to_4h", "fc1", "fc_in", "w1", "w3", "c_fc", "wi",
                     "wi_0", "wi_1"), "linear_fc1"),
    "c_proj": "linear_proj,linear_fc2",
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
    "padding_free": "sequences are packed without padding; they are priced at full length",
    "group_by_length": "sequences of like lengths are batched: less padding than priced",
    "neat_packing": "packed documents do not attend to each other: less attention than priced",
    "sharded_ddp": "FairScale shards states, which is priced as not sharded: less memory",
    "use_dora": "each adapted weight is normalised: more work",
    "lora_modules_to_save": "whole modules train as well as adapters: more memory",
    "modules_to_save": "whole modules train as well as adapters: more memory",
    "additional_target": "whole modules train as well as adapters: more memory",
    "freeze_backbone": "frozen weights have no gradients and no optimizer states: less memory, a shorter backward pass",
    "tune_mm_mlp_adapter": "only the projector trains: less memory, a shorter backward pass",
    "vision_tower": "there is a vision tower too: more time and memory",
    "mm_projector_lr": "there is a vision tower too: more time and memory",
    "full_determinism": "deterministic kernels: a longer iteration",
    "parallelism_config": "the script sets degrees of parallelism",
}
"""What options do that are read and not priced."""

HARMLESS: Final = words("""
    accelerator_config activation_checkpointing_kwargs adam_* add_*token add_special_tokens append_concat_token
    assistant_only_loss average_tokens_* batch_eval_metrics benchmark* beta bf16_full_eval bnb_4bit_* cache_dir
    callback* chat_template* checkpointing_steps comet_* completion_only_loss config_name conv_template
    conversation_template data_cache_dir data_dir data_files data_path data_seed dataloader_* dataset dataset_config
    dataset_config_name dataset_dir dataset_kwargs dataset_mix* dataset_name dataset_num_proc
    dataset_path dataset_split dataset_splits dataset_test_split dataset_text_field dataset_train_split ddp
    ddp_backend ddp_broadcast_buffers ddp_find_unused_parameters ddp_static_graph ddp_timeout debug disable_tqdm
    do_* do_eval do_predict do_train embedding_lr enable_jit_checkpoint eos_token eval_* evaluation_* exp_name
    fp16_backend fp16_full_eval fp16_opt_level fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap
    gradient_checkpointing_kwargs gradient_clipping greater_is_better group_by_modality_length
    half_precision_backend hf_token hub_* ignore_data_skip ignore_pad_token_for_loss image_aspect_ratio image_folder
    include_* is_multimodal jit_mode_eval keep_linebreaks label_names lazy_preprocess learning_rate
    length_column_name liger_kernel_config load_args load_best_model_at_end local-rank local_rank log_completions
    log_level* log_on_each_node logging_* lora_alpha lora_bias lora_task_type lora_weights_init low_cpu_mem_usage lr
    lr_scheduler_* max_eval_samples max_grad_norm max_new_tokens max_samples max_train_samples metric_for_best_model
    mlflow_* mm_* model_revision neftune_* num_train_epochs num_workers optim_args output output_dir overwrite_cache
    overwrite_output_dir pad_token past_index per_device_eval_batch_size per_gpu_eval_batch_size
    prediction_loss_only preprocessing_num_workers project prompt_* push_to_hub* quant_type remove_unused_columns
    report_to restore_callback_* resume* router_aux_loss_coef run_name save save_* seed shuffle* skip_memory_metrics
    split splits streaming swanlab_* system_prompt* task_name template test_file token tokenizer_*
    torch_compile_backend torch_compile_mode trackio_* train_data* train_file train_sampling_strategy
    trust_remote_code use_auth use_auth_token use_bnb_nested_quant use_cache use_fast_tokenizer use_nested_quant
    use_reentrant use_slow_tokenizer valid_data* validation_data* validation_file validation_split* version wandb_*
    warmup* weight_decay with_tracking world_size
""")
"""Options that change neither time nor memory of an iteration."""
