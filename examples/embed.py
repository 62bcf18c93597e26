"""Which cluster should this model train on? Ask the planner about each, from Python.

python examples/embed.py llama3-8b 64 dgx-a100-80gb dgx-h100 dgx-h200
"""

from __future__ import annotations

import sys

from planner import MeshwrightError, Plan, PlanRequest, plan


def ask(model: str, gpus: int, cluster: str) -> Plan | str:
    """The best plan on one cluster, or why there is none."""
    try:
        answer = plan(PlanRequest(model=model, gpus=gpus, cluster=cluster, time_limit=20.0))
    except MeshwrightError as error:
        return str(error)
    return answer if answer.status != "infeasible" else answer.rejected[-1].example


def line(cluster: str, answer: Plan | str) -> str:
    """One cluster's row of the table."""
    if isinstance(answer, str) or answer.strategy is None or answer.prediction is None:
        return f"{cluster:16s} {answer if isinstance(answer, str) else answer.status}"
    at, said = answer.strategy, answer.prediction
    degrees = f"tp {at.tp} cp {at.cp} pp {at.pp} dp {at.dp}"
    money = "price unknown" if said.cost_dollars is None else f"{said.cost_dollars:12,.0f} $"
    return f"{cluster:16s} {degrees:24s} {said.mfu:6.1%} MFU {said.training_days:8.1f} days {money}"


def main(model: str, gpus: int, clusters: list[str]) -> None:
    """Print a row per cluster, then the fastest of them."""
    answers = {cluster: ask(model, gpus, cluster) for cluster in clusters}
    for cluster, answer in answers.items():
        print(line(cluster, answer))
    days = {
        cluster: answer.prediction.training_days
        for cluster, answer in answers.items()
        if isinstance(answer, Plan) and answer.prediction is not None
    }
    if not days:
        sys.exit(3)
    print(f"fastest: {min(days, key=lambda cluster: days[cluster])}")


if __name__ == "__main__":
    if len(sys.argv) < 4 or not sys.argv[2].isdigit():
        sys.exit("usage: embed.py MODEL GPUS CLUSTER...")
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
