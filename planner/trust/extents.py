"""The largest degrees of measured runs, and those of a strategy that are larger."""

from __future__ import annotations

import numpy as np

from costmodels.names import SHARDED_PARAMETERS
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies
from planner.trust.similarity import EXTENTS, framework, kind
from planner.trust.table import measured


def measured_extents(scenario: Scenario) -> dict[str, int]:
    """The largest degree of all runs of models with the same kind of layers, by axis; empty where there is no run."""
    known = measured().traits
    alike = known.names["kind"] == kind(scenario.model)
    if not alike.any():
        return {}
    return {axis: round(2.0 ** float(known.sizes[axis][alike].max())) for axis in EXTENTS}


def degrees_past(scenario: Scenario, row: Strategies) -> dict[str, int]:
    """Of one strategy's axes with a degree beyond all that was measured: the largest measured, by axis."""
    most = measured_extents(scenario)
    return {axis: known for axis, known in most.items() if int(getattr(row, axis)[0]) > known}


def past_measured(scenario: Scenario, row: Strategies) -> tuple[str, ...]:
    """The remark on degrees beyond all that was measured, and on parameters sharded over more ranks than anywhere.

    Degrees of more than twice as much stand in the remark on the validated region (`planner.trust.interval.outside`).
    """
    past = {axis: (int(getattr(row, axis)[0]), known) for axis, known in degrees_past(scenario, row).items()}
    said = [f"{axis.upper()} {own} (at most {known})" for axis, (own, known) in past.items() if own <= 2 * known]
    ranks, widest = int(row.sharding_degree[0]), _widest_sharding(scenario)
    if row.zero_stage[0] >= SHARDED_PARAMETERS and widest and ranks > widest:
        said.append(f"parameters sharded over {ranks:,} ranks (at most {widest:,} with such software)")
    return (f"beyond all that was measured of such models: {', '.join(said)}",) if said else ()


def _widest_sharding(scenario: Scenario) -> int:
    """Ranks that gradients or parameters were sharded over at most, under software of the same descent; 0 of none."""
    known = measured().traits
    alike = (known.names["framework"] == framework(scenario.stack.name)) & (known.sizes["sharding"] > 0.0)
    ranks = known.sizes["gpus"] - known.sizes["tp"] - known.sizes["pp"]
    return round(2.0 ** float(np.max(ranks[alike]))) if alike.any() else 0
