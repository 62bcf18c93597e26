"""From priced rows to stage problems: the same numbers for the bound of many rows and the solver of one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodels.by_kind import is_folded
from costmodels.iteration import RowSeconds, compose, stage_extras
from costmodels.memory import RowBytes, in_flight, memory_limit
from costmodels.pricing import Assignment
from costmodels.scenario import Scenario
from costmodels.split import slice_layers
from costmodels.strategy import Bools, Floats, Recompute, Strategies
from planner import chain
from planner.chain import SliceCosts
from planner.chain_bounds import chain_lower_bound
from planner.stage_bounds import RECOMPUTE_MODES, StageBound, StageRows, stage_lower_bound
from planner.stage_tables import stage_table
from planner.stages import StageProblem, StageSolution

LEAST_BUBBLE = 1e-9
"""A schedule without bubble still has one this small, so that its inverse is a number."""
ROUNDING = 1e-12
"""Room for sums in another order: what fits to the last byte fits the solver too."""

MODES = {Recompute.NONE: "none", Recompute.SELECTIVE: "none", Recompute.FULL: "all", Recompute.PARTIAL: "free"}
"""What each kind of recomputation lets a stage do, one of ``RECOMPUTE_MODES``."""


def problem_of(one: Strategies, seconds: RowSeconds, memory: RowBytes, scenario: Scenario) -> StageProblem:
    """The stage problem of a single row."""
    pp, step = int(one.pp[0]), _slice(one, scenario)
    stages = np.arange(pp)
    held = in_flight(one.take(np.zeros(pp, dtype=np.int64)), stages)
    return StageProblem(
        num_layers=scenario.model.num_layers // step,
        num_stages=pp,
        vpp=float(1.0 / max(seconds.bubble[0], LEAST_BUBBLE)),
        num_microbatches=int(one.num_microbatches[0]),
        layer_seconds=step * float(seconds.layer[0]),
        recompute_seconds=step * float(seconds.recompute[0]),
        extra_seconds=tuple(stage_extras(seconds, 0, pp).tolist()),
        memory_limit=memory_limit(scenario) * (1.0 + ROUNDING),
        fixed_bytes=tuple(_fixed(memory, held[None, :], stages, np.array([[pp]]))[0].tolist()),
        layer_bytes=step * float(memory.layer_state[0]),
        activation_bytes=tuple((step * held * memory.stored[0]).tolist()),
        checkpoint_bytes=tuple((step * held * memory.checkpoint[0]).tolist()),
        recompute=MODES[Recompute(int(one.recompute[0]))],  # type: ignore[arg-type]
        uneven=scenario.stack.uneven_stages,
        working_bytes=float(memory.working[0]),
        slices=_slice_costs(one, seconds, memory, held),
    )


def _slice_costs(one: Strategies, seconds: RowSeconds, memory: RowBytes, held: Floats) -> SliceCosts | None:
    """What each slice of a single row costs, where slices differ."""
    if seconds.kinds is None or memory.kinds is None:
        return None
    counts = seconds.kinds.depth.slices(int(one.vpp[0]), folded=bool(is_folded(one)[0]))
    return SliceCosts(
        seconds=(counts @ seconds.kinds.each("layer")[:, 0])[None, :],
        recompute_seconds=(counts @ seconds.kinds.each("recompute")[:, 0])[None, :],
        state_bytes=(counts @ memory.kind_states[:, 0])[None, :],
        activation_bytes=held[:, None] * (counts @ memory.kinds.each("stored")[:, 0]),
        checkpoint_bytes=held[:, None] * (counts.sum(axis=1) * memory.checkpoint[0]),
    )


def _slice(one: Strategies, scenario: Scenario) -> int:
    return int(slice_layers(scenario.model.num_layers, one.vpp)[0])


def assignment_of(solution: StageSolution, one: Strategies, scenario: Scenario) -> Assignment:
    """The solver's slices as layers."""
    step = _slice(one, scenario)
    return Assignment(step * np.array(solution.layers, np.int64), step * np.array(solution.recompute_layers, np.int64))


def slices_of(assignment: Assignment, one: Strategies, scenario: Scenario) -> list[int]:
    """Layers as the solver counts them."""
    return [int(n) for n in assignment.layers // _slice(one, scenario)]


def _fixed(memory: RowBytes, held: Floats, stages: NDArray[np.int64], pp: NDArray[np.int64]) -> Floats:
    """Bytes beside the layers, (N, P): embedding first, head and logits last, shared parts everywhere."""
    first, last = stages == 0, stages == pp - 1
    return (
        memory.everywhere[:, None]
        + first * (memory.first[:, None] + held * memory.embedding_activation[:, None])
        + last * memory.last[:, None]
    )


def stage_bounds(rows: Strategies, seconds: RowSeconds, memory: RowBytes, scenario: Scenario) -> tuple[Floats, Bools]:
    """(seconds of the iteration that no split of a row can beat, whether any split fits memory), arrays (N,)."""
    if seconds.kinds is not None:
        bound = chain_lower_bound(rows, seconds, memory, scenario)
        return np.where(bound.feasible, compose(rows, seconds, *_finite(bound)), np.inf), bound.feasible
    n, width = len(rows), int(rows.pp.max(initial=1))
    step = slice_layers(scenario.model.num_layers, rows.vpp)
    stages = np.arange(width)
    spread = rows.take(np.repeat(np.arange(n), width))
    held = in_flight(spread, np.tile(stages, n)).reshape(n, width)
    pp = rows.pp[:, None]
    extra = np.where(pp > 1, seconds.hop[:, None], 0.0) + (seconds.host + seconds.spread)[:, None]
    extra = extra + (stages == 0) * seconds.embedding[:, None] + (stages == pp - 1) * seconds.head[:, None]
    modes = np.array([RECOMPUTE_MODES.index(MODES[kind]) for kind in Recompute])
    bound = stage_lower_bound(
        StageRows(
            num_layers=scenario.model.num_layers // step,
            num_stages=rows.pp,
            vpp=1.0 / np.maximum(seconds.bubble, LEAST_BUBBLE),
            num_microbatches=rows.num_microbatches,
            layer_seconds=step * seconds.layer,
            recompute_seconds=step * seconds.recompute,
            extra_seconds=extra,
            memory_limit=memory_limit(scenario) * (1.0 + ROUNDING),
            fixed_bytes=_fixed(memory, held, stages, pp),
            layer_bytes=step * memory.layer_state,
            activation_bytes=held * (step * memory.stored)[:, None],
            checkpoint_bytes=held * (step * memory.checkpoint)[:, None],
            recompute=modes[rows.recompute],
            uneven=scenario.stack.uneven_stages,
            working_bytes=memory.working,
        )
    )
    return np.where(bound.feasible, compose(rows, seconds, *_finite(bound)), np.inf), bound.feasible


def _finite(bound: StageBound) -> tuple[Floats, Floats]:
    """Slowest stage and all stages, 0 where nothing fits."""
    return np.where(bound.feasible, bound.slowest, 0.0), np.where(bound.feasible, bound.total, 0.0)


def fewest_recomputed(problem: StageProblem, slices: list[int]) -> NDArray[np.int64]:
    """The fewest recomputed slices of each stage that memory allows, all of them where none fit, shape (p,)."""
    if problem.slices is None:
        fewest = stage_table(problem).recomputed[slices, np.arange(len(slices))]
    else:
        fewest = chain.fewest_recomputed(problem, slices)
    return np.where(fewest < 0, slices, fewest)
