"""Pipeline schedules played event by event: a second opinion on every closed form of an iteration.

Nothing but the order of the passes is shared with the cost model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.schedules import Schedule, Slot
from hardware.errors import MeshwrightError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_Key = tuple[str, int, int]


class Deadlock(MeshwrightError):
    """Every stage that still has work waits for a pass that will never run."""


class Event(NamedTuple):
    """One pass as it was run, in seconds from the start of the iteration."""

    stage: int
    kind: Literal["F", "B"]
    micro_batch: int
    chunk: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """One iteration of a pipeline, played event by event.

    Attributes:
        makespan: seconds from the first pass to the end of the last.
        busy: (p,) seconds in which each stage computed.
        peak_in_flight: (p,) largest number of chunks' activations that each stage held at once; an activation
            is held from the start of its forward pass to the end of its backward pass.
        events: every pass, stage by stage, in the order in which they ran.
    """

    makespan: float
    busy: Floats
    peak_in_flight: Ints
    events: list[Event]


def simulate(
    schedule: Schedule, *, p: int, m: int, v: int, forward: Floats, backward: Floats, p2p: float = 0.0
) -> Simulation:
    """Play one iteration of ``schedule``: each pass starts when its stage is free and its input has arrived.

    Args:
        schedule: the order in which every stage runs its passes.
        p: pipeline stages.
        m: micro-batches.
        v: model chunks per stage; chunk c of stage s is the (c * p + s)-th piece of the model.
        forward: (p, v) seconds of the forward pass of one micro-batch through each chunk.
        backward: (p, v) seconds of the backward pass.
        p2p: seconds between the end of a pass and the arrival of its output at another stage. It delays the
            receiver alone; no stage's compute is stopped by it.

    Raises:
        BadSchedule: if the schedule cannot run so.
        Deadlock: if the order of the passes can never be completed.
        ValueError: if the times are not of shape (p, v).
    """
    seconds = {
        "F": _table(forward, shape=(p, v), name="forward"),
        "B": _table(backward, shape=(p, v), name="backward"),
    }
    orders = schedule.passes(p=p, m=m, v=v)
    events = _play(orders, seconds=seconds, v=v, p2p=p2p)
    busy = [sum(seconds[slot.kind][stage][slot.chunk] for slot in order) for stage, order in enumerate(orders)]
    return Simulation(
        makespan=max(event.end for event in events),
        busy=np.array(busy),
        peak_in_flight=np.array([_peak(order) for order in orders]),
        events=events,
    )


def _table(times: Floats, *, shape: tuple[int, int], name: str) -> list[list[float]]:
    """Nested lists: the event loop reads single numbers, and reads them ten times faster from lists."""
    array = np.asarray(times, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} seconds must have shape (stages, chunks) = {shape}, got {array.shape}")
    rows: list[list[float]] = array.tolist()
    return rows


def _play(orders: list[list[Slot]], *, seconds: dict[str, list[list[float]]], v: int, p2p: float) -> list[Event]:
    """Every pass with its time. A stage runs until it lacks an input; its arrival wakes it again."""
    p = len(orders)
    ends: list[dict[_Key, float]] = [{} for _ in orders]
    events: list[list[Event]] = [[] for _ in orders]
    done, free = [0] * p, [0.0] * p
    waiting: dict[tuple[int, _Key], int] = {}
    ready = list(range(p - 1, -1, -1))
    while ready:
        stage = ready.pop()
        mine, order = ends[stage], orders[stage]
        for slot in order[done[stage] :]:
            source = _source(slot, stage=stage, p=p, v=v)
            start = free[stage]
            if source is not None:
                sender, needed = source
                arrival = ends[sender].get(needed)
                if arrival is None:
                    waiting[source] = stage
                    break
                start = max(start, arrival if sender == stage else arrival + p2p)
            kind, micro_batch, chunk = slot
            mine[slot] = free[stage] = end = start + seconds[kind][stage][chunk]
            events[stage].append(Event(stage, kind, micro_batch, chunk, start, end))
            done[stage] += 1
            if waiting and (woken := waiting.pop((stage, slot), None)) is not None:
                ready.append(woken)
    _check_complete(orders, done, waiting)
    return [event for run in events for event in run]


def _source(slot: Slot, *, stage: int, p: int, v: int) -> tuple[int, _Key] | None:
    """The stage and pass whose output ``slot`` needs; None for the first forward pass of a micro-batch."""
    kind, micro_batch, chunk = slot
    if kind == "F":
        if stage:
            return stage - 1, slot
        return (p - 1, ("F", micro_batch, chunk - 1)) if chunk else None
    if stage < p - 1:
        return stage + 1, slot
    if chunk < v - 1:
        return 0, ("B", micro_batch, chunk + 1)
    return stage, ("F", micro_batch, chunk)


def _check_complete(orders: list[list[Slot]], done: list[int], waiting: dict[tuple[int, _Key], int]) -> None:
    stuck = [
        f"stage {stage} at {_spell(orders[stage][done[stage]])} for {_spell(key)} of stage {sender}"
        for (sender, key), stage in waiting.items()
    ]
    if stuck:
        raise Deadlock(f"the schedule deadlocks: {'; '.join(stuck[:3])} wait forever")


def _spell(key: _Key) -> str:
    kind, micro_batch, chunk = key
    return f"{kind}(micro-batch {micro_batch}, chunk {chunk})"


def _peak(order: list[Slot]) -> int:
    steps = np.array([1 if slot.kind == "F" else -1 for slot in order])
    return int(np.cumsum(steps).max())
