"""What a plan that all but fills the memory costs less of it to be sure: the best that leaves a margin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from costmodels.pricing import price_strategy
from planner.answer.build import peak_bytes, strategy_record
from planner.explain.levers import device_times
from planner.request.pins import Pin
from planner.request.written import savings
from planner.search.choice import NEARLY_FULL
from planner.search.memory_savers import ways
from planner.search.objective import Aim
from planner.search.split import Incumbent
from planner.space.lattice import Space

MARGIN: Final = 1.0 - NEARLY_FULL
"""Share of the usable memory that the better-safe plan leaves alone."""


def roomier(space: Space, aim: Aim, best: Incumbent, pins: Mapping[str, Pin], deadline: float) -> tuple[str, ...]:
    """A remark with the best that leaves a margin, for a plan that does not; none where it was not found in time."""
    scenario = aim.scenario
    filled = peak_bytes(price_strategy(best.row, scenario, best.assignment)) / scenario.group.accelerator.usable_memory
    if aim.lean or filled <= NEARLY_FULL:
        return ()
    smaller = aim.on(device_times(scenario, usable_memory=1.0 - MARGIN))
    found = smaller.search(space, deadline=deadline, beside=1.0 + aim.within, confirm=False)
    if not found.proved:
        return ()
    asked = f"with --memory-margin {MARGIN:.0%}"
    if found.best is None:
        return (
            f"{asked} nothing fits{' without offloading or recomputing layers together' * any(ways(pins, scenario))}",
        )
    taken = smaller.choice(found).taken
    slower = smaller.value(taken) / aim.value(best) - 1.0
    return (f"{asked}: {_slower(slower)}, {_words(taken, smaller)}",)


def _slower(share: float) -> str:
    return f"{share:.1%} slower" if np.round(share, 3) > 0.0 else "as fast"


def _words(taken: Incumbent, aim: Aim) -> str:
    strategy = strategy_record(taken.row, taken.assignment, aim.scenario)
    names = ("tp", "cp", "pp", "vpp", "dp", "ep")
    said = [f"{name.upper()} {getattr(strategy, name)}" for name in names if getattr(strategy, name) > 1]
    layers, again = (sum(getattr(stage, name) for stage in strategy.stages) for name in ("layers", "recompute_layers"))
    if again:
        said.append(f"recompute {again}/{layers} layers")
    elif strategy.recompute != "none":
        said.append(f"recompute {strategy.recompute}")
    return ", ".join([" ".join(said) or "one GPU", *savings(strategy)])
