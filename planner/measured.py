"""Measured runs with the errors of their predictions: what the trust in a prediction rests on."""

from __future__ import annotations

import csv
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.strategy import Bools, Floats
from planner.likeness import EXTENTS, NAMES, SIZES, SWITCHES, Traits

TABLE = Path(__file__).with_name("measured.csv")
FIGURES = Path(__file__).with_name("trust.toml")

_RELEASE = re.compile(r"-(v?\d+\.[\d.]+|20\d\d(\.\d+)?|early20\d\d)$")


class Run(NamedTuple):
    """One measured run; the fields are the first columns of ``measured.csv``, the traits follow them."""

    group: str
    split: str
    """"fit" or "dev"."""
    model: str
    seconds: float
    """Measured time of an iteration."""
    mfu: float
    """Model FLOP utilisation as measured, counted as for a plan."""
    error: float
    """Predicted over measured, minus one."""
    miss: float
    """Logarithm of measured over predicted, with constants fitted to the runs of all other sources."""

    @property
    def source(self) -> str:
        """Who measured it; releases of one source are one."""
        return source(self.group)


@dataclass(frozen=True)
class Measured:
    """The table: M runs and their traits."""

    runs: tuple[Run, ...]
    traits: Traits
    sources: NDArray[np.str_]
    misses: Floats
    fitted: Bools
    """Of the fit split, on which everything that an interval needs is chosen."""

    def take(self, chosen: NDArray[np.int64]) -> Measured:
        """Some of the runs."""
        runs = tuple(self.runs[i] for i in chosen)
        return Measured(runs, self.traits.take(chosen), self.sources[chosen], self.misses[chosen], self.fitted[chosen])


class Figures(NamedTuple):
    """What ``scripts/refresh_measured.py`` finds in the table and the sweeps; the keys of ``trust.toml``."""

    low: float
    """Least miss that is covered, in expected misses; negative: faster than predicted."""
    high: float
    """Largest miss that is covered."""
    usual: float
    """Mean size of a source's misses, median over the sources."""
    region: float
    """Distance to the nearest run of another source that nine of ten measured runs keep within."""
    tie: float
    """Relative gap of two predictions, of one machine and model, that measurements bear out two times in three."""
    curse: float
    """Share by which the strategy predicted fastest of a measured sweep disappoints beside the others of it."""


def source(group: str) -> str:
    """The source of a group of runs: its name without a release."""
    return _RELEASE.sub("", group)


@cache
def measured() -> Measured:
    """The shipped table, read once."""
    with TABLE.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return from_rows(rows)


@cache
def figures() -> Figures:
    """The shipped figures, read once."""
    return Figures(**tomllib.loads(FIGURES.read_text(encoding="utf-8")))


def from_rows(rows: list[dict[str, str]]) -> Measured:
    """The table out of its rows as text."""
    runs = tuple(_run(row) for row in rows)
    return Measured(
        runs,
        Traits(
            {key: np.array([row[key] for row in rows]) for key in NAMES},
            {key: np.log2([float(row[key]) for row in rows]) for key in SIZES}
            | {key: np.log2([float(row[key]) for row in rows]) for key in EXTENTS}
            | {key: np.array([float(row[key]) for row in rows]) for key in SWITCHES},
        ),
        np.array([run.source for run in runs]),
        np.array([run.miss for run in runs]),
        np.array([run.split == "fit" for run in runs]),
    )


def _run(row: dict[str, str]) -> Run:
    numbers = {key: float(row[key]) for key in ("seconds", "mfu", "error", "miss")}
    return Run(row["group"], row["split"], row["model"], **numbers)
