"""Trainers whose files are tables within tables: paths into them stand for Transformers' words, as a table says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.jobs.data import data
from planner.jobs.imported import ImportedJob, joined
from planner.jobs.megatron.configurations import resolved_tables
from planner.jobs.options import present
from planner.jobs.reader import Context
from planner.jobs.transformers.job import training_job
from planner.jobs.transformers.trainer import Trainer
from planner.jobs.values import truth


def plain_words(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Values of a document, whose tables may refer to each other, in the words of a trainer's table, else by path."""
    said = data(f"trainers/{name}")["words"]
    return {said.get(path, path): value for path, value in leaves(document)}


def leaves(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What stands in tables within tables, by path, with what it refers to in its place; what is empty is left out."""

    def within(table: Mapping[str, Any], front: str) -> Iterator[tuple[str, Any]]:
        for key, value in table.items():
            if isinstance(value, Mapping):
                yield from within(value, f"{front}{key}.")
            elif value is not None:
                yield f"{front}{key}", value

    yield from within(resolved_tables(document, document), "")


def full_shard(*, kept: bool = False, offload: Any = False) -> str:
    """Transformers' word for FSDP over all ranks: whether parameters stay gathered, and whether the host holds them."""
    return " ".join(["shard_grad_op" if kept else "full_shard", *(["offload"] if truth(offload) else [])])


def on_own_kernels(job: ImportedJob, name: str, *, compiled: bool) -> ImportedJob:
    """A job of Transformers' options on PyTorch's plain kernels, fused if compiled, as its trainer's table says."""
    said = data("trainers/nested")
    kernels = said["compiled"] if compiled else data("torchtitan/words")["eager"]
    changes = {**data(f"trainers/{name}").get("kernels", {}), **kernels}
    narrow = job.fields.get("optimizer") == "adam-bf16" or "adapters" in job.fields
    changes |= said["narrow"] if narrow and job.fields.get("precision") == "bf16" else {}
    own = job.fields.get("changes") or {}
    kept = {path: value for path, value in own.items() if path == "stack.attention_backend"}
    fields = {path: value for path, value in job.fields.items() if path not in {"main_grads", "changes"}}
    fields |= {"stack": said["stack"], "changes": {**changes, **kept}}
    if "adapters" in fields:
        fields["adapters"] = str(fields["adapters"]).replace("/autocast", "/summed")
    return replace(job, fields=fields, framework=None)


def tuned(
    values: Mapping[str, Any], trainer: Trainer, context: Context, *, gpus: int | None, batch: int | None, task: str
) -> ImportedJob:
    """The job of such values; a batch of all ranks stands above steps of accumulation."""
    job = training_job(values, trainer, context, gpus=gpus, task=task)
    if batch is None:
        return job
    pins = {name: pin for name, pin in job.pins.items() if name != "steps"}
    return joined(replace(job, pins=pins), ImportedJob(present(global_batch_size=batch)))
