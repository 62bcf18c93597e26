"""How long plans over several node groups take to prove: instance, stages, branches, solves, seconds, gap.

    python benchmarks/mixed.py [--time-limit 30]

Every instance is searched as `plan` searches it; where stages are given, they are pinned, so that the search has to
prove the split of the layers over that many stages on two or three kinds of machines.
"""

import argparse
import time
from dataclasses import replace

from costmodels.model.catalogue import model
from costmodels.node_groups import Mixed
from costmodels.scenario import Scenario
from costmodels.stack.stack import stack
from hardware.catalogue import cluster
from hardware.records import Cluster
from planner.request.batches import default_batch
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.search.best_first import search
from planner.space.mixed import build

INSTANCES = (
    ("llama2-7b", (("dgx-a100-80gb", 2), ("dgx-h100", 2)), {}),
    ("llama2-70b", (("dgx-a100-80gb", 8), ("dgx-h100", 8)), {}),
    ("llama2-70b", (("dgx-a100-80gb", 8), ("dgx-h100", 8)), {"pp": 8}),
    ("llama2-70b", (("dgx-a100-80gb", 8), ("dgx-h100", 8)), {"pp": 16}),
    ("llama2-70b", (("dgx-a100-80gb", 8), ("dgx-h100", 8)), {"pp": 32}),
    ("llama2-70b", (("dgx-a100-40gb", 8), ("dgx-h100", 8)), {}),
    ("llama2-70b", (("dgx-a100-40gb", 8), ("dgx-h100", 8)), {"pp": 16, "tp": 4}),
    ("llama2-70b", (("v100-dgx2", 4), ("dgx-a100-40gb", 8), ("dgx-h100", 8)), {}),
    ("llama3-405b", (("dgx-h100", 32), ("dgx-b200", 32)), {}),
    ("mixtral-8x7b", (("dgx-a100-80gb", 8), ("dgx-h100", 8)), {}),
    ("175b", (("dgx-a100-80gb", 128), ("dgx-h100", 128)), {}),
)
"""Model, machines with their nodes, pins."""


def mixed(name, machines):
    """The model on so many nodes of each machine, Megatron-Core, the usual batch."""
    groups = []
    for machine, nodes in machines:
        whole = cluster(machine).groups[0]
        groups.append(whole.model_copy(update={"name": machine, "nodes": nodes}))
    joined = Cluster(name="mixed", title="", groups=tuple(groups), sources={})
    what = model(name)
    precision = "bf16" if all("bf16" in group.accelerator.peak for group in groups) else "fp16"
    batch = default_batch(joined.gpus, what.seq_length)
    first = Scenario(what, groups[0], stack("megatron-core"), groups[0].gpus, what.seq_length, batch, precision)
    return Mixed(joined, tuple(replace(first, group=group, gpus=group.gpus) for group in groups))


def measure(name, machines, pins, *, one_width, budget):
    """One line of the table."""
    question = mixed(name, machines)
    start = time.perf_counter()
    space = build(question, parse_pins(pins), one_width=one_width)
    outcome = search(space, question, budget=budget)
    seconds = time.perf_counter() - start
    where = " + ".join(f"{one.gpus} {one.group.accelerator.name}" for one in question.scenarios)
    pinned = " ".join(f"{axis}={value}" for axis, value in pins.items())
    best = outcome.best
    stages = int(best.row.pp[0]) if best else 0
    iteration = best.iteration if best else float("nan")
    gap = 0.0 if outcome.proved else 1 - outcome.lower_bound / iteration
    label = f"{name} on {where} {pinned}".strip() + ("" if one_width else ", any width")
    print(f"{label:<78}{stages:>7}{outcome.priced:>10,}{outcome.solves:>8}{seconds:>9.2f}{gap:>8.2%}{iteration:>11.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time-limit", type=float, default=30.0)
    asked = parser.parse_args()
    measured = ("stages", "branches", "solves", "seconds", "gap", "iteration")
    print(f"{'instance':<78}" + "".join(f"{n:>{w}}" for n, w in zip(measured, (7, 10, 8, 9, 8, 11), strict=True)))
    for name, machines, pins in INSTANCES:
        for one_width in (True, False):
            measure(name, machines, pins, one_width=one_width, budget=Budget(asked.time_limit))


if __name__ == "__main__":
    main()
