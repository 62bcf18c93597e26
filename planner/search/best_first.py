"""Best-first search with a certificate, on one node group or several.

Cores (strategies without sharding) are visited in the order of an optimistic bound that needs only the price
of a layer. Those that might beat the incumbent are priced in full with every sharding option; rows that might
still beat it get the exact relaxation of the stage problem, and then, in the order of that bound, the stage
solver. When no bound is left below the incumbent, the incumbent is optimal within the model.

Over several node groups no split is even, so that only the solver finds an incumbent: it speaks after every chunk,
where on one group it speaks once all chunks are priced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import islice

import numpy as np

from costmodels.names import Recompute
from costmodels.node_groups import AnyScenario, Mixed, MixedStrategies
from costmodels.pricing import row_assignment
from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Floats, Ints, Strategies
from planner.request.budget import CORE, SLICE, Budget
from planner.search.core_bounds import known_bound, mixed_core_bound
from planner.search.fitting import Fitting, Nearest, Unfitting, nearer, part_fitting
from planner.search.priced import Priced, in_order, price_mixed_strategies, price_pairs
from planner.search.split import TOLERANCE, Incumbent, best_split, solve_split
from planner.space.lattice import Space
from planner.space.mixed import MixedSpace
from planner.stages.from_strategies import framework_split, stage_bounds

CHUNK = 8192
"""Cores that are priced at a time: enough to amortise a call, few enough to stay in cache."""
AT_ONCE = 2 * CHUNK
"""Those of a search that knows a good strategy already: most then take a call, which costs more than what it prices."""
LEFT_OVER = 0.05
"""Share of a chunk that may be left over for it to take as well: a few cores take nearly as long as many."""
MARGIN = 1.02
"""Cores whose bounds are this near to the incumbent are priced if their chunk is, to be shown as runners-up."""
BOUNDED = 2**17
"""Cores on several node groups that are bounded before the budget is looked at again."""


@dataclass(frozen=True)
class Pace:
    """How a search goes through the cores."""

    first: int
    """Cores of the first chunk; each chunk doubles, so that a good incumbent is found before much is priced."""
    chunk: int
    """Cores that are priced at a time at most."""
    ordered: int
    """Cores that are put in order at first."""
    kept: int
    """Best rows of a chunk that are remembered for alternatives and explanations."""
    effort: float
    """Of the price of one row."""


ONE_GROUP = Pace(first=512, chunk=CHUNK, ordered=512, kept=4096, effort=1.0)
SEVERAL_GROUPS = Pace(first=256, chunk=2048, ordered=2**31, kept=256, effort=8.0)
ORDERED = 16
"""How many times as many cores are put in order each time that those in order are used up."""
PROMISING = 512
"""Rows that are bounded exactly when runners-up are looked for."""


@dataclass
class Outcome:
    """The best strategy that a search found, its bound, and counts of what was looked at."""

    best: Incumbent | None = None
    lower_bound: float = np.inf
    proved: bool = True
    feasible: int = 0
    priced: int = 0
    solves: int = 0
    memory_refused: int = 0
    unfitting: list[Unfitting] = field(default_factory=list)
    """What fits under no split and was not priced."""
    nearest_priced: Nearest | None = None
    """Of those that were priced, the one whose even split comes nearest to fitting."""
    pool: list[Priced] = field(default_factory=list)
    """Even rows seen on the way, the best of them kept."""
    below: float = np.inf
    """Seconds of an iteration from which nothing was looked for."""

    @property
    def nearest(self) -> Nearest | None:
        """Of all that does not fit, the strategy whose even split comes nearest."""
        return reduce(lambda known, part: part.nearest(known), self.unfitting, self.nearest_priced)


def search(
    space: Space,
    scenario: AnyScenario,
    *,
    budget: Budget,
    among: Ints | None = None,
    margin: float = MARGIN,
    seen: Sequence[Priced] = (),
    confirm: bool = True,
    below: float = np.inf,
) -> Outcome:
    """The fastest feasible strategy of the space, unless the budget is spent before that is known.

    Args:
        space: the lattice.
        scenario: what to price.
        budget: what the search may take, and is charged to.
        among: the cores to look at, indices (K,); all of them unless given.
        margin: cores of a chunk are priced whose bounds are below so many incumbents; the best is the same from 1 on.
            Over several node groups all of a chunk are priced.
        seen: rows of these cores that another search has priced: it need not look at what is slower.
        confirm: whether the stage solver speaks on the best as well, which is as good by its bound.
        below: seconds of an iteration that the caller has already: slower strategies are not looked for.
    """
    outcome = Outcome(below=below)
    cores = np.arange(len(space.cores)) if among is None else among
    if not len(cores):
        return outcome
    several = isinstance(scenario, Mixed)
    for part in seen:
        remember(outcome, part, scenario)
    pace = _pace(several=several, found=bool(np.isfinite(_ceiling(outcome))) and not budget.timed)
    optimistic = _bounds(space.cores, scenario, cores, budget)
    if optimistic is None:
        outcome.proved, outcome.lower_bound = False, 0.0
        return outcome
    pending: list[Priced] = []
    reach = np.inf if several else margin
    likely = cores[optimistic[cores] < reach * _ceiling(outcome)]
    for chunk in _visits(likely, optimistic, pace):
        if optimistic[chunk[0]] >= _ceiling(outcome):
            break
        if budget.spent():
            outcome.proved, outcome.lower_bound = False, min(outcome.lower_bound, float(optimistic[chunk[0]]))
            break
        known = outcome.priced
        near = chunk[optimistic[chunk] < reach * _ceiling(outcome)]
        pending += _price_chunk(outcome, space, near, scenario)
        budget.spend(pace.effort * (outcome.priced - known))
        if several:
            _settle(outcome, pending, scenario, budget)
            pending = []
        _tell(outcome, float(optimistic[chunk[0]]), budget)
    _settle(outcome, _unbeaten(pending, outcome), scenario, budget)
    if outcome.best and outcome.proved:
        if confirm and not several:  # where the solver has spoken
            _confirm(outcome, scenario, budget)
        outcome.lower_bound = outcome.best.iteration
        _tell(outcome, outcome.lower_bound, budget)
    return outcome


def _pace(*, several: bool, found: bool) -> Pace:
    """The pace over several node groups, or over one: at once where a good strategy need not be ``found`` first."""
    if several:
        return SEVERAL_GROUPS
    return replace(ONE_GROUP, first=AT_ONCE, chunk=AT_ONCE, ordered=AT_ONCE) if found else ONE_GROUP


def _tell(outcome: Outcome, bound: float, budget: Budget) -> None:
    """Say how far the search has come; ``bound`` is the least that what is still open can take."""
    best = outcome.best.iteration if outcome.best else None
    budget.found(best, min(bound, outcome.lower_bound, best or np.inf))


def _bounds(cores: Strategies, scenario: AnyScenario, among: Ints, budget: Budget) -> Floats | None:
    """Optimistic seconds of all cores, or at least of those ``among`` them; None where the budget is spent before."""
    if budget.spent():
        return None
    if not isinstance(scenario, Mixed) and not (budget.timed and len(cores) > BOUNDED):
        budget.spend(CORE * len(among))
        return known_bound(cores, scenario, among)
    found = []
    for start in range(0, len(cores), BOUNDED):
        if budget.spent():
            return None
        part = cores.take(slice(start, start + BOUNDED))
        budget.spend(CORE * len(part))
        if isinstance(scenario, Mixed):
            assert isinstance(part, MixedStrategies)
            found.append(mixed_core_bound(part, scenario))
        else:
            found.append(known_bound(part, scenario))
    return np.concatenate(found)


def _visits(cores: Ints, optimistic: Floats, pace: Pace) -> Iterator[Ints]:
    """Chunks of cores in the order of their bounds; what is never asked for is never put in order."""
    rest, size, ordered = cores, pace.first, pace.ordered
    while len(rest):
        near, rest = _nearest(rest, optimistic, ordered)
        start, ordered = 0, ORDERED * ordered
        while start < len(near):
            stop, larger = start + size, 2 * size
            if len(near) - stop <= LEFT_OVER * size:
                stop, larger = len(near), 4 * size
            yield near[start:stop]
            start, size = stop, min(larger, pace.chunk)


def _nearest(cores: Ints, optimistic: Floats, count: int) -> tuple[Ints, Ints]:
    """The cores of the ``count`` least bounds or some more, in their order, and the others."""
    bounds = optimistic[cores]
    within = np.ones(len(cores), dtype=bool)
    if len(cores) > count:
        within = bounds <= np.partition(bounds, count)[count]
    near = cores[within]
    return near[np.argsort(optimistic[near], kind="stable")], cores[~within]


def _price_chunk(outcome: Outcome, space: Space, cores: Ints, scenario: AnyScenario) -> list[Priced]:
    """Price the strategies of the cores and remember them; those whose best split is still open."""
    if isinstance(scenario, Mixed):
        assert isinstance(space, MixedSpace)
        priced: Priced | None = price_mixed_strategies(space.branches(cores), scenario)
    else:
        priced = _price_fitting(outcome, space, cores, scenario)
    if priced is None:
        return []
    remember(outcome, priced, scenario)
    return [_open(priced, scenario)]


def _price_fitting(outcome: Outcome, space: Space, cores: Ints, scenario: Scenario) -> Priced | None:
    """Price the pairs of the cores that may fit and count those that fit under no split; None where none is left."""
    fitting = fitting_pairs(outcome, space, cores, scenario)
    if fitting is None:
        return None
    used, place = np.unique(fitting.place, return_inverse=True)
    return price_pairs(space.cores.take(cores[used]), place, fitting.rows, fitting.memory, scenario)


def fitting_pairs(outcome: Outcome, space: Space, cores: Ints, scenario: Scenario) -> Fitting | None:
    """The strategies of the cores that may fit, None where none may; the others are counted."""
    fitting, unfitting = part_fitting(space, cores, scenario)
    outcome.priced += len(unfitting)
    outcome.memory_refused += len(unfitting)
    outcome.unfitting.append(unfitting)
    return fitting


def remember(outcome: Outcome, priced: Priced, scenario: AnyScenario, *, by_memory: bool = False) -> None:
    """Count, keep the best even rows, and raise the incumbent: the fastest, or with ``by_memory`` the smallest."""
    outcome.priced += len(priced.rows)
    outcome.feasible += int(priced.fits.sum())
    outcome.memory_refused += int((~priced.fits).sum())
    if isinstance(scenario, Mixed):
        outcome.pool.append(priced.take(np.argsort(priced.bound, kind="stable")[: SEVERAL_GROUPS.kept]))
        return
    if not priced.fits.all():
        tight, peak = priced.rows.take(~priced.fits), priced.even_split_peak_bytes[~priced.fits]
        outcome.nearest_priced = nearer(tight, peak, scenario, outcome.nearest_priced)
    kept = priced.even_split_peak_bytes if by_memory else priced.bound
    outcome.pool.append(_best_of(priced, ONE_GROUP.kept, kept))
    possible = priced.fits & np.isfinite(priced.even_split_seconds)
    if not possible.any():
        return
    value = np.where(possible, priced.even_split_seconds, np.inf)
    peak = np.where(possible, priced.even_split_peak_bytes, np.inf)
    keys = (np.round(value, 12), peak) if by_memory else (peak, np.round(value, 12))
    best = int(np.lexsort((priced.rows.pp, priced.rows.tp, *keys))[0])
    if outcome.best is None or _better(value[best], peak[best], outcome.best, by_memory=by_memory):
        row = priced.one(best, scenario)
        split = row_assignment(row, scenario.model.num_layers)
        outcome.best = Incumbent(row, split, float(value[best]), float(peak[best]))


def _better(value: float, peak: float, best: Incumbent, *, by_memory: bool) -> bool:
    """Faster, or as fast and smaller in memory; the other way round with ``by_memory``."""
    if by_memory:
        return bool((peak, value) < (best.even_split_peak_bytes, best.iteration))
    near = best.iteration * TOLERANCE
    return bool(value < best.iteration - near or (value <= best.iteration + near and peak < best.even_split_peak_bytes))


def _best_of(priced: Priced, count: int, least: Floats) -> Priced:
    if len(priced.rows) <= count:
        return priced
    return priced.take(np.argpartition(least, count)[:count])


def _open(priced: Priced, scenario: AnyScenario) -> Priced:
    """Rows whose best split may differ from the even one: stages may be uneven, or layers recomputed one by one."""
    if isinstance(scenario, Mixed):
        return priced
    free = priced.rows.recompute == Recompute.PARTIAL
    staged = (scenario.stack.supports.uneven_stages or framework_split(scenario) is not None) & (priced.rows.pp > 1)
    uneven = staged & (priced.bound < priced.even_split_seconds * (1 - TOLERANCE))
    return priced.take(free | uneven | (~priced.fits & staged))


def _unbeaten(parts: list[Priced], outcome: Outcome) -> list[Priced]:
    return [kept for part in parts if len((kept := part.take(part.bound < _ceiling(outcome))).rows)]


def _tight(part: Priced, scenario: AnyScenario, below: float, budget: Budget) -> tuple[Floats, Bools]:
    """The larger of a row's two bounds, (N,), and whether its layers fit: where layers differ neither is always it.

    Rows that take ``below`` seconds or more may count as those that do not. Where the budget is spent, the bound that
    the rows have already.
    """
    if isinstance(scenario, Mixed):  # whose bounds are tight already
        return part.bound, part.fits
    if budget.spent():
        return part.bound, np.ones(len(part.rows), dtype=bool)
    slices = 0 if part.seconds.kinds is None else scenario.model.num_layers
    budget.spend(len(part.rows) + SLICE * slices * int(part.rows.pp.sum()))
    bound, feasible = stage_bounds(part.rows, part.seconds, part.memory, scenario, below)
    return np.maximum(bound, part.bound), feasible


def _settle(outcome: Outcome, pending: list[Priced], scenario: AnyScenario, budget: Budget) -> None:
    """Solve the open rows in the order of their tight bounds until none can beat the incumbent."""

    def tight(part: Priced) -> Floats:
        if part.bound.min() >= _ceiling(outcome):
            return np.full(len(part.rows), np.inf)
        bound, feasible = _tight(part, scenario, _ceiling(outcome), budget)
        return np.where(feasible, bound, np.inf)

    for bound, part, i in in_order([(float(part.bound.min()), part) for part in pending if len(part.rows)], tight):
        if bound >= _ceiling(outcome):
            break
        if budget.spent():
            outcome.proved, outcome.lower_bound = False, min(outcome.lower_bound, bound)
            return
        _try(outcome, part.take(np.array([i])), scenario, budget)
        _tell(outcome, bound, budget)


def _confirm(outcome: Outcome, scenario: AnyScenario, budget: Budget) -> None:
    """Let the stage solver speak on the winner too: the bound said that no split of its layers is faster.

    The winner takes the split that its row alone has, whatever was found before it: ``predict`` splits no other way.
    """
    assert outcome.best is not None
    found = best_split(outcome.best.row, scenario, budget=budget)
    outcome.solves += 1
    if found and found.iteration <= outcome.best.iteration * (1 + TOLERANCE):
        outcome.best = replace(found, iteration=min(found.iteration, outcome.best.iteration))


def _ceiling(outcome: Outcome) -> float:
    """Seconds that a row must stay below to matter."""
    least = min(outcome.best.iteration, outcome.below) if outcome.best else outcome.below
    return least * (1 - TOLERANCE)


def _try(outcome: Outcome, one: Priced, scenario: AnyScenario, budget: Budget) -> None:
    """Solve one row's stage problem; keep it if it beats the incumbent."""
    best = outcome.best
    ceiling = min(best.iteration if best else np.inf, outcome.below)
    solved = solve_split(one, scenario, below=ceiling if np.isfinite(ceiling) else None, budget=budget)
    outcome.solves += 1
    if not solved.proved:
        outcome.proved, outcome.lower_bound = False, min(outcome.lower_bound, solved.bound)
    if solved.found and (best is None or solved.seconds < best.iteration):
        outcome.best = solved.found
        outcome.feasible += not (isinstance(scenario, Mixed) or one.fits[0])  # else it is counted already


def promising(
    outcome: Outcome,
    scenario: AnyScenario,
    budget: Budget,
    below: float = np.inf,
    asked: Callable[[Strategies], Bools] = lambda rows: np.ones(len(rows), dtype=bool),
) -> Iterator[tuple[float, Strategies]]:
    """The most promising rows seen, by the seconds that no split of theirs can beat; those that cannot fit left out.

    Those of ``below`` seconds or more are not looked for, nor those that are not ``asked`` for. Where the budget is
    spent they come by the bound that they have, those that cannot fit among them.
    """
    count = None if isinstance(scenario, Mixed) else PROMISING
    kept = [part.take(np.argsort(part.bound, kind="stable")[:count]) for part in outcome.pool if len(part.rows)]
    near = [part for one in kept if len((part := one.take((one.bound < below) & asked(one.rows))).rows)]

    def tight(part: Priced) -> Floats:
        bound, fits = _tight(part, scenario, below, budget)
        return np.where(fits, bound, np.inf)

    for bound, part, i in islice(in_order([(float(part.bound.min()), part) for part in near], tight), count):
        yield bound, part.one(i, scenario)
