"""TRL's commands, scripts of its kind and recipes as questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from planner.jobs.imported import ImportedJob
from planner.jobs.reader import Context, Launch
from planner.jobs.trainers.family import is_program, readers, trainer
from planner.jobs.transformers.arguments import started
from planner.jobs.transformers.read import OF_ACCELERATE, OF_TRL, command_job, command_of, names_in
from planner.jobs.values import whole

_TASKS: Final = ("sft", "dpo", "kto", "orpo", "cpo", "grpo", "rloo", "reward", "ppo", "gkd", "simpo", "online_dpo")
_STARTS: Final = frozenset({"accelerate_config", "num_processes"})
_CONFIGURATIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "single_gpu": {"distributed_type": "NO", "num_processes": 1},
    "multi_gpu": {"distributed_type": "MULTI_GPU"},
    **{f"fsdp{version}": {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": version}} for version in (1, 2)},
    **{f"zero{at}": {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": at}} for at in (1, 2, 3)},
}  # fmt: skip
"""What ``--accelerate_config`` names; without ``num_processes`` all GPUs of the node train."""


def _translated(values: Mapping[str, Any]) -> dict[str, Any]:
    """A prompt and a completion make one sequence where both lengths are said and no whole one is."""
    made = dict(values)
    parts = [whole(made.get(name)) for name in ("max_prompt_length", "max_completion_length")]
    if all(parts) and "max_length" not in made:
        made["max_length"] = sum(part or 0 for part in parts)
        del made["max_completion_length"]
    return made


TRL: Final = trainer("trl", _translated)
_ITSELF: Final = replace(TRL, own_adapters=False)
"""``trl``, whose words are known all."""


def _task(name: str) -> str | None:
    """The task that a script's or a recipe's name says: the whole of it, or a word in it."""
    words = name.lower().replace("-", "_").split("_")
    return next((task for task in _TASKS if task in words or task == name.lower()), None)


def _starts(launch: Launch) -> bool:
    if is_program(launch, "trl"):
        return True
    start = started(launch.words)
    known = names_in(launch)
    recipe = any(word.endswith((".yaml", ".yml")) for word in start.words)
    named = start.name.lower().removeprefix("run_").removesuffix("_vlm") in _TASKS
    own = bool(known & (OF_TRL | {"per_device_train_batch_size"}))
    return named and not known & {"stage", "finetuning_type"} and (recipe or own)


def _read(launch: Launch, context: Context) -> ImportedJob:
    start = started(launch.words)
    if not is_program(launch, "trl"):
        return command_job(launch, context, TRL, task=_task(start.name))
    command = command_of(launch, context, TRL, start.words[1:])
    left = {name: value for name, value in command.values.items() if name not in _STARTS}
    task, how = next(iter(start.words), None), _accelerate(command.values, context)
    return command_job(launch, context, _ITSELF, command=replace(command, values=left), task=task, accelerate=how)


def _accelerate(values: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """How ``trl`` starts its scripts: one of its own configurations, or a file."""
    name = str(values.get("accelerate_config", "multi_gpu"))
    file = None if name in _CONFIGURATIONS else context.find(name)
    usual: Mapping[str, Any] = _CONFIGURATIONS.get(name, {"distributed_type": "MULTI_GPU"})
    found = dict((file.document if file else None) or usual)
    return found | ({"num_processes": count} if (count := whole(values.get("num_processes"))) else {})


_OTHERS: Final = {"finetuning_type", "cutoff_len"} | OF_ACCELERATE
READERS: Final = readers(
    "trl", TRL, "recipe", _starts, read=_read,
    recognises=lambda keys: "model_name_or_path" in keys and bool(keys & OF_TRL) and not keys & _OTHERS,
    task=lambda file: _task(file.path.stem) or _task(file.path.parent.name) or "sft",
)  # fmt: skip
