"""Study files: what they mean, and that bad ones are refused in one line before any work."""

import json

import pytest
from click.testing import CliRunner

from planner import BadFile, BadRequest
from planner.cli import main
from planner.studies.study import baseline_of, in_order, points_of
from planner.studies.study_file import read_study, study_of
from tests.planner.sweep_studies import SMALL, TOML, study, written

BASE = {"model": "22b", "gpus": 8}


def axes(asked):
    return [dict(point.axes) for point in in_order(asked)]


def test_lists_are_crossed_with_the_last_axis_fastest():
    asked = study_of({"models": ["22b", "175b"], "gpus": [64, 128]})
    assert [tuple(one.values()) for one in axes(asked)] == [("22b", 64), ("22b", 128), ("175b", 64), ("175b", 128)]


def test_ranges_step_multiply_and_keep_their_unit():
    asked = study_of({"model": "22b", "gpus": {"from": 8, "to": 32, "step": 8}})
    assert asked.axes[0].values == (8, 16, 24, 32)
    asked = study_of({"model": "22b", "gpus": {"from": 8, "to": 64, "times": 2}})
    assert asked.axes[0].values == (8, 16, 32, 64)
    fabric = {"fabric": {"bandwidth": {"from": "25 GB/s", "to": "100 GB/s", "times": 2}}}
    assert study_of(BASE | {"cluster": fabric}).axes[0].values == ("25 GB/s", "50 GB/s", "100 GB/s")


def test_zipped_axes_go_in_step():
    asked = study_of({"model": "22b", "gpus": [8, 16], "global_batch": [32, 64], "zip": [["gpus", "global_batch"]]})
    assert axes(asked) == [{"gpus": 8, "global_batch_size": 32}, {"gpus": 16, "global_batch_size": 64}]


def test_scenarios_are_one_more_axis_and_set_what_they_name():
    scenarios = {"today": {}, "cheap": {"precision": "fp8", "cluster": {"price": "0.5x"}}}
    asked = study_of(BASE | {"precision": "bf16", "scenarios": scenarios})
    today, cheap = in_order(asked)
    assert (today.axes, today.fields["precision"]) == ({"scenario": "today"}, "bf16")
    assert (cheap.fields["precision"], cheap.fields["cluster.price"]) == ("fp8", "0.5x")


def test_filters_keep_what_they_say():
    asked = study_of({"models": ["22b", "175b"], "gpus": [8, 64], "where": ["model != '175b' or gpus >= 64"]})
    assert [tuple(one.values()) for one in axes(asked)] == [("22b", 8), ("22b", 64), ("175b", 64)]
    fabric = {"fabric": {"bandwidth": ["25 GB/s", "400 Gb/s"]}}
    asked = study_of(BASE | {"cluster": fabric, "where": "cluster.fabric.bandwidth > '30 GB/s' and gpus * 2 in [16]"})
    assert axes(asked) == [{"cluster.fabric.bandwidth": "400 Gb/s"}]


def test_the_baseline_of_a_point_has_the_values_that_the_study_says():
    asked = study(baseline={"cluster": {"price": "2 $/h"}})
    for point in points_of(asked):
        base = baseline_of(asked, point)
        assert base.axes == dict(point.axes) | {"cluster.price": "2 $/h"}


def test_points_are_worked_on_in_another_order_but_are_the_same():
    asked = study_of(
        {"model": "22b", "cluster": {"price": ["1 $/h", "2 $/h"]}, "gpus": [8, 16], "seq_len": [1024, 2048]}
    )
    worked = list(points_of(asked))
    assert sorted(point.index for point in worked) == list(range(8))
    assert [point.lattice for point in worked] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sorted(map(str, worked)) == sorted(map(str, in_order(asked)))


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_shards_are_the_whole_in_parts(parts):
    asked = study_of({"model": "22b", "gpus": {"from": 8, "to": 800, "step": 8}, "seq_len": [1024, 2048]})
    found = [point.index for part in range(parts) for point in points_of(asked, shard=(part + 1, parts))]
    assert sorted(found) == list(range(200))


def test_neighbours_whose_machines_alone_differ_are_in_one_shard():
    asked = study_of(BASE | {"gpus": [8, 16, 24], "cluster": {"price": [f"{dollars} $/h" for dollars in range(1, 9)]}})
    parts = [{point.lattice for point in points_of(asked, shard=(part, 2))} for part in (1, 2)]
    assert parts == [{0, 2}, {1}]


@pytest.mark.parametrize("suffix", ["toml", "json", "yaml"])
def test_a_study_is_read_from_every_kind_of_file(tmp_path, suffix):
    texts = {"toml": TOML, "json": json.dumps(SMALL), "yaml": json.dumps(SMALL)}
    path = written(tmp_path, texts[suffix], f"one.{suffix}")
    assert axes(read_study(path)) == axes(study())
    assert read_study(path).name == "one"


def test_pins_are_axes_too_and_several_values_at_once_are_text():
    asked = study_of(BASE | {"tp": [1, "2,4"], "pins": {"pp": "..2"}})
    assert [point.fields["pins.tp"] for point in in_order(asked)] == [1, "2,4"]
    assert {point.fields["pins.pp"] for point in in_order(asked)} == {"..2"}


BAD = {
    "no model": ({"gpus": 8}, "model is missing"),
    "a field that is not": (BASE | {"precsion": "bf16"}, "did you mean precision"),
    "half a token": (BASE | {"tokens": "1.5"}, "tokens: expected a whole number such as 300B, got '1.5'"),
    "a pin that is not": (BASE | {"pins": {"tpp": 1}}, "did you mean"),
    "an empty axis": ({"model": "22b", "gpus": []}, "gpus: the axis is empty"),
    "a value twice": ({"model": "22b", "gpus": [8, 8]}, "gpus: 8 is given twice"),
    "a range backwards": ({"model": "22b", "gpus": {"from": 64, "to": 8, "step": 8}}, "the smaller first"),
    "a step of nothing": ({"model": "22b", "gpus": {"from": 8, "to": 64, "step": 0}}, "never gets from 8 to 64"),
    "a factor of one": ({"model": "22b", "gpus": {"from": 8, "to": 64, "times": 1}}, "more than 1"),
    "a range without end": ({"model": "22b", "gpus": {"from": 8, "step": 8}}, "from, to and one of"),
    "a range of both": ({"model": "22b", "gpus": {"from": 8, "to": 9, "step": 1, "times": 2}}, "one of step and times"),
    "an endless range": ({"model": "22b", "gpus": {"from": 0, "to": 1e12, "step": 1}}, "at most 100,000"),
    "two units": (
        BASE | {"cluster": {"fabric": {"bandwidth": {"from": "1 GB/s", "to": "8 Gb/s", "times": 2}}}},
        "use one unit",
    ),
    "a list among bandwidths": (
        BASE | {"cluster": {"fabric": {"bandwidth": ["1x", []]}}},
        "cluster.fabric.bandwidth: expected one value for each point, got the list []",
    ),
    "a billion points": (
        {"model": "22b", "gpus": {"from": 8, "to": 8000, "step": 8}, "seq_len": {"from": 1, "to": 1000, "step": 1}}
        | {"global_batch": {"from": 1, "to": 1000, "step": 1}},
        "1000 x 1000 x 1000 = 1,000,000,000 points, at most 2,000,000",
    ),
    "an unknown model": ({"models": ["22b", "23b"], "gpus": 8}, "unknown model '23b'"),
    "an unknown cluster": (BASE | {"clusters": ["dgx-h101"]}, "did you mean dgx-h100"),
    "an unknown stack": (BASE | {"stack": ["megatron-cor"]}, "megatron-core"),
    "no GPU": ({"model": "22b", "gpus": [0]}, "gpus"),
    "half a GPU": ({"model": "22b", "gpus": [8.5]}, "gpus"),
    "GPUs in words": ({"model": "22b", "gpus": ["sixteen"]}, "bad.json: gpus: expected a whole number"),
    "a pin in words": (BASE | {"tp": ["eight"]}, "tp"),
    "an impossible precision": (BASE | {"precision": ["bf17"]}, "bf16"),
    "a path that leads nowhere": (BASE | {"cluster": {"fabrc": {"bandwidth": "1 GB/s"}}}, "did you mean fabric"),
    "a field of a link that is not": (BASE | {"cluster": {"fabric": {"bandwith": "1 GB/s"}}}, "did you mean bandwidth"),
    "a bare bandwidth": (BASE | {"cluster": {"fabric": {"bandwidth": 100}}}, "no unit"),
    "too much bandwidth": (BASE | {"cluster": {"fabric": {"bandwidth": "1 PB/s"}}}, "between"),
    "an unknown peak": (BASE | {"cluster": {"peak": {"fp7": "2x"}}}, "no peak 'fp7'"),
    "a mode that is not": (BASE | {"mode": "guess"}, "search or predict"),
    "a zip of one": (BASE | {"zip": [["gpus"]]}, "zip"),
    "a zip of nothing": (BASE | {"zip": [["gpus", "tp"]]}, "tp is not an axis"),
    "unequal steps": (
        {"model": "22b", "gpus": [8, 16], "tp": [1], "zip": [["gpus", "tp"]]},
        "the same number of values",
    ),
    "a number for a filter": (BASE | {"where": -1}, "expected conditions such as"),
    "numbers for filters": (BASE | {"where": [32]}, "expected conditions such as"),
    "a filter in words": (BASE | {"where": ["many gpus"]}, "not an expression"),
    "a filter that calls": (BASE | {"where": ["open('x')"]}, "not understood"),
    "a filter on what is not set": (BASE | {"where": ["tp > 1"]}, "does not set tp"),
    "a filter on a misspelt field": (BASE | {"where": ["gpu > 1 and gpsu < 3"]}, "did you mean gpus"),
    "a filter without order": (BASE | {"where": ["model > 3"]}, "no order"),
    "filters that leave nothing": (BASE | {"where": ["gpus > 8"]}, "leave no point"),
    "a baseline beside the axis": (
        {"model": "22b", "gpus": [8, 16], "baseline": {"gpus": 24}},
        "not a value of that axis",
    ),
    "a baseline of no axis": (BASE | {"baseline": {"precision": "bf16"}}, "not an axis of the study"),
    "a scenario of lists": (BASE | {"scenarios": {"a": {"gpus": [8]}}}, "one value in a scenario"),
    "a scenario against an axis": (
        {"model": "22b", "gpus": [8, 16], "scenarios": {"a": {"gpus": 8}}},
        "axis of the study",
    ),
    "a scenario of bad values": (BASE | {"scenarios": {"a": {"precision": "x"}}}, "scenarios.a"),
    "several strategies to predict": (BASE | {"mode": "predict", "tp": "1,2"}, "one strategy at a time"),
    "layers in a search": (BASE | {"layers_per_stage": "24,24"}, "a search chooses the layers"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_study_is_refused_in_one_line_before_any_work(name, tmp_path):
    document, reason = BAD[name]
    path = written(tmp_path, json.dumps(document), "bad.json")
    done = CliRunner().invoke(main, ["sweep", str(path), "-o", str(tmp_path / "runs.sqlite"), "--workers", "1"])
    assert done.exit_code == 2
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "runs.sqlite").exists()


def test_a_study_that_is_no_file_or_no_table_is_refused(tmp_path):
    for text, name in (("= 3", "x.toml"), ("[1]", "x.json"), ("- 1", "x.yaml"), ("{", "y.yaml")):
        done = CliRunner().invoke(main, ["sweep", str(written(tmp_path, text, name))])
        assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1), done.stderr


def test_a_relative_value_needs_something_to_be_relative_to():
    with pytest.raises(BadRequest, match="a value that the catalogue does not have"):
        study_of(BASE | {"clusters": ["dgx-h20"], "cluster": {"price": "2x"}})


@pytest.mark.parametrize(
    "text",
    [
        'cluster = "dgx-h100"\ncluster.price = ["1x", "2x"]\n',
        'cluster.price = ["1x", "2x"]\ncluster = "dgx-h100"  # ours\n',
        'cluster = "dgx-h100"\n[cluster]\nprice = ["1x", "2x"]\n',
    ],
    ids=["name first", "field first", "a table"],
)
def test_a_machine_that_is_named_and_changed_under_one_name_says_how_to_write_it(text, tmp_path):
    path = written(tmp_path, f'model = "22b"\ngpus = 8\n{text}', "study.toml")
    with pytest.raises(BadFile, match=r'together with its fields write its name as clusters = "dgx-h100"$'):
        read_study(path)
    mended = text.replace("cluster = ", "clusters = ")
    assert read_study(written(tmp_path, f'model = "22b"\ngpus = 8\n{mended}', "study.toml")).product == 2


def test_another_name_that_is_said_twice_is_told_so(tmp_path):
    with pytest.raises(BadFile, match=r"Cannot overwrite a value .*; the name has a value already"):
        read_study(written(tmp_path, 'model = "22b"\ngpus = 8\ngpus = 16\n', "study.toml"))
