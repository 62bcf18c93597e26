"""Constants as they would be had the runs of one source not been there to fit them on.

An interval is for somebody else's run, on which nothing was fitted: a source's misses must not be those of constants
that the source itself drew. The whole fit is done again without each source, along the slopes at the shipped constants,
which prices every run once and not once for every source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from costmodels.stack.stack import stack
from hardware.catalogue import accelerator
from planner.runs.fit import Layout, Sample, by_experts, calibrate_experts, constants_of, layout_of, linear, linearized
from planner.runs.least_squares import EXPERTS, RATE, Constants, Floats, solve
from planner.trust.table import source


def without_each(chosen: Sequence[Sample]) -> dict[str, Constants]:
    """By source: the constants fitted to the runs of all others."""
    dense, mixed = by_experts(chosen)
    layout = layout_of(dense)
    knobs, values = [knob for _, knob in layout], shipped(layout)
    here, slopes = linearized(dense, layout, values)
    errors = partial(linear, here - slopes @ values, slopes)
    names = np.array([source(s.group) for s in dense])
    squares = np.array([s.weight**2 for s in dense])
    found = {}
    for name in sorted({source(s.group) for s in chosen}):
        others = names != name
        fitted = values if others.all() else solve(errors, knobs, values, weights=squares * others)
        constants = constants_of(layout, fitted)
        found[name] = {**constants, **_experts(mixed, name, constants)}
    return found


def shipped(layout: Layout) -> Floats:
    """The constants of the catalogue, in the order of the layout."""
    return np.array([accelerator(o).training_rate if k is RATE else stack(o).value(k.field) for o, k in layout])


def _experts(mixed: Iterable[Sample], name: str, constants: Constants) -> Constants:
    """The expert efficiencies of the stacks that the source's runs with experts are on, without these runs."""
    fitted = {owner for owner, _ in constants}
    mine = {s.stack for s in mixed if source(s.group) == name} & fitted
    others = [s for s in mixed if source(s.group) != name and s.stack in mine]
    return {(stack, EXPERTS.field): EXPERTS.neutral for stack in mine} | calibrate_experts(others, constants)
