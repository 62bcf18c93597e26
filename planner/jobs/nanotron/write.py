"""nanotron: the YAML that ``run_train.py --config-file`` reads."""

from __future__ import annotations

import math
from typing import Any, Final

from planner.frameworks.nanotron import stage_layers
from planner.jobs.job import Export, Job, refuse
from planner.jobs.launchers import shell
from planner.jobs.nanotron.options import ADAM, OPTIONS, RELEASE, SIZES
from planner.jobs.values import template
from planner.jobs.yaml_text import parse_yaml, yaml_text

FILE: Final = "nanotron.yaml"
_STEPS: Final = 100
"""Of a job that does not say how many tokens it trains on."""
_OF_RUN: Final = "nanotron/of_run.yaml"
"""What nanotron insists on and a plan does not know."""
_REMARKS: Final = (
    "set your own tokenizer, data, checkpoints and learning rate: these train on made-up data",
    "set rope_theta if the model's is not nanotron's default: a plan does not know it",
)


def nanotron(job: Job, version: str) -> Export:
    """The configuration as of commit 2411b02 or of release 0.4, whose layers run once and whose optimizer is Adam."""
    strategy, optimizer, old = job.strategy, job.switches.optimizer, version == RELEASE
    held, own = [stage.layers for stage in strategy.stages], stage_layers(job.model, strategy.pp)
    reasons = [
        (held != own, f"it divides the layers itself, into {own}; the plan has {held}"),
        (old and strategy.recompute != "none", f"release {RELEASE} recomputes nothing; 2411b02 does"),
        (old and optimizer != "adam", f"release {RELEASE} has no optimizer {optimizer}; adam works"),
    ]
    refuse("nanotron cannot start this plan:", reasons)
    text = yaml_text(OPTIONS.document(_values(job), version))
    return Export(
        files={FILE: shell.commented(f"nanotron {version}", _REMARKS, text)},
        program=("run_train.py", "--config-file", FILE),
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
        remarks=_REMARKS,
    )


def _values(job: Job) -> dict[str, Any]:
    """Values by the fields of its options; tensor ranks exchange during products only where sequences are split too."""
    strategy, model = job.strategy, job.model
    split = strategy.sequence_parallel and strategy.tp > 1
    adam, tokens = ADAM if job.switches.optimizer == "adam" else {}, float(job.asked("tokens") or 0)
    return {
        **parse_yaml(template(_OF_RUN)),
        "general": {"project": "meshwright", "run": job.name, "seed": 42},
        **{axis: getattr(strategy, axis) for axis in ("dp", "pp", "tp", "zero_stage")},
        "ep": 1,
        "cp": 1,
        "schedule": "gpipe" if strategy.schedule == "gpipe" else "1f1b",
        "sequence_parallel": split,
        "tensor_overlap": split,
        "recompute": strategy.recompute == "full",
        "precision": job.precision,
        "is_llama": True,
        "is_qwen2": True,
        **{name: getattr(model, name) for name in SIZES},
        "max_positions": job.seq_length,
        "seq_length": job.seq_length,
        "iterations": math.ceil(tokens / (job.seq_length * strategy.global_batch_size)) if tokens else _STEPS,
        "micro_batch_size": int(strategy.micro_batch_size),
        "steps": strategy.num_microbatches,
        "wide_grads": True,
        "optimizer": job.switches.optimizer,
        **ADAM,
        **{f"new_{word}": value for word, value in adam.items()},
    }
