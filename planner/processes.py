"""This process and further ones: interrupts that are never lost, and functions that other processes work out.

C code drops what is raised in the Python that it calls: numpy where it asks an object what it is, pydantic in a
serializer, Python itself at an object's end. So an interrupt is remembered until the command has ended, and looked for
where work goes on.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

Item = TypeVar("Item")
Result = TypeVar("Result")

ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment of a process whose linear algebra keeps to one thread.

The planner's products are small: further threads wait for them busily, and how many there are may change last digits.
"""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
"""What a terminal and what a scheduler sends."""
_seen: list[int] = []


@contextmanager
def remembered_interrupts() -> Iterator[None]:
    """Inside, an interrupt and SIGTERM, which schedulers send first, raise KeyboardInterrupt and are remembered.

    One that is ignored, as by a shell's background jobs, stays ignored.
    """
    before = {one: signal.getsignal(one) for one in _SIGNALS}
    _seen.clear()
    for one in _SIGNALS:
        if before[one] is not signal.SIG_IGN:
            signal.signal(one, _interrupt)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def remember_interrupt() -> None:
    """Remember an interrupt of which Python only report."""
    _seen.append(signal.SIGINT)


def forget_interrupts() -> None:
    """Say that whoever was interrupted ended as it should."""
    _seen.clear()


def interrupted() -> bool:
    """Whether somebody interrupted the command that runs, whatever became of the exception."""
    return bool(_seen)


def check_interrupt(error: BaseException | None = None) -> None:
    """Interrupt where an interrupt was lost, or where ``error`` is what a serializer of pydantic made of one.

    Raises:
        KeyboardInterrupt: there was one.
    """
    if _seen or (error is not None and is_interrupt(error)):
        raise KeyboardInterrupt from None


def is_interrupt(error: BaseException) -> bool:
    """Whether somebody interrupted the process, also inside a serializer, where pydantic makes an error of its own."""
    lost = type(error).__name__ == "PydanticSerializationError" and "KeyboardInterrupt" in str(error)
    return lost or isinstance(error, KeyboardInterrupt)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _seen.append(number)
    raise KeyboardInterrupt


def map_in_processes(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int,
    chunk: int = 1,
    fewest: int = 1,
    report: Callable[[list[Result]], None] | None = None,
) -> list[Result]:
    """What ``function`` gives for every item, in order, worked out by so many fresh processes.

    By this one where there is one worker, or fewer items than the ``fewest`` for which processes are worth their start.
    They end with this call, also where it is interrupted or fails. Function, items and results are things that another
    process can be sent, and the main module of the program is one that another process can import. ``report`` is given
    results as they come, in any order.

    Raises:
        RuntimeError: a process ended by itself, as where memory runs out.
        Exception: that which ``function`` raised for the first item of those for which it did.
    """
    if workers == 1 or len(items) < fewest:
        return _one_by_one(function, items, report)
    parts = [items[first : first + chunk] for first in range(0, len(items), chunk)]
    found: dict[int, list[Result]] = {}
    running: dict[Connection, SpawnProcess] = {}
    try:
        for _ in range(min(workers, len(parts))):
            pipe, process = _started(function)
            running[pipe] = process
        _work(parts, list(running), found, report)
    finally:
        for pipe, process in running.items():
            pipe.close()
            process.terminate()
        for process in running.values():
            process.join()
    return [result for number in range(len(parts)) for result in found[number]]


def _one_by_one(
    function: Callable[[Item], Result], items: Sequence[Item], report: Callable[[list[Result]], None] | None
) -> list[Result]:
    found = []
    for item in items:
        found.append(function(item))
        if report is not None:
            report(found[-1:])
    return found


def _work(
    parts: Sequence[Sequence[Any]],
    idle: list[Connection],
    found: dict[int, list[Any]],
    report: Callable[[list[Any]], None] | None,
) -> None:
    from multiprocessing.connection import wait

    waiting: list[tuple[int, Sequence[Any]]] = list(enumerate(parts))[::-1]
    asked: dict[Connection, int] = {}
    errors: dict[int, BaseException] = {}
    while waiting or asked:
        while waiting and idle:
            pipe = idle.pop()
            asked[pipe], part = waiting.pop()
            pipe.send(part)
        ready = wait(list(asked))
        for pipe in [one for one in asked if one in ready]:
            try:
                results, error = pipe.recv()
            except (EOFError, OSError):
                raise RuntimeError("a process ended before it had answered; out of memory?") from None
            number = asked.pop(pipe)
            found[number] = results
            if report is not None and error is None:
                report(results)
            if error is not None:
                errors[number] = error
                waiting.clear()  # those of lower numbers are under way, and one of them may fail too
            idle.append(pipe)
    if errors:
        raise errors[min(errors)]


def _started(function: Callable[[Any], Any]) -> tuple[Connection, SpawnProcess]:
    from multiprocessing import get_context

    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, function), daemon=True)
    with unheard_interrupts():
        process.start()
    there.close()
    return here, process


@contextmanager
def unheard_interrupts() -> Iterator[None]:
    """A process that is started inside hears no interrupt until it begins to serve (`begin_serving`).

    Nor does this one: a process that is half started would end with a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # which is started with the first process else, and lets interrupts in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin_serving() -> None:
    """Let SIGTERM end this process, which another one started; an interrupt of the terminal is for that one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _serve(pipe: Connection, function: Callable[[Any], Any]) -> None:
    """Work out part by part until the pipe closes."""
    begin_serving()
    try:
        while True:
            part = pipe.recv()
            try:
                answer: tuple[Any, Exception | None] = [function(item) for item in part], None
            except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
                answer = None, error
            pipe.send(answer)
    except (EOFError, OSError):
        return
