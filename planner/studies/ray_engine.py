"""Ray as an engine: the same tasks on many machines.

Ray distributes, queues and repeats what a dying worker or node leaves undone; here is only what is given to it, and how
much at a time. Every worker process keeps what points share, and refuses to work with other code than the driver's.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from planner.errors import BadRequest
from planner.studies.engines import Batch, Engine

if TYPE_CHECKING:
    from planner.studies.answer import Finished, Shared

CONNECTING: Final = 10.0
"""Seconds to wait for a cluster to answer."""
WAITING: Final = 2
"""Batches per processor that are with Ray at a time: one in work, one behind it."""


def on_ray(workers: int, address: str | None) -> Engine:
    """A Ray cluster: the one at the address, else the one that is found, else a local one of so many processors.

    Raises:
        BadRequest: Ray is not installed, or there is no cluster at the address.
    """
    ray = _imported()

    def engine(batches: Iterator[Batch]) -> Iterator[list[Finished]]:
        own = _connected(ray, workers, address)
        try:
            yield from _work(ray, batches)
        finally:
            if own:
                ray.shutdown()

    return engine


def _imported() -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's announced default, without its warning
    try:
        import ray
    except ImportError:
        raise BadRequest("--engine ray needs Ray: pip install ray; --engine local works without") from None
    return ray


def _connected(ray: Any, workers: int, address: str | None) -> bool:
    """Join or start a cluster; whether that was done here."""
    if ray.is_initialized():
        return False
    quiet = {"log_to_driver": False, "logging_level": "error"}
    place = address or os.environ.get("RAY_ADDRESS") or _running_here()
    if place in (None, "local"):
        ray.init(address="local", num_cpus=workers, include_dashboard=False, **quiet)
        return True
    if why := _unreachable(str(place)):
        raise BadRequest(f"--address {place}: no Ray cluster answers there: {why}")
    try:
        ray.init(address=place, **quiet)
    except ConnectionError as error:
        raise BadRequest(f"--address {place}: {' '.join(str(error).split())[:200]}") from None
    return True


def _running_here() -> str | None:
    """The cluster that was started last on this machine, if it still answers: Ray notes it and forgets to forget it."""
    note = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())) / "ray" / "ray_current_cluster"
    try:
        place = note.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return None if _unreachable(place) else place


def _unreachable(address: str) -> str:
    """Why nobody can be heard at an address, or nothing; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return ""  # "auto" and its like
    try:
        socket.create_connection((host, int(port)), timeout=CONNECTING).close()
    except (OSError, OverflowError) as error:
        return str(error)
    return ""


def _work(ray: Any, batches: Iterator[Batch]) -> Iterator[list[Finished]]:
    """Hand out batches while there is room, and back what is finished, whoever finished it first."""
    from planner.studies.answer import ATTEMPTS
    from planner.studies.question import release

    asked, own = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(answer_batch), release()
    pending: dict[Any, Batch] = {}
    singles: list[Batch] = []
    try:
        while True:
            room = max(1, WAITING * int(ray.cluster_resources().get("CPU", 1)))
            while len(pending) < room and (batch := singles.pop() if singles else next(batches, None)):
                pending[asked.remote(batch, own)] = batch
            if not pending:
                return
            for reference in ray.wait(list(pending), num_returns=1, timeout=None)[0]:
                batch = pending.pop(reference)
                if answers := _answers_of(ray, reference, batch):
                    yield answers
                else:
                    singles += [[task] for task in batch]
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)


def _answers_of(ray: Any, reference: Any, batch: Batch) -> list[Finished]:
    """The answers of a batch, an error for a point whose workers keep dying, nothing where it is one of several."""
    from planner.studies.answer import given_up

    try:
        answers: list[Finished] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise BadRequest(str(error.cause)) from None
    except ray.exceptions.RayError as error:
        return [given_up(batch[0], f": {type(error).__name__}")] if len(batch) == 1 else []
    return answers


def answer_batch(batch: Batch, release_of_driver: str) -> list[Finished]:
    """What a Ray worker does with a batch.

    Raises:
        RuntimeError: this worker has other code than the driver, so that its answers would be others.
    """
    from planner.studies.answer import answered
    from planner.studies.question import release

    if release() != release_of_driver:
        raise RuntimeError(f"a Ray worker has meshwright {release()}, the driver {release_of_driver}; install the same")
    return [answered(task, _shared()) for task in batch]


@cache
def _shared() -> Shared:
    """This worker process's memory of what points share."""
    from planner.studies.answer import Shared

    return Shared()
