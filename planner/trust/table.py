"""Measured runs with the errors of their predictions: what the trust in a prediction rests on."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.strategy import Bools, Floats, Ints
from planner.trust.error_model import SHARES, Points, Variances
from planner.trust.similarity import EXTENTS, NAMES, SIZES, SWITCHES, Traits

TABLE = Path(__file__).with_name("measured.csv")
FIGURES = Path(__file__).with_name("trust.toml")

ENOUGH = 2
"""Runs of one's own, of different strategies, that show how fast a source's runs are against predictions."""
LEFT_OUT = tuple(tomllib.loads(Path(__file__).with_name("not_fitted.toml").read_text(encoding="utf-8")))
"""Groups that no constant is fitted to; the file says why."""

_PUBLISHERS = tomllib.loads(Path(__file__).with_name("publishers.toml").read_text(encoding="utf-8"))
_PUBLISHER = {group: name for name, groups in _PUBLISHERS.items() for group in groups}
_RELEASE = re.compile(r"-(v?\d+\.[\d.]+|20\d\d(\.\d+)?|early20\d\d)$")


class Run(NamedTuple):
    """One measured run; the fields are the first columns of ``measured.csv``, the traits follow them."""

    group: str
    model: str
    seconds: float
    """Measured time of an iteration."""
    mfu: float
    """Model FLOP utilisation as measured, counted as for a plan."""
    error: float
    """Predicted over measured, minus one."""
    nearest: float
    """Distance to the nearest run of another publisher."""
    miss: float
    """Logarithm of measured over predicted, with constants fitted to the runs of all other publishers."""
    low: float
    """Ends of the interval of ``miss``, by a model of errors that knows the runs of all other publishers."""
    high: float
    micro_batch_tokens: float
    """Tokens that a replica takes at a time."""
    tokens_per_gpu: float
    """Of an iteration."""
    network: float
    """GB/s of a GPU in the outermost network that it uses."""
    precision: str
    shares: str
    """Of the predicted time, in thousandths, by ``error_model.SHARES``: "12 0 105 0 31 0 9 0 0"."""

    @property
    def source(self) -> str:
        """Who published it."""
        return source(self.group)

    @property
    def inside(self) -> bool:
        """Whether the interval holds it."""
        return self.low <= self.miss <= self.high


@dataclass(frozen=True)
class Measured:
    """The table: M runs and their traits; figures are arrays (M,)."""

    runs: tuple[Run, ...]
    traits: Traits

    @cached_property
    def sources(self) -> NDArray[np.str_]:
        """Who measured each."""
        return np.array([run.source for run in self.runs])

    def are_of(self, names: Sequence[str]) -> Bools:
        """Which runs each of N sources measured, (N, M)."""
        known, codes = self._coded_sources
        return np.array([known.get(name, -1) for name in names])[:, None] == codes

    @cached_property
    def _coded_sources(self) -> tuple[Mapping[str, int], Ints]:
        known, codes = np.unique(self.sources, return_inverse=True)
        return dict(zip(known.tolist(), range(len(known)), strict=True)), codes

    @cached_property
    def misses(self) -> Floats:
        """Logarithms of measured over predicted, with constants of all other sources."""
        return np.array([run.miss for run in self.runs])

    @cached_property
    def mfus(self) -> Floats:
        """Predicted utilisations."""
        return np.array([run.mfu / (1.0 + run.error) for run in self.runs])

    @cached_property
    def points(self) -> Points:
        """What the model of errors knows of each."""
        sizes, names = self.traits.sizes, self.traits.names
        tokens, each = (
            np.log2([getattr(run, name) for run in self.runs]) for name in ("micro_batch_tokens", "tokens_per_gpu")
        )
        shares = np.array([run.shares.split() for run in self.runs], dtype=np.float64).reshape(-1, len(SHARES)) / 1e3
        columns = [sizes["gpus"], tokens, sizes["parameters"], sizes["tp"], sizes["pp"], each]
        cells = zip(
            names["accelerator"], names["stack"], names["kind"], (run.precision for run in self.runs), strict=True
        )
        nearest = np.array([run.nearest for run in self.runs])
        return Points(
            shares=shares,
            sizes=np.stack(columns, axis=1),
            cells=np.array(["|".join(cell) for cell in cells]),
            utilisation=self.mfus,
            nearest=nearest,
            own_model=np.zeros(len(nearest), dtype=bool),
        )

    def take(self, chosen: NDArray[np.int64]) -> Measured:
        """Some of the runs."""
        return Measured(tuple(self.runs[i] for i in chosen), self.traits.take(chosen))


class Figures(NamedTuple):
    """What ``scripts/refresh_measured.py`` finds in the table and the sweeps; the keys of ``trust.toml``."""

    own_low: float
    """Least error that the interval holds of a publisher once ``ENOUGH`` of its runs have shown how fast it is, in
    scales of the model of errors; negative: faster than predicted."""
    own_high: float
    """Largest error that it holds."""
    region: float
    """Distance to the nearest run of another publisher that nine of ten measured runs keep within."""
    curse: float
    """Share by which the strategy predicted fastest of a measured sweep disappoints against the others of it."""
    ends: Mapping[str, tuple[float, float]]
    """Least and largest error that the interval of anybody's run holds, likewise, by ``planner.trust.kinds.KINDS``."""
    variances: Variances
    memory: Variances
    """The same of errors of memory, which know no terms of a breakdown."""


def source(group: str) -> str:
    """Who published a group of runs: all releases and all files of one publisher are one source."""
    name = _RELEASE.sub("", group)
    return _PUBLISHER.get(name, name)


@cache
def measured() -> Measured:
    """The shipped table, read once: nearest runs, the region and intervals rest on it."""
    return from_rows(read_rows(TABLE))


@cache
def figures() -> Figures:
    """The shipped figures, read once."""
    found = tomllib.loads(FIGURES.read_text(encoding="utf-8"))
    return Figures(**found | {name: Variances(**found[name]) for name in ("variances", "memory")})


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a shipped table as text, by the names of the columns: ``csv.DictReader``, several times as fast."""
    with path.open(encoding="utf-8", newline="") as lines:
        names, *rows = csv.reader(lines)
    return [dict(zip(names, row, strict=True)) for row in rows]


def from_rows(rows: list[dict[str, str]]) -> Measured:
    """The table out of its rows as text."""
    words = ("group", "model", "precision", "shares")
    values: list[list[Any]] = [
        [row[name] for row in rows] if name in words else [float(row[name]) for row in rows] for name in Run._fields
    ]
    columns = {key: np.array([float(row[key]) for row in rows]) for key in (*SIZES, *EXTENTS, *SWITCHES)}
    sizes = {key: value if key in SWITCHES else np.log2(value) for key, value in columns.items()}
    runs = tuple(Run._make(one) for one in zip(*values, strict=True))
    return Measured(runs, Traits({key: np.array([row[key] for row in rows]) for key in NAMES}, sizes))
