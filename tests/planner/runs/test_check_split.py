"""The check runs are of sources that nothing was learnt from, and nothing is learnt from them."""

import gzip
import json
from collections import Counter
from functools import cache

import pytest

from planner.errors import BadFile
from planner.runs import residuals
from planner.runs.dataset import joined, packed
from planner.runs.files import CHECK, json_lines
from planner.runs.fit import samples
from planner.runs.fit_memory import held, tensor_verdicts
from planner.runs.judge import HOME, learnt_from, shipped
from planner.runs.report import paths_of, validate
from tests.planner.measured_run import run

FILE = HOME / f"{CHECK}.jsonl.gz"


@cache
def rows(path):
    return [document for _, document in json_lines(path)]


def test_the_check_runs_are_shipped_and_come_last():
    assert shipped() == [*learnt_from(), FILE]
    assert {path.name for path in learnt_from()} == {"fit.jsonl.gz", "dev.jsonl.gz"}


def test_no_source_of_the_check_runs_is_one_that_was_learnt_from():
    known = [row for path in learnt_from() for row in rows(path)]
    for field in ("group", "id"):
        assert {row[field] for row in rows(FILE)}.isdisjoint(row[field] for row in known), field
    titles = {row["source"]["title"] for row in known}
    assert {row["source"]["title"] for row in rows(FILE)}.isdisjoint(titles)
    assert {row.get("split") for row in known} == {"fit", "dev"}
    assert {row["split"] for row in rows(FILE)} == {CHECK}


def test_every_check_run_names_its_source_and_what_it_measured():
    assert Counter(row["id"] for row in rows(FILE)).most_common(1)[0][1] == 1
    assert all(row["source"]["title"] and (row.get("measured") or row.get("unpriced")) for row in rows(FILE))
    assert len({row["group"] for row in rows(FILE)}) >= 15


@pytest.mark.parametrize("fit", [samples, held, tensor_verdicts])
def test_fitting_passes_check_runs_over(fit, tmp_path):
    named = {"peak_memory": {"bytes": 40e9, "kind": "device"}}
    lines = [json.dumps(run(id=str(n), split=CHECK, measured=named)) for n in range(60)]
    file = tmp_path / "runs.jsonl"
    file.write_text("\n".join(lines))
    assert not fit([file])
    file.write_text("\n".join(lines).replace(f'"{CHECK}"', '"fit"'))
    assert fit([file]) or fit is tensor_verdicts


def test_the_curse_rests_on_runs_that_constants_are_fitted_to():
    priced = residuals.priced_runs({"zero-bubble", "kwai-atc24"})
    assert {one.split for one in priced} == {"fit", "dev", CHECK}
    assert residuals.curse(priced) == residuals.curse([one for one in priced if one.split == "fit"])


def test_validate_tells_the_means_of_every_file_apart(tmp_path):
    for name, seconds in (("one", 1.0), ("two", 2.0)):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(run(measured={"iteration_seconds": seconds})))
    files = [str(tmp_path / f"{name}.jsonl") for name in ("one", "two")]
    told = json.loads(validate(files, form="json"))["splits"]
    assert told["one.jsonl"]["iteration_time"]["bias"] > told["two.jsonl"]["iteration_time"]["bias"]
    assert "iteration time, two.jsonl" in validate(files)
    assert "iteration time, two.jsonl" not in validate(files[1:])


def test_a_split_is_taken_once_and_whatever_folder_has_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "check").mkdir()
    assert paths_of(["check", "check"]) == paths_of(["check"]) == [FILE]
    with pytest.raises(BadFile, match=r"chek: no such file, nor a split of the shipped runs \(.*check\)"):
        validate(["chek"])


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
    assert gzip.decompress(FILE.read_bytes()) == gzip.decompress(packed(rows(FILE)))
    assert [(row["group"], row["id"]) for row in rows(FILE)] == sorted((r["group"], r["id"]) for r in rows(FILE))


def test_fitting_passes_runs_over_that_say_why_nothing_may_be_fitted_to_them(tmp_path):
    reasons = ("the machine was not in order", "", "")
    lines = [json.dumps(run(id=str(n), split="fit", not_fitted=why)) for n, why in enumerate(reasons)]
    file = tmp_path / "runs.jsonl"
    file.write_text("\n".join(lines))
    assert len(samples([file])) == 2
