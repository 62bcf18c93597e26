"""Seconds to a proved plan for large models with experts, and for the largest dense run published.

Prints, for every question, the lattice, the feasible strategies, the seconds of the search and how it ended.

    python benchmarks/moe.py
"""

from __future__ import annotations

import sys
import time

from planner import PlanRequest, plan

QUESTIONS = (
    ("deepseek-v3", "dgx-h800", 2048, None),
    ("deepseek-v3", "dgx-h800", 2048, 15360),
    ("deepseek-v3", "gb200-nvl72", 2048, 16384),
    ("qwen3-235b-a22b", "dgx-h100", 2048, 8192),
    ("qwen3-235b-a22b", "dgx-h100", 4096, 8192),
    ("qwen3-235b-a22b", "dgx-h100", 8192, 16384),
    ("qwen3-235b-a22b", "dgx-h100", 16384, 16384),
    ("kimi-k2", "dgx-h100", 16384, 16384),
    ("llama3.1-405b", "dgx-h100", 16384, 2048),
)
"""Model, machines, GPUs, sequences per iteration (None: the usual batch)."""


def main() -> int:
    """Plan every question; 1 where one is not proved within a minute."""
    failed = False
    for model, cluster, gpus, batch in QUESTIONS:
        begun = time.perf_counter()
        answer = plan(PlanRequest(model=model, cluster=cluster, gpus=gpus, global_batch_size=batch))
        seconds = time.perf_counter() - begun
        proof = answer.proof
        asked = f"{model:16s} {gpus:6d} x {cluster:11s} batch {answer.request['global_batch_size']:6d}"
        lattice = f"{proof.candidates:12,d} points {proof.feasible:7,d} feasible"
        print(f"{asked} {lattice} {proof.wall_seconds:6.2f} s search {seconds:6.2f} s in all  {answer.status}")
        failed |= answer.status != "optimal"
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
