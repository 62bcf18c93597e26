"""How much effort an answer may take.

Effort is counted, not timed, so that the same question has the same answer on any machine under any load. One unit is
the price of one strategy, some 2 microseconds on one core. Only where the user gave a time limit is a clock looked at,
and then nothing else ends a search. This is the only module of the planner that decides anything by the time.
"""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from planner.processes import check_interrupt
from planner.request.progress import Tell, Watch

SEARCH: Final = 3e7
"""Effort of the search for a plan, a minute or so; a question about 12,288 GPUs takes 1 % of it."""
CORE: Final = 0.1
"""Effort to lay out and bound one strategy without its sharding."""
LAYOUT: Final = 0.02
"""Effort of one more axis of one row of a lattice."""
SOLVE: Final = 500.0
"""Effort of one stage problem, in addition to what the solver counts itself."""
SOLVER_SECOND: Final = 2.5e6
"""Effort of a second of the deterministic time of CP-SAT, which is several of the clock."""
SPLIT: Final = 5e6
"""Effort of the layers of one strategy that are split alone, which take a thousandth of it."""
CELL: Final = 0.005
"""Effort of one cell of a table that dynamic programming passes through."""
SLICE: Final = 0.02
"""Effort of a slice on a stage where the bound of a strategy is asked for whose slices differ."""


BEGUN: Final = 0.95
"""Share of a time limit after which nothing more begins: what has begun takes a while to end."""


ONE_PLAN: Final = 1.5
"""Seconds in which the largest questions of one node group have a plan, the start of the process among them."""
_STARTED: Final = 19
"""Place of the start in Linux's status line of a process, after its name."""
_start_up = [0.0]


def count_start_up() -> None:
    """Let the time limits of this process count how long it took to start, where the system says so."""
    with suppress(OSError, ValueError, IndexError, AttributeError):  # no Linux
        said = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        begun = int(said[_STARTED]) / os.sysconf("SC_CLK_TCK")
        _start_up[0] = time.perf_counter() - max(time.clock_gettime(time.CLOCK_BOOTTIME) - begun, 0.0)


class Budget:
    """What is left of the effort, and of the time where the user limits it.

    Attributes:
        effort: units that may still be spent; infinite where only the time counts.
        started: when the question was asked, by the clock of this process, to report how long the answer took.
        end: when nothing more begins, by the same clock, for the time limit to hold; infinite where there is none.
        limit: what ended a search that found nothing, as the end of a sentence.
        within: the time limit in seconds; None where there is none.
        watch: receives how far the answer has come; None where nobody asked.
    """

    __slots__ = ("effort", "end", "limit", "started", "watch", "within")

    def __init__(self, seconds: float | None = None, effort: float = SEARCH, *, progress: Tell | None = None) -> None:
        """``seconds`` are the time limit that the user gave, which counts in place of the effort."""
        self.watch = None if progress is None else Watch(progress)
        self.started = time.perf_counter()
        self.end = math.inf if seconds is None else (_start_up[0] or self.started) + BEGUN * seconds
        self.effort = effort if seconds is None else math.inf
        self.within = seconds
        what = "the effort of one search" if seconds is None else f"{seconds:g} s"
        self.limit = f"within {what}; --time-limit gives more"

    @property
    def timed(self) -> bool:
        """Whether the user gave a time limit."""
        return self.end < math.inf

    def spent(self) -> bool:
        """Whether a search has to end.

        Raises:
            KeyboardInterrupt: somebody interrupted the command.
        """
        check_interrupt()  # one that C code dropped
        return self.effort <= 0.0 or (self.timed and time.perf_counter() >= self.end)

    @property
    def late(self) -> bool:
        """Whether a time limit has passed, after which nothing more begins; effort that is spent makes nothing late."""
        return self.timed and self.spent()

    @property
    def seconds(self) -> float:
        """Seconds that are left of the time limit; infinite where there is none."""
        return max(self.end - time.perf_counter(), 0.0) if self.timed else math.inf

    @property
    def enough(self) -> str:
        """What ended a search for one plan, with the time limit that is likely enough, as the end of a sentence."""
        if self.within is None:
            return self.limit
        wanted = 2.0 * self.within + ONE_PLAN
        likely = next((one for one in (2, 5, 10, 20, 50) if one >= wanted), math.ceil(wanted))
        return f"within {self.within:g} s; --time-limit {likely} is likely enough"

    @property
    def solver_limits(self) -> dict[str, float]:
        """Parameters of CP-SAT: its deterministic time, or the clock where the user gave a time limit."""
        limits = {"max_deterministic_time": max(self.effort, 0.0) / SOLVER_SECOND, "max_time_in_seconds": self.seconds}
        return {name: limit for name, limit in limits.items() if math.isfinite(limit)}

    @property
    def elapsed(self) -> float:
        """Seconds since the question was asked, to report."""
        return time.perf_counter() - self.started

    def settle(self, doing: str) -> None:
        """Say that the answer is found and what is looked for next."""
        if self.watch is not None:
            self.watch.settle(doing)

    def found(self, best: float | None, bound: float | None, so_far: str = "") -> None:
        """Say the best so far, what none can be below, and the best in words if it is no time of an iteration."""
        if self.watch is not None:
            self.watch.found(best, bound, so_far)

    def go_on(self, doing: str, done: int = 0, total: int | None = None) -> None:
        """Say what is done next, and how many such parts are finished."""
        if self.watch is not None:
            self.watch.go_on(doing, done, total)

    def spend_solver(self, seconds: float) -> None:
        """Count a run of CP-SAT, by its deterministic time."""
        self.spend(SOLVER_SECOND * seconds)

    def spend(self, effort: float) -> None:
        """Count effort that was made."""
        self.effort -= effort

    def part(self, effort: float, share: float | None = None) -> Budget:
        """Effort of its own for a part of the answer.

        Args:
            effort: units of the part.
            share: part of the time that is left which it gets in place of them where there is a time limit; without
                one it has its effort and ends with the limit.
        """
        one = Budget(effort=effort)
        one.started, one.end, one.limit, one.watch = self.started, self.end, self.limit, self.watch
        one.within = self.within
        if self.timed and share is not None:
            one.effort, one.end = math.inf, time.perf_counter() + share * self.seconds
        return one


__all__ = ["CELL", "CORE", "SEARCH", "SLICE", "SOLVE", "SPLIT", "Budget"]
