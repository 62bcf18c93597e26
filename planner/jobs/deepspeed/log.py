"""Logs of DeepSpeed's engine: its configuration as it prints it, its timer's lines, and its memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from planner.jobs.imported import ImportedJob
from planner.jobs.logs.forms import Form, row
from planner.jobs.logs.memory import MemoryForm
from planner.jobs.logs.scan import Fact
from planner.jobs.options import present

FORMS: Final[tuple[Form, ...]] = (
    row(
        "SamplesPerSec",
        r"\bglobal_step=(?P<step>\d+)",
        r"CurrSamplesPerSec=(?P<samples_s>[\d.]+)",
        clock=True,
    ),
    row("[Rank 0] step=", r"\[Rank 0\] step=(?P<step>\d+), skipped=\d+", clock=True),
)  # fmt: skip
"""Lines of its timer and of its log have the time of day in front.

What it prints of memory before the first step (MA, Max_MA) is no peak of training and not read."""
MEMORY: Final = (
    MemoryForm("MaxMemAllocated", re.compile(r"MaxMemAllocated=(?P<bytes>[\d.]+)(?P<unit>[MG]B)"), "allocated"),
)
FACTS: Final = tuple(
    Fact(word, re.compile(rf"\]\s+{word}\s*\.*\s*(?P<{name}>[\w.]+)\s*$"))
    for word, name in (
        ("train_batch_size", "global_batch_size"),
        ("train_micro_batch_size_per_gpu", "micro_batch_size"),
        ("zero_optimization_stage", "zero_stage"),
        ("bfloat16_enabled", "bf16"),
        ("fp16_enabled", "fp16"),
        ("world_size", "world_size"),
    )
)
"""Lines of "DeepSpeedEngine configuration"."""


def engine_job(said: Mapping[str, str]) -> ImportedJob:
    """What the engine's configuration says of a job: batches, ZeRO's stage and the precision."""
    numbers = {name: int(value) for name, value in said.items() if value.isdecimal()}
    precision = next((name for name in ("bf16", "fp16") if said.get(name, "").lower() in {"true", "auto"}), None)
    fields = present(
        global_batch_size=numbers.get("global_batch_size"), gpus=numbers.get("world_size"), precision=precision
    )
    pins = present(micro_batch_size=numbers.get("micro_batch_size"), zero_stage=numbers.get("zero_stage"))
    return ImportedJob(fields, pins)
