"""What a plan for a sparse model can choose: a group for every layer, a home and tiers for every table.

A choice is an index; its load says what it costs (`costmodels.sparse.load`). The loads of the chosen ones and of the
transfers between them add up to the plan's.

Of a small table it is all one, in the solver's units, how many of its rows lie in which tier; of a large one it seldom
is. What the solver need not see is dominated to the last unit, so that its answer and its bounds stay what they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from costmodels.sparse.load import Load, group_rates
from costmodels.sparse.model import KEY, VALUE, Table
from costmodels.sparse.parameter_server import (
    SparseScenario,
    capacities,
    crossing_load,
    dense_load,
    lateness,
    read_load,
    table_load,
)
from costmodels.strategy import Floats

Nodes = NDArray[np.int64]
Kind = Literal["read", "table", "dense"]

HBM_CUTS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Shares of a table's rows, the most popular ones, that device memory may hold."""
DRAM_CUTS = (0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares that device and host memory may hold together; drives hold the rest."""
SLACK = 1e-6
"""Relative: what rounding may cost before a plan counts as too slow, or too large."""
_LARGEST = 2.0**61
"""Units of the solver; what asks for more is hopeless whatever its number."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Where a place works; of a table also the group that holds it, and the shares of the rows in upper tiers."""

    group: int
    load: Load
    home: int | None = None
    hbm: float = 0.0
    dram: float = 1.0


@dataclass(frozen=True, slots=True)
class Place:
    """A part of the model that runs on one group: reading, a table with its look-ups, a dense layer."""

    name: str
    kind: Kind
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Wire:
    """Bytes per example from one place to the next, and of gradients back."""

    source: int
    target: int
    forward: float
    backward: float
    ahead: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of a model in a scenario, in the order in which an example passes them."""

    scenario: SparseScenario
    places: tuple[Place, ...]
    wires: tuple[Wire, ...]
    capacity: Floats
    """Bytes of a node by tier, (G, 3)."""
    own: Floats
    """Bytes of a node for what each holds by itself, (G, 2)."""
    crossings: Mapping[tuple[int, int, int], Load]
    """What a wire costs, by its place in ``wires``, from one group to another."""

    @property
    def stock(self) -> Nodes:
        """Nodes that can be rented, (G,)."""
        return np.array([group.nodes for group in self.scenario.groups], dtype=np.int64)

    @property
    def prices(self) -> Floats:
        """Dollars per second of a node, (G,)."""
        return np.array([group.price for group in self.scenario.groups])

    def load(self, chosen: Sequence[int]) -> Load:
        """Of one choice per place, with the transfers between them."""
        picked = [place.choices[index] for place, index in zip(self.places, chosen, strict=True)]
        total = Load.none(len(self.scenario.groups))
        for choice in picked:
            total += choice.load
        for wire in range(len(self.wires)):
            total += self._joined(wire, chosen)
        return total

    def changed(self, load: Load, chosen: Sequence[int], place: int, index: int) -> tuple[tuple[int, ...], Load]:
        """The choices and the load when one place takes another choice."""
        other = (*chosen[:place], index, *chosen[place + 1 :])
        total = load - self.places[place].choices[chosen[place]].load + self.places[place].choices[index].load
        if self.group(place, index) != self.group(place, chosen[place]):
            for number, wire in enumerate(self.wires):
                if place in {wire.source, wire.target}:
                    total = total - self._joined(number, chosen) + self._joined(number, other)
        return other, total

    def group(self, place: int, index: int) -> int:
        """The group of a choice."""
        return self.places[place].choices[index].group

    def _joined(self, number: int, chosen: Sequence[int]) -> Load:
        wire = self.wires[number]
        ends = self.group(wire.source, chosen[wire.source]), self.group(wire.target, chosen[wire.target])
        return self.crossings[(number, *ends)]

    def rates(self, load: Load, nodes: Nodes) -> Floats:
        """Examples per second that each group keeps up with, (G,)."""
        return group_rates(load, nodes, mode=self.scenario.mode, variation=self.scenario.runtime.variation)

    def fits(self, load: Load, nodes: Nodes) -> bool:
        """Whether rows find room in their tiers, and what every node holds by itself on every node."""
        room = self.capacity * nodes[:, None]
        return bool((load.stored <= room * (1 + SLACK)).all() and (load.copies <= self.own * (1 + SLACK)).all())

    def staleness(self, chosen: Sequence[int], nodes: Nodes) -> int:
        """Steps of other workers that may happen between a worker's pull and its push."""
        groups = self.scenario.groups
        looks_up = {
            place.choices[index].group
            for place, index in zip(self.places, chosen, strict=True)
            if place.kind == "table"
        }
        return max(lateness(self.scenario, groups[g], int(nodes[g])) for g in looks_up)

    def restricted(self, groups: set[int]) -> Layout | None:
        """The layout on some groups alone; None where a part has no choice there."""
        places = tuple(replace(place, choices=tuple(_within(place, groups))) for place in self.places)
        return replace(self, places=places) if all(place.choices for place in places) else None


def _within(place: Place, groups: set[int]) -> Iterator[Choice]:
    return (one for one in place.choices if one.group in groups and (one.home is None or one.home in groups))


def layout(scenario: SparseScenario) -> Layout:
    """Every choice that some number of nodes has room for; a place may be left without any."""
    capacity, own = capacities(scenario)
    every = range(len(scenario.groups))
    model = scenario.model
    read = Place("read", "read", tuple(Choice(g, read_load(scenario, g)) for g in every))
    tables = [Place(table.name, "table", tuple(_table_choices(scenario, table))) for table in model.tables]
    dense = [
        Place(layer.name, "dense", tuple(Choice(g, dense_load(scenario, layer, g)) for g in every))
        for layer in model.dense
    ]
    wires = tuple(_wires(scenario))
    made = Layout(scenario, (read, *tables, *dense), wires, capacity, own, _crossings(scenario, wires))
    most = made.stock
    kept = [
        replace(place, choices=tuple(choice for choice in place.choices if made.fits(choice.load, most)))
        for place in made.places
    ]
    return replace(made, places=tuple(kept))


def _crossings(scenario: SparseScenario, wires: tuple[Wire, ...]) -> dict[tuple[int, int, int], Load]:
    every = range(len(scenario.groups))
    return {
        (number, source, target): crossing_load(
            scenario,
            source=source,
            target=target,
            forward=wire.forward,
            backward=wire.backward,
            ahead=wire.ahead,
        )
        for number, wire in enumerate(wires)
        for source in every
        for target in every
    }


def _table_choices(scenario: SparseScenario, table: Table) -> Iterator[Choice]:
    for home, holder in enumerate(scenario.groups):
        for lookup, worker in enumerate(scenario.groups):
            if scenario.mode == "geo" and worker.accelerator is not None:
                continue
            in_devices = holder.accelerator is not None and home == lookup
            for hbm in HBM_CUTS if in_devices else (0.0,):
                for dram in DRAM_CUTS if holder.ssd else (1.0,):
                    if hbm <= dram:
                        load = table_load(scenario, table, home=home, lookup=lookup, hbm=hbm, dram=dram)
                        yield Choice(lookup, load, home=home, hbm=hbm, dram=dram)


def _wires(scenario: SparseScenario) -> Iterator[Wire]:
    """Keys to the tables, pooled rows to the tower, activations up it; gradients the other way."""
    tables, dense = scenario.model.tables, scenario.model.dense
    first = 1 + len(tables)
    for place, table in enumerate(tables, start=1):
        yield Wire(0, place, KEY * table.hotness * table.count, 0.0, ahead=True)
        yield Wire(place, first, table.pooled_bytes, table.pooled_bytes, ahead=False)
    for place, layer in enumerate(dense[:-1], start=first):
        yield Wire(place, place + 1, VALUE * layer.outputs, VALUE * layer.outputs, ahead=False)


def demands(choices: Sequence[Choice], rate: float, *, unit: float, page: float) -> Nodes:
    """What every choice asks for in the solver's whole numbers, the less the better, shape (choices, columns).

    Node-seconds per second by part, group and resource, and of a step in all, rounded as the solver rounds them; what
    stays on its node counts for a choice, so its negative stands here; bytes stored and copied.
    """
    rows = []
    for choice in choices:
        load = choice.load
        spent = np.concatenate([load.work.ravel(), load.work.sum(axis=2).ravel()])
        spent = np.floor(np.minimum(rate * spent * unit, _LARGEST))
        stays = -np.ceil(np.minimum(rate * load.inside.ravel() * unit, _LARGEST))
        held = np.floor(np.concatenate([load.stored.ravel(), load.copies.ravel()]) / page)
        rows.append(np.concatenate([spent, stays, held]))
    return np.array(rows).astype(np.int64)


def undominated(choices: Sequence[Choice], asked: Nodes) -> list[int]:
    """Places of the choices that no other of the same group and home dominates; of equal ones the first.

    Requests and staleness are alike where group and home are.
    """
    kept: list[int] = []
    for group in dict.fromkeys((choice.group, choice.home) for choice in choices):
        mine = [index for index, choice in enumerate(choices) if (choice.group, choice.home) == group]
        mine.sort(key=lambda index: (int(asked[index].sum()), index))
        front: list[int] = []
        for index in mine:
            if not any((asked[other] <= asked[index]).all() for other in front):
                front.append(index)
        kept += front
    return sorted(kept)
