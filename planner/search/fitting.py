"""Which strategies may fit their devices: asked before they are priced, and known to all further searches of a lattice.

No rate of a machine changes what a strategy allocates, so that a search for another choice or on faster machines
knows of nearly all strategies already that they fit under no split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from costmodels.memory.even_peaks import even_peaks
from costmodels.memory.host import host_fits
from costmodels.memory.limits import memory_limit, needed_bytes
from costmodels.memory.rows import RowBytes, row_bytes
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Ints, Strategies
from planner.space.cache import shape_of
from planner.space.lattice import Space
from planner.stages.from_strategies import ROOM, least_peaks

SURE = 1e-6
"""Share of the memory by which a strategy must be known to exceed it, so that rounding has no say."""

Nearest = tuple[float, Strategies]
"""Bytes that a device must have under the even split, and the row."""


class Fitting(NamedTuple):
    """Strategies of some cores that may fit: which of these cores each one has, (N,), the rows, their memory."""

    place: Ints
    rows: Strategies
    memory: RowBytes


@dataclass(frozen=True, slots=True)
class Unfitting:
    """Pairs of a core and a sharding option of a lattice that fit under no split, arrays (N,)."""

    space: Space
    scenario: Scenario
    core: Ints
    option: Ints
    needed: Floats
    """Bytes that a device must have at least."""

    def __len__(self) -> int:
        return len(self.core)

    def nearest(self, known: Nearest | None) -> Nearest | None:
        """The pair whose even split needs least, where that is less than of the one that is ``known``."""
        if len(self) and (known is None or self.needed.min() < known[0]):
            known = self._least(np.array([np.argmin(self.needed)]), known)
            known = self._least(np.flatnonzero(self.needed < known[0]), known)
        return known

    def _least(self, index: Ints, known: Nearest | None) -> Nearest:
        if known is not None and not len(index):
            return known
        rows = self.space.rows(self.core[index], self.option[index])
        peak = even_peaks(rows, row_bytes(rows, self.scenario), self.scenario.model.num_layers)
        return nearer(rows, peak, self.scenario, known)


def nearer(rows: Strategies, peak: Floats, scenario: Scenario, known: Nearest | None) -> Nearest:
    """The row that comes nearest to fitting by its even split's ``peak``, (N,), unless the one ``known`` does."""
    needed = needed_bytes(rows, scenario, peak)
    least = np.argmin(needed)
    if known is not None and needed[least] >= known[0]:
        return known
    return float(needed[least]), rows.take(np.array([least]))


def part_fitting(space: Space, cores: Ints, scenario: Scenario) -> tuple[Fitting | None, Unfitting]:
    """The strategies of some cores, (C,): those that may fit, None where none may, and those that cannot."""
    place, option = np.nonzero(space.allowed[cores])
    known = _known_needs(space, scenario)
    unfit = known[cores[place], option] > scenario.group.accelerator.usable_memory * (1.0 + SURE)
    refused = [(cores[place[unfit]], option[unfit])]
    place, option = place[~unfit], option[~unfit]
    rows = space.rows(cores[place], option)
    if not (fits := host_fits(rows, scenario)).all():
        place, option, rows = place[fits], option[fits], rows.take(fits)
    fitting = None
    if len(rows):
        memory = row_bytes(rows, scenario)
        least = least_peaks(rows, memory, scenario)
        beyond = least > memory_limit(scenario, rows) * (1.0 + ROOM)
        if beyond.any():
            pair = cores[place[beyond]], option[beyond]
            known[pair] = needed_bytes(rows.take(beyond), scenario, least[beyond])
            refused.append(pair)
            kept = np.flatnonzero(~beyond)
            place, rows, memory = place[kept], rows.take(kept), memory.take(kept)
        fitting = Fitting(place, rows, memory) if len(rows) else None
    core, option = (np.concatenate(columns) for columns in zip(*refused, strict=True))
    return fitting, Unfitting(space, scenario, core, option, known[core, option])


def _known_needs(space: Space, scenario: Scenario) -> Floats:
    """Bytes that a device must have at least for each pair that was seen not to fit some memory, 0 for others, (C, Z).

    One table for all searches of these cores on machines that differ in rates or in the devices' memory.
    """
    asked = shape_of(scenario), scenario.group.host_memory
    tables: list[tuple[tuple[Scenario, float | None], Floats]] = space.cores.once("needs", list)
    for other, table in tables:
        if other == asked:
            return table
    tables.append((asked, np.zeros(space.allowed.shape)))
    return tables[-1][1]
