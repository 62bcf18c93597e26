"""Levers on a question: its machines with something faster or larger, its batch, its number of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from costmodels.scenario import Scenario
from hardware.links import Tier

Lever = Callable[[Scenario, float], Scenario]
"""A scenario with a factor on one of its quantities."""


def arithmetic_times(scenario: Scenario, factor: float) -> Scenario:
    """Peak rates of every precision times a factor."""
    peak = {name: rate * factor for name, rate in scenario.group.accelerator.peak.items()}
    return _with_device(scenario, {"peak": peak})


def device_times(scenario: Scenario, **factors: float) -> Scenario:
    """Quantities of the accelerator times a factor each."""
    device = scenario.group.accelerator
    return _with_device(scenario, {name: getattr(device, name) * factor for name, factor in factors.items()})


def links_times(scenario: Scenario, factor: float, *, inner: bool) -> Scenario:
    """Bandwidth inside the node, or of all tiers beyond it, times a factor."""
    tiers = scenario.group.tiers
    return _with_tiers(
        scenario, [_tier_times(tier, factor) if (i == 0) == inner else tier for i, tier in enumerate(tiers)]
    )


def levers_of(scenario: Scenario) -> Mapping[str, Lever]:
    """Levers on the machines by name: every tier has its bandwidth, all of them share a latency."""
    tiers = {f"{tier.name} bandwidth": partial(_one_tier, i) for i, tier in enumerate(scenario.group.tiers)}
    return {
        "arithmetic": arithmetic_times,
        "memory bandwidth": lambda asked, factor: device_times(asked, memory_bandwidth=factor),
        "memory": lambda asked, factor: device_times(asked, usable_memory=factor),
        **tiers,
        "latency": _latency_times,
    }


def uncertain_of(scenario: Scenario) -> Mapping[str, Lever]:
    """What a prediction may be wrong about in the machines: bandwidths, and with the arithmetic its efficiency."""
    some: dict[str, Lever] = {
        "arithmetic": arithmetic_times,
        "memory bandwidth": lambda asked, factor: device_times(asked, memory_bandwidth=factor),
        "node links": lambda asked, factor: links_times(asked, factor, inner=True),
    }
    beyond = {"network": lambda asked, factor: links_times(asked, factor, inner=False)}
    return some | (beyond if len(scenario.group.tiers) > 1 else {})


def _one_tier(place: int, scenario: Scenario, factor: float) -> Scenario:
    tiers = scenario.group.tiers
    return _with_tiers(scenario, [_tier_times(tier, factor) if i == place else tier for i, tier in enumerate(tiers)])


def _latency_times(scenario: Scenario, factor: float) -> Scenario:
    """Every tier's times that do not depend on bytes, times a factor."""

    def slower(tier: Tier) -> Tier:
        link = tier.link
        update = {"base_latency": link.base_latency * factor, "step_latency": link.step_latency * factor}
        return tier.model_copy(update={"link": link.model_copy(update=update)})

    return _with_tiers(scenario, [slower(tier) for tier in scenario.group.tiers])


def _tier_times(tier: Tier, factor: float) -> Tier:
    return tier.model_copy(update={"link": tier.link.times(factor)})


def _with_tiers(scenario: Scenario, tiers: list[Tier]) -> Scenario:
    return replace(scenario, group=scenario.group.model_copy(update={"tiers": tuple(tiers)}))


def _with_device(scenario: Scenario, update: dict[str, Any]) -> Scenario:
    device = scenario.group.accelerator.model_copy(update=update)
    return replace(scenario, group=scenario.group.model_copy(update={"accelerator": device}))
