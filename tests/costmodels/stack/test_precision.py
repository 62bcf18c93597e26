"""Number formats of products: what quantising their inputs moves, how fast they are, what is gathered."""

from dataclasses import replace

import numpy as np
import pytest

from costmodels.iteration import core_seconds
from costmodels.layer.forward_backward import ADDED, ADDED_ALONE, Passes, linear, linears, product, quantisation
from costmodels.memory.rows import row_bytes
from costmodels.memory.states import state_bytes, weight_bytes_of_ends
from costmodels.stack.precision import ALIASES, PRECISIONS, RECIPES, known_precision
from costmodels.step.optimizer import optimizer_seconds
from costmodels.step.traffic import step_traffic
from costmodels.strategy import strategies
from hardware.catalogue import accelerator
from hardware.records import UnsupportedDtype
from tests.scenarios import toy_device, toy_group, toy_scenario, toy_stack

ROW = strategies(dp=8, zero_stage=1, sharding_degree=8, num_microbatches=2)


def eight_bit(precision, **changes):
    device = toy_device()
    kernels = device.kernels.model_copy(update={"gemm": {"bf16": device.kernels.gemm["bf16"]}})
    peak = device.peak | {"fp8": 200e12, "fp4": 400e12}
    device = device.model_copy(update={"kernels": kernels, "peak": peak})
    return toy_scenario(group=toy_group(device=device), precision=precision, stack=toy_stack(**changes))


def test_names_of_recipes_are_known_and_aliases_lead_to_them():
    assert {"fp32", "fp16", "bf16", "fp8", "fp8-current", "fp8-block", "mxfp8", "nvfp4"} <= set(PRECISIONS)
    assert all(known_precision(alias) == name for alias, name in ALIASES.items())
    assert known_precision("BF16") == "bf16"
    with pytest.raises(ValueError, match="unknown precision 'fp7'; there are fp32, fp16"):
        known_precision("fp7")


@pytest.mark.parametrize(
    ("device", "precision", "known"),
    [
        ("h100-sxm", "int8", "fp32, fp16, bf16, fp8, fp8-current, fp8-block, fp8-rowwise"),
        ("h100-sxm", "mxfp8", "fp32, fp16, bf16, fp8, fp8-current, fp8-block, fp8-rowwise"),
        ("v100", "bf16", "fp32, fp16"),
        ("tpu-v5e", "fp32", "bf16, int8"),
    ],
)
def test_a_precision_that_the_device_lacks_is_refused_with_all_that_can_be_asked_for(device, precision, known):
    scenario = toy_scenario(group=toy_group(device=accelerator(device)), precision=precision)
    with pytest.raises(UnsupportedDtype, match=f"does not compute in {precision}; it supports {known}$"):
        _ = scenario.rates


def test_16_bit_products_are_not_quantised():
    assert all(RECIPES[name].input_traffic == RECIPES[name].step_traffic == 0 for name in ("fp32", "fp16", "bf16"))


def test_scales_of_the_tensor_at_hand_cost_one_more_read_of_input_and_gradient():
    T, n, k = np.array([1024.0]), 512.0, 2048.0
    delayed, current = (linear(T, n, k, eight_bit(name)) for name in ("fp8", "fp8-current"))
    assert current.forward - delayed.forward == pytest.approx(2.0 * T * k / 1e12)
    assert current.backward - delayed.backward == pytest.approx(2.0 * T * n / 1e12)


def test_one_scale_per_tensor_asks_for_a_transposed_copy_only_where_products_take_their_depth_alone():
    T, n, k = np.array([1024.0]), 512.0, 2048.0

    def forward(precision, architecture, **stack):
        scenario = eight_bit(precision, **stack)
        device = scenario.group.accelerator.model_copy(update={"architecture": architecture})
        return quantisation(T, n, k, replace(scenario, group=toy_group(device=device))).forward

    for precision in ("fp8", "fp8-current"):
        assert forward(precision, "Hopper") - forward(precision, "Blackwell") == pytest.approx(T * k / 1e12)
        assert forward(precision, "Blackwell", transposed_fp8_copies=True) == pytest.approx(
            forward(precision, "Hopper")
        )
    assert forward("mxfp8", "Hopper") == forward("mxfp8", "Blackwell")


def test_what_quantises_a_tensor_is_started_once_for_the_input_and_once_for_the_gradient():
    device = toy_device(overhead=1e-5)
    scenario = toy_scenario(group=toy_group(device=device.model_copy(update={"peak": device.peak | {"fp8": 2e14}})))
    T, n, k = np.array([1024.0]), 512.0, 2048.0
    for precision, casts in (("fp8", 1), ("fp8-current", 3)):
        one = replace(scenario, precision=precision)
        rates = one.rates
        bare = product(T, n, k, rates.matmul, rates.matmul_peak, rates.bandwidth) + quantisation(T, n, k, one)
        whole = linear(T, n, k, one)
        assert whole.forward - bare.forward == pytest.approx(casts * 1e-5)
        assert whole.backward - bare.backward == pytest.approx(casts * 1e-5)


def test_row_wise_scales_quantise_the_weights_of_every_micro_batch():
    T, n, k = np.array([1024.0]), 512.0, 2048.0
    current, rowwise = (quantisation(T, n, k, eight_bit(name)) for name in ("fp8-current", "fp8-rowwise"))
    assert rowwise.forward - current.forward == pytest.approx((10.0 * n * k + 2.0 * T * k) / 1e12)


def test_integers_are_scaled_anew_along_either_dimension_weights_too():
    T, n, k = np.array([1024.0]), 512.0, 2048.0
    device = toy_device()
    kernels = device.kernels.model_copy(update={"gemm": {"bf16": device.kernels.gemm["bf16"]}})
    device = device.model_copy(update={"peak": device.peak | {"int8": 200e12}, "kernels": kernels})
    cast = quantisation(T, n, k, toy_scenario(group=toy_group(device=device), precision="int8"))
    assert cast.forward == pytest.approx(2.0 * 5.0 * (T * k + n * k) / 1e12)
    assert cast.backward == pytest.approx(2.0 * 5.0 * T * n / 1e12)


def test_products_scaled_by_rows_return_gradients_that_are_scaled_afterwards():
    T, n, k = np.array([1024.0]), 512.0, 2048.0
    current, rowwise = (quantisation(T, n, k, eight_bit(name)) for name in ("fp8-current", "fp8-rowwise"))
    assert rowwise.backward - current.backward == pytest.approx((2.0 * T * n + 4.0 * (T * k + n * k)) / 1e12)


@pytest.mark.parametrize(
    ("precision", "fused", "times"), [("fp8-current", True, 1), ("fp8-current", False, 3), ("fp8-rowwise", True, 3)]
)
def test_layers_of_one_input_quantise_it_once_unless_scales_are_by_row_or_nothing_fuses(precision, fused, times):
    T, widths, k = np.array([1024.0]), (512.0, 128.0, 128.0), 2048.0
    scenario = eight_bit(precision, split_projections=("qkv",), fused_elementwise=fused)
    rates = scenario.rates
    bare = sum(product(T, n, k, rates.matmul, rates.matmul_peak, rates.bandwidth).forward for n in widths)
    once, weights = quantisation(T, 768.0, k, scenario).forward, quantisation(0.0 * T, 768.0, k, scenario).forward
    quantised = linears(T, widths, k, scenario, name="qkv").forward - bare
    assert quantised == pytest.approx(times * (once - weights) + weights)


@pytest.mark.parametrize(("fused", "added"), [(True, ADDED), (False, ADDED_ALONE)])
def test_layers_of_one_input_are_products_of_their_own_whose_input_gradients_are_added_up(fused, added):
    T, k = np.array([1024.0]), 2048.0
    joined = toy_scenario(stack=toy_stack(fused_elementwise=fused))
    apart = toy_scenario(stack=toy_stack(fused_elementwise=fused, split_projections=("gate",)))
    half, whole = linear(T, 512.0, k, joined), linear(T, 1024.0, k, joined)
    assert linears(T, (512.0, 512.0), k, joined, name="gate") == whole
    assert linears(T, (512.0, 512.0), k, apart, name="qkv") == whole
    both = linears(T, (512.0, 512.0), k, apart, name="gate")
    assert both.forward == pytest.approx(2.0 * half.forward)
    assert both.backward == pytest.approx(2.0 * half.backward + added * T * k / 1e12)


def test_weights_gathered_in_16_bits_are_quantised_for_every_pass_of_every_micro_batch():
    layer = Passes(np.zeros(1), np.zeros(1))
    rows = strategies(dp=8, zero_stage=3, sharding_degree=8, num_microbatches=2)
    sharded = {"fsdp_stage2": True, "zero_stages": (0, 1, 2, 3)}
    scenarios = [eight_bit(name, **sharded) for name in ("bf16", "fp8-current")]
    plain, anew = (step_traffic(rows, one, layer) for one in scenarios)
    size = 8 * 12 * 1024**2
    assert anew.total - plain.total == pytest.approx(2 * 2 * 5.0 * size / 1e12, rel=0.02)
    assert optimizer_seconds(rows, scenarios[1]) == optimizer_seconds(rows, scenarios[0])
    kept = optimizer_seconds(ROW, scenarios[1]) - optimizer_seconds(ROW, scenarios[0])
    assert kept > 6.0 * size / 1e12


def test_what_full_sharding_gathers_in_8_bits_it_keeps_in_8_bits():
    rows = strategies(dp=8, zero_stage=2, sharding_degree=8)
    sharded = {"fsdp_stage2": True, "zero_stages": (0, 1, 2, 3), "weight_bytes": 4}
    wide, narrow = (eight_bit("fp8-current", fp8_param_gather=gathered, **sharded) for gathered in (False, True))
    assert state_bytes(rows, wide).weights - state_bytes(rows, narrow).weights == pytest.approx([1.0])
    assert weight_bytes_of_ends(rows, narrow) == weight_bytes_of_ends(rows, wide)


@pytest.mark.parametrize(("compiled", "kept"), [(True, 0.0), (False, 2.0)])
def test_torchao_s_products_keep_inputs_in_16_bits_or_cast_them_again_where_compiled(compiled, kept):
    known = eight_bit("fp8-current", transposed_fp8_copies=True, fused_elementwise=compiled)
    assert known.saved_word == kept
    assert eight_bit("fp8-current", fused_elementwise=compiled).saved_word == 1.0


def test_weights_that_a_compiled_forward_pass_cast_to_8_bits_are_kept_for_every_micro_batch():
    rows = strategies(tp=[1, 4])
    plain, cast = (row_bytes(rows, eight_bit("fp8-current", saved_tensors=keeps)) for keeps in ((), ("casts",)))
    assert cast.stored - plain.stored == pytest.approx(cast.layer_parameters)
    assert (cast.checkpoint == plain.checkpoint).all()


def test_products_in_fp32_run_beside_the_matrix_units_whose_losses_they_do_not_share():
    slow = toy_stack(kernel_efficiency=0.5)
    sixteen, full = (toy_scenario(stack=slow, precision=name).rates for name in ("bf16", "fp32"))
    assert (full.matmul_peak, full.head_peak) == (2 * sixteen.matmul_peak, 2 * sixteen.head_peak)


def test_products_scaled_by_rows_are_slower_than_those_scaled_by_tensors():
    current, rowwise = (eight_bit(name).rates.matmul_peak for name in ("fp8-current", "fp8-rowwise"))
    assert rowwise < current


def test_casts_that_transpose_cost_more_where_a_compiler_writes_them():
    T, n, k = np.array([1024.0]), 512.0, 2048.0
    whole, half = (quantisation(T, n, k, eight_bit("fp8-current", transposed_cast_speed=share)) for share in (1.0, 0.5))
    assert half.forward - whole.forward == pytest.approx(4.0 * T * k / 1e12)
    sixteen = toy_scenario(stack=toy_stack(transposed_cast_speed=0.5))
    assert quantisation(T, n, k, sixteen).forward == 0.0


def test_gathering_8_bit_weights_halves_the_gather_and_the_weights():
    layer = Passes(np.zeros(1), np.zeros(1))
    wide, narrow = (eight_bit("fp8", fp8_param_gather=flag) for flag in (False, True))
    gathered = [step_traffic(ROW, x, layer).parameters for x in (wide, narrow)]
    assert gathered[1] == pytest.approx(gathered[0] / 2)
    assert [float(state_bytes(ROW, x).weights[0]) for x in (wide, narrow)] == [2.0, 2.0], "a transposed copy is kept"


def test_weights_in_8_bits_are_one_copy_where_products_take_them_either_way():
    device = toy_device().model_copy(update={"architecture": "Blackwell"})
    kept = toy_scenario(group=toy_group(device=device), precision="fp8", stack=toy_stack(fp8_param_gather=True))
    both = toy_scenario(group=toy_group(device=device), precision="mxfp8", stack=toy_stack(fp8_param_gather=True))
    assert [float(state_bytes(ROW, x).weights[0]) for x in (kept, both)] == [1.0, 2.0]


def test_block_scales_of_32_are_gathered_in_16_bits():
    layer = Passes(np.zeros(1), np.zeros(1))
    wide, same = (eight_bit("mxfp8", fp8_param_gather=flag) for flag in (False, True))
    assert step_traffic(ROW, same, layer).parameters == step_traffic(ROW, wide, layer).parameters
    assert optimizer_seconds(ROW, same) == optimizer_seconds(ROW, wide), "every rank quantises what it gathered"


def test_tensor_ranks_that_gather_8_bits_wait_less():
    rows = strategies(tp=4, dp=2, sequence_parallel=1, num_microbatches=8)
    wide, narrow = (core_seconds(rows, eight_bit("fp8", fp8_tensor_gather=flag)).layer_tp for flag in (False, True))
    assert narrow == pytest.approx(wide * (1.5 + 2.0) / 5.0)


def test_rows_and_turned_columns_by_a_kernel_each_read_the_input_once_more():
    fused, apart = (toy_scenario(precision="nvfp4", stack=toy_stack(fused_casts=flag)).recipe for flag in (True, False))
    assert apart.input_traffic == fused.input_traffic + 2.0
    assert apart.casts == fused.casts + 1
    plain = toy_scenario(precision="mxfp8", stack=toy_stack(fused_casts=False)).recipe
    assert plain == toy_scenario(precision="mxfp8").recipe
