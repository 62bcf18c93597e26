import heapq
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from costmodels.sparse.load import (
    ALL,
    CORES,
    DEVICES,
    HOST_LINK,
    NIC_IN,
    NIC_OUT,
    SSD,
    STEP,
    Load,
    group_rates,
    node_seconds,
    straggler,
)
from costmodels.sparse.model import SparseModel, sparse_model
from costmodels.sparse.parameter_server import (
    SparseScenario,
    capacities,
    crossing_load,
    dense_load,
    device_seconds,
    lateness,
    read_load,
    table_load,
    workers,
)
from costmodels.sparse.server_runtime import runtime
from hardware.errors import BadFile
from hardware.servers import sparse_cluster
from tests.planner.sparse_force import a_group, a_model, a_scenario

EXAMPLES = Path(__file__).parents[3] / "examples"
PUBLISHED = {4: 378_599.0, 8: 736_955.0, 16: 1_448_210.0, 32: 2_553_503.0}
"""Examples per second of CTR-DNN by nodes, asynchronous, worker and server on every node [fleet_ps]."""


def ctr(mode="async"):
    return SparseScenario(sparse_model(EXAMPLES / "ctr-dnn.toml"), sparse_cluster("fleet-cpu").groups, runtime(), mode)


def both():
    return (a_group(nodes=4), a_group("gpu", nodes=2, devices=4, ssd=500, memory=64))


def fitted(scenario, measured):
    """The runtime whose cores explain two throughputs of worker and server on every node of one group.

    On cores, an example takes A(row) / k + C(message) seconds on k nodes, linear in both constants.
    """
    base = core_seconds(with_cores(scenario, 0.0, 0.0))
    row, message = (core_seconds(with_cores(scenario, *one)) - base for one in ((1.0, 0.0), (0.0, 1.0)))
    left = np.array([[row / k, message] for k, _ in measured])
    right = np.array([1.0 / rate - base / k for k, rate in measured])
    return with_cores(scenario, *np.linalg.solve(left, right).tolist()).runtime


def with_cores(scenario, row, message):
    runtime = scenario.runtime.model_copy(update={"row_seconds": row, "message_seconds": message})
    return replace(scenario, runtime=runtime)


def colocated(scenario):
    """What nodes of the first group have to do that all read, look up, serve and multiply."""
    load = read_load(scenario, 0)
    for table in scenario.model.tables:
        load += table_load(scenario, table, home=0, lookup=0, hbm=0.0, dram=1.0)
    for layer in scenario.model.dense:
        load += dense_load(scenario, layer, 0)
    return load


def core_seconds(scenario):
    load = colocated(scenario)
    return float(load.work[0, 0, CORES] + load.messages[0, 0])


def colocated_throughput(scenario, nodes):
    variation = scenario.runtime.variation
    return group_rates(colocated(scenario), np.array([nodes]), mode=scenario.mode, variation=variation).min()


def test_ctr_dnn_fitted_on_4_and_16_nodes_is_predicted_on_8_and_32():
    found = fitted(ctr(), [(k, PUBLISHED[k]) for k in (4, 16)])
    scenario = replace(ctr(), runtime=found)
    error = {k: colocated_throughput(scenario, k) / rate - 1.0 for k, rate in PUBLISHED.items()}
    assert error[4] == pytest.approx(0.0, abs=1e-9)
    assert error[16] == pytest.approx(0.0, abs=1e-9)
    assert abs(error[8]) < 0.02
    assert abs(error[32]) < 0.10


def test_the_shipped_constants_are_those_of_the_fit():
    found, shipped = fitted(ctr(), [(k, PUBLISHED[k]) for k in (4, 16)]), runtime()
    assert shipped.row_seconds == pytest.approx(found.row_seconds, rel=1e-3)
    assert shipped.message_seconds == pytest.approx(found.message_seconds, rel=1e-3)


def test_nodes_that_serve_each_other_follow_amdahl():
    """1 / throughput is A / k + C: HeterPS's (1 - a + a / k) with a = A / (A + C)."""
    k = np.array([1.0, 2.0, 8.0, 64.0])
    slowness = np.array([1.0 / colocated_throughput(ctr(), int(n)) for n in k])
    (a, c), residual, *_ = np.linalg.lstsq(np.stack([1.0 / k, np.ones(4)], axis=1), slowness, rcond=None)
    assert min(a, c) > 0.0
    assert residual.sum() < 1e-9 * (slowness**2).sum()


def test_modes_are_the_faster_the_later_gradients_may_be():
    rates = {mode: colocated_throughput(ctr(mode), 16) for mode in ("sync", "async", "geo")}
    assert rates["sync"] < rates["async"] < rates["geo"]
    late = {mode: lateness(ctr(mode), ctr(mode).groups[0], 16) for mode in ("sync", "async", "geo")}
    assert late == {"sync": 0, "async": 16 * 16 - 1, "geo": 100 * (16 * 16 - 1)}


def test_loads_of_a_layer_are_counted_by_hand():
    scenario = a_scenario(a_model(dense=(100, 50)), (a_group(cores=8, network=8),))
    load = dense_load(scenario, scenario.model.dense[0], 0)
    assert load.work[ALL, 0, CORES] == pytest.approx(6 * 100 * 50 / (8 * 50e9 * 0.6))
    sent = 2 * 4 * 101 * 50 / (8 * 1000) / 1e9
    assert load.work[ALL, 0, NIC_IN] == load.work[ALL, 0, NIC_OUT] == pytest.approx(sent)
    assert load.inside[ALL, 0] == pytest.approx(sent)


def test_a_single_node_sends_nothing_to_itself_and_k_nodes_all_but_a_kth():
    scenario = a_scenario()
    load = table_load(scenario, scenario.model.tables[0], home=0, lookup=0, hbm=0.0, dram=1.0)
    inbound = [node_seconds(load, np.array([k]))[ALL, 0, NIC_IN] for k in (1, 2, 4)]
    assert inbound[0] == pytest.approx(0.0, abs=1e-18)
    assert inbound[2] == pytest.approx(1.5 * inbound[1])


def test_what_one_group_sends_the_other_receives():
    scenario = a_scenario(groups=(a_group(network=10), a_group("far", network=10)))
    load = table_load(scenario, scenario.model.tables[0], home=0, lookup=1, hbm=0.0, dram=1.0)
    load += crossing_load(scenario, source=0, target=1, forward=100.0, backward=10.0)
    assert load.work[ALL, 0, NIC_OUT] == pytest.approx(load.work[ALL, 1, NIC_IN])
    assert load.work[ALL, 1, NIC_OUT] == pytest.approx(load.work[ALL, 0, NIC_IN])
    assert crossing_load(scenario, source=1, target=1, forward=1.0, backward=1.0).work.sum() == 0.0


def test_popular_rows_in_memory_spare_the_drives():
    scenario = a_scenario(groups=both())
    table = scenario.model.tables[0]
    reads = [
        table_load(scenario, table, home=1, lookup=1, hbm=0.0, dram=dram).work[ALL, 1, SSD]
        for dram in (0.0, 0.1, 0.5, 1.0)
    ]
    assert reads == sorted(reads, reverse=True)
    assert reads[-1] == 0.0
    assert reads[1] < 0.9 * reads[0], "the first tenth is more than a tenth"


def test_rows_in_device_memory_need_no_host():
    scenario = a_scenario(groups=both())
    table = scenario.model.tables[0]
    cold, hot = (table_load(scenario, table, home=1, lookup=1, hbm=hbm, dram=1.0).work[ALL, 1] for hbm in (0.0, 1.0))
    assert hot[HOST_LINK] < cold[HOST_LINK]
    assert hot[CORES] < cold[CORES]
    assert hot[DEVICES] > cold[DEVICES]


def test_a_pass_is_fetched_ahead_and_a_step_of_cpus_is_not():
    scenario = a_scenario(groups=both(), mode="sync")
    table = scenario.model.tables[0]
    on_cpu = table_load(scenario, table, home=0, lookup=0, hbm=0.0, dram=1.0)
    on_gpu = table_load(scenario, table, home=1, lookup=1, hbm=0.0, dram=1.0)
    assert on_cpu.work[STEP, 0, CORES] == on_cpu.work[ALL, 0, CORES]
    assert on_gpu.work[STEP, 1, CORES] == 0.0 < on_gpu.work[ALL, 1, CORES]
    assert read_load(scenario, 0).work[STEP].sum() == 0.0


def test_no_part_of_a_step_exceeds_the_whole():
    for mode in ("sync", "async"):
        scenario = a_scenario(groups=both(), mode=mode)
        for home, lookup in ((0, 0), (0, 1), (1, 1), (1, 0)):
            load = table_load(scenario, scenario.model.tables[0], home=home, lookup=lookup, hbm=0.0, dram=1.0)
            assert (load.work[STEP] <= load.work[ALL] + 1e-18).all()
            assert (load.inside[STEP] <= load.inside[ALL] + 1e-18).all()
            assert min(node_seconds(load, np.array([1, 1])).ravel()) >= -1e-18


def test_the_slowest_group_sets_the_pace_and_a_barrier_slows_it():
    load = Load.none(2)
    load.spend(0, CORES, 1e-6)
    load.spend(0, NIC_IN, 1e-6)
    load.spend(1, DEVICES, 1e-5)
    nodes = np.array([4, 20])
    assert group_rates(load, nodes, mode="async", variation=0.1) == pytest.approx([4e6, 2e6])
    barrier = straggler(nodes, variation=0.1)
    assert group_rates(load, nodes, mode="sync", variation=0.1) == pytest.approx([2e6, 2e6] / barrier)


def test_the_slowest_of_many_normal_steps_is_as_late_as_the_formula_says_or_less():
    steps = np.random.default_rng(1).normal(1.0, 0.1, size=(2000, 64)).max(axis=1).mean()
    bound = float(straggler(np.array([64]), variation=0.1)[0])
    assert 1.0 < steps <= bound < 1.3


def test_copies_and_passes_need_room_on_every_node():
    scenario = a_scenario(groups=both())
    table = scenario.model.tables[0]
    held = table_load(scenario, table, home=1, lookup=1, hbm=0.0, dram=1.0).copies[1, 1]
    assert 0.0 < held <= scenario.model.table_bytes(table)
    geo = replace(scenario, mode="geo")
    assert table_load(geo, table, home=0, lookup=0, hbm=0.0, dram=1.0).copies[0, 0] == scenario.model.table_bytes(table)
    stored, own = capacities(geo)
    assert stored[0, 1] + own[0, 0] == pytest.approx(0.8 * 64e9)


def test_an_accelerator_multiplies_no_faster_than_its_peak():
    scenario = a_scenario(a_model(dense=(4096, 4096)), both())
    group, layer = scenario.groups[1], scenario.model.dense[0]
    assert device_seconds(scenario, layer, group) > layer.flops / group.accelerator.peak["fp32"]
    assert workers(group) == 4


def test_stored_rows_count_key_values_and_states():
    known = {"sgd": 8 + 64, "adagrad": 8 + 128, "adagrad-row": 8 + 68, "adam": 8 + 192}
    for optimizer, size in known.items():
        model = a_model(width=16, optimizer=optimizer)
        assert model.row_bytes(model.tables[0]) == size


def test_the_trillion_has_a_trillion():
    assert sparse_model(EXAMPLES / "trillion.toml").parameters == pytest.approx(1e12, rel=1e-4)
    ads = sparse_model(EXAMPLES / "ads-10tb.toml")
    assert sum(map(ads.table_bytes, ads.tables)) == pytest.approx(10e12, rel=0.01)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("rows = 1_000_001", "rows = 0"), "tables.0.rows: expected a count between 1"),
        (("rows = 1_000_001", "rows = 1.5"), "tables.0.rows: expected a whole number, got 1.5"),
        (("hotness = 26", "hotness = true"), "tables.0.hotness: expected a number, got true"),
        (("width = 10", "width = 1.5"), "tables.0.width"),
        (('optimizer = "sgd"', 'optimizer = "lamb"'), "optimizer: expected 'sgd', 'adagrad'"),
        (("hotness", "hotnes"), "tables.0.hotnes: there is no such field"),
    ],
)
def test_a_wrong_model_is_refused_in_one_line(tmp_path, change, said):
    path = tmp_path / "model.toml"
    path.write_text((EXAMPLES / "ctr-dnn.toml").read_text().replace(*change))
    with pytest.raises(BadFile, match=said):
        sparse_model(path)


def test_a_dumped_model_is_a_model():
    model = a_model()
    assert SparseModel.model_validate_json(model.model_dump_json()) == model


def test_dlrm_on_8_v100_in_fp32_is_as_fast_as_published():
    """HugeCTR's sparse operation kit: 3.66 M examples/s with TensorFlow, 65,536 a batch, tables of 82 GB in HBM."""
    v100 = sparse_cluster("hierps").groups[1].model_copy(update={"nodes": 1})
    widths = ((13, 512, 256, 128), (479, 1024, 1024, 512, 256, 1))
    layers = [{"name": f"fc{o}", "inputs": i, "outputs": o} for part in widths for i, o in pairwise(part)]
    tables = [{"name": "t", "count": 26, "rows": 6.16e6, "width": 128, "skew": 1.05}]
    dlrm = SparseModel(name="dlrm", tables=tables, dense=layers, optimizer="sgd", example_bytes="160 B")
    scenario = SparseScenario(dlrm, (v100,), runtime(), "sync")
    load = read_load(scenario, 0) + table_load(scenario, dlrm.tables[0], home=0, lookup=0, hbm=1.0, dram=1.0)
    for layer in dlrm.dense:
        load += dense_load(scenario, layer, 0)
    rate = group_rates(load, np.array([1]), mode="sync", variation=0.1).min()
    assert rate == pytest.approx(3.66e6, rel=0.1)


def played(seconds, *, nodes, workers, examples):
    """Examples per second of workers that take turns on the resources of each node, event by event."""
    draw = np.random.default_rng(2).exponential
    free = np.zeros((nodes, len(seconds)))
    ready = [(0.0, node, 0) for node in range(nodes) for _ in range(workers)]
    heapq.heapify(ready)
    done, now = 0, 0.0
    while done < examples:
        now, node, stage = heapq.heappop(ready)
        end = free[node, stage] = max(now, free[node, stage]) + draw(seconds[stage])
        last = stage == len(seconds) - 1
        done += last
        heapq.heappush(ready, (end, node, 0 if last else stage + 1))
    return done / now


def test_a_simulation_of_workers_agrees_that_the_scarcest_resource_sets_the_pace():
    load = Load.none(1)
    for resource, seconds in ((CORES, 4e-6), (NIC_IN, 10e-6), (NIC_OUT, 7e-6)):
        load.spend(0, resource, seconds)
    predicted = group_rates(load, np.array([3]), mode="async", variation=0.1).min()
    assert predicted == pytest.approx(3e5)
    simulated = played([4e-6, 10e-6, 7e-6], nodes=3, workers=16, examples=20_000)
    assert simulated == pytest.approx(predicted, rel=0.05)
    alone = played([4e-6, 10e-6, 7e-6], nodes=3, workers=1, examples=20_000)
    assert alone == pytest.approx(3 / 21e-6, rel=0.05), "one worker waits for every resource in turn, as in a step"
