"""The keys of llm-foundry's YAML, as of llm-foundry 0.22, with the values that Composer and MPT take unless told."""

from __future__ import annotations

from typing import Final

from planner.jobs.options import Options, choice, flag, number, text

OPTIONS: Final = Options(
    number("max_seq_len", "seq_length"),
    number("global_train_batch_size", "global_batch_size"),
    text("device_train_microbatch_size", "micro_batch_size"),
    choice("precision", "precision", {"amp_bf16": "bf16", "amp_fp16": "fp16", "fp32": "fp32", "amp_fp8": "fp8"}),
    text("max_duration", "length"),
    number("compute.gpus", "gpus"),
    text("model.name", "kind"),
    text("model.pretrained_model_name_or_path", "model"),
    flag("model.pretrained", "pretrained"),
    flag("model.use_flash_attention_2", "flash"),
    number("model.d_model", "hidden_size", 2048),
    number("model.n_heads", "num_heads", 16),
    number("model.n_layers", "num_layers", 24),
    text("model.expansion_ratio", "expansion", default=4),
    number("model.ffn_config.ffn_hidden_size", "ffn_hidden_size"),
    choice("model.ffn_config.ffn_type", "gated_ffn", {"mptmlp": False, "mptglu": True}, default=False),
    number("model.vocab_size", "vocab_size", 50368),
    flag("model.no_bias", "no_bias"),
    text("model.tie_word_embeddings", "tied", default=True),
    text("model.learned_pos_emb", "learned", default=True),
    text("model.norm_type", "norm", default="low_precision_layernorm"),
    choice("model.attn_config.attn_impl", "attention_backend",
           {"flash": ["flash-2", "flash-1"], "triton": ["flash-1"], "torch": ["unfused"]}, ["flash-2", "flash-1"]),
    flag("model.attn_config.alibi", "alibi"),
    flag("model.attn_config.rope", "rope"),
    number("model.attn_config.kv_n_heads", "num_query_groups"),
    text("model.attn_config.attn_type", "attention_type", default="multihead_attention"),
    choice("fsdp_config.sharding_strategy", "zero_stage",
           {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "_HYBRID_SHARD_ZERO2": 2}, 3),
    choice("fsdp_config.mixed_precision", "reduced", {"PURE": 2, "DEFAULT": 4, "FULL": 4}, 4),
    flag("fsdp_config.activation_checkpointing", "recompute"),
    flag("fsdp_config.cpu_offload", "offload"),
    choice("optimizer.name", "optimizer", {
        **dict.fromkeys(("decoupled_adamw", "adamw", "adam", "adalr_adam"), "adam"),
        **dict.fromkeys(("decoupled_lionw", "clip_lion", "adalr_lion"), "lion"),
        "decoupled_lionw_8b": "lion-8bit", "decoupled_sgdw": "sgd"}),
    number("model.peft_config.r", "rank"),
    text("model.peft_config.target_modules", "targets"),
    text("model.peft_config.lora_dropout", "lora_dropout"),
)  # fmt: skip

EFFECTS: Final = {
    "fsdp_config.activation_cpu_offload": "kept inputs move to the host: less memory, longer passes",
    "fsdp_config.te_shard_fp8_weight": "weights are gathered in 8 bits: less traffic",
    "model.attn_config.sliding_window_size": "attention inside a window: less computation",
    "model.attn_config.attn_uses_sequence_id": "packed documents do not attend to each other: less attention",
    "model.attn_config.qk_ln": "norms of queries and keys: slightly longer",
    "model.block_overrides": "some layers differ from the others: time and memory too",
    "model.config_overrides": "a model of other sizes than its name says: time and memory too",
    "algorithms.alibi": "other positions: slightly other time",
    "algorithms.low_precision_layernorm": "norms in 16 bits: slightly shorter",
    "compile_config": "fused kernels: a shorter iteration",
    "train_loader.dataset.packing_ratio": "documents are packed: every sequence is priced full",
    "tp_config": "tensor ranks: less memory, more traffic",
}
"""What keys do that are read and not priced, where they are there and not off."""
HARMLESS: Final = (
    r"variables|run_name|tokenizer|(train|eval|icl)_?.*|scheduler|algorithms|seed|global_seed|device_eval_.*|progress_bar|"
    r"log_.*|max_split_size_mb|console_.*|callbacks|loggers|save_.*|load_.*|autoresume|dist_timeout|expandable_segments|python_log_level|"
    r"data_.*|fsdp_config|model|optimizer|compute|integrations|image|name|command|cluster|gpu_.*|gpus|parameters|"
    r"scheduling|metadata|code_paths|profiler|accumulate_train_batch_on_tokens|compile_config|tp_config|env_variables"
)
OF_MODEL: Final = (
    r"init_device|max_seq_len|attn_config|ffn_config|init_config|fc_type|emb_pdrop|resid_pdrop|norm_eps|loss_fn|"
    r"use_auth_token|config_overrides|trust_remote_code|peft_config|block_overrides|use_logits|adapt_vocab_size|"
    r"additional_.*|allow_embedding_resizing|should_save_peft_only|use_train_metrics|use_pad_tok_in_ffn|embedding_.*|"
    r"logit_scale|verbose|use_cache|z_loss|tokenizer_name"
)
OF_FSDP: Final = (
    r"activation_checkpointing_.*|activation_cpu_offload|limit_all_gathers|state_dict_type|sync_module_states|verbose|"
    r"use_orig_params|load_.*|flatten_parameters|forward_prefetch|backward_prefetch|keep_low_precision_grads|"
    r"te_shard_fp8_weight|min_params|auto_wrap|data_parallel_.*|sharded_ckpt_.*|save_planner|load_planner"
)
"""Keys that change no price, or are told of by ``EFFECTS``."""
