"""How far an answer has come, reported to whoever asked: what is being done, the best so far, how far it may be off.

Progress is reported where effort is counted anyway, after every batch of strategies, so it changes no answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

SEARCHING: Final = "searching"


@dataclass(frozen=True, slots=True)
class Progress:
    """Where an answer stands.

    Attributes:
        doing: what is being done, in a few words such as "searching", "what would help" or "12 of 40 points".
        best: the least value of the objective so far: seconds of an iteration, of wall time with the objective goodput,
            bytes with memory; None before anything was found, and in a sweep, whose points compare with nothing.
        bound: what no strategy can be below, in the same unit; None where that is not known.
        done: parts that are finished, of a question that has such: points of a sweep, sizes, levers.
        total: how many there are; None where that is not known.
        so_far: what is known so far in words, such as "best so far 3.17M examples/s", of a question whose best is no
            time and no memory; "" where ``best`` says it.
    """

    doing: str
    best: float | None = None
    bound: float | None = None
    done: int = 0
    total: int | None = None
    so_far: str = ""

    @property
    def gap(self) -> float | None:
        """By how much the best may be above the optimum, as a share of the best; None where that is not known."""
        if not self.best or self.bound is None:
            return None
        return max(1.0 - self.bound / self.best, 0.0)


Tell = Callable[[Progress], None]
"""What a user gives: it is called in the thread that asked, after every batch; what it raises ends the question."""


def ignore(_at: Progress) -> None:
    """Reports nothing, where nobody asked."""


class Watch:
    """Keeps where an answer stands, and reports it.

    Only the search for the answer has a best; a further search, for reasons, keeps that.
    """

    __slots__ = ("_at", "_settled", "_tell")

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._at = Progress(SEARCHING)
        self._settled = False

    def found(self, best: float | None, bound: float | None, so_far: str = "") -> None:
        """Tell the best so far of the search that is going on, its bound, and the best in words if it is no time."""
        if not self._settled:
            self._at = replace(self._at, best=best, bound=bound, so_far=so_far)
        self._tell(self._at)

    def settle(self, doing: str) -> None:
        """Tell that the answer is found and what else is looked for."""
        self._settled = True
        self.go_on(doing, self._at.done, self._at.total)

    def go_on(self, doing: str, done: int = 0, total: int | None = None) -> None:
        """Tell what is done next, and how many such parts are finished."""
        self._at = replace(self._at, doing=doing, done=done, total=total)
        self._tell(self._at)
