"""Kernels of attention: where a fused one does not apply, and what is computed and copied around one."""

import pytest

from costmodels.layer.attention import (
    UNFUSED_SOFTMAX_KERNELS,
    attended_pairs,
    attention_core,
    attention_kept,
    computed_pairs,
    dropout_seconds,
    kernel_width,
    softmax_falls_back,
    softmax_traffic,
)
from costmodels.layer.elementwise import stream_traffic
from costmodels.layer.launches import launch_floor
from costmodels.model.layer_kinds import DENSE, Kind
from costmodels.stack.stack import stack as find_stack
from costmodels.strategy import strategies
from hardware.catalogue import accelerator
from tests.each import each
from tests.scenarios import toy_device, toy_group, toy_model, toy_scenario, toy_stack, with_latent_attention


def test_megatrons_fused_softmax_takes_four_maps_at_a_time_and_no_long_rows():
    """With 16 heads on 8 ranks a micro-batch of one leaves two maps: more bytes, more launches."""
    stack = toy_stack(
        attention_backend=("unfused",), longest_fused_softmax=1024, launch_time="1 s", kernels_per_layer=0
    )
    model = toy_model(num_heads=16)
    rows = strategies(tp=[8, 8, 4], micro_batch_size=[1, 2, 1])
    scenario = toy_scenario(model=model, stack=stack)
    assert softmax_falls_back(rows, scenario).tolist() == [True, False, False]
    forward, backward = softmax_traffic(rows, scenario)
    assert forward.tolist() == [36, 4, 4]
    assert backward.tolist() == [40, 6, 6]
    floor = launch_floor(rows, scenario, DENSE)
    assert floor[0] - floor[1] == UNFUSED_SOFTMAX_KERNELS
    alibi = model.model_copy(update={"position": "alibi"})
    sloped, _ = softmax_traffic(rows, toy_scenario(model=alibi, stack=stack))
    assert (sloped - forward).tolist() == [4, 4, 4]
    long = toy_scenario(model=model.model_copy(update={"seq_length": 2048}), stack=stack)
    assert softmax_falls_back(rows, long).all()
    assert not softmax_falls_back(
        rows, toy_scenario(model=model, stack=toy_stack(attention_backend=("unfused",)))
    ).any()


def test_heads_between_two_compiled_widths_run_as_the_wider_one():
    assert [kernel_width("flash-1", d) for d in (64, 80, 96, 256)] == [64, 128, 128, 256]
    assert [kernel_width("flash-2", d) for d in (64, 80, 100, 128)] == [64, 96, 128, 128]
    assert kernel_width("cudnn", 80) == 80
    device = toy_device(bandwidth=1e30)
    known = {width: toy_model(head_dim=width) for width in (80, 96)}
    seconds = {
        width: attention_core(strategies(), toy_scenario(model=model, group=toy_group(device=device))).forward[0]
        for width, model in known.items()
    }
    assert seconds[80] == pytest.approx(seconds[96])


def test_fused_attention_loses_what_a_stack_s_kernels_lose_and_nothing_of_what_products_lose_in_training():
    rows = strategies()
    device = toy_device()

    def seconds(rate: float, own: float, kernels: tuple[str, ...]) -> float:
        slower = device.model_copy(update={"training_rate": rate})
        stack = toy_stack(attention_backend=kernels, kernel_efficiency=own)
        return float(attention_core(rows, toy_scenario(group=toy_group(device=slower), stack=stack)).forward[0])

    fused, unfused = ("flash-2",), ("unfused",)
    assert seconds(0.5, 1.0, fused) == seconds(1.0, 1.0, fused)
    assert seconds(1.0, 0.5, fused) == pytest.approx(2.0 * seconds(1.0, 1.0, fused), rel=0.05)
    assert seconds(0.5, 1.0, unfused) > 1.1 * seconds(1.0, 1.0, unfused)


def test_copies_around_a_fused_kernel_and_an_activation_cost_their_bytes():
    stack = toy_stack(attention_copy_bytes=(28, 16))
    (plain, plain_back), (copied, copied_back) = (
        stream_traffic(toy_scenario(stack=one)) for one in (toy_stack(), stack)
    )
    assert copied[1] - plain[1] == 28 * 1024
    assert copied_back[1] - plain_back[1] == 16 * 1024
    wide, wide_back = stream_traffic(toy_scenario(stack=toy_stack(activation_copy_bytes=(4, 16))))
    assert (wide[1] - plain[1], wide_back[1] - plain_back[1]) == (4 * 4096, 16 * 4096)
    unfused = toy_stack(attention_copy_bytes=(28, 16), attention_backend=("unfused",))
    assert stream_traffic(toy_scenario(stack=unfused)) == (plain, plain_back)


def blocks_met(seq_length, block, window):
    """Pairs in blocks that a causal mask, or a window's, leaves any pair of, block by block."""
    starts = range(0, seq_length, block)
    near = [(q, k) for q in starts for k in starts if k <= q and q - (k + block - 1) < window]
    return len(near) * block**2


@pytest.mark.parametrize(("window", "block"), [(None, 256), (None, 4096), (256, 256), (512, 256), (256, 0)])
def test_a_kernel_by_blocks_computes_whole_what_its_mask_cuts(window, block):
    model = toy_model().model_copy(update={"sliding_window": window})
    kind = Kind(mixer="local", ffn="dense") if window else DENSE
    found = computed_pairs(model, 1024.0, kind, block)
    if not block:
        assert found == attended_pairs(model, 1024.0, kind)
        return
    met = blocks_met(1024, min(block, 1024), window or 1024)
    first = (window or 0) * (window + block) / 2 if window else 0  # the first blocks have nothing to look back to
    assert found - first <= met <= found


def test_attention_in_chunks_leaves_out_half_of_what_a_window_as_wide_reads():
    sliding = toy_model().model_copy(update={"sliding_window": 256})
    chunked = sliding.model_copy(update={"chunked_attention": True})
    near = Kind("local", "dense")
    assert attended_pairs(chunked, 1024.0, near) == 4 * 256**2 / 2
    assert attended_pairs(chunked, 1000.0, near) == 3 * 256**2 / 2 + 232**2 / 2
    assert attended_pairs(chunked, 1 << 20, near) == pytest.approx(attended_pairs(sliding, 1 << 20, near) / 2, rel=1e-3)
    assert attended_pairs(chunked, 256.0, near) == attended_pairs(sliding, 256.0, near) == 256**2 / 2


def test_a_kernel_by_blocks_computes_the_chunks_and_half_a_block_more_for_every_query():
    model = toy_model().model_copy(update={"sliding_window": 512, "chunked_attention": True})
    found = computed_pairs(model, 1024.0, Kind(mixer="local", ffn="dense"), 256)
    assert found == 2 * (256**2 + 2 * 256**2)  # two chunks of two blocks: one on the diagonal, then two


def test_blocks_cost_the_forward_and_the_backward_pass_what_each_of_them_computes():
    device = toy_device(bandwidth=1e30)
    fit = device.kernels.attention["flash-2"].model_copy(update={"block": 1024.0, "backward_block": 512.0})
    kernels = device.kernels.model_copy(update={"attention": {"flash-2": fit}})
    whole = device.model_copy(update={"kernels": kernels})
    plain, cut = (attention_core(strategies(), toy_scenario(group=toy_group(device=one))) for one in (device, whole))
    s = toy_scenario().seq_length
    assert cut.forward[0] / plain.forward[0] == pytest.approx(1 + min(1024, s) / s)
    assert cut.backward[0] / plain.backward[0] == pytest.approx(1 + min(512, s) / s)


def test_unfused_attention_in_blocks_stops_behind_the_diagonal_and_keeps_no_scores():
    whole, cut = (
        toy_scenario(
            stack=toy_stack(attention_backend=("unfused",), attention_block=block), model=toy_model(seq_length=8192)
        )
        for block in (0, 2048)
    )
    for window in (None, 16):
        kind = Kind(mixer="local", ffn="dense") if window else DENSE
        plain, blocks = (attention_core(strategies(), one, kind) for one in (whole, cut))
        assert blocks.forward[0] / plain.forward[0] == pytest.approx(5 / 8, rel=0.02)
        assert blocks.backward[0] / plain.backward[0] == pytest.approx(5 / 8, rel=0.02)
    assert attention_kept(cut) == 4 * toy_model().num_heads
    assert attention_kept(whole) > attention_kept(cut)


def test_fewer_heads_of_keys_and_values_are_less_to_copy_and_cudnns_kernel_wants_no_copy():
    stack, model = toy_stack(attention_copy_bytes=(12, 12)), toy_model(num_heads=16, num_query_groups=4)
    copied = stream_traffic(toy_scenario(model=model, stack=stack))[0][1]
    plain = stream_traffic(toy_scenario(model=model))[0][1]
    assert copied - plain == pytest.approx(12 * 1024 * (1 + 2 / 4) / 3)
    device = toy_device()
    kernels = device.kernels.model_copy(update={"attention": {"cudnn": device.kernels.attention["flash-2"]}})
    group = toy_group(device=device.model_copy(update={"kernels": kernels}))
    fused = stack.changed({"switches.attention_backend": ("cudnn",)})
    assert stream_traffic(toy_scenario(model=model, stack=fused, group=group))[0][1] == plain


@pytest.mark.parametrize(("name", "measured"), [("b300", 34.5e-6), ("gb200", 33e-6), ("h200-sxm", 20e-6)])
def test_dropout_inside_fused_attention_costs_about_what_was_measured(name, measured):
    """4 x 1,024 tokens, 16 heads of 128, both passes (TransformerEngine, issue 3312; B300: 24 and 45 us)."""
    model = toy_model(hidden_size=2048, num_heads=16, seq_length=1024)
    group, rows = toy_group(device=accelerator(name)), strategies(micro_batch_size=4)
    dropping, keeping = (
        attention_core(rows, toy_scenario(model=model, group=group, stack=toy_stack(dropout=drop)))
        for drop in (True, False)
    )
    further = dropping.forward - keeping.forward, dropping.backward - keeping.backward
    assert further[0] == pytest.approx(further[1])
    assert sum(further) == pytest.approx(measured, rel=0.6)


def test_numbers_for_dropout_are_drawn_by_the_ranks_that_hold_the_pairs_and_on_nvidia_s_devices_only():
    device = toy_device().model_copy(update={"vendor": "NVIDIA"})
    rows = strategies(tp=[1, 2, 1], cp=[1, 1, 2], micro_batch_size=[1, 1, 4])
    scenario = toy_scenario(group=toy_group(device=device), stack=toy_stack(dropout=True))
    once = dropout_seconds(rows, scenario, DENSE)
    assert (once.forward / once.forward[0]).tolist() == [1.0, 0.5, 2.0]
    assert not dropout_seconds(rows, toy_scenario(stack=toy_stack(dropout=True)), DENSE).forward.any()


@each(
    ("name", "heads", "s", "forward", "backward"),
    [
        ("gb200", 64, 4096, 0.206e-3, 0.607e-3),
        ("gb200", 64, 8192, 0.688e-3, 2.097e-3),
        ("gb300", 64, 4096, 0.164e-3, 0.575e-3),
        ("gb300", 64, 8192, 0.583e-3, 1.985e-3),
        ("h200-sxm", 64, 4096, 0.465e-3, 1.450e-3),
        ("h200-sxm", 64, 8192, 1.708e-3, 5.083e-3),
    ],
)
def test_attention_takes_the_time_that_cudnn_9_19_was_measured_with(name, heads, s, forward, backward):
    once = published(name, heads, s, toy_stack(attention_backend=("cudnn",)))
    assert once.forward[0] == pytest.approx(forward, rel=0.06)
    assert once.backward[0] == pytest.approx(backward, rel=0.06)


@pytest.mark.parametrize(
    ("name", "s", "forward", "backward"),
    [
        ("b200", 4096, 0.482e-3, 1.650e-3),
        ("b200", 8192, 1.589e-3, 5.526e-3),
        ("gb300", 4096, 0.380e-3, 1.459e-3),
        ("gb300", 8192, 1.281e-3, 4.778e-3),
    ],
)
def test_attention_before_2026_takes_the_time_that_cudnn_9_13_was_measured_with(name, s, forward, backward):
    once = published(name, 128, s, toy_stack(attention_backend=("cudnn",), recent_cudnn=False))
    assert once.forward[0] == pytest.approx(forward, rel=0.08)
    assert once.backward[0] == pytest.approx(backward, rel=0.08)


def test_a_device_whose_later_cudnn_was_not_measured_attends_with_the_one_that_was():
    device = toy_device()
    only = device.kernels.model_copy(update={"attention": {"cudnn": device.kernels.attention["flash-2"]}})
    group = toy_group(device=device.model_copy(update={"kernels": only}))
    for recent in (True, False):
        rates = toy_scenario(group=group, stack=toy_stack(attention_backend=("cudnn",), recent_cudnn=recent)).rates
        assert (rates.attention_name, rates.attention) == ("cudnn", only.attention["cudnn"])


@pytest.mark.parametrize(
    ("name", "forward", "backward"), [("gb200", 3.470e-3, 11.984e-3), ("gb300", 3.013e-3, 11.074e-3)]
)
def test_wide_queries_slow_the_backward_pass_as_measured(name, forward, backward):
    """DeepSeek-V3's heads, 2 x 8,192 tokens, cuDNN 9.22."""
    once = latent(name, toy_stack(attention_backend=("cudnn",)))
    assert once.forward[0] == pytest.approx(forward, rel=0.06)
    assert once.backward[0] == pytest.approx(backward, rel=0.06)


@pytest.mark.parametrize(
    ("name", "precision", "forward", "backward"),
    [
        ("gb200", "fp8", 0.661, 0.609),
        ("gb200", "mxfp8", 0.714, 0.798),
        ("gb300", "fp8", 0.583, 0.559),
        ("gb300", "mxfp8", 0.645, 0.725),
    ],
)
def test_attention_in_8_bits_takes_the_measured_share_of_the_time_with_wide_queries(name, precision, forward, backward):
    """DeepSeek-V3's heads, 2 x 8,192 tokens, cuDNN 9.22."""
    wide = latent(name, toy_stack(attention_backend=("cudnn",)), precision)
    narrow = latent(name, toy_stack(attention_backend=("cudnn",), fp8_attention=True), precision)
    assert narrow.forward[0] / wide.forward[0] == pytest.approx(forward, rel=0.06)
    assert narrow.backward[0] / wide.backward[0] == pytest.approx(backward, rel=0.06)


def test_attention_stays_in_16_bits_without_an_8_bit_recipe_or_a_kernel_that_was_measured_in_8():
    asked = {"attention_backend": ("cudnn",), "fp8_attention": True}
    group = toy_group(device=accelerator("gb200"))
    assert toy_scenario(group=group, stack=toy_stack(**asked), precision="fp8").attends_in_8_bits
    assert not toy_scenario(group=group, stack=toy_stack(**asked), precision="bf16").attends_in_8_bits
    flash = toy_stack(attention_backend=("flash-2",), fp8_attention=True)
    assert not toy_scenario(group=group, stack=flash, precision="fp8").attends_in_8_bits


@pytest.mark.parametrize(
    ("name", "s", "seconds"),
    [
        ("gb200", 4096, 2.080e-3),
        ("gb200", 8192, 7.427e-3),
        ("gb300", 4096, 1.871e-3),
        ("gb300", 8192, 6.648e-3),
        ("gb300", 16384, 24.996e-3),
    ],
)
def test_the_backward_pass_in_8_bits_computes_what_a_window_leaves_out_as_measured(name, s, seconds):
    """128 heads of 64, two sequences, a window of 128, MXFP8, cuDNN 9.22; 16 bits take 0.44 ms at 4,096 on GB300."""
    model = toy_model(num_heads=128, hidden_size=128 * 64, seq_length=s).model_copy(update={"sliding_window": 128})
    group = toy_group(device=accelerator(name))
    wide, narrow = (
        attention_core(
            strategies(micro_batch_size=2),
            toy_scenario(
                model=model,
                group=group,
                stack=toy_stack(attention_backend=("cudnn",), fp8_attention=in_8_bits),
                precision="mxfp8",
            ),
            DENSE._replace(mixer="local"),
        )
        for in_8_bits in (False, True)
    )
    assert narrow.backward[0] == pytest.approx(seconds, rel=0.12)
    assert narrow.backward[0] > 3 * wide.backward[0]
    assert narrow.forward[0] < wide.forward[0]


def test_what_attention_reads_in_8_bits_is_cast_first():
    group, model = toy_group(device=accelerator("gb200")), toy_model(num_heads=16, num_query_groups=4)
    wide, narrow = (
        stream_traffic(toy_scenario(model=model, group=group, stack=stack, precision="fp8"))
        for stack in (toy_stack(attention_backend=("cudnn",), fp8_attention=in_8_bits) for in_8_bits in (False, True))
    )
    assert narrow[0][1] - wide[0][1] == pytest.approx(3 * (1024 + 2 * 256))
    assert narrow[1][1] - wide[1][1] == pytest.approx(3 * 1024)


def published(name: str, heads: int, s: int, stack):
    """Attention as measured: one sequence, heads of 128, those of keys and values eight at most."""
    model = toy_model(hidden_size=heads * 128, num_heads=heads, num_query_groups=8, seq_length=s)
    scenario = toy_scenario(model=model, group=toy_group(device=accelerator(name)), stack=stack)
    return attention_core(strategies(), scenario)


def latent(name: str, stack, precision: str = "bf16"):
    """Attention with 128 heads, queries of 192 and values of 128, on two sequences of 8,192 tokens."""
    model = with_latent_attention(toy_model(hidden_size=128 * 128, num_heads=128, seq_length=8192))
    scenario = toy_scenario(model=model, group=toy_group(device=accelerator(name)), stack=stack, precision=precision)
    return attention_core(strategies(micro_batch_size=2), scenario)


@pytest.mark.parametrize(
    ("stack", "device", "kernel"),
    [
        ("megatron-core", "v100-sxm2-32gb", "unfused"),
        ("megatron-core", "t4", "unfused"),
        ("torchtitan", "v100-sxm2-32gb", "unfused"),
        ("fsdp", "v100-sxm2-32gb", "memory-efficient"),
        ("deepspeed", "p100-pcie-16gb", "memory-efficient"),
        ("fsdp", "a100-sxm-80gb", "flash-2"),
    ],
)
def test_before_ampere_attention_is_pytorchs_memory_efficient_kernel_or_unfused(stack, device, kernel):
    group = toy_group(device=accelerator(device))
    asked = toy_scenario(stack=find_stack(stack).at("fp16"), group=group, precision="fp16")
    assert asked.rates.attention_name == kernel
