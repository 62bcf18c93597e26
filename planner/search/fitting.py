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
from costmodels.memory.rows import RowBytes, row_bytes, slack_of
from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Floats, Ints, Strategies
from planner.search.least_bytes import least_bytes
from planner.space.cache import shape_of
from planner.space.lattice import Space
from planner.stages.from_strategies import ROOM, least_peaks

AT_A_TIME = 4096
"""Pairs that are looked at for the nearest to fitting."""
PAYS = 1 / 8
"""Refused pairs, as a share of the cores, from which it pays to bound all cores."""
WIDE = 1 << 15
"""Pairs that are asked about at once from which it pays as well."""
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
        order = np.argsort(self.needed, kind="stable")
        for start in range(0, len(order), AT_A_TIME):
            near = order[start : start + AT_A_TIME]
            if known is not None:
                near = near[self.needed[near] < known[0]]
            if not len(near):
                break
            known = self._least(near, known)
        return known

    def _least(self, index: Ints, known: Nearest | None) -> Nearest:
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
    if known.refused > PAYS * len(space.cores) or len(place) > WIDE:
        known.bound(space.cores, scenario)
    unfit = known.least[cores[place], option] > _surely(scenario)
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
            known.least[pair] = needed_bytes(rows.take(beyond), scenario, least[beyond])
            known.refused += len(pair[0])
            refused.append(pair)
            kept = np.flatnonzero(~beyond)
            place, rows, memory = place[kept], rows.take(kept), memory.take(kept)
        fitting = Fitting(place, rows, memory) if len(rows) else None
    core, option = (np.concatenate(columns) for columns in zip(*refused, strict=True))
    return fitting, Unfitting(space, scenario, core, option, known.least[core, option])


@dataclass
class _Needs:
    """What is known of the memory that strategies of a lattice need, of all searches of it.

    Attributes:
        asked: machines, but for their rates and the devices' memory.
        least: bytes that a device must have at least for each pair that was looked at, 0 for others, (C, Z).
        refused: pairs that were found not to fit, each by its own bytes.
        of_cores: the same of each core under any sharding, (C,), where that was asked for.
    """

    asked: tuple[Scenario, float | None]
    least: Floats
    refused: int = 0
    of_cores: Floats | None = None

    def bound(self, cores: Strategies, scenario: Scenario) -> Floats:
        """Bytes of all cores under any sharding, (C,): once, for less than those of an eighth of the pairs."""
        if self.of_cores is None:
            self.of_cores = least_needed(cores, scenario)
            np.maximum(self.least, self.of_cores[:, None], out=self.least)
        return self.of_cores


def least_needed(cores: Strategies, scenario: Scenario) -> Floats:
    """Bytes that a device must have at least for each core under any sharding, (C,); 0 where gradients come late."""
    late = scenario.stack.gradients.set_to_none & (cores.pp == 1) & (cores.num_microbatches == 1)
    whole = least_bytes(cores, scenario) * (1.0 + slack_of(cores, scenario))
    return np.where(late, 0.0, whole + scenario.stack.allocator.reserved)


def may_fit(cores: Strategies, scenario: Scenario) -> Bools:
    """Whether cores may fit under some sharding, (C,)."""
    return least_needed(cores, scenario) <= _surely(scenario)


def those_that_may_fit(space: Space, cores: Ints, scenario: Scenario) -> Ints:
    """Which of some cores, (C,), may fit under some sharding, by all that earlier searches have seen of them."""
    known = _known_needs(space, scenario)
    return cores[known.bound(space.cores, scenario)[cores] <= _surely(scenario)]


def _surely(scenario: Scenario) -> float:
    """Bytes that a strategy must need at least to be known not to fit."""
    return scenario.group.accelerator.usable_memory * (1.0 + SURE)


def _known_needs(space: Space, scenario: Scenario) -> _Needs:
    """What is known of these cores on machines that differ in rates or in the devices' memory."""
    asked = shape_of(scenario), scenario.group.host_memory
    tables: list[_Needs] = space.cores.once("needs", list)
    for known in tables:
        if known.asked == asked:
            return known
    tables.append(_Needs(asked, np.zeros(space.allowed.shape)))
    return tables[-1]
