"""A vision tower in front of the decoder: seconds of its images, what it holds frozen and what it holds in training."""

import pytest

from costmodels.iteration import row_seconds
from costmodels.layer.attention import attended_pairs
from costmodels.layer.tower import tower_seconds
from costmodels.layout.parameters_per_rank import embedding_parameters_per_rank
from costmodels.memory.rows import row_bytes
from costmodels.strategy import strategies
from tests.scenarios import toy_model, toy_scenario, toy_stack

TOWER = {"num_layers": 4, "hidden_size": 512, "num_heads": 8, "ffn_hidden_size": 2048, "parameters": 13_000_000}
TOWER |= {"projection": 512 * 1024, "patches_per_token": 4, "image_tokens": 256}
ONE = strategies(num_microbatches=4)


def scenario(images, *, trains=False, **more):
    model = toy_model(tower=TOWER)
    return toy_scenario(model=model, stack=toy_stack(images_per_sample=images, train_tower=trains), **more)


def test_without_images_a_tower_costs_nothing():
    plain, text = toy_scenario(), scenario(0)
    assert tower_seconds(ONE, text).total == 0
    assert row_seconds(ONE, text).embedding == row_seconds(ONE, plain).embedding
    assert row_bytes(ONE, text).first == row_bytes(ONE, plain).first


def test_patches_attend_to_all_others():
    tower = scenario(1).tower
    assert (tower.seq_length, attended_pairs(tower.model, 1024.0)) == (1024, 1024.0**2)


def test_a_frozen_tower_runs_forward_only_and_its_projection_trains():
    one, two = (tower_seconds(ONE, scenario(images)) for images in (1, 2))
    assert two.forward > 1.5 * one.forward
    assert 0 < one.backward < one.forward / 4
    trained = tower_seconds(ONE, scenario(1, trains=True))
    assert trained.forward == one.forward
    assert trained.backward > 1.5 * trained.forward


def test_the_first_stage_has_the_towers_seconds():
    frozen, plain = (row_seconds(ONE, scenario(images)) for images in (1, 0))
    assert frozen.embedding - plain.embedding == pytest.approx(tower_seconds(ONE, scenario(1)).total)
    assert frozen.layer == plain.layer


def test_recomputation_repeats_a_tower_that_trains():
    full = strategies(num_microbatches=4, recompute=3)
    seconds = row_seconds(full, scenario(1, trains=True)).embedding - row_seconds(full, scenario(0)).embedding
    assert seconds > tower_seconds(ONE, scenario(1, trains=True)).total
    kept = (row_bytes(row, scenario(1, trains=True)).embedding_activation for row in (full, ONE))
    assert next(kept) < next(kept) / 4


def test_a_frozen_tower_holds_weights_and_one_that_trains_states_and_activations():
    text, frozen, trained = scenario(0), scenario(1), scenario(1, trains=True)
    assert row_bytes(ONE, frozen).first - row_bytes(ONE, text).first == 2 * TOWER["parameters"]
    assert row_bytes(ONE, frozen).embedding_activation == row_bytes(ONE, text).embedding_activation
    more = embedding_parameters_per_rank(ONE, trained) - embedding_parameters_per_rank(ONE, text)
    assert more == TOWER["parameters"]
    assert row_bytes(ONE, trained).embedding_activation > row_bytes(ONE, text).embedding_activation


def test_tensor_ranks_share_the_tower():
    halves = strategies(tp=2, num_microbatches=4)
    assert tower_seconds(halves, scenario(8)).forward < tower_seconds(ONE, scenario(8)).forward
    assert row_bytes(halves, scenario(1)).first - row_bytes(halves, scenario(0)).first == TOWER["parameters"]
