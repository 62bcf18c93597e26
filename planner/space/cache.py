"""The lattices of the last questions, kept for the next call of a program that asks again.

A lattice, and with it every column derived from it, depends on the machines by their shape alone: it serves all
questions whose machines differ in rates, sizes and prices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any, Final

from costmodels.scenario import Scenario
from hardware.records import NodeGroup
from planner.request.budget import Budget
from planner.request.pins import Pin
from planner.space.lattice import Begun, Space, begin

KEPT: Final = 4
MOST_CORES: Final = 1_000_000
"""Cores that are kept in all: some 200 MB; a question about 12,288 GPUs has 400,000."""

_BLANK_DEVICE: Final[dict[str, Any]] = {
    "memory": 1e9,
    "usable_memory": 1e9,
    "memory_bandwidth": 1e9,
    "power": 0.0,
    "power_limit": None,
    "host_power": 0.0,
    "kernel_power": None,
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
    "all_to_all_gain": 1.0,
    "slowdown": None,
    "source": "",
}

_recent: list[tuple[Scenario, dict[str, Pin], Space]] = []
_lock = Lock()


def cached_space(
    scenario: Scenario,
    pins: Mapping[str, Pin],
    budget: Budget | None = None,
    partly: Callable[[Begun], Space | None] = lambda _: None,
) -> Space:
    """The lattice of a question, kept from one of the last few about machines of the same shape where there is one.

    ``partly`` may finish a lattice that is not known otherwise, for this question alone.

    Raises:
        BadRequest, OutOfTime: as `build`.
    """
    shape, asked = shape_of(scenario), dict(pins)
    known = next((one for one in tuple(_recent) if one[1] == asked and one[0] == shape), None)
    if known is None:
        begun = begin(scenario, asked, budget=budget)
        if some := partly(begun):
            return some
    space = known[2] if known else begun.finish()
    with _lock:
        _recent[:] = [(shape, asked, space), *(one for one in _recent if one is not known)]
        while _recent and (len(_recent) > KEPT or sum(len(one.cores) for _, _, one in _recent) > MOST_CORES):
            _recent.pop()
    return space


def shape_of(scenario: Scenario) -> Scenario:
    """The scenario with all that the lattice does not read set to one value."""
    group = scenario.group
    link = group.tiers[0].link.model_copy(update=_BLANK_LINK)
    tiers = tuple(tier.model_copy(update={"link": link, "oversubscription": 1.0}) for tier in group.tiers)
    peak = dict.fromkeys(group.accelerator.peak, 1e12)
    device = group.accelerator.model_copy(update=_BLANK_DEVICE | {"peak": peak})
    changes = {"accelerator": device, "tiers": tiers, "price": None, "node_power_overhead": None}
    return replace(scenario, group=group.model_copy(update=_known_hosts(group) | changes), stability=None)


def _known_hosts(group: NodeGroup) -> dict[str, Any]:
    """Whether the hosts are described, not how."""
    names = ("host_memory", "host_link", "host_bandwidth")
    return {name: 1e9 for name in names if getattr(group, name) is not None}
