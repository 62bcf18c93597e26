"""Schedules whose backward pass is split: the order of their passes, as tables in time or as programs.

Splitting the backward pass into the gradient of the input (``B``, which the stage before waits for) and that
of the weights (``W``, which nobody waits for) leaves work to fill the bubble with [Qi23]. An order is made in
two steps. First the forward and backward passes alone, from the papers' figures. Then they are run in unit
time, every stage taking a ``W`` whenever the next pass of its list has to wait, or would exceed the stage's
memory limit. The log of that run is the order. It cannot deadlock: a log lists every pass after all those
it waited for, whatever the passes take in seconds.

Sources:
    [Qi23] P. Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241: ZB-H1, ZB-H2, ZB-V.
    [Qi24] P. Qi et al., "Pipeline Parallelism with Controllable Memory", arXiv 2405.15362: V-Half, V-Min.
    [DeepSeek24] DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, section 3.2.1: DualPipe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from costmodels.pipeline.slots import Path, Slot, alternate, folded, looped

Orders = tuple[tuple[Slot, ...], ...]
_Key = tuple[str, int, int]

BLOCK = 6
"""Units of time after which the next micro-batch follows: forward, backward and weights of two chunks."""


def v_half(p: int, m: int) -> Orders:
    """V-Half: forward passes of chunk 0 step one unit from stage to stage, those of chunk 1 two [Qi24]."""
    return _blocks(p, m, (1, 2, 1, 2), (4, 1, 5) if p % 2 == 0 else (1, 1, 2), 2 * ((p + 2) // 2))


def v_min(p: int, m: int) -> Orders:
    """V-Min: every pass steps one unit from stage to stage, the least that a V can hold [Qi24]."""
    return _blocks(p, m, (1, 1, 1, 1), (3, 1, 3) if p % 3 == 0 else (1, 1, 1), 2 * ((p + 4) // 3))


def dualpipe(p: int, m: int, stage: int) -> list[Slot]:
    """DualPipe: micro-batches from both ends at once, even ones from stage 0 and odd ones from the last."""
    return [Slot(kind, 2 * count + way, 0) for kind, count, way in two_way(p, m // 2, stage)]


@lru_cache(maxsize=32)
def straight(p: int, m: int, depth: int) -> Orders:
    """ZB-H1, the passes of 1F1B, every stage holding as much as its first [Qi23, figure 2].

    At ``depth`` 2 ZB-H2: twice the warm-up, so that nothing waits in the middle either [Qi23, figure 3].
    """
    forward = [Slot("F", i, 0) for i in range(m)]
    backward = [Slot("B", i, 0) for i in range(m)]
    orders = [alternate(forward, backward, warmup=depth * (p - stage - 1)) for stage in range(p)]
    return with_weight_passes(orders, path=looped(p, 1)[0], limit=depth * (p - 1) + 1)


@lru_cache(maxsize=32)
def zb_v_orders(p: int, m: int) -> Orders:
    """ZB-V: two chunks a stage, the first and the last of the model on stage 0 [Qi23, section 6]."""
    orders = [_counted(_vee_program(p, m, stage), m) for stage in range(p)]
    return with_weight_passes(orders, path=folded(p, 2)[0], limit=2 * p)


def _vee_program(p: int, m: int, stage: int) -> list[str]:
    """Kinds and chunks of ZB-V: more than needed of each, as ``_counted`` stops at m."""
    return [
        *["F0"] * (2 * (p - stage) - 1),
        *["F1", "F0"] * stage,
        *["F1", "B1"] * (p - stage),
        *["F0", "B0", "F1", "B1"] * (m - p),
        *["B0", "B1"] * stage,
        *["B0"] * (p - stage),
    ]


def _counted(program: Iterable[str], m: int) -> list[Slot]:
    """The program with its micro-batches numbered, each pass of each chunk at most m times."""
    counts = dict.fromkeys(("F0", "F1", "B0", "B1"), 0)
    slots = []
    for word in program:
        if counts[word] < m:
            slots.append(Slot("F" if word[0] == "F" else "B", counts[word], int(word[1])))
            counts[word] += 1
    return slots


@lru_cache(maxsize=32)
def _blocks(p: int, m: int, steps: tuple[int, ...], gaps: tuple[int, ...], limit: int) -> Orders:
    """Building blocks [Qi24, section 3], one every ``BLOCK`` units: the passes in the order of their times.

    ``steps`` are the units from stage to stage of F0, F1, B1 and B0, ``gaps`` those between one and the next
    at its turning point. They are such that no two passes of a stage ever fall on the same unit.
    """
    orders = []
    for stage in range(p):
        far = p - 1
        down = (stage, far - stage, stage, far - stage)
        starts, begin = [], 0
        for step, gap, moved in zip(steps, (*gaps, 0), down, strict=True):
            starts.append(begin + step * moved)
            begin += step * far + gap
        kinds: list[tuple[Literal["F", "B"], int]] = [("F", 0), ("F", 1), ("B", 1), ("B", 0)]
        timed = [
            (start + BLOCK * i, Slot(kind, i, chunk))
            for start, (kind, chunk) in zip(starts, kinds, strict=True)
            for i in range(m)
        ]
        orders.append([slot for _, slot in sorted(timed)])
    return with_weight_passes(orders, path=folded(p, 2)[0], limit=limit)


@dataclass(slots=True)
class _Stage:
    """A stage at work in unit time: passes ahead, weight gradients owed, chunks held."""

    index: int
    upcoming: deque[Slot]
    owed: deque[Slot] = field(default_factory=deque)
    held: int = 0
    log: list[Slot] = field(default_factory=list)

    def choose(self, ready: Callable[[int, Slot], bool], limit: int) -> Slot | None:
        """The next pass if it can run and fits, else a weight gradient if one is owed."""
        if self.upcoming:
            slot = self.upcoming[0]
            fits = slot.kind == "B" or self.held < limit or not self.owed
            if fits and ready(self.index, slot):
                return self.upcoming.popleft()
        return self.owed.popleft() if self.owed else None

    def run(self, slot: Slot) -> None:
        """Count what the pass stores, owes or frees."""
        self.log.append(slot)
        self.held += {"F": 1, "B": 0, "W": -1}[slot.kind]
        if slot.kind == "B":
            self.owed.append(Slot("W", slot.micro_batch, slot.chunk))


def with_weight_passes(orders: list[list[Slot]], *, path: Path, limit: int) -> Orders:
    """The orders with their weight gradients, from a run in unit time; ``limit`` is in chunks held a stage."""
    place = {step: k for k, step in enumerate(path)}
    stages = [_Stage(index, deque(order)) for index, order in enumerate(orders)]
    done: set[_Key] = set()

    def ready(stage: int, slot: Slot) -> bool:
        k = place[stage, slot.chunk]
        if slot.kind == "F":
            return k == 0 or ("F", slot.micro_batch, k - 1) in done
        before = ("B", slot.micro_batch, k + 1) if k + 1 < len(path) else ("F", slot.micro_batch, k)
        return before in done

    while any(stage.upcoming or stage.owed for stage in stages):
        ran = [(stage, slot) for stage in stages if (slot := stage.choose(ready, limit)) is not None]
        assert ran, "the passes of a schedule wait for each other in a circle"
        for stage, slot in ran:
            stage.run(slot)
            done.add((slot.kind, slot.micro_batch, place[stage.index, slot.chunk]))
    return tuple(tuple(stage.log) for stage in stages)


@lru_cache(maxsize=512)
def two_way(ranks: int, half: int, rank: int) -> tuple[Slot, ...]:
    """The passes of one rank of DualPipe, ``half`` micro-batches each way; a slot's chunk is its way.

    DualPipeV is DualPipe of 2 p ranks cut in half: the way up becomes chunk 1, and the second copy is not needed.
    """
    flip = int(rank >= ranks // 2)
    counts = {(kind, way): 0 for kind in "FB" for way in (0, 1)}
    owed: deque[Slot] = deque()
    log: list[Slot] = []
    for word in _two_way_program(ranks, half, min(rank, ranks - 1 - rank)):
        if word == "W":
            log.append(owed.popleft())
            continue
        kind: Literal["F", "B"] = "F" if word[0] == "F" else "B"
        way = int(word[1]) ^ flip
        count = counts[kind, way]
        counts[kind, way] += 1
        log.append(Slot(kind, count, way))
        if kind == "B":
            (owed if word[0] == "b" else log).append(Slot("W", count, way))
    return (*log, *owed)


def _two_way_program(ranks: int, half: int, depth: int) -> list[str]:
    """What a rank at ``depth`` from its end does: way 0 starts at that end; ``b`` owes its weight gradient."""
    reach = ranks // 2 - depth - 1
    turn = ["B1", "B0"] * (depth + 1)
    return [
        *["F0"] * (2 * reach),
        *["F0", "F1"] * (depth + 1),
        *["b1", "W", "F1"] * reach,
        *["F0", "B1", "F1", "B0"] * (half - ranks + depth + 1),
        *["B1", "F1", "B0"] * reach,
        *turn[: depth + 1],
        *[word.lower() for word in turn[depth + 1 :]],
        *["W", "b0"] * reach,
    ]
