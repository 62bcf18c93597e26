"""Errors of the shipped runs with their publisher known and with it left out, side by side, by kind of run.

Left out means that no run of the publisher was there when constants, figures of the model of errors and ends of
intervals were found. All but widths are means over publishers.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from planner.runs.corpus import Item, grouped
from planner.runs.figures import Column, table
from planner.trust.interval import COVERAGE
from planner.trust.kinds import kinds_of, kinds_of_readings
from planner.trust.memory import SURE, Reading, Readings, probabilities, readings, score_at, verdicts
from planner.trust.table import Measured, measured

COLUMNS: Final = (
    Column("n", "runs", 6, str),
    Column("publishers", "publishers", 11, str),
    Column("in_sample", "in sample", 10, "{:.1%}".format),
    Column("unseen", "unseen", 8, "{:.1%}".format),
    Column("inside", "inside", 7, "{:.0%}".format),
    Column("width", "half width", 11, "{:.0%}".format),
)
FITS: Final = (
    Column("right", "right", 8, "{:.1%}".format),
    Column("caught", "failures caught", 17, "{:.0%}".format),
    Column("ran", "fit and ran", 13, "{:.1%}".format),
    Column("refused", "ran, refused", 14, "{:.1%}".format),
)
WIDE: Final = 26
"""Characters of the names of kinds, with which the tables fit a terminal."""
ASKED: Final = 28
"""The same of what is asked of a run that is said to fit."""
Middle = Callable[[Sequence[float]], float]
"""A mean or a median."""


def unseen_times() -> dict[str, dict[str, float]]:
    """Of iteration times: error in sample and unseen, share inside the interval, its half width.

    The width is the median publisher's: a few, of whom nothing is known, may be off by many times.
    """
    known = measured()
    return {name: _times(known.take(np.flatnonzero(runs))) for name, runs in kinds_of(known).items() if runs.any()}


def _times(known: Measured) -> dict[str, float]:
    mean = _mean_over_publishers(known.runs)
    return {
        **_counts(known.runs),
        "in_sample": mean(lambda run: abs(run.error)),
        "unseen": mean(lambda run: abs(math.expm1(-run.miss))),
        "inside": mean(lambda run: run.inside, statistics.fmean),
        "width": mean(lambda run: (math.exp(run.high) - math.exp(run.low)) / 2.0, outer=statistics.median),
    }


def unseen_memory() -> dict[str, dict[str, float]]:
    """The same of readings of memory."""
    known = readings()
    found = {name: known.read & runs for name, runs in kinds_of_readings(known).items()}
    return {name: _memory(known.take(np.flatnonzero(runs))) for name, runs in found.items() if runs.any()}


def _memory(known: Readings) -> dict[str, float]:
    mean, ends = _mean_over_publishers(known.runs), score_at((1.0 + COVERAGE) / 2.0)

    def wide(run: Reading) -> float:
        return ends * run.scale

    return {
        **_counts(known.runs),
        "in_sample": mean(lambda run: abs(run.error)),
        "unseen": mean(lambda run: abs(math.expm1(-run.miss))),
        "inside": mean(lambda run: abs(run.miss) <= wide(run), statistics.fmean),
        "width": mean(lambda run: math.sinh(wide(run)), outer=statistics.median),
    }


def unseen_fits() -> dict[str, dict[str, float]]:
    """How often it is right that runs fit, by what is asked of them."""
    known = readings()
    room, chance = known.column("room"), probabilities(known)
    return {
        "to the edge of the memory": verdicts(known, room >= 0.0),
        f"{SURE:.0%} sure to fit (usual)": verdicts(known, chance >= SURE),
    }


def _counts(runs: Collection[Any]) -> dict[str, float]:
    return {"n": len(runs), "publishers": len({run.source for run in runs})}


def _mean_over_publishers(runs: Iterable[Item]) -> Callable[..., float]:
    by_publisher = list(grouped(runs, lambda run: run.source).values())  # type: ignore[attr-defined]

    def mean(
        size: Callable[[Item], float], inner: Middle = statistics.median, outer: Middle = statistics.fmean
    ) -> float:
        return outer([inner([size(run) for run in some]) for some in by_publisher])

    return mean


_EXPLAINED: Final = (
    "Iteration time: median error where constants know the publisher (in sample) and",
    f"where not (unseen); runs inside the {COVERAGE:.0%} interval, half its width (median)",
)


_FITS_EXPLAINED: Final = (
    "(failures caught: of those that ran out of memory, said not to fit;",
    "fit and ran: of those said to fit, ran; ran, refused: of those that ran, said",
    "not to fit)",
)


def unseen_lines(figures: Mapping[str, Any]) -> Iterator[str]:
    """The figures as tables."""
    for key, title in (("unseen", _EXPLAINED), ("unseen_memory", ("Memory, likewise",))):
        if figures[key]:
            yield from title
            yield from (*table(figures[key], COLUMNS, "kind", WIDE), "")
    if asked := figures["unseen_fits"]:
        one = next(iter(asked.values()))
        yield f"Does it fit: {one['runs']:,} runs, {one['failed']} of which ran out of memory; publisher left out"
        yield from _FITS_EXPLAINED
        yield from (*table(asked, FITS, "said to fit", ASKED), "")
