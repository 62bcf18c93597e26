"""LLaMA-Factory: a recipe."""

from __future__ import annotations

from typing import Any, Final

from planner.jobs.job import Export, Job
from planner.jobs.llamafactory.read import LLAMA_FACTORY
from planner.jobs.transformers.write import FILE, Written, written

_TASKS: Final = {"pretrain": "pt", "finetune": "sft", "dpo": "dpo", "kto": "kto", "reward": "rm"}
_LEFT: Final = frozenset({"use_peft", "load_in_4bit", "load_in_8bit", "gradient_checkpointing", "dtype"})


def _finished(document: dict[str, Any], job: Job) -> dict[str, Any]:
    """Recomputation is what it disables; adapters and their formats have words of their own."""
    left = {name: value for name, value in document.items() if name not in _LEFT}
    disabled = {"disable_gradient_checkpointing": True} if job.strategy.recompute == "none" else {}
    doubled = (
        {"double_quantization": "double" in str(job.asked("base_precision"))} if "quantization_bit" in left else {}
    )
    return {**left, **disabled, **doubled, "do_train": True, "dataset": "put-yours-here", "template": "put-yours-here"}


_HOW: Final = Written(
    "llamafactory",
    LLAMA_FACTORY,
    {"deepspeed": ("src/train.py", FILE), "accelerate": ("src/train.py", FILE)},
    _TASKS,
    finished=_finished,
)


def llamafactory(job: Job, version: str) -> Export:  # noqa: ARG001 - a writer's
    """A recipe of LLaMA-Factory 0.9.

    Raises:
        Inexpressible: LLaMA-Factory lacks a part of the plan.
    """
    return written(job, _HOW)
