"""The timeline of a plan: a valid trace, with the seconds that the price has."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from costmodels.node_groups import price
from costmodels.pipeline.schedules import SCHEDULES
from costmodels.pricing import price_strategy
from planner.answer.load import stages_from_plan, strategy_from_plan
from planner.api import plan, predict
from planner.cli.app import main
from planner.errors import BadRequest
from planner.render.by_group import strategy_on
from planner.render.trace import STREAMS, trace
from planner.request.request import PlanRequest
from planner.request.resolve import resolve

DENSE = {"model": "llama3-8b", "gpus": 16, "global_batch_size": 48, "seq_length": 4096}
EXPERTS = {"model": "deepseek-v2-lite", "gpus": 16, "global_batch_size": 64, "cluster": "dgx-h800"}
MIXED = str(Path(__file__).parents[3] / "examples/my-mixed-cluster.toml")
CASES = {
    "none": DENSE | {"pins": {"tp": 2, "cp": 2}},
    "gpipe": DENSE | {"stack": "zero-bubble", "pins": {"pp": 4, "tp": 2}},
    "1f1b": DENSE | {"pins": {"pp": 4, "tp": 2, "recompute": "full"}},
    "interleaved-1f1b": DENSE | {"pins": {"pp": 4, "vpp": 4, "tp": 2}},
    "zb-1p": DENSE | {"stack": "zero-bubble", "pins": {"pp": 4, "recompute": "selective"}},
    "zb-2p": DENSE | {"stack": "zero-bubble", "pins": {"pp": 4}},
    "zb-v": DENSE | {"stack": "zero-bubble", "pins": {"pp": 4, "vocabulary": "spread"}},
    "v-half": DENSE | {"stack": "zero-bubble", "pins": {"pp": 4}},
    "v-min": DENSE | {"stack": "zero-bubble", "pins": {"pp": 4}},
    "dualpipe": EXPERTS | {"stack": "deepseek", "pins": {"pp": 4, "ep": 4}},
    "dualpipe-v": EXPERTS | {"stack": "deepseek", "model": "qwen3-30b-a3b", "pins": {"pp": 4, "ep": 4}},
    "breadth-first": DENSE | {"stack": "torchtitan", "pins": {"pp": 4, "vpp": 2, "zero_stage": 3}},
    "interleaved-groups": DENSE | {"global_batch_size": 56, "pins": {"pp": 4, "vpp": 3, "tp": 2}},
    "interleaved-zb": DENSE | {"stack": "torchtitan", "pins": {"pp": 4, "vpp": 2}},
}


def answer(name):
    asked = CASES[name]
    return predict(PlanRequest(**asked | {"pins": asked["pins"] | {"schedule": name}}))


def drawn(made):
    events = json.loads(json.dumps(made.document))["traceEvents"]
    return [event for event in events if event["ph"] == "X"], events


def test_every_schedule_is_drawn():
    assert set(CASES) == set(SCHEDULES)


@pytest.mark.parametrize("name", CASES)
def test_the_trace_of_a_schedule_is_valid_and_as_long_as_the_price(name):
    told = answer(name)
    made = trace(told)
    complete, events = drawn(made)
    timed = [event["ts"] for event in events if event["ph"] != "M"]
    assert timed == sorted(timed)
    assert timed[0] >= 0.0
    by_thread = defaultdict(list)
    for event in complete:
        assert event["dur"] > 0.0
        by_thread[event["pid"], event["tid"]].append(event)
    for row in by_thread.values():
        assert all(one["ts"] + one["dur"] <= other["ts"] + 1e-3 for one, other in pairwise(row))
    assert {pid for pid, _ in by_thread} == set(range(told.strategy.pp))
    named = {(event["pid"], event["tid"]) for event in events if event.get("name") == "thread_name"}
    assert set(by_thread) <= named
    assert made.drawn == made.planned == told.strategy.num_microbatches
    assert made.predicted == pytest.approx(told.prediction.iteration_seconds)
    assert made.span == pytest.approx(made.predicted, rel=0.12)


@pytest.mark.parametrize("name", CASES)
def test_the_streams_of_a_stage_are_as_busy_as_its_quote_says(name):
    told = answer(name)
    scenario = resolve(PlanRequest(**told.request)).scenario
    priced, m = (
        price_strategy(strategy_from_plan(told.strategy), scenario, stages_from_plan(told.strategy)),
        told.strategy.num_microbatches,
    )
    busy = np.zeros((told.strategy.pp, len(STREAMS)))
    for event in drawn(trace(told))[0]:
        if "micro-batch" in event["args"]:
            busy[event["pid"], event["tid"]] += event["dur"] / 1e6
    np.testing.assert_allclose(busy.sum(axis=1), m * priced.stage_seconds, rtol=1e-9)
    slow, terms = int(np.argmax(priced.stage_seconds)), told.breakdown_seconds
    mine = dict(zip(STREAMS, busy[slow], strict=True))
    if terms["recompute"] == 0.0:
        for stream, term in (("compute", "compute"), ("tp", "tp"), ("cp", "cp"), ("ep", "ep"), ("p2p", "pp")):
            assert mine[stream] == pytest.approx(terms[term], rel=1e-9, abs=1e-9)
    assert sum(mine.values()) == pytest.approx(
        sum(terms[term] for term in ("compute", "recompute", "tp", "cp", "ep", "pp")) + mine["host"], rel=1e-9
    )


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "dualpipe", "breadth-first"])
def test_arrows_go_from_a_pass_to_the_next_piece_s_on_another_stage(name):
    complete, events = drawn(trace(answer(name)))
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert starts
    computed = [e for e in complete if e["tid"] == STREAMS.index("compute")]
    for number, start in list(starts.items())[:50]:
        assert abs(start["pid"] - ends[number]["pid"]) in {1, 3}
        assert start["ts"] < ends[number]["ts"]
        inside = [e for e in computed if e["pid"] == start["pid"] and e["ts"] <= start["ts"] <= e["ts"] + e["dur"]]
        assert len(inside) == 1


@pytest.mark.parametrize(
    "pins",
    [
        {"pp": 2, "offload": "activations", "recompute": "full", "micro_batch_size": 1},
        {"tp": 2, "offload": "optimizer"},
        {"pp": 2, "tp": 2, "recompute_modules": "layernorm"},
        {"cp": 4, "cp_kind": "a2a"},
        {"tp": 4, "cp": 4, "cp_kind": "all-gather"},
    ],
)
def test_what_is_offloaded_named_or_exchanged_is_drawn_as_it_is_priced(pins):
    told = predict(PlanRequest(**DENSE | {"cluster": "dgx-h100"}, pins=pins))
    made = trace(told)
    scenario = resolve(PlanRequest(**told.request)).scenario
    priced, busy = (
        price_strategy(strategy_from_plan(told.strategy), scenario, stages_from_plan(told.strategy)),
        np.zeros(told.strategy.pp),
    )
    for event in drawn(made)[0]:
        if "micro-batch" in event["args"]:
            busy[event["pid"]] += event["dur"] / 1e6
    np.testing.assert_allclose(busy, told.strategy.num_microbatches * priced.stage_seconds, rtol=1e-9)
    assert made.span == pytest.approx(told.prediction.iteration_seconds, rel=0.05)


def busy_and_quoted(told):
    """Seconds of every stage's passes, drawn and priced."""
    scenario = resolve(PlanRequest(**told.request)).scenario
    priced, made = (
        price_strategy(strategy_from_plan(told.strategy), scenario, stages_from_plan(told.strategy)),
        trace(told),
    )
    busy = np.zeros(told.strategy.pp)
    for event in drawn(made)[0]:
        if "micro-batch" in event["args"]:
            busy[event["pid"]] += event["dur"] / 1e6
    return busy, made.drawn * priced.stage_seconds


UNLIKE = {"gpus": 64, "global_batch_size": 256, "seq_length": 4096}


@pytest.mark.parametrize("model", ["nemotron-h-8b", "nemotron-3-nano-30b-a3b", "deepseek-v2-lite", "gpt-oss-20b"])
@pytest.mark.parametrize(
    "pins",
    [{"pp": 4, "vpp": 1}, {"pp": 2, "vpp": 2}, {"pp": 4, "recompute": "full"}, {"pp": 4, "recompute": "partial"}],
)
def test_layers_that_differ_are_drawn_on_the_stages_that_hold_them(model, pins):
    told = predict(PlanRequest(model=model, **UNLIKE, pins={"ep": 8} | pins if "nemotron-h" not in model else pins))
    np.testing.assert_allclose(*busy_and_quoted(told), rtol=1e-9)


@pytest.mark.parametrize("stack", ["fsdp", "torchtitan"])
def test_a_recomputed_layer_is_drawn_as_long_as_it_is_priced(stack):
    pins = {"recompute": "full"} | ({"pp": 2} if stack == "torchtitan" else {"zero_stage": 3})
    told = predict(PlanRequest(model="llama3-8b", stack=stack, **UNLIKE, pins=pins))
    np.testing.assert_allclose(*busy_and_quoted(told), rtol=1e-9)


@pytest.mark.parametrize("model", ["nemotron-h-8b", "nemotron-3-nano-30b-a3b", "nemotron-h-47b"])
def test_a_hybrid_s_trace_is_as_long_as_the_simulation_in_the_plan_s_proof(model):
    told = plan(PlanRequest(model=model, **UNLIKE, reasons=False, top=0, pins={"pp": 4, "vpp": 1}))
    made, proof = trace(told), told.proof
    assert made.drawn == made.planned
    simulated = (
        told.prediction.iteration_seconds - proof.closed_form_pipeline_seconds + proof.simulated_pipeline_seconds
    )
    assert made.span == pytest.approx(simulated, rel=1e-3)


def test_the_command_says_that_the_ends_lengthen_their_chunks(tmp_path):
    saved = tmp_path / "answer.json"
    asked = PlanRequest(model="nemotron-3-nano-30b-a3b", **UNLIKE, pins={"pp": 2, "vpp": 2, "ep": 8})
    saved.write_text(predict(asked).to_json())
    ran = CliRunner().invoke(main, ["trace", str(saved), "-o", str(tmp_path / "trace.json")])
    assert "the embedding and the head lengthen their chunks" in ran.stderr
    saved.write_text(answer("1f1b").to_json())
    ran = CliRunner().invoke(main, ["trace", str(saved), "-o", str(tmp_path / "trace.json")])
    assert "chunks" not in ran.stderr


@pytest.mark.parametrize("job", [{"model": "llama3-8b"}, {"model": "mixtral-8x7b", "pins": {"pp": 4, "tp": 4}}])
def test_every_stage_of_several_node_groups_is_drawn_as_its_group_runs_it(job):
    told = plan(PlanRequest(**job, cluster=MIXED, gpus=64, global_batch_size=64, reasons=False))
    question, split = resolve(PlanRequest(**told.request)).question, stages_from_plan(told.strategy)
    made, priced = trace(told), price(strategy_on(told.strategy, question), question, split)
    complete, events = drawn(made)
    busy, once = np.zeros(told.strategy.pp), defaultdict(float)
    for event in complete:
        if "micro-batch" in event["args"]:
            busy[event["pid"]] += event["dur"] / 1e6
        elif event["name"] == "optimizer":
            once[told.strategy.stages[event["pid"]].group] = event["dur"] / 1e6
    np.testing.assert_allclose(busy, told.strategy.num_microbatches * priced.stage_seconds, rtol=1e-9)
    assert max(once.values()) == pytest.approx(told.breakdown_seconds["optimizer"])
    assert once["old"] != once["new"]
    assert made.span == pytest.approx(told.prediction.iteration_seconds, rel=0.05)
    labels = [event["args"]["name"] for event in events if event.get("name") == "process_name"]
    assert all(stage.group in label for stage, label in zip(told.strategy.stages, labels, strict=True))


def test_a_large_plan_is_drawn_in_part_and_says_so():
    asked = DENSE | {"gpus": 8, "global_batch_size": 4096}
    told = predict(PlanRequest(**asked, pins={"pp": 8, "vpp": 2, "schedule": "interleaved-1f1b"}))
    made = trace(told)
    assert made.drawn < made.planned == 4096
    assert len(drawn(made)[0]) < 150_000
    assert made.span == pytest.approx(made.predicted, rel=0.12)
    assert trace(told, 16).drawn == 16
    for count, words in ((17, "multiple of p"), (5000, "has 4096"), (0, "")):
        if count:
            with pytest.raises(BadRequest, match=words):
                trace(told, count)


def test_an_answer_without_a_strategy_or_of_another_price_is_refused():
    told = answer("1f1b")
    nothing = plan(PlanRequest(model="llama2-70b", gpus=8, pins={"offload": "none"}, reasons=False))
    with pytest.raises(BadRequest, match="infeasible"):
        trace(nothing)
    other = told.prediction.model_copy(update={"iteration_seconds": 1.0})
    with pytest.raises(BadRequest, match="this version"):
        trace(told.model_copy(update={"prediction": other}))


def test_the_command_reads_an_answer_or_asks_the_question(tmp_path):
    saved, out = tmp_path / "answer.json", tmp_path / "trace.json"
    saved.write_text(answer("zb-v").to_json())
    ran = CliRunner().invoke(main, ["trace", str(saved), "-o", str(out)])
    assert ran.exit_code == 0
    assert "by the closed form" in ran.stderr
    assert json.loads(out.read_text())["traceEvents"]
    piped = CliRunner().invoke(main, ["trace", "-", "-q"], input=saved.read_text())
    assert json.loads(piped.stdout) == json.loads(out.read_text())
    asked = CliRunner().invoke(main, ["trace", "--model", "llama3-8b", "--gpus", "8", "-q"])
    assert json.loads(asked.stdout)["otherData"]["predicted_seconds"] > 0


@pytest.mark.parametrize(
    ("arguments", "text", "words"),
    [
        (["-"], "{}", "not an answer"),
        (["-"], "no json", "not an answer"),
        (["/nowhere/at.json"], None, "no such file"),
        (["-", "--gpus", "8"], "{}", "leave out --gpus"),
        ([], None, "--model is missing"),
    ],
)
def test_what_cannot_be_drawn_is_one_line_and_a_bad_request(arguments, text, words):
    ran = CliRunner().invoke(main, ["trace", *arguments], input=text)
    assert ran.exit_code == 2
    assert words in ran.stderr
    assert ran.stderr.count("\n") == 1
