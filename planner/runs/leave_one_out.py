"""Constants as they would be had the runs of one source not been there to fit them on.

An interval is for somebody else's run, on which nothing was fitted: a source's misses must not be those of constants
that the source itself drew. The whole fit is done again without each source, along the slopes at the shipped constants,
which prices every run once and not once for every source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from costmodels.scenario import Scenario
from costmodels.stack.stack import stack
from hardware.catalogue import accelerator
from planner.runs.fit import (
    RATE,
    Layout,
    Sample,
    along,
    calibrate_experts,
    layout_of,
    straightened,
    tables,
    with_experts,
    with_rate,
    with_stack,
)
from planner.runs.least_squares import EXPERTS, Floats, solve
from planner.trust.table import source


@dataclass(frozen=True, slots=True)
class Constants:
    """Fitted constants: of stacks in the order of ``STACK_KNOBS``, of accelerators, of stacks' experts."""

    stacks: Mapping[str, Sequence[float]]
    rates: Mapping[str, float]
    experts: Mapping[str, float]

    def on(self, scenario: Scenario) -> Scenario:
        """The scenario with these in place of its own; what is not here stays."""
        name, device = scenario.stack.name, scenario.group.accelerator.name
        if name in self.stacks:
            scenario = with_stack(scenario, np.array(self.stacks[name]))
        if device in self.rates:
            scenario = with_rate(scenario, self.rates[device])
        return with_experts(scenario, self.experts[name]) if name in self.experts else scenario


def without_each(chosen: Sequence[Sample]) -> dict[str, Constants]:
    """By source: the constants fitted to the runs of all others."""
    dense = [s for s in chosen if s.case.scenario.model.moe is None]
    layout = layout_of(dense)
    values = shipped(layout)
    here, slopes = straightened(dense, layout, values)
    straight = partial(along, here - slopes @ values, slopes)
    names = np.array([source(s.group) for s in dense])
    squares = np.array([s.weight**2 for s in dense])
    found = {}
    for name in sorted({source(s.group) for s in chosen}):
        fitted = values
        if (names == name).any():
            knobs = [knob for _, knob in layout]
            fitted = solve(straight, knobs, values, weights=squares * (names != name))
        stacks, rates = tables(layout, fitted)
        found[name] = Constants(stacks, rates, _experts(chosen, name, stacks, rates))
    return found


def shipped(layout: Layout) -> Floats:
    """The constants of the catalogue, in the order of the layout."""
    return np.array([_shipped(owner, knob.field) for owner, knob in layout])


def _shipped(owner: str, field: str) -> float:
    return float(accelerator(owner).training_rate if field == RATE.field else stack(owner).value(field))


def _experts(
    chosen: Iterable[Sample], name: str, stacks: dict[str, list[float]], rates: dict[str, float]
) -> dict[str, float]:
    """The expert efficiencies of the stacks that the source's runs with experts are on, without these runs."""
    mixed = [s for s in chosen if s.case.scenario.model.moe and s.case.scenario.stack.name in stacks]
    mine = {s.case.scenario.stack.name for s in mixed if source(s.group) == name}
    others = [s for s in mixed if source(s.group) != name and s.case.scenario.stack.name in mine]
    told = calibrate_experts(others, stacks, rates)
    return {one: told[one][0] if one in told else EXPERTS.neutral for one in mine}
