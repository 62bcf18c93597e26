"""nanotron: the YAML that ``run_train.py --config-file`` reads."""

from __future__ import annotations

import math
from typing import Any, Final

from planner.frameworks.nanotron import stage_layers
from planner.jobs.job import Export, Job, refuse
from planner.jobs.launchers import shell
from planner.jobs.yaml_text import yaml_text

FILE: Final = "nanotron.yaml"
RELEASE: Final = "0.4"
_STEPS: Final = 100
"""Of a job that does not say how many tokens it trains on."""
_ENGINES: Final = {"none": "1f1b", "1f1b": "1f1b", "gpipe": "afab"}
_FORMATS: Final = {"bf16": "bfloat16", "fp32": "float32"}


CARRIED: Final = (
    *("optimizer", "model.hidden_size", "model.ffn_hidden_size", "model.num_layers", "model.num_heads"),
    *("model.num_query_groups", "model.tied_embeddings", "model.vocab_size"),
)
"""Choices and paths of changes that its file has."""


def nanotron(job: Job, version: str) -> Export:
    """The configuration as of commit 2411b02 or of release 0.4, whose layers run once and whose optimizer is Adam.

    Raises:
        Inexpressible: stages are cut otherwise than nanotron cuts them, or the release lacks what the plan has.
    """
    strategy, optimizer, old = job.strategy, job.switches.optimizer, version == RELEASE
    held, own = [stage.layers for stage in strategy.stages], stage_layers(job.model, strategy.pp)
    reasons = [
        (held != own, f"it divides the layers itself, into {own}; the plan has {held}"),
        (old and strategy.recompute != "none", f"release {RELEASE} recomputes nothing; 2411b02 does"),
        (old and optimizer != "adam", f"release {RELEASE} has no optimizer {optimizer}; adam works"),
    ]
    refuse("nanotron cannot start this plan:", reasons)
    document = {
        "general": {"project": "meshwright", "run": job.name, "seed": 42},
        "parallelism": _parallelism(job, old=old),
        "model": _model(job, old=old),
        "tokenizer": {"tokenizer_name_or_path": "gpt2"},
        "tokens": {
            "sequence_length": job.seq_length,
            "train_steps": _steps(job),
            "micro_batch_size": int(strategy.micro_batch_size),
            "batch_accumulation_per_replica": strategy.num_microbatches,
        },
        "optimizer": _optimizer(job, old=old),
        **({} if old else {"data_stages": [_STAGE]}),
    }
    head = "\n".join([*shell.header(f"nanotron {version}"), *shell.remarks(_REMARKS)])
    return Export(
        files={FILE: f"{head}\n{yaml_text(document)}"},
        program=("run_train.py", "--config-file", FILE),
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
        remarks=_REMARKS,
    )


_REMARKS: Final = (
    "tokenizer, data, checkpoints and learning rate are the run's own: those here train on made-up data",
    "set rope_theta, the base of the rotation, where the model's is not nanotron's: a plan knows none",
)
_STAGE: Final = {
    "name": "stable",
    "start_training_step": 1,
    "data": {"dataset": None, "seed": 42, "num_loading_workers": 1},
}


def _parallelism(job: Job, *, old: bool) -> dict[str, Any]:
    """Every degree; the collectives of tensor ranks run beside products only where sequences are split too."""
    strategy = job.strategy
    split = strategy.sequence_parallel and strategy.tp > 1
    return {
        "dp": strategy.dp,
        "pp": strategy.pp,
        "tp": strategy.tp,
        "expert_parallel_size": 1,
        "pp_engine": _ENGINES[strategy.schedule],
        "tp_mode": "REDUCE_SCATTER" if split else "ALL_REDUCE",
        "tp_linear_async_communication": split,
        **({} if old else {"context_parallel_size": 1, "recompute_layer": strategy.recompute == "full"}),
    }


def _model(job: Job, *, old: bool) -> dict[str, Any]:
    model = job.model
    config = {
        "is_llama_config" if old else "is_qwen2_config": True,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.ffn_hidden_size,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.num_query_groups,
        "max_position_embeddings": job.seq_length,
        "tie_word_embeddings": model.tied_embeddings,
        "vocab_size": model.vocab_size,
    }
    return {"dtype": _FORMATS[job.precision], "init_method": {"std": 0.02}, "model_config": config}


def _optimizer(job: Job, *, old: bool) -> dict[str, Any]:
    adam = {"adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-8, "torch_adam_is_fused": True}
    named = {"name": "sgd"} if job.switches.optimizer == "sgd" else {"name": "adamW", **adam}
    return {
        "zero_stage": job.strategy.zero_stage,
        "weight_decay": 0.1,
        "clip_grad": 1.0,
        "accumulate_grad_in_fp32": True,
        "learning_rate_scheduler": {
            "learning_rate": 3e-4,
            "lr_warmup_steps": 1,
            "lr_warmup_style": "linear",
            "lr_decay_style": "cosine",
            "min_decay_lr": 3e-5,
        },
        **(adam if old else {"optimizer_factory": named}),
    }


def _steps(job: Job) -> int:
    tokens = job.asked("tokens")
    return math.ceil(float(tokens) / (job.seq_length * job.strategy.global_batch_size)) if tokens else _STEPS
