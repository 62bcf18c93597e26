"""How unlike two runs are in what makes a prediction hold or fail: machine, software, model, formats, strategy.

A distance of 1 is another vendor, another family of frameworks, experts in place of dense layers, or matrices in
another number of bits; a doubling of a size or of a degree is a tenth of that. The weights are round numbers, not
fitted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodels.model.model import Model
from costmodels.model.parameters import parameters
from costmodels.names import OFFLOADS, SCHEDULE_NAMES, Recompute
from costmodels.scenario import Scenario
from costmodels.stack.precision import RECIPES
from costmodels.strategy import Floats, Strategies

NAMES: Mapping[str, float] = {
    "accelerator": 0.5,
    "architecture": 0.5,
    "vendor": 1.0,
    "stack": 0.5,
    "framework": 1.0,
    "kind": 1.0,
    "bits": 1.0,
    "schedule": 0.5,
}
"""What a difference in a name adds; another vendor is another architecture and accelerator as well, and so on."""

SIZES: Mapping[str, float] = dict.fromkeys(("parameters", "gpus", "seq_length", "tp", "cp", "pp", "ep"), 0.1)
"""What a factor of two adds."""

SWITCHES: Mapping[str, float] = {"sharding": 0.5, "offload": 1.0, "recompute": 0.25, "attention": 1.0}
"""What 1 in place of 0 adds: gradients or parameters sharded, something offloaded, layers recomputed whole, attention
without a fused kernel."""

EXTENTS = ("tp", "cp", "pp", "vpp", "ep")
"""Degrees whose largest measured value bounds the validated region; they add to no distance by that."""

MIXTURE = 1.0
"""What several kinds of nodes in one job add: no measured run has them."""

FRAMEWORKS: tuple[tuple[str, str], ...] = (
    (r"megatron-deepspeed|gpt-neox|deepspeed$", "deepspeed"),
    (r"megatron|megascale|nemo|zero-bubble|vocabulary-parallel", "megatron"),
    (r"torchtitan|fsdp", "torch"),
)
"""First match of a stack's name is the family that its code descends from; others are families of their own."""

PLAIN = frozenset({"gpipe", "1f1b", "interleaved-1f1b", "interleaved-groups"})
_SHORT_NAMES = np.array(["plain" if name in PLAIN else name for name in SCHEDULE_NAMES])


@dataclass(frozen=True)
class Traits:
    """What M runs, or M strategies of one scenario, are compared by."""

    names: Mapping[str, NDArray[np.str_]]
    """By the keys of ``NAMES``; shape (M,), or (1,) where all have the same."""
    sizes: Mapping[str, Floats]
    """By the keys of ``SIZES``, as logarithms to base 2, and of ``SWITCHES``; shape (M,) or (1,)."""

    def take(self, chosen: NDArray[Any]) -> Traits:
        """The given runs, of traits that all have shape (M,)."""
        names = {key: value[chosen] for key, value in self.names.items()}
        return Traits(names, {key: value[chosen] for key, value in self.sizes.items()})

    @cached_property
    def codes(self) -> Mapping[str, tuple[NDArray[np.str_], NDArray[np.int64]]]:
        """Distinct names, and which of them each run has."""
        pairs = {key: np.unique(value, return_inverse=True) for key, value in self.names.items()}
        return {key: (known, inverse.reshape(-1)) for key, (known, inverse) in pairs.items()}

    @cached_property
    def by_names(self) -> tuple[Traits, NDArray[np.int64]]:
        """The distinct combinations of names, without sizes, and which of them each run has."""
        codes = np.stack([code for _, code in self.codes.values()], axis=1)
        _, first, inverse = np.unique(codes, axis=0, return_index=True, return_inverse=True)
        return Traits({key: value[first] for key, value in self.names.items()}, {}), inverse.reshape(-1)


def setting(scenario: Scenario) -> Traits:
    """The traits that all strategies of a scenario have, M = 1."""
    return _settings([scenario])


def _settings(scenarios: Sequence[Scenario]) -> Traits:
    """``setting`` of M scenarios."""
    names = [_names(one) for one in scenarios]
    sizes = {
        "parameters": [parameters(one.model) for one in scenarios],
        "gpus": [one.gpus for one in scenarios],
        "seq_length": [one.seq_length for one in scenarios],
    }
    return Traits(
        {key: np.array([one[key] for one in names]) for key in names[0]},
        {key: np.log2(np.array(column, dtype=np.float64)) for key, column in sizes.items()},
    )


def _names(scenario: Scenario) -> dict[str, str]:
    device, name = scenario.group.accelerator, scenario.stack.name
    return {
        "accelerator": device.name,
        "architecture": device.architecture,
        "vendor": device.vendor,
        "stack": name,
        "framework": framework(name),
        "kind": kind(scenario.model),
        "bits": RECIPES[scenario.precision].arithmetic.removeprefix("mx").replace("bf16", "fp16"),
    }


def traits(scenario: Scenario, rows: Strategies) -> Traits:
    """The traits of strategies under one scenario."""
    return traits_in([scenario], rows)


def traits_in(scenarios: Sequence[Scenario], rows: Strategies) -> Traits:
    """The traits of N strategies, each in a scenario of its own or all in one."""
    common = _settings(scenarios)
    unfused = [one.stack.switches.attention_backend[0] == "unfused" for one in scenarios]
    return Traits(
        {**common.names, "schedule": _schedules(rows)},
        {**common.sizes, **{key: np.log2(getattr(rows, key).astype(np.float64)) for key in EXTENTS}}
        | {
            "sharding": (rows.zero_stage >= 2).astype(np.float64),
            "offload": (rows.offload != OFFLOADS.index("none")).astype(np.float64),
            "recompute": (rows.recompute >= Recompute.FULL).astype(np.float64),
            "attention": np.array(unfused, dtype=np.float64),
        },
    )


def kind(model: Model) -> str:
    """What a model's layers are: "hybrid" with mixers and attention, "experts", or "dense"."""
    if model.mamba or set(model.mixer_pattern) - set("*wst"):
        return "hybrid"
    return "experts" if model.moe else "dense"


@cache
def framework(stack: str) -> str:
    """The family of a stack's code."""
    return next((family for pattern, family in FRAMEWORKS if re.search(pattern, stack)), stack)


def _schedules(rows: Strategies) -> NDArray[np.str_]:
    """No pipeline, a plain one, or the name of another."""
    return np.where(rows.pp > 1, _SHORT_NAMES[rows.schedule], "none")


def apart(mine: Traits, others: Traits) -> dict[str, Floats]:
    """What every trait adds to the distance; arrays (N, M) or (N, 1) where N strategies have one and the same trait."""
    return dict(_parts(mine, others))


def _parts(mine: Traits, others: Traits) -> Iterator[tuple[str, Floats]]:
    for key, weight in NAMES.items():
        if key in mine.names:
            known, code = others.codes[key]
            yield key, (weight * (mine.names[key][:, None] != known)).take(code, axis=1)
    for key, weight in {**SIZES, **SWITCHES}.items():
        if key in mine.sizes:
            part = mine.sizes[key][:, None] - others.sizes[key]
            yield key, np.multiply(np.abs(part, out=part), weight, out=part)


def distance(mine: Traits, others: Traits) -> Floats:
    """From N strategies to M runs, (N, M), by the traits that the strategies have."""
    names, place = others.by_names
    total = _sum(_parts(Traits(mine.names, {}), names), np.zeros((1, 1))).take(place, axis=1)
    return _sum(_parts(Traits({}, mine.sizes), others), total)


def _sum(parts: Iterable[tuple[str, Floats]], total: Floats) -> Floats:
    """The total with all parts added in order, in its own place where it has all their rows."""
    for _, part in parts:
        total = np.add(total, part, out=total if total.size >= part.size else None)
    return total
