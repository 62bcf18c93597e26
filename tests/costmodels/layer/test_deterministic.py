from dataclasses import replace

import numpy as np
import pytest

from costmodels.layer.attention import attention_core
from costmodels.layer.blocks import layer_seconds
from costmodels.layer.elementwise import fill_seconds
from costmodels.layer.vocabulary import FILLED_LOGIT, loss_seconds
from costmodels.layout.parameters_per_rank import layer_parameters_per_rank
from costmodels.strategy import strategies
from hardware.catalogue import accelerator
from tests.scenarios import changed_device, toy_device, toy_group, toy_model, toy_scenario, toy_stack


def ordered(*, deterministic=True, **changes):
    return toy_stack(deterministic=deterministic, **changes)


def backward(scenario, rows):
    return attention_core(rows, scenario).backward


def test_flash_attention_2_takes_as_long_on_h100_as_was_measured_in_one_order():
    """Two sequences of 8,192 tokens, 16 heads of 128, causal: 8.279 ms (flash-attention, pull request 1893)."""
    device = accelerator("h100-sxm").model_copy(update={"training_rate": 1.0})
    model = toy_model(hidden_size=2048, num_heads=16, seq_length=8192)
    rows = strategies(micro_batch_size=2)
    free, fixed = (
        backward(toy_scenario(model=model, group=toy_group(device=device), stack=ordered(deterministic=yes)), rows)
        for yes in (False, True)
    )
    assert free == pytest.approx([4.4e-3], rel=0.05)
    assert fixed == pytest.approx([8.279e-3], rel=0.1)


def test_sums_of_flash_attention_2_make_just_more_blocks_than_units():
    """On 100 units 8 heads have 13 sums, but one for 128 keys: 8; 128 heads have one each and fill two waves."""
    scenario = toy_scenario(stack=ordered(), group=toy_group(device=toy_device(bandwidth=1e30)))
    rows = strategies(micro_batch_size=[1, 16, 25])
    free = backward(replace(scenario, stack=ordered(deterministic=False)), rows)
    assert backward(scenario, rows) / free == pytest.approx([100 / 64, 200 / 128, 1.0])


def test_sums_of_flash_attention_2_are_zeroed_and_read():
    rows = strategies(micro_batch_size=25)
    scenario = toy_scenario(model=toy_model(num_heads=2, hidden_size=256), stack=ordered())
    slow, fast = (backward(changed_device(scenario, memory_bandwidth=b), rows) for b in (1e12, 2e12))
    further = 2 - 1  # 50 heads of sequences on 100 units
    assert slow - fast == pytest.approx([2 * further * 4 * 25 * 1024 * 256 / 1e12 / 2])


def test_cudnn_on_hopper_writes_the_gradients_of_all_scores():
    kernels = toy_device().kernels
    kernels = kernels.model_copy(update={"attention": {"cudnn": kernels.attention["flash-2"]}})
    device = toy_device().model_copy(update={"kernels": kernels, "architecture": "Hopper"})
    scenario = toy_scenario(group=toy_group(device=device), stack=ordered(attention_backend=("cudnn",)))
    rows = strategies(tp=[1, 2], micro_batch_size=2)
    free = backward(replace(scenario, stack=ordered(attention_backend=("cudnn",), deterministic=False)), rows)
    pairs = np.array([16, 8]) * 1024 * 1024 / 2
    assert backward(scenario, rows) - free == pytest.approx(2 * 2 * pairs / 1e12)
    assert (backward(changed_device(scenario, architecture="Ampere"), rows) == free).all()


def test_what_modules_are_about_to_write_is_filled():
    """Norms' outputs 2h, attention's 4h, both products' and their inputs' gradients: 4h and h; weights' where added."""
    rows, kind = strategies(), toy_scenario().depth.kinds[0]
    plain = fill_seconds(rows, toy_scenario(stack=ordered()), kind)
    values = 1024 * (2 * 1024 + 2 * 1024 + 4 * 1024 + 4 * 1024)
    assert plain.forward == pytest.approx([2 * values / 1e12])
    assert plain.backward == pytest.approx([2 * values / 1e12])
    scenario = toy_scenario(stack=ordered(accumulate_traffic=10))
    further = fill_seconds(rows, scenario, kind).backward - plain.backward
    assert further == pytest.approx(2 * layer_parameters_per_rank(rows, scenario) / 1e12)


def test_logits_are_filled():
    tokens, rows = np.array([1024.0]), np.array([8192.0])
    free, fixed = (loss_seconds(tokens, rows, toy_scenario(stack=ordered(deterministic=yes))) for yes in (False, True))
    both = fixed.forward + fixed.backward - free.forward - free.backward
    assert both == pytest.approx(FILLED_LOGIT * 1024 * 8192 / 1e12)


def test_runs_that_need_not_repeat_themselves_fill_nothing():
    rows = strategies(tp=[1, 2], sequence_parallel=1)
    free, fixed = (layer_seconds(rows, toy_scenario(stack=ordered(deterministic=yes))) for yes in (False, True))
    assert (fixed.stream.forward > free.stream.forward).all()
    assert (fixed.attention.forward == free.attention.forward).all()
