"""How surely a strategy fits: errors of predicted memory, by the model of errors without terms of a breakdown.

What is learnt from are readings of memory, log(measured / predicted), and runs that ran or ran out of memory, which say
on which side of what a device has the need lay. The scale of an error grows with the distance between a question's
setting (machine, software, kind of model, number format, sizes) and that of the nearest reading of another publisher;
it is larger on few GPUs and where a program brings a model of its own. It is the same for all strategies of a question,
so that a probability of fitting is a margin of memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Floats
from planner.trust import error_model
from planner.trust.error_model import FEW, SHARES, Points
from planner.trust.similarity import NAMES, Traits, distance, setting
from planner.trust.table import figures, read_rows, source

FREEDOM: Final = 2.0
"""Degrees of freedom of the Student-t: errors of memory have heavier tails than those of times. Most publishers are off
by a few per cent, and some by a third, where something is kept that the model does not know of."""
SURE: Final = 0.8
"""Probability of fitting that a search keeps a margin for."""
TABLE: Final = Path(__file__).with_name("memory.csv")
SETTING: Final = tuple(name for name in NAMES if name != "schedule")
"""Names that two settings may differ in."""
EXTENT: Final = ("parameters", "gpus")
"""Sizes likewise."""
POINT: Final = ("micro_batch_tokens", "tp", "pp", "tokens_per_gpu")
"""Further sizes that the smooth part knows of a run."""


class Reading(NamedTuple):
    """A run whose memory was read, or of which it is known whether it fitted; the first columns of ``memory.csv``."""

    group: str
    reading: str
    """"allocated", "reserved" or "device"; empty where nothing was read."""
    error: float
    """Predicted over read, minus one; not a number where nothing was read."""
    miss: float
    """Logarithm of read over predicted, with constants of the allocator fitted to other publishers."""
    room: float
    """Logarithm of what the device has over what the run is predicted to need, likewise."""
    fits: str
    """"yes", "no", or empty where it is not known."""
    nearest: float
    """Distance to the nearest reading of another publisher."""
    scale: float
    """Scale of the error, by figures found without the publisher."""
    precision: str
    own_model: str
    """"yes" where the program brings its own model."""

    @property
    def source(self) -> str:
        """Who published it."""
        return source(self.group)


@dataclass(frozen=True)
class Readings:
    """The table: M runs and their settings; figures are arrays (M,)."""

    runs: tuple[Reading, ...]
    traits: Traits
    """Of ``SETTING`` and ``EXTENT``."""
    extent: Floats
    """Logarithms to base 2 of ``POINT``, (M, 4)."""

    def column(self, name: str) -> NDArray[Any]:
        """One figure of every run."""
        return np.array([getattr(run, name) for run in self.runs])

    @cached_property
    def sources(self) -> NDArray[np.str_]:
        """Who measured each."""
        return self.column("source")

    @cached_property
    def read(self) -> Bools:
        """Whether memory was read."""
        return self.column("reading") != ""

    @cached_property
    def points(self) -> Points:
        """What the model of errors knows of each."""
        names, sizes, count = self.traits.names, self.traits.sizes, len(self.runs)
        columns = (sizes["gpus"], self.extent[:, 0], sizes["parameters"], *self.extent[:, 1:].T)
        cells = zip(names["accelerator"], names["stack"], names["kind"], self.column("precision"), strict=True)
        return Points(
            shares=np.zeros((count, len(SHARES))),
            sizes=np.stack(columns, axis=1),
            cells=np.array(["|".join(cell) for cell in cells]),
            utilisation=np.ones(count),
            nearest=self.column("nearest"),
            own_model=self.column("own_model") == "yes",
        )

    def take(self, chosen: NDArray[np.int64]) -> Readings:
        """Some of the runs."""
        return Readings(tuple(self.runs[i] for i in chosen), self.traits.take(chosen), self.extent[chosen])


@cache
def readings() -> Readings:
    """The shipped table, read once; ``scripts/refresh_measured.py`` writes it."""
    return from_rows(read_rows(TABLE))


def from_rows(rows: list[dict[str, str]]) -> Readings:
    """The table out of its rows as text."""
    words = ("group", "reading", "fits", "precision", "own_model")
    values: list[dict[str, Any]] = [
        {name: row[name] if name in words else float(row[name] or "nan") for name in Reading._fields} for row in rows
    ]
    sizes = {key: np.log2([float(row[key]) for row in rows]) for key in (*EXTENT, *POINT)}
    names = {key: np.array([row[key] for row in rows]) for key in SETTING}
    traits = Traits(names, {key: sizes[key] for key in EXTENT})
    return Readings(tuple(Reading(**one) for one in values), traits, np.stack([sizes[key] for key in POINT], axis=1))


def of_setting(found: Traits) -> Traits:
    """The traits that two settings may differ in."""
    return Traits({key: found.names[key] for key in SETTING}, {key: found.sizes[key] for key in EXTENT})


def nearest_reading(scenario: Scenario) -> float:
    """Distance of a question's setting to the nearest where memory was read."""
    return float(distance(of_setting(setting(scenario)), _settings()).min())


def memory_scale(scenario: Scenario) -> float:
    """Scale of the logarithm of needed over predicted memory, of every strategy of a question."""
    known, nearest = figures().memory, nearest_reading(scenario)
    alone = known.common**2 + known.cell**2 + known.smooth**2 + known.noise**2
    own = known.own_model * scenario.stack.own_model
    return math.sqrt(alone) * math.exp(known.distance * nearest + known.few * (scenario.gpus < FEW) + own)


def usual_margin(scenario: Scenario) -> float:
    """The share of the memory that a search leaves free, so that its plan fits with a probability of ``SURE``.

    By what runs of one's own need, where a stack was calibrated on such. In whole tenths of a per cent.
    """
    own = scenario.stack.calibrated.memory_margin
    share = -math.expm1(-score_at(SURE) * memory_scale(scenario)) if own is None else own
    return math.ceil(1000.0 * share) / 1000.0


def below(scores: Floats) -> Floats:
    """Probability that a Student-t of ``FREEDOM`` = 2 degrees lies below each score [Abramowitz64, 26.7.4]."""
    return 0.5 + scores / (2.0 * np.sqrt(FREEDOM + scores**2))


def score_at(share: float) -> float:
    """The score that it lies below with a probability: the inverse of `below`."""
    side = 2.0 * share - 1.0
    return side * math.sqrt(FREEDOM / (1.0 - side**2))


@cache
def _settings() -> Traits:
    """Where memory was read, each setting once."""
    apart = {tuple(row[name] for name in (*SETTING, *EXTENT)): row for row in read_rows(TABLE) if row["reading"]}
    return from_rows(list(apart.values())).traits


def fit_probability(scenario: Scenario, filled: float) -> float:
    """Probability that a strategy fits; by what runs of one's own need, where a stack was calibrated on such.

    Args:
        scenario: what is trained on what.
        filled: share of what its fullest device has that it is predicted to need.
    """
    room, own = -math.log(max(filled, 1e-9)), scenario.stack.calibrated
    if own.memory_runs:
        score = (room - math.log(own.memory_needed)) / max(own.memory_uncertain, 1e-9)
        return float(error_model.below(np.array([score]))[0])
    return float(below(np.array([room / memory_scale(scenario)]))[0])


def probabilities(known: Readings) -> Floats:
    """Of fitting, of every run of the table, by figures found without its publisher, (M,)."""
    return below(known.column("room") / known.column("scale"))


def verdicts(known: Readings, said: Bools) -> dict[str, float]:
    """How often it is right to say of runs of the table that they fit, ``said`` (M,).

    Returns:
        ``runs`` and ``failed`` count; shares: ``right``; ``caught`` of those that ran out of memory; ``refused`` of
        those that ran; ``ran`` of those said to fit.
    """
    fits = known.column("fits")
    ran, said = fits[fits != ""] == "yes", said[fits != ""]
    return {
        "runs": len(ran),
        "failed": int((~ran).sum()),
        "right": float((said == ran).mean()),
        "caught": float((~said)[~ran].mean()),
        "refused": float((~said)[ran].mean()),
        "ran": float(ran[said].mean()),
    }
