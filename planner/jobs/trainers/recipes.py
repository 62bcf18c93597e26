"""Trainers whose recipes are Transformers' options in their own words: LLaMA-Factory, axolotl, ms-swift, TRL.

As of LLaMA-Factory 0.9, axolotl 0.21 and ms-swift 4.6. A script that is given a recipe is known by what that one holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from planner.jobs.imported import ImportedJob, joined
from planner.jobs.reader import CommandReader, Context, Launch
from planner.jobs.trainers.family import is_program, readers, trainer
from planner.jobs.transformers.arguments import files_of, started, values_of
from planner.jobs.transformers.read import OF_ACCELERATE, OF_TRL, command_job, command_of, names_in
from planner.jobs.transformers.trainer import OPTIONS, TRANSFORMERS, Trainer
from planner.jobs.values import data, truth, whole

_OF_FACTORY: Final = frozenset({"finetuning_type", "cutoff_len", "lora_target", "pref_loss", "flash_attn"})
_PAIRED: Final = frozenset({"orpo", "simpo"})


def _of_llama_factory(values: Mapping[str, Any]) -> dict[str, Any]:
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


LLAMA_FACTORY: Final = trainer("llamafactory", _of_llama_factory)


def on_megatron(keys: Collection[str]) -> bool:
    """Whether the keys of a recipe have Megatron train it: a batch of its own, or its degrees."""
    return {"micro_batch_size", "model"} <= set(keys) or any(key.endswith("_model_parallel_size") for key in keys)


OF_V1: Final[Mapping[str, str]] = {"train": "finetune", "sft": "finetune", "dpo": "dpo", "rm": "reward"}
"""Commands of LLaMA-Factory v1, and what is learnt."""


def is_v1(launch: Launch) -> bool:
    """Whether a command line starts LLaMA-Factory v1, by a variable or by a command that only it has."""
    command = next(iter(started(launch.words).words), "")
    asked = truth(launch.environment.get("USE_V1", "")) or command in OF_V1.keys() - {"train"}
    return is_program(launch, "llamafactory-cli", "lmf") and bool(asked)


_FACTORIES: Final = readers(
    "llamafactory", LLAMA_FACTORY, "recipe", commands=("train",),
    starts=lambda launch: not is_v1(launch) and (
        is_program(launch, "llamafactory-cli", "lmf") or bool(names_in(launch) & {"finetuning_type", "cutoff_len"})
    ),
    recognises=lambda keys: bool(keys & _OF_FACTORY) and "model_name_or_path" in keys and not on_megatron(keys),
)  # fmt: skip


_AXOLOTL: Final = frozenset({"axolotl.cli.train", "scripts/finetune.py"})


def _of_axolotl(values: Mapping[str, Any]) -> dict[str, Any]:
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


AXOLOTL: Final = trainer("axolotl", _of_axolotl)


_AXOLOTLS: Final = readers(
    "axolotl", AXOLOTL, "configuration",
    lambda launch: is_program(launch, "axolotl") or started(launch.words).program in _AXOLOTL,
    commands=("train", "preprocess"),
    recognises=lambda keys: "base_model" in keys and bool(
        keys & {"sequence_len", "micro_batch_size", "datasets", "adapter"}
    ),
)  # fmt: skip


_SWIFT_TASKS: Final = {"sft": "finetune", "pt": "pretrain", "rlhf": "dpo"}
_SWIFT_SCRIPTS: Final = ("cli/sft.py", "cli/pt.py", "cli/rlhf.py", "llm_sft.py", "llm_dpo.py")
_OF_ADAPTERS: Final = frozenset({"tuner_type", "train_type", "sft_type"})


def _of_swift(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options that stand for others here: adapters train unless said, in the format of the products."""
    usual = {} if _OF_ADAPTERS & set(values) else {"tuner_type": "lora"}
    made = {**values, **usual}
    made.setdefault("target_modules", made.get("lora_target_modules", "all-linear"))
    made.setdefault("torch_dtype", "float16" if truth(values.get("fp16", False)) else "bfloat16")
    return made


SWIFT: Final = trainer("swift", _of_swift)


def _starts_swift(launch: Launch) -> bool:
    start = started(launch.words)
    if is_program(launch, "swift"):
        return bool(start.words) and start.words[0] in _SWIFT_TASKS
    return start.program in {"swift", *(f"swift.cli.{one}" for one in _SWIFT_TASKS)} or start.program.endswith(
        _SWIFT_SCRIPTS
    )


def _read_swift(launch: Launch, context: Context) -> ImportedJob:
    start = started(launch.words)
    own = is_program(launch, "swift")
    command = command_of(launch, context, SWIFT, start.words[1:] if own else start.words)
    kind = start.words[0] if own else start.name.rpartition(".")[2]
    found = command_job(launch, context, SWIFT, command=command, task=_SWIFT_TASKS.get(kind, "finetune"))
    alone = own and "NPROC_PER_NODE" not in launch.environment and found.fields.get("gpus", 1) > 1
    effect = "one process places the layers on its GPUs one after another; data parallelism is priced"
    return joined(found, ImportedJob(unpriced=(effect,))) if alone else found


_SWIFTS: Final = readers(
    "swift", SWIFT, "configuration", _starts_swift, read=_read_swift, task=lambda _: "finetune",
    recognises=lambda keys: "model" in keys and not on_megatron(keys)
    and bool(keys & {*_OF_ADAPTERS, "rlhf_type", "split_dataset_ratio"}),
)  # fmt: skip


_TRL_TASKS: Final = ("sft", "dpo", "kto", "orpo", "cpo", "grpo", "rloo", "reward", "ppo", "gkd", "simpo", "online_dpo")
_OF_LAUNCHER: Final = frozenset({"accelerate_config", "num_processes"})
_CONFIGURATIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "single_gpu": {"distributed_type": "NO", "num_processes": 1},
    "multi_gpu": {"distributed_type": "MULTI_GPU"},
    **{f"fsdp{version}": {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": version}} for version in (1, 2)},
    **{f"zero{at}": {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": at}} for at in (1, 2, 3)},
}  # fmt: skip
"""What ``--accelerate_config`` names; without ``num_processes`` all GPUs of the node train."""


def _of_trl(values: Mapping[str, Any]) -> dict[str, Any]:
    """A prompt and a completion make one sequence where both lengths are said and no whole one is."""
    made = dict(values)
    parts = [whole(made.get(name)) for name in ("max_prompt_length", "max_completion_length")]
    if all(parts) and "max_length" not in made:
        made["max_length"] = sum(part or 0 for part in parts)
        del made["max_completion_length"]
    return made


TRL: Final = trainer("trl", _of_trl)
_ITSELF: Final = replace(TRL, own_adapters=False)
"""``trl``, whose words are known all."""


def _task_named(name: str) -> str | None:
    """The task that a script's or a recipe's name says: the whole of it, or a word in it."""
    words = name.lower().replace("-", "_").split("_")
    return next((task for task in _TRL_TASKS if task in words or task == name.lower()), None)


def _starts_trl(launch: Launch) -> bool:
    if is_program(launch, "trl"):
        return True
    start = started(launch.words)
    known = names_in(launch)
    recipe = any(word.endswith((".yaml", ".yml")) for word in start.words)
    named = start.name.lower().removeprefix("run_").removesuffix("_vlm") in _TRL_TASKS
    own = bool(known & (OF_TRL | {"per_device_train_batch_size"}))
    return named and not known & {"stage", "finetuning_type"} and (recipe or own)


def _read_trl(launch: Launch, context: Context) -> ImportedJob:
    start = started(launch.words)
    if not is_program(launch, "trl"):
        return command_job(launch, context, TRL, task=_task_named(start.name))
    command = command_of(launch, context, TRL, start.words[1:])
    left = {name: value for name, value in command.values.items() if name not in _OF_LAUNCHER}
    task, how = next(iter(start.words), None), _accelerate(command.values, context)
    return command_job(launch, context, _ITSELF, command=replace(command, values=left), task=task, accelerate=how)


def _accelerate(values: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """How ``trl`` starts its scripts: one of its own configurations, or a file."""
    name = str(values.get("accelerate_config", "multi_gpu"))
    file = None if name in _CONFIGURATIONS else context.find(name)
    usual: Mapping[str, Any] = _CONFIGURATIONS.get(name, {"distributed_type": "MULTI_GPU"})
    found = dict((file.document if file else None) or usual)
    return found | ({"num_processes": count} if (count := whole(values.get("num_processes"))) else {})


_NOT_TRL: Final = {"finetuning_type", "cutoff_len"} | OF_ACCELERATE
_TRLS: Final = readers(
    "trl", TRL, "recipe", _starts_trl, read=_read_trl,
    recognises=lambda keys: "model_name_or_path" in keys and bool(keys & OF_TRL) and not keys & _NOT_TRL,
    task=lambda file: _task_named(file.path.stem) or _task_named(file.path.parent.name) or "sft",
)  # fmt: skip
READERS: Final = (*_FACTORIES, *_AXOLOTLS, *_SWIFTS, *_TRLS)
_TRAINERS: Final[Mapping[str, Trainer]] = {
    "llamafactory": LLAMA_FACTORY, "axolotl": AXOLOTL, "swift": SWIFT, "trl": TRL
}  # fmt: skip


def _recipe(launch: Launch) -> str | None:
    """The file of options that a script is given: by its place, or by ``--config`` under Accelerate and DeepSpeed."""
    start = started(launch.words)
    files = files_of(start.words, ".yaml", ".yml", ".json")
    if Path(next(iter(launch.words), "")).name in {"accelerate", "deepspeed"}:
        named = str(values_of(start.words, OPTIONS).get("config", ""))
        files += [named] if named.endswith((".yaml", ".yml")) else []
    return files[0] if files else None


def _is_given_recipe(launch: Launch) -> bool:
    program = started(launch.words).program.lower()
    return program.endswith(".py") and "maxtext" not in program and _recipe(launch) is not None


def _read_recipe(launch: Launch, context: Context) -> ImportedJob:
    """The job of the trainer whose recipe it is; Transformers' own where it is none that is known, or not here."""
    file = launch.file(_recipe(launch) or "", context)
    known = [one.form for one in READERS if not isinstance(one, CommandReader) and file and one.recognises(file)]
    return command_job(launch, context, _TRAINERS[known[0]] if known else TRANSFORMERS)


SCRIPTS: Final = CommandReader("transformers", "a script with a recipe", "", _is_given_recipe, _read_recipe)
