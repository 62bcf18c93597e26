"""Logs of Hugging Face's Trainer and of what is built on it: LLaMA-Factory, ms-swift, axolotl, TRL; of DeepSpeed.

They say how long steps took and little of the job: the script, the arguments or the YAML beside them say that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from planner.answer.text import short_seconds
from planner.jobs.deepspeed import log as deepspeed
from planner.jobs.imported import ImportedJob
from planner.jobs.logs.forms import keyed, row
from planner.jobs.logs.lines import has, last_digit
from planner.jobs.logs.memory import MemoryForm
from planner.jobs.logs.scan import Fact, Start, Tables
from planner.jobs.logs.statements import Findings, findings_of, tell, with_findings
from planner.jobs.reader import Context, JobFile, LogReader

_RATE: Final = r"<[^,\]]*,\s*[\d.]+\s*(?:s/it|it/s)"
"""What follows the time in a bar of progress that counts iterations."""
_SWIFT: Final = {
    "global_step/max_steps": "step",
    "train_speed(iter/s)": "speed",
    "train_speed(s/it)": "pace",
    "elapsed_time": "elapsed",
}
_SWIFT_MEGATRON: Final = {"iteration": "step", "elapsed_time": "elapsed", "train_speed(s/it)": "pace"}
_FACTORY: Final = {"current_steps": "step", "total_steps": "of", "elapsed_time": "elapsed"}
_AXOLOTL_ALL: Final = r"memory/device_(?:mem_)?reserved ?\(gib\)['\"]: ['\"]?"
_AXOLOTL: Final = r"memory/max_(?:mem_)?allocated ?\(gib\)['\"]: ['\"]?"
TABLES: Final = Tables(
    forms=(
        keyed("global_step/max_steps", _SWIFT),
        keyed("train_speed(", _SWIFT_MEGATRON),
        keyed("current_steps", _FACTORY),
        *deepspeed.FORMS,
        row("it", r"^(?:[Tt]rain(?:ing)?:)?\s*\d+%\|[^|]*\|\s*(?P<step>\d+)/(?P<of>\d+) \[(?P<elapsed>[\d:]+)" + _RATE),
    ),
    memory=(
        MemoryForm("memory(GiB)", re.compile(r"memory\(GiB\)['\"]: ['\"]?(?P<bytes>[\d.]+)"), "reserved"),
        MemoryForm("vram_allocated", re.compile(r"vram_allocated['\"]: ['\"]?(?P<bytes>[\d.]+)"), "allocated"),
        MemoryForm("vram_reserved", re.compile(r"vram_reserved['\"]: ['\"]?(?P<bytes>[\d.]+)"), "reserved"),
        MemoryForm("memory/max", re.compile(_AXOLOTL + r"(?P<bytes>[\d.]+)", re.IGNORECASE), "allocated"),
        MemoryForm("memory/device", re.compile(_AXOLOTL_ALL + r"(?P<bytes>[\d.]+)", re.IGNORECASE), "reserved"),
        *deepspeed.MEMORY,
    ),
    facts=(
        *deepspeed.FACTS,
        Fact("Total optimization steps", re.compile(r"Total optimization steps\s*=\s*(?P<steps>[\d,]+)")),
        Fact("Total train batch size", re.compile(r"Total train batch size .*=\s*(?P<global_batch_size>[\d,]+)")),
        Fact("Instantaneous batch size", re.compile(r"batch size per device\s*=\s*(?P<micro_batch_size>[\d,]+)")),
        Fact("train_runtime", re.compile(r"train_runtime['\"]: ['\"]?(?P<runtime>[\d.]+)")),
        Fact("train_steps_per_second", re.compile(r"train_steps_per_second['\"]: ['\"]?(?P<steps_per_second>[\d.]+)")),
    ),
    starts=("***** Running training *****",),
)  # fmt: skip
"""The averages since the start, and the clocks that run from it, are taken by their differences.

Its sequences and tokens a second are not read: under sequence parallelism they count a sequence once a rank.
"""


def _read(file: JobFile, context: Context) -> ImportedJob:
    document = file.document if file.text.lstrip().startswith("{") else None
    if document is not None and isinstance(document.get("log_history"), list):
        return _of_state(document, context)
    findings = findings_of(file, TABLES)
    said = {name: value.replace(",", "") for name, value in findings.start.said.items()}
    evaluated = sum(float(seconds) for seconds in _EVALUATED.findall(file.text))
    return with_findings(_alone(deepspeed.engine_job(said)), _whole_run(findings, said, evaluated=evaluated), context)


_EVALUATED: Final = re.compile(r"eval_runtime['\"]: ['\"]?([\d.]+)")


def _of_state(document: Mapping[str, Any], context: Context) -> ImportedJob:
    """The job of a ``trainer_state.json``, which has no clock but at its end."""
    entries = [one for one in document["log_history"] if isinstance(one, Mapping)]
    last = next((one for one in reversed(entries) if "train_runtime" in one), {})
    said = {"runtime": str(last.get("train_runtime", "")), "steps": str(last.get("step", ""))}
    evaluated = sum(_number(one.get("eval_runtime")) for one in entries)
    findings = _whole_run(tell([Start()], TABLES.forms), said, evaluated=evaluated)
    if not findings.timing and "iteration_seconds" not in findings.measured:
        findings = replace(findings, remarks=(_NO_CLOCK,))
    size = document.get("train_batch_size")
    pins = {"micro_batch_size": size} if isinstance(size, int) and size > 0 else {}
    return with_findings(_alone(ImportedJob(pins=pins)), findings, context, aside=tuple(_tokens(document)))


def _number(value: Any) -> float:
    """A number, or 0 where a log has none."""
    try:
        return float(value or 0.0)
    except (TypeError, ValueError):
        return 0.0


def _alone(job: ImportedJob) -> ImportedJob:
    """A job of data-parallel ranks alone, as the Trainer's are unless another file says otherwise."""
    pins = {"tp": 1, "pp": 1} | dict(job.pins)
    return replace(
        job, pins=pins, filled=job.filled | {f"pins.{axis}" for axis in ("tp", "pp") if axis not in job.pins}
    )


def _tokens(document: Mapping[str, Any]) -> Iterator[str]:
    seen, steps = (document.get(name) for name in ("num_input_tokens_seen", "global_step"))
    if isinstance(seen, int | float) and isinstance(steps, int) and seen and steps:
        yield f"{seen / steps:,.0f} tokens per step, by its own count"


def _whole_run(findings: Findings, said: Mapping[str, str], *, evaluated: float = 0.0) -> Findings:
    """Without lines of steps the mean of the whole run, which holds its warm-up and its checkpoints.

    Args:
        findings: of the lines.
        said: ``runtime`` in seconds, and ``steps`` or how many of them a second.
        evaluated: seconds of evaluations.
    """
    steps, runtime, rate = (_number(said.get(name)) for name in ("steps", "runtime", "steps_per_second"))
    steps, rounding = (steps, 0.0) if steps else (runtime * rate, last_digit(said.get("steps_per_second", "")) / 2)
    if findings.timing or steps < _FEWEST or runtime <= evaluated:
        return findings
    seconds = (runtime - evaluated) / steps
    without = f" less {evaluated:,.0f} s of evaluation" if evaluated else ""
    of_all = f"the mean of all {steps:,.0f} ({runtime:,.0f} s{without}), warm-up and checkpoints among them"
    remark = f"{short_seconds(seconds)} per iteration: {of_all}; if the run was resumed, the true time is longer"
    measured = {
        **findings.measured,
        "iteration_seconds": seconds,
        "rounding": rounding / rate if rate and rounding else 0.0,
    }
    others = (one for one in findings.remarks if not one.startswith("no line"))
    return replace(findings, measured=measured, remarks=(remark, *others), uncertain=True)


_NO_CLOCK: Final = (
    "trainer_state.json has a time only at the end of a whole run (train_runtime), so no time is read; give what the "
    "run printed, or trainer_log.jsonl of LLaMA-Factory or logging.jsonl of ms-swift"
)
_FEWEST: Final = 20
"""Steps from which on the mean of a whole run is taken: the first may take as long as ten others."""


def _recognises(file: JobFile) -> bool:
    return has(file.text, _SIGN) and not has(file.text, _OTHERS)


_SIGN: Final = re.compile(
    r"\"log_history\": \[|train_runtime['\"]|train_speed\((?:iter/s|s/it)\)|\"current_steps\": \d|SamplesPerSec=\d"
    r"|\*\*\*\*\* Running training \*\*\*\*\*|\[Rank 0\] step=\d+, skipped="
    r"|(?<!\d)\d+/\d+ \[[\d:]+<[\d:?]+, +[\d.]+(?:s/it|it/s)"
)
_OTHERS: Final = re.compile(
    r"elapsed[ _]time[ _]per[ _]iteration|reduced_train_loss|completed step: \d+, seconds|memory:\s*[\d.]+[KMG]iB\("
)
"""What logs of other frameworks have, which print lines of DeepSpeed or bars too."""

READERS: Final = (LogReader("trainer-log", "a log of Hugging Face's Trainer or of DeepSpeed", "", _recognises, _read),)
