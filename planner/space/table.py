"""Strategies under construction: a table that grows by one axis at a time, less what the rules refuse.

Rules are evaluated as soon as the axes they read are laid out, so that millions of points are counted and refused
without ever being written down. Over several node groups some columns are each group's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Ints, is_constant
from planner.errors import OutOfTime
from planner.request.budget import LAYOUT, Budget
from planner.rules.core import sentence
from planner.rules.rule import Rule

Columns = dict[str, NDArray[Any]]
SEQUENCE = "sequence_parallel"


@dataclass(frozen=True, slots=True)
class Refusal:
    """How many strategies one rule refused first, and one of them in words."""

    rule: str
    count: int
    example: str


@dataclass
class Table:
    """Rows under construction: columns that all node groups share, and those of each."""

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

    def expand(self, axis: str, values: NDArray[Any]) -> None:
        """The cross product of the rows with one more axis that all groups share, less what the rules refuse.

        Only what they read is laid out before they have spoken.
        """
        rows, times = len(self), len(values)
        self.check_budget(rows * times)
        self.beyond //= times
        row = np.repeat(np.arange(rows), times)
        added = np.broadcast_to(values, (rows,)) if times == 1 else np.tile(values, rows)
        rules = self._decidable({axis}, axis)
        names = {name for rule in rules for name in rule.reads if name != axis}
        names |= {"tp"} if self.split_apart else set()
        wide = []
        for table in self.own:
            reads = {name: table[name] if name in table else self.shared[name] for name in names}
            wide.append(self._seen({**(reads if times == 1 else chosen(reads, row)), axis: added}))

        def point(group: int, place: int) -> dict[str, int]:
            here = {name: column[[row[place]]] for name, column in {**self.shared, **self.own[group]}.items()}
            return _point(self._seen({**here, axis: added[[place]]}), 0)

        kept = self._allowed(rules, wide, point, rows * times)
        if times == 1 and len(kept) == rows:
            self.shared[axis] = added
            return
        self.keep(row[kept])
        self.shared |= chosen({axis: added}, kept)

    def refuse(self, new: Iterable[str]) -> None:
        """Apply the rules that the new columns complete."""
        self.check_budget(len(self))
        wide = [self.columns(group) for group in range(len(self.own))]
        self.keep(self._allowed(self._decidable(new), wide, lambda g, place: _point(wide[g], place), len(self)))

    def _decidable(self, new: Iterable[str], *more: str) -> list[Rule]:
        """The rules that can be evaluated on the known axes and could not be before the new ones came."""
        known, new = {*self.shared, *self.own[0], *more}, set(new)
        return [rule for rule in self.rules if set(rule.reads) <= known and set(rule.reads) & new]

    def _allowed(
        self, rules: list[Rule], wide: list[Columns], point: Callable[[int, int], dict[str, int]], rows: int
    ) -> Ints:
        """The rows that pass on every group; each refused one stands for ``beyond`` lattice points.

        ``wide`` is what the rules read, ``point`` a row of a group in full, as a refusal tells it.
        """
        alive = np.ones(rows, dtype=bool)
        for rule in rules:
            if self.budget and self.budget.timed:  # one rule may take a second of millions of rows
                self._check_spent(rows)
            for group, scenario in enumerate(self.parts):
                failed = alive & ~np.asarray(rule.passes(wide[group], scenario))
                if failed.any():
                    example = sentence(rule, point(group, int(np.argmax(failed))), scenario, scenario.framework)
                    self.note(Refusal(rule.name, int(failed.sum()) * self.beyond, example))
                    alive &= ~failed
        return np.flatnonzero(alive)

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
            at = tuple(int(place[0]) for place in np.nonzero(failed))
            row = {name: int(np.broadcast_to(column, failed.shape)[at]) for name, column in wide.items()}
            count = int((failed * times[:, None]).sum())
            scenario = self.parts[group]
            self.note(Refusal(rule.name, count, sentence(rule, row, scenario, scenario.framework)))

    def check_budget(self, rows: int) -> None:
        """Raises: OutOfTime: the budget is spent; half a lattice proves nothing."""
        if self.budget is None:
            return
        self._check_spent(rows)
        self.budget.spend(LAYOUT * rows)

    def _check_spent(self, rows: int) -> None:
        assert self.budget is not None
        if self.budget.spent():
            said = f"no plan: none of the {rows:,} layouts that were looked at was priced"
            raise OutOfTime(f"{said} {self.budget.limit}")


def chosen(columns: Mapping[str, NDArray[Any]], rows: Ints) -> Columns:
    """The given rows of every column; what all rows have in common stays one value."""
    return {
        name: np.broadcast_to(column[:1], rows.shape) if is_constant(column) else column.take(rows)
        for name, column in columns.items()
    }


def _point(columns: Mapping[str, NDArray[Any]], place: int) -> dict[str, int]:
    return {name: int(column[place]) for name, column in columns.items()}
