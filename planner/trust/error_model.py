"""Errors of predicted times as one statistical model, from which intervals and the order of two plans come.

The error of run i of a publisher is y = log(measured / predicted):

    y_i = s_i (a + sum_k f_ik b_k + c_cell(i) + g(x_i) + e_i)

``a`` is common to the publisher's runs; ``b_k`` is the log factor of term k of the breakdown and f_ik the term's
share of the predicted time, which is the slope of log time in the log of that factor; ``c`` is common to the runs of
one machine, software, kind of model and number format; ``g`` is smooth in the logarithms x of sizes; ``e`` is noise.
All are normal with the standard deviations of ``Variances`` and share one chi variable, so that runs of a publisher
are together a multivariate Student-t: publishers differ by more than runs do, and some by far more [Rasmussen06, ch.
9.9]. s is how much wider the errors of such a run are: s = mfu^-p e^(q d) r^[few] o^[own], with its predicted
utilisation, its distance to the nearest measured run, fewer than eight GPUs, and, for errors of memory alone, a model
of the program's own. ``planner.runs.error_fit`` finds the figures, each publisher left out in turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.strategy import Bools, Floats

TERMS: Final[Mapping[str, tuple[str, ...]]] = {
    "tensor_traffic": ("tp", "cp"),
    "expert_traffic": ("ep",),
    "data_traffic": ("dp",),
    "pipeline": ("bubble", "pp"),
    "host": ("host",),
    "recomputation": ("recompute",),
    "optimizer": ("optimizer",),
    "offload": ("offload",),
}
"""Terms with a factor of their own, and the parts of the breakdown that they hold."""
EXPERT_COMPUTE: Final = "expert_compute"
"""The computation of models with experts, which has one too; that of others has the common factor alone."""
SHARES: Final = (*TERMS, EXPERT_COMPUTE)
SIZES: Final = ("gpus", "micro_batch_tokens", "parameters", "tp", "pp", "tokens_per_gpu")
"""What the smooth part knows of a run, as logarithms to base 2; its length scale is one doubling."""
FREEDOM: Final = 4.0
"""Degrees of freedom of the Student-t: between 3 and 6 unseen publishers are foretold alike."""
FEW: Final = 8
"""GPUs below which errors are wider."""


class Variances(NamedTuple):
    """Standard deviations of the parts of an error, and how its width follows from the kind of run."""

    common: float
    tensor_traffic: float
    expert_traffic: float
    data_traffic: float
    pipeline: float
    host: float
    recomputation: float
    optimizer: float
    offload: float
    expert_compute: float
    cell: float
    smooth: float
    noise: float
    utilisation: float
    """Power p of the predicted utilisation."""
    distance: float
    """Rate q of the distance to the nearest measured run."""
    few: float
    """Logarithm of the factor r of runs on few GPUs."""
    own_model: float = 0.0
    """Logarithm of the factor o of runs whose program brings its own model (``Stack.own_model``); 0 of times."""

    @property
    def shares(self) -> Floats:
        """Standard deviations of the factors of ``SHARES``."""
        return np.array([getattr(self, name) for name in SHARES])


@dataclass(frozen=True)
class Points:
    """What the model knows of M runs; arrays over them."""

    shares: Floats
    """Of the predicted time, by ``SHARES``, (M, 9)."""
    sizes: Floats
    """Logarithms to base 2, by ``SIZES``, (M, 6)."""
    cells: NDArray[np.str_]
    """Machine, software, kind of model and number format."""
    utilisation: Floats
    """Predicted, 0 to 1."""
    nearest: Floats
    """Distance to the nearest measured run of another publisher."""
    own_model: Bools
    """Whether the program brings its own model."""

    def take(self, chosen: NDArray[np.int64]) -> Points:
        """Some of the runs."""
        return Points(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @classmethod
    def joined(cls, parts: Iterable[Points]) -> Points:
        """The runs of several together."""
        return cls(*(np.concatenate(columns) for columns in zip(*(vars(one).values() for one in parts), strict=True)))

    def widths(self, known: Variances) -> Floats:
        """s, (M,)."""
        few = 2.0 ** self.sizes[:, SIZES.index("gpus")] < FEW
        grown = known.distance * self.nearest + known.few * few + known.own_model * self.own_model
        widths: Floats = np.maximum(self.utilisation, 1e-3) ** -known.utilisation * np.exp(grown)
        return widths


class Likeness(NamedTuple):
    """How alike M runs and N others are, 0 to 1, arrays (M, N)."""

    cell: Floats
    """1 in the same cell."""
    size: Floats
    """By the smooth part."""
    itself: Floats
    """1 of a run and itself, which have their noise in common."""


def likeness(one: Points, other: Points) -> Likeness:
    """How alike runs are; a run is itself where the two are one object."""
    apart = ((one.sizes[:, None] - other.sizes) ** 2).sum(axis=2)
    cell = np.asarray(one.cells[:, None] == other.cells, dtype=np.float64)
    return Likeness(cell, np.exp(-apart / 2.0), np.eye(*cell.shape) * (one is other))


def covariance(one: Points, other: Points, known: Variances, alike: Likeness | None = None) -> Floats:
    """Covariance of the errors of runs of one publisher (M, N), up to the chi variable.

    Args:
        one: M runs.
        other: N runs.
        known: the standard deviations.
        alike: what :func:`likeness` says of the two, where it is known.
    """
    alike = alike or likeness(one, other)
    total = known.common**2 + (one.shares * known.shares**2) @ other.shares.T
    total = total + known.cell**2 * alike.cell + known.smooth**2 * alike.size + known.noise**2 * alike.itself
    found: Floats = total * one.widths(known)[:, None] * other.widths(known)
    return found


def spread(points: Points, known: Variances) -> Floats:
    """Scale of the error of each run alone, (M,), to the last digit the same among however many."""
    squares = (points.shares * known.shares) ** 2
    alone = known.common**2 + (squares[:, None] @ np.ones(len(SHARES)))[:, 0]
    scale: Floats = np.sqrt(alone + known.cell**2 + known.smooth**2 + known.noise**2) * points.widths(known)
    return scale


def probability_faster(one: Points, others: Points, gaps: Floats, known: Variances) -> Floats:
    """Probability that a run is faster than each of N others of the same job, (N,).

    What both have in common cancels: of layouts that are nearly alike a small gap decides.

    Args:
        one: the run, M = 1.
        others: N other ones.
        gaps: log(predicted time of the other / predicted time of the one), (N,).
        known: the standard deviations.
    """
    shared = covariance(one, others, known)[0]
    squared = spread(one, known) ** 2 + spread(others, known) ** 2 - 2.0 * shared
    return below(gaps / np.sqrt(np.maximum(squared, 1e-12)))


def below(scores: Floats) -> Floats:
    """Probability that a Student-t of ``FREEDOM`` = 4 degrees lies below each score [Abramowitz64, 26.7.4]."""
    share = scores / np.sqrt(FREEDOM + scores**2)
    return 0.5 + share * (0.75 - 0.25 * share**2)


def score_at(share: float) -> float:
    """The score that it lies below with a probability from a half to below 1: the inverse of `below` [Abramowitz64]."""
    root = math.sqrt(4.0 * share * (1.0 - share))
    return 2.0 * math.sqrt(max(math.cos(math.acos(root) / 3.0) / root - 1.0, 0.0))
