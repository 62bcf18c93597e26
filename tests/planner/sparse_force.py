"""Small questions about parameter servers, and every plan for them, one by one."""

from itertools import pairwise, product

import numpy as np
from hypothesis import strategies as st

from costmodels.sparse.load import MODES
from costmodels.sparse.model import SparseModel
from costmodels.sparse.parameter_server import SparseScenario
from costmodels.sparse.server_runtime import runtime
from hardware.catalogue import accelerator
from hardware.servers import ServerGroup

GB = 1e9


def a_group(name="cpu", *, nodes=3, memory=64, cores=8, network=10, price=1.0, devices=0, ssd=0):
    """A group of round numbers: GB of memory and drives, Gb/s of network, dollars per hour."""
    more = {}
    if ssd:
        more = {"ssd": f"{ssd} GB", "ssd_bandwidth": "6 GB/s", "ssd_reads": "500k"}
    if devices:
        device = accelerator("v100-sxm2-16gb")
        more |= {"accelerator": device, "gpus_per_node": devices, "host_link": "16 GB/s", "device_link": "100 GB/s"}
    return ServerGroup(
        name=name,
        nodes=nodes,
        cores=cores,
        core_peak="50 GFLOP/s",
        memory=f"{memory} GB",
        memory_bandwidth="100 GB/s",
        network=f"{network} Gb/s",
        price=f"{price} $/h",
        **more,
    )


def a_model(*, rows=(1e6,), width=16, hotness=10.0, skew=1.0, dense=(64, 32, 8), **more):
    """A model of a few tables and layers."""
    tables = [
        {"name": f"t{i}", "rows": count, "width": width, "hotness": hotness, "skew": skew}
        for i, count in enumerate(rows)
    ]
    layers = [{"name": f"fc{i}", "inputs": a, "outputs": b} for i, (a, b) in enumerate(pairwise(dense))]
    return SparseModel(name="toy", tables=tables, dense=layers, **more)


def a_scenario(model=None, groups=None, mode="async"):
    return SparseScenario(model or a_model(), groups or (a_group(),), runtime(), mode)


@st.composite
def scenarios(draw):
    """A CPU group and one with accelerators and drives, a table or two, two layers, any mode."""
    groups = (
        a_group(
            nodes=draw(st.integers(1, 4)),
            memory=draw(st.sampled_from([8, 32, 128])),
            cores=draw(st.sampled_from([4, 16])),
            network=draw(st.sampled_from([1, 10, 100])),
            price=draw(st.sampled_from([0.5, 1.0, 2.0])),
        ),
        a_group(
            "gpu",
            nodes=draw(st.integers(1, 3)),
            memory=draw(st.sampled_from([16, 64])),
            network=draw(st.sampled_from([10, 100])),
            price=draw(st.sampled_from([1.5, 3.0, 9.0])),
            devices=draw(st.sampled_from([1, 4])),
            ssd=draw(st.sampled_from([0, 500])),
        ),
    )
    model = a_model(
        rows=draw(st.lists(st.sampled_from([1e5, 1e8, 1e9]), min_size=1, max_size=2)),
        hotness=draw(st.sampled_from([1.0, 30.0])),
        skew=draw(st.sampled_from([0.0, 1.0, 1.2])),
        dense=draw(st.sampled_from([(64, 16), (512, 1024, 64), (4096, 4096, 8)])),
        optimizer=draw(st.sampled_from(["sgd", "adam"])),
        batch_size=draw(st.sampled_from([100, 1000])),
        device_batch_size=1024,
        pass_examples=draw(st.sampled_from([10_000, 1_000_000])),
    )
    return a_scenario(model, groups, draw(st.sampled_from(MODES)))


def every_plan(layout):
    """Choices, nodes, load and dollars per second of every plan that has room, cheap or dear, fast or slow."""
    sizes = [np.array(nodes) for nodes in product(*(range(most + 1) for most in layout.stock)) if any(nodes)]
    for chosen in product(*(range(len(place.choices)) for place in layout.places)):
        load = layout.load(chosen)
        busy = (load.work[0] > 0).any(axis=1) | (load.stored > 0).any(axis=1)
        for nodes in sizes:
            if (nodes[busy] > 0).all() and layout.fits(load, nodes):
                yield chosen, nodes, float(layout.rates(load, nodes).min()), float(layout.prices @ nodes)
