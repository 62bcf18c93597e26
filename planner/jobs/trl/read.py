"""TRL's commands, scripts of its kind and recipes as questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from planner.jobs.imported import ImportedJob
from planner.jobs.options import number, text
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch
from planner.jobs.transformers.arguments import started
from planner.jobs.transformers.options import EFFECTS, HARMLESS, training_options
from planner.jobs.transformers.read import OF_ACCELERATE, OF_TRL, command_job, command_of, file_job, names_in
from planner.jobs.transformers.trainer import Trainer
from planner.jobs.values import whole, words

_TASKS: Final = ("sft", "dpo", "kto", "orpo", "cpo", "grpo", "rloo", "reward", "ppo", "gkd", "simpo", "online_dpo")
_MARKS: Final = OF_TRL | {"per_device_train_batch_size"}
_STARTS: Final = frozenset({"accelerate_config", "num_processes"})
_CONFIGURATIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "single_gpu": {"distributed_type": "NO", "num_processes": 1},
    "multi_gpu": {"distributed_type": "MULTI_GPU"},
    **{f"fsdp{version}": {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": version}} for version in (1, 2)},
    **{f"zero{at}": {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": at}} for at in (1, 2, 3)},
}  # fmt: skip
"""What ``--accelerate_config`` names; without ``num_processes`` all GPUs of the node train."""

OPTIONS: Final = training_options(
    number("max_length", "seq_length", least=-1, older=("max_seq_length", "max_completion_length", "block_size")),
    text("attn_implementation", "attention", older=("attn_impl", "use_flash_attention_2")),
)
EFFECTSOF_TRL: Final = {
    **EFFECTS,
    "use_vllm": "vLLM generates samples, on these GPUs or others: more time and memory",
    "precompute_ref_log_probs": "the reference model first passes over all data",
    "sync_ref_model": "the reference model is updated now and then",
    "cast_lm_head_to_fp32": "the head multiplies in fp32: a longer iteration",
}
HARMLESS_IN_IT: Final = HARMLESS + words("""
    auto_insert_empty_system_msg benchmark* beta callback* chat* code_* cosine_* cpo_alpha dataset* delta
    desirable_weight disable_dropout ds3_gather* e2b_* epsilon* force_use_ref_model formatted_* generation_* hub_*
    ignore_bias* importance* log* loss_type loss_weights mask* max_prompt_length max_target_length min_p morph_*
    num_completions* num_generations num_iterations overwrite_hub_revision packing_strategy pad_* padding_*
    parallel_code* precompute_ref_batch_size ref_model* repetition_* reward* rpo_alpha scale* simpo_gamma
    skip_prepare_dataset steps_per_gen* sync_* temperature text_column top* truncation_mode undesirable_weight vllm*
    wandb_* weighted_sampling
""")


def _translated(values: Mapping[str, Any]) -> dict[str, Any]:
    """A prompt and a completion make one sequence where both lengths are said and no whole one is."""
    made = dict(values)
    parts = [whole(made.get(name)) for name in ("max_prompt_length", "max_completion_length")]
    if all(parts) and "max_length" not in made:
        made["max_length"] = sum(part or 0 for part in parts)
        del made["max_completion_length"]
    return made


TRL: Final = Trainer(
    "TRL",
    OPTIONS,
    harmless=HARMLESS_IN_IT,
    effects=EFFECTSOF_TRL,
    precision="bf16",
    switches=True,
    adapters="asked",
    own_adapters=True,
    rank=16,
    recompute=True,
    seq_length=1024,
    translated=_translated,
)
_ITSELF: Final = replace(TRL, own_adapters=False)
"""``trl``, whose words are known all."""


def _task(name: str) -> str | None:
    """The task that a script's or a recipe's name says: the whole of it, or a word in it."""
    words = name.lower().replace("-", "_").split("_")
    return next((task for task in _TASKS if task in words or task == name.lower()), None)


def _recognises(launch: Launch) -> bool:
    start = started(launch.words)
    if Path(start.program).name == "trl":
        return True
    known = names_in(launch)
    recipe = any(word.endswith((".yaml", ".yml")) for word in start.words)
    named = start.name.lower().removeprefix("run_").removesuffix("_vlm") in _TASKS
    return named and not known & {"stage", "finetuning_type"} and (recipe or bool(known & _MARKS))


def _read(launch: Launch, context: Context) -> ImportedJob:
    start = started(launch.words)
    own = Path(start.program).name == "trl"
    words = start.words[1:] if own else start.words
    task = start.words[0] if own and start.words else _task(start.name)
    command = command_of(launch, context, TRL, words)
    if not own:
        return command_job(launch, context, TRL, command=command, task=task)
    left = {name: value for name, value in command.values.items() if name not in _STARTS}
    accelerate = _accelerate(command.values, context)
    command = replace(command, values=left)
    return command_job(launch, context, _ITSELF, command=command, task=task, accelerate=accelerate)


def _accelerate(values: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """How ``trl`` starts its scripts: one of its own configurations, or a file."""
    name = str(values.get("accelerate_config", "multi_gpu"))
    file = None if name in _CONFIGURATIONS else context.find(name)
    usual: Mapping[str, Any] = _CONFIGURATIONS.get(name, {"distributed_type": "MULTI_GPU"})
    found = dict((file.document if file else None) or usual)
    return found | ({"num_processes": count} if (count := whole(values.get("num_processes"))) else {})


def _recognises_file(file: JobFile) -> bool:
    keys = set(file.document or ())
    others = {"finetuning_type", "cutoff_len"} | OF_ACCELERATE
    return "model_name_or_path" in keys and bool(keys & OF_TRL) and not keys & others


def _read_file(file: JobFile, context: Context) -> ImportedJob:
    return file_job(file, context, TRL, _task(file.path.stem) or _task(file.path.parent.name) or "sft")


READERS: Final = (
    CommandReader("trl", "a command line of TRL", "", _recognises, _read),
    DocumentReader("trl", "a recipe of TRL", "", _recognises_file, _read_file),
)
