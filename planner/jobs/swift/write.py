"""ms-swift: a file of the arguments of its commands."""

from __future__ import annotations

from typing import Any, Final

from planner.jobs.job import Export, Job
from planner.jobs.swift.read import SWIFT
from planner.jobs.transformers.write import FILE, Written, written

_TASKS: Final = {"pretrain": "pt", "finetune": "sft", "dpo": "rlhf", "kto": "rlhf", "orpo": "rlhf", "simpo": "rlhf"}
_LEFT: Final = frozenset({"use_peft", "load_in_4bit", "load_in_8bit", "rlhf_type", "finetuning_type"})
_FORMATS: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def _finished(document: dict[str, Any], job: Job) -> dict[str, Any]:
    """Its words for adapters and for the format of weights, which is that of the products."""
    left = {name: value for name, value in document.items() if name not in _LEFT}
    modules, task = left.pop("target_modules", None), str(job.asked("task") or "finetune")
    named = {"target_modules": modules.split(",")} if modules else {}
    bits = {"quant_method": "bnb", "bnb_4bit_use_double_quant": "double" in str(job.asked("base_precision"))}
    own = {"tuner_type": "lora" if modules else "full", "torch_dtype": _FORMATS[job.precision]}
    paired = {"rlhf_type": task} if _TASKS[task] == "rlhf" else {}
    return {**left, **own, **named, **(bits if "quant_bits" in left else {}), **paired, "dataset": ["put-yours-here"]}


_HOW: Final = Written(
    "swift", SWIFT, {"deepspeed": ("-m", "swift.cli.{task}", "--config", FILE)}, _TASKS, splits=True, finished=_finished
)  # fmt: skip


def swift(job: Job, version: str) -> Export:  # noqa: ARG001 - a writer's
    """The arguments of ms-swift 4.6, with DeepSpeed.

    Raises:
        Inexpressible: ms-swift lacks a part of the plan.
    """
    return written(job, _HOW)
