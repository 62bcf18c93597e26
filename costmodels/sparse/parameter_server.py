"""Loads of the parts of a sparse model: reading, embedding tables, dense layers, transfers between groups.

A worker pulls the rows that its examples name from the nodes that hold them, pools them, and pushes their gradients
back [Li14]. Workers on CPUs do so once a step. Nodes with accelerators fetch the rows of a whole pass into device
memory first, from the memory and the drives of their hosts, and write them back behind it [Zhao20].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from costmodels.arrays import Floats
from costmodels.names import WORD
from costmodels.primitives.kernels import matmul_seconds, stream_seconds
from costmodels.sparse.access import distinct_rows
from costmodels.sparse.load import CORES, DEVICE_LINK, DEVICES, HOST_LINK, MEMORY, NIC_IN, NIC_OUT, SSD, Load, Mode
from costmodels.sparse.model import KEY, VALUE, Dense, SparseModel, Table
from costmodels.sparse.server_runtime import Runtime
from hardware.records import Accelerator
from hardware.servers import ServerGroup
from hardware.units import Bytes, Seconds

_DIRECTIONS = 2.0
"""A pull and a push: both directions of a network card see each of them once where nodes serve each other."""
_PASSES = 3.0
"""Of a value that is looked up: read, pooled gradient read, gradient written."""


@dataclass(frozen=True, slots=True)
class SparseScenario:
    """What stays the same while a plan varies."""

    model: SparseModel
    groups: tuple[ServerGroup, ...]
    runtime: Runtime
    mode: Mode


def workers(group: ServerGroup) -> int:
    """Workers of one node: its accelerators, or the threads of a node without any."""
    return group.gpus_per_node or group.cores


def step_examples(scenario: SparseScenario, group: ServerGroup) -> int:
    """Examples of one step of a node: of all its workers."""
    model = scenario.model
    return workers(group) * (model.device_batch_size if group.accelerator else model.batch_size)


def read_load(scenario: SparseScenario, on: int) -> Load:
    """Reading and parsing an example, ahead of its step."""
    load, group = Load.none(len(scenario.groups)), scenario.groups[on]
    size = scenario.model.example_bytes
    load.spend(on, CORES, size / (group.cores * scenario.runtime.parse_bandwidth), ahead=True)
    load.spend(on, NIC_IN, size / group.network, ahead=True)
    return load


def dense_load(scenario: SparseScenario, layer: Dense, on: int) -> Load:
    """A dense layer, forward and backward, and the exchange of its gradients among the nodes that hold it."""
    load, group = Load.none(len(scenario.groups)), scenario.groups[on]
    if group.accelerator is None:
        rate = group.cores * group.core_peak * scenario.runtime.gemm_share
        load.spend(on, CORES, layer.flops / rate)
        load.spend(on, MEMORY, _PASSES * VALUE * (layer.inputs + layer.outputs) / group.memory_bandwidth)
    else:
        load.spend(on, DEVICES, device_seconds(scenario, layer, group) / group.gpus_per_node)
        _all_reduce(load, scenario, layer, on)
    merged = {"sync": 1, "async": 1 if group.accelerator else scenario.runtime.async_merge}
    steps = merged.get(scenario.mode, scenario.model.geo_steps)
    gradients = VALUE * layer.parameters / (step_examples(scenario, group) * steps)
    load.exchange(on, _DIRECTIONS * gradients / group.network)
    return load


def device_seconds(scenario: SparseScenario, layer: Dense, group: ServerGroup) -> Seconds:
    """One accelerator's time for one example: three products and the activation's passes of a batch, over the batch."""
    device, b = group.accelerator, scenario.model.device_batch_size
    assert device is not None
    half, precision = device.half_rate, scenario.model.precision
    peak = half if precision == "bf16" else device.peak.get(precision, device.peak.get("fp32", half))
    peak *= device.clock(precision)
    i, o = layer.inputs, layer.outputs
    fit = device.kernels.gemm["bf16"]
    m, n, k = np.array([(b, o, i), (b, i, o), (i, o, b)], dtype=float).T
    products = matmul_seconds(m=m, n=n, k=k, fit=fit, peak=peak, bandwidth=device.memory_bandwidth).sum()
    return float(products + _activation_seconds(scenario, layer, device)) / b


def _activation_seconds(scenario: SparseScenario, layer: Dense, device: Accelerator) -> Seconds:
    """Bias and activation of a batch: read and written forward; backward two are read and one is written."""
    value = WORD if scenario.model.precision == "bf16" else VALUE
    size, shares = value * layer.outputs * scenario.model.device_batch_size, device.kernels.memory_bound
    forward = stream_seconds(traffic=2.0 * size, share=shares.stock, bandwidth=device.memory_bandwidth)
    backward = stream_seconds(traffic=3.0 * size, share=shares.stock, bandwidth=device.memory_bandwidth)
    return float(forward + backward) + 2.0 * device.kernels.launch


def _all_reduce(load: Load, scenario: SparseScenario, layer: Dense, on: int) -> None:
    """Gradients of a step around the ring of a node's devices: 2 (g - 1) / g of them per device."""
    group = scenario.groups[on]
    g = group.gpus_per_node
    assert group.device_link is not None
    sent = 2.0 * (g - 1) / g * VALUE * layer.parameters
    load.spend(on, DEVICE_LINK, sent / group.device_link / step_examples(scenario, group))


def table_load(scenario: SparseScenario, table: Table, *, home: int, lookup: int, hbm: float, dram: float) -> Load:
    """Tables that one group holds and another, or the same, looks up.

    Args:
        scenario: the question.
        table: one table, or several alike.
        home: the group that holds the rows, spread over all its nodes.
        lookup: the group whose workers look them up.
        hbm: share of the rows, the most popular ones, in device memory of ``home``.
        dram: share in device or host memory; the rest is on drives.
    """
    load = Load.none(len(scenario.groups))
    touched = _touched(scenario, table, lookup, hbm=hbm, dram=dram)
    _look_up(load, scenario, table, lookup)
    _serve(load, scenario, table, touched, home=home, ahead=scenario.groups[lookup].accelerator is not None)
    _travel(load, scenario, table, touched, home=home, lookup=lookup)
    _ask(load, scenario, home=home, lookup=lookup)
    load.stored[home] += scenario.model.table_bytes(table) * np.array([hbm, dram - hbm, 1.0 - dram])
    if scenario.mode == "geo":
        load.copies[lookup, 0] += scenario.model.table_bytes(table)
    elif scenario.groups[lookup].accelerator is not None:
        held = touched.fetched * scenario.model.pass_examples
        load.copies[lookup, 1] += held * scenario.model.row_bytes(table)
    return load


@dataclass(frozen=True, slots=True)
class _Touched:
    """Distinct rows per example: of a step in device memory, of a window in host memory and on drives.

    ``step``: of a step, in all tiers below device memory; only nodes with accelerators have it.
    """

    hbm: float
    dram: float
    ssd: float
    step: float

    @property
    def fetched(self) -> float:
        return self.dram + self.ssd


def window_examples(scenario: SparseScenario, group: ServerGroup) -> int:
    """Examples whose rows are pulled, and pushed, at once: a thread's step, a node's pass, a node's geo period."""
    if scenario.mode == "geo":
        return scenario.model.geo_steps * step_examples(scenario, group)
    return scenario.model.pass_examples if group.accelerator else scenario.model.batch_size


def lateness(scenario: SparseScenario, group: ServerGroup, nodes: int) -> int:
    """Steps of other workers between a worker's pull and its push, on k nodes that look rows up.

    None in sync mode, one of every other worker in async mode, ``geo_steps`` of each in geo mode. The accelerators
    of a node share the rows that it fetched, and push them when the pass ends: other nodes are a pass late.
    """
    if scenario.mode == "sync":
        return 0
    if group.accelerator is not None:
        steps = math.ceil(scenario.model.pass_examples / step_examples(scenario, group))
        return (nodes - 1) * group.gpus_per_node * steps
    steps = scenario.model.geo_steps if scenario.mode == "geo" else 1
    return (nodes * workers(group) - 1) * steps


def _touched(scenario: SparseScenario, table: Table, lookup: int, *, hbm: float, dram: float) -> _Touched:
    group = scenario.groups[lookup]
    ranks = np.array([hbm, dram, 1.0]) * table.rows

    def per_example(examples: int) -> Floats:
        reached = distinct_rows(examples * table.hotness, rows=table.rows, skew=table.skew, ranks=ranks)
        return np.diff(reached, prepend=0.0) * (table.count / examples)

    _, warm, cold = per_example(window_examples(scenario, group))
    hot, *rest = per_example(step_examples(scenario, group)) if group.accelerator else (0.0, 0.0, 0.0)
    return _Touched(hbm=float(hot), dram=float(warm), ssd=float(cold), step=float(sum(rest)))


def _look_up(load: Load, scenario: SparseScenario, table: Table, on: int) -> None:
    """Rows are gathered and pooled, and gradients spread over them again, by every look-up."""
    group, runtime = scenario.groups[on], scenario.runtime
    looked_up = table.hotness * table.count
    traffic: Bytes = _PASSES * VALUE * table.width * looked_up
    if group.accelerator is None:
        load.spend(on, CORES, runtime.row_seconds * looked_up / group.cores)
        load.spend(on, MEMORY, traffic / (runtime.random_share * group.memory_bandwidth))
        return
    g, device = group.gpus_per_node, group.accelerator
    assert group.host_link is not None
    load.spend(on, DEVICES, traffic / (runtime.device_random_share * device.memory_bandwidth * g))
    load.spend(on, HOST_LINK, KEY * looked_up / (group.host_link * g), ahead=True)


def _serve(load: Load, scenario: SparseScenario, table: Table, touched: _Touched, *, home: int, ahead: bool) -> None:
    """A row is found and sent, and its gradient applied: read and written once in the tier that holds it.

    Drives read a block for every row, and write rows one behind the other into new files [Zhao20].
    """
    group, runtime = scenario.groups[home], scenario.runtime
    row = scenario.model.row_bytes(table)
    if touched.hbm and group.accelerator is not None:
        bandwidth = runtime.device_random_share * group.accelerator.memory_bandwidth * group.gpus_per_node
        load.spend(home, DEVICES, 2.0 * row * touched.hbm / bandwidth)
    load.spend(home, CORES, runtime.row_seconds * touched.fetched / group.cores, ahead=ahead)
    random = runtime.random_share * group.memory_bandwidth
    load.spend(home, MEMORY, 2.0 * row * touched.fetched / random, ahead=ahead)
    if touched.ssd:
        assert group.ssd_bandwidth is not None
        assert group.ssd_reads is not None
        read = max(1.0 / group.ssd_reads, max(runtime.block, row) / group.ssd_bandwidth)
        load.spend(home, SSD, (read + row / group.ssd_bandwidth) * touched.ssd, ahead=ahead)


def _travel(load: Load, scenario: SparseScenario, table: Table, touched: _Touched, *, home: int, lookup: int) -> None:
    """Rows and gradients on the way between the nodes that hold and those that look up."""
    group, other, wire = scenario.groups[lookup], scenario.groups[home], table.wire_bytes
    ahead = group.accelerator is not None
    pulled = touched.fetched * wire
    if home == lookup:
        load.exchange(lookup, _DIRECTIONS * pulled / group.network, ahead=ahead)
    else:
        for nic in (NIC_IN, NIC_OUT):
            load.spend(lookup, nic, pulled / group.network, ahead=ahead)
            load.spend(home, nic, pulled / other.network, ahead=ahead)
    if not group.accelerator:
        return
    g = group.gpus_per_node
    assert group.host_link is not None
    assert group.device_link is not None
    load.spend(lookup, HOST_LINK, pulled / (group.host_link * g), ahead=True)
    near = touched.hbm + touched.step
    load.spend(lookup, DEVICE_LINK, _DIRECTIONS * (g - 1) / g * near * wire / (group.device_link * g))
    shared = touched.hbm + (touched.step if scenario.mode == "sync" else 0.0)
    load.exchange(lookup, _DIRECTIONS * shared * wire / group.network)


def _ask(load: Load, scenario: SparseScenario, *, home: int, lookup: int) -> None:
    """Two requests, pull and push, to every node that holds rows; both sides spend a core's time on each."""
    window = window_examples(scenario, scenario.groups[lookup])
    for side in (lookup, home):
        load.messages[side, home] += 2.0 * scenario.runtime.message_seconds / (window * scenario.groups[side].cores)


def crossing_load(
    scenario: SparseScenario, *, source: int, target: int, forward: Bytes, backward: Bytes, ahead: bool = False
) -> Load:
    """What passes between two places of the model that are on different groups; nothing on the same one."""
    load = Load.none(len(scenario.groups))
    if source == target:
        return load
    for on, out, back in ((source, forward, backward), (target, backward, forward)):
        group = scenario.groups[on]
        load.spend(on, NIC_OUT, out / group.network, ahead=ahead)
        load.spend(on, NIC_IN, back / group.network, ahead=ahead)
        if group.accelerator is not None and group.host_link is not None:
            load.spend(on, HOST_LINK, max(out, back) / (group.host_link * group.gpus_per_node), ahead=ahead)
    return load


def capacities(scenario: SparseScenario) -> tuple[Floats, Floats]:
    """Bytes of one node for rows: by tier, shape (G, 3), and for what every node holds by itself, shape (G, 2).

    Device memory is split between tables and the rows of a pass; in geo mode host memory between the servers' share
    of the tables and the node's own copy.
    """
    runtime, groups = scenario.runtime, scenario.groups
    device = np.array([g.gpus_per_node * g.accelerator.usable_memory if g.accelerator else 0.0 for g in groups])
    host = runtime.memory_share * np.array([group.memory for group in groups])
    drives = runtime.memory_share * np.array([group.ssd for group in groups])
    held = 0.5 if scenario.mode == "geo" else 1.0
    stored = np.stack([(1.0 - runtime.working_share) * device, held * host, drives], axis=1)
    return stored, np.stack([(1.0 - held) * host, runtime.working_share * device], axis=1)
