"""From priced rows to stage problems: the same numbers for the bound of many rows and the solver of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from costmodels.arrays import distinct_values
from costmodels.iteration import RowSeconds, compose, stage_extras
from costmodels.layout.layers_by_kind import kind_slices
from costmodels.layout.split import Assignment, end_places, even_stages, slice_layers
from costmodels.layout.stage_contents import copies, ends, folded, in_flight, joined, stages_in_flight
from costmodels.memory.limits import memory_limit
from costmodels.memory.rows import RowBytes
from costmodels.model.model import Model
from costmodels.names import Recompute
from costmodels.node_groups import Mixed, MixedBytes, MixedSeconds, MixedStrategies
from costmodels.pricing import halved
from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Floats, Ints, Strategies
from planner.stages import chain
from planner.stages.bounds import RECOMPUTE_MODES, StageBound, StageRows, stage_lower_bound
from planner.stages.chain_bounds import chain_lower_bound
from planner.stages.problem import SliceCosts, StageProblem
from planner.stages.solver import StageSolution
from planner.stages.tables import stage_table

LEAST_BUBBLE = 1e-9
"""A schedule without bubble still has one this small, so that its inverse is a number."""
LEAST_STAGES = 3
"""Stages from which two without a layer leave one that has some."""
ROUNDING = 1e-12
"""Room for sums in another order: what fits to the last byte fits the solver too."""
ROOM = 1e-9
"""Relative room for rounding where a row is given up."""

MODES = {Recompute.NONE: "none", Recompute.SELECTIVE: "none", Recompute.FULL: "all", Recompute.PARTIAL: "free"}
"""The one of ``RECOMPUTE_MODES`` that each kind of recomputation is."""


def problem_of(one: Strategies, seconds: RowSeconds, memory: RowBytes, scenario: Scenario) -> StageProblem:
    """The stage problem of a single row."""
    slices = _slice_costs(one, seconds, memory)
    own = _stage_costs(one, seconds, memory) if slices else {}
    problem = single_problem(stage_problems(one, seconds, memory, scenario))
    return replace(problem, alike=one_number(scenario), slices=slices, **own)  # type: ignore[arg-type]


def single_problem(rows: StageRows) -> StageProblem:
    """The first of some stage problems; what is by stage in them is by stage in it."""
    given = {name: np.asarray(getattr(rows, name)) for name in StageRows.__dataclass_fields__}
    stages = int(np.ravel(given["num_stages"])[0])
    by_stage = {name: tuple(x[0, :stages].tolist()) for name, x in given.items() if x.ndim > 1}
    numbers = {name: x.ravel()[0].item() for name, x in given.items() if name not in by_stage}
    chosen = {"recompute": RECOMPUTE_MODES[numbers["recompute"]]}
    return StageProblem(**numbers | by_stage | chosen)


def _stage_costs(one: Strategies, seconds: RowSeconds, memory: RowBytes) -> dict[str, tuple[float, ...]]:
    """Costs of stages besides those of slices that differ: such slices are empty where an end takes a layer's place."""
    stages = np.arange(int(one.pp[0]))[None, :]
    fixed = _fixed(one, memory, _in_flight(one, memory, stages.shape[1]), stages)[0]
    return {
        "extra_seconds": tuple(stage_extras(one, seconds, stages)[0].tolist()),
        "fixed_bytes": tuple(fixed.tolist()),
    }


def one_number(scenario: Scenario) -> bool:
    """Whether the framework asked for recomputes as many layers of every stage."""
    from planner.frameworks.registry import FRAMEWORKS

    return bool(scenario.framework) and FRAMEWORKS[scenario.framework].recompute == "alike"


def _slice_costs(one: Strategies, seconds: RowSeconds, memory: RowBytes) -> SliceCosts | None:
    """Costs of each slice of a single row, where slices differ; stages that mirror each other take average ones."""
    if seconds.kinds is None or memory.kinds is None or copies(one)[0] > 1:
        return None
    pp = int(one.pp[0])
    held = in_flight(one, np.arange(pp)[None, :])[0] + memory.queued[0]
    counts = kind_slices(seconds.kinds.depth, int(one.vpp[0]), folded=bool(folded(one)[0]))
    return SliceCosts(
        seconds=(counts @ seconds.kinds.each("layer")[:, 0])[None, :],
        recompute_seconds=(counts @ seconds.kinds.each("recompute")[:, 0])[None, :],
        state_bytes=(counts @ memory.kind_states[:, 0])[None, :],
        activation_bytes=held[:, None] * (counts @ memory.kinds.each("stored")[:, 0]),
        checkpoint_bytes=held[:, None] * (counts.sum(axis=1) * memory.checkpoint[0]),
    )


def _slice(one: Strategies, scenario: Scenario) -> int:
    return int(slice_layers(scenario.model.num_layers, one)[0])


def _taken(rows: Strategies, scenario: Scenario, width: int) -> Ints:
    """Layers' places on every stage that the embedding and the head take, (N, P)."""
    embedding, head = end_places(scenario.model.num_layers, rows)
    stages = np.arange(width)
    return (stages == 0) * embedding[:, None] + (stages == rows.pp[:, None] - 1) * head[:, None]


def assignment_of(solution: StageSolution, one: Strategies, scenario: Scenario) -> Assignment:
    """The solver's slices as layers of every stage, or of every piece where stages hold two."""
    step = _slice(one, scenario)
    layers, again = (step * np.array(held, np.int64) for held in (solution.layers, solution.recompute_layers))
    taken = _taken(one, scenario, len(layers))[0]
    layers, again = layers - taken, np.maximum(again - taken, 0)
    return Assignment(halved(layers), halved(again)) if copies(one)[0] > 1 else Assignment(layers, again)


def slices_of(assignment: Assignment, one: Strategies, scenario: Scenario) -> list[int]:
    """Layers as the solver counts them."""
    layers = assignment.layers
    if copies(one)[0] > 1:
        layers = (layers + layers[::-1])[: len(layers) // 2]
    return [int(n) for n in (layers + _taken(one, scenario, len(layers))[0]) // _slice(one, scenario)]


def whole_pipeline(solution: StageSolution, one: Strategies) -> tuple[Floats, Floats]:
    """(slowest stage, all stages) seconds of a solution, arrays (1,): of mirrored stages it speaks of half."""
    return np.array([solution.slowest_seconds]), copies(one) * solution.total_seconds


def stage_bounds(
    rows: Strategies, seconds: RowSeconds, memory: RowBytes, scenario: Scenario, below: float = np.inf
) -> tuple[Floats, Bools]:
    """(seconds of the iteration that no split of a row can beat, whether any split fits memory), arrays (N,).

    A row that is seen not to take less than ``below`` seconds may count as one that does not fit.
    """
    bound = _split_bounds(rows, seconds, memory, scenario, below)
    slowest = np.where(bound.feasible, bound.slowest, 0.0)
    total = np.where(bound.feasible, bound.total, 0.0) * copies(rows)
    return np.where(bound.feasible, compose(rows, seconds, slowest, total), np.inf), bound.feasible


def least_peaks(rows: Strategies, memory: RowBytes, scenario: Scenario) -> Floats:
    """Bytes that some stage of any split allocates at least: the mean stage's, (N,).

    Every layer counts as if it were held as briefly as on any stage. It settles most rows that fit under no split at a
    fraction of the price of ``stage_bounds``.
    """
    twice, held = copies(rows), _least_in_flight(rows) + memory.queued
    free = np.where(rows.recompute == Recompute.PARTIAL, np.minimum(memory.checkpoint, memory.stored), memory.stored)
    kept = np.where(rows.recompute == Recompute.FULL, memory.checkpoint, free)
    layers = scenario.model.num_layers * (memory.layer_state + held * kept / twice)
    return memory.everywhere + (layers + memory.first + memory.last) * twice / rows.pp


def _split_bounds(
    rows: Strategies, seconds: RowSeconds, memory: RowBytes, scenario: Scenario, below: float
) -> StageBound:
    """Bounds of every row's stage problem: of slices that differ, or of average ones where stages mirror each other."""
    mirrored = np.ones(len(rows), dtype=np.bool_) if seconds.kinds is None else copies(rows) > 1
    if mirrored.all():
        return stage_lower_bound(stage_problems(rows, seconds, memory, scenario))
    bound = StageBound(np.empty(len(rows)), np.empty(len(rows)), np.empty(len(rows), dtype=np.bool_))
    for alike, part in ((True, np.flatnonzero(mirrored)), (False, np.flatnonzero(~mirrored))):
        if not len(part):
            continue
        some = rows.take(part), seconds.take(part), memory.take(part)
        if alike:
            found = stage_lower_bound(stage_problems(*some, scenario))
        else:
            found = chain_lower_bound(*some, scenario, _fewest_slices(some[0], scenario), below)
        for whole, values in zip(bound, found, strict=True):
            whole[part] = values
    return bound


def stage_problems(rows: Strategies, seconds: RowSeconds, memory: RowBytes, scenario: Scenario) -> StageRows:
    """The stage problems of all rows, layers taken as average ones.

    Where stages mirror each other (``copies`` c = 2), the problem is that of p / c stages with two pieces each, which
    a micro-batch passes half the time. From T, the sum over those, m M + (c T - M) s = (m + (c - 1) s) M + (T - M) c s.
    """
    n, width = len(rows), int(rows.pp.max(initial=1))
    step, twice = slice_layers(scenario.model.num_layers, rows), copies(rows)
    stages, held = np.broadcast_to(np.arange(width), (n, width)), _in_flight(rows, memory, width)
    taken = _taken(rows, scenario, width)
    share = np.maximum(seconds.bubble, LEAST_BUBBLE)
    modes = np.array([RECOMPUTE_MODES.index(MODES[kind]) for kind in Recompute])
    return StageRows(
        num_layers=(scenario.model.num_layers + taken.sum(axis=1)) // step,
        num_stages=(rows.pp / twice).astype(np.int64),
        vpp=1.0 / (twice * share),
        num_microbatches=rows.num_microbatches + (twice - 1.0) * share,
        layer_seconds=step * seconds.layer / twice,
        recompute_seconds=step * seconds.recompute / twice,
        extra_seconds=stage_extras(rows, seconds, stages) - taken * _unit(rows, seconds)[:, None],
        memory_limit=memory_limit(scenario, rows) * (1.0 + ROUNDING),
        fixed_bytes=_fixed(rows, memory, held, stages) - taken * _kept(rows, memory, held),
        layer_bytes=step * memory.layer_state,
        activation_bytes=held * (step * memory.stored / twice)[:, None],
        checkpoint_bytes=held * (step * memory.checkpoint / twice)[:, None],
        recompute=modes[rows.recompute],
        uneven=scenario.stack.supports.uneven_stages or framework_split(scenario) is not None,
        working_bytes=memory.working_at(ends(rows, stages)[1]),
        fewest=_fewest_slices(rows, scenario) * twice.astype(np.int64)[:, None],
    )


def mixed_stage_problems(rows: MixedStrategies, seconds: MixedSeconds, memory: MixedBytes, mixed: Mixed) -> StageRows:
    """The stage problems of strategies over several node groups, whose stages differ in all that layers cost."""
    step = slice_layers(mixed.lead.model.num_layers, rows)
    wide = step[:, None]
    modes = np.array([RECOMPUTE_MODES.index(MODES[kind]) for kind in Recompute])
    return StageRows(
        num_layers=mixed.lead.model.num_layers // step,
        num_stages=rows.pp,
        vpp=1.0 / seconds.groups[0].bubble,
        num_microbatches=rows.num_microbatches,
        layer_seconds=wide * seconds.layer,
        recompute_seconds=wide * seconds.recompute,
        extra_seconds=seconds.extra,
        memory_limit=memory.limit * (1.0 + ROUNDING),
        fixed_bytes=memory.fixed,
        layer_bytes=wide * memory.layer,
        activation_bytes=wide * memory.activation,
        checkpoint_bytes=wide * memory.checkpoint,
        recompute=modes[rows.recompute],
        uneven=mixed.lead.stack.supports.uneven_stages,
        working_bytes=memory.working,
        fewest=fewest_layers(rows, mixed.lead) // wide,
    )


def _unit(rows: Strategies, seconds: RowSeconds) -> Floats:
    """Seconds of a layer as ``recompute`` has it, (N,)."""
    return seconds.layer + np.where(rows.recompute == Recompute.FULL, seconds.recompute, 0.0)


def _kept(rows: Strategies, memory: RowBytes, held: Floats) -> Floats:
    """Bytes of a layer as ``recompute`` has it, on every stage, (N, P)."""
    kept = np.where(rows.recompute == Recompute.FULL, memory.checkpoint, memory.stored)
    return memory.layer_state[:, None] + held * kept[:, None]


def _in_flight(rows: Strategies, memory: RowBytes, width: int) -> Floats:
    """Micro-batches of every row that a stage holds, (N, P)."""
    return stages_in_flight(rows, width) + memory.queued[:, None]


def _least_in_flight(rows: Strategies) -> Floats:
    """``in_flight`` of the stage that holds the fewest, (N,)."""
    few, inverse = rows.distinct("schedule", "pp", "vpp", "num_microbatches")
    width = int(rows.pp.max(initial=1))
    exists = np.arange(width) < few.pp[:, None]
    return np.where(exists, stages_in_flight(few, width), np.inf).min(axis=1)[inverse]


def _fewest_slices(rows: Strategies, scenario: Scenario) -> Ints:
    """Slices that each stage, or each piece of a stage that holds two, has at least, (N, P).

    One; none at the ends where the stack allows it and the embedding or the head is there instead. All of them where
    the framework divides the layers itself, which leaves one split.
    """
    if cut := framework_split(scenario):
        held = _cut_by(cut, rows, scenario)
        return (held + _taken(rows, scenario, held.shape[1])) // slice_layers(scenario.model.num_layers, rows)[:, None]
    stages = np.arange(int(rows.pp.max(initial=1)))
    apart = (rows.pp >= LEAST_STAGES) & (rows.vpp == 1) & (rows.vocabulary == 0) & ~joined(rows)
    outer = (stages == 0) | (stages == rows.pp[:, None] - 1)
    bare = scenario.stack.supports.empty_ends & apart[:, None] & outer
    return np.where(bare, 0, 1)


def fewest_layers(rows: Strategies, scenario: Scenario) -> Ints:
    """``_fewest_slices`` in layers."""
    slices = _fewest_slices(rows, scenario)
    step = slice_layers(scenario.model.num_layers, rows)[:, None]
    return slices * step - _taken(rows, scenario, int(rows.pp.max(initial=1)))


def framework_split(scenario: Scenario) -> Callable[[Model, int], list[int]] | None:
    """How the framework asked for, or that of the stack, divides the layers, where it does so unless it is told."""
    return own_split(scenario) or (balanced if scenario.stack.supports.stage_cut == "balanced" else None)


def own_split(scenario: Scenario) -> Callable[[Model, int], list[int]] | None:
    """How the framework asked for divides the layers, where it always does so itself."""
    from planner.frameworks.registry import FRAMEWORKS

    return FRAMEWORKS[scenario.framework].cut if scenario.framework else None


def balanced(model: Model, stages: int) -> list[int]:
    """Layers of every stage, as evenly as they go, more on the first stages; the ends alone have none."""
    if stages > model.num_layers:
        return [int(held) for held in even_stages(model.num_layers, stages, 1)]
    return [(model.num_layers + stages - 1 - stage) // stages for stage in range(stages)]


def _cut_by(cut: Callable[[Model, int], list[int]], rows: Strategies, scenario: Scenario) -> Ints:
    width = int(rows.pp.max(initial=1))
    held = np.zeros((len(rows), width), dtype=np.int64)
    for pp in distinct_values(rows.pp).tolist():
        held[rows.pp == pp, :pp] = cut(scenario.model, pp)
    return held


def _fixed(rows: Strategies, memory: RowBytes, held: Floats, stages: Ints) -> Floats:
    """Bytes besides the layers, (N, P): embedding, head and logits where they sit, shared parts everywhere."""
    first, last = ends(rows, stages)
    embedding = memory.first[:, None] + held * (memory.embedding_activation / copies(rows))[:, None]
    return memory.everywhere[:, None] + first * embedding + last * memory.last[:, None]


def fewest_recomputed(problem: StageProblem, slices: list[int]) -> Ints:
    """The fewest recomputed slices of each stage that memory allows, all of them where none fit, shape (p,)."""
    if problem.alike and problem.recompute == "free":
        return _fewest_alike(problem, slices)
    if problem.slices is None:
        fewest = stage_table(problem).recomputed[slices, np.arange(len(slices))]
    else:
        fewest = chain.fewest_recomputed(problem, slices)
    return np.where(fewest < 0, slices, fewest)


def _fewest_alike(problem: StageProblem, slices: list[int]) -> Ints:
    """The fewest slices that every stage recomputes so that all fit, all of them where none do."""
    for first in range(max(slices) + 1):
        one = replace(problem, alike=False, recompute="first", first=first)
        table = stage_table(one).recomputed[slices, np.arange(len(slices))] if problem.slices is None else None
        fewest = chain.fewest_recomputed(one, slices) if table is None else table
        if (fewest >= 0).all():
            return fewest
    return np.array(slices)
