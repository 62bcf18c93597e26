"""Measured runs with the errors of their predictions: what the trust in a prediction rests on."""

from __future__ import annotations

import csv
import re
import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.strategy import Floats
from planner.trust.similarity import EXTENTS, NAMES, SIZES, SWITCHES, Traits

TABLE = Path(__file__).with_name("measured.csv")
FIGURES = Path(__file__).with_name("trust.toml")

FURTHER = 0.3
"""A round number, not fitted: intervals with half or twice of it score 3 and 4 % worse (``benchmarks/likeness.py``)."""
ENOUGH = 2
"""Runs of one's own, of different strategies, that show how fast a source's runs are against predictions."""
LEFT_OUT = tuple(tomllib.loads(Path(__file__).with_name("not_fitted.toml").read_text(encoding="utf-8")))
"""Groups of the fit split that no constant is fitted to; the file says why."""

_RELEASE = re.compile(r"-(v?\d+\.[\d.]+|20\d\d(\.\d+)?|early20\d\d)$")


class Run(NamedTuple):
    """One measured run; the fields are the first columns of ``measured.csv``, the traits follow them."""

    group: str
    split: str
    """"fit", "dev" or "check"."""
    model: str
    seconds: float
    """Measured time of an iteration."""
    mfu: float
    """Model FLOP utilisation as measured, counted as for a plan."""
    error: float
    """Predicted over measured, minus one."""
    nearest: float
    """Distance to the nearest run of another source, of the fit and the dev split."""
    miss: float
    """Logarithm of measured over predicted, with constants fitted to the runs of all other sources."""

    @property
    def source(self) -> str:
        """Who measured it; releases of one source are one."""
        return source(self.group)


@dataclass(frozen=True)
class Measured:
    """The table: M runs and their traits; figures are arrays (M,)."""

    runs: tuple[Run, ...]
    traits: Traits

    @cached_property
    def sources(self) -> NDArray[np.str_]:
        """Who measured each."""
        return np.array([run.source for run in self.runs])

    @cached_property
    def splits(self) -> NDArray[np.str_]:
        """What each may be used for."""
        return np.array([run.split for run in self.runs])

    @cached_property
    def misses(self) -> Floats:
        """Logarithms of measured over predicted, with constants of all other sources."""
        return np.array([run.miss for run in self.runs])

    @cached_property
    def mfus(self) -> Floats:
        """Predicted utilisations."""
        return np.array([run.mfu / (1.0 + run.error) for run in self.runs])

    @cached_property
    def scales(self) -> Floats:
        """What utilisation and distance make of misses (:func:`scale`)."""
        return scale(self.mfus, np.array([run.nearest for run in self.runs]))

    @cached_property
    def scaled(self) -> Floats:
        """Misses of one size, however fast a run is and however far from others."""
        return self.misses / self.scales

    def take(self, chosen: NDArray[np.int64]) -> Measured:
        """Some of the runs."""
        return Measured(tuple(self.runs[i] for i in chosen), self.traits.take(chosen))

    def of(self, *splits: str) -> Measured:
        """The runs of some splits."""
        return self.take(np.flatnonzero(np.isin(self.splits, splits)))


class Figures(NamedTuple):
    """What ``scripts/refresh_measured.py`` finds in the table and the sweeps; the keys of ``trust.toml``."""

    low: float
    """Least miss that is covered, in expected misses; negative: faster than predicted."""
    high: float
    """Largest miss that is covered."""
    fitted_low: float
    """The same of a source that the shipped constants were fitted to: what is left of its misses."""
    fitted_high: float
    own_low: float
    """The same of a source once ``ENOUGH`` of its runs have shown how fast it is."""
    own_high: float
    usual: float
    """Mean size of a source's scaled misses, median over the sources."""
    region: float
    """Distance to the nearest run of another source that nine of ten measured runs keep within."""
    tie: float
    """Relative gap of two predictions, of one machine and model, that measurements bear out two times in three."""
    curse: float
    """Share by which the strategy predicted fastest of a measured sweep disappoints against the others of it."""


def source(group: str) -> str:
    """The source of a group of runs: its name without a release."""
    return _RELEASE.sub("", group)


def scale(mfu: Floats, nearest: Floats) -> Floats:
    """By how much misses are larger than of a run at full use of its devices that others have measured.

    The less of a step its products fill, the more else may be missing: by the root of the predicted utilisation.
    And the further from what was measured, the less was learnt: by e^(``FURTHER`` d) at a distance d.

    Args:
        mfu: predicted utilisation.
        nearest: distance to the nearest run of another source that mechanisms were looked for on (fit, dev).
    """
    return np.exp(FURTHER * nearest) / np.sqrt(mfu)


@cache
def measured() -> Measured:
    """The runs of the shipped table that nearest runs, the region and ties rest on."""
    return every_run().of("fit", "dev")


@cache
def every_run() -> Measured:
    """The shipped table, read once."""
    with TABLE.open(encoding="utf-8", newline="") as lines:
        return from_rows(list(csv.DictReader(lines)))


@cache
def figures() -> Figures:
    """The shipped figures, read once."""
    return Figures(**tomllib.loads(FIGURES.read_text(encoding="utf-8")))


def from_rows(rows: list[dict[str, str]]) -> Measured:
    """The table out of its rows as text."""
    words = ("group", "split", "model")
    values: list[dict[str, Any]] = [
        {name: row[name] if name in words else float(row[name]) for name in Run._fields} for row in rows
    ]
    columns = {key: np.array([float(row[key]) for row in rows]) for key in (*SIZES, *EXTENTS, *SWITCHES)}
    sizes = {key: value if key in SWITCHES else np.log2(value) for key, value in columns.items()}
    runs = tuple(Run(**one) for one in values)
    return Measured(runs, Traits({key: np.array([row[key] for row in rows]) for key in NAMES}, sizes))
