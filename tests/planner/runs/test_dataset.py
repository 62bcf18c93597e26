"""The shipped runs are one file, every run with its source, and constants rest on those that say so."""

import gzip
import json
from functools import cache

import pytest

from planner.runs.dataset import joined, packed
from planner.runs.files import json_lines
from planner.runs.fit import samples
from planner.runs.fit_memory import held, tensor_verdicts
from planner.runs.judge import shipped
from planner.runs.report import paths_of
from tests.planner.measured_run import run, validate

(FILE,) = shipped()


@cache
def rows():
    return [document for _, document in json_lines(FILE)]


def test_every_run_names_its_source_and_what_it_measured():
    assert len({row["id"] for row in rows()}) == len(rows())
    assert all(row["source"]["title"] and (row.get("measured") or row.get("unpriced")) for row in rows())
    assert len({row["group"] for row in rows()}) >= 190


@pytest.mark.parametrize(("fit", "constants"), [(samples, "speed"), (held, "memory"), (tensor_verdicts, "memory")])
def test_constants_are_fitted_to_runs_that_say_so(fit, constants, tmp_path):
    named = {"iteration_seconds": 1.0, "peak_memory": {"bytes": 40e9, "kind": "device"}}
    lines = [json.dumps(run(id=str(n), constants=[constants], pins={"tp": 2}, measured=named)) for n in range(60)]
    file = tmp_path / "runs.jsonl"
    file.write_text("\n".join(lines))
    assert fit([file])
    file.write_text("\n".join(lines).replace(f'["{constants}"]', "[]"))
    assert not fit([file])


def test_validate_tells_the_means_of_every_file_apart(tmp_path):
    for name, seconds in (("one", 1.0), ("two", 2.0)):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(run(measured={"iteration_seconds": seconds})))
    files = [str(tmp_path / f"{name}.jsonl") for name in ("one", "two")]
    told = json.loads(validate(files, form="json"))["files"]
    assert told["one.jsonl"]["iteration_time"]["bias"] > told["two.jsonl"]["iteration_time"]["bias"]
    assert "iteration time, two.jsonl" in validate(files)
    assert "iteration time, two.jsonl" not in validate(files[1:])


def test_a_file_is_taken_once_and_none_means_the_shipped_runs():
    assert [str(path) for path in paths_of(["a.jsonl", "a.jsonl"])] == ["a.jsonl"]
    assert paths_of([]) == [FILE]


def test_packing_sorts_runs_and_gives_the_same_bytes_whatever_the_order(tmp_path):
    files = [tmp_path / f"{name}.jsonl" for name in ("a", "b")]
    files[0].write_text(json.dumps(run(id="2", group="b")) + "\n" + json.dumps(run(id="1", group="b")))
    files[1].write_text(json.dumps(run(id="3", group="a")))
    both = joined(files)
    assert [row["id"] for row in both] == ["3", "1", "2"]
    assert packed(both) == packed(joined(files[::-1]))
    assert gzip.decompress(packed(both)).count(b"\n") == 3
    files[1].write_text(json.dumps(run(id="1", group="b", source={"title": "another"})))
    with pytest.raises(ValueError, match="there already"):
        joined(files)


def test_the_shipped_file_is_what_packing_makes():
    assert gzip.decompress(FILE.read_bytes()) == gzip.decompress(packed(rows()))
    assert [(row["group"], row["id"]) for row in rows()] == sorted((r["group"], r["id"]) for r in rows())


def test_fitting_passes_runs_over_that_say_why_nothing_may_be_fitted_to_them(tmp_path):
    reasons = ("the machine was not in order", "", "")
    lines = [json.dumps(run(id=str(n), not_fitted=why)) for n, why in enumerate(reasons)]
    file = tmp_path / "runs.jsonl"
    file.write_text("\n".join(lines))
    assert len(samples([file])) == 2
