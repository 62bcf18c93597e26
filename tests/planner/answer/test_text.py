"""Quantities as a sentence says them."""

import pytest

from planner.answer.text import probability_words


@pytest.mark.parametrize(
    ("chance", "words"),
    [(0.764, "76%"), (0.99, "99%"), (0.9999, "more than 99%"), (1.0, "more than 99%"), (0.001, "less than 1%")],
)
def test_no_probability_of_a_model_is_called_certain(chance, words):
    assert probability_words(chance) == words
