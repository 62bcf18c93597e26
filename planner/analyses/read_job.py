"""The job that some files describe, as a question that `predict` and `plan` take; what `plan read` says, for Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack

from pydantic import Field

from planner.answer.plan import Answer
from planner.jobs.imported import ImportedJob, complete
from planner.jobs.reader import Context
from planner.jobs.readers import read_job as read_files
from planner.request.changes import RequestChanges
from planner.request.fields import GIVEN_SPLIT
from planner.request.request import PlanRequest, request_from
from planner.request.values import file_names


class JobRead(Answer):
    """What files of a job hold, schema ``job/1``."""

    schema_: Literal["job/1"] = Field("job/1", alias="schema")
    files: tuple[tuple[str, str], ...]
    """Each file and what it is."""
    request: PlanRequest | None
    """The job with its strategy, for `predict`; None while something is missing."""
    measured: dict[str, Any]
    """What a log measured: ``iteration_seconds``, ``peak_memory``."""
    missing: tuple[str, ...]
    """What must be said before there is a price."""
    assumed: tuple[str, ...]
    unpriced: tuple[str, ...]
    """What the files say and no price counts, with its likely effect."""
    remarks: tuple[str, ...]

    @property
    def free(self) -> PlanRequest | None:
        """The same job with its strategy left open, for `plan`."""
        if self.request is None:
            return None
        return self.request.model_copy(update={"pins": {}, **dict.fromkeys(GIVEN_SPLIT)})


def read_job(
    files: str | Path | Sequence[str | Path], *, gpus: int | None = None, **fields: Unpack[RequestChanges]
) -> JobRead:
    """Read scripts, configurations, models and logs of one job; nothing of them is run.

    Args:
        files: one or several, of any kind that ``plan read`` knows.
        gpus: devices that it runs on, where no file says it.
        fields: fields of the question that stand above what the files say, such as ``model`` and ``cluster``.

    Raises:
        BadFile: a file is missing, unreadable or of no kind that is known.
        BadRequest: the files contradict each other.
    """
    paths = [Path(one) for one in ([files] if isinstance(files, str | Path) else file_names("files", files))]
    above: dict[str, Any] = {name: value for name, value in (*fields.items(), ("gpus", gpus)) if value is not None}
    found = read_files(paths, Context(known=frozenset(above)))
    asked, pins = _completed(found.job, above)
    needed = {"model": found.job.lacks or "model= says which model it is", "gpus": "gpus= says how many accelerators"}
    missing = (*found.job.missing, *(said for name, said in _needs(needed, asked, found.job.missing)))
    return JobRead(
        files=tuple((str(part.file.path), part.title) for part in found.parts),
        request=None if missing else request_from(asked | {"pins": pins}),
        measured=dict((found.run or {}).get("measured") or {}),
        missing=missing,
        assumed=found.job.assumed,
        unpriced=found.job.unpriced,
        remarks=found.job.remarks,
    )


def _needs(needed: Mapping[str, str], asked: Mapping[str, Any], missing: Sequence[str]) -> list[tuple[str, str]]:
    """What a question lacks and no file's own sentence says yet."""
    return [
        (name, said)
        for name, said in needed.items()
        if name not in asked and not any(f"--{name} " in line for line in missing)
    ]


def _completed(job: ImportedJob, above: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields and pins of the question, with what follows from the number of devices and what was given above it."""
    pinned = dict(above.get("pins") or {})
    fields = dict(job.fields) | {name: value for name, value in above.items() if name not in {"pins", "changes"}}
    if changes := {**(job.fields.get("changes") or {}), **(above.get("changes") or {})}:
        fields["changes"] = changes
    pins = dict(job.pins) | pinned
    if "gpus" in fields or "dp" in pins:
        fields, pins = complete(fields, pins, asked={*above, *(f"pins.{axis}" for axis in pinned)}, length=job.length)
    split = {"layers_per_stage": job.layers, "recomputed_per_stage": job.recomputed}
    if pins.get("recompute") != "partial":
        del split["recomputed_per_stage"]
    fields |= {name: value for name, value in split.items() if value is not None and name not in above}
    return fields, pins
