"""Command lines and files with TrainingArguments as questions, and what their runs print."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from costmodels.stack.finetune import GENERATING, TASKS
from planner.answer.text import short_seconds
from planner.jobs.imported import ImportedJob, joined
from planner.jobs.logs.lines import last_digit
from planner.jobs.logs.scan import Start
from planner.jobs.logs.tables import Findings, findings_of, log_reader, tables, tell, with_findings
from planner.jobs.options import present
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch, not_here
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
from planner.jobs.values import data, real, words

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
    more = [not_here(lost)] if lost is not None else []
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
    remark = "nothing here shards states, so every GPU holds all of them"
    more = "if a file of Accelerate or DeepSpeed says otherwise, give it too"
    return joined(found, ImportedJob(assumed=(f"{remark}; {more}",))) if alone else found


READERS: Final = (
    CommandReader("transformers", "a command line of Transformers' Trainer", "", _recognises, _read),
    DocumentReader(
        "transformers", "TrainingArguments of Transformers", "", _recognises_file,
        lambda file, context: file_job(file, context, TRANSFORMERS),
    ),
)  # fmt: skip


_LOG_TABLES: Final = "transformers/log"


def _read_log(file: JobFile, context: Context) -> ImportedJob:
    document = file.document if file.text.lstrip().startswith("{") else None
    if document is not None and isinstance(document.get("log_history"), list):
        return _of_state(document, context)
    findings = findings_of(file, tables(_LOG_TABLES))
    said = {name: value.replace(",", "") for name, value in findings.start.said.items()}
    evaluated = sum(float(seconds) for seconds in _EVALUATED.findall(file.text))
    return with_findings(_alone(_of_engine(said)), _whole_run(findings, said, evaluated=evaluated), context)


def _of_engine(said: Mapping[str, str]) -> ImportedJob:
    """What the configuration of DeepSpeed's engine says of a job: batches, ZeRO's stage and the precision."""
    numbers = {name: int(value) for name, value in said.items() if value.isdecimal()}
    precision = next((name for name in ("bf16", "fp16") if said.get(name, "").lower() in {"true", "auto"}), None)
    batch, gpus = numbers.get("global_batch_size"), numbers.get("world_size")
    pins: dict[str, Any] = {name: numbers[name] for name in ("micro_batch_size", "zero_stage") if name in numbers}
    return ImportedJob(present(global_batch_size=batch, gpus=gpus, precision=precision), pins)


_EVALUATED: Final = re.compile(r"eval_runtime['\"]: ['\"]?([\d.]+)")


def _of_state(document: Mapping[str, Any], context: Context) -> ImportedJob:
    """The job of a ``trainer_state.json``, which has no clock but at its end."""
    entries = [one for one in document["log_history"] if isinstance(one, Mapping)]
    last = next((one for one in reversed(entries) if "train_runtime" in one), {})
    said = {"runtime": str(last.get("train_runtime", "")), "steps": str(last.get("step", ""))}
    evaluated = sum(real(one.get("eval_runtime")) for one in entries)
    findings = _whole_run(tell([Start()], tables(_LOG_TABLES).forms), said, evaluated=evaluated)
    if not findings.timing and "iteration_seconds" not in findings.measured:
        findings = replace(findings, remarks=(_NO_CLOCK,))
    size = document.get("train_batch_size")
    pins = {"micro_batch_size": size} if isinstance(size, int) and size > 0 else {}
    return with_findings(_alone(ImportedJob(pins=pins)), findings, context, aside=tuple(_tokens(document)))


def _alone(job: ImportedJob) -> ImportedJob:
    """A job of data-parallel ranks alone, as the Trainer's are unless another file says otherwise."""
    filled = job.filled | {f"pins.{axis}" for axis in ("tp", "pp") if axis not in job.pins}
    return replace(job, pins={"tp": 1, "pp": 1, **job.pins}, filled=filled)


def _tokens(document: Mapping[str, Any]) -> Iterator[str]:
    seen, steps = (document.get(name) for name in ("num_input_tokens_seen", "global_step"))
    if isinstance(seen, int | float) and isinstance(steps, int) and seen and steps:
        yield f"{seen / steps:,.0f} tokens per step, by its own count"


def _whole_run(findings: Findings, said: Mapping[str, str], *, evaluated: float = 0.0) -> Findings:
    """Without lines of steps the mean of the whole run, which holds its warm-up and its checkpoints.

    It has a ``runtime`` in seconds, less those of evaluations, and ``steps`` or how many of them a second.
    """
    steps, runtime, rate = (real(said.get(name)) for name in ("steps", "runtime", "steps_per_second"))
    steps, rounding = (steps, 0.0) if steps else (runtime * rate, last_digit(said.get("steps_per_second", "")) / 2)
    if findings.timing or steps < _FEWEST or runtime <= evaluated:
        return findings
    seconds = (runtime - evaluated) / steps
    without = f" less {evaluated:,.0f} s of evaluation" if evaluated else ""
    of_all = f"the mean of all {steps:,.0f} ({runtime:,.0f} s{without}), warm-up and checkpoints among them"
    remark = f"{short_seconds(seconds)} per iteration: {of_all}; if the run was resumed, the true time is longer"
    fine = rounding / rate if rate and rounding else 0.0
    measured = {**findings.measured, "iteration_seconds": seconds, "rounding": fine}
    others = (one for one in findings.remarks if not one.startswith("no line"))
    return replace(findings, measured=measured, remarks=(remark, *others), uncertain=True)


_NO_CLOCK: Final = (
    "trainer_state.json has a time only at the end of a whole run (train_runtime), so no time is read; give what the "
    "run printed, or trainer_log.jsonl of LLaMA-Factory or logging.jsonl of ms-swift"
)
_FEWEST: Final = 20
"""Steps from which on the mean of a whole run is taken: the first may take as long as ten others."""


LOG: Final = log_reader("transformers", read=_read_log)
