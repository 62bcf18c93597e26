"""Strategies priced in full: seconds under the even split, a bound over all splits, bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np

from costmodels.iteration import (
    Breakdown,
    RowSeconds,
    all_sides,
    breakdown,
    compose,
    core_seconds,
    end_send,
    even_split,
    fullest_stage,
    with_step,
)
from costmodels.memory.even_peaks import even_peaks
from costmodels.memory.limits import memory_limit
from costmodels.memory.rows import RowBytes
from costmodels.names import Recompute
from costmodels.node_groups import AnyScenario, Mixed, MixedStrategies, mixed_bytes, mixed_seconds, parts_of
from costmodels.pricing import know
from costmodels.scenario import Scenario
from costmodels.step.traffic import share_steps
from costmodels.strategy import Bools, Floats, Ints, Strategies
from planner.stages.bounds import StageRows, stage_lower_bound
from planner.stages.from_strategies import (
    framework_split,
    mixed_stage_problems,
    one_number,
    problem_of,
    single_problem,
)
from planner.stages.problem import StageProblem


@dataclass(frozen=True, slots=True)
class Priced:
    """Rows priced in full, arrays (N,): even split, bound over all splits, worst stage's bytes."""

    rows: Strategies
    seconds: RowSeconds
    memory: RowBytes
    even_split_seconds: Floats
    """Seconds of the iteration under the even split; FULL and PARTIAL recompute every layer."""
    bound: Floats
    """No split of this row is faster."""
    even_split_peak_bytes: Floats
    """Bytes of the worst stage under the even split."""
    fits: Bools
    """Whether the even split does; over several node groups, whether any does."""
    problems: StageRows | None = None
    """Over several node groups, whose strategies have no even split: the problems of their stages."""

    def take(self, index: Ints | Bools) -> Priced:
        """The given rows."""
        return Priced(
            self.rows.take(index),
            self.seconds.take(index),
            self.memory.take(index),
            self.even_split_seconds[index],
            self.bound[index],
            self.even_split_peak_bytes[index],
            self.fits[index],
            self.problems and self.problems.take(index),
        )

    def one(self, index: int, scenario: AnyScenario) -> Strategies:
        """A single row, which knows its price where that is of one node group."""
        part = self.take(np.array([index]))
        return know(part.rows, scenario, part.seconds, part.memory) if isinstance(scenario, Scenario) else part.rows

    def problem(self, scenario: AnyScenario) -> StageProblem:
        """The stage problem of a single row."""
        if self.problems is not None:
            return replace(single_problem(self.problems), alike=one_number(parts_of(scenario)[0]))
        assert isinstance(scenario, Scenario)
        return problem_of(self.rows, self.seconds, self.memory, scenario)


def price_mixed_strategies(rows: MixedStrategies, mixed: Mixed) -> Priced:
    """Strategies over several node groups: the seconds that no split of theirs can beat, and whether any fits."""
    seconds, memory = mixed_seconds(rows, mixed), mixed_bytes(rows, mixed)
    problems = mixed_stage_problems(rows, seconds, memory, mixed)
    bound = stage_lower_bound(problems)
    slowest, total = (np.where(bound.feasible, part, 0.0) for part in (bound.slowest, bound.total))
    value = compose(rows, seconds.groups[0], slowest, total)
    unknown = np.full(len(rows), np.inf)
    least = np.where(bound.feasible, value, np.inf)
    return Priced(rows, seconds.groups[0], memory.groups[0], unknown, least, unknown, bound.feasible, problems)


def price_pairs(cores: Strategies, place: Ints, rows: Strategies, memory: RowBytes, scenario: Scenario) -> Priced:
    """The rows that ``place`` says the core of, with their memory known, priced in full."""
    share_steps(rows)
    core = core_seconds(cores, scenario).take(place)
    return price_strategies(rows, with_step(rows, scenario, core), memory, scenario)


def even_breakdown(part: Priced, scenario: Scenario) -> Breakdown:
    """The terms of the iteration under the even split, arrays (N,)."""
    layers = scenario.model.num_layers
    again = (part.rows.recompute >= Recompute.FULL).astype(np.float64)
    slowest, total = even_split(part.rows, part.seconds, layers, again)
    held = np.ceil(layers / part.rows.pp)
    return breakdown(part.rows, part.seconds, slowest=slowest, total=total, layers=held, recomputed=again * held)


def price_strategies(rows: Strategies, seconds: RowSeconds, memory: RowBytes, scenario: Scenario) -> Priced:
    """Even split and bound of rows whose seconds and bytes are known."""
    layers = scenario.model.num_layers
    again = (rows.recompute >= Recompute.FULL).astype(np.float64)
    slowest, total = even_split(rows, seconds, layers, again)
    peak = even_peaks(rows, memory, layers)
    even = compose(rows, seconds, slowest, total)
    return Priced(
        rows,
        seconds,
        memory,
        even_split_seconds=even if framework_split(scenario) is None else np.where(rows.pp > 1, np.inf, even),
        bound=_row_bound(rows, seconds, layers),
        even_split_peak_bytes=peak,
        fits=peak <= memory_limit(scenario, rows),
    )


def _row_bound(rows: Strategies, seconds: RowSeconds, layers: int) -> Floats:
    least = end_send(rows, seconds) + seconds.host + seconds.vocabulary_spread
    again = (rows.recompute == Recompute.FULL).astype(np.float64)
    layer = seconds.layer + again * seconds.recompute
    total = layers * layer + seconds.embedding + seconds.head + all_sides(rows, seconds)
    fullest = fullest_stage(rows, layer, seconds.kinds, layers, again)
    slowest = np.maximum(fullest + least, total / rows.pp)
    return compose(rows, seconds, slowest, total)


def in_order(
    parts: Sequence[tuple[float, Priced]], values_of: Callable[[Priced], Floats]
) -> Iterator[tuple[float, Priced, int]]:
    """The rows of some parts in the order of their values, those that are not infinite.

    Every part comes with what none of its values is below: its values are asked for once no lesser one is left.
    """
    found: list[tuple[float, int, int]] = []
    for n, least, part in sorted(((n, *one) for n, one in enumerate(parts)), key=lambda one: one[1]):
        while found and found[0][0] < least:
            value, place, i = heappop(found)
            yield value, parts[place][1], i
        values = values_of(part)
        for i in np.flatnonzero(values < np.inf).tolist():
            heappush(found, (float(values[i]), n, i))
    while found:
        value, place, i = heappop(found)
        yield value, parts[place][1], i
