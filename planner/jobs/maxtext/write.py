"""MaxText: overrides of its base.yml, and what every rank runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.names import SHARDED_PARAMETERS
from planner.frameworks.maxtext import MAXTEXT
from planner.frameworks.vendors import TPU
from planner.jobs.job import Export, Job, refuse
from planner.jobs.launchers import shell
from planner.jobs.maxtext.options import OPTIONS, SIZES
from planner.jobs.values import data
from planner.jobs.yaml_text import yaml_text

FILE: Final = "maxtext.yml"
SCRIPT: Final = "maxtext.sh"


def maxtext(job: Job, version: str) -> Export:
    """The configuration as of MaxText 0.2.5, of axes inside a slice and between slices, and the script of a rank."""
    refuse("maxtext cannot start this plan:", [(job.uneven, "its stages hold as many layers each")])
    remarks, target, on_tpu = _remarks(job), f"MaxText {version}", job.vendor == TPU
    start = shell.commented(target, (), data("maxtext/templates")["tpu" if on_tpu else "gpu"].format(file=FILE))
    text = shell.commented(target, remarks, yaml_text(OPTIONS.document(_values(job))))
    return Export(
        files={FILE: text, SCRIPT: f"#!/usr/bin/env bash\n{start}"},
        program=("--no-python", "bash", SCRIPT),
        environment={} if on_tpu else {"NVTE_FUSED_ATTN": "1"},
        remarks=remarks,
    )


def _values(job: Job) -> dict[str, Any]:
    """Values by the fields of its options; of a model that MaxText knows, no sizes."""
    strategy, model, on_tpu = job.strategy, job.model, job.vendor == TPU
    known = MAXTEXT.get(model.name)
    shape = {"decoder": "llama2"} | {name: getattr(model, name) for name in SIZES}
    return {
        "base_config": "base.yml",
        "run_name": job.name,
        "hardware": "tpu" if on_tpu else "gpu",
        "dataset_type": "synthetic",
        "packing": False,
        **({"model": known} if known else shape),
        **axes(job),
        **_batch(job),
        "recompute": strategy.recompute,
        "width": "float32" if job.precision == "fp32" else "bfloat16",
        "recipe": job.precision if job.precision in OPTIONS["recipe"].values.values() else "",
        "optimizer": job.switches.optimizer,
        "sharded_states": strategy.zero_stage == 1,
        "states_on_host": strategy.offload != "none",
        "parameters_on_host": strategy.offload == "optimizer+parameters",
        "attention": "flash" if on_tpu else "cudnn_flash_te",
    }


def axes(job: Job) -> dict[str, int]:
    """Axes of the mesh by field; GPUs are all of one slice, so that axes between slices have one rank.

    XLA takes every host of GPUs for a slice, and MaxText splits its axes between slices and the inside of one, unless
    the file says how many there are. Parameters are sharded over the ranks of ``fsdp``, context and experts together.
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
    slices, between = _slices(job, ranks)
    return (
        {"num_slices": slices, "dcn_data": 1}
        | ({f"dcn_{between}": slices} if between else {})
        | {f"ici_{name}": size // (slices if name == between else 1) for name, size in ranks.items()}
    )


def _slices(job: Job, ranks: Mapping[str, int]) -> tuple[int, str]:
    """Slices of TPUs, each the chips of one torus, and the outermost axis that they share evenly; of GPUs one."""
    tiers = job.plan.request["cluster"].get("tiers") or [{}]
    torus = int(tiers[0].get("gpus") or 0)
    slices = -(-job.gpus // torus) if job.vendor == TPU and torus else 1
    outer = [name for name in ("pipeline", "data", "fsdp") if ranks[name] % slices == 0]
    refuse("maxtext cannot start this plan:", [(not outer, f"no outer axis has a multiple of {slices} slices")])
    return slices, outer[0] if slices > 1 else ""


def _batch(job: Job) -> dict[str, Any]:
    """Micro-batches are accumulated, or pass the pipeline out of one batch."""
    strategy = job.strategy
    staged = strategy.pp > 1
    together = strategy.micro_batch_size * strategy.dp * (strategy.num_microbatches if staged else 1)
    values = {
        "seq_length": job.seq_length,
        "per_device_batch_size": together / job.gpus,
        "steps": 1 if staged else strategy.num_microbatches,
    }
    if not staged:
        return values
    return values | {
        "layers_per_chunk": job.model.num_layers // (strategy.pp * strategy.vpp),
        "vpp": strategy.vpp,
        "micro_batches": strategy.num_microbatches,
    }


def _remarks(job: Job) -> tuple[str, ...]:
    made_up = "set your own data, tokenizer, checkpoints and base_output_directory: these train on made-up data"
    sized = f"MaxText knows no model {job.model.name}; its sizes are written out, but not its rotary base"
    return (made_up, *(() if job.model.name in MAXTEXT else (sized,)))
