"""The trainers on Transformers' by their tables, and the two readers that each has: of command lines and of recipes.

Paths into files of tables within tables stand for Transformers' words, as a table says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from planner.jobs.imported import ImportedJob, joined
from planner.jobs.megatron.configurations import resolved_tables
from planner.jobs.options import present, rows
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch
from planner.jobs.transformers.arguments import started
from planner.jobs.transformers.job import training_job
from planner.jobs.transformers.read import command_job, command_of, file_job
from planner.jobs.transformers.trainer import EFFECTS, HARMLESS, Trainer, training_options, zero
from planner.jobs.values import data, each_name, truth, words

Read = Callable[[Launch, Context], ImportedJob]


def trainer(
    name: str, translated: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict, *, alone: bool = False
) -> Trainer:
    """A trainer by its table; ``alone``: none of Transformers' harmless options are harmless here.

    ``translated`` puts its options in Transformers' words, where some mean what no word there does.
    """
    said = data(f"trainers/{name}")
    plain = {one.name: said[one.name] for one in fields(Trainer) if one.name in said}
    return Trainer(**plain | {
        "options": training_options(*rows(said.get("options", {}))),
        "harmless": words(said["harmless"]) + (() if alone else HARMLESS),
        "effects": {**EFFECTS, **each_name(said["unpriced"])},
        "deepspeed": {one: zero(**row) for one, row in said.get("deepspeed", {}).items()},
        "translated": translated,
    })  # fmt: skip


def readers(
    form: str,
    of: Trainer,
    called: str,
    starts: Callable[[Launch], bool],
    recognises: Callable[[set[str]], bool],
    *,
    commands: Collection[str] = (),
    read: Read | None = None,
    task: Callable[[JobFile], str | None] = lambda _: None,
) -> tuple[CommandReader, DocumentReader]:
    """The readers of a trainer: of its command lines, and of files, which are ``called`` so, by their keys.

    Its program has ``commands`` in front of the options; ``read`` makes a job where more than these says it, ``task``
    is what a file trains by its name.
    """

    def of_launch(launch: Launch, context: Context) -> ImportedJob:
        start = started(launch.words)
        given = start.words[1:] if start.words[:1] and start.words[0] in commands else start.words
        return command_job(launch, context, of, command=command_of(launch, context, of, given))

    return (
        CommandReader(form, f"a command line of {of.title}", "", starts, read or of_launch),
        DocumentReader(
            form, f"a {called} of {of.title}", "",
            lambda file: recognises({str(key) for key in file.document or ()}),
            lambda file, context: file_job(file, context, of, task(file)),
        ),
    )  # fmt: skip


def is_program(launch: Launch, *names: str) -> bool:
    """Whether a command line starts one of some programs, wherever they lie."""
    return Path(started(launch.words).program).name in names


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


def by_ulysses(job: ImportedJob) -> ImportedJob:
    """A job whose context ranks exchange all to all, for which Accelerate's FSDP has no rules."""
    if job.pins.get("cp", 1) == 1:
        return job
    return replace(job, pins={**job.pins, "cp_kind": "a2a"}, framework=None)


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
