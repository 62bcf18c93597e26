"""A run of a study: whatever the store lacks is answered and kept, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import Final, Literal

from planner.errors import BadRequest
from planner.studies.answer import Task
from planner.studies.cores import usable
from planner.studies.engines import Batch, in_process, local
from planner.studies.progress import Progress
from planner.studies.question import key_of, release
from planner.studies.store import Store
from planner.studies.study import BLOCK, Point, Study, points_of

LOOKED_UP: Final = 500
"""Keys that are looked up in the store at a time."""

Watcher = Callable[[Progress], None]


def run(
    study: Study,
    store: str | Path,
    *,
    engine: Literal["local", "ray"] = "local",
    workers: int | None = None,
    address: str | None = None,
    shard: tuple[int, int] = (1, 1),
    retry_failed: bool = False,
    watch: Watcher | None = None,
) -> Progress:
    """Answer every point of a study that the store does not hold.

    Args:
        study: what to ask.
        store: the file of answers, made where it is missing.
        engine: "local" are processes on this machine, "ray" those of a Ray cluster.
        workers: how many; as many as processors may be used unless given.
        address: the Ray cluster; the one that is found, or a local one, unless given.
        shard: only the k-th of n parts of the study, k from 1.
        retry_failed: ask again what failed before.
        watch: called with the progress after every answer.

    Raises:
        BadFile: the store is in use, is none, or the disk is full; what was finished is kept.
        BadRequest: the engine is not there.
    """
    if not 1 <= shard[0] <= shard[1]:
        raise BadRequest(f"shard {shard[0]}/{shard[1]}: expected a part between 1 and their number, such as 1/16")
    if workers is not None and workers < 1:
        raise BadRequest(f"workers: expected at least 1, got {workers}")
    count = workers or usable()
    with Store.open(store) as kept:
        kept.note(study.name, {axis.field: len(axis.values) for axis in study.axes}, release())
        progress = Progress(total=sum(1 for _ in points_of(study, shard=shard)))
        if engine == "ray":
            from planner.studies.ray_engine import on_ray

            chosen = on_ray(count, address)
        else:
            chosen = local(count) if count > 1 else in_process
        taken: set[str] = set()
        tasks = _unanswered(study, kept, shard, progress, taken, retry_failed=retry_failed)
        if watch:
            watch(progress)
        for finished in chosen(_batches(tasks, progress.total, count)):
            kept.add(finished)
            taken.difference_update(one.key for one in finished)
            progress.add(finished)
            if watch:
                watch(progress)
    return progress


def _unanswered(
    study: Study, store: Store, shard: tuple[int, int], progress: Progress, taken: set[str], *, retry_failed: bool
) -> Iterator[tuple[Point, Task]]:
    """Tasks for the points whose answer is neither kept nor on its way; ``taken`` are the keys on their way."""
    some = points_of(study, shard=shard)
    while chunk := list(islice(some, LOOKED_UP)):
        keys = [key_of(point.fields, study.mode) for point in chunk]
        known = store.statuses(keys)
        for point, key in zip(chunk, keys, strict=True):
            wanted = key not in known or (retry_failed and known[key] == "failed")
            if not wanted or key in taken:
                progress.known += 1
                continue
            known[key] = "taken"
            taken.add(key)
            yield point, Task(key, study.mode, point.fields)


def _batches(tasks: Iterator[tuple[Point, Task]], total: int, workers: int) -> Iterator[Batch]:
    """Neighbours on one lattice together, but no more than leaves every worker some."""
    most = max(1, min(BLOCK, total // (4 * workers)))
    for _, neighbours in groupby(tasks, key=lambda pair: pair[0].lattice):
        some = (task for _, task in neighbours)
        while batch := list(islice(some, most)):
            yield batch
