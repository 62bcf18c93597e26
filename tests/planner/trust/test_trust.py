"""Intervals cover what they promise, widen where nothing is comparable, and the tables they rest on are today's."""

import json
import re
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.names import OFFLOADS
from costmodels.stack.stack import stack as find_stack
from costmodels.strategy import strategies
from hardware.catalogue import accelerator, names
from planner import PlanRequest, plan, predict
from planner.answer.plan import Interval
from planner.request.resolve import resolve
from planner.runs import residuals
from planner.runs.least_squares import RATE, with_constants
from planner.trust.interval import COVERAGE, above_measured, outside, trust
from planner.trust.similarity import NAMES, SIZES, SWITCHES, distance, framework, traits
from planner.trust.table import TABLE, measured, source
from tests.each import each
from tests.planner.measured_run import validate

SMALL = ("korthikanti-2022", "fms-fsdp", "mlperf-train-3.0", "mlperf-train-4.1", "megatron-bridge-25.09", "alpa-v100")
"""Groups of a few runs each, priced again by a test: dense and with experts, on several machines and stacks."""


def asked(**changes):
    return resolve(PlanRequest(**({"model": "llama3-8b", "gpus": 64} | changes))).scenario


def row(**axes):
    return strategies(**({"tp": 2, "dp": 32, "num_microbatches": 4} | axes))


def away(mine, other, first=None, second=None):
    return float(distance(traits(mine, first or row()), traits(other, second or row()))[0, 0])


def test_a_run_is_at_no_distance_from_itself_and_distances_are_mutual():
    mine, other = asked(), asked(model="gpt3-175b", cluster="dgx-a100-80gb", stack="fsdp")
    assert away(mine, mine) == 0.0
    assert away(mine, other) == pytest.approx(away(other, mine))
    assert away(mine, other) > 2.0


def test_the_further_the_machine_the_larger_the_distance():
    mine = asked()
    far = [away(mine, asked(cluster=name)) for name in ("dgx-h100", "dgx-h200", "dgx-a100-80gb", "mi300x-8x")]
    assert far == sorted(far)
    assert len(set(far)) == len(far)
    assert far[-1] == pytest.approx(NAMES["accelerator"] + NAMES["architecture"] + NAMES["vendor"])


@pytest.mark.parametrize(
    ("changes", "adds"),
    [
        ({"precision": "fp8"}, NAMES["bits"]),
        ({"stack": "nemo"}, NAMES["stack"]),
        ({"stack": "torchtitan"}, NAMES["stack"] + NAMES["framework"]),
        ({"gpus": 128}, SIZES["gpus"]),
        ({"seq_length": 16384}, SIZES["seq_length"]),
    ],
)
def test_each_difference_adds_its_own(changes, adds):
    assert away(asked(), asked(**changes)) == pytest.approx(adds)


@pytest.mark.parametrize(
    ("axes", "adds"),
    [
        ({"tp": 4, "dp": 16}, SIZES["tp"]),
        ({"zero_stage": 3, "sharding_degree": 32}, SWITCHES["sharding"]),
        ({"offload": OFFLOADS.index("optimizer")}, SWITCHES["offload"]),
        ({"recompute": 2}, SWITCHES["recompute"]),
    ],
)
def test_each_choice_of_a_strategy_adds_its_own(axes, adds):
    assert away(asked(), asked(), row(), row(**axes)) == pytest.approx(adds)


def test_forks_of_one_code_are_one_family():
    assert framework("nemo-26.06") == framework("megatron-core") == framework("zero-bubble") == "megatron"
    assert framework("megatron-deepspeed") == framework("deepspeed")
    assert framework("internevo") == "internevo"


def test_a_plan_names_measured_runs_and_is_inside_the_region_where_they_are_near():
    near = trust(asked(model="gpt3-175b", gpus=2048), row(tp=4, pp=8, dp=64, vpp=12, schedule=3))
    assert near.inside
    assert near.nearest[0].accelerator == "h100-sxm"
    assert len({run.group for run in near.nearest}) == len(near.nearest) == 3
    assert [run.distance for run in near.nearest] == sorted(run.distance for run in near.nearest)
    assert outside(near) == ()


def test_a_degree_more_than_a_doubling_beyond_what_was_measured_is_outside_however_near_the_rest():
    """Of models with experts at most 64 expert ranks were measured; 128 are the next step, 256 are two."""
    scenario = asked(model="deepseek-v3", gpus=2048)
    step, corner = (trust(scenario, row(tp=2, pp=2, dp=512, ep=ep, vpp=31, schedule=3)) for ep in (128, 256))
    assert corner.nearest[0].distance < corner.region
    assert (step.inside, step.beyond) == (True, ())
    assert (corner.inside, corner.beyond) == (False, ("EP 256 (measured: at most 64)",))
    (said,) = outside(corner)
    assert "outside the validated region: EP 256 (measured: at most 64)" in said


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seq_length": 16384}, ""),
        ({"seq_length": 131072}, "sequences of 128 Ki tokens (measured with such software: at most 16 Ki)"),
        ({"seq_length": 131072, "stack": "torchtitan"}, ""),
        ({"seq_length": 32768, "model": "mixtral-8x7b", "stack": "torchtitan"}, "sequences of 32 Ki tokens (measured"),
    ],
)
def test_sequences_more_than_a_doubling_beyond_what_was_measured_under_such_software_are_outside(changes, told):
    found = trust(asked(**changes), row())
    assert found.nearest[0].distance < found.region
    assert (found.inside, bool(found.beyond)) == (not told, bool(told))
    assert told in "".join(outside(found))


def test_a_kind_of_layers_that_nobody_measured_is_outside_however_near_the_rest(monkeypatch):
    others = measured().take(np.flatnonzero(measured().traits.names["kind"] != "hybrid"))
    monkeypatch.setattr("planner.trust.interval.measured", lambda: others)
    found = trust(asked(model="nemotron-h-8b"), row())
    assert found.nearest[0].distance < found.region
    assert (found.inside, found.beyond) == (False, ("hybrid layers (no measured run)",))
    (said,) = outside(found)
    assert said == "outside the validated region: hybrid layers (no measured run)"


@each(
    ("cluster", "stack", "told"),
    [
        ("kuae-s4000", "megatron-core", "mtt-s4000 (nearest measured: gh200)"),
        ("gaudi3-8x", "megatron-core", "gaudi3 (nearest measured: gh200)"),
        (
            "aurora",
            "megatron-core",
            "max-1550 with megatron-core (nearest measured: max-1550-stack with",
        ),
        ("dgx-h20", "megatron-core", "h20 (nearest measured: "),
        ("mi325x-8x", "megatron-core", ""),
        ("mi325x-8x", "torchtitan", ""),
        ("dgx-h800", "megatron-core", ""),
        ("dgx-h100", "deepspeed", ""),
        ("tpu-v6e-pod", "maxtext", ""),
    ],
)
def test_a_device_of_a_kind_that_was_never_measured_so_is_outside_and_the_nearest_is_named(cluster, stack, told):
    found = trust(asked(gpus=4, cluster=cluster, stack=stack, seq_length=4096), row(tp=1, dp=4))
    assert (found.inside, bool(found.beyond)) == (not told, bool(told))
    assert told in "".join(found.beyond)
    assert told in "".join(outside(found))


def test_what_an_architecture_names_behind_a_plus_is_the_processor_beside_a_device_that_is_known_without():
    known = {accelerator(name).architecture for name in names("accelerator")}
    joined = [one.split(" + ") for one in known if "+" in one]
    assert {processor for _, processor in joined} == {"Grace"}
    assert {device for device, _ in joined} <= known


def test_a_stack_of_ones_own_is_no_reason_against_a_device_that_was_measured():
    assert not trust(asked(stack=find_stack("megatron-core").changed({"name": "ours"})), row()).beyond


def test_a_plan_that_is_like_nothing_measured_says_so_and_in_what():
    scenario = asked(model="deepseek-v3", cluster="mi355x-8x", gpus=2048, precision="mxfp8", stack="paddle")
    far = trust(scenario, row(ep=256, dp=1024, zero_stage=3, sharding_degree=1024, offload=1))
    assert not far.inside
    (said,) = outside(far)
    assert "outside the validated region" in said
    assert far.differs
    assert far.differs[0] in said


def test_several_kinds_of_nodes_are_further_from_everything():
    scenario = asked()
    one, several = trust(scenario, row()), trust(scenario, row(), mixture=True)
    assert several.nearest[0].distance == pytest.approx(one.nearest[0].distance + 1.0)
    assert several.differs[0] == "several kinds of nodes"


def test_answers_carry_interval_and_trust_through_json():
    answer = plan(PlanRequest(model="llama3-8b", gpus=8, top=1))
    priced = predict(PlanRequest(model="llama3-8b", gpus=8, pins={"tp": 2}))
    for one in (answer, priced):
        again = type(one).model_validate_json(one.to_json())
        assert again.trust == one.trust
        assert isinstance(again.prediction.interval, Interval)
        assert again.prediction.interval.low < again.prediction.iteration_seconds < again.prediction.interval.high


def test_releases_of_a_source_are_one_source():
    assert source("megatron-bridge-26.04.01") == source("megatron-bridge-25.09") == "megatron-bridge"
    assert source("vtrain-multi") == source("vtrain-single")


def test_the_table_holds_what_the_model_predicts_today():
    """A few groups; ``scripts/refresh_measured.py --check`` compares all of them."""
    runs = residuals.priced_runs(SMALL)
    due = {(r.run.group, f"{r.measured:.4g}"): r.predicted / r.measured - 1.0 for r in residuals.thinned(runs)}
    shown = {(r.group, f"{r.seconds:.4g}"): r.error for r in measured().runs if r.group in SMALL}
    assert shown.keys() == due.keys()
    stale = [key for key, error in due.items() if abs(shown[key] - error) > 0.0021]
    assert not stale, "run python scripts/refresh_measured.py"


def test_a_run_is_judged_by_constants_that_its_source_was_not_fitted_with():
    mine = residuals.priced_runs({"korthikanti-2022"})[0]
    device = mine.case.scenario.group.accelerator
    slower = {(device.name, RATE.field): 0.5 * device.training_rate}
    as_priced = np.log(mine.measured / mine.predicted)
    assert residuals.miss(mine, {}) == pytest.approx(as_priced)
    assert residuals.miss(mine, {"somebody else": slower}) == pytest.approx(as_priced)
    assert residuals.miss(mine, {"korthikanti": slower}) < as_priced - 0.3
    once = with_constants(mine.case.scenario, slower)
    assert with_constants(once, slower) == once != mine.case.scenario


@given(
    scores=st.lists(st.floats(-3, 3), min_size=1, max_size=30),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=60, deadline=None)
def test_either_tail_has_half_of_what_an_interval_leaves_out(scores, seed):
    values = np.array(scores)
    weight = np.random.default_rng(seed).uniform(0.1, 1.0, len(values))
    low, high = residuals.tail_bounds(values, weight)
    half = (1.0 - COVERAGE) / 2.0
    assert weight[values < low].sum() / weight.sum() < half + 1e-9
    assert weight[values <= low].sum() / weight.sum() >= half - 1e-9
    assert weight[values > high].sum() / weight.sum() <= half + 1e-9
    assert weight[values >= high].sum() / weight.sum() > half - 1e-9


def test_every_source_weighs_the_same_in_the_quantiles():
    weight = residuals.weights(["a", "a", "a", "a", "b", "b"])
    assert weight == pytest.approx([1 / 8, 1 / 8, 1 / 8, 1 / 8, 1 / 4, 1 / 4])
    assert residuals.weights(np.array(["a-1.0", "b", "a-2.0"])) == pytest.approx([1 / 3] * 3)


def test_validate_tells_the_coverage_of_every_file(tmp_path):
    from planner.runs.files import json_lines
    from planner.runs.judge import judge, shipped
    from planner.runs.report import paths_of, written

    lines = [json.dumps(one) for path in shipped() for _, one in json_lines(path) if one["group"] in SMALL]
    for name in ("one", "two"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    files = [str(tmp_path / f"{name}.jsonl") for name in ("one", "two")]
    judged = judge(paths_of(files))
    told = json.loads(written(judged, form="json"))["interval_coverage"]
    assert set(told) == {"one.jsonl", "two.jsonl"}
    assert told["one.jsonl"] == told["two.jsonl"]
    mean = told["one.jsonl"]["mean"]
    assert mean == pytest.approx(fmean(told["one.jsonl"]["groups"].values()))
    table = written(judged, form="table")
    assert f"90% interval, two.jsonl: holds {mean:.1%}" in table
    assert "ran out though predicted to fit" in table


def test_no_file_is_lost_where_two_have_one_name_and_none_counts_twice(tmp_path):
    from planner.runs.files import json_lines
    from planner.runs.judge import shipped

    row = json.dumps(next(one for path in shipped() for _, one in json_lines(path) if one["group"] in SMALL))
    files = [tmp_path / folder / "runs.jsonl" for folder in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        file.write_text(row)
    asked = (files, [files[0]] * 2, files[:1])
    both, twice, once = (json.loads(validate(list(map(str, one)), form="json")) for one in asked)
    assert len(both["rows"]) == 2 * len(once["rows"]) == 2 * len(twice["rows"])
    assert set(both["interval_coverage"]) == set(map(str, files))


def test_the_picture_is_drawn_from_the_table(monkeypatch):
    root = TABLE.parents[2]
    monkeypatch.syspath_prepend(str(root / "scripts"))
    from predicted_plot import drawn

    picture = (root / "docs" / "images" / "predicted-measured.svg").read_text(encoding="utf-8")
    assert picture == drawn(), "run python scripts/refresh_readme.py"
    assert picture.count("h0") == picture.count("l2.6") == len(measured().runs)


def test_a_utilisation_above_all_that_was_measured_on_as_many_such_devices_is_told():
    found = resolve(PlanRequest(model="gpt3-175b", gpus=1024, cluster="dgx-a100-80gb"))
    row = strategies(tp=8, pp=8, dp=16, num_microbatches=96)
    (said,) = above_measured(found.scenario, row, 0.9)
    best = float(re.search(r"was measured: ([\d.]+)%", said)[1]) / 100
    assert 0.4 < best < 0.7
    assert above_measured(found.scenario, row, best - 0.01) == ()
    small = resolve(PlanRequest(model="gpt3-175b", gpus=8, cluster="dgx-a100-80gb"))
    assert above_measured(small.scenario, strategies(dp=8), best + 0.01) == ()
