"""Why not a strategy that gives every node group its own degrees: the answer is about that strategy and no other."""

from io import StringIO

import pytest
from rich.console import Console

from planner import PlanRequest, predict, why_not
from planner.render.terminal.why_not import render_why_not
from planner.request.pins import Pin
from tests.scenarios import toy_model

MODEL = toy_model(num_layers=5, hidden_size=512, ffn_hidden_size=1344, vocab_size=256_000, seq_length=512)
WIRE = {"bandwidth": "100 Gb/s", "like": "ib-edr100"}
GROUPS = [
    {"name": "g0", "accelerator": "l40s", "gpus_per_node": 4, "nodes": 1, "network": WIRE},
    {"name": "g1", "accelerator": "a100-sxm-40gb", "gpus_per_node": 8, "nodes": 2, "network": WIRE},
]
JOB = {"model": MODEL, "cluster": {"name": "mc", "groups": GROUPS}, "gpus": 20, "global_batch_size": 96}
APART = {"tp": "2,1", "dp": "1,16", "zero_stage": 0}
ALL = {"cp": 1, "vpp": 1, "micro_batch_size": "16,1", "sequence_parallel": True, "recompute": "none"}


def asked(**pins):
    return PlanRequest(**JOB, pins=pins)


def degrees(strategy):
    return {stage.group: (stage.tp, stage.dp) for stage in strategy.stages}


def test_one_value_for_each_group_is_read_as_predict_reads_it():
    answer, priced = why_not(asked(**APART, **ALL)), predict(asked(**APART, **ALL))
    assert degrees(answer.strategy) == degrees(priced.strategy) == {"g0": (2, 1), "g1": (1, 16)}
    assert [stage.layers for stage in answer.strategy.stages] == [stage.layers for stage in priced.strategy.stages]
    assert answer.iteration_seconds == pytest.approx(priced.prediction.iteration_seconds)
    assert answer.pins["tp"] == "2,1"
    assert answer.strategy.sequence_parallel
    without = why_not(asked(**APART, **ALL | {"sequence_parallel": False}))
    assert without.iteration_seconds != answer.iteration_seconds


def test_one_micro_batch_is_that_of_the_most_replicas_as_predict_has_it():
    answer = why_not(asked(**APART, **ALL | {"micro_batch_size": 1}))
    assert {stage.group: stage.micro_batch_size for stage in answer.strategy.stages} == {"g0": 16, "g1": 1}


def test_a_group_of_one_rank_shares_nothing_where_the_others_share_among_as_many_as_asked():
    pins = APART | ALL | {"zero_stage": 1, "sharding_degree": 8}
    answer, priced = why_not(asked(**pins)), predict(asked(**pins))
    assert {stage.group: stage.sharding_degree for stage in answer.strategy.stages} == {"g0": 1, "g1": 8}
    assert answer.iteration_seconds == pytest.approx(priced.prediction.iteration_seconds)


def test_what_no_launcher_starts_is_said_with_what_it_would_take():
    answer = why_not(asked(**APART))
    assert answer.iteration_seconds < answer.best_iteration_seconds
    share = 1 - answer.iteration_seconds / answer.best_iteration_seconds
    said = (
        f"launchers start no plan with stages of 2 and 16 ranks: it would take {1e3 * answer.iteration_seconds:.0f} ms"
    )
    assert answer.verdict.startswith(f"{said}, {share:.1%} shorter; the best that they start takes ")
    assert [rule.rule for rule in answer.rules] == ["group-width"]
    console = Console(width=100, record=True, file=StringIO())
    render_why_not(answer, console)
    assert "g1 stage 2, 1 layer, 16 GPUs, TP 1, DP 16" in " ".join(console.export_text().split())
    assert answer.rules[0].example.startswith("stages have 2 ranks on one node group and 16 on another; launchers")


def test_what_is_left_free_gives_stages_of_one_width_where_it_can():
    answer = why_not(asked(tp="2,1"))
    assert {name: tp for name, (tp, _) in degrees(answer.strategy).items()} == {"g0": 2, "g1": 1}
    assert {tp * dp * answer.strategy.cp for tp, dp in degrees(answer.strategy).values()} == {4}
    assert answer.rules == ()
    assert answer.iteration_seconds >= answer.best_iteration_seconds


def test_the_order_of_the_values_is_the_cluster_s():
    assert "tp 3 does not divide the 4 GPUs of g0" in why_not(asked(tp="3,1")).verdict
    assert "dp 16 does not divide the 4 GPUs of g0" in why_not(asked(tp="1,2", dp="16,1")).verdict


def test_more_values_than_groups_and_ranges_are_a_choice_as_before():
    assert why_not(asked(tp="1,2,4")).iteration_seconds == why_not(asked(tp="1..4")).iteration_seconds
    assert Pin("tp", (2, 1)).of(1).values == (2, 1)


def test_what_speaks_against_it_on_any_width_is_said_and_not_that_widths_differ():
    model = MODEL.model_copy(update={"num_layers": 2})
    request = PlanRequest(**JOB | {"model": model}, pins={"tp": "2,1", "dp": "1,16", "recompute_num_layers": 2})
    answer = why_not(request)
    assert answer.strategy is None
    assert "group-width" not in {rule.rule for rule in answer.rules}
