"""Command lines and files with TrainingArguments as questions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from costmodels.stack.finetune import GENERATING, TASKS
from planner.jobs.data import data, words
from planner.jobs.imported import ImportedJob, joined
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch
from planner.jobs.transformers.arguments import (
    Started,
    accelerate_of,
    files_of,
    gpus_of,
    is_option,
    overrides_of,
    started,
    values_of,
)
from planner.jobs.transformers.job import training_job
from planner.jobs.transformers.trainer import TRANSFORMERS, Trainer

_SAID: Final = data("transformers/words")
OF_TRL: Final = frozenset(words(_SAID["of_trl"]))
OF_ACCELERATE: Final = frozenset({"with_tracking", "checkpointing_steps"})
"""Names of the scripts that loop by themselves with Accelerate (``run_clm_no_trainer.py``), whatever else they have."""
_OF_OTHERS: Final = OF_TRL | {*words(_SAID["of_others"])}
_PAIRED: Final = frozenset(TASKS) - {"pretrain", "finetune"}
_SUFFIXES: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Command:
    """A command line of this family: what it starts, and its options with those of the files that it names."""

    start: Started
    values: Mapping[str, Any]
    file: Path | None


def command_of(launch: Launch, context: Context, trainer: Trainer, said: Collection[str] | None = None) -> Command:
    """A command line taken apart; what it says itself stands above what its file says.

    ``said`` is what the program is given, where the first words are not its options.
    """
    start = started(launch.words)
    given = tuple(start.words if said is None else said)
    own = {**overrides_of(given), **values_of(given, trainer.options)}
    named = [*files_of(given, *_SUFFIXES), *(str(own.pop(name)) for name in ("config", "config_file") if name in own)]
    missing = None
    for name in named:
        file = launch.file(name, context)
        if file is not None and file.document is not None:
            return Command(start, {**file.document, **own}, file.path)
        missing = name
    return Command(start, own | ({"config": missing} if missing else {}), None)


def command_job(
    launch: Launch,
    context: Context,
    trainer: Trainer,
    *,
    command: Command | None = None,
    task: str | None = None,
    accelerate: Mapping[str, Any] | None = None,
) -> ImportedJob:
    """The job of a command line, which another one starts by ``accelerate`` where it is so configured."""
    command = command or command_of(launch, context, trainer)
    written = (JobFile(Path(path), text) for path, text in launch.written.items())  # they stand above those on disk
    context = replace(context, files=(*context.files, *written))
    values, unknown = _known(command.values, launch, trainer)
    lost = values.pop("config", None)
    launched, missing = accelerate_of(command.start, context)
    accelerate = accelerate or launched
    gpus, assumed = gpus_of(launch, command.start, accelerate)
    found = training_job(values, trainer, context, beside=command.file, accelerate=accelerate, gpus=gpus, task=task)
    more = [f"{lost} has the options, but is not here; give that file too"] if lost is not None else []
    return joined(found, ImportedJob(assumed=(assumed,) if assumed else (), missing=(*more, *missing, *unknown)))


def _known(values: Mapping[str, Any], launch: Launch, trainer: Trainer) -> tuple[dict[str, Any], list[str]]:
    """The values that the script says, and how the others that change a price are said."""
    read = {word for row in trainer.options for word in (row.word, *row.older)}
    lost = {
        name: next((how for part, how in launch.unknown.items() if part in str(value)), "")
        for name, value in values.items()
        if name in read
    }
    left = {name: value for name, value in values.items() if not lost.get(name)}
    return left, [f"--{name} is {values[name]}; give {how}" for name, how in lost.items() if how]


def names_in(launch: Launch) -> set[str]:
    """Names of the options of what a command line starts."""
    return {
        word.lstrip("-").partition("=")[0].replace("-", "_") for word in started(launch.words).words if is_option(word)
    }


def _recognises(launch: Launch) -> bool:
    names = names_in(launch)
    return bool(names & {*words(_SAID["marks"])}) and not names & {*words(_SAID["other_families"])}


def _read(launch: Launch, context: Context) -> ImportedJob:
    """The job of a script; a word of its name may say a task of pairs or of own samples, ``train.py`` says none."""
    parts = started(launch.words).name.lower().replace("-", "_").split("_")
    task = next((word for word in parts if word in GENERATING or word in _PAIRED), None)
    return command_job(launch, context, TRANSFORMERS, task=task)


def _recognises_file(file: JobFile) -> bool:
    keys = set(file.document or ())
    batch = keys & {"per_device_train_batch_size", "per_gpu_train_batch_size"}
    return bool(batch) and (bool(keys & OF_ACCELERATE) or not keys & _OF_OTHERS)


def file_job(file: JobFile, context: Context, trainer: Trainer, task: str | None = None) -> ImportedJob:
    """The job of a file of options; an Accelerate configuration among the job's files says how it is started."""
    started_by = context.holding("distributed_type")
    accelerate = started_by.document if started_by else None
    found = training_job(file.document or {}, trainer, context, beside=file.path, accelerate=accelerate, task=task)
    alone = accelerate is None and found.framework == "accelerate" and not found.pins.get("zero_stage")
    remark = (
        "nothing here shards states, so every GPU holds all of them; if a file of Accelerate or DeepSpeed says "
        "otherwise, give it too"
    )
    return joined(found, ImportedJob(assumed=(remark,))) if alone else found


READERS: Final = (
    CommandReader("transformers", "a command line of Transformers' Trainer", "", _recognises, _read),
    DocumentReader(
        "transformers", "TrainingArguments of Transformers", "", _recognises_file,
        lambda file, context: file_job(file, context, TRANSFORMERS),
    ),
)  # fmt: skip
