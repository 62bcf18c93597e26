"""From measured runs to the table and the figures that the trust in a prediction rests on."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.strategy import Floats
from planner.answer.build import mfu_of
from planner.runs.case import Case
from planner.runs.corpus import Item, grouped, scored_cases
from planner.runs.error_fit import fitted, without_each
from planner.runs.fit import samples
from planner.runs.judge import shipped
from planner.runs.least_squares import Constants, log_error
from planner.runs.leave_one_out import without_each as constants_without_each
from planner.runs.ranking import SMALLEST, Cell, cell_of
from planner.runs.schema import Run as MeasuredRun
from planner.trust.error_model import Variances, spread
from planner.trust.interval import COVERAGE, micro_batch_tokens, shares
from planner.trust.kinds import KINDS, kind_for_ends
from planner.trust.own_runs import by_shares, learn, left_uncertain, prior_of, scatter_of
from planner.trust.similarity import EXTENTS, NAMES, SIZES, SWITCHES, distance, traits
from planner.trust.table import ENOUGH, LEFT_OUT, Figures, Measured, Run, from_rows, source

COLUMNS = tuple(dict.fromkeys((*Run._fields, *NAMES, *SIZES, *SWITCHES, *EXTENTS)))
"""Of ``measured.csv``."""
MOST = 30
"""Runs of a group that the table keeps: enough to see its shape."""
TRUSTED_AFTER = 5.0
"""Publishers after which ends of a kind's own count as much as those of all. Of publishers left out the interval score
is 1.07 so, 1.10 with 20, 1.20 with ends of all alone, and 1.07 with those of the kind alone, which hold too few."""
WITHIN = 0.9
"""Share of the measured runs that the validated region holds."""


class Priced(NamedTuple):
    """One measured run with its price."""

    run: MeasuredRun
    case: Case
    measured: float
    predicted: float
    breakdown: Mapping[str, float]


def priced_runs(among: Container[str] | None = None) -> list[Priced]:
    """Every run that counts in the table of errors and can be priced; of these groups, where they are given."""
    cases = scored_cases(
        shipped(), lambda run: run.measured.iteration_seconds and (among is None or run.group in among)
    )
    priced = ((run, case, case.price()) for run, case in cases)
    return [
        Priced(run, case, run.measured.iteration_seconds or 0.0, price.iteration, price.breakdown)
        for run, case, price in priced
    ]


def thinned(runs: Iterable[Priced]) -> list[Priced]:
    """At most ``MOST`` runs of every group, evenly picked."""
    groups = grouped(runs, lambda one: one.run.group)
    return [one for key in sorted(groups) for one in thinned_evenly(groups[key])]


def thinned_evenly(runs: Sequence[Item]) -> Sequence[Item]:
    """At most ``MOST`` of some runs, evenly picked."""
    return runs[:: math.ceil(len(runs) / MOST)]


def miss(priced: Priced, without: Mapping[str, Constants]) -> float:
    """Logarithm of measured over predicted, as if the run's source had not been there to fit constants on.

    ``without`` has the constants without it, by source.
    """
    absent = without.get(source(priced.run.group))
    if absent is None:
        return math.log(priced.measured / priced.predicted)
    return -log_error(priced.case, priced.measured, absent)


def table(runs: Sequence[Priced]) -> list[dict[str, str]]:
    """The rows of ``measured.csv``, the ends of their intervals still open."""
    without = constants_without_each(samples(shipped(), LEFT_OUT))
    return _with_nearest([_record(run, miss(run, without)) for run in thinned(runs)])


def _with_nearest(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    known = from_rows([row | {"nearest": "0"} for row in rows])
    nearest = distances_to_other_sources(known, known).min(axis=1)
    return [row | {"nearest": f"{away:.3f}"} for row, away in zip(rows, nearest, strict=True)]


def _record(priced: Priced, missed: float) -> dict[str, str]:
    run, scenario, row = priced.run, priced.case.scenario, priced.case.strategy
    known, experts = traits(scenario, row), scenario.model.moe is not None
    sizes = {key: f"{2.0 ** float(known.sizes[key][0]):.4g}" for key in SIZES} | {"gpus": str(scenario.gpus)}
    return {
        "group": run.group,
        "model": run.source.model or scenario.model.name,
        "seconds": f"{priced.measured:.4g}",
        "mfu": f"{mfu_of(scenario, priced.measured):.3f}",
        "error": f"{priced.predicted / priced.measured - 1.0:.3f}",
        "miss": f"{missed:.3f}",
        "low": "0",
        "high": "0",
        "micro_batch_tokens": f"{micro_batch_tokens(row, scenario.seq_length)[0]:.4g}",
        "tokens_per_gpu": f"{scenario.tokens / scenario.gpus:.4g}",
        "network": f"{scenario.group.tiers[-1].link.bandwidth / 1e9:.4g}",
        "precision": scenario.precision,
        "shares": " ".join(f"{1e3 * share:.0f}" for share in shares(priced.breakdown, experts=experts)),
        **{key: str(known.names[key][0]) for key in NAMES},
        **sizes,
        **{key: f"{known.sizes[key][0]:.0f}" for key in SWITCHES},
        "vpp": f"{2.0 ** float(known.sizes['vpp'][0]):.0f}",
    }


def as_csv(rows: Sequence[Mapping[str, str]], names: Iterable[str] = ()) -> str:
    """The rows as a file, their columns in the order of the first unless names are given."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(names) or list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def find(rows: list[dict[str, str]], runs: Sequence[Priced], memory: Variances) -> tuple[list[dict[str, str]], Figures]:
    """The rows with the ends of their intervals, each by the runs of other publishers; and the figures by all.

    ``memory`` are the figures of errors of memory, which `memory_errors` finds.
    """
    known = from_rows(rows)
    shipped = fitted(known)
    scored, scale = np.empty(len(rows)), np.empty(len(rows))
    ends = np.empty((len(rows), 2))
    parts = list(without_each(known, shipped))
    for held, without in parts:
        scale[held] = spread(known.points.take(np.flatnonzero(held)), without)
    scored = known.misses / scale
    kinds = kind_for_ends(known.traits)
    for held, _ in parts:
        found = ends_by_kind(scored[~held], known.sources[~held], kinds[~held])
        ends[held] = [found[kind] for kind in kinds[held]]
    low, high = scale * ends[:, 0], scale * ends[:, 1]
    rows = [row | {"low": f"{a:.3f}", "high": f"{b:.3f}"} for row, a, b in zip(rows, low, high, strict=True)]
    region = weighted_quantile(
        distances_to_other_sources(known, known).min(axis=1), weights([run.group for run in known.runs]), WITHIN
    )
    own = once_conditioned(known, parts)
    return rows, Figures(
        *own,
        region=region,
        curse=curse(runs),
        ends=ends_by_kind(scored, known.sources, kinds),
        variances=shipped,
        memory=memory,
    )


def ends_by_kind(scores: Floats, sources: NDArray[np.str_], kinds: NDArray[np.str_]) -> dict[str, tuple[float, float]]:
    """Ends of intervals by kind of run: those of its own runs as far as it has publishers, else those of all runs."""
    common, found = np.array(_ends(scores, sources)), {}
    for kind in KINDS:
        mine = kinds == kind
        many = len(np.unique(sources[mine]))
        own = np.array(_ends(scores[mine], sources[mine])) if many else common
        low, high = common + many / (many + TRUSTED_AFTER) * (own - common)
        found[kind] = (float(low), float(high))
    return found


def _ends(scores: Floats, sources: NDArray[np.str_]) -> tuple[float, float]:
    low, high = tail_bounds(scores, weights(sources))
    return min(low, 0.0), max(high, 0.0)


def once_conditioned(known: Measured, without: Sequence[tuple[NDArray[np.bool_], Variances]]) -> tuple[float, float]:
    """The ends for a publisher that ``ENOUGH`` of its runs have taught: where its others lie about what is expected."""
    scores, names, traits = [], [], known.traits.names
    place = np.array(["|".join(at) for at in zip(known.sources, traits["accelerator"], traits["stack"], strict=True)])
    for held, variances in without:
        for at in np.unique(place[held]):  # as a profile is of one machine and software
            mine = np.flatnonzero(place == at)
            name = str(known.sources[mine[0]])
            for own, others in _divided(mine):
                scores.append(_scored(known, own, others, variances))
                names += [name] * len(others)
    return _ends(np.concatenate(scores), np.array(names))


def _divided(runs: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """``ENOUGH`` runs of a publisher and its others: the first ones, the next ones, and so on."""
    for first in range(0, len(runs) - ENOUGH, ENOUGH):
        taken = np.arange(first, first + ENOUGH)
        yield runs[taken], np.delete(runs, taken)


def _scored(known: Measured, own: NDArray[np.int64], others: NDArray[np.int64], variances: Variances) -> Floats:
    """Misses of the others about their centers once the own are known, in scales; as if all was corrected by shares."""
    points, new = known.points.take(own), known.points.take(others)
    learnt = learn(by_shares(points), known.misses[own], prior_of(points, variances), scatter_of(points, variances))
    _, scale = left_uncertain(learnt, new, variances)
    scores: Floats = (known.misses[others] - by_shares(new).longer(learnt.mean)) / scale
    return scores


def distances_to_other_sources(known: Measured, among: Measured) -> Floats:
    """Distances from N runs to M others (N, M), infinite to those of the same source."""
    same = known.sources[:, None] == among.sources
    return np.where(same, np.inf, distance(known.traits, among.traits))


def weights(names: Sequence[str] | NDArray[Any]) -> Floats:
    """Every name the same, and of it every run: a weight for each run, which sum to 1.

    Args:
        names: group or source of every run.
    """
    _, place, runs = np.unique(names, return_inverse=True, return_counts=True)
    weight: Floats = 1.0 / (len(runs) * runs[place])
    return weight


def weighted_quantile(values: Floats, weight: Floats, share: float) -> float:
    """The least value that has ``share`` of the weight at or below it."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order]) / weight.sum()
    return float(values[order][min(int(np.searchsorted(reached, share - 1e-12)), len(values) - 1)])


def tail_bounds(scores: Floats, weight: Floats) -> tuple[float, float]:
    """The ends beyond which either tail has half of what ``COVERAGE`` leaves out."""
    beyond = (1.0 - COVERAGE) / 2.0
    return weighted_quantile(scores, weight, beyond), weighted_quantile(scores, weight, 1.0 - beyond)


def sweeps(runs: Iterable[Priced]) -> dict[Cell, Floats]:
    """Logarithms of predicted and measured seconds per token (2, N), by sweep of ``SMALLEST`` or more strategies."""
    cells = grouped(runs, lambda one: cell_of(one.run, one.case))
    return {
        cell: np.log([(one.predicted / (n := one.case.scenario.tokens), one.measured / n) for one in found]).T
        for cell, found in cells.items()
        if len(found) >= SMALLEST
    }


def curse(runs: Iterable[Priced]) -> float:
    """How much the strategy predicted fastest disappoints within its sweep: median over the sources, at least 0.

    Its miss less the median miss of the sweep, meaned over the sweeps of a source.
    """
    found: dict[str, list[float]] = defaultdict(list)
    for cell, (predicted, measured) in sweeps(runs).items():
        missed = measured - predicted
        found[source(cell.group)].append(float(missed[np.argmin(predicted)] - np.median(missed)))
    return max(float(np.median([np.mean(mine) for mine in found.values()])), 0.0)


def as_toml(found: Figures) -> str:
    """The figures as a file."""
    head = "# Written by scripts/refresh_measured.py; planner/trust/table.py says what each is.\n"
    figures = found._asdict()
    ends = figures.pop("ends")
    parts = {name: figures.pop(name)._asdict() for name in ("variances", "memory")}
    lines = _lines(figures)
    lines += ["\n[ends]\n", *(f'"{kind}" = [{low:.4f}, {high:.4f}]\n' for kind, (low, high) in ends.items())]
    for name, values in parts.items():
        lines += [f"\n[{name}]\n", *_lines(values)]
    return "".join([head, *lines])


def _lines(values: Mapping[str, float]) -> list[str]:
    return [f"{name} = {value:.4f}\n" for name, value in values.items()]
