"""Recipes of the trainers: what starts each, its words for tasks, and what it says its own way."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from planner.jobs.job import Job, Write
from planner.jobs.trainers.recipes import AXOLOTL, LLAMA_FACTORY, SWIFT, TRL
from planner.jobs.transformers.write import FILE, Written, written

_DATA: Final = "put-yours-here"
_FORMATS: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def _without(document: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


def _doubled(job: Job) -> bool:
    """Whether the constants of frozen weights of 4 bits are quantised too."""
    return "double" in str(job.asked("base_precision"))


def _of_trl(document: dict[str, Any], job: Job) -> dict[str, Any]:
    """Without what its command says: the task; TRL knows adapters by use_peft alone."""
    left = _without(document, {"stage", "finetuning_type", "quantization_bit"})
    modules = left.pop("lora_target_modules", None)
    left |= {"use_bnb_nested_quant": True} if _doubled(job) else {}
    return left | ({"lora_target_modules": modules.split(",")} if modules else {}) | {"dataset_name": _DATA}


def _of_llamafactory(document: dict[str, Any], job: Job) -> dict[str, Any]:
    """Recomputation is what it disables; adapters and their formats have words of their own."""
    left = _without(document, {"use_peft", "load_in_4bit", "load_in_8bit", "gradient_checkpointing", "dtype"})
    disabled = {"disable_gradient_checkpointing": True} if job.strategy.recompute == "none" else {}
    doubled = {"double_quantization": _doubled(job)} if "quantization_bit" in left else {}
    return {**left, **disabled, **doubled, "do_train": True, "dataset": _DATA, "template": _DATA}


def _of_axolotl(document: dict[str, Any], job: Job) -> dict[str, Any]:
    """Adapters by their kind, none where all weights train; modules as a list."""
    left = {name: value for name, value in document.items() if value != ""}
    left = _without(left, {"use_peft", "finetuning_type", "quantization_bit", "dtype"})
    modules, four = left.pop("lora_target_modules", None), left.get("load_in_4bit")
    kind = {"adapter": "qlora" if four else "lora"}
    adapter = {**kind, "lora_alpha": 2 * left["lora_r"], "lora_target_modules": modules.split(",")} if modules else {}
    adapter |= {"bnb_config_kwargs": {"bnb_4bit_use_double_quant": _doubled(job)}} if four else {}
    return {**_without(left, {"adapter"}), **adapter, "datasets": [{"path": _DATA, "type": "alpaca"}]}


def _of_swift(document: dict[str, Any], job: Job) -> dict[str, Any]:
    """Its words for adapters and for the format of weights, which is that of the products."""
    left = _without(document, {"use_peft", "load_in_4bit", "load_in_8bit", "rlhf_type", "finetuning_type"})
    modules, task = left.pop("target_modules", None), str(job.asked("task") or "finetune")
    named = {"target_modules": modules.split(",")} if modules else {}
    bits = {"quant_method": "bnb", "bnb_4bit_use_double_quant": _doubled(job)} if "quant_bits" in left else {}
    own = {"tuner_type": "lora" if modules else "full", "torch_dtype": _FORMATS[job.precision]}
    paired = {"rlhf_type": task} if HOW["swift"].tasks[task] == "rlhf" else {}
    return {**left, **own, **named, **bits, **paired, "dataset": [_DATA]}


_TRL: Final = ("-m", "trl.scripts.{task}", "--config", "{task}.yaml")
_FACTORY: Final = ("src/train.py", FILE)
HOW: Final[Mapping[str, Written]] = {one.name: one for one in (
    Written("trl", TRL, {"deepspeed": _TRL, "accelerate": _TRL},
            {"finetune": "sft", "dpo": "dpo", "kto": "kto", "reward": "reward"}, finished=_of_trl, file="{task}.yaml"),
    Written("llamafactory", LLAMA_FACTORY, {"deepspeed": _FACTORY, "accelerate": _FACTORY},
            {"pretrain": "pt", "finetune": "sft", "dpo": "dpo", "kto": "kto", "reward": "rm"},
            finished=_of_llamafactory),
    Written("axolotl", AXOLOTL, {"deepspeed": ("-m", "axolotl.cli.train", FILE)},
            {"pretrain": "", "finetune": "", "dpo": "dpo", "kto": "kto", "orpo": "orpo", "simpo": "simpo"},
            finished=_of_axolotl),
    Written("swift", SWIFT, {"deepspeed": ("-m", "swift.cli.{task}", "--config", FILE)},
            {"pretrain": "pt", "finetune": "sft", **dict.fromkeys(("dpo", "kto", "orpo", "simpo"), "rlhf")},
            splits=True, finished=_of_swift),
)}  # fmt: skip
"""How each is written; a recipe of TRL does not say what is trained: its name does, and the command."""


def recipe(name: str) -> Write:
    """What writes the recipes of a trainer, with the file that shards its states."""
    return lambda job, _version: written(job, HOW[name])
