"""From a measured run to a verdict: what a document says is what is priced, and errors are counted as they are."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from costmodels.names import SCHEDULE_NAMES, Recompute
from costmodels.pricing import price_strategy
from planner.answer.build import mfu_of
from planner.cli import main
from planner.runs.fit_memory import caches, held
from planner.runs.judge import groups, summary
from planner.runs.report import written
from planner.runs.unseen import unseen_fits, unseen_lines, unseen_memory, unseen_times
from planner.trust.interval import interval
from planner.trust.table import measured as table_of_runs
from tests.planner.measured_run import RUN, case, judged, only, run, validate

SIMPLE = {"tp": 1, "pp": 1, "vpp": 1, "schedule": "none"}


def test_every_degree_of_a_run_reaches_the_cost_model():
    found = case(RUN)
    at = found.strategy.row(0)
    for axis, value in RUN["request"]["pins"].items():
        assert axis in ("schedule", "recompute") or at[axis] == value, axis
    assert SCHEDULE_NAMES[at["schedule"]] == "interleaved-1f1b"
    assert at["recompute"] == Recompute.FULL
    assert (at["dp"], at["num_microbatches"]) == (4, 64 // (4 * 2))
    assert found.assignment.layers.tolist() == [12, 12]
    assert found.scenario.gpus == 16
    assert found.scenario.stack.name == "megatron-core"


def test_a_run_that_breaks_a_rule_is_priced_with_the_rule_beside_it(tmp_path):
    odd = run(
        pins={**SIMPLE, "tp": 16, "sharding_degree": 1, "zero_stage": 0}, model={"num_heads": 8, "num_query_groups": 8}
    )
    verdict = only(judged(odd), "iteration_time")
    assert verdict.predicted > 0
    assert [rule.partition(":")[0] for rule in verdict.broken] == ["heads"]
    done = asked(tmp_path / "mine.jsonl", [odd, run(id="plain")])
    assert "Runs that break a rule for plans, priced as they ran: 1 (heads 1)" in done.stdout
    rows = json.loads(asked(tmp_path / "mine.jsonl", [odd], "--format", "json").stdout)["rows"]
    assert all(row["broken_rules"][0].startswith("heads: ") for row in rows)


def test_layers_that_a_stack_would_not_take_are_priced_as_they_were():
    uneven = run(pins={"pp": 2, "vpp": 1, "schedule": "1f1b"}, request={"layers_per_stage": [13, 11]})
    found = case(uneven | {"request": uneven["request"] | {"stack": "megatron-lm-2022"}})
    assert found.assignment.layers.tolist() == [13, 11]
    assert "layers-per-stage" in [one.rule for one in found.broken]


def test_degrees_that_make_up_other_gpus_are_priced_where_the_data_parallel_one_is_said():
    assert "does not divide" in only(judged(run(pins={"tp": 3})), "iteration_time").reason
    assert case(run(pins={"tp": 3, "dp": 4})).strategy.dp[0] == 4


def test_a_batch_of_no_whole_number_of_micro_batches_is_priced_as_the_nearest_one():
    found = case(run(request={"global_batch_size": 65}))
    assert found.strategy.num_microbatches[0] == 8
    assert found.broken


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"request": {"cluster": "dgx-h1000"}}, "unknown cluster 'dgx-h1000'"),
        ({"request": {"stack": "megatron-cor"}}, "unknown stack"),
        ({"request": {"cluster": "a100-h100-mixed", "gpus": 96, "layers_per_stage": None}}, "several node groups"),
        ({"request": {"layers_per_stage": [12, 11]}}, "the stages hold 23 layers, the model has 24"),
        ({"unpriced": "global_batch_size is not stated", "request": None}, "global_batch_size is not stated"),
    ],
)
def test_a_run_that_cannot_be_priced_says_why_and_is_not_counted(changes, reason):
    document = run(**changes)
    if changes.get("unpriced"):
        del document["request"]
    verdict = only(judged(document), "iteration_time")
    assert reason in verdict.reason
    assert (verdict.predicted, verdict.error) == (None, None)
    assert groups([verdict], "iteration_time") == {}


def test_a_run_of_which_nothing_was_measured_says_so():
    (verdict,) = judged(run(measured={"iteration_seconds": None}))
    assert verdict.reason == "nothing measured"


def test_the_error_is_predicted_over_measured_minus_one_and_signed():
    predicted = only(judged(RUN), "iteration_time").predicted
    for factor in (0.5, 1.0, 2.0):
        verdict = only(judged(run(measured={"iteration_seconds": predicted * factor})), "iteration_time")
        assert verdict.error == pytest.approx(1 / factor - 1, abs=1e-12)


def test_a_time_is_within_the_interval_from_its_low_to_its_high_end():
    found = case(RUN)
    priced = price_strategy(found.strategy, found.scenario, found.assignment)
    mfu = mfu_of(found.scenario, priced.iteration)
    likely = interval(found.scenario, found.strategy, priced.iteration, breakdown=priced.breakdown, mfu=mfu)
    inside = 1e-6
    for measured, within in (
        (likely.high * (1 - inside), True),
        (likely.high * (1 + inside), False),
        (likely.low * (1 + inside), True),
        (likely.low * (1 - inside), False),
    ):
        verdict = only(judged(run(measured={"iteration_seconds": measured})), "iteration_time")
        assert verdict.within is within
        shown = verdict.document()
        assert shown["interval"] == {"low": likely.low, "high": likely.high}
        assert shown["within_interval"] is within


@pytest.mark.parametrize("oom", [False, True])
@pytest.mark.parametrize(("layers", "fits"), [(24, True), (2400, False)])
def test_a_run_that_ran_or_did_not_is_compared_with_the_fit(oom, layers, fits):
    held = {"layers_per_stage": [layers // 2] * 2}
    row = run(measured={"iteration_seconds": None, "out_of_memory": oom}, model={"num_layers": layers}, request=held)
    verdict = only(judged(row), "fits")
    assert verdict.measured is (not oom)
    assert verdict.predicted is fits


def test_groups_count_alike_whatever_their_size():
    rows = [run(group="many", measured={"iteration_seconds": 1.0})] * 9 + [run(group="one")]
    verdicts = [verdict for row in rows for verdict in judged(row)]
    by_group = groups(verdicts, "iteration_time")
    assert {name: g["n"] for name, g in by_group.items()} == {"many": 9, "one": 1}
    mean = np.mean([g["median_abs_error"] for g in by_group.values()])
    assert summary(by_group)["median_abs_error"] == pytest.approx(mean)


def test_incomplete_and_suspect_runs_are_shown_and_not_scored(tmp_path):
    for changes in ({"complete": False}, {"suspect": True}):
        verdict = only(judged(run(**changes)), "iteration_time")
        assert verdict.predicted is not None
        assert not verdict.scored
        assert groups([verdict], "iteration_time") == {}
    done = asked(tmp_path / "mine.jsonl", [run(complete=False)])
    assert "Priced but not scored, of runs marked incomplete or suspect: " in done.stdout


def test_what_was_assumed_stands_beside_the_figure_that_it_is_about():
    assumed = {"request.cluster": "network guessed", "measured.peak_memory": "read off a plot"}
    memory = {"bytes": 4e10, "kind": "device"}
    verdicts = judged(run(assumed=assumed, derived_from="mfu 0.4", measured={"peak_memory": memory}))
    assert only(verdicts, "iteration_time").notes == ("network guessed", "time derived from mfu 0.4")
    assert only(verdicts, "memory").notes == ("network guessed", "read off a plot")
    assert only(verdicts, "fits").notes == ("network guessed",)


def test_memory_is_compared_with_the_quantity_and_the_stage_that_was_measured():
    def predicted(**peak):
        document = run(pins={"pp": 2, "vpp": 1, "schedule": "1f1b"}, measured={"peak_memory": {"bytes": 4e10, **peak}})
        return only(judged(document), "memory").predicted

    assert predicted(kind="device") > predicted(kind="reserved") > predicted(kind="allocated")
    stages = [predicted(stage=stage) for stage in (0, 1)]
    assert stages[0] != stages[1]
    assert predicted() == max(stages)


def test_what_a_run_held_when_it_failed_is_told_but_not_scored():
    row = run(measured={"peak_memory": {"bytes": 4e10}, "out_of_memory": True})
    scored = {verdict.metric: verdict.scored for verdict in judged(row)}
    assert scored == {"iteration_time": True, "memory": False, "fits": True}


def test_the_report_on_a_file_of_one_s_own(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps(run(id=str(n))) for n in range(3)))
    document = json.loads(validate([str(path)], form="json"))
    assert document["summary"]["n"] == 3
    assert {row["id"] for row in document["rows"]} == {"0", "1", "2"}
    assert "made-up" in validate([str(path)])


def asked(path, rows, *options):
    path.write_text("\n".join(map(json.dumps, rows)))
    return CliRunner().invoke(main, ["validate", str(path), *options])


def test_a_file_of_which_nothing_can_be_priced_is_reported_and_refused(tmp_path):
    unknown = [run(id=str(n), request={"cluster": "abacus"}) for n in range(2)]
    for form in ("table", "json"):
        done = asked(tmp_path / "mine.jsonl", unknown, "--format", form)
        assert done.exit_code == 2
        assert "abacus" in done.stdout
        assert "mine.jsonl: no measured figure could be priced; 4 of 4: " in done.stderr
        assert done.stderr.count("\n") == 1
    assert asked(tmp_path / "mine.jsonl", [*unknown, run()]).exit_code == 0


def test_reasons_that_a_table_has_no_room_for_are_counted(tmp_path):
    unknown = [run(id=str(n), request={"cluster": f"abacus-{n}"}) for n in range(23)]
    shown = asked(tmp_path / "mine.jsonl", unknown).stdout.partition("Not priced:")[2].splitlines()
    assert sum("abacus" in line for line in shown) == 20
    assert shown[-1] == "     6  for 3 further reasons, listed by --format json"
    told = json.loads(asked(tmp_path / "mine.jsonl", unknown, "--format", "json").stdout)["rows"]
    assert len({row["reason"] for row in told}) == 23


def test_the_cache_is_fitted_on_devices_and_needs_enough_of_them(tmp_path):
    found = case(RUN)
    peak = price_strategy(found.strategy, found.scenario, found.assignment).footprint
    seen = (
        1.25 * float(np.max(peak.allocated)) + found.scenario.stack.allocator.reserved + float(np.max(peak.reclaimable))
    )
    path = tmp_path / "runs.jsonl"
    rows = [run(id=str(n), measured={"peak_memory": {"bytes": seen, "kind": "device"}}) for n in range(10)]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert caches(held([path])) == {"megatron-core": (pytest.approx(0.25), 10)}
    assert caches(held([path]), without="made-up") == {}
    path.write_text("\n".join(map(json.dumps, rows[:9])))
    assert caches(held([path])) == {}


def test_errors_of_shipped_runs_stand_beside_those_without_their_publisher():
    found = unseen_times()
    assert found["all"]["n"] == len(table_of_runs().runs)
    assert found["all"]["in_sample"] < found["all"]["unseen"]
    assert all(0.0 <= one["inside"] <= 1.0 < 100 * one["width"] for one in found.values())
    assert "dense, 16 bit, Megatron" in written({"runs.jsonl.gz": []})
    assert "left out" not in written({"mine.jsonl": []})


def test_memory_of_shipped_runs_is_judged_without_their_publisher():
    found = {"unseen": {}, "unseen_memory": unseen_memory(), "unseen_fits": unseen_fits()}
    whole = found["unseen_memory"]["all"]
    assert whole["publishers"] > 30
    assert whole["unseen"] > 0.97 * whole["in_sample"]
    assert 0.8 < whole["inside"] < 0.95
    assert all(one["ran"] > 0.97 for one in found["unseen_fits"].values())
    lines = list(unseen_lines(found))
    assert sum(line.startswith(("to the edge", "80% sure")) for line in lines) == 2
    assert max(map(len, lines)) <= 80
    assert any("ran, refused: of those that ran" in line for line in lines)


def test_runs_are_read_from_a_pipe():
    rows = "\n".join(json.dumps(row) for row in (run(id="a"), run(id="b")))
    done = CliRunner().invoke(main, ["validate", "-", "--format", "json"], input=rows)
    assert {row["id"] for row in json.loads(done.stdout)["rows"]} == {"a", "b"}
    assert "-: no runs in it" in CliRunner().invoke(main, ["validate", "-"], input="").stderr


@pytest.mark.parametrize(
    "pins",
    [
        {"dp": 2, "ep": 16, "etp": 8, "cp": 3, "zero_stage": 1},
        {"dp": 2, "ep": 64, "cp": 3, "zero_stage": 2, "offload": "optimizer"},
        {"tp": 1, "dp": 2, "vpp": 2, "zero_stage": 2, "recompute": "partial"},
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_run_that_contradicts_itself_has_a_finite_price(pins):
    asked = {"model": "deepseek-v3", "cluster": "dgx-h100", "gpus": 16, "global_batch_size": 64, "pins": pins}
    verdict = only(judged({**RUN, "request": asked}), "iteration_time")
    assert verdict.broken
    assert 0.0 < verdict.predicted < float("inf")
