"""TRL: a recipe for its commands."""

from __future__ import annotations

from typing import Any, Final

from planner.jobs.job import Export, Job
from planner.jobs.transformers.write import Written, written
from planner.jobs.trl.read import TRL

_FILE: Final = "{task}.yaml"
"""A recipe does not say what is trained; its name does, and the command."""
_TASKS: Final = {"finetune": "sft", "dpo": "dpo", "kto": "kto", "reward": "reward"}


def _finished(document: dict[str, Any], job: Job) -> dict[str, Any]:
    """Without what its command says: the task; TRL knows adapters by use_peft alone."""
    left = {
        name: value for name, value in document.items() if name not in {"stage", "finetuning_type", "quantization_bit"}
    }
    modules = left.pop("lora_target_modules", None)
    left |= {"use_bnb_nested_quant": True} if "double" in str(job.asked("base_precision")) else {}
    return left | ({"lora_target_modules": modules.split(",")} if modules else {}) | {"dataset_name": "put-yours-here"}


_HOW: Final = Written(
    "trl",
    TRL,
    {
        "deepspeed": ("-m", "trl.scripts.{task}", "--config", _FILE),
        "accelerate": ("-m", "trl.scripts.{task}", "--config", _FILE),
    },
    _TASKS,
    finished=_finished,
    file=_FILE,
)


def trl(job: Job, version: str) -> Export:  # noqa: ARG001 - a writer's
    """A recipe of TRL 1.16.

    Raises:
        Inexpressible: TRL lacks a part of the plan.
    """
    return written(job, _HOW)
