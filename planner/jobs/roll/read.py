"""ROLL's YAML as a question: what the actor trains; models that sample and judge are reported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob
from planner.jobs.megatron.configurations import resolved_tables, table_job, table_words
from planner.jobs.megatron.dialect import dialect
from planner.jobs.options import present
from planner.jobs.reader import Context, reader_of_tables
from planner.jobs.trainers.family import full_shard, trainer
from planner.jobs.transformers.job import training_job
from planner.jobs.values import table_at, truth, whole

_DEVICES: Final = re.compile(r"list\(range\((\d+),\s*(\d+)\)\)")
_MEGATRON: Final = dialect("roll")
_FSDP: Final = trainer("roll", alone=True)


def _roll_job(document: Mapping[str, Any], context: Context) -> ImportedJob:
    """The job of the actor."""
    document = resolved_tables(document, document)
    actor = document["actor_train"]
    training, strategy, model = (table_at(actor, f"{name}_args") for name in ("training", "strategy", "model"))
    name, config = str(strategy.get("strategy_name")), table_at(strategy, "strategy_config")
    found = _DEVICES.fullmatch(str(actor.get("device_mapping", "")))
    gpus = int(found[2]) - int(found[1]) if found else None
    parts = [whole(document.get(part)) for part in ("prompt_length", "response_length")]
    length = whole(document.get("sequence_length")) or sum(part or 0 for part in parts)
    micro, steps = (
        whole(training.get(one)) or 1 for one in ("per_device_train_batch_size", "gradient_accumulation_steps")
    )
    if name == "megatron_train":
        options = table_words(config, {"": ""})
        options |= {"micro-batch-size": [str(micro)], "gradient-accumulation-steps": [str(steps)]}
        options |= {"seq-length": [str(length)]} if length else {}
        options |= {"model.name": [str(named)]} if (named := document.get("pretrain")) else {}
        job = table_job(options, _MEGATRON, context)
        return replace(job, fields={**job.fields, **present(gpus=gpus)})
    if name != "fsdp2_train":
        raise BadRequest(f"strategy_name: {name!r:.40} is not priced; megatron_train, fsdp2_train are")
    values = {
        "model_name_or_path": document.get("pretrain"),
        "max_length": length or None,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": steps,
        "gradient_checkpointing": not truth(model.get("disable_gradient_checkpointing", False)),
        "bf16": True,
        "attn_implementation": model.get("attn_implementation", model.get("flash_attn", "fa2")),
        "fsdp": full_shard(offload=config.get("offload_policy", False)),
        "use_peft": bool(whole(model.get("lora_rank"))),
        "lora_r": model.get("lora_rank"),
        "lora_target_modules": model.get("lora_target", "all-linear"),
    }
    kept = {name: value for name, value in values.items() if value is not None}
    degree = whole(config.get("fsdp_size"))
    job = training_job(kept, _FSDP, context, gpus=gpus, task="ppo")
    pins = {**job.pins, **present(sharding_degree=degree if degree and degree not in {1, gpus} else None)}
    return replace(job, pins=pins)


READERS: Final = (
    reader_of_tables(
        "roll", "a configuration of ROLL", "",
        lambda document: "strategy_args" in table_at(document, "actor_train"), _roll_job,
    ),
)  # fmt: skip
