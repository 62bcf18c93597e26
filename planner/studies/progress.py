"""How far a study has come: counts, rate, time left, the best so far."""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Final

from planner.studies.answer import Finished

RATE_WINDOW: Final = 60.0
"""Seconds over which the rate is taken."""
MOST_MARKS: Final = 200


@dataclass
class Progress:
    """The state of a run; ``total`` counts points before filters unless they have been counted."""

    total: int
    known: int = 0
    """Points whose answer was in the store already, or is another's too."""
    counts: Counter[str] = field(default_factory=Counter)
    """Points answered by this run, by status."""
    defects: int = 0
    best: tuple[float, str] | None = None
    """The best value of the objective so far and how to say it."""
    started: float = field(default_factory=time.monotonic)
    marks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=MOST_MARKS))

    @property
    def answered(self) -> int:
        """Points that this run answered."""
        return sum(self.counts.values())

    @property
    def done(self) -> int:
        """Points that are answered, by whom ever."""
        return self.known + self.answered

    @property
    def failed(self) -> int:
        """Points that this run could not answer."""
        return self.counts["failed"]

    @property
    def rate(self) -> float:
        """Points a second, of late."""
        if len(self.marks) < 2:
            return self.answered / max(time.monotonic() - self.started, 1e-9)
        (then, before), (now, after) = self.marks[0], self.marks[-1]
        return (after - before) / max(now - then, 1e-9)

    @property
    def left(self) -> float | None:
        """Seconds that the rest will take at this rate."""
        return (self.total - self.done) / self.rate if self.rate > 0 else None

    def add(self, finished: list[Finished]) -> None:
        """Count answers."""
        for one in finished:
            self.counts[one.status] += 1
            self.defects += one.defect
            if one.document is not None and one.status != "infeasible":
                document = json.loads(one.document)
                score, words = objective_value(document)
                if self.best is None or score < self.best[0]:
                    request = document["request"]
                    where = f"{request['model']['name']} on {request['gpus']:,} x {request['cluster']['name']}"
                    self.best = score, f"{words} ({where})"
        now = time.monotonic()
        self.marks.append((now, self.answered))
        while len(self.marks) > 2 and now - self.marks[0][0] > RATE_WINDOW:
            self.marks.popleft()


def objective_value(document: dict[str, Any]) -> tuple[float, str]:
    """What the objective of an answer is worth, less is better, and in words."""
    said, memory = document["prediction"], document["peak_memory_bytes"]
    match document["request"]["objective"]:
        case "time":
            found = said["training_days"], f"{said['training_days']:.3g} days"
        case "mfu":
            found = -said["mfu"], f"MFU {said['mfu']:.1%}"
        case "cost" if said["cost_dollars"] is not None:
            found = said["cost_dollars"], f"${said['cost_dollars']:,.0f}"
        case "cost":
            found = said["gpu_hours"], f"{said['gpu_hours']:.4g} GPU hours"
        case "tokens-per-gpu-hour":
            rate = said["tokens_per_second_per_gpu"]
            found = -rate, f"{rate:.4g} tokens/s per GPU"
        case "goodput":
            days = document["goodput"]["wall_days"]
            found = days, f"{days:.3g} days with interruptions"
        case _:
            found = memory, f"{memory / 2**30:.1f} GiB"
    return found
