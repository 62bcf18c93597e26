"""A second opinion on a finished plan, with no closed form and no solver: event simulation and plain arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.groups import Mixed, MixedRows, mixed_seconds
from costmodels.layout.split import Assignment
from costmodels.names import SCHEDULE_NAMES
from costmodels.pipeline.schedules import FILLING, SCHEDULES
from costmodels.pricing import Price
from costmodels.scenario import Scenario
from costmodels.stack.stack import Stack
from costmodels.strategy import Floats, Strategies
from hardware.errors import MeshwrightError
from planner.verify.simulate import simulate

LARGEST_SIMULATION = 40_000
"""Passes that are simulated at most; beyond it the closed form stands alone, and the plan says so."""


class Inconsistent(MeshwrightError):
    """A plan that contradicts itself: a defect of the planner, never of the request."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Pipeline seconds by simulation, and by the closed form for the same stages."""

    simulated: float | None
    closed_form: float


def verify(
    row: Strategies,
    assignment: Assignment,
    quote: Price,
    scenario: Scenario,
    *,
    largest: int = LARGEST_SIMULATION,
) -> Verdict:
    """Check degrees, batch, layers and memory, and simulate the schedule unless it has more than ``largest`` passes.

    Raises:
        Inconsistent: something does not add up.
    """
    at = row.row(0)
    degrees = at["tp"] * at["cp"] * at["pp"] * at["dp"]
    _must(degrees == scenario.gpus, f"degrees multiply to {degrees}, not {scenario.gpus} GPUs")
    batch = at["micro_batch_size"] * at["num_microbatches"] * at["dp"]
    _must(batch == scenario.global_batch_size, f"micro-batches make {batch} sequences")
    layers = int(assignment.layers.sum())
    _must(layers == scenario.model.num_layers, f"stages hold {layers} of {scenario.model.num_layers} layers")
    _must(
        bool((assignment.recomputed <= assignment.layers).all()),
        "a stage recomputes more layers than it holds",
    )
    limit, peak = scenario.group.accelerator.usable_memory, float(np.max(quote.footprint.total))
    _must(peak <= limit * (1 + 1e-9), f"a stage needs {peak:.4g} bytes of {limit:.4g}")
    return _simulated(row, quote, scenario.stack, largest=largest)


def verify_mixed(row: MixedRows, assignment: Assignment, quote: Price, mixed: Mixed) -> Verdict:
    """Check a plan over several node groups: every group's GPUs, batch and memory.

    Raises:
        Inconsistent: something does not add up.
    """
    batches = set()
    for group, scenario, stages in zip(row.groups, mixed.scenarios, row.stages[0].tolist(), strict=True):
        at, name = group.row(0), scenario.group.name
        used = at["tp"] * at["cp"] * at["dp"] * stages
        _must(used == scenario.gpus, f"{stages} stages take {used} of {scenario.gpus} GPUs of {name}")
        batches.add(at["micro_batch_size"] * at["num_microbatches"] * at["dp"])
    model, batch = mixed.scenarios[0].model, mixed.scenarios[0].global_batch_size
    _must(batches == {batch}, f"micro-batches make {sorted(batches)} sequences, not {batch}")
    _must(int(assignment.layers.sum()) == model.num_layers, f"stages hold {assignment.layers.sum()} layers")
    _must(bool((assignment.recomputed <= assignment.layers).all()), "a stage recomputes more layers than it holds")
    at_stage = row.group_at()[0]
    limits = np.array([one.group.accelerator.usable_memory for one in mixed.scenarios])[at_stage]
    _must(bool((quote.footprint.total <= limits * (1 + 1e-9)).all()), "a stage needs more than its device has")
    prices = mixed_seconds(row, mixed).groups
    shares = np.array([float(one.forward[0] / (one.forward[0] + one.backward[0])) for one in prices])
    return _simulated(row.groups[0], quote, mixed.scenarios[0].stack, shares[at_stage])


def _simulated(
    row: Strategies,
    quote: Price,
    stack: Stack,
    forwards: Floats | None = None,
    *,
    largest: int = LARGEST_SIMULATION,
) -> Verdict:
    """``forwards``: the share of the forward pass in every stage's seconds, where stages differ."""
    p, m, v = int(row.pp[0]), int(row.num_microbatches[0]), int(row.vpp[0])
    stages = quote.stage_seconds
    closed = m * float(stages.max()) + float(stages.sum() - stages.max()) * float(quote.seconds.bubble[0])
    if 2 * p * m * v > largest:
        return Verdict(None, closed)
    whole = float(quote.seconds.forward[0] + quote.seconds.backward[0])
    forward = (forwards if forwards is not None else np.full(p, float(quote.seconds.forward[0]) / whole))[:, None]
    chunks = np.repeat(stages[:, None] / v, v, axis=1)
    schedule = SCHEDULES[SCHEDULE_NAMES[int(row.schedule[0])]]
    share = float(quote.seconds.weight[0]) / whole if schedule.name in FILLING else 0.0
    run = simulate(
        schedule,
        p=p,
        m=m,
        v=v,
        forward=chunks * forward,
        backward=chunks * (1 - forward - share),
        weight=chunks * share if share else None,
    )
    return Verdict(float(run.period if stack.pipeline.post_validation else run.makespan), closed)


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise Inconsistent(f"the plan contradicts itself: {what}")
