"""What user buffers leave of tensor-parallel traffic, against pieces sent and multiplied one after the other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.layer.forward_backward import Passes
from costmodels.layer.tensor_parallel import ringed_parts, share_of_units, tensor_parallel
from costmodels.model.layer_kinds import DENSE, EXPERTS
from costmodels.primitives.overlap import pipelined_exposed, shared_units
from costmodels.strategy import strategies
from hardware.catalogue import accelerator
from tests.scenarios import changed_device, toy_group, toy_model, toy_scenario, toy_stack

TIMES = st.floats(0.01, 10.0)
SEQUENCE = {"sequence_parallel": 1}


def gathered(ranks: int, piece: float, message: float) -> float:
    """End of a product whose pieces arrive one message after the other, the first of them being there."""
    end = 0.0
    for number in range(ranks):
        end = max(end, number * message) + piece
    return end


def scattered(ranks: int, piece: float, message: float) -> float:
    """End of a product that sends all of its pieces but its own, each when it is ready and the link is free."""
    ready, sent = 0.0, 0.0
    for _ in range(ranks - 1):
        ready += piece
        sent = max(ready, sent) + message
    return max(ready + piece, sent)


def exposed(precision="fp8", rings=True, **row) -> Passes:
    stack = toy_stack(tp_forward=0.5, tp_backward=0.25, tp_overlap_rings=rings)
    return tensor_parallel(strategies(**row), eight_h100(stack, precision), DENSE)


def eight_h100(stack, precision="fp8", **model):
    group = toy_group(device=accelerator("h100-sxm"))
    changed = toy_model().model_copy(update=model)
    return toy_scenario(model=changed, group=group, stack=stack, precision=precision)


@given(st.integers(2, 16), TIMES, TIMES)
def test_a_ring_leaves_what_pieces_in_turn_leave(ranks, piece, message):
    left = pipelined_exposed(np.array([(ranks - 1) * message]), np.array([ranks * piece]), np.array([float(ranks)]))[0]
    assert left == pytest.approx(gathered(ranks, piece, message) - ranks * piece, abs=1e-9)
    assert left == pytest.approx(scattered(ranks, piece, message) - ranks * piece, abs=1e-9)


@given(TIMES, TIMES, st.integers(0, 50))
def test_a_collective_beside_a_product_takes_its_units_as_long_as_it_runs(moving, product, units):
    """While it runs the product goes on at the rate of the units left; what is left of either comes behind."""
    scenario = toy_scenario()
    left = 1.0 - units / scenario.group.accelerator.compute_units
    done = moving * left
    ends = moving + (product - done) if done < product else max(moving, product / left)
    assert shared_units(np.array([moving]), np.array([product]), share_of_units(units, scenario))[0] == pytest.approx(
        ends - product, rel=1e-6
    )


def test_rings_are_counted_for_products_in_8_bits_under_sequence_parallelism_alone():
    for precision, row in (("bf16", SEQUENCE), ("fp8", {})):
        with_rings, without = (exposed(precision, rings, tp=4, **row) for rings in (True, False))
        assert with_rings.forward == pytest.approx(without.forward)
        assert with_rings.backward == pytest.approx(without.backward)
    counted, shared = (exposed("fp8", rings, tp=4, **SEQUENCE) for rings in (True, False))
    assert counted.backward[0] != pytest.approx(shared.backward[0])


def test_one_rank_exchanges_nothing_and_rings_leave_less_than_all_where_products_are_long():
    alone = exposed(tp=1, **SEQUENCE)
    assert alone.forward[0] == alone.backward[0] == 0.0
    wide = {"hidden_size": 16384, "ffn_hidden_size": 65536, "num_heads": 128, "num_query_groups": 128}
    row = strategies(tp=4, micro_batch_size=8, **SEQUENCE)
    none, rings = (
        tensor_parallel(row, eight_h100(toy_stack(tp_overlap_rings=on), **wide), DENSE) for on in (False, True)
    )
    assert rings.forward[0] < 0.5 * none.forward[0]
    assert rings.backward[0] < 0.25 * none.backward[0]


def test_a_device_of_few_units_keeps_half_of_them_for_its_product():
    few, half = (changed_device(toy_scenario(), compute_units=units) for units in (2, 48))
    times = np.array([1.0]), np.array([2.0])
    assert (
        shared_units(*times, share_of_units(24, few))[0]
        == shared_units(*times, share_of_units(24, half))[0]
        == pytest.approx(0.5)
    )


def test_user_buffers_carry_no_nvfp4():
    group = toy_group(device=accelerator("gb200"))
    stack = toy_stack(tp_overlap_rings=True)
    known = {precision: toy_scenario(group=group, stack=stack, precision=precision) for precision in ("mxfp8", "nvfp4")}
    assert ringed_parts(known["mxfp8"], DENSE) == ("attention", "dense")
    assert ringed_parts(known["nvfp4"], DENSE) == ()


def test_routed_experts_and_branches_side_by_side_are_not_served():
    stack = toy_stack(tp_overlap_rings=True)
    assert ringed_parts(eight_h100(stack), DENSE) == ("attention", "dense")
    assert ringed_parts(eight_h100(stack), EXPERTS) == ("attention",)
    assert ringed_parts(eight_h100(stack, parallel_block=True), DENSE) == ()
