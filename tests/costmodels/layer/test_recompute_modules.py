"""What recomputation costs where the host is behind the device, and that it hides where the device is."""

from dataclasses import replace

import numpy as np
import pytest

from costmodels.iteration import core_seconds
from costmodels.layer.launches import SHARED
from costmodels.layer.recompute_modules import (
    CHECKPOINT,
    CORE,
    DISCARDED,
    LATENT,
    MODULES,
    SMALL,
    module_host_seconds,
    module_mask,
    preset_masks,
)
from costmodels.memory.activations import average_activation_bytes
from costmodels.model.layer_kinds import DENSE, Kind
from costmodels.names import Recompute
from costmodels.strategy import strategies
from tests.scenarios import (
    toy_device,
    toy_group,
    toy_model,
    toy_scenario,
    toy_stack,
    with_experts,
    with_latent_attention,
)

LAUNCH = 1e-3
CALLS = {"launch_time": "1 ms", "kernels_per_layer": 10, "calls_per_layer": 40, "kernels_per_expert_layer": 100}
WHOLE, HALF = CHECKPOINT * 40, 20
"""Calls of a checkpoint, and of half a layer."""
EXPERTS = Kind("global", "experts")
QUICK = toy_device(peak=1e30, bandwidth=1e30)
"""A device that hides nothing."""
SLOW = toy_device(peak=1e6, bandwidth=1e6)
"""A device that is never waited for."""


def bound(device=QUICK, model=None, **changes):
    """A scenario on four such devices, of a stack with the calls above."""
    return toy_scenario(
        model=model or toy_model(), group=toy_group(device=device), gpus=4, stack=toy_stack(**(CALLS | changes))
    )


def recomputed(kind, *modules):
    """Four data ranks that recompute in this way, modules or layers."""
    rows = strategies(dp=4)
    named = {"recompute_modules": np.array([module_mask(modules)])} if modules else {}
    return replace(rows, recompute=np.array([int(kind)]), **named)


def again(scenario, *modules):
    """Seconds by which a layer grows that repeats these modules."""
    return core_seconds(recomputed(Recompute.SELECTIVE, *modules), scenario).selective[0]


def calls(scenario, kind, name):
    """Launches to repeat one module of a layer of a kind."""
    return module_host_seconds(strategies(dp=4), scenario, kind)[name][0] / LAUNCH


@pytest.mark.parametrize(
    ("name", "counted"),
    [("core_attn", WHOLE + CORE * HALF), ("layernorm", 2 * (DISCARDED * WHOLE + SMALL * HALF)), ("mlp", WHOLE + HALF)],
)
def test_a_layer_that_waits_for_its_host_waits_for_what_is_launched_again(name, counted):
    assert calls(bound(), DENSE, name) == pytest.approx(counted)
    assert again(bound(), name) == pytest.approx(counted * LAUNCH)


def test_modules_repeated_together_are_launched_one_after_the_other():
    parts = [again(bound(), name) for name in ("core_attn", "layernorm")]
    assert again(bound(), "core_attn", "layernorm") == pytest.approx(sum(parts))


def test_selective_recomputation_without_a_name_repeats_the_attention_core():
    assert again(bound()) == pytest.approx(again(bound(), "core_attn"))


def test_parts_of_latent_attention_and_of_experts_are_launched_again_too():
    latent = bound(model=with_latent_attention(toy_model()), calls_per_latent_attention=50)
    assert calls(latent, DENSE, "mla_up_proj") == pytest.approx(DISCARDED * WHOLE + LATENT * 50)
    shared = with_experts(toy_model(), num_shared_experts=1, shared_expert_ffn_hidden_size=128)
    plain = bound(model=with_experts(toy_model()).model_copy(update={"ffn_bias": False}))
    assert calls(plain, EXPERTS, "moe") == pytest.approx(WHOLE + 100)
    assert calls(plain, EXPERTS, "moe_act") == pytest.approx(DISCARDED * WHOLE + SMALL * HALF)
    assert calls(bound(model=shared), EXPERTS, "shared_experts") == pytest.approx(WHOLE + 100 * SHARED)


def test_layers_recomputed_whole_wait_for_one_checkpoint_beside_their_forward_pass():
    every, two = (
        core_seconds(replace(recomputed(Recompute.FULL), recompute_num_layers=np.array([layers])), bound()).recompute[0]
        for layers in (1, 2)
    )
    assert every == pytest.approx((40 + WHOLE) * LAUNCH)
    assert two == pytest.approx((40 + WHOLE / 2) * LAUNCH)


def test_a_device_that_is_behind_hides_its_hosts_checkpoints():
    free = bound(SLOW, launch_time="0 us")
    for modules in (("core_attn",), ("layernorm", "mlp"), ()):
        assert again(bound(SLOW), *modules) == pytest.approx(again(free, *modules))
    whole = (core_seconds(recomputed(Recompute.FULL), scenario).recompute[0] for scenario in (bound(SLOW), free))
    assert next(whole) == pytest.approx(next(whole))


def test_what_is_launched_again_hides_only_as_far_as_the_device_is_behind():
    """The device is a tenth of its backward pass behind its host, which launches that pass in 80 calls."""
    device = toy_device()
    free = core_seconds(recomputed(Recompute.NONE), bound(device, launch_time="0 us")).backward[0]
    late = 0.9 * free / 80
    host, hidden = (WHOLE + CORE * HALF) * late, 0.1 * free
    assert host > hidden + again(bound(device, launch_time="0 us"), "core_attn")
    assert again(bound(device, launch_time=f"{1e6 * late} us"), "core_attn") == pytest.approx(host - hidden)


def test_graphs_launch_nothing_again():
    for stack in ({"cuda_graphs": True}, {"cuda_graph_scope": ("attn", "moe")}):
        scenario = bound(model=with_experts(toy_model()), **stack)
        assert not any(np.any(seconds) for seconds in module_host_seconds(strategies(dp=4), scenario, EXPERTS).values())


def test_where_every_launch_waits_work_and_calls_add_up():
    device, names = toy_device(), ("core_attn", "layernorm")
    work = again(bound(device, launch_time="0 us"), *names)
    host = sum(calls(bound(), DENSE, name) for name in names) * LAUNCH
    assert again(bound(device, launch_blocking=True), *names) == pytest.approx(work + host)


def test_only_modules_of_a_layer_are_launched_again():
    assert set(module_host_seconds(strategies(dp=4), bound(), DENSE)) <= set(MODULES)
    assert "mlp" not in module_host_seconds(strategies(dp=4), bound(), EXPERTS)


def test_names_for_all_that_a_policy_repeats_cost_what_the_policy_does():
    model = with_latent_attention(with_experts(toy_model()))
    stack = toy_stack(**CALLS, recompute_policy="up-projections", recompute_modules=("layernorm", "mla_up_proj"))
    scenario = toy_scenario(model=model, group=toy_group(device=QUICK), gpus=4, stack=stack)
    named = recomputed(Recompute.SELECTIVE, "layernorm", "mla_up_proj")
    some, policy = (recomputed(Recompute.SELECTIVE, *modules) for modules in (["layernorm"], []))
    kept = [average_activation_bytes(rows, scenario)[0] for rows in (named, policy, some)]
    assert kept[0] == kept[1] < kept[2]
    assert again(scenario, "layernorm", "mla_up_proj") == again(scenario)
    assert preset_masks(model, stack) == []
