"""Quantities as a sentence says them."""

import pytest

from planner.answer.text import probability_words, stages_of_layers


@pytest.mark.parametrize(
    ("chance", "words"),
    [(0.764, "76%"), (0.99, "99%"), (0.9999, "more than 99%"), (1.0, "more than 99%"), (0.001, "less than 1%")],
)
def test_no_probability_of_a_model_is_called_certain(chance, words):
    assert probability_words(chance) == words


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([6] * 11 + [4], "layers per stage 11 stages of 6, then 4"),
        ([1, 2, 2, 0], "layers per stage 1, then 2 stages of 2, then 0"),
        ([20, 21, 20, 19], "layers per stage 20, 21, 20, 19"),
    ],
)
def test_stages_and_their_layers_cannot_be_taken_for_each_other(layers, words):
    assert stages_of_layers(layers) == words
