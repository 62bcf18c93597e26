"""Two constants of a parameter server's software from two measured throughputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from costmodels.sparse.load import CORES, Load, throughput
from costmodels.sparse.parameter_server import SparseScenario, dense_load, read_load, table_load
from costmodels.sparse.server_runtime import Runtime
from hardware.units import Seconds


def fitted(scenario: SparseScenario, measured: Sequence[tuple[int, float]]) -> Runtime:
    """The runtime whose cores explain two throughputs of worker and server on every node of one group.

    On cores, an example takes A(row) / k + C(message) seconds on k nodes, linear in both constants, so two rows
    determine them. The rest of the runtime is taken as given.

    Args:
        scenario: one CPU group, asynchronous.
        measured: nodes and examples per second, two rows.
    """
    nothing = _with(scenario, row=0.0, message=0.0)
    base = _core_seconds(nothing)
    row = _core_seconds(_with(scenario, row=1.0, message=0.0)) - base
    message = _core_seconds(_with(scenario, row=0.0, message=1.0)) - base
    left = np.array([[row / k, message] for k, _ in measured])
    right = np.array([1.0 / rate - base / k for k, rate in measured])
    row_seconds, message_seconds = np.linalg.solve(left, right).tolist()
    return _with(scenario, row=row_seconds, message=message_seconds).runtime


def _with(scenario: SparseScenario, *, row: Seconds, message: Seconds) -> SparseScenario:
    runtime = scenario.runtime.model_copy(update={"row_seconds": row, "message_seconds": message})
    return replace(scenario, runtime=runtime)


def colocated_throughput(scenario: SparseScenario, nodes: int) -> float:
    """Examples per second of k nodes of the first group that all read, look up, serve and multiply."""
    variation = scenario.runtime.variation
    return throughput(_load(scenario), np.array([nodes]), mode=scenario.mode, variation=variation)


def _load(scenario: SparseScenario) -> Load:
    load = read_load(scenario, 0)
    for table in scenario.model.tables:
        load += table_load(scenario, table, home=0, lookup=0, hbm=0.0, dram=1.0)
    for layer in scenario.model.dense:
        load += dense_load(scenario, layer, 0)
    return load


def _core_seconds(scenario: SparseScenario) -> Seconds:
    """Of one node with one server to ask, per example."""
    load = _load(scenario)
    return float(load.work[0, 0, CORES] + load.messages[0, 0])
