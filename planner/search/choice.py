"""Strategies that measurements cannot tell apart, and which of them to take.

The fastest of many predictions is where the model is too kind [Smith06]. Two strategies are tied where the model of
errors gives the faster less than two chances in three to be it; most of their errors they have in common. Among the
tied, expected time speaks for the fastest, and doubt against those that are far from anything measured, fill the
memory, or use many switches; one step of doubt weighs as much as the strategies predicted fastest in sweeps
disappointed by (``figures().curse``).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from costmodels.memory.limits import needed_bytes
from costmodels.names import SCHEDULE_NAMES
from costmodels.node_groups import first_in_pipeline, price
from costmodels.pricing import price_strategy
from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Floats, Ints, Strategies
from planner.answer.build import mfu_of
from planner.answer.plan import Advice
from planner.request.resolve import Resolved
from planner.search.best_first import Outcome
from planner.search.priced import Priced, even_breakdown
from planner.search.split import TOLERANCE, Incumbent, best_split
from planner.trust.error_model import Points
from planner.trust.interval import points, probability_faster
from planner.trust.similarity import MIXTURE, PLAIN, distance, traits
from planner.trust.table import figures, measured

Ties = Literal["fastest", "close", "validated"]

CLOSE = 1e-3
"""Share of the time below which no stopwatch tells two strategies apart: a plan within it counts as optimal."""
WIDEST = 0.1
"""Share of the time beyond which no two strategies are looked at as tied; few are."""
SURE = 2.0 / 3.0
"""Probability of being faster from which a strategy is not tied."""
NEARLY_FULL = 0.95
"""Share of the usable memory from which a plan is called tight."""
TIGHT = 1.0
"""Doubt that tight memory adds: as much as another vendor's machine."""
SWITCH = 0.1
"""Doubt that every switch adds which a plain strategy leaves alone, and every factor of four in chunks per stage."""
LEAST = 0.005
"""Least price of a step of doubt, in shares of the time."""
_NONE = ("none", *PLAIN)


class Doubts(NamedTuple):
    """Reasons against N strategies other than their time, arrays (N,)."""

    distance: Floats
    """To the nearest measured run."""
    filled: Floats
    """Share of the usable memory that the fullest device needs."""
    switches: Floats
    """How many switches are not at their plain setting."""

    @property
    def total(self) -> Floats:
        """The sum that is weighed against time."""
        return self.distance + TIGHT * (self.filled > NEARLY_FULL) + SWITCH * self.switches


class Choice(NamedTuple):
    """The strategy taken, and why it is not the fastest; "" where it is."""

    taken: Incumbent
    reason: str


def width(ties: Ties) -> float:
    """How much slower than the fastest a strategy may be and be taken in its place, as a share."""
    return {"fastest": 0.0, "close": CLOSE, "validated": WIDEST}[ties]


def choose(outcome: Outcome, scenario: Scenario, tie_width: float, margin: float = 0.0) -> Choice:
    """The strategy with the least sum of time and doubt among those that are no more than ``tie_width`` slower.

    ``margin`` is the share of the devices' memory that the scenario leaves alone.

    They are among the rows that the search priced whole, by their even split, and fit; the proof is of the fastest.
    """
    fastest = outcome.best
    assert fastest is not None
    if not tie_width:
        return Choice(fastest, "")
    priced = price_strategy(fastest.row, scenario, fastest.assignment)
    against = doubts(fastest.row, priced.footprint.allocated.max(keepdims=True), scenario, margin)
    ceiling = fastest.iteration * (1.0 + tie_width)
    known = points(scenario, fastest.row, priced.breakdown, np.array([mfu_of(scenario, fastest.iteration)]))
    tied = [_best_of(part, fastest.iteration, ceiling, scenario, margin, known) for part in outcome.pool]
    weighed = [one for one in tied if one is not None and one.score < float(against.total[0]) - TOLERANCE]
    if not weighed:
        return Choice(fastest, "")
    best = min(weighed, key=lambda one: (round(one.score, 9), one.even))
    solved = best_split(best.row, scenario)
    if solved is None or solved.iteration > ceiling:
        return Choice(fastest, "")
    return Choice(solved, reason(against, best.against))


def only_tied(outcome: Outcome, tie_width: float) -> list[Priced]:
    """The rows that `choose` looks at, of all that a search saw; a few, where it keeps thousands."""
    if outcome.best is None or not tie_width:
        return []
    ceiling = outcome.best.iteration * (1.0 + tie_width)
    parts = [part.take(part.fits & (part.even_split_seconds <= ceiling)) for part in outcome.pool]
    return [part for part in parts if len(part.rows)]


class _Tied(NamedTuple):
    """The best of some tied rows: its score, seconds of its even split, the row and what speaks against it."""

    score: float
    even: float
    row: Strategies
    against: Doubts


def _best_of(
    part: Priced, fastest: float, ceiling: float, scenario: Scenario, margin: float, known: Points
) -> _Tied | None:
    """The row of least time and doubt among those that fit, are under the ceiling and tied; None where there is none.

    ``known`` is what the model of errors knows of the fastest.
    """
    near: Ints = np.flatnonzero(part.fits & (part.even_split_seconds <= ceiling))
    if len(near):
        near = near[_tied_with(known, fastest, part.take(near), scenario)]
    if not len(near):
        return None
    rows, even = part.rows.take(near), part.even_split_seconds[near]
    against = doubts(rows, part.even_split_peak_bytes[near], scenario, margin)
    score = (even / fastest - 1.0) / max(figures().curse, LEAST) + against.total
    i = np.lexsort((even, np.round(score, 9)))[:1]
    return _Tied(
        float(score[i[0]]),
        float(even[i[0]]),
        part.one(int(near[i[0]]), scenario),
        Doubts(*(part[i] for part in against)),
    )


def _tied_with(known: Points, fastest: float, part: Priced, scenario: Scenario) -> Bools:
    """Which rows are not surely slower than the fastest, or all but as fast, (N,)."""
    seconds = part.even_split_seconds
    others = points(scenario, part.rows, even_breakdown(part, scenario).columns(), mfu_of(scenario, 1.0) / seconds)
    faster = probability_faster(known, others, np.log(seconds / fastest), scenario.stack)
    found: Bools = (faster < SURE) | (seconds <= fastest * (1.0 + CLOSE))
    return found


def points_of(one: Incumbent, resolved: Resolved) -> Points:
    """What the model of errors knows of a strategy for a job."""
    scenario, several = resolved.scenario, resolved.mixed is not None
    terms = price(one.row, resolved.question, one.assignment).breakdown
    mfu = np.array([mfu_of(scenario, one.iteration)])
    return points(scenario, first_in_pipeline(one.row), terms, mfu, farther=MIXTURE * several)


def faster(best: Incumbent, other: Incumbent, resolved: Resolved, known: Points | None = None) -> float:
    """Probability that the best is faster than another strategy for the same job; its ``points_of`` are ``known``."""
    gap = np.log([other.iteration / best.iteration])
    each = points_of(best, resolved) if known is None else known, points_of(other, resolved)
    return float(probability_faster(*each, gap, resolved.scenario.stack)[0])


def better_validated(outcome: Outcome, taken: Incumbent, scenario: Scenario, margin: float = 0.0) -> Advice | None:
    """The strategy that ``ties=validated`` would take, as advice; None where that is the one taken."""
    choice = choose(outcome, scenario, width("validated"), margin)
    at, seconds = choice.taken.row.row(0), choice.taken.iteration
    if not choice.reason or at == taken.row.row(0):
        return None
    degrees = [f"{name.upper()} {at[name]}" for name in ("tp", "cp", "pp", "vpp", "dp", "ep") if at[name] > 1]
    text = f"{seconds / taken.iteration - 1:+.2%}, but {choice.reason}"
    return Advice(subject=" ".join(degrees) or "no parallelism", text=text, iteration_seconds=seconds)


def doubts(rows: Strategies, allocated: Floats, scenario: Scenario, margin: float = 0.0) -> Doubts:
    """Doubts about strategies that allocate so many bytes on their fullest device, of which a margin is left alone."""
    away = distance(traits(scenario, rows), measured().traits)
    whole = needed_bytes(rows, scenario, allocated)
    nearest = away.min(axis=1) if len(rows) else np.zeros(0)
    return Doubts(nearest, (1.0 - margin) * whole / scenario.group.accelerator.usable_memory, switches(rows))


def switches(rows: Strategies) -> Floats:
    """How many settings differ from the plainest, (N,)."""
    plain = np.array([name in _NONE for name in SCHEDULE_NAMES])
    usual = (rows.sharding_degree == 1) | (rows.sharding_degree == rows.dp * rows.cp)
    return (
        0.5 * np.log2(rows.vpp)
        + (rows.cp > 1)
        + ((rows.recompute > 0) | (rows.recompute_modules > 0))
        + (rows.zero_stage >= 2)
        + (rows.offload > 0)
        + (rows.vocabulary > 0)
        + (rows.rank_order > 0)
        + ~usual
        + ~plain[rows.schedule]
    )


def reason(fastest: Doubts, taken: Doubts) -> str:
    """Why the one taken is doubted less than the fastest, in words."""
    was, now = (tuple(float(part[0]) for part in one) for one in (fastest, taken))
    said = []
    if was[1] > NEARLY_FULL >= now[1]:
        said.append(f"fills {now[1]:.0%} of the memory in place of {was[1]:.0%}")
    if math.floor(100 * now[0]) < math.floor(100 * was[0]):
        said.append(f"is nearer to measured runs ({now[0]:.2f} in place of {was[0]:.2f})")
    if now[2] < was[2]:
        said.append("needs fewer unusual settings")
    return " and ".join(filter(None, [", ".join(said[:-1]), *said[-1:]]))
