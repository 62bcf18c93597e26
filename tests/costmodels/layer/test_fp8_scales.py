"""Kernels that find scales of earlier steps, and magnitudes that ranks share."""

import numpy as np
import pytest

from costmodels.iteration import core_seconds, row_seconds, with_step
from costmodels.layer.fp8_scales import scale_seconds, sharing_seconds
from costmodels.layout.placement import group_of
from costmodels.model.layer_kinds import DENSE, EXPERTS
from costmodels.names import SHARDING_INSIDE
from costmodels.primitives.collectives import all_reduce_seconds
from tests.costmodels.stack.test_precision import eight_bit
from tests.scenarios import strategies


def shared(stack="data", precision="fp8", **plan):
    rows = strategies(**{"tp": 2, "dp": 16, "pp": 4, "num_microbatches": 8} | plan)
    return float(sharing_seconds(rows, eight_bit(precision, amax_group=stack))[0])


def test_modules_that_find_their_own_scales_start_so_many_small_kernels_in_either_pass():
    scenario = eight_bit("fp8", scale_kernels=10)
    passes = scale_seconds(strategies(tp=2, dp=2), scenario, DENSE)
    each = scenario.rates.head.overhead
    assert passes.forward == passes.backward == pytest.approx(3 * 10 * each)
    assert scale_seconds(strategies(), scenario, EXPERTS).forward == pytest.approx(2 * 10 * each)
    assert scale_seconds(strategies(), eight_bit("fp8-current", scale_kernels=10), DENSE).forward == 0.0


@pytest.mark.parametrize("vpp", [1, 2])
def test_magnitudes_are_shared_behind_both_passes_of_every_chunk(vpp):
    rows, scenario = strategies(tp=2, dp=16, pp=4, vpp=vpp, num_microbatches=8), eight_bit("fp8")
    three_of_four_products = 4.0 * 3 * 4 * scenario.model.num_layers / (4 * vpp)
    once = all_reduce_seconds(np.array([three_of_four_products]), group_of(rows, "tp", "dp"), scenario.group.tiers)
    assert shared(vpp=vpp) == pytest.approx(2 * vpp * once[0])


def test_magnitudes_are_shared_for_longer_the_more_data_ranks_there_are_unless_tensor_ranks_share_alone():
    assert shared(dp=64) > shared(dp=4)
    assert shared("tensor", dp=64) == shared("tensor", dp=4) < shared(dp=4)
    assert shared("none") == 0.0


def test_one_rank_has_nobody_to_share_with_and_scales_of_the_very_tensor_are_not_shared():
    assert shared(tp=1, dp=1) == shared("tensor", tp=1) == 0.0
    assert shared(precision="fp8-current") == shared(precision="bf16") == 0.0


def test_sharing_lengthens_an_iteration_by_as_much_for_every_micro_batch():
    assert np.isclose(shared(num_microbatches=8), shared(num_microbatches=64))


def test_a_core_priced_before_its_sharding_is_known_waits_as_long_as_the_whole_row():
    plan = {"tp": 2, "pp": 4, "dp": 16, "zero_stage": 1, "rank_order": SHARDING_INSIDE, "num_microbatches": 8}
    scenario = eight_bit("fp8", amax_group="data")
    core, row = strategies(**plan), strategies(**plan, sharding_degree=4)
    priced = with_step(row, scenario, core_seconds(core, scenario))
    assert priced.host == row_seconds(row, scenario).host
