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
