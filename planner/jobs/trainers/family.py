"""The trainers on Transformers' by their tables, and the two readers that each has: of command lines and of recipes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from planner.jobs.data import data, words
from planner.jobs.imported import ImportedJob
from planner.jobs.options import rows
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch
from planner.jobs.transformers.arguments import started
from planner.jobs.transformers.read import command_job, command_of, file_job
from planner.jobs.transformers.trainer import EFFECTS, HARMLESS, Trainer, training_options, zero

Read = Callable[[Launch, Context], ImportedJob]


def trainer(
    name: str, translated: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict, *, alone: bool = False
) -> Trainer:
    """A trainer by its table.

    Args:
        name: of the table.
        translated: its options in Transformers' words, where some mean what no word there does.
        alone: whether the options that change no price are its own alone, and none of Transformers'.
    """
    said = data(f"trainers/{name}")
    plain = {one.name: said[one.name] for one in fields(Trainer) if one.name in said}
    return Trainer(**plain | {
        "options": training_options(*rows(said.get("options", {}))),
        "harmless": words(said["harmless"]) + (() if alone else HARMLESS),
        "effects": {**EFFECTS, **said["unpriced"]},
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
    """The readers of a trainer.

    Args:
        form: as ``--from`` takes it.
        of: the trainer.
        called: what its files are.
        starts: whether a command line is its own.
        recognises: whether a file is, by its keys.
        commands: words of its program in front of the options.
        read: what a command line asks for, where more than its options says it.
        task: what a file trains, by its name.
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
