"""Pipeline schedules played event by event: a second opinion on every closed form of an iteration.

Nothing but the order of the passes is shared with the cost model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from costmodels.arrays import Floats, Ints
from costmodels.pipeline.schedules import Schedule
from costmodels.pipeline.slots import Path, Slot
from hardware.errors import MeshwrightError

_Key = tuple[str, int, int]
_Plan = dict[tuple[str, int, int], tuple[float, tuple[str, int, int] | None]]
"""Seconds of a pass, by kind, stage and chunk, and the kind, stage and chunk of the pass that it needs."""


class Deadlock(MeshwrightError):
    """Every stage that still has work waits for a pass that will never run."""


class Event(NamedTuple):
    """One pass as it was run, in seconds from the start of the iteration."""

    stage: int
    kind: Literal["F", "B", "W"]
    micro_batch: int
    chunk: int
    start: float
    end: float


@dataclass(frozen=True)
class Simulation:
    """One iteration of a pipeline, played event by event.

    Attributes:
        orders: the passes of each stage, as they ran.
        starts: seconds from the start of the iteration to that of each.
        ends: the same to the end of each.
    """

    orders: list[list[Slot]]
    starts: list[list[float]]
    ends: list[list[float]]

    @property
    def makespan(self) -> float:
        """Seconds from the first pass to the end of the last."""
        return max(run[-1] for run in self.ends)

    @property
    def period(self) -> float:
        """Seconds after which the next iteration can follow where no stage waits for the others between iterations.

        The longest span of a stage, from the start of its first pass to the end of its last.
        """
        return max(ends[-1] - starts[0] for starts, ends in self._spans())

    @cached_property
    def busy(self) -> Floats:
        """Seconds in which each stage computed, (p,)."""
        return np.array([math.fsum(ends) - math.fsum(starts) for starts, ends in self._spans()])

    @cached_property
    def peak_in_flight(self) -> Ints:
        """Largest number of chunks' activations that each stage held at once, (p,).

        An activation is held from the start of its forward pass to the end of its backward pass, or of its ``W`` pass
        where the schedule has one.
        """
        return np.array([_peak(order) for order in self.orders])

    @cached_property
    def events(self) -> list[Event]:
        """Every pass, stage by stage, in the order in which they ran."""
        return [
            Event(stage, *slot, start, end)
            for stage, (order, (starts, ends)) in enumerate(zip(self.orders, self._spans(), strict=True))
            for slot, start, end in zip(order, starts, ends, strict=True)
        ]

    def _spans(self) -> Iterator[tuple[list[float], list[float]]]:
        return zip(self.starts, self.ends, strict=True)


def simulate(
    schedule: Schedule,
    *,
    p: int,
    m: int,
    v: int,
    forward: Floats,
    backward: Floats,
    weight: Floats | None = None,
    p2p: float = 0.0,
) -> Simulation:
    """Play one iteration of ``schedule``: each pass starts when its stage is free and its input has arrived.

    Args:
        schedule: the order in which every stage runs its passes, and the way of a micro-batch through them.
        p: pipeline stages.
        m: micro-batches.
        v: model chunks per stage. Times belong to pieces of the model, and the piece at (stage, chunk) is its
            place on the schedule's first path; another path goes through the same pieces on other stages.
        forward: (p, v) seconds of the forward pass of one micro-batch through each chunk.
        backward: (p, v) seconds of the backward pass.
        weight: (p, v) seconds of the gradient of the weights, which ``backward`` then does not contain. Where
            the schedule has no ``W`` passes they count as part of its backward passes; without ``weight`` a
            schedule's ``W`` passes take no time.
        p2p: seconds between the end of a pass and the arrival of its output at another stage. It delays the
            receiver alone; no stage's compute is stopped by it.

    Raises:
        BadSchedule: if the schedule cannot run so.
        Deadlock: if the order of the passes can never be completed.
        ValueError: if the times are not of shape (p, v).
    """
    orders = schedule.passes(p=p, m=m, v=v)
    if weight is not None and not any(slot.kind == "W" for slot in orders[0]):
        backward, weight = _shaped(backward, (p, v), "backward") + _shaped(weight, (p, v), "weight"), None
    seconds = {
        "F": _shaped(forward, (p, v), "forward").tolist(),
        "B": _shaped(backward, (p, v), "backward").tolist(),
        "W": _shaped(np.zeros((p, v)) if weight is None else weight, (p, v), "weight").tolist(),
    }
    paths = schedule.paths(p, v)
    plans = [_plan(path, paths[0], seconds) for path in paths]
    return Simulation(orders, *_play(orders, plans, p2p=p2p))


def _shaped(times: Floats, shape: tuple[int, int], name: str) -> Floats:
    array = np.asarray(times, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} seconds must have shape (stages, chunks) = {shape}, got {array.shape}")
    return array


def _plan(path: Path, pieces: Path, seconds: dict[str, list[list[float]]]) -> _Plan:
    """What every pass of a micro-batch on ``path`` takes and waits for; ``pieces`` say whose time it is."""
    plan: _Plan = {}
    for k, (stage, chunk) in enumerate(path):
        s, c = pieces[k]
        before = ("F", *path[k - 1]) if k else None
        after = ("B", *path[k + 1]) if k + 1 < len(path) else ("F", stage, chunk)
        plan["F", stage, chunk] = seconds["F"][s][c], before
        plan["B", stage, chunk] = seconds["B"][s][c], after
        plan["W", stage, chunk] = seconds["W"][s][c], ("B", stage, chunk)
    return plan


def _play(orders: list[list[Slot]], plans: list[_Plan], *, p2p: float) -> tuple[list[list[float]], list[list[float]]]:
    """When every pass starts and ends. A stage runs until it lacks an input; its arrival wakes it again."""
    ends: list[dict[_Key, float]] = [{} for _ in orders]
    starts: list[list[float]] = [[] for _ in orders]
    free = [0.0] * len(orders)
    blocked: dict[tuple[int, _Key], int] = {}
    ready = list(range(len(orders) - 1, -1, -1))
    while ready:
        stage = ready.pop()
        mine, begun, order = ends[stage], starts[stage], orders[stage]
        for place in range(len(begun), len(order)):
            slot = order[place]
            kind, micro_batch, chunk = slot
            seconds, source = plans[micro_batch % len(plans)][kind, stage, chunk]
            start = free[stage]
            if source is not None:
                before, sender, piece = source
                needed = (before, micro_batch, piece)
                arrival = ends[sender].get(needed)
                if arrival is None:
                    blocked[sender, needed] = stage
                    break
                start = max(start, arrival if sender == stage else arrival + p2p)
            mine[slot] = free[stage] = start + seconds
            begun.append(start)
            if blocked and (woken := blocked.pop((stage, slot), None)) is not None:
                ready.append(woken)
    _check_complete(orders, [len(begun) for begun in starts], blocked)
    return starts, [list(mine.values()) for mine in ends]


def _check_complete(orders: list[list[Slot]], done: list[int], blocked: dict[tuple[int, _Key], int]) -> None:
    stuck = [
        f"stage {stage} at {_spell(orders[stage][done[stage]])} for {_spell(key)} of stage {sender}"
        for (sender, key), stage in blocked.items()
    ]
    if stuck:
        raise Deadlock(f"the schedule deadlocks: {'; '.join(stuck[:3])} wait forever")


def _spell(key: _Key) -> str:
    kind, micro_batch, chunk = key
    return f"{kind}(micro-batch {micro_batch}, chunk {chunk})"


def _peak(order: list[Slot]) -> int:
    last = "W" if any(slot.kind == "W" for slot in order) else "B"
    steps = np.array([(slot.kind == "F") - (slot.kind == last) for slot in order], dtype=np.int64)
    return int(np.cumsum(steps).max())
