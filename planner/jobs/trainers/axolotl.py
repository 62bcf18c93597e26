"""axolotl's YAML as a question, as of axolotl 0.21."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.jobs.data import data
from planner.jobs.trainers.family import is_program, readers, trainer
from planner.jobs.transformers.arguments import started
from planner.jobs.values import truth, whole

_PROGRAMS: Final = frozenset({"axolotl.cli.train", "scripts/finetune.py"})


def _translated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options that stand for others here: switches of attention and of formats, and adapters of every module."""
    made = dict(values)
    for switch, word in data("trainers/axolotl")["attention"].items():
        if truth(made.pop(switch, False)):
            made.setdefault("attn_implementation", word)
    if str(made.get("bf16", "auto")).lower() in {"auto", "full"} and not truth(made.get("fp16", False)):
        made["bf16"] = True
    if truth(made.get("float32", False)):
        made |= {"dtype": "float32", "bf16": False}
    made["gradient_checkpointing"] = str(made.get("gradient_checkpointing", "")).lower() not in {"false", "none", ""}
    if truth(made.get("lora_target_linear", False)):
        made["lora_target_modules"] = "all-linear"
    batch, micro = (whole(values.get(name)) for name in ("batch_size", "micro_batch_size"))
    if batch and not made.get("gradient_accumulation_steps"):
        made["gradient_accumulation_steps"] = max(1, batch // (micro or 1))
    tasks = {"reward_model": "reward", "pretraining_dataset": "pretrain"}
    made["rl"] = made.get("rl") or next((task for name, task in tasks.items() if values.get(name)), "finetune")
    return {**made, "adapter": made.get("adapter", "full") or "full"}


AXOLOTL: Final = trainer("axolotl", _translated)


READERS: Final = readers(
    "axolotl", AXOLOTL, "configuration",
    lambda launch: is_program(launch, "axolotl") or started(launch.words).program in _PROGRAMS,
    commands=("train", "preprocess"),
    recognises=lambda keys: "base_model" in keys and bool(
        keys & {"sequence_len", "micro_batch_size", "datasets", "adapter"}
    ),
)  # fmt: skip
