"""Logs of torchtitan: the configuration that it prints, what it says at the start, and its lines of steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Final

from costmodels.names import SHARDED_PARAMETERS
from planner.jobs.imported import ImportedJob
from planner.jobs.logs.lines import table_in
from planner.jobs.logs.tables import Findings, log_reader, made_job
from planner.jobs.options import applicable, present
from planner.jobs.reader import Context, JobFile
from planner.jobs.torchtitan.options import MODELS
from planner.jobs.torchtitan.settings import torchtitan_job

_AXES: Final[tuple[str, ...]] = ("tp", "cp", "pp")
_SHARES: Final = ("dp_shard", "dp_replicate", "dp", *_AXES)
"""Dimensions of the mesh that it prints; the others are made of these."""


def _job(findings: Findings, _: JobFile, __: Context) -> ImportedJob:
    """The job of the configuration behind "Running with args:", where there is one, and of lines at the start."""
    text = findings.start.table
    found = table_in(text, longest=len(text)) or {}
    own = bool({"parallelism", "training"} & set(found))
    made = made_job(lambda: torchtitan_job(found) if own else ImportedJob(), "configuration that it prints does")
    return _with_facts(made, findings.start.said)


def _with_facts(job: ImportedJob, said: Mapping[str, str]) -> ImportedJob:
    """A job with what lines at the start say and the configuration does not."""
    named = (said.get("model", ""), said.get("flavor", ""))
    model = next((known for known, flavor in MODELS.items() if flavor == named), None)
    degrees = _degrees(said)
    batch, length, local = (
        next(iter(_whole(said.get(name, ""))), None) for name in ("global_batch_size", "seq_len", "local_batch_size")
    )
    gpus = prod(degrees.get(name, 1) for name in _SHARES) if degrees else None
    fields = present(model=model, gpus=gpus, global_batch_size=batch, seq_length=length)
    pins = {axis: degrees[axis] for axis in _AXES if axis in degrees}
    staged = degrees.get("pp", 1) > 1
    pins |= {"micro_batch_size": 1 if staged else local} if local is not None and degrees else {}
    pins |= _shared(degrees)
    assumed = {
        "the mesh says over how many ranks states are shared; parameters are gathered for every pass, as usual": (
            pins.get("zero_stage") == SHARDED_PARAMETERS and "zero_stage" not in job.pins
        ),
        "micro-batches of one sequence are priced, as torchtitan's pipelines have them": (
            staged and "micro_batch_size" in pins and "micro_batch_size" not in job.pins
        ),
    }
    named_one = f"{named[0]} {named[1]} is not known; give another one with --model" if all(named) and not model else ""
    sentences, lacks = (*job.assumed, *applicable(assumed)), job.lacks or named_one
    return replace(job, fields={**fields, **job.fields}, pins={**pins, **job.pins}, assumed=sentences, lacks=lacks)


def _shared(degrees: Mapping[str, int]) -> dict[str, int]:
    """What FSDP shards, of whose ranks those of a sequence are a part; the oldest meshes do not say whether it does."""
    if not degrees or "dp" in degrees:
        return {}
    ranks = degrees.get("dp_shard", 1) * degrees.get("cp", 1)
    if ranks == 1:
        return {"zero_stage": 0}
    return {"zero_stage": 1 if degrees.get("pp", 1) > 1 else SHARDED_PARAMETERS, "sharding_degree": ranks}


def _degrees(said: Mapping[str, str]) -> dict[str, int]:
    """The dimensions of the mesh with their sizes, as older and newer versions print them."""
    pairs = re.findall(r"(\w+)=(\d+)", said.get("parallelism", ""))
    named = {name: int(size) for name, size in pairs}
    return named or dict(zip(re.findall(r"\w+", said.get("mesh", "")), _whole(said.get("degrees", "")), strict=False))


def _whole(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)]


def _seen(findings: Findings) -> list[str]:
    """What the log says of the machine and no field takes as it is."""
    device = findings.start.said.get("device")
    return [f"the log names the device {device}; --cluster accepts that name"] if device else []


READERS: Final = (log_reader("torchtitan", _job, aside=_seen),)
