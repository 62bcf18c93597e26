"""The question of one pipeline: how to spread layers over stages, with what each layer and each stage costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from costmodels.arrays import Floats

SLACK = 1e-9
"""Relative room for rounding wherever a limit must not cut off what just fits."""


@dataclass(frozen=True, eq=False, slots=True)
class SliceCosts:
    """Costs of each slice on each stage, arrays of shape (p, S), or (1, S) where stages do not differ.

    Attributes:
        seconds: forward and backward for one micro-batch, nothing recomputed.
        recompute_seconds: extra seconds if it is recomputed.
        state_bytes: weights, gradients and optimizer states.
        activation_bytes: bytes held if its activations are stored, all micro-batches in flight.
        checkpoint_bytes: bytes held if it is recomputed, all micro-batches in flight; never more than stored.
    """

    seconds: Floats
    recompute_seconds: Floats
    state_bytes: Floats
    activation_bytes: Floats
    checkpoint_bytes: Floats

    def __post_init__(self) -> None:
        if (self.checkpoint_bytes > self.activation_bytes * (1 + SLACK)).any():
            raise ValueError("a recomputed slice holds more than a stored one")


PerStage = float | tuple[float, ...]
"""One number for all stages, or one for each."""


_ONE_OR_EACH = ("layer_seconds", "recompute_seconds", "memory_limit", "layer_bytes", "working_bytes")
_BY_STAGE = (*_ONE_OR_EACH, "extra_seconds", "fixed_bytes", "activation_bytes", "checkpoint_bytes")


@dataclass(frozen=True, slots=True)
class StageProblem:
    """How to spread the layers of one model over the stages of one pipeline.

    Stages may sit on different machines: what a layer costs is one number for all of them, or one for each.

    Attributes:
        num_layers: equal layers to spread, or equal slices of one layer per chunk.
        num_stages: pipeline stages p.
        vpp: model chunks per stage, or what else divides the bubble: its objective share is 1 / vpp.
        num_microbatches: micro-batches m per iteration, or what else the slowest stage counts by.
        layer_seconds: forward and backward of one layer for one micro-batch, nothing recomputed; positive.
        recompute_seconds: extra seconds of a recomputed layer.
        extra_seconds: (p,) seconds per micro-batch besides the layers: embedding, head, exposed sends.
        memory_limit: bytes that a stage may use.
        fixed_bytes: (p,) bytes besides the layers: states of embedding and head, logits, the framework.
        layer_bytes: weights, gradients and optimizer states of one layer.
        activation_bytes: (p,) bytes held per layer that stores its activations, all micro-batches in flight.
        checkpoint_bytes: (p,) bytes held per recomputed layer, all micro-batches in flight.
        recompute: one of ``RECOMPUTE_MODES``, or "first": the first ``first`` layers of every stage.
        uneven: whether stages may hold different numbers of layers.
        working_bytes: one layer's activations while it is recomputed; counted where a stage recomputes any.
        fewest: (p,) layers that each stage holds at least where they may differ; one unless said.
        alike: free recomputation is one number for all stages; a stage with fewer layers recomputes all of them.
        first: layers that every stage recomputes.
        slices: where slices differ along the chain, what each costs; the same by layer are then averages that
            nothing reads.
    """

    num_layers: int
    num_stages: int
    vpp: float
    num_microbatches: float
    layer_seconds: PerStage
    recompute_seconds: PerStage
    extra_seconds: tuple[float, ...]
    memory_limit: PerStage
    fixed_bytes: tuple[float, ...]
    layer_bytes: PerStage
    activation_bytes: tuple[float, ...]
    checkpoint_bytes: tuple[float, ...]
    recompute: Literal["none", "free", "all", "first"]
    uneven: bool
    working_bytes: PerStage = 0.0
    fewest: tuple[int, ...] | None = None
    alike: bool = False
    first: int = 0
    slices: SliceCosts | None = None

    def __post_init__(self) -> None:
        for name in _BY_STAGE:
            given = np.shape(getattr(self, name))
            if given != (self.num_stages,) and (given or name not in _ONE_OR_EACH):
                raise ValueError(f"{name} has {given[0] if given else 1} entries for {self.num_stages} stages")
        if self.fewest is not None and len(self.fewest) != self.num_stages:
            raise ValueError(f"fewest has {len(self.fewest)} entries for {self.num_stages} stages")

    def each(self, name: str) -> Floats:
        """A quantity of every stage, shape (p,)."""
        return np.broadcast_to(np.asarray(getattr(self, name), dtype=np.float64), (self.num_stages,))

    def stage_seconds(self, layers: ArrayLike, recomputed: ArrayLike) -> Floats:
        """Forward and backward seconds per stage and micro-batch; the arguments' last axis is the stage."""
        n, r = np.asarray(layers, dtype=np.float64), np.asarray(recomputed, dtype=np.float64)
        layers, again = np.asarray(self.layer_seconds), np.asarray(self.recompute_seconds)
        return np.asarray(n * layers + r * again + np.asarray(self.extra_seconds))

    def stage_bytes(self, layers: ArrayLike, recomputed: ArrayLike) -> Floats:
        """Bytes per stage; the arguments' last axis is the stage."""
        n, r = np.asarray(layers, dtype=np.float64), np.asarray(recomputed, dtype=np.float64)
        held = (n - r) * np.asarray(self.activation_bytes) + r * np.asarray(self.checkpoint_bytes)
        working = np.where(r > 0, self.working_bytes, 0.0)
        return np.asarray(n * np.asarray(self.layer_bytes) + held + working + np.asarray(self.fixed_bytes))
