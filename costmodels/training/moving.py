"""What a running job has to move when its strategy changes: weights and states that a device needs and does not hold.

Devices are dealt out anew so that as much as possible stays where it is: each takes over a place (stage and tensor
slice) of the new strategy whose contents overlap most with what it held.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.layout.split import Assignment
from costmodels.model.parameters import embedding_parameters, head_parameters, parameters
from costmodels.names import SCHEDULE_NAMES
from costmodels.pipeline.schedules import SCHEDULES
from costmodels.scenario import Scenario
from costmodels.stability import Stability
from costmodels.stack.optimizers import kept_bytes
from costmodels.strategy import Bools, Floats, Ints, Strategies
from costmodels.training.goodput import checkpoint_bytes, startup_seconds, storage_rate

WEIGHT_BYTES = 2.0
"""Of a weight in training, 16 bits."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A strategy as far as it says where things lie: one strategy and its split."""

    row: Strategies
    split: Assignment

    def degree(self, stage: int = 1) -> int:
        """Ranks that share the states of one place, or with ``stage`` 3 its weights."""
        return int(self.row.sharding_degree[0]) if self.row.zero_stage[0] >= stage else 1

    @property
    def ranks(self) -> int:
        """Data and context ranks of one place."""
        return int(self.row.dp[0] * self.row.cp[0])


@dataclass(frozen=True, slots=True)
class Move:
    """What a change of strategy moves."""

    weight_bytes: float
    """Over all devices, that a device needs and did not hold."""
    state_bytes: float
    """Of the optimizer's states and master weights that a device needs and did not hold."""
    most_bytes: float
    """That one device receives."""
    lost_bytes: float
    """States whose only copy was on lost devices; then all comes from the checkpoint."""
    fabric_seconds: float
    """For the device that receives most, over the outermost network."""
    checkpoint_seconds: float
    """To read everything from storage."""
    restart_seconds: float
    """New processes and process groups."""

    @property
    def seconds(self) -> float:
        """From the end of training under the old strategy to its begin under the new one."""
        return self.restart_seconds + (self.checkpoint_seconds if self.lost_bytes else self.fabric_seconds)


def held(layout: Layout) -> Bools:
    """Which stage holds what, (stages, layers + 2): the embedding, every layer in order, the head.

    The schedule's first way through the model says how many layers each piece has, every way where they lie.
    """
    p, v = int(layout.row.pp[0]), int(layout.row.vpp[0])
    layers = layout.split.layers
    ways = SCHEDULES[SCHEDULE_NAMES[int(layout.row.schedule[0])]].paths(p, v)
    stages = [np.array([stage for stage, _ in way]) for way in ways]
    counts = _pieces(layers, stages[0])
    holds = np.zeros((p, int(layers.sum()) + 2), dtype=bool)
    for way in stages:
        holds[np.repeat(way, counts), np.arange(1, len(holds[0]) - 1)] = True
        holds[way[0], 0] = holds[way[-1], -1] = True
    return holds


def _pieces(layers: Ints, way: Ints) -> Ints:
    """Layers of each piece along a way: those of its stage, dealt out evenly over the stage's visits."""
    visits = np.bincount(way, minlength=len(layers))
    nth = np.array([int((way[:place] == stage).sum()) for place, stage in enumerate(way)])
    return layers[way] // visits[way] + (nth < layers[way] % visits[way])


def overlaps(old: int, new: int) -> Floats:
    """Of [0, 1) cut into ``old`` and into ``new`` equal parts: the common length of every pair, (old, new)."""
    first, second = np.arange(old)[:, None] / old, np.arange(new)[None, :] / new
    return np.asarray(np.clip(np.minimum(first + 1.0 / old, second + 1.0 / new) - np.maximum(first, second), 0.0, None))


def kept_share(old: int, new: int) -> float:
    """Share of its new part that a rank has already, where ``old`` ranks shared what ``new`` ranks now do in order."""
    parts = overlaps(old, new)
    nearest = np.minimum((np.arange(new) + 0.5) * old / new, old - 1).astype(np.int64)
    return float(parts[nearest, np.arange(new)].sum())


def move(old: Layout, new: Layout, before: Scenario, after: Scenario, *, lost: int, stability: Stability) -> Move:
    """What changes place.

    Args:
        old: the strategy that ran.
        new: the strategy that is to run.
        before: what ran.
        after: what is to run, with the same model and optimizer.
        lost: devices that failed, taken to be those of whole replicas; the others hold what they held.
        stability: storage and restarts.
    """
    unit = _bytes(before)
    needs = np.repeat(held(new) @ unit, int(new.row.tp[0])) / int(new.row.tp[0])
    common = np.kron((held(old) * unit) @ held(new).T.astype(float), overlaps(int(old.row.tp[0]), int(new.row.tp[0])))
    places = int(old.row.pp[0] * old.row.tp[0])
    supply = np.full(places, max(before.gpus - lost, 0) / places)
    amount, kept = _dealt(supply, np.full(len(needs), float(new.ranks)), common)
    newcomers = np.maximum(new.ranks - np.bincount(kept[1], amount, len(needs)), 0.0)
    overlap, need = common[kept[0], kept[1]], needs[kept[1]]
    parts = ((WEIGHT_BYTES, old.degree(3), new.degree(3)), (kept_bytes(before.stack), old.degree(), new.degree()))
    received = [size / now * (need - kept_share(was, now) * overlap) for size, was, now in parts]
    fresh = [size / now * needs for size, _, now in parts]
    weights, states = (float(amount @ some + newcomers @ whole) for some, whole in zip(received, fresh, strict=True))
    arriving = (fresh[0] + fresh[1])[newcomers > _NOBODY]
    most = float(max((received[0] + received[1]).max(initial=0.0), arriving.max(initial=0.0)))
    return Move(
        weight_bytes=weights,
        state_bytes=states,
        most_bytes=most,
        lost_bytes=_lost(old, before, lost),
        fabric_seconds=most / _rate(after),
        checkpoint_seconds=checkpoint_bytes(after) / storage_rate(after, stability),
        restart_seconds=stability.restart + startup_seconds(after.gpus, stability.startup),
    )


_NOBODY = 1e-9
"""Share of a device below which there is none."""


def _bytes(scenario: Scenario) -> Floats:
    """Parameters of the embedding, of every layer and of the head, (layers + 2,)."""
    model = scenario.model
    first, last = embedding_parameters(model), head_parameters(model)
    layer = (parameters(model) - first - last) / model.num_layers
    return np.array([first, *[layer] * model.num_layers, last], dtype=np.float64)


def _dealt(supply: Floats, demand: Floats, common: Floats) -> tuple[Floats, tuple[Ints, Ints]]:
    """Devices of old places that take over new ones, the largest overlaps first: amounts (K,), old and new places.

    Greedy, which is best where places are kept or cut in whole parts; elsewhere a little less could move.
    """
    left, wanted = supply.copy(), demand.copy()
    order = np.argsort(-common, axis=None, kind="stable")
    amounts, pairs = [], []
    for old, new in zip(*np.unravel_index(order, common.shape), strict=True):
        amount = min(left[old], wanted[new])
        if amount > _NOBODY:
            left[old] -= amount
            wanted[new] -= amount
            amounts.append(amount)
            pairs.append((old, new))
        if wanted.max() <= _NOBODY or left.max() <= _NOBODY:
            break
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return np.array(amounts), (table[:, 0], table[:, 1])


def _lost(old: Layout, before: Scenario, lost: int) -> float:
    """Bytes of states that had no second copy on the devices that are left."""
    copies = old.ranks / old.degree()
    if not lost or copies >= 2.0:
        return 0.0
    return lost / before.gpus * kept_bytes(before.stack) * parameters(before.model)


def _rate(scenario: Scenario) -> float:
    """Bytes per second that a device receives over the outermost network."""
    tier = scenario.group.tiers[-1]
    return tier.link.bandwidth * tier.link.point_to_point / tier.oversubscription
