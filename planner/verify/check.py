"""A second opinion on a finished plan, with no closed form and no solver: event simulation and plain arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.layout.split import Assignment
from costmodels.names import SCHEDULE_NAMES
from costmodels.node_groups import AnyScenario, Mixed, MixedStrategies, mixed_seconds, parts_of, stage_limits
from costmodels.pipeline.schedules import FILLING, SCHEDULES
from costmodels.pricing import Price
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
    priced: Price,
    question: AnyScenario,
    *,
    largest: int = LARGEST_SIMULATION,
) -> Verdict:
    """Check degrees, batch, layers and memory, and simulate the schedule unless it has more than ``largest`` passes.

    Raises:
        Inconsistent: something does not add up.
    """
    parts = parts_of(question)
    model, batch = parts[0].model, parts[0].global_batch_size
    groups, stages = (row.groups, row.stages[0].tolist()) if isinstance(row, MixedStrategies) else ((row,), [row.pp[0]])
    for group, scenario, count in zip(groups, parts, stages, strict=True):
        at = group.row(0)
        used, made = at["tp"] * at["cp"] * at["dp"] * count, at["micro_batch_size"] * at["num_microbatches"] * at["dp"]
        _must(used == scenario.gpus, f"{count} stages take {used} of {scenario.gpus} GPUs of {scenario.group.name}")
        _must(made == batch, f"micro-batches make {made} sequences, not {batch}")
    layers = int(assignment.layers.sum())
    _must(layers == model.num_layers, f"stages hold {layers} of {model.num_layers} layers")
    _must(bool((assignment.recomputed <= assignment.layers).all()), "a stage recomputes more layers than it holds")
    needed, limits = priced.footprint.total, stage_limits(row, question)
    worst = int(np.argmax(needed / limits))
    fits = bool(needed[worst] <= limits[worst] * (1 + 1e-9))
    _must(fits, f"stage {worst} needs {needed[worst]:.4g} bytes of {limits[worst]:.4g}")
    return _simulated(row, priced, parts[0].stack, _forward_shares(row, question), largest=largest)


def _forward_shares(row: Strategies, question: AnyScenario) -> Floats | None:
    """Share of the forward pass in the seconds of every stage, on the group that it stands on; None on one group."""
    if not (isinstance(row, MixedStrategies) and isinstance(question, Mixed)):
        return None
    prices = mixed_seconds(row, question).groups
    shares = np.array([float(one.forward[0] / (one.forward[0] + one.backward[0])) for one in prices])
    return shares[row.group_at()[0]]


def _simulated(row: Strategies, priced: Price, stack: Stack, forwards: Floats | None, *, largest: int) -> Verdict:
    """``forwards``: the share of the forward pass in every stage's seconds, where stages differ."""
    p, m, v = int(row.pp[0]), int(row.num_microbatches[0]), int(row.vpp[0])
    stages, seconds = priced.stage_seconds, priced.seconds
    closed = m * float(stages.max()) + float(stages.sum() - stages.max()) * float(seconds.bubble[0])
    if 2 * p * m * v > largest:
        return Verdict(None, closed)
    whole = float(seconds.forward[0] + seconds.backward[0])
    forward = (forwards if forwards is not None else np.full(p, float(seconds.forward[0]) / whole))[:, None]
    chunks = np.repeat(stages[:, None] / v, v, axis=1)
    schedule = SCHEDULES[SCHEDULE_NAMES[int(row.schedule[0])]]
    share = float(seconds.weight[0]) / whole if schedule.name in FILLING else 0.0
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
