"""Two plans, or a plan and a published run, term by term."""

import json
from io import StringIO

import pytest
from click.testing import CliRunner
from rich.console import Console

from planner import PlanRequest, plan, predict
from planner.analyses.compare import compare, side_of_plan, side_of_run
from planner.cli.app import main
from planner.errors import BadRequest
from planner.render.terminal.comparison import print_comparison
from tests.planner.measured_run import run

MEGATRON, MEGASCALE = (f"megascale-175b-{name}-12288g-gbs6144" for name in ("megatron-lm", "megascale"))
LLAMA = {"model": "llama3-8b", "gpus": 64, "global_batch_size": 256}


def side(**request):
    return side_of_plan(predict(PlanRequest(**LLAMA | request)), "answer")


def pinned(**pins):
    return side(pins=pins)


def test_a_side_that_is_likely_to_run_out_of_memory_is_said_with_its_time():
    tight = side(gpus=8, seq_length=32768, pins={"tp": 1, "pp": 1, "recompute": "none"})
    found = compare(tight, side(gpus=8, seq_length=32768, pins={"tp": 8, "recompute": "full"}))
    assert (found.a.fits, found.b.fits) == (False, True)
    screen = StringIO()
    print_comparison(found, Console(file=screen, width=80))
    assert "A  answer, likely to run out of memory\nB  answer\n" in screen.getvalue()


def test_terms_add_up_to_both_iterations():
    found = compare(pinned(tp=2), pinned(tp=4, pp=2))
    assert sum(term.a for term in found.terms) == pytest.approx(found.a.iteration_seconds)
    assert sum(term.b for term in found.terms) == pytest.approx(found.b.iteration_seconds)


@pytest.mark.parametrize(
    "other",
    [
        {"stack": "torchtitan", "pins": {"tp": 4}},
        {"cluster": "dgx-a100-80gb", "pins": {"tp": 2, "pp": 2}},
        {"seq_length": 4096, "precision": "fp8", "pins": {"tp": 2}},
        {"model": "llama2-7b", "seq_length": 8192, "pins": {"tp": 2}},
    ],
)
def test_the_steps_lead_from_one_to_the_other(other):
    a, b = pinned(tp=2), side(**other)
    found = compare(a, b)
    assert found.steps[-1].iteration_seconds == pytest.approx(found.b.iteration_seconds)
    assert left_over(found) == pytest.approx(0.0, abs=1e-9)


H100, A100 = {"precision": "fp8", "pins": {"tp": 2}}, {"cluster": "dgx-a100-80gb", "pins": {"tp": 2}}
TPU = {"cluster": "tpu-v5e-pod", "stack": "maxtext", "precision": "int8", "pins": {"zero_stage": 3}}


@pytest.mark.parametrize(
    ("one", "other", "changes"),
    [
        (H100, A100, ["precision", "machines"]),
        (A100, H100, ["machines", "precision"]),
        (H100, TPU, ["machines and precision"]),
        (A100 | {"gpus": 128}, H100, ["machines and GPUs"]),
        (H100, A100 | {"gpus": 128}, ["precision", "machines and GPUs"]),
    ],
)
def test_no_step_computes_in_a_format_that_its_machines_lack(one, other, changes):
    found = compare(side(**one), side(**other))
    told = ("precision", "machines", "machines and precision", "machines and GPUs")
    assert [step.change for step in found.steps if step.change in told] == changes
    assert left_over(found) == pytest.approx(0.0, abs=1e-9)


def left_over(found):
    """Of the difference of two iterations, what its parts do not explain."""
    saved = sum(step.saved_seconds for step in found.steps) - found.more_tokens_seconds
    return found.a.iteration_seconds - found.b.iteration_seconds - saved


@pytest.mark.parametrize("batch", [256, 512])
def test_over_other_gpus_the_parts_add_up_and_replicas_are_told(batch):
    found = compare(pinned(tp=2, pp=2), side(gpus=128, global_batch_size=batch, pins={"tp": 2, "pp": 2}))
    assert found.differences["dp"] == (16, 32)
    assert [step.change for step in found.steps] == ["GPUs", "batch"][: 1 + (batch > 256)]
    assert "DP 16 -> 32" in found.steps[0].detail
    assert left_over(found) == pytest.approx(0.0, abs=1e-9)
    b = found.b.iteration_seconds
    assert found.more_tokens_seconds == pytest.approx(b * (1 - 256 / batch))
    saved = sum(step.saved_seconds for step in found.steps)
    assert saved == pytest.approx(found.a.iteration_seconds - b * 256 / batch)
    table = printed(found)
    assert ("more tokens" in table) == (batch > 256)
    assert table.count("  sum ") == 2


def test_what_changes_is_said_in_the_words_of_the_screen_of_a_plan():
    found = compare(pinned(tp=1, pp=1), pinned(tp=2, pp=2, recompute="full"))
    said = {step.change: step.detail for step in found.steps}
    assert "TP 1 -> 2" in said["TP"]
    assert "sequence parallel off -> on" in said["TP"]
    assert "1F1B" in said["PP"]
    assert "recomputed layers" not in said["PP"]
    assert "recomputation none -> full, recomputed layers per stage 0,0 -> " in said["recomputation"]
    assert not [step.change for step in found.steps if "_" in step.detail]


def test_options_of_the_layout_change_one_at_a_time():
    found = compare(pinned(tp=2), pinned(tp=4, pp=2, micro_batch_size=2, recompute="full"))
    assert {step.change for step in found.steps} == {"TP", "PP", "micro-batch", "recomputation"}
    assert found.steps[-1].iteration_seconds == pytest.approx(found.b.iteration_seconds)
    assert left_over(found) == pytest.approx(0.0, abs=1e-9)


def test_options_change_one_at_a_time_on_the_way_to_what_a_framework_starts():
    best = side(framework="megatron-lm", pins={"tp": 2, "pp": 2, "recompute": "none"})
    found = compare(pinned(tp=8, pp=1, recompute="full"), best)
    assert {step.change for step in found.steps} >= {"TP", "PP", "recomputation"}
    assert left_over(found) == pytest.approx(0.0, abs=1e-9)


def test_a_run_on_the_way_that_does_not_fit_in_memory_says_so():
    asked = {"model": "llama3-8b", "gpus": 64, "reasons": False}
    one, other = (plan(PlanRequest(**asked, pins=pins)) for pins in ({"cp": 2, "tp": 1, "pp": 1}, {"tp": 4, "pp": 1}))
    *on_the_way, last = compare(one, other).steps
    assert on_the_way[0].iteration_seconds < one.prediction.iteration_seconds
    assert on_the_way[0].detail.endswith("; does not fit in memory")
    assert "does not fit" not in last.detail


def test_options_that_no_allowed_run_lies_between_change_together_and_say_why():
    few = {"gpus": 8, "global_batch_size": 4, "pins": {"tp": 8}}
    found = compare(side(**few), side(**few | {"pins": {"pp": 8}}))
    assert [step.change for step in found.steps] == ["TP and PP"]
    assert "together, for TP alone: GPUs or batch do not divide" in found.steps[0].detail


def test_layers_that_are_recomputed_in_addition_to_others_are_a_difference():
    few, many = (
        side(pins={"tp": 2, "recompute": "partial", "micro_batch_size": 4}, memory_margin=share) for share in (0, 0.3)
    )
    found = compare(few, many)
    assert list(found.differences) == ["recompute_layers"]
    assert left_over(found) == pytest.approx(0.0, abs=1e-9)


def printed(found):
    console = Console(width=100, record=True, file=StringIO())
    print_comparison(found, console)
    return console.export_text()


def test_a_larger_batch_saves_per_sequence():
    small, large = (side(global_batch_size=batch, pins={"tp": 2, "pp": 4}) for batch in (256, 1024))
    step = compare(small, large).steps[-1]
    assert step.change == "batch"
    before, after = small.price().iteration, large.price().iteration
    assert step.saved_seconds == pytest.approx(before - after / 4)
    assert step.saved_seconds > 0
    table = printed(compare(small, large))
    assert "for as many tokens as A's iteration has" in table
    assert "2.10 M -> 8.39 M in an iteration" in table


def test_what_is_recomputed_or_offloaded_is_told_in_words():
    lean = pinned(tp=2, recompute_modules="layernorm,mlp", offload="optimizer", sequence_parallel=False)
    found = compare(pinned(tp=2, recompute="none"), lean)
    assert found.differences["recompute_modules"] == ("none", "mlp,layernorm")
    assert found.differences["offload"] == ("none", "optimizer")
    assert found.differences["sequence_parallel"] == (True, False)


def test_nothing_differs_between_a_plan_and_itself():
    found = compare(pinned(tp=2), pinned(tp=2))
    assert (found.steps, found.differences) == ((), {})


def test_megascale_differs_from_megatron_by_overlap_and_kernels_not_by_degrees():
    found = compare(side_of_run(MEGATRON), side_of_run(MEGASCALE))
    assert (found.a.measured_seconds, found.b.measured_seconds) == (8.57, 6.34)
    changes = {step.change: step.saved_seconds for step in found.steps}
    for feature in ("tensor-parallel overlap", "pipeline overlap", "data-parallel overlap"):
        assert 0.02 < changes[feature] < 1.3, feature
    assert not {"tp", "pp", "vpp", "gpus"} & found.differences.keys()


@pytest.mark.parametrize("name", ["run.json", "runs.jsonl"])
def test_a_run_of_one_s_own_is_compared_as_a_published_one_is(name, tmp_path):
    (path := tmp_path / name).write_text(json.dumps(run()))
    result = CliRunner().invoke(main, ["compare", MEGATRON, str(path), "--format", "json"])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["b"]["name"], found["b"]["measured_seconds"]) == ("one", 2.0)
    priced = predict(PlanRequest(**run()["request"])).prediction.iteration_seconds
    assert found["b"]["iteration_seconds"] == pytest.approx(priced)


def test_a_file_of_several_runs_is_no_side(tmp_path):
    (path := tmp_path / "runs.jsonl").write_text(f"{json.dumps(run())}\n{json.dumps(run(id='two'))}\n")
    result = CliRunner().invoke(main, ["compare", MEGATRON, str(path)])
    assert (result.exit_code, "holds 2 runs; name a file of one" in result.stderr) == (2, True)


def test_a_plan_is_compared_with_a_published_run(tmp_path):
    saved = tmp_path / "plan.json"
    saved.write_text(plan(PlanRequest(model="175b", gpus=12288, cluster="megascale", top=0)).to_json())
    result = CliRunner().invoke(main, ["compare", MEGATRON, str(saved), "--format", "json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["schema"] == "comparison/1"
    assert found["b"]["measured_seconds"] is None
    table = CliRunner().invoke(main, ["compare", MEGATRON, str(saved)])
    assert "From A to B" in table.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((MEGATRON, "megascale-175b-megascale-12288g"), "did you mean megascale-175b-megascale-12288g-gbs6144"),
        (("-", "-"), "stdin"),
        ((MEGATRON, "missing.json"), "no such file"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(words, says):
    result = CliRunner().invoke(main, ["compare", *words])
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_an_answer_without_a_strategy_cannot_be_compared():
    nothing = plan(PlanRequest(model="llama2-70b", gpus=8, pins={"offload": "none"}, reasons=False))
    with pytest.raises(BadRequest, match="no strategy"):
        side_of_plan(nothing, "nothing.json")
