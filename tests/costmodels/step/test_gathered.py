"""What sharded parameters take while they are whole."""

import pytest

from costmodels.memory.rows import row_bytes
from costmodels.step.gathered import largest_matrix, whole_bytes
from costmodels.strategy import strategies
from tests.scenarios import toy_model, toy_scenario, toy_stack

H = 1024


def stage_three(**changes):
    rows = strategies(dp=4, zero_stage=3, sharding_degree=4)
    return row_bytes(rows, toy_scenario(stack=toy_stack(zero_stages=(0, 3), **changes)))


def test_a_compiler_gathers_two_matrices_where_others_gather_two_layers():
    layers, matrices = (stage_three(gather_unit=unit) for unit in ("layer", "matrix"))
    spared = layers.everywhere - matrices.everywhere
    assert spared == pytest.approx(2 * 2 * (layers.layer_parameters - 4 * H * H))


@pytest.mark.parametrize(("tp", "size"), [(1, 4 * H * H), (4, H * H)])
def test_the_largest_matrix_is_the_feed_forward_network_s_and_split_over_tensor_ranks(tp, size):
    assert largest_matrix(strategies(tp=tp), toy_scenario(model=toy_model())) == pytest.approx(size)


def test_nothing_is_gathered_where_parameters_are_not_sharded():
    assert whole_bytes(
        strategies(dp=4, zero_stage=1, sharding_degree=4), toy_scenario(), largest_matrix(strategies(), toy_scenario())
    ) == pytest.approx(0.0)
