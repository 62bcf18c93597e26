"""Where it runs, and how calls are timed: in blocks behind a warm-up, replayed by a graph where that works."""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

SCHEMA = "probe/1"
RANK, WORLD, LOCAL = (
    int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
)
PER_NODE = int(os.environ.get("LOCAL_WORLD_SIZE", WORLD))
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda", LOCAL) if CUDA else torch.device("cpu")
BF16 = torch.bfloat16
SMALL = not CUDA
"""Small shapes and few repetitions, where there is no GPU: a test of this program and not of a machine."""
CACHE = 256e6 if CUDA else 1e6
"""Bytes over which inputs rotate, several times what caches hold."""

Entry = dict[str, Any]
Call = Callable[[int], Any]
"""What is timed; its number says which of several inputs to take."""
Left = Callable[[], float]
"""Seconds that a section has left."""


def say(text: str) -> None:
    """One line of progress."""
    if RANK == 0:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def wait() -> None:
    """Until the device has done all that was started."""
    if CUDA:
        torch.cuda.synchronize()


def spread(values: Sequence[float]) -> Entry:
    """The median of some seconds with their spread."""
    ordered = sorted(values)
    low, high = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.1, 0.9))
    found = {"seconds": statistics.median(ordered), "p10": low, "p90": high}
    return {name: float(f"{value:.5g}") for name, value in found.items()} | {"blocks": len(ordered)}


def graph_of(call: Call, count: int) -> torch.cuda.CUDAGraph | None:
    """``count`` calls as a graph that replays them, None where they cannot be captured."""
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for number in range(count):
                call(number)
    except Exception:  # noqa: BLE001 - whatever a kernel does that no graph may
        wait()
        return None
    return graph


def timed(call: Call, seconds: float = 0.2, *, graph: bool = True, fewest: int = 5) -> Entry:
    """Seconds of a call: blocks of some 10 ms, for ``seconds``, and for half as long before to warm up."""
    if SMALL:
        seconds, fewest = 0.004, 3
    for number in range(3):
        call(number)
    wait()
    start = time.perf_counter()
    call(0)
    wait()
    count = max(1, min(256, round(0.01 / max(time.perf_counter() - start, 1e-6))))
    made = graph_of(call, count) if CUDA and graph else None

    def block() -> None:
        if made is not None:
            made.replay()
            return
        for number in range(count):
            call(number)

    ends, found = time.perf_counter() + seconds / 2, list[float]()
    while time.perf_counter() < ends:
        block()
        wait()
    ends = time.perf_counter() + seconds
    while len(found) < fewest or time.perf_counter() < ends:
        found.append(_one_block(block) / count)
    return spread(found) | {"graph": made is not None}


def _one_block(block: Callable[[], None]) -> float:
    if not CUDA:
        start = time.perf_counter()
        block()
        return time.perf_counter() - start
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun.record()
    block()
    ended.record()
    wait()
    return float(begun.elapsed_time(ended)) / 1e3


def normal(*shape: int, dtype: torch.dtype = BF16, grad: bool = False) -> torch.Tensor:
    """Random values: products of zeros run faster."""
    return torch.randn(*shape, device=DEVICE, dtype=dtype, requires_grad=grad)


def rotated(make: Callable[[], Any], size: float) -> Callable[[int], Any]:
    """Inputs of ``size`` bytes made often enough that caches cannot hold them; picked by number."""
    made = [make() for _ in range(max(1, min(64, math.ceil(CACHE / size))))]
    return lambda number: made[number % len(made)]


def attempt(entry: Entry, measure: Callable[[], Entry]) -> Entry:
    """The entry with what was measured, or with the reason why it was not."""
    try:
        return entry | measure()
    except Exception as error:  # noqa: BLE001 - a machine that lacks a kernel says so in many ways
        return entry | {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    finally:
        if CUDA:
            torch.cuda.empty_cache()


def rate(found: Entry, flop: float) -> Entry:
    """Seconds with the rate that follows, FLOP/s."""
    return found | {"flops": float(f"{flop / found['seconds']:.4g}")}


def moved(found: Entry, size: float) -> Entry:
    """Seconds with the rate that follows, bytes/s."""
    return found | {"bytes_per_second": float(f"{size / found['seconds']:.4g}")}
