from dataclasses import replace

import numpy as np
import pytest

from costmodels.memory.allocator import (
    LAUNCHES_AHEAD,
    embedding_gradient_bytes,
    gather_buffer_bytes,
    gather_list_bytes,
    gradient_copy_bytes,
    logits_block_bytes,
    unreleased_sums,
)
from costmodels.memory.footprint import footprint, readings
from costmodels.memory.peaks import step_bytes
from costmodels.memory.rows import row_bytes
from costmodels.names import Recompute
from costmodels.pricing import row_assignment
from costmodels.strategy import strategies
from tests.scenarios import changed_device, toy_model, toy_scenario, toy_stack

TOKENS, HIDDEN = 1024, 1024


def test_partial_sums_of_every_layer_wait_as_far_as_the_host_is_ahead():
    rows = strategies(tp=[1, 4, 4])
    far, near = (toy_scenario(stack=toy_stack(record_streams=True, kernels_per_layer=n)) for n in (16, 512))
    sums = 2 * 2 * TOKENS * HIDDEN
    assert unreleased_sums(rows, far, 8.0, first=True).tolist() == [0.0, 8.0 * sums, 8.0 * sums]
    assert unreleased_sums(rows, near, 8.0, first=True)[1] == LAUNCHES_AHEAD / 512 * sums


@pytest.mark.parametrize(("kernels", "behind"), [(16, 8.0), (80, 2.4), (512, 0.0)])
def test_sums_of_the_backward_pass_before_wait_too_where_no_batch_is_asked_for(kernels, behind):
    sums = 2 * 2 * TOKENS * HIDDEN
    rows = strategies(tp=4, num_microbatches=[1, 2])
    asks, unread = (
        toy_scenario(stack=toy_stack(record_streams=True, unread_batches=yes, kernels_per_layer=kernels))
        for yes in (False, True)
    )
    for first in (True, False):
        plain = unreleased_sums(rows, asks, 8.0, first=first)
        more = unreleased_sums(rows, unread, 8.0, first=first) - plain
        assert more.tolist() == pytest.approx([0.0, first * behind * sums])


def test_nothing_waits_where_streams_are_not_recorded():
    assert unreleased_sums(strategies(tp=4), toy_scenario(), 8.0, first=True).tolist() == [0.0]


def test_16_bit_gradients_are_copied_flat_by_the_rank_that_steps_them():
    rows = strategies(dp=4, zero_stage=[0, 1], sharding_degree=[1, 4])
    narrow, wide = (
        toy_scenario(stack=toy_stack(flat_step_bytes=6, flat_bucket="1 GB", gradient_bytes=n, optimizer_bytes=12))
        for n in (2, 4)
    )
    assert gradient_copy_bytes(rows, narrow, 1e9, largest=1e8).tolist() == [6e9, 1.5e9 + 1e9]
    # A bucket holds no more than there is.
    assert gradient_copy_bytes(rows, narrow, 100.0, largest=10.0).tolist() == [600.0, 150.0 + 200.0]
    assert gradient_copy_bytes(rows, wide, 100.0, largest=10.0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("largest", "scattered", "taken"),
    [
        (10.0, 0.0, 200.0 + 40.0 + 80.0 + 150.0),  # 25 values of its own, flat in 4 bytes, are more than 10 in 8
        (20.0, 0.0, 200.0 + 80.0 + 160.0),  # are no more than 20 in 8
        (50.0, 0.0, 200.0 + 100.0 + 200.0),  # no tensor of its own is larger than all of them
        (20.0, 100.0, 100.0 + 200.0 + 160.0),  # the embedding's gradient had a block for the copy in 4
        (20.0, 300.0, 300.0 + 200.0),
    ],
)
def test_copies_of_gradients_that_a_step_checks_take_new_blocks_where_none_is_as_large(largest, scattered, taken):
    rows = strategies(dp=4, zero_stage=1, sharding_degree=4)
    known = {"flat_step_bytes": 6, "flat_bucket": "1 GB", "gradient_bytes": 2, "overflow_check": True}
    scenario = toy_scenario(stack=toy_stack(**known))
    assert gradient_copy_bytes(rows, scenario, 100.0, largest=largest, scattered=scattered) == taken


def test_the_embedding_s_gradient_fits_no_block_of_fixed_segments():
    rows = strategies(tp=[1, 4])
    grow, fixed = (
        toy_scenario(model=toy_model(vocab_size=2**17), stack=toy_stack(expandable_segments=not yes))
        for yes in (False, True)
    )
    assert embedding_gradient_bytes(rows, grow).tolist() == [0, 0]
    assert embedding_gradient_bytes(rows, fixed).tolist() == [2 * 2**17 * HIDDEN, 2 * 2**17 * HIDDEN / 4]
    small = toy_scenario(model=toy_model(vocab_size=1024), stack=toy_stack(expandable_segments=False))
    assert embedding_gradient_bytes(rows, small)[0] == 0


LARGEST = 2 * TOKENS * 4 * HIDDEN
"""Bytes that the first matrix of a toy layer returns."""


def listed(scenario, *, parameters, optimizer=0.0, last=False, tp=1):
    rows = strategies(tp=tp, dp=4, zero_stage=[0, 1, 1], sharding_degree=[1, 1, 4])
    return gather_list_bytes(rows, scenario, parameters=parameters, optimizer=optimizer, last=last).tolist()


def test_a_gather_into_a_list_takes_what_no_block_of_an_activation_has_room_for():
    listing = toy_scenario(stack=toy_stack(parameter_exchange="listed", optimizer_bytes=12))
    fits, flat, pieces = 0.5 * LARGEST, 0.75 * LARGEST, 4 * LARGEST
    assert listed(listing, parameters=fits) == [0.0, 0.0, 0.0]
    assert listed(listing, parameters=fits, tp=4) == [0.0, 0.0, 2 * fits]  # blocks are as large as a rank's part
    assert listed(listing, parameters=flat) == [0.0, 0.0, 2 * flat]
    assert listed(listing, parameters=pieces) == [0.0, 0.0, (2 + 2 + 2 / 4) * pieces]  # flat, all ranks' and its own
    assert listed(listing, parameters=flat, optimizer=12.0) == [0.0, 0.0, 2 * flat - 8.0]  # moments took as much
    assert listed(listing, parameters=flat, last=True) == [0.0, 0.0, 0.0]  # where logits were
    assert listed(toy_scenario(), parameters=pieces) == [0.0, 0.0, 0.0]


def test_a_gather_that_does_not_fit_leaves_nothing_behind():
    """The allocator gives back all that is idle, once, and activations share the gather's blocks from then on."""
    rows, split = strategies(dp=8, zero_stage=1, sharding_degree=8), row_assignment(strategies(), 8)
    ample = toy_scenario(stack=toy_stack(parameter_exchange="listed"))
    peak = footprint(rows, row_bytes(rows, ample), ample, row=0, layers=split.layers, recomputed=split.recomputed)
    assert peak.reclaimable[0] > 0.0
    for room, left in ((1.1, peak.reclaimable[0]), (0.9, 0.0)):
        tight = changed_device(ample, usable_memory=peak.total[0] + room * peak.reclaimable[0])
        again = footprint(rows, row_bytes(rows, tight), tight, row=0, layers=split.layers, recomputed=split.recomputed)
        assert again.reclaimable[0] == left


def test_gathered_units_pass_a_buffer_as_large_as_the_largest():
    rows = strategies(dp=4, zero_stage=[1, 3], sharding_degree=4)
    apart, joined = (toy_scenario(stack=toy_stack(gather_pool=True, root_unit=root)) for root in (False, True))
    assert gather_buffer_bytes(rows, apart, layer=5.0, ends=(3.0, 4.0)).tolist() == [0.0, 10.0]
    assert gather_buffer_bytes(rows, joined, layer=5.0, ends=(3.0, 4.0)).tolist() == [0.0, 14.0]


def test_what_waits_shows_in_readings_and_fails_no_run():
    rows, split = strategies(tp=4), row_assignment(strategies(), 8)
    plain, waits = (toy_scenario(stack=toy_stack(record_streams=wait, cached_share=0.0)) for wait in (False, True))
    peaks = [
        footprint(rows, row_bytes(rows, one), one, row=0, layers=split.layers, recomputed=split.recomputed)
        for one in (plain, waits)
    ]
    (without, _), (beside, _) = (readings(peak, one) for peak, one in zip(peaks, (plain, waits), strict=True))
    assert beside[0] - without[0] == pytest.approx(peaks[1].reclaimable[0])
    assert peaks[1].reclaimable[0] > 0
    assert peaks[0].total == pytest.approx(peaks[1].total)


def test_an_eager_loss_leaves_the_block_of_the_logits_idle():
    eager, compiled = (toy_scenario(stack=toy_stack(logits_freed_early=yes)) for yes in (True, False))
    logits = 2 * TOKENS * eager.model.vocab_size / 4
    assert logits_block_bytes(strategies(tp=4), eager) == pytest.approx(logits, rel=0.1)  # the vocabulary is padded
    assert logits_block_bytes(strategies(tp=4), compiled) == 0
    assert (
        logits_block_bytes(strategies(tp=4), toy_scenario(stack=toy_stack(logits_freed_early=True, loss_block=128)))
        == 0
    )


def test_logits_are_put_beside_what_a_layer_let_go_unless_segments_grow():
    rows = strategies(tp=[1, 4, 4], sequence_parallel=[0, 0, 1], recompute=Recompute.FULL)
    model = toy_model(vocab_size=2**17)
    fixed, hidden = (
        toy_scenario(model=model, stack=toy_stack(expandable_segments=False, overlap={"tp_forward": share}))
        for share in (1.0, 0.5)
    )
    inner, outer = 2 * TOKENS * 2 * model.ffn_hidden_size, 2 * TOKENS * HIDDEN  # the product and what it came from
    assert logits_block_bytes(rows, fixed).tolist() == [inner, inner / 4 + outer, inner / 4 + 2 * outer]
    assert logits_block_bytes(rows, hidden).tolist() == [inner, inner / 4, inner / 4]
    assert logits_block_bytes(rows, toy_scenario(model=model)).tolist() == [0, 0, 0]
    small = toy_scenario(model=toy_model(vocab_size=1024), stack=toy_stack(expandable_segments=False))
    assert logits_block_bytes(rows, small)[0] == 0  # such logits fit the blocks


def test_a_compiled_loss_takes_a_block_anew_that_the_first_step_cut():
    model = toy_model(vocab_size=2**17)
    rows = strategies()
    plain, compiled = (
        toy_scenario(model=model, stack=toy_stack(expandable_segments=False, cross_entropy_bytes=n)) for n in (6, 4)
    )
    assert logits_block_bytes(rows, plain) == 0  # all that a layer made is kept
    assert logits_block_bytes(rows, compiled) == 2 * TOKENS * 2**17


@pytest.mark.parametrize(
    ("dp", "stage", "num_microbatches", "late"),
    [(8, 3, 1, True), (8, 3, 4, False), (1, 0, 1, True), (1, 0, 4, False), (8, 0, 1, False)],
)
def test_gradients_that_are_made_anew_come_as_activations_go(dp, stage, num_microbatches, late):
    stack = toy_stack(fsdp_stage2=True, set_to_none=True, zero_stages=(0, 1, 2, 3))
    scenario = toy_scenario(stack=stack, gpus=dp, batch=dp * num_microbatches)
    degree = dp if stage else 1
    rows = strategies(dp=dp, zero_stage=stage, sharding_degree=degree, num_microbatches=num_microbatches)
    layers = np.array([scenario.model.num_layers])
    for known in (scenario, replace(scenario, stack=stack.changed({"gradients.set_to_none": False}))):
        peak = footprint(rows, row_bytes(rows, known), known, row=0, layers=layers, recomputed=0 * layers)
        gone = np.minimum(peak.gradients, peak.activations) if late and known is scenario else 0.0
        assert peak.allocated - peak.handed_out == pytest.approx(gone, rel=0.3)


@pytest.mark.parametrize(("traffic", "roots"), [(92, 4.0), (38, 0.0)])
def test_a_step_of_many_kernels_writes_the_roots_of_a_rank_s_second_moments(traffic, roots):
    stack = toy_stack(fsdp_stage2=True, zero_stages=(0, 1, 2, 3), weight_bytes=4, optimizer_traffic=traffic)
    rows = strategies(dp=8, zero_stage=[0, 3], sharding_degree=[1, 8])
    assert step_bytes(rows, toy_scenario(stack=stack, precision="fp32")) == pytest.approx([roots, roots / 8])
