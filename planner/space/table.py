"""Strategies under construction: a table that grows by one axis at a time, less what the rules refuse.

Rules are evaluated as soon as the axes they read are laid out, so that millions of points are counted and refused
without ever being written down. Over several node groups some columns are each group's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodels.scenario import Scenario
from costmodels.strategy import LARGEST_TABLE, Bools, Ints, column_codes, combinations, is_constant
from planner.errors import OutOfTime
from planner.request.budget import LAYOUT, Budget
from planner.rules.core import sentence
from planner.rules.rule import Rule

Columns = dict[str, NDArray[Any]]
SEQUENCE = "sequence_parallel"
SLAB = 1 << 17
"""Rows that a rule is asked about before a time limit is looked at again."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """How many strategies one rule refused first, and one of them in words."""

    rule: str
    count: int
    example: str


@dataclass
class Table:
    """Rows under construction: columns that all node groups share, and those of each, in as few bytes as they take."""

    parts: tuple[Scenario, ...]
    rules: tuple[Rule, ...]
    shared: Columns
    beyond: int
    """Lattice points on axes not yet laid out that one row stands for."""
    own: list[Columns] = field(default_factory=lambda: [{}])
    split_apart: bool = False
    """Whether groups of one tensor rank go without the sequence parallelism of the others, as ``predict`` has it."""
    budget: Budget | None = None
    refusals: list[Refusal] = field(default_factory=list)
    times: Ints | None = None
    """How many rows each one counts as, (N,); one unless given."""

    def __len__(self) -> int:
        return len(next(iter(self.shared.values())))

    def columns(self, group: int) -> Columns:
        """All columns of a group, as rules read them."""
        return self._seen({**self.shared, **self.own[group]})

    def _seen(self, columns: Columns) -> Columns:
        if self.split_apart and SEQUENCE in columns:
            return columns | {SEQUENCE: columns[SEQUENCE] * (columns["tp"] > 1)}
        return columns

    def keep(self, rows: NDArray[Any]) -> None:
        """The given rows alone (indices)."""
        self.shared = chosen(self.shared, rows)
        self.own = [chosen(table, rows) for table in self.own]
        self.times = None if self.times is None else self.times[rows]

    def part(self, rows: Ints | slice) -> Table:
        """The given rows as a table of their own, for one node group."""
        shared = (
            {name: column[rows] for name, column in self.shared.items()}
            if isinstance(rows, slice)
            else chosen(self.shared, rows)
        )
        return replace(self, shared=shared, own=[{}], refusals=list(self.refusals))

    def alike(self, names: Iterable[str]) -> Table:
        """The first row of each combination of the named columns, which counts as all of it, for one node group."""
        place, which = combinations([column_codes(self.shared[name]) for name in names], len(self))
        place[which[::-1]] = np.arange(len(self))[::-1]  # the last that is written stays
        order = np.argsort(place)
        return replace(self.part(place[order]), times=np.bincount(which)[order])

    def count(self, rows: Ints | slice = slice(None)) -> int:
        """How many rows the given ones count as."""
        times = np.ones(len(self), dtype=np.int64) if self.times is None else self.times
        return int(times[rows].sum())

    def expand(self, axis: str, values: NDArray[Any]) -> None:
        """The cross product of the rows with one more axis that all groups share, less what the rules refuse.

        Only what they read is laid out before they have spoken.
        """
        rows, times = len(self), len(values)
        self.check_budget(rows * times)
        self.beyond //= times
        places = self._allowed(self._decidable({axis}, axis), {axis: values[None, :]}, times)
        if len(places) < rows * times or times > 1:
            self.keep(places // times)
        self.shared[axis] = np.broadcast_to(values, places.shape) if times == 1 else values[places % times]

    def refuse(self, new: Iterable[str]) -> None:
        """Apply the rules that the new columns complete."""
        self.check_budget(len(self))
        self.keep(self._allowed(self._decidable(new), {}, 1))

    def _decidable(self, new: Iterable[str], *more: str) -> list[Rule]:
        """The rules that can be evaluated on the known axes and could not be before the new ones came."""
        known, new = {*self.shared, *self.own[0], *more}, set(new)
        return [rule for rule in self.rules if set(rule.reads) <= known and set(rule.reads) & new]

    def _allowed(self, rules: list[Rule], added: Columns, times: int) -> Ints:
        """Places of the rows with each value of what is ``added``, (1, times), that pass on every group: N x times.

        Each refused one stands for ``beyond`` lattice points. Rows that rules cannot tell apart are asked about once.
        """
        names = {name for rule in rules for name in rule.reads} | ({"tp"} if self.split_apart else set())
        coded = [column_codes(table[name]) for table in (self.shared, *self.own) for name in names if name in table]
        several = math.prod(count for _, count in coded) <= max(4 * len(self), LARGEST_TABLE)
        first, alike = combinations(coded, len(self)) if several else (np.arange(len(self)),) * 2
        each, alive = np.bincount(alike, self.times, minlength=len(first)), np.ones((len(first), times), dtype=bool)
        tables = [{**self.shared, **own} for own in self.own]
        wide = [{name: _whole(table[name][first][:, None]) for name in names - set(added)} for table in tables]
        added = {name: _whole(values) for name, values in added.items()}
        for rule in rules:
            for group, scenario in enumerate(self.parts):
                failed = self._failed(rule, scenario, wide[group], added, alive)
                if failed.any():
                    row = int(np.argmax(np.any(failed, axis=1)[alike]))
                    option = int(np.argmax(failed[alike[row]]))
                    point = {name: column[[row]] for name, column in tables[group].items()}
                    point |= {name: values[0, [option]] for name, values in added.items()}
                    example = sentence(rule, _point(self._seen(point), 0), scenario, scenario.framework)
                    self.note(Refusal(rule.name, int(failed.sum(axis=1) @ each) * self.beyond, example))
                    alive &= ~failed
        return np.flatnonzero(alive[alike])

    def _failed(self, rule: Rule, scenario: Scenario, wide: Columns, added: Columns, alive: Bools) -> Bools:
        """Which of those alive a rule refuses: a slab at a time, as millions of rows may take it a second."""
        failed, step = np.zeros_like(alive), max(SLAB // alive.shape[1], 1)
        for start in range(0, len(alive), step):
            self.check_time(alive.shape[1])
            part = slice(start, start + step)
            some = self._seen({name: column[part] for name, column in wide.items()} | added)
            failed[part] = alive[part] & ~np.asarray(rule.passes(some, scenario))
        return failed

    def note(self, new: Refusal) -> None:
        """Add a refusal, to the rule's earlier ones where there are any."""
        for place, known in enumerate(self.refusals):
            if known.rule == new.rule:
                self.refusals[place] = Refusal(known.rule, known.count + new.count, known.example)
                return
        self.refusals.append(new)

    def note_options(self, rule: Rule, failed: Bools, wide: Columns, group: int, times: Ints) -> None:
        """Add what a rule refused of (row, option) pairs, of which every row stands for so many, (N,) or (1,)."""
        if failed.any():
            at = np.unravel_index(failed.argmax(), failed.shape)
            row = {name: int(np.broadcast_to(column, failed.shape)[at]) for name, column in wide.items()}
            count = int((failed.sum(axis=1) * times).sum())
            scenario = self.parts[group]
            self.note(Refusal(rule.name, count, sentence(rule, row, scenario, scenario.framework)))

    def check_budget(self, rows: int) -> None:
        """Raises: OutOfTime: the budget is spent; half a lattice proves nothing."""
        if self.budget is None:
            return
        self._check_spent(rows)
        self.budget.spend(LAYOUT * rows)

    def check_time(self, times: int = 1) -> None:
        """Raises: OutOfTime: a time limit has passed, with so many times the rows laid out; effort is not counted."""
        if self.budget and self.budget.timed:
            self._check_spent(len(self) * times)

    def _check_spent(self, rows: int) -> None:
        assert self.budget is not None
        if self.budget.spent():
            said = f"no plan: none of the {rows:,} layouts that were looked at was priced"
            raise OutOfTime(f"{said} {self.budget.enough}")


def chosen(columns: Mapping[str, NDArray[Any]], rows: Ints) -> Columns:
    """The given rows of every column; what all rows have in common stays one value."""
    return {
        name: np.broadcast_to(column[:1], rows.shape) if is_constant(column) else column.take(rows)
        for name, column in columns.items()
    }


def _whole(column: NDArray[Any]) -> Ints:
    """A column that may be multiplied, however few bytes it is kept in."""
    return column.astype(np.int64, copy=False)


def _point(columns: Mapping[str, NDArray[Any]], place: int) -> dict[str, int]:
    return {name: int(column[place]) for name, column in columns.items()}
