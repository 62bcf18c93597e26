"""Forward and backward seconds of the same work, and the products that nearly all of it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from costmodels.arrays import Bools, Columns, Number
from costmodels.primitives.kernels import matmul_seconds
from costmodels.scenario import Scenario
from costmodels.strategy import DENSE_AXES, Floats, Strategies, of_axes
from hardware.kernels import GemmFit

ADDED = 2.0
"""Bytes per value by which one more gradient of an input lengthens the kernel that reads their sum."""
ADDED_ALONE = 6.0
"""Bytes per value of a kernel of its own that adds one more gradient of an input: two are read, one is written."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Passes(Columns):
    """Forward and backward seconds of the same piece of work, arrays (N,)."""

    __array_ufunc__ = None  # leaves an array times passes to ``__rmul__``
    forward: Floats
    backward: Floats

    def __add__(self, other: Passes) -> Passes:
        return Passes(self.forward + other.forward, self.backward + other.backward)

    def __sub__(self, other: Passes) -> Passes:
        return Passes(self.forward - other.forward, self.backward - other.backward)

    def __rmul__(self, share: Floats | float) -> Passes:
        return Passes(share * self.forward, share * self.backward)

    def where(self, here: Bools, other: Passes) -> Passes:
        """These seconds where the condition holds, the other's elsewhere."""
        forward = np.where(here, self.forward, other.forward)
        return Passes(forward, np.where(here, self.backward, other.backward))

    @property
    def total(self) -> Floats:
        """Forward and backward together."""
        return self.forward + self.backward


def average(layers: Sequence[R], shares: Sequence[float]) -> R:
    """Records of arrays or ``Passes``, field by field weighed by their shares and added up."""
    if len(layers) == 1:
        return layers[0]
    mean = {}
    for field in fields(cast("Any", layers[0])):
        parts = [share * getattr(layer, field.name) for layer, share in zip(layers, shares, strict=True)]
        mean[field.name] = sum(parts[1:], parts[0])
    return type(layers[0])(**mean)


def no_passes(strategies: Strategies) -> Passes:
    """Work that no strategy has."""
    return Passes(np.zeros(len(strategies)), np.zeros(len(strategies)))


def streamed(forward: Floats, backward: Floats, scenario: Scenario, share: float | None = None) -> Passes:
    """Seconds of memory-bound kernels that move so many bytes in either pass, (N,), at a share of the bandwidth."""
    return Passes(scenario.rates.stream_seconds(forward, share), scenario.rates.stream_seconds(backward, share))


@of_axes(*DENSE_AXES)
def tokens_per_rank(strategies: Strategies, scenario: Scenario) -> Floats:
    """Tokens of one micro-batch on one rank, before any split over the tensor ranks, shape (N,)."""
    return sequences_per_rank(strategies, scenario) * scenario.seq_length / strategies.cp


def sequences_per_rank(strategies: Strategies, scenario: Scenario) -> Floats:
    """Sequences of one micro-batch, shape (N,): several of every sample where they are compared."""
    return strategies.micro_batch_size * scenario.task.sequences


@of_axes(*DENSE_AXES)
def region_tokens(strategies: Strategies, scenario: Scenario) -> Floats:
    """Tokens that norms and residuals of one rank see: split over the tensor ranks by sequence parallelism."""
    tokens = tokens_per_rank(strategies, scenario)
    return np.where(strategies.sequence_parallel > 0, tokens / strategies.tp, tokens)


def linear(T: Floats, n: Number, k: Number, scenario: Scenario) -> Passes:
    """One product of a layer in the precision of the layers: T tokens, n outputs, k inputs."""
    rates = scenario.rates
    plain = product(T, n, k, rates.matmul, rates.matmul_peak, rates.bandwidth, frozen=scenario.frozen)
    return plain + _whole_quantisation(T, n, k, scenario)


def linears(T: Floats, widths: Sequence[Number], k: Number, scenario: Scenario, *, name: str) -> Passes:
    """Products of one input with so many outputs each: one product, or layers of their own where a stack's are.

    Layers of their own return a gradient of the input each, to be added up. Under a recipe of single layers, and
    wherever nothing fuses, each of them also quantises the input for itself.
    """
    rates, stack = scenario.rates, scenario.stack
    if name not in stack.kernels.split_projections or len(widths) == 1:
        return linear(T, sum(widths[1:], widths[0]), k, scenario)
    moved = (ADDED if stack.switches.fused_elementwise else ADDED_ALONE) * (len(widths) - 1) * T * k
    adding = rates.stream_seconds(moved)
    total = Passes(np.zeros_like(adding), adding)
    for n in widths:
        total = total + product(T, n, k, rates.matmul, rates.matmul_peak, rates.bandwidth, frozen=scenario.frozen)
    shared = not scenario.recipe.by_layer and stack.switches.fused_elementwise
    for n in (sum(widths[1:], widths[0]),) if shared else widths:
        total = total + _whole_quantisation(T, n, k, scenario)
    return total


def _whole_quantisation(T: Floats, n: Number, k: Number, scenario: Scenario) -> Passes:
    """What quantising for one product takes, the start and drain of its kernels included."""
    started = np.full(T.shape, scenario.recipe.casts * scenario.rates.head.overhead)
    return quantisation(T, n, k, scenario) + Passes(started, started)


@of_axes(*DENSE_AXES)
def ffn_matmuls(strategies: Strategies, scenario: Scenario) -> Passes:
    """The two matrix products of a dense layer's feed-forward network."""
    model, T, t = scenario.model, tokens_per_rank(strategies, scenario), strategies.tp.astype(np.float64)
    widths = (model.ffn_hidden_size / t,) * model.ffn_branches
    return linears(T, widths, float(model.hidden_size), scenario, name="gate") + last_product(strategies, scenario)


def last_product(strategies: Strategies, scenario: Scenario) -> Passes:
    """The second of them."""
    model, T, t = scenario.model, tokens_per_rank(strategies, scenario), strategies.tp.astype(np.float64)
    return linear(T, float(model.hidden_size), float(model.ffn_hidden_size) / t, scenario)


def quantisation(T: Floats, n: Number, k: Number, scenario: Scenario) -> Passes:
    """Passes that quantise a product's input, its output's gradient and its weights, and scale what products return.

    Those that write columns out of rows take longer for their bytes, by the stack's ``transposing``; without weight
    gradients nobody reads columns.
    """
    recipe, slower = scenario.recipe, 1.0 / scenario.stack.kernels.transposed_cast_speed - 1.0
    each = recipe.input_traffic + recipe.columns * scenario.along_depth + recipe.transposed * slower
    if scenario.frozen:
        each = recipe.rows_traffic
    forward = T * k * each + n * k * recipe.weight_traffic
    backward = T * n * each + recipe.rescaled * (T * k + (0.0 if scenario.frozen else n * k))
    return streamed(forward, backward, scenario)


def product(
    T: Floats, n: Number, k: Number, fit: GemmFit, peak: Number, bandwidth: float, *, frozen: bool = False
) -> Passes:
    """y[T,n] = x[T,k] W: forward, data gradient with n and k exchanged, weight gradient with depth T.

    A ``frozen`` weight has no gradient.
    """
    n, k = np.full(T.shape, n), np.full(T.shape, k)
    every = [(T, n, k), (T, k, n), (n, k, T)]  # in one call, which takes a single strategy a third as long as three
    sides: NDArray[Any] = np.array(every[: 2 if frozen else 3])
    rows, columns, depth = sides[:, 0], sides[:, 1], sides[:, 2]
    seconds = matmul_seconds(m=rows, n=columns, k=depth, fit=fit, peak=peak, bandwidth=bandwidth)
    return Passes(seconds[0], seconds[1] if frozen else seconds[1] + seconds[2] * fit.wgrad_ratio)


def transpose_seconds(size: Floats, scenario: Scenario) -> Floats:
    """Seconds to copy a gathered or scattered buffer once more, where the sequence is not its outermost dimension."""
    return scenario.rates.stream_seconds(2.0 * size * scenario.stack.exchange.batch_first)
