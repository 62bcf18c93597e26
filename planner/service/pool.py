"""Processes that answer questions: a fixed number, a bounded queue, and an end for those that take too long."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from planner.errors import MeshwrightError
from planner.processes import ONE_THREAD
from planner.request.values import seconds_written
from planner.service.answers import failure
from planner.service.worker import LENGTH

Answer = tuple[int, bytes]
LEAST_SECONDS: Final = 0.001
"""That a worker is given at least, for it to say that they do not suffice."""
STARTUP = 120.0
"""Seconds in which a process has to say that it is ready."""

_LIMIT: Final = b'"time_limit"'
LOCAL: Final = ("localhost", "127.0.0.1", "::1")
"""Names of this machine to itself; a browser that was led here under another name is refused."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of a service; more than they allow is refused with a reason, never queued without end."""

    workers: int = 2
    """Questions answered at once, each in a process of its own."""
    waiting: int = 16
    """Further questions that may wait; beyond them the answer is 429."""
    seconds: float = 30.0
    """Longest search, whatever a request asks for; the process is ended some seconds later."""
    body_bytes: int = 2**20
    memory_bytes: int = 4 * 2**30
    """Address space of one process; 0: as much as there is."""
    remembered: int = 256
    """Answers that are given again to equal questions."""
    hosts: tuple[str, ...] = LOCAL
    """Names under which requests may ask for this service."""
    grace: float = 5.0
    """Seconds beyond a search's limit after which its process is ended, and that a shutdown waits."""
    tasks: int = 500
    """Questions after which a process is replaced by a fresh one."""


class Busy(Exception):
    """As many questions wait as may."""


@dataclass(slots=True)
class Worker:
    """One process, started when it is first needed."""

    process: Process | None = None
    answered: int = 0


class Pool:
    """Workers and the questions that wait for one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.waiting = 0
        self.busy = 0
        self._free: asyncio.LifoQueue[Worker] = asyncio.LifoQueue()
        self._beginning: set[asyncio.Future[None]] = set()
        self._stopping = False
        self._all = [Worker() for _ in range(settings.workers)]
        for worker in self._all:
            self._free.put_nowait(worker)

    async def start(self) -> None:
        """Start every process, so that the first questions need not wait."""
        await asyncio.gather(*(self._started(worker) for worker in self._all))

    async def stop(self) -> None:
        """End every process."""
        self._stopping = True
        for task in self._beginning:
            task.cancel()
        await asyncio.gather(*self._beginning, return_exceptions=True)
        await asyncio.gather(*(_end(worker) for worker in self._all))

    async def ask(self, kind: str, body: bytes) -> Answer:
        """The answer to a question; if the caller is cancelled, the process that works on it is ended.

        Raises:
            Busy: too many wait already.
        """
        if self.waiting >= self.settings.waiting and self._free.empty():
            raise Busy
        now, own = asyncio.get_running_loop().time, limit_of(body)
        until = now() + own
        worker = await self._one_free(until)
        if worker is None:
            return 422, failure("out-of-time", f"no worker was free within {own:g} s; ask later, or give more time", 4)
        self.busy += 1
        try:
            left = max(until - now(), LEAST_SECONDS)
            return await self._asked(worker, kind, body, min(left, self.settings.seconds))
        finally:
            self.busy -= 1
            if worker.process is None and not self._stopping:
                self._begin_again(worker)
            else:
                self._free.put_nowait(worker)

    async def _one_free(self, until: float) -> Worker | None:
        """The next free worker; None where none was by then."""
        self.waiting += 1
        try:
            async with asyncio.timeout_at(until if math.isfinite(until) else None):
                return await self._free.get()
        except TimeoutError:
            return None
        finally:
            self.waiting -= 1

    def _begin_again(self, worker: Worker) -> None:
        """Start a process that was ended at once, while others answer: the next question need not wait for it."""

        async def begin() -> None:
            try:
                await self._started(worker)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):  # the question that takes it tries again
                await _end(worker)
            finally:
                self._free.put_nowait(worker)

        task = asyncio.ensure_future(begin())
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _asked(self, worker: Worker, kind: str, body: bytes, limit: float) -> Answer:
        done = False
        try:
            process = await self._started(worker)
            async with asyncio.timeout(limit + self.settings.grace):
                found = await _exchange(process, f"{kind} {limit:.3g}\n".encode() + body)
            worker.answered += 1
            done = worker.answered < self.settings.tasks
        except TimeoutError:
            return 422, failure("out-of-time", f"no answer within {limit:.3g} s; ask for less", 4)
        except (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError):
            return await _ended_by_itself(worker)
        else:
            return found
        finally:
            if not done:
                await asyncio.shield(_end(worker))

    async def _started(self, worker: Worker) -> Process:
        if worker.process is None or worker.process.returncode is not None:
            command = (sys.executable, "-m", "planner.service.worker", str(self.settings.memory_bytes))
            worker.process = await create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, env={**os.environ, **ONE_THREAD}, start_new_session=True
            )
            worker.answered = 0
            async with asyncio.timeout(STARTUP):
                await _read_frame(worker.process)
        return worker.process


def limit_of(body: bytes) -> float:
    """Seconds that a question gives itself, the wait for a worker among them; infinite where it says none.

    What is wrong with a body is for the worker to say.
    """
    if _LIMIT not in body:
        return math.inf
    try:
        said = float(seconds_written(json.loads(body)["time_limit"]))
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError, MeshwrightError):
        return math.inf
    return said if said > 0.0 else math.inf


async def _ended_by_itself(worker: Worker) -> Answer:
    """Why a process ended by itself: the system took it for want of memory, or a defect."""
    code = await worker.process.wait() if worker.process else 0
    if code == -signal.SIGKILL:
        return 422, failure("out-of-memory", "the question needs more memory than the service gives", 4)
    return 500, failure("unexpected", "internal error; the log of the service has the traceback", 1)


async def _exchange(process: Process, frame: bytes) -> Answer:
    assert process.stdin is not None
    process.stdin.write(len(frame).to_bytes(LENGTH, "big") + frame)
    await process.stdin.drain()
    status, _, document = (await _read_frame(process)).partition(b"\n")
    return int(status), document


async def _read_frame(process: Process) -> bytes:
    assert process.stdout is not None
    length = await process.stdout.readexactly(LENGTH)
    return await process.stdout.readexactly(int.from_bytes(length, "big"))


async def _end(worker: Worker) -> None:
    process, worker.process = worker.process, None
    if process is None:
        return
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
