"""A plan that offloads says so wherever a strategy stands in a few words."""

import json

import pytest
from click.testing import CliRunner

from planner.answer.text import strategy_in_words
from planner.api import plan
from planner.cli import main
from planner.render.terminal.what_if import words
from planner.request.request import PlanRequest

TIGHT = {"model": "llama2-70b", "gpus": 8}


@pytest.fixture(scope="module")
def strategy():
    return plan(PlanRequest(**TIGHT, top=0, reasons=False)).strategy


def screen(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)), env={"COLUMNS": "160", "NO_COLOR": "1"}).stdout


def test_the_words_of_a_strategy_say_what_is_offloaded(strategy):
    assert strategy.offload == "optimizer"
    plain = strategy.model_copy(update={"offload": "none"})
    for said in (strategy_in_words, words):
        assert "offload optimizer" in said(strategy)
        assert "offload" not in said(plain)
    together = plain.model_copy(update={"recompute_num_layers": 4})
    assert "4 layers recomputed together" in strategy_in_words(together)


def test_the_size_that_offloads_says_so():
    assert "offload optimizer" in screen("size", "--model", "llama2-70b", "--gpus", 8, "--deadline", "90000d")


def test_the_table_of_a_study_says_which_points_offload(tmp_path):
    path = tmp_path / "study.json"
    path.write_text(json.dumps({"model": "llama2-70b", "gpus": [8, 64]}))
    rows = [
        line
        for line in screen("sweep", path, "-o", tmp_path / "runs.sqlite", "--workers", 1, "--quiet").splitlines()
        if line.startswith(("8 ", "64 "))
    ]
    assert ["offload optimizer" in row for row in rows] == [True, False]
