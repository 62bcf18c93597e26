"""Seconds of one layer as an iteration reads them."""

from __future__ import annotations

from dataclasses import dataclass

from costmodels.arrays import Columns, Floats
from costmodels.layer.forward_backward import Passes


@dataclass(frozen=True, slots=True)
class LayerTerms(Columns):
    """Seconds of one layer for one micro-batch, arrays (N,)."""

    layer: Floats
    """One layer, forward and backward, nothing recomputed, exposed communication included."""
    forward: Floats
    """One layer forward without tensor-parallel traffic."""
    backward: Floats
    layer_tp: Floats
    layer_cp: Floats
    layer_ep: Floats
    layer_alone: Floats
    """What experts' traffic takes beyond ``layer_ep`` in a micro-batch that has no partner."""
    layer_launch: Floats
    """What of a layer waits for the host, in ``forward`` and ``backward`` too."""
    recompute: Floats
    """One recomputed layer's second forward pass, communication included, and ``checkpointing``."""
    checkpointing: Floats
    """What begins and ends a checkpoint, less what a pass that ends early leaves out; no part of a first pass."""
    weight: Floats
    """One layer's weight gradients, included in ``layer``."""
    selective: Floats
    """Included in ``layer`` where recomputation is selective."""
    layer_offload: Floats
    """Exposed traffic to and from the host, included in ``layer``."""
    window: Passes
    """What of either pass hides no traffic of the layer's own experts: data-parallel traffic can hide behind it."""
    repeated_window: Floats
    """Computation that the backward pass of every layer begins with where all layers are recomputed: what travels in
    every micro-batch can hide behind it."""
    paired: Passes
    """Computation that overlaps another micro-batch's exchanges of experts, on average."""

    @property
    def repeating_window(self) -> Passes:
        """Computation that traffic of every micro-batch hides behind, what is recomputed included."""
        return Passes(self.window.forward, self.window.backward + self.repeated_window)
