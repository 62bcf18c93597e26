"""The keys of nanotron's YAML, as of commit 2411b02 and of release 0.4."""

from __future__ import annotations

from typing import Final

from planner.jobs.options import Options, choice, flag, number, text

RELEASE: Final = "0.4"
NEWER: Final = "2411b02"
ADAM: Final = {"adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-8, "torch_adam_is_fused": True}

OPTIONS: Final = Options(
    text("general"),
    number("parallelism.dp", "dp"),
    number("parallelism.pp", "pp"),
    number("parallelism.tp", "tp"),
    number("parallelism.expert_parallel_size", "ep", 1),
    choice("parallelism.pp_engine", "schedule", {"1f1b": "1f1b", "afab": "gpipe"}, "gpipe"),
    choice("parallelism.tp_mode", "sequence_parallel", {"REDUCE_SCATTER": True, "ALL_REDUCE": False}, default=False),
    flag("parallelism.tp_linear_async_communication", "tensor_overlap"),
    number("parallelism.context_parallel_size", "cp", 1, since=NEWER),
    flag("parallelism.recompute_layer", "recompute", since=NEWER),
    choice("model.dtype", "precision", {"bfloat16": "bf16", "float32": "fp32"}, "bf16"),
    text("model.init_method", "init_method"),
    flag("model.model_config.is_llama_config", "is_llama", until=RELEASE),
    flag("model.model_config.is_qwen2_config", "is_qwen2", since=NEWER),
    number("model.model_config.hidden_size", "hidden_size"),
    number("model.model_config.intermediate_size", "ffn_hidden_size"),
    number("model.model_config.num_hidden_layers", "num_layers"),
    number("model.model_config.num_attention_heads", "num_heads"),
    number("model.model_config.num_key_value_heads", "num_query_groups"),
    number("model.model_config.max_position_embeddings", "max_positions"),
    flag("model.model_config.tie_word_embeddings", "tied_embeddings"),
    number("model.model_config.vocab_size", "vocab_size"),
    text("tokenizer"),
    number("tokens.sequence_length", "seq_length"),
    number("tokens.train_steps", "iterations"),
    number("tokens.micro_batch_size", "micro_batch_size"),
    number("tokens.batch_accumulation_per_replica", "steps"),
    number("optimizer.zero_stage", "zero_stage", least=0),
    text("optimizer.weight_decay", "weight_decay"),
    text("optimizer.clip_grad", "clip_grad"),
    flag("optimizer.accumulate_grad_in_fp32", "wide_grads"),
    text("optimizer.learning_rate_scheduler", "rates"),
    *(text(f"optimizer.{word}", word, until=RELEASE) for word in ADAM),
    choice("optimizer.optimizer_factory.name", "optimizer", {"adamW": "adam", "sgd": "sgd"}, "adam", since=NEWER),
    *(text(f"optimizer.optimizer_factory.{word}", f"new_{word}", since=NEWER) for word in ADAM),
    text("data_stages", since=NEWER),
)  # fmt: skip
"""Keys by field, in the order in which they are written."""
SIZES: Final = (
    *("hidden_size", "ffn_hidden_size", "num_layers", "num_heads", "num_query_groups", "tied_embeddings", "vocab_size"),
)
CARRIED: Final = ("optimizer", *(f"model.{name}" for name in SIZES))
"""Choices and paths of changes that its file has."""
