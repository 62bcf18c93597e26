"""Warm calls of ``plan()``: 175B-class questions asked again and again in one process, in processor and wall time.

The first call imports and lays out the lattice; later ones find it kept. The ratios hardly depend on the machine.
"""

from __future__ import annotations

import statistics
import time

from planner import PlanRequest, plan

QUESTIONS = [("175b", 1024), ("175b", 12288), ("llama3.1-405b", 16384), ("llama3-70b", 512)]
CALLS = 10


def timed(request: PlanRequest) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    plan(request)
    return 1e3 * (time.process_time() - cpu), 1e3 * (time.perf_counter() - wall)


def main() -> None:
    print(f"{'':24s} {'first':>10s} {'warm cpu':>10s} {'warm wall':>10s} {'reasons':>10s}  first / warm")
    for model, gpus in QUESTIONS:
        first = timed(PlanRequest(model=model, gpus=gpus, reasons=False))
        warm = [timed(PlanRequest(model=model, gpus=gpus, reasons=False, tokens=10**9 + n)) for n in range(CALLS)]
        full = timed(PlanRequest(model=model, gpus=gpus))
        cpu, wall = (statistics.median(column) for column in zip(*warm, strict=True))
        row = f"{first[0]:7.0f} ms {cpu:7.0f} ms {wall:7.0f} ms {full[0]:7.0f} ms"
        print(f"{model:14s} {gpus:9,d} {row}  {first[0] / cpu:6.1f}")


if __name__ == "__main__":
    main()
