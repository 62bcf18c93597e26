"""Logs of Hugging Face's Trainer and of what is built on it: LLaMA-Factory, ms-swift, axolotl, TRL; of DeepSpeed.

They say how long steps took and little of the job: the script, the arguments or the YAML of the same job say that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from planner.answer.text import short_seconds
from planner.jobs.imported import ImportedJob
from planner.jobs.logs.lines import last_digit
from planner.jobs.logs.scan import Start
from planner.jobs.logs.tables import Findings, findings_of, log_reader, tables, tell, with_findings
from planner.jobs.options import present
from planner.jobs.reader import Context, JobFile
from planner.jobs.values import real

_TABLES: Final = "transformers/log"


def _read(file: JobFile, context: Context) -> ImportedJob:
    document = file.document if file.text.lstrip().startswith("{") else None
    if document is not None and isinstance(document.get("log_history"), list):
        return _of_state(document, context)
    findings = findings_of(file, tables(_TABLES))
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
    findings = _whole_run(tell([Start()], tables(_TABLES).forms), said, evaluated=evaluated)
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


READERS: Final = (log_reader("transformers", read=_read),)
