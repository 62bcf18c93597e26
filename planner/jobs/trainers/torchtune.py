"""torchtune's configurations and ``tune run`` as questions, as of torchtune 0.6: FSDP over all ranks, plain formats."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob, joined
from planner.jobs.options import present
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch, configured
from planner.jobs.shell.processes import processes
from planner.jobs.trainers.family import full_shard, on_own_kernels, plain_words, trainer, tuned
from planner.jobs.transformers.arguments import overrides_of
from planner.jobs.values import data, has_all, truth, whole

TORCHTUNE: Final = trainer("torchtune", alone=True)
_BUILDER: Final = re.compile(r"(?:torchtune\.)?models\.(?P<family>\w+)\.(?P<kind>q?lora_)?(?P<name>\w+)")
_WHICH: Final = re.compile(r"_(?:instruct|base|chat)$")
_MLP: Final = ("gate_proj", "up_proj", "down_proj")


def model_of_builder(component: str) -> str:
    """The model that a function builds: ``torchtune.models.llama3_1.lora_llama3_1_8b`` is llama3.1-8b."""
    found = _BUILDER.fullmatch(component)
    if found is None or not found["name"].startswith(found["family"]):
        return component
    size = _WHICH.sub("", found["name"].removeprefix(found["family"]).strip("_"))
    name = "-".join(part.replace("_", ".") for part in (found["family"], size) if part)
    return str(data("trainers/torchtune")["models"].get(name, name))


def _job(document: Mapping[str, Any], context: Context, *, gpus: int | None, single: bool) -> ImportedJob:
    """The job of a configuration, on one device or on all that start it."""
    said, made = data("trainers/torchtune"), plain_words(document, "torchtune")
    component = str(made.get("model_name_or_path", ""))
    builder, loss = _BUILDER.fullmatch(component), str(made.pop("loss", "")).rpartition(".")[2]
    narrow = builder is not None and builder["kind"] == "qlora_"
    optimizer = str(made.pop("optim", "AdamW")).rpartition(".")[2]
    word = str(made.pop("dtype", "bf16"))
    if word not in {"bf16", "fp32"}:
        raise BadRequest(f"dtype: torchtune trains in bf16 and fp32, got {word!r:.40}")
    named = made.get("lora_target_modules")
    modules = named if isinstance(named, list | tuple) else str(named or "").strip("[]").split(",")
    made |= {
        "model_name_or_path": model_of_builder(component),
        "optim": said["optimizers"].get(optimizer, optimizer),
        "dtype": word,
        "bf16": word == "bf16",
        "gradient_checkpointing": truth(made.get("gradient_checkpointing", False)),
        "use_peft": bool(builder and builder["kind"]),
        "load_in_4bit": narrow or bool(truth(made.get("load_in_4bit", False))),
        "lora_target_modules": [*map(str, modules), *(_MLP if truth(made.pop("mlp", 0)) else ())],
        "per_device_train_batch_size": whole(made.get("per_device_train_batch_size")) or 1,
    }
    if not single:
        kept = truth(made.pop("fsdp_reshard_after_forward", True)) is False
        made["fsdp"] = full_shard(kept=kept, offload=made.pop("fsdp_cpu_offload", False))
    freed, hosted = (truth(made.pop(name, False)) for name in ("optimizer_in_bwd", "enable_activation_offloading"))
    parts = document.get("compile")
    compiled = bool(truth(parts.get("model", True) if isinstance(parts, Mapping) else made.pop("torch_compile", False)))
    task = said["tasks"].get(loss, "finetune")
    copies = whole(made.get("data_parallel_replicate_dim")) or 1
    job = tuned(made, TORCHTUNE, context, gpus=gpus, batch=None, task=task)
    job = on_own_kernels(job, "torchtune", compiled=compiled)
    changes = {"stack.gradients.gradient_bytes": 0} if freed and "adapters" not in job.fields else {}
    alone = job.pins.get("offload", "none") == "none"
    more = present(copies=copies if copies > 1 else None, offload="activations" if hosted and alone else None)
    both = data("transformers/words")["unpriced"]["activation_offloading"]
    left = () if alone or not hosted else (f"enable_activation_offloading: {both}",)
    return joined(job, ImportedJob(present(changes=changes or None), more, unpriced=left))


def _read_file(file: JobFile, context: Context) -> ImportedJob:
    single = "single_device" in file.path.name
    return _job(file.document or {}, context, gpus=1 if single else None, single=single)


def _read(launch: Launch, context: Context) -> ImportedJob:
    single = any("single_device" in word for word in launch.words)
    gpus = 1 if single else processes(launch)
    name, pairs = launch.option("config") or "", overrides_of(launch.words)
    return configured(launch, context, name, pairs, lambda made: _job(made, context, gpus=gpus, single=single))


READERS: Final = (
    CommandReader(
        "torchtune", "a command line of torchtune", "",
        lambda launch: launch.words[0].rpartition("/")[2] == "tune" and launch.words[1:2] == ("run",), _read,
    ),
    DocumentReader(
        "torchtune", "a configuration of torchtune", "",
        lambda file: has_all(file.document or {}, "model._component_", "optimizer"), _read_file,
    ),
)  # fmt: skip
