"""Scripts that are given a recipe: a file of options, by whose content the trainer is known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from planner.jobs.imported import ImportedJob
from planner.jobs.reader import CommandReader, Context, Launch
from planner.jobs.trainers import axolotl, llamafactory, swift, trl
from planner.jobs.transformers.arguments import files_of, started, values_of
from planner.jobs.transformers.read import command_job
from planner.jobs.transformers.trainer import OPTIONS, TRANSFORMERS, Trainer

_TRAINERS: Final[Mapping[str, Trainer]] = {
    "llamafactory": llamafactory.LLAMA_FACTORY,
    "axolotl": axolotl.AXOLOTL,
    "swift": swift.SWIFT,
    "trl": trl.TRL,
}
_READERS: Final = (*llamafactory.READERS, *axolotl.READERS, *swift.READERS, *trl.READERS)


def _recipe(launch: Launch) -> str | None:
    """The file of options that a script is given: by its place, or by ``--config`` under Accelerate and DeepSpeed."""
    start = started(launch.words)
    files = files_of(start.words, ".yaml", ".yml", ".json")
    if Path(next(iter(launch.words), "")).name in {"accelerate", "deepspeed"}:
        named = str(values_of(start.words, OPTIONS).get("config", ""))
        files += [named] if named.endswith((".yaml", ".yml")) else []
    return files[0] if files else None


def _recognises(launch: Launch) -> bool:
    program = started(launch.words).program.lower()
    return program.endswith(".py") and "maxtext" not in program and _recipe(launch) is not None


def _read(launch: Launch, context: Context) -> ImportedJob:
    """The job of the trainer whose recipe it is; Transformers' own where it is none that is known, or not here."""
    file = launch.file(_recipe(launch) or "", context)
    known = [one.form for one in _READERS if not isinstance(one, CommandReader) and file and one.recognises(file)]
    return command_job(launch, context, _TRAINERS[known[0]] if known else TRANSFORMERS)


READERS: Final = (CommandReader("transformers", "a script with a recipe", "", _recognises, _read),)
