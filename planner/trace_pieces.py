"""What every piece of a model costs in every pass, stream by stream: the price of a plan, taken apart for drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from costmodels.blocks import LayerSeconds, embedding_seconds, head_seconds, layer_seconds
from costmodels.iteration import RowSeconds, row_seconds
from costmodels.passes import Passes
from costmodels.pricing import Assignment
from costmodels.scenario import Scenario
from costmodels.schedules import Schedule
from costmodels.split import end_places
from costmodels.strategy import Floats, Ints, Strategies

STREAMS: Final = ("compute", "tp", "cp", "ep", "p2p", "dp", "offload", "host")
"""Threads of a stage, in the order in which they are drawn."""
KINDS: Final = ("F", "B", "W")

Pieces = Mapping[str, Mapping[str, Floats]]
"""Seconds by kind of pass and by stream, arrays (p, v): pieces by their place on the schedule's first path."""


def pieces_of(one: Strategies, split: Assignment, scenario: Scenario, schedule: Schedule) -> Pieces:
    """Seconds of every pass of every piece of one row's model; together they are the stages' seconds.

    Layers are spread evenly over a stage's chunks, but for those whose places the ends take. The embedding is part of
    the first piece, the head and layers that predict further tokens of the last, both as computation.
    """
    p, v = int(one.pp[0]), int(one.vpp[0])
    seconds, layer = row_seconds(one, scenario), layer_seconds(one, scenario)
    per_chunk = [_chunks(held, one, scenario) for held in (split.layers, split.recomputed)]
    pieces = {
        "F": _forward(layer, seconds, per_chunk[0]),
        "B": _backward(layer, seconds, per_chunk[0], per_chunk[1], apart=schedule.splits_backward),
        "W": {"compute": per_chunk[0] * seconds.weight[0] if schedule.splits_backward else np.zeros((p, v))},
    }
    first, last = schedule.paths(p, v)[0][0], schedule.paths(p, v)[0][-1]
    ends = (
        (first, embedding_seconds(one, scenario), seconds.embedding),
        (last, head_seconds(one, scenario), seconds.head),
    )
    for kind in ("F", "B"):
        for place, passes, whole in ends:
            share = _share(passes, kind)
            pieces[kind]["compute"][place] += share * whole[0]
            pieces[kind]["compute"] += share * _spread_part(passes, ends, seconds) / v
        pieces[kind]["offload"] = per_chunk[0] * seconds.layer_offload[0] / 2
        pieces[kind]["p2p"] = seconds.hop[0] / (2 * v) * _neighbours(schedule.paths(p, v)[0], (p, v))
        waits = layer.launch.forward if kind == "F" else layer.launch.backward
        pieces[kind]["host"] = seconds.host[0] / (2 * v) + per_chunk[0] * waits[0]
    return pieces


def _neighbours(path: Sequence[tuple[int, int]], shape: tuple[int, int]) -> Floats:
    """Of the two messages of a pass, the share that goes to or comes from another stage, by piece."""
    share = np.zeros(shape)
    for one, other in pairwise(path):
        if one[0] != other[0]:
            share[one] += 0.5
            share[other] += 0.5
    return share


def _chunks(held: Ints, one: Strategies, scenario: Scenario) -> Floats:
    """Layers of every chunk, (p, v)."""
    v, (embedding, head) = int(one.vpp[0]), end_places(scenario.model.num_layers, one)
    places = held.astype(np.float64)
    places[0] += embedding[0] * (held[0] > 0)
    places[-1] += head[0] * (held[-1] > 0)
    chunks = np.repeat(places[:, None] / v, v, axis=1)
    chunks[0, 0] -= embedding[0] * (held[0] > 0)
    chunks[-1, -1] -= head[0] * (held[-1] > 0)
    return chunks


def _forward(layer: LayerSeconds, seconds: RowSeconds, layers: Floats) -> dict[str, Floats]:
    return {
        "compute": layers * (layer.compute.forward[0] - layer.launch.forward[0]),
        "tp": layers * layer.tp.forward[0],
        "cp": layers * layer.cp.forward[0],
        "ep": layers * seconds.layer_ep[0] / 2,
    }


def _backward(
    layer: LayerSeconds, seconds: RowSeconds, layers: Floats, again: Floats, *, apart: bool
) -> dict[str, Floats]:
    """A recomputed layer's second forward pass comes on top; ``apart`` takes the weight gradients out."""
    own = layer.compute.backward[0] - layer.launch.backward[0] + seconds.selective[0]
    own -= seconds.weight[0] if apart else 0.0
    return {
        "compute": layers * own + again * layer.compute.forward[0],
        "tp": layers * layer.tp.backward[0] + again * layer.tp.forward[0],
        "cp": layers * layer.cp.backward[0] + again * layer.cp.forward[0],
        "ep": layers * seconds.layer_ep[0] / 2 + again * layer.ep.forward[0],
    }


def _share(passes: Passes, kind: str) -> float:
    """The part of an end's seconds that its forward or its backward pass takes."""
    whole = float(passes.forward[0] + passes.backward[0])
    return float(passes.forward[0] if kind == "F" else passes.backward[0]) / whole


def _spread_part(
    passes: Passes, ends: tuple[tuple[tuple[int, int], Passes, Floats], ...], seconds: RowSeconds
) -> float:
    """What an end adds to every stage where the vocabulary is split over them."""
    both = sum(float(end.forward[0] + end.backward[0]) for _, end, _ in ends)
    return float(seconds.spread[0] * (passes.forward[0] + passes.backward[0])) / both
