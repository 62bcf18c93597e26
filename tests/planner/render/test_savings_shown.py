"""A plan that offloads says so wherever a strategy stands in a few words."""

import json

import pytest
from click.testing import CliRunner

from planner.answer.headline import headline
from planner.answer.text import strategy_in_words
from planner.api import plan
from planner.cli import main
from planner.render.terminal.what_if import words
from planner.request.request import PlanRequest
from tests.planner.fake_plan import fake_plan
from tests.planner.fake_plan import strategy as fake_strategy

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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"offload": "optimizer"}, "Use TP 8, DP 4, offload optimizer: "),
        ({"zero_stage": 3, "sharding_degree": 4}, "Use TP 8, DP 4, ZeRO-3 (FSDP): "),
        ({"zero_stage": 3, "sharding_degree": 2}, "Use TP 8, DP 4, ZeRO-3 (FSDP) over 2: "),
        ({"zero_stage": 2, "sharding_degree": 4}, "Use TP 8, DP 4: "),
        ({"recompute": "full", "recompute_num_layers": 2}, "full recomputation, 2 layers recomputed together: "),
        ({"recompute": "partial"}, "Use TP 8, DP 4: "),
    ],
)
def test_the_first_sentence_says_what_saves_memory_at_a_price(changes, said):
    plain = {"tp": 8, "cp": 1, "pp": 1, "vpp": 1, "ep": 1, "dp": 4, "zero_stage": 1, "sharding_degree": 4}
    plain |= {"recompute": "none", "offload": "none", "recompute_num_layers": 1}
    assert said in headline(fake_plan(strategy=fake_strategy(**(plain | changes))))


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
