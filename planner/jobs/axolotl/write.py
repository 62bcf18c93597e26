"""axolotl: its YAML."""

from __future__ import annotations

from typing import Any, Final

from planner.jobs.axolotl.read import AXOLOTL
from planner.jobs.job import Export, Job
from planner.jobs.transformers.write import FILE, Written, written

_TASKS: Final = {"pretrain": "", "finetune": "", "dpo": "dpo", "kto": "kto", "orpo": "orpo", "simpo": "simpo"}
_LEFT: Final = frozenset({"use_peft", "finetuning_type", "quantization_bit", "dtype"})


def _finished(document: dict[str, Any], job: Job) -> dict[str, Any]:
    """Adapters by their kind, none where all weights train; modules as a list."""
    left = {name: value for name, value in document.items() if name not in _LEFT and value != ""}
    modules = left.pop("lora_target_modules", None)
    kind = "qlora" if left.get("load_in_4bit") else "lora"
    adapter = (
        {"adapter": kind, "lora_alpha": 2 * left["lora_r"], "lora_target_modules": modules.split(",")}
        if modules
        else {}
    )
    double = "double" in str(job.asked("base_precision"))
    adapter |= {"bnb_config_kwargs": {"bnb_4bit_use_double_quant": double}} if left.get("load_in_4bit") else {}
    without = {name: value for name, value in left.items() if name != "adapter"}
    return {**without, **adapter, "datasets": [{"path": "put-yours-here", "type": "alpaca"}]}


_HOW: Final = Written(
    "axolotl", AXOLOTL, {"deepspeed": ("-m", "axolotl.cli.train", FILE)}, _TASKS, finished=_finished
)  # fmt: skip


def axolotl(job: Job, version: str) -> Export:  # noqa: ARG001 - a writer's
    """The YAML of axolotl 0.19, with DeepSpeed.

    Raises:
        Inexpressible: axolotl lacks a part of the plan.
    """
    return written(job, _HOW)
