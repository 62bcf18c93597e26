"""MaxText: overrides of its base.yml, and what every rank runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.names import SHARDED_PARAMETERS
from planner.frameworks.maxtext import MAXTEXT
from planner.frameworks.vendors import TPU
from planner.jobs.job import Export, Job, refuse
from planner.jobs.launchers import shell
from planner.jobs.options import applicable
from planner.jobs.yaml_text import yaml_text

FILE: Final = "maxtext.yml"
SCRIPT: Final = "maxtext.sh"
_POLICIES: Final[Mapping[str, str]] = {
    "none": "minimal_with_context",
    "selective": "save_qkv_proj",
    "full": "full",
}
"""What is kept: every product and the attention's output, the products in front of attention, a layer's input."""
_QUANTIZATIONS: Final[Mapping[str, str]] = {
    "int8": "int8",
    "fp8": "te_fp8_delayedscaling",
    "fp8-current": "te_fp8_currentscaling",
    "mxfp8": "te_mxfp8",
    "nvfp4": "te_nvfp4",
}
"""AQT's integers and Transformer Engine's recipes; without one the products are in ``dtype``."""
_OPTIMIZERS: Final[Mapping[str, str]] = {"adam": "adamw", "sgd": "sgd", "muon": "muon"}


def maxtext(job: Job, version: str) -> Export:
    """The configuration as of MaxText 0.2.5: axes inside a slice and between slices, and a script that starts a rank.

    Raises:
        Inexpressible: stages are uneven.
    """
    strategy = job.strategy
    refuse("maxtext cannot start this plan:", [(job.uneven, "its stages hold as many layers each")])
    document = {
        "base_config": "base.yml",
        "run_name": job.name,
        "hardware": "tpu" if job.vendor == TPU else "gpu",
        "dataset_type": "synthetic",
        "packing": False,
        **_model(job),
        **axes(job),
        **_batch(job),
        "remat_policy": _POLICIES[strategy.recompute],
        "dtype": "float32" if job.precision == "fp32" else "bfloat16",
        "quantization": _QUANTIZATIONS.get(job.precision, ""),
        "opt_type": _OPTIMIZERS[job.switches.optimizer],
        "shard_optimizer_over_data": strategy.zero_stage == 1,
        "optimizer_memory_host_offload": strategy.offload != "none",
        "parameter_memory_host_offload": strategy.offload == "optimizer+parameters",
        "attention": "flash" if job.vendor == TPU else "cudnn_flash_te",
    }
    remarks = _remarks(job)
    about = [*shell.header(f"MaxText {version}"), *shell.remarks(remarks)]
    how = _HOST if job.vendor == TPU else _START
    start = "\n".join([*shell.header(f"MaxText {version}", comment="#"), *how, _RUN])
    return Export(
        files={FILE: "\n".join([*about, yaml_text(document)]), SCRIPT: f"#!/usr/bin/env bash\n{start}\n"},
        program=("--no-python", "bash", SCRIPT),
        environment={} if job.vendor == TPU else {"NVTE_FUSED_ATTN": "1"},
        remarks=remarks,
    )


_START: Final = (
    "# torchrun starts it once a GPU; MaxText calls its processes nodes and is told its own device as Slurm tells it.",
    "set -euo pipefail",
    "unset CUDA_VISIBLE_DEVICES",
    'export JAX_COORDINATOR_IP="$MASTER_ADDR" JAX_COORDINATOR_PORT="$((MASTER_PORT + 1))"',
    'export NNODES="$WORLD_SIZE" NODE_RANK="$RANK" SLURM_STEP_GPUS="$LOCAL_RANK"',
)
_HOST: Final = ("# Every host of the TPUs runs it once; JAX finds the others.", "set -euo pipefail")
_RUN: Final = f'exec python3 -m maxtext.trainers.pre_train.train {FILE} "$@"'


def axes(job: Job) -> dict[str, int]:
    """Every axis of the mesh that a plan may use; GPUs are all of one slice, so that axes between slices have one rank.

    XLA takes every host of GPUs for a slice, and MaxText splits its axes between slices and the inside of one, unless
    it is told how many there are. Parameters are sharded over the ranks of ``fsdp``, context and experts together.
    """
    strategy = job.strategy
    inner = strategy.sharding_degree // (strategy.cp * strategy.ep) if strategy.zero_stage == SHARDED_PARAMETERS else 1
    tensor = {"tensor": 1, "tensor_sequence": strategy.tp} if strategy.sequence_parallel else {"tensor": strategy.tp}
    ranks = {
        "data": strategy.dp // (inner * strategy.ep),
        "pipeline": strategy.pp,
        "fsdp": inner,
        "context": strategy.cp,
        **tensor,
        "expert": strategy.ep,
    }
    slices, between = _slices(job), _between(job, ranks)
    return (
        {"num_slices": slices, "dcn_data_parallelism": 1}
        | ({f"dcn_{between}_parallelism": slices} if between else {})
        | {f"ici_{name}_parallelism": size // (slices if name == between else 1) for name, size in ranks.items()}
    )


def _slices(job: Job) -> int:
    """Slices of TPUs, each the chips of one torus; GPUs count as one."""
    tiers = job.plan.request["cluster"].get("tiers") or [{}]
    torus = int(tiers[0].get("gpus") or 0)
    return -(-job.gpus // torus) if job.vendor == TPU and torus else 1


def _between(job: Job, ranks: Mapping[str, int]) -> str:
    """The outermost axis of the plan that slices share out evenly; none on one slice.

    Raises:
        Inexpressible: no outer axis has a multiple of the slices.
    """
    slices = _slices(job)
    if slices == 1:
        return ""
    outer = [name for name in ("pipeline", "data", "fsdp") if ranks[name] % slices == 0]
    refuse("maxtext cannot start this plan:", [(not outer, f"no outer axis has a multiple of {slices} slices")])
    return outer[0]


def _batch(job: Job) -> dict[str, Any]:
    """Micro-batches are accumulated, or pass the pipeline out of one batch."""
    strategy = job.strategy
    staged = strategy.pp > 1
    together = strategy.micro_batch_size * strategy.dp * (strategy.num_microbatches if staged else 1)
    document = {
        "max_target_length": job.seq_length,
        "per_device_batch_size": together / job.gpus,
        "gradient_accumulation_steps": 1 if staged else strategy.num_microbatches,
    }
    if not staged:
        return document
    return document | {
        "num_layers_per_pipeline_stage": job.model.num_layers // (strategy.pp * strategy.vpp),
        "num_pipeline_repeats": strategy.vpp,
        "num_pipeline_microbatches": strategy.num_microbatches,
    }


def _model(job: Job) -> dict[str, Any]:
    """A name that MaxText knows, else the shape of a decoder of Llama's kind."""
    model = job.model
    if model.name in MAXTEXT:
        return {"model_name": model.name}
    return {
        "decoder_block": "llama2",
        "base_emb_dim": model.hidden_size,
        "base_num_query_heads": model.num_heads,
        "base_num_kv_heads": model.num_query_groups,
        "base_mlp_dim": model.ffn_hidden_size,
        "base_num_decoder_layers": model.num_layers,
        "head_dim": model.head_dim,
        "vocab_size": model.vocab_size,
        "logits_via_embedding": model.tied_embeddings,
    }


def _remarks(job: Job) -> tuple[str, ...]:
    remarks = {
        "data, tokenizer, checkpoints and base_output_directory are the run's own: those here train on made-up data": (
            True
        ),
        f"MaxText knows no model {job.model.name}; the shape is written out, the rotation's base is not": (
            job.model.name not in MAXTEXT
        ),
    }
    return applicable(remarks)
