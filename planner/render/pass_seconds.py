"""What every piece of a model costs in every pass, stream by stream: the price of a plan, taken apart for drawing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Final, NamedTuple

import numpy as np

from costmodels.iteration import RowSeconds, row_seconds
from costmodels.layer.blocks import LayerSeconds, kind_seconds, layer_seconds
from costmodels.layer.forward_backward import Passes
from costmodels.layer.terms import LayerTerms
from costmodels.layer.tower import tower_seconds
from costmodels.layer.vocabulary import embedding_seconds, head_seconds
from costmodels.layout.layers_by_kind import stage_layers
from costmodels.layout.split import Assignment, end_places
from costmodels.layout.stage_contents import copies
from costmodels.node_groups import AnyScenario, Mixed, MixedStrategies, mixed_seconds, parts_of
from costmodels.pipeline.schedules import Schedule
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Ints, Strategies

KINDS: Final = ("F", "B", "W")

Pieces = Mapping[str, Mapping[str, Floats]]
"""Seconds by kind of pass and by stream, arrays (p, v): pieces by their place on the schedule's first path."""


class _Part(NamedTuple):
    """The layers of one kind: their passes, what an iteration reads of them, and how many are where, (p, v)."""

    passes: LayerSeconds
    terms: LayerTerms | RowSeconds
    held: Floats
    again: Floats


def pieces_of(row: Strategies, split: Assignment, question: AnyScenario, schedule: Schedule) -> Pieces:
    """Seconds of every pass of every piece of one row's model; together they are the stages' seconds.

    A stage's layers, of each kind, are spread evenly over its chunks, but for those whose places the ends take. The
    embedding is part of the first piece, the head and layers that predict further tokens of the last, both as
    computation.
    """
    if isinstance(row, MixedStrategies) and isinstance(question, Mixed):
        return _over_groups(row, split, question, schedule)
    scenario = parts_of(question)[0]
    return _on_one(row, split, scenario, schedule, row_seconds(row, scenario))


def _over_groups(row: MixedStrategies, split: Assignment, mixed: Mixed, schedule: Schedule) -> Pieces:
    """Every stage as the node group has it that it stands on, but for its sends, which may go to another."""
    priced, at = mixed_seconds(row, mixed), row.group_at()[0]
    each = [  # of average layers, as they are priced over several groups
        _on_one(one, split, scenario, schedule, replace(seconds, kinds=None))
        for one, scenario, seconds in zip(row.groups, mixed.scenarios, priced.groups, strict=True)
    ]
    stages = np.arange(len(at))
    pieces = {
        kind: {stream: np.stack([one[kind][stream] for one in each])[at, stages] for stream in each[0][kind]}
        for kind in KINDS
    }
    sends = _neighbours(schedule.paths(len(at), int(row.vpp[0]))[0], (len(at), int(row.vpp[0])))
    for kind in ("F", "B"):
        pieces[kind]["p2p"] = priced.send[0][:, None] / 2 * sends / sends.sum(axis=1, keepdims=True)
    return pieces


def _on_one(one: Strategies, split: Assignment, scenario: Scenario, schedule: Schedule, seconds: RowSeconds) -> Pieces:
    p, v = int(one.pp[0]), int(one.vpp[0])
    apart = schedule.splits_backward
    parts = _parts(one, split, scenario, seconds)
    pieces = {
        "F": _summed(_forward(part) for part in parts),
        "B": _summed(_backward(part, apart=apart) for part in parts),
        "W": {"compute": sum((part.held * part.terms.weight[0] for part in parts if apart), np.zeros((p, v)))},
    }
    first, last = schedule.paths(p, v)[0][0], schedule.paths(p, v)[0][-1]
    ends = (
        (first, embedding_seconds(one, scenario) + tower_seconds(one, scenario), seconds.embedding),
        (last, head_seconds(one, scenario), seconds.head),
    )
    for kind in ("F", "B"):
        for place, passes, whole in ends:
            share = _share(passes, kind)
            pieces[kind]["compute"][place] += share * whole[0]
            pieces[kind]["compute"] += share * _spread_part(passes, ends, seconds) / v
        pieces[kind]["p2p"] = seconds.send[0] / (2 * v) * _neighbours(schedule.paths(p, v)[0], (p, v))
        pieces[kind]["host"] += seconds.host[0] / (2 * v)
    return pieces


def _parts(one: Strategies, split: Assignment, scenario: Scenario, seconds: RowSeconds) -> list[_Part]:
    """The layers kind by kind, average ones where stages mirror each other, as they are priced."""
    held, again = (_chunks(layers, one, scenario) for layers in (split.layers, split.recomputed))
    if seconds.kinds is None or copies(one)[0] > 1:
        return [_Part(layer_seconds(one, scenario), seconds, held, again)]
    shares = held / np.maximum(held.sum(axis=1, keepdims=True), 1.0)
    by_kind = (
        layers.T[:, :, None] * shares
        for layers in stage_layers(one, seconds.kinds.depth, split.layers, split.recomputed)
    )
    each = zip(seconds.kinds.depth.kinds, seconds.kinds.parts, *by_kind, strict=True)
    return [_Part(kind_seconds(one, scenario, kind), terms, *counts) for kind, terms, *counts in each]


def _summed(parts: Iterable[Mapping[str, Floats]]) -> dict[str, Floats]:
    """Stream by stream."""
    total: dict[str, Floats] = {}
    for stream, seconds in chain.from_iterable(part.items() for part in parts):
        total[stream] = total[stream] + seconds if stream in total else seconds
    return total


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


def _forward(part: _Part) -> dict[str, Floats]:
    layer, terms, held = part.passes, part.terms, part.held
    return {
        "compute": held * (layer.compute.forward[0] - layer.launch.forward[0]),
        "tp": held * layer.tp.forward[0],
        "cp": held * layer.cp.forward[0],
        "ep": held * terms.layer_ep[0] / 2,
        "offload": held * terms.layer_offload[0] / 2,
        "host": held * layer.launch.forward[0],
    }


def _backward(part: _Part, *, apart: bool) -> dict[str, Floats]:
    """A recomputed layer's second forward pass comes on top; ``apart`` takes the weight gradients out."""
    layer, terms, held, again = part
    own = layer.compute.backward[0] - layer.launch.backward[0] + terms.selective[0]
    own -= terms.weight[0] if apart else 0.0
    return {
        "compute": held * own + again * (terms.recompute[0] - layer.alone.forward[0]),
        "tp": held * layer.tp.backward[0] + again * layer.tp.forward[0],
        "cp": held * layer.cp.backward[0] + again * layer.cp.forward[0],
        "ep": held * terms.layer_ep[0] / 2 + again * layer.ep_alone.forward[0],
        "offload": held * terms.layer_offload[0] / 2,
        "host": held * layer.launch.backward[0],
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
    return float(seconds.vocabulary_spread[0] * (passes.forward[0] + passes.backward[0])) / both
