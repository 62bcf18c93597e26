"""LLaMA-Factory's recipes and command lines as questions, as of LLaMA-Factory 0.9."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.jobs.data import data
from planner.jobs.trainers.family import is_program, readers, trainer
from planner.jobs.transformers.read import names_in
from planner.jobs.values import truth

_KEYS: Final = frozenset({"finetuning_type", "cutoff_len", "lora_target", "pref_loss", "flash_attn"})
_PAIRED: Final = frozenset({"orpo", "simpo"})


def _translated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options that stand for others here: recomputation is on unless it is disabled, and adapters train unless said."""
    switches = data("trainers/llamafactory")["optimizers"]
    made: dict[str, Any] = {"finetuning_type": "lora", "lora_target": "all"}
    made |= {name: value for name, value in values.items() if name not in switches}
    made["gradient_checkpointing"] = not truth(values.get("disable_gradient_checkpointing", False))
    if truth(values.get("pure_bf16", False)):
        made |= {"bf16": True, "dtype": "bfloat16"}
    chosen = next((name for switch, name in switches.items() if truth(values.get(switch, False))), None)
    made |= {"optim": chosen} if chosen else {}
    loss = str(values.get("pref_loss", "")).lower()
    return made | ({"stage": loss} if made.get("stage") == "dpo" and loss in _PAIRED else {})


LLAMA_FACTORY: Final = trainer("llamafactory", _translated)


READERS: Final = readers(
    "llamafactory", LLAMA_FACTORY, "recipe", commands=("train",),
    starts=lambda launch: is_program(launch, "llamafactory-cli", "lmf")
    or bool(names_in(launch) & {"finetuning_type", "cutoff_len"}),
    recognises=lambda keys: bool(keys & _KEYS) and "model_name_or_path" in keys,
)  # fmt: skip
