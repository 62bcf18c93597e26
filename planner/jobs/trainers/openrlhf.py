"""OpenRLHF's command lines as questions, with the dotted options of today and the plain ones of before 0.9."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final

from planner.jobs.imported import ImportedJob, joined
from planner.jobs.options import present
from planner.jobs.reader import CommandReader, Context, Launch
from planner.jobs.trainers.family import trainer
from planner.jobs.transformers.arguments import Started, values_of
from planner.jobs.transformers.read import Command, command_job
from planner.jobs.transformers.trainer import Trainer
from planner.jobs.values import data, truth, whole

_PROGRAM: Final = re.compile(r"(?:.*/)?openrlhf[./]cli[./]train_(\w+?)(?:\.py)?")
_TASKS: Final = {"sft": "finetune", "dpo": "dpo", "rm": "reward", "kto": "kto", "prm": "finetune", "kd": "finetune"}
"""What its trainers learn; any other is PPO's or its kin's."""
_OF_TODAY: Final = frozenset({"param_dtype", "attn_implementation"})
"""Names that a command line has only since 16 bits and FlashAttention are what it runs with."""


def _document(values: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of DeepSpeed that it makes (``openrlhf.utils.deepspeed``)."""
    states = "cpu" if truth(values.get("adam_offload", False)) else "none"
    zero = {
        "stage": whole(values.get("zero_stage", 2)),
        "offload_optimizer": {"device": states},
        "reduce_bucket_size": "auto",
        "zero_hpz_partition_size": whole(values.get("zpg", 1)),
        "overlap_comm": bool(truth(values.get("overlap_comm", False))),
    }
    return {
        "train_batch_size": whole(values.get("train_batch_size", 128)),
        "zero_optimization": zero,
        _form(values): {"enabled": True},
        "tensor_parallel": {"autotp_size": whole(values.get("ds_tensor_parallel_size", 1))},
        "data_types": present(grad_accum_dtype=values.get("grad_accum_dtype")),
    }


def _form(values: Mapping[str, Any]) -> str:
    return "fp16" if values.get("param_dtype") == "fp16" else "bf16"


def _translated(micro: int) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Its options in Transformers' words, with DeepSpeed's configuration; ``micro`` where no micro-batch is said."""

    def translated(values: Mapping[str, Any]) -> dict[str, Any]:
        plain = data("trainers/openrlhf")["plain"]
        made = {
            plain.get(name, name.removeprefix("ds." if name.startswith("ds.") else "train.")): value
            for name, value in values.items()
        }
        lengths = [whole(made.get(name)) for name in ("prompt_max_len", "generate_max_len")]
        if any(lengths):
            made.setdefault("max_len", sum(each or 1024 for each in lengths))
        today = bool(_OF_TODAY & set(made)) or any("." in name for name in values)
        if not {"attn_implementation"} & set(made):
            flash = today or truth(made.pop("flash_attn", False))
            made["attn_implementation"] = "flash_attention_2" if flash else "eager"
        if "param_dtype" in made:
            made[_form(made)] = True
        each = whole(made.pop("micro_train_batch_size", micro))
        made["deepspeed"] = {**_document(made), "train_micro_batch_size_per_gpu": each}
        if whole(made.get("lora_rank")):
            made |= {"use_peft": True, "target_modules": made.get("target_modules", "all-linear")}
        left = ("zero_stage", "train_batch_size", "ds_tensor_parallel_size")
        return {name: value for name, value in made.items() if name not in left}

    return translated


def _trainer(name: str) -> Trainer:
    return trainer("openrlhf", _translated(8 if name in _TASKS else 1), alone=True)


def _started(launch: Launch) -> tuple[int, str] | None:
    """Where its program stands in a command line, and which of its trainers it is."""
    found = ((at, _PROGRAM.fullmatch(word)) for at, word in enumerate(launch.words))
    return next(((at, one[1]) for at, one in found if one), None)


def _read(launch: Launch, context: Context) -> ImportedJob:
    at, name = _started(launch) or (0, "")
    given = launch.words[at + 1 :]
    values = values_of(given, _trainer(name).options)
    start = Started(launch.words[:at], launch.words[at], given)
    pretrains = truth(values.get("pretrain_mode", values.get("model.pretrain_mode_enable", False)))
    task = "pretrain" if pretrains else _TASKS.get(name, "ppo")
    job = command_job(launch, context, _trainer(name), command=Command(start, values, None), task=task)
    sides = (("actor_num_nodes", "actor.num_nodes"), ("actor_num_gpus_per_node", "actor.num_gpus_per_node"))
    counts = [whole(values.get(old, values.get(new, usual))) for (old, new), usual in zip(sides, (1, 8), strict=True)]
    actors = {} if name in _TASKS else present(gpus=prod(one or 1 for one in counts))
    return joined(job, ImportedJob(actors))


READERS: Final = (
    CommandReader(
        "openrlhf", "a command line of OpenRLHF", "", lambda launch: _started(launch) is not None, _read
    ),
)  # fmt: skip
