"""What points of a study have in common, worked out once in every process.

The lattice of strategies, and with it every column derived from it, depends on the machines by their shape alone: it
serves all points whose machines differ in rates, sizes and prices. A search does not see prices: it serves all points
that differ in money and power alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from costmodels.scenario import Scenario
from hardware.records import Accelerator, NodeGroup
from planner.api import aim, tied_within
from planner.memory_search import leanest
from planner.pins import Pin
from planner.request import Resolved
from planner.search import Outcome, search
from planner.space import Space, build
from planner.ties import only_tied

SPACES: Final = 4
"""Lattices that a process keeps: of a large one some tens of megabytes."""
OUTCOMES: Final = 64
"""Searches that a process keeps; each is a row and a few numbers."""
BESIDE: Final = 1.0 + 1e-6
"""Beside the width of a tie: no runners-up are wanted but those that may be taken."""

_BLANK_DEVICE: Final[dict[str, Any]] = {
    "memory": 1e9,
    "usable_memory": 1e9,
    "memory_bandwidth": 1e9,
    "power": 0.0,
    "price": None,
    "failure": None,
    "training_rate": 1.0,
}
_BLANK_LINK: Final[dict[str, Any]] = {
    "bandwidth": 1e9,
    "efficiency": 1.0,
    "saturation": 0.0,
    "group_penalty": 0.0,
    "base_latency": 0.0,
    "step_latency": 0.0,
    "point_to_point": 1.0,
    "all_reduce_gain": 1.0,
    "source": "",
}
_BLANK_MONEY: Final[dict[str, Any]] = {"power": 0.0, "price": None}


@dataclass
class Shared:
    """A process's memory of lattices and searches, the oldest forgotten first."""

    spaces: list[tuple[Any, Space]] = field(default_factory=list)
    outcomes: list[tuple[Any, Outcome]] = field(default_factory=list)

    def space(self, scenario: Scenario, pins: dict[str, Pin]) -> Space:
        """The lattice of a scenario under the pins."""
        return _remembered(self.spaces, SPACES, (shape_of(scenario), pins), lambda: build(scenario, pins))

    def found(self, resolved: Resolved, space: Space, pins: dict[str, Pin], deadline: float) -> Outcome:
        """The search of a scenario, without the rows that it saw on the way."""
        lean = resolved.request.objective == "memory"
        question = (_without_money(aim(resolved)), pins, lean, tied_within(resolved), resolved.request.time_limit)
        return _remembered(self.outcomes, OUTCOMES, question, lambda: _searched(resolved, space, lean, deadline))


def _searched(resolved: Resolved, space: Space, lean: bool, deadline: float) -> Outcome:
    if lean:
        outcome = leanest(space, aim(resolved), deadline=deadline)
    else:
        outcome = search(space, aim(resolved), deadline=deadline, beside=BESIDE + tied_within(resolved))
    if outcome.best is not None:  # the rest of what was seen tells only why a point is infeasible
        outcome.pool = only_tied(outcome, tied_within(resolved))
    return outcome


def _remembered(known: list[tuple[Any, Any]], most: int, question: Any, answer: Callable[[], Any]) -> Any:
    for place, (other, found) in enumerate(known):
        if other == question:
            known.append(known.pop(place))
            return found
    known.append((question, answer()))
    del known[:-most]
    return known[-1][1]


def shape_of(scenario: Scenario) -> Scenario:
    """The scenario with all that the lattice does not read set to one value."""
    group = scenario.group
    link = group.tiers[0].link.model_copy(update=_BLANK_LINK)
    tiers = tuple(tier.model_copy(update={"link": link, "oversubscription": 1.0}) for tier in group.tiers)
    peak = dict.fromkeys(group.accelerator.peak, 1e12)
    device = group.accelerator.model_copy(update=_BLANK_DEVICE | {"peak": peak})
    changes = {"accelerator": device, "tiers": tiers, "price": None, "node_power_overhead": 0.0}
    return replace(scenario, group=group.model_copy(update=_known_hosts(group) | changes))


def _known_hosts(group: NodeGroup) -> dict[str, Any]:
    """Whether the hosts are described, not how."""
    names = ("host_memory", "host_link", "host_bandwidth")
    return {name: 1e9 for name in names if getattr(group, name) is not None}


def _without_money(scenario: Scenario) -> Scenario:
    group = scenario.group
    device: Accelerator = group.accelerator.model_copy(update=_BLANK_MONEY)
    changes = {"accelerator": device, "price": None, "node_power_overhead": 0.0}
    return replace(scenario, group=group.model_copy(update=changes))
