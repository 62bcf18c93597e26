"""oumi's configurations as questions: Transformers' options in tables, sharded by FSDP or DeepSpeed if they say so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob
from planner.jobs.reader import CommandReader, Context, Launch, configured, reader_of_tables
from planner.jobs.shell.processes import processes
from planner.jobs.trainers.family import plain_words, trainer, tuned
from planner.jobs.transformers.arguments import values_of
from planner.jobs.transformers.trainer import FORMATS, OPTIONS, zero
from planner.jobs.values import at_path, data, has_all, truth, whole

OUMI: Final = trainer("oumi")


def _job(document: Mapping[str, Any], context: Context, gpus: int | None = None) -> ImportedJob:
    """The job of a configuration."""
    made = {name.removeprefix("training."): value for name, value in plain_words(document, "oumi").items()}
    mixed = str(made.pop("mixed_precision_dtype", "none")).lower()
    products = mixed if mixed in {"bf16", "fp16"} else FORMATS.get(str(made.get("dtype", "float32")).lower(), "fp32")
    if products in {"bf16", "fp16"}:
        made[products] = True
    bits = whole(made.pop("peft.q_lora_bits", 4))
    if truth(made.pop("load_in_4bit", False)):
        made |= {"load_in_4bit": bits == 4, "load_in_8bit": bits == 8}
    if truth(made.get("fsdp.enable_fsdp", False)) and truth(made.get("deepspeed.enable_deepspeed", False)):
        raise BadRequest("fsdp and deepspeed are both enabled; oumi takes one of them")
    if made.get("fsdp.enable_fsdp"):
        away = " offload" if truth(made.get("fsdp.cpu_offload", False)) else ""
        made["fsdp"] = str(made.get("fsdp.sharding_strategy", "FULL_SHARD")).lower() + away
    if made.get("deepspeed.enable_deepspeed"):
        stage = int(str(made.get("deepspeed.zero_stage", "ZERO_0"))[-1])
        own = at_path(document, "deepspeed") or {}
        kept = {name: own[name] for name in ("overlap_comm", "reduce_bucket_size") if name in own}
        made["deepspeed"] = zero(stage, offload=bool(own.get("offload_optimizer")), bf16=products == "bf16", **kept)
    task = data("trainers/oumi")["tasks"].get(str(made.get("trainer_type", "TRL_SFT")).rpartition("_")[2], "finetune")
    task = "pretrain" if made.get("model.load_pretrained_weights") is False else task
    return tuned(made, OUMI, context, gpus=gpus, batch=None, task=task)


def _read(launch: Launch, context: Context) -> ImportedJob:
    said = values_of(launch.words[launch.words.index("train") + 1 :], OPTIONS)
    name = str(said.pop("config", said.pop("c", "")))
    pairs = {path: str(value) for path, value in said.items() if "." in path}
    return configured(launch, context, name, pairs, lambda document: _job(document, context, processes(launch)))


READERS: Final = (
    CommandReader(
        "oumi", "a command line of oumi", "",
        lambda launch: "oumi" in {word.rpartition("/")[2] for word in launch.words[:12]} and "train" in launch.words,
        _read,
    ),
    reader_of_tables(
        "oumi", "a configuration of oumi", "",
        lambda document: has_all(document, "model.model_name", "training.trainer_type"), _job,
    ),
)  # fmt: skip
