"""Engines: who answers the tasks. An engine draws batches only as fast as it works, and hands back what is finished.

``local`` are processes on this machine, each with a pipe of its own: what a worker finished is known at once, and of
one that dies it is known on which point.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from threading import Thread
from typing import TYPE_CHECKING, Final

from planner.processes import ONE_THREAD, begin_serving, unheard_interrupts

if TYPE_CHECKING:
    from planner.studies.answer import Finished, Task

Batch = list["Task"]
"""Neighbours, which share what is worked out once."""
Engine = Callable[[Iterator[Batch]], Iterator[list["Finished"]]]

TOGETHER: Final = 0.05
"""Seconds of answers that are kept together: a disk takes about as long for one as for ten."""


def in_process(batches: Iterator[Batch]) -> Iterator[list[Finished]]:
    """Answer everything in this process, for a single worker and for tests."""
    from planner.studies.answer import Shared, answered

    shared, done, handed = Shared(), [], time.monotonic()
    for task in chain.from_iterable(batches):
        done.append(answered(task, shared))
        if time.monotonic() - handed >= TOGETHER:
            yield done
            done, handed = [], time.monotonic()
    if done:
        yield done


def local(workers: int) -> Engine:
    """So many processes on this machine."""

    def engine(batches: Iterator[Batch]) -> Iterator[list[Finished]]:
        running = _LocalWorkers(batches, workers)
        try:
            yield from running.work()
        finally:
            running.stop()

    return engine


@dataclass
class _Worker:
    """One process and the tasks that it was given and has not answered, the first of them in work."""

    process: SpawnProcess
    pipe: Connection
    tasks: deque[Task] = field(default_factory=deque)


class _LocalWorkers:
    def __init__(self, batches: Iterator[Batch], size: int) -> None:
        self._batches, self._size = batches, size
        self._workers: list[_Worker] = []
        self._returned: deque[Batch] = deque()
        self._deaths: Counter[str] = Counter()

    def work(self) -> Iterator[list[Finished]]:
        """Finished points, as they come, until all batches are drawn and answered."""
        self._assign()
        while busy := [worker for worker in self._workers if worker.tasks]:
            ready = wait([worker.pipe for worker in busy])
            done: list[Finished] = []
            for worker in busy:
                if worker.pipe in ready:
                    done += self._received(worker)
            self._assign()
            if done:
                yield done

    def stop(self) -> None:
        """End every worker, whatever it does."""
        for worker in self._workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join()

    def _assign(self) -> None:
        """Give every idle worker a batch, and start workers while there are batches for them."""
        for worker in self._workers:
            if not worker.tasks and (batch := self._next()):
                self._send(worker, batch)
        while len(self._workers) < self._size and (batch := self._next()):
            worker = _started()
            self._workers.append(worker)
            self._send(worker, batch)

    def _next(self) -> Batch | None:
        return self._returned.popleft() if self._returned else next(self._batches, None)

    def _send(self, worker: _Worker, batch: Batch) -> None:
        worker.tasks.extend(batch)
        try:
            worker.pipe.send(batch)
        except OSError:
            return  # it died, which reading from it shows

    def _received(self, worker: _Worker) -> list[Finished]:
        """What a worker has to say; one that died leaves the point it died on, and the rest to others."""
        received: list[Finished] = []
        try:
            while worker.tasks and worker.pipe.poll():
                received.append(worker.pipe.recv())
                worker.tasks.popleft()
        except (EOFError, OSError):
            received += self._replaced(worker)
        return received

    def _replaced(self, worker: _Worker) -> list[Finished]:
        from planner.studies.answer import ATTEMPTS, given_up

        self._workers.remove(worker)
        worker.process.join()
        worker.pipe.close()
        suspect, *rest = worker.tasks
        if rest:
            self._returned.append(rest)
        self._deaths[suspect.key] += 1
        if self._deaths[suspect.key] < ATTEMPTS:
            self._returned.append([suspect])
            return []
        return [given_up(suspect, f", the last with exit code {worker.process.exitcode}")]


def _started() -> _Worker:
    """A worker in a fresh process: nothing of this one, neither locks nor threads, gets into it."""
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    before = dict(os.environ)
    os.environ |= ONE_THREAD  # as many processes as processors leave none for threads
    try:
        with unheard_interrupts():
            process.start()
    finally:
        for name in ONE_THREAD:
            del os.environ[name]
        os.environ |= before
    there.close()
    return _Worker(process, here)


def _serve(pipe: Connection) -> None:
    """The life of a worker: answer batches until the pipe closes, and never outlive the process that reads."""
    begin_serving()
    Thread(target=_die_with_parent, daemon=True).start()
    from planner.studies.answer import Shared, answered

    shared = Shared()
    try:
        while True:
            for task in pipe.recv():
                pipe.send(answered(task, shared))
    except (EOFError, OSError):
        return


def _die_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
