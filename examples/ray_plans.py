"""Plans many questions at once on a Ray cluster, one task each: python examples/ray_plans.py llama3-8b 16 32 64"""

from __future__ import annotations

import sys

import ray

from planner import MeshwrightError, PlanRequest, plan


@ray.remote(num_cpus=1)
def planned(model: str, gpus: int) -> tuple[int, str]:
    """One plan in a line; requests and plans pickle, but a line is all that is needed here."""
    try:
        answer = plan(PlanRequest(model=model, gpus=gpus, reasons=False))
    except MeshwrightError as error:
        return gpus, str(error)
    if answer.strategy is None or answer.prediction is None:
        return gpus, f"infeasible: {answer.rejected[0].example}"
    at = answer.strategy
    return gpus, f"tp {at.tp} pp {at.pp} dp {at.dp}: {answer.prediction.iteration_seconds:.2f} s per iteration"


def main(model: str, counts: list[int]) -> None:
    """Every count at once, told in order."""
    ray.init()
    for gpus, line in ray.get([planned.remote(model, gpus) for gpus in counts]):
        print(f"{gpus:6d} GPUs  {line}")


if __name__ == "__main__":
    main(sys.argv[1], [int(text) for text in sys.argv[2:]])
