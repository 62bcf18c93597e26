"""Predicted against measured: every figure of some runs, as one document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from planner.answer.plan import Answer
from planner.request.progress import Tell
from planner.runs.judge import judge
from planner.runs.report import paths_of, written


class Validation(Answer):
    """Every measured figure with its prediction, schema ``validation/1``."""

    schema_: Literal["validation/1"] = Field("validation/1", alias="schema")
    files: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    """Each with id, group, metric, measured, predicted, error (predicted over measured, minus one), scored."""
    report: str
    """As ``plan validate`` prints it."""


def validate(
    files: str | Path | Sequence[str | Path] = (),
    *,
    profile: str | Path | None = None,
    workers: int = 1,
    progress: Tell | None = None,
) -> Validation:
    """Price measured runs as they ran, and say how far that is from what was measured.

    Args:
        files: files of runs; none are those that are shipped.
        profile: a file with the cluster and the stack that the runs were on.
        workers: processes.
        progress: called with how many runs are priced, as a `Progress`.

    Raises:
        BadFile: a file that cannot be read.
    """
    several = [files] if isinstance(files, str | Path) else files
    machines = None if profile is None else str(profile)
    found = judge(paths_of(list(map(str, several))), machines, workers=workers, progress=progress)
    rows = tuple(verdict.document() for verdicts in found.values() for verdict in verdicts)
    return Validation(files=tuple(found), rows=rows, report=written(found))
