"""Other machines: a scenario with factors on what its devices and links can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

from costmodels.node_groups import Mixed
from costmodels.scenario import Scenario
from hardware.links import Tier
from hardware.records import Between

Lever = Callable[[Scenario, float], Scenario]
"""A scenario with a factor on one of its quantities."""


def scale_compute(scenario: Scenario, factor: float) -> Scenario:
    """Peak rates of every precision times a factor."""
    peak = {name: rate * factor for name, rate in scenario.group.accelerator.peak.items()}
    return _with_device(scenario, {"peak": peak})


def scale_device(scenario: Scenario, **factors: float) -> Scenario:
    """Quantities of the accelerator times a factor each."""
    device = scenario.group.accelerator
    return _with_device(scenario, {name: getattr(device, name) * factor for name, factor in factors.items()})


def scale_links(scenario: Scenario, factor: float, *, inner: bool) -> Scenario:
    """Bandwidth inside the node, or of all tiers beyond it, times a factor."""
    return _scale_tiers(lambda place: (place == 0) == inner, scenario, factor)


def machine_levers(scenario: Scenario) -> Mapping[str, Lever]:
    """Levers on the machines by name: every tier has its bandwidth, all of them share a latency."""
    tiers = {f"{tier.name} bandwidth": partial(_scale_tiers, i.__eq__) for i, tier in enumerate(scenario.group.tiers)}
    return {
        "arithmetic": scale_compute,
        "memory bandwidth": lambda asked, factor: scale_device(asked, memory_bandwidth=factor),
        "memory": lambda asked, factor: scale_device(asked, usable_memory=factor),
        **tiers,
        "latency": _latency_times,
    }


def uncertain_levers(scenario: Scenario) -> Mapping[str, Lever]:
    """Levers on what a prediction may be wrong about: bandwidths, and with the arithmetic its efficiency."""
    some: dict[str, Lever] = {
        "arithmetic": scale_compute,
        "memory bandwidth": lambda asked, factor: scale_device(asked, memory_bandwidth=factor),
        "node links": lambda asked, factor: scale_links(asked, factor, inner=True),
    }
    beyond = {"network": lambda asked, factor: scale_links(asked, factor, inner=False)}
    return some | (beyond if len(scenario.group.tiers) > 1 else {})


def _latency_times(scenario: Scenario, factor: float) -> Scenario:
    """Every tier's times that do not depend on bytes, times a factor."""

    def slower(tier: Tier) -> Tier:
        link = tier.link
        update = {"base_latency": link.base_latency * factor, "step_latency": link.step_latency * factor}
        return tier.model_copy(update={"link": link.model_copy(update=update)})

    return _with_tiers(scenario, [slower(tier) for tier in scenario.group.tiers])


def _scale_tiers(which: Callable[[int], bool], scenario: Scenario, factor: float) -> Scenario:
    """Bandwidth of some tiers, by their place, times a factor."""
    tiers = enumerate(scenario.group.tiers)
    return _with_tiers(
        scenario,
        [tier.model_copy(update={"link": tier.link.times(factor)}) if which(i) else tier for i, tier in tiers],
    )


def _with_tiers(scenario: Scenario, tiers: list[Tier]) -> Scenario:
    return replace(scenario, group=scenario.group.model_copy(update={"tiers": tuple(tiers)}))


def _with_device(scenario: Scenario, update: dict[str, Any]) -> Scenario:
    device = scenario.group.accelerator.model_copy(update=update)
    return replace(scenario, group=scenario.group.model_copy(update={"accelerator": device}))


def faster_between(mixed: Mixed) -> Mixed:
    """Links between groups of twice the bandwidth, the groups' own unchanged."""
    links = []
    for pair in combinations([one.group.name for one in mixed.scenarios], 2):
        link = min((tier.link for tier in mixed.cluster.crossing(*pair)), key=lambda link: link.bandwidth)
        links.append(Between.model_construct(groups=pair, link=link.times(2.0)))
    return replace(mixed, cluster=mixed.cluster.model_copy(update={"between": tuple(links)}))


def faster_networks(mixed: Mixed) -> Mixed:
    """Every tier outside the nodes with twice the bandwidth."""
    parts = tuple(scale_links(one, 2.0, inner=False) for one in mixed.scenarios)
    return Mixed(mixed.cluster.model_copy(update={"groups": tuple(one.group for one in parts)}), parts)
