"""Seconds of one layer as an iteration reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodels.layer.forward_backward import Passes
from costmodels.strategy import Floats


class Windows:
    """The computation of a layer that hides traffic, pass by pass, of whatever holds its five terms."""

    __slots__ = ()
    forward_window: Floats
    backward_window: Floats
    repeated_window: Floats
    paired_forward: Floats
    paired_backward: Floats

    @property
    def window(self) -> Passes:
        """The computation of one layer that data-parallel traffic can hide behind."""
        return Passes(self.forward_window, self.backward_window)

    @property
    def repeating_window(self) -> Passes:
        """Computation of one layer that traffic of every micro-batch hides behind, what is recomputed included."""
        return Passes(self.forward_window, self.backward_window + self.repeated_window)

    @property
    def paired(self) -> Passes:
        """Computation of one layer that other micro-batches' exchanges of experts run beside."""
        return Passes(self.paired_forward, self.paired_backward)


@dataclass(frozen=True, slots=True)
class LayerTerms(Windows):
    """Seconds of one layer of a kind, arrays (N,); the fields are those of ``iteration.RowSeconds``."""

    layer: Floats
    forward: Floats
    backward: Floats
    layer_tp: Floats
    layer_cp: Floats
    layer_ep: Floats
    layer_alone: Floats
    layer_launch: Floats
    recompute: Floats
    checkpointing: Floats
    weight: Floats
    selective: Floats
    layer_offload: Floats
    forward_window: Floats
    backward_window: Floats
    repeated_window: Floats
    paired_forward: Floats
    paired_backward: Floats

    def take(self, rows: NDArray[Any]) -> LayerTerms:
        """The given rows (an index or mask)."""
        return LayerTerms(*(getattr(self, field.name)[rows] for field in fields(self)))


def mean_terms(terms: Sequence[LayerTerms], shares: Sequence[float]) -> LayerTerms:
    """An average layer: every kind by its share of the depth."""
    if len(terms) == 1:
        return terms[0]
    names = [field.name for field in fields(LayerTerms)]
    return LayerTerms(*(np.dot(shares, [getattr(term, name) for term in terms]) for name in names))
