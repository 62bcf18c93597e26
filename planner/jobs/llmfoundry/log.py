"""Logs of llm-foundry, which Composer prints; its YAML says the model and how states are sharded."""

from __future__ import annotations

from typing import Final

from planner.jobs.imported import ImportedJob
from planner.jobs.llmfoundry.read import STACK
from planner.jobs.logs.statements import Findings
from planner.jobs.logs.tables import log_reader
from planner.jobs.options import present
from planner.jobs.reader import Context, JobFile


def _job(findings: Findings, _: JobFile, __: Context) -> ImportedJob:
    """The batch and the length by what was counted, where they come out even; padding may not count."""
    said = {name: int(value) for name, value in findings.start.said.items()}
    fields = present(
        stack=STACK,
        gpus=said["each"] * said["nodes"] if {"each", "nodes"} <= said.keys() else None,
        global_batch_size=_share(said.get("samples", 0), said.get("batches", 0)),
        seq_length=_share(said.get("tokens", 0), said.get("samples", 0)),
    )
    pins = present(tp=1, pp=1, cp=1, micro_batch_size=said.get("micro_batch_size"))
    return ImportedJob(fields, pins, framework="accelerate", filled=frozenset({"stack"}))


def _share(whole: int, parts: int) -> int | None:
    return whole // parts if parts and whole % parts == 0 else None


READERS: Final = (log_reader("llmfoundry", _job),)
