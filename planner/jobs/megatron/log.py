"""Logs of Megatron-LM, Megatron-DeepSpeed, MindSpeed, Pai's and others that left its lines as they are."""

from __future__ import annotations

from typing import Final

from planner.jobs.logs.tables import log_reader
from planner.jobs.megatron.dump import dumped_job

READERS: Final = (log_reader("megatron", lambda findings, _, context: dumped_job(findings.start, context)),)
