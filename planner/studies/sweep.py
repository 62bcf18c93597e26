"""A study asked from Python: every point answered, here or by several processes, and the results as one document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pydantic import Field, PrivateAttr

from planner.answer.plan import Answer
from planner.request.files import with_profile
from planner.request.progress import Progress, Tell
from planner.studies.progress import Progress as Counts
from planner.studies.result import Result, results
from planner.studies.running import run
from planner.studies.study import Study
from planner.studies.study_file import read_study, study_of


class Sweep(Answer):
    """The results of a study, schema ``sweep/1``."""

    schema_: Literal["sweep/1"] = Field("sweep/1", alias="schema")
    study: str
    mode: str
    axes: tuple[str, ...]
    """Fields that take more than one value."""
    results: tuple[dict[str, Any], ...]
    """One for every point: its values, its status, and its plan or its error."""
    _asked: Study = PrivateAttr()
    _found: tuple[Result, ...] = PrivateAttr()

    @property
    def asked(self) -> Study:
        """The study that was answered."""
        return self._asked

    @property
    def found(self) -> tuple[Result, ...]:
        """The results as the store has them."""
        return self._found


def sweep(
    study: str | Path | Mapping[str, Any],
    store: str | Path | None = None,
    *,
    workers: int = 1,
    retry_failed: bool = False,
    progress: Tell | None = None,
) -> Sweep:
    """Answer every point of a study.

    Args:
        study: a file, or a table of the same fields, such as ``{"model": "llama3-8b", "gpus": [64, 128]}``.
        store: file of the answers, which is gone on with where it is there; without one nothing is kept.
        workers: processes; 1 answers in this one. A script that asks for more needs ``if __name__ == "__main__":``.
        retry_failed: ask again what failed before.
        progress: called with a `Progress`: how many points are answered.

    Raises:
        BadFile: the study cannot be read, or the store is none.
        BadRequest: what is wrong with the study.
    """
    asked = study_of(with_profile(dict(study))) if isinstance(study, Mapping) else read_study(study)
    with _place(store) as kept:
        watch = None if progress is None else lambda counts: progress(_standing(counts))
        run(asked, kept, workers=workers, retry_failed=retry_failed, watch=watch)
        found = tuple(results(asked, kept))
    answer = Sweep(
        study=asked.name,
        mode=asked.mode,
        axes=tuple(axis.field for axis in asked.axes),
        results=tuple(one.record() for one in found),
    )
    answer._asked, answer._found = asked, found  # noqa: SLF001 - set once, here
    return answer


@contextmanager
def _place(store: str | Path | None) -> Iterator[str | Path]:
    """The store, or one that is gone afterwards."""
    if store is not None:
        yield store
        return
    with TemporaryDirectory() as folder:
        yield Path(folder) / "answers.sqlite"


def _standing(counts: Counts) -> Progress:
    best = f", best {counts.best[1]}" if counts.best else ""
    return Progress(f"{counts.done:,} of {counts.total:,} points{best}", done=counts.done, total=counts.total)
