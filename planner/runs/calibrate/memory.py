"""What the memory of one's own runs teaches of a stack: how much more they need than predicted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from costmodels.stack.stack import Stack
from hardware.errors import MeshwrightError
from hardware.records import Cluster
from planner.processes import check_interrupt
from planner.runs.calibrate.document import Constant
from planner.runs.calibrate.identify import Fit
from planner.runs.calibrate.records import FileRun
from planner.runs.calibrate.runs import point_of
from planner.runs.calibrate.summary import FARTHEST, Part, errors, plain, source
from planner.runs.case import Case, case_of
from planner.runs.judge import room_of, shown_bytes
from planner.runs.schema import Run
from planner.trust.error_model import Points
from planner.trust.memory import nearest_reading
from planner.trust.own_memory import Needs, Seen, learn_needs
from planner.trust.table import figures


class Kept(NamedTuple):
    """A run that says something of memory, its file, and how it is priced."""

    file: str
    run: Run
    case: Case

    @property
    def missed(self) -> float:
        """Logarithm of read over predicted; not a number where nothing was read, or only when it failed."""
        said, priced = self.run.measured, self.case.price()
        if said.out_of_memory or said.peak_memory is None:
            return math.nan
        return math.log(said.peak_memory.bytes / shown_bytes(self.run, self.case, priced))

    @property
    def side(self) -> float:
        """1 of a run that ran, -1 of one that ran out of memory, not a number where it is not known or was read."""
        fits = self.run.measured.fits
        read = self.run.measured.peak_memory is not None and fits
        return math.nan if fits is None or read else 1.0 if fits else -1.0


def kept(runs: Iterable[FileRun], cluster: Cluster, stack: Stack) -> tuple[list[Kept], list[str]]:
    """The runs that say something of memory on that cluster and stack, and the readings that cannot be right.

    None where no run was read or ran out.
    """
    found, notes = [], []
    for file, run in runs:
        said, usable = run.measured, run.scored and not run.not_fitted
        if not usable or (said.peak_memory is None and said.fits is None):
            continue
        try:
            one = Kept(file, run, case_of(run, cluster=cluster, stack=stack))
            missed = one.missed
        except (MeshwrightError, ValueError, ArithmeticError) as error:
            check_interrupt(error)  # the runs' times say why it is not used
            continue
        if abs(missed) >= FARTHEST:
            notes.append(
                f"{file}, run {run.id}: memory not used: {math.exp(missed):.3g} times the predicted; its units?"
            )
        else:
            found.append(one)
    speak = any(one.run.measured.peak_memory or one.run.measured.out_of_memory for one in found)
    return (found if speak else []), notes


def fit_memory(found: list[Kept], stack: Stack) -> tuple[Stack, Part]:
    """The stack with what the runs need, and what is said of it."""
    points = Points.joined(map(_point, found))
    missed = np.array([one.missed for one in found])
    seen = Seen(missed, np.array([room_of(one.case) for one in found]), np.array([one.side for one in found]))
    needs = learn_needs(points, seen, figures().memory)
    read = missed[~np.isnan(missed)]
    fit = Fit((), -read, needs.center - read, needs.center - read)
    unit = "runs" if len(found) > 1 else "run"
    said = source([one.file for one in found], len(found), unit, fit) if len(read) else _failed(found)
    fields = {
        "memory_runs": len(found),
        "memory_needed": plain(math.exp(needs.center)),
        "memory_uncertain": plain(needs.scale),
        "memory_margin": plain(needs.margin),
    }
    stack = stack.changed({f"calibrated.{name}": value for name, value in fields.items()})
    missing = tuple([errors("memory", fit).model_copy(update={"median_left_out": None})] if len(read) else [])
    return stack, Part((_constant(needs, said),), missing, ())


def _point(one: Kept) -> Points:
    return replace(point_of(one.case), nearest=np.array([nearest_reading(one.case.scenario)]))


def _failed(found: list[Kept]) -> str:
    ran = sum(one.side > 0 for one in found)
    return f"{', '.join(dict.fromkeys(one.file for one in found))}: {ran} that ran, {len(found) - ran} out of memory"


def _constant(needs: Needs, said: str) -> Constant:
    needed = math.exp(needs.center)
    return Constant(
        name="stack.calibrated.memory_needed",
        before=1.0,
        after=plain(needed),
        standard_error=plain(needed * needs.scale),
        narrowed=needs.narrowed,
        source=f"{said}; a margin of {needs.margin:.1%} is 80 % sure",
    )
