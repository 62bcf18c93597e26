"""What a layer costs the host, by its parts, its graphs and the machine it runs on."""

import csv
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costmodels.layer.experts import small_kernels
from costmodels.layer.launches import CAPACITY_SHARE, FUSED, GROUPED, NORM, SHARED, launch_floor
from costmodels.layer.recompute_modules import CHECKPOINT
from costmodels.model.layer_kinds import DENSE, Kind
from costmodels.pricing import price_strategy, row_assignment
from costmodels.scenario import UNBOUND
from costmodels.stack.stack import stack
from costmodels.strategy import strategies
from hardware.catalogue import accelerator
from tests.scenarios import (
    toy_device,
    toy_group,
    toy_model,
    toy_scenario,
    toy_stack,
    with_experts,
    with_latent_attention,
)

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
ROWS = strategies(dp=4)
CALLS = {
    "launch_time": "1 ms",
    "kernels_per_layer": 10,
    "calls_per_layer": 40,
    "calls_per_latent_attention": 50,
    "calls_per_ring": 20,
    "calls_to_cast": 16,
    "kernels_per_expert_layer": 100,
}


def narrow(device):
    """The device with rates in 8 and 4 bits."""
    return device.model_copy(update={"peak": device.peak | {"fp8": 2e14, "fp4": 4e14}})


def unbiased(model):
    """The model without biases in its feed-forward networks, which every expert would add in kernels of its own."""
    return model.model_copy(update={"ffn_bias": False})


def calls(kind=DENSE, rows=ROWS, *, model=None, host=1.0, precision="bf16", **changes):
    """Launches of a forward pass by the stack above, changed."""
    device = narrow(toy_device()).model_copy(update={"host": host})
    scenario = toy_scenario(
        model=model or toy_model(), group=toy_group(device=device), gpus=4, stack=toy_stack(**(CALLS | changes))
    )
    return launch_floor(rows, replace(scenario, precision=precision), kind)[0] * 1e3


def test_modules_cost_the_host_more_than_their_kernels_where_a_stack_says_so():
    assert calls() == pytest.approx(40)
    assert calls(calls_per_layer=None) == pytest.approx(10)


def test_latent_attention_rings_and_casts_are_calls_of_their_own():
    assert calls(model=with_latent_attention(toy_model())) == pytest.approx(40 + 50)
    assert calls(rows=strategies(cp=4)) == pytest.approx(40 + 20)
    assert calls(precision="fp8") == pytest.approx(40 + 16)


def test_norms_of_queries_and_keys_are_modules_where_calls_are_counted_by_modules_and_kernels_elsewhere():
    normed = toy_model().model_copy(update={"qk_norm": "head"})
    assert calls(model=normed) == pytest.approx(40 + 2 * NORM)
    assert calls(model=normed, calls_per_layer=None) == pytest.approx(10 + 2)
    assert calls(Kind("mamba", "dense"), model=normed) == calls(Kind("mamba", "dense"))
    assert calls(model=normed, cuda_graph_scope=("attn",)) == calls(cuda_graph_scope=("attn",))


def test_a_slower_host_takes_longer_for_every_call():
    assert calls(host=1.5) == pytest.approx(1.5 * calls())


def test_a_router_of_groups_and_shared_experts_call_more_and_a_dispatcher_that_permutes_less():
    experts = Kind("global", "experts")
    plain = unbiased(with_experts(toy_model()))
    grouped = plain.model_copy(update={"moe": plain.moe.model_copy(update={"router_groups": 2})})
    shared = unbiased(with_experts(toy_model(), num_shared_experts=1, shared_expert_ffn_hidden_size=128))
    base = calls(experts, model=plain)
    assert base == pytest.approx(40 + 100)
    assert calls(experts, model=grouped) - base == pytest.approx(100 * GROUPED)
    steered = plain.model_copy(update={"moe": plain.moe.model_copy(update={"router_bias": True})})
    assert calls(experts, model=steered) == calls(experts, model=grouped)
    assert calls(experts, model=shared) - base == pytest.approx(100 * SHARED)
    assert calls(experts, model=plain, dispatcher="deepep") == pytest.approx(40 + 100 * FUSED)


def test_a_fixed_capacity_spares_the_host_what_it_spares_the_device():
    fixed = {"kernels_per_local_expert": 7, "expert_capacity": 1.0}
    experts, model = Kind("global", "experts"), unbiased(with_experts(toy_model()))
    more = calls(experts, model=model, precision="mxfp8", **fixed) - calls(experts, model=model, precision="fp8")
    assert more == pytest.approx(8 * 7 * CAPACITY_SHARE)
    group = toy_group(device=narrow(toy_device(overhead=1e-6)))
    scenario = toy_scenario(model=model, gpus=4, group=group, stack=toy_stack(**fixed))
    scenario = replace(scenario, precision="mxfp8")
    assert small_kernels(ROWS, scenario).forward[0] == pytest.approx(8 * 7 * CAPACITY_SHARE * 1e-6)


def test_the_stacks_of_megatron_core_and_the_hosts_are_what_its_own_tests_give():
    home = runpy.run_path(str(BENCHMARKS / "host_calls.py"))
    with (BENCHMARKS / "host_calls.csv").open(encoding="utf-8") as file:
        found, errors = home["fit"](list(csv.DictReader(file)))
    counted = dict(zip(["step", "layer", *home["PARTS"]], found / home["LAUNCH"] / 3, strict=False))
    core = stack("megatron-core")
    said = {
        "layer": core.host.calls_per_layer,
        "latent": core.host.calls_per_latent_attention,
        "cp": core.host.calls_per_ring,
        "fp8": core.host.calls_to_cast,
        "experts": core.host.kernels_per_expert_layer,
    }
    assert said == pytest.approx({name: counted[name] for name in said}, rel=0.02)
    assert counted["full_recompute"] * 3 == pytest.approx(CHECKPOINT * core.host.calls_per_layer, rel=0.03)
    assert [accelerator(name).host for name in ("gb200", "a100-sxm-80gb")] == pytest.approx(found[-2:], rel=0.01)
    assert np.median(abs(errors)) < 0.05


def test_a_process_that_nothing_binds_takes_as_much_longer_as_the_tests_say():
    home = runpy.run_path(str(BENCHMARKS / "host_binding.py"))
    with (BENCHMARKS / "host_binding.csv").open(encoding="utf-8") as file:
        (found,) = home["ratios"](list(csv.DictReader(file)), "may_7", "later")
    assert found[0] == "dgx-h100"
    assert np.median(found[1]) == pytest.approx(UNBOUND, abs=0.01)
    assert max(found[1]) / min(found[1]) < 1.1
    bound, free = (
        launch_floor(ROWS, toy_scenario(gpus=4, stack=toy_stack(**CALLS, bind_processes=bound)), DENSE)
        for bound in (True, False)
    )
    assert free == pytest.approx(UNBOUND * bound)


def test_what_devices_wait_for_launches_is_told_as_the_hosts_time():
    """A quick device: nothing hides the launches, forward one share of them and backward two."""
    quick = toy_group(device=narrow(toy_device(peak=1e30, bandwidth=1e30)))
    scenario = toy_scenario(group=quick, gpus=4, stack=toy_stack(**CALLS))
    layers = scenario.model.num_layers
    told = price_strategy(ROWS, scenario, row_assignment(strategies(), layers)).breakdown["host"]
    assert told == pytest.approx(3 * 0.040 * layers * ROWS.num_microbatches[0], rel=1e-3)
