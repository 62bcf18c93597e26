"""The answers of a study, point by point, each with its baseline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from planner.studies.answer import Finished
from planner.studies.question import key_of
from planner.studies.store import Store
from planner.studies.study import Point, Study, baseline_of, in_order

READ: Final = 200
"""Answers that are read at a time."""


@dataclass(frozen=True, slots=True)
class Result:
    """One point and its answer; status ``pending`` where there is none yet."""

    index: int
    axes: dict[str, Any]
    status: str
    document: dict[str, Any]
    """As ``plan --format json`` has it, without what only one plan is worth; empty without an answer."""
    error: str | None
    speedup: float | None
    """Tokens per second over the baseline's; None without a baseline, or where either has no plan."""

    def record(self) -> dict[str, Any]:
        """The result as one JSON object."""
        head: dict[str, Any] = {"index": self.index, "point": self.axes, "status": self.status}
        tail = {} if self.speedup is None else {"speedup": self.speedup}
        return head | self.document | {"error": self.error} | tail


def results(study: Study, store: str | Path | Store) -> Iterator[Result]:
    """Every point of a study in the order of its file, with what the store knows of it.

    Raises:
        BadFile: there is no such store.
    """
    if not isinstance(store, Store):
        with Store.open(store, writing=False) as opened:
            yield from results(study, opened)
        return
    some = in_order(study)
    while chunk := list(islice(some, READ)):
        keys = [key_of(point.fields, study.mode) for point in chunk]
        bases = [key_of(base.fields, study.mode) if (base := baseline_of(study, one)) else "" for one in chunk]
        found = store.get(list({*keys, *bases}))
        for point, key, other in zip(chunk, keys, bases, strict=True):
            yield _result(point, found.get(key), found.get(other))


def every_result(path: str | Path) -> Iterator[Result]:
    """Every answer that a store holds, of whatever study, without axes and baselines.

    Raises:
        BadFile: there is no such store.
    """
    with Store.open(path, writing=False) as store:
        for index, kept in enumerate(store.every()):
            document = json.loads(kept.document) if kept.document else {}
            yield Result(index, {}, kept.status, document, kept.error, None)


def _result(point: Point, kept: Finished | None, base: Finished | None) -> Result:
    if kept is None:
        return Result(point.index, dict(point.axes), "pending", {}, None, None)
    document = json.loads(kept.document) if kept.document else {}
    speedup = None
    if base is not None and base.document:
        mine, theirs = (_rate(one) for one in (document, json.loads(base.document)))
        speedup = mine / theirs if mine and theirs else None
    return Result(point.index, dict(point.axes), kept.status, document, kept.error, speedup)


def _rate(document: dict[str, Any]) -> float | None:
    """Tokens per second of an answer that can be run."""
    said = document.get("prediction")
    return said["tokens_per_second"] if said and document["status"] != "infeasible" else None
