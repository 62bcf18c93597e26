"""Best-first search over several node groups, with the certificate of ``search``.

Cores are visited in the order of a bound that needs only the price of a layer on each group. Their branches (orders
of the groups, ways to shard) get the relaxation of the stage problem, and then, in the order of that bound and with
the incumbent as cutoff, the stage solver. When no bound is left below the incumbent, the incumbent is optimal
within the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from costmodels.groups import Mixed, MixedBytes, MixedRows, MixedSeconds, mixed_bytes, mixed_seconds, price_mixed
from costmodels.iteration import LAYER_AXES, RowSeconds, compose, core_seconds
from costmodels.layer.overlapped_experts import further_axes
from costmodels.layout.split import Assignment, slice_layers
from costmodels.names import Recompute
from costmodels.pricing import effective_recompute, row_assignment
from costmodels.strategy import Bools, Floats, Ints
from planner.request.budget import CORE, Budget
from planner.search.split import TOLERANCE
from planner.space.mixed import MixedSpace
from planner.stages.bounds import RECOMPUTE_MODES, StageRows, stage_lower_bound
from planner.stages.from_rows import MODES, ROUNDING, fewest_layers
from planner.stages.problem import StageProblem
from planner.stages.solver import StageSolution, solve
from planner.stages.tables import stage_table

FIRST = 256
"""Cores of the first chunk; each chunk doubles, so that a good incumbent is found before much is priced."""
CHUNK = 2048
"""Cores that are priced at a time at most."""
BOUNDED = 2**17
"""Cores that are bounded before the budget is looked at again."""
BRANCH = 8.0
"""Effort of the price of one branch."""
KEPT = 256
"""Best branches of a chunk that are remembered for alternatives."""


@dataclass(frozen=True, slots=True)
class Branches:
    """Branches priced in full: what every stage costs, and the seconds that no split of theirs can beat, (N,)."""

    rows: MixedRows
    seconds: MixedSeconds
    memory: MixedBytes
    bound: Floats
    fits: Bools

    def take(self, index: Ints | Bools) -> Branches:
        """The given rows."""
        return Branches(
            self.rows.take(index),
            self.seconds.take(index),
            self.memory.take(index),
            self.bound[index],
            self.fits[index],
        )


@dataclass(frozen=True)
class MixedIncumbent:
    """One strategy over the groups, its stages and its seconds per iteration."""

    row: MixedRows
    assignment: Assignment
    iteration: float


@dataclass
class MixedOutcome:
    """The best strategy that a search found, its bound, and counts of what was looked at."""

    best: MixedIncumbent | None = None
    lower_bound: float = np.inf
    proved: bool = True
    feasible: int = 0
    priced: int = 0
    solves: int = 0
    memory_refused: int = 0
    pool: list[Branches] = field(default_factory=list)
    """The best branches seen on the way."""

    @property
    def ceiling(self) -> float:
        """Seconds that a branch must stay below to matter."""
        return self.best.iteration * (1 - TOLERANCE) if self.best else np.inf


def search(space: MixedSpace, mixed: Mixed, *, budget: Budget, among: Ints | None = None) -> MixedOutcome:
    """The fastest feasible strategy of the space, unless the budget is spent before that is known.

    ``among`` gives the cores to look at, indices (K,); all of them unless given.
    """
    outcome = MixedOutcome()
    cores = np.arange(len(space.cores)) if among is None else among
    if not len(cores):
        return outcome
    optimistic = _bounds(space.cores, mixed, budget)
    if optimistic is None:
        outcome.proved, outcome.lower_bound = False, 0.0
        return outcome
    order = cores[np.argsort(optimistic[cores], kind="stable")]
    start, size = 0, FIRST
    while start < len(order) and optimistic[order[start]] < outcome.ceiling:
        if budget.spent():
            outcome.proved = False
            outcome.lower_bound = min(outcome.lower_bound, float(optimistic[order[start]]))
            break
        _settle(outcome, price(space.branches(order[start : start + size]), mixed), mixed, budget)
        start, size = start + size, min(2 * size, CHUNK)
    if outcome.best and outcome.proved:
        outcome.lower_bound = outcome.best.iteration
    return outcome


def _bounds(cores: MixedRows, mixed: Mixed, budget: Budget) -> Floats | None:
    """``core_bound`` of all cores, None where the budget is spent before."""
    found = []
    for start in range(0, len(cores), BOUNDED):
        if budget.spent():
            return None
        budget.spend(CORE * min(BOUNDED, len(cores) - start))
        found.append(core_bound(cores.take(np.arange(start, min(start + BOUNDED, len(cores)))), mixed))
    return np.concatenate(found)


def core_bound(cores: MixedRows, mixed: Mixed) -> Floats:
    """Optimistic seconds of every core in any order, split, sharding and recomputation, shape (C,).

    Were layers divisible, all stages would be busy for M = L / sum of (stages / seconds of a layer), and no slowest
    stage is faster. A slower one could leave more layers to the fastest group: where that might pay, all layers
    are priced there.
    """
    prices = [_block(cores, mixed, g) for g in range(len(cores.groups))]
    rows = cores.groups[0]
    layer = np.stack([one[0] for one in prices], axis=1)
    ends = np.min([one[1].embedding for one in prices], axis=0) + np.min([one[1].head for one in prices], axis=0)
    layers = mixed.scenarios[0].model.num_layers
    slowest = layers / (cores.stages / layer).sum(axis=1)
    saving = (cores.stages * (layer.max(axis=1, keepdims=True) / layer - 1.0)).sum(axis=1)
    pays = rows.num_microbatches * rows.vpp - 1.0 < saving
    total = np.where(pays, layers * layer.min(axis=1), rows.pp * slowest) + ends
    pipeline = rows.num_microbatches * slowest + (total - slowest) / rows.vpp
    return pipeline + np.min([one[1].overhead for one in prices], axis=0)


def _block(cores: MixedRows, mixed: Mixed, group: int) -> tuple[Floats, RowSeconds]:
    """Seconds of a layer on one group, (C,), and the parts of its price."""
    rows = cores.groups[group]
    block, inverse = rows.distinct(*LAYER_AXES, *further_axes(mixed.scenarios[group].stack))
    price = core_seconds(block, mixed.scenarios[group]).take(inverse)
    return price.layer + np.where(rows.recompute == Recompute.FULL, price.recompute, 0.0), price


def price(rows: MixedRows, mixed: Mixed) -> Branches:
    """Seconds, bytes and bound of branches."""
    seconds, memory = mixed_seconds(rows, mixed), mixed_bytes(rows, mixed)
    lead, stack = rows.groups[0], mixed.scenarios[0].stack
    step = slice_layers(mixed.scenarios[0].model.num_layers, lead)
    wide = step[:, None]
    modes = np.array([RECOMPUTE_MODES.index(MODES[kind]) for kind in Recompute])
    bound = stage_lower_bound(
        StageRows(
            num_layers=mixed.scenarios[0].model.num_layers // step,
            num_stages=rows.pp,
            vpp=1.0 / seconds.groups[0].bubble,
            num_microbatches=lead.num_microbatches,
            layer_seconds=wide * seconds.layer,
            recompute_seconds=wide * seconds.recompute,
            extra_seconds=seconds.extra,
            memory_limit=memory.limit * (1.0 + ROUNDING),
            fixed_bytes=memory.fixed,
            layer_bytes=wide * memory.layer,
            activation_bytes=wide * memory.activation,
            checkpoint_bytes=wide * memory.checkpoint,
            recompute=modes[lead.recompute],
            uneven=stack.supports.uneven_stages,
            working_bytes=memory.working,
            fewest=fewest_layers(lead, mixed.scenarios[0]) // wide,
        )
    )
    slowest, total = (np.where(bound.feasible, part, 0.0) for part in (bound.slowest, bound.total))
    value = compose(lead, seconds.groups[0], slowest, total)
    return Branches(rows, seconds, memory, np.where(bound.feasible, value, np.inf), bound.feasible)


def problem_of(one: Branches, mixed: Mixed) -> StageProblem:
    """The stage problem of a single branch, in slices of one layer a chunk."""
    lead, seconds, memory = one.rows.groups[0], one.seconds, one.memory
    pp, step = int(one.rows.pp[0]), slices(one.rows, mixed)

    def each(values: Floats, times: float = 1.0) -> tuple[float, ...]:
        return tuple((times * values[0, :pp]).tolist())

    return StageProblem(
        num_layers=mixed.scenarios[0].model.num_layers // step,
        num_stages=pp,
        vpp=float(1.0 / seconds.groups[0].bubble[0]),
        num_microbatches=int(lead.num_microbatches[0]),
        layer_seconds=each(seconds.layer, step),
        recompute_seconds=each(seconds.recompute, step),
        extra_seconds=each(seconds.extra),
        memory_limit=each(memory.limit, 1.0 + ROUNDING),
        fixed_bytes=each(memory.fixed),
        layer_bytes=each(memory.layer, step),
        activation_bytes=each(memory.activation, step),
        checkpoint_bytes=each(memory.checkpoint, step),
        recompute=MODES[Recompute(int(lead.recompute[0]))],  # type: ignore[arg-type]
        uneven=mixed.scenarios[0].stack.supports.uneven_stages,
        working_bytes=each(memory.working),
        fewest=tuple((fewest_layers(lead, mixed.scenarios[0])[0] // step).tolist()),
    )


def slices(row: MixedRows, mixed: Mixed) -> int:
    """Layers that move together from stage to stage."""
    return int(slice_layers(mixed.scenarios[0].model.num_layers, row.groups[0])[0])


def _settle(outcome: MixedOutcome, branches: Branches, mixed: Mixed, budget: Budget) -> None:
    """Solve branches in the order of their bounds until none can beat the incumbent."""
    outcome.priced += len(branches.rows)
    budget.spend(BRANCH * len(branches.rows))
    outcome.feasible += int(branches.fits.sum())
    outcome.memory_refused += int((~branches.fits).sum())
    order = np.argsort(branches.bound, kind="stable")
    outcome.pool.append(branches.take(order[:KEPT]))
    for i in order:
        bound = float(branches.bound[i])
        if not bound < outcome.ceiling:
            return
        if budget.spent():
            outcome.proved, outcome.lower_bound = False, min(outcome.lower_bound, bound)
            return
        _try(outcome, branches.take(np.array([i])), mixed, budget)


def _try(outcome: MixedOutcome, one: Branches, mixed: Mixed, budget: Budget) -> None:
    """Solve one branch's stage problem; keep it if it beats the incumbent."""
    price = one.seconds.groups[0]
    once = float(price.data_parallel[0] + price.optimizer[0] + price.overhead[0])
    stretch = 1.0 + float(price.straggler[0])
    cutoff = None if outcome.best is None else (outcome.best.iteration - once) / stretch
    solution = solve(problem_of(one, mixed), cutoff_seconds=cutoff, budget=budget)
    outcome.solves += 1
    if solution.status in ("feasible", "unknown"):
        outcome.proved = False
        outcome.lower_bound = min(outcome.lower_bound, solution.bound_seconds * stretch + once)
    value = solution.objective_seconds * stretch + once
    if solution.layers and (outcome.best is None or value < outcome.best.iteration):
        outcome.best = _effective(one.rows, assignment_of(solution, slices(one.rows, mixed)), value, mixed)


def _effective(row: MixedRows, split: Assignment, seconds: float, mixed: Mixed) -> MixedIncumbent:
    """One branch, whose split takes ``seconds``, with its recomputation called what it comes to on every group."""
    run = replace(row, groups=tuple(effective_recompute(group, split) for group in row.groups))
    if run.groups[0].recompute[0] == row.groups[0].recompute[0]:
        return MixedIncumbent(row, split, seconds)
    return MixedIncumbent(run, split, price_mixed(run, mixed, split).iteration)


def given(row: MixedRows, mixed: Mixed, split: Assignment) -> MixedIncumbent:
    """One branch under a split that is given, which may not fit."""
    return _effective(row, split, price_mixed(row, mixed, split).iteration, mixed)


def assignment_of(solution: StageSolution, step: int) -> Assignment:
    """The solver's slices as layers."""
    return Assignment(step * np.array(solution.layers, np.int64), step * np.array(solution.recompute_layers, np.int64))


def best_split(one: Branches, mixed: Mixed, *, budget: Budget) -> MixedIncumbent | None:
    """One branch under its fastest split that fits; None where none fits."""
    outcome = MixedOutcome()
    if one.fits[0]:
        _try(outcome, one, mixed, budget)
    return outcome.best


def given_split(one: Branches, mixed: Mixed, layers: Sequence[int]) -> Assignment:
    """One branch with its layers given: PARTIAL recomputes as few of each stage as fit, or all where none do."""
    lead = one.rows.groups[0]
    split = row_assignment(lead, mixed.scenarios[0].model.num_layers, layers)
    if lead.recompute[0] != Recompute.PARTIAL:
        return split
    step = slices(one.rows, mixed)
    held = split.layers // step
    fewest = stage_table(problem_of(one, mixed)).recomputed[held, np.arange(len(held))]
    return Assignment(split.layers, step * np.where(fewest < 0, held, fewest))
