"""Answers that are no plan and no study as pages: read back from JSON, in words, with nothing lost."""

import json

import pytest
from click.testing import CliRunner

from planner.cli import main
from planner.errors import BadRequest
from planner.render.page import answer_of, page_of, shown_answer
from tests.planner.page_samples import EVIL, data_of
from tests.planner.render.notebook.conftest import ASK, KNOWN

KINDS = ["why_not", "compare", "size", "what_if", "robust", "allocate", "plan_sparse", "calibrate", "examine_run"]


def asked(name):
    if name not in KNOWN:
        KNOWN[name] = ASK[name]()
    return KNOWN[name]


def written(name):
    return json.loads(asked(name).to_json())


def rows_of(shown, name):
    found = next(one for one in shown.tables if one["name"] == name)
    return [dict(zip([head for head, _ in found["columns"]], row, strict=True)) for row in found["rows"]]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_answer_is_a_page(kind):
    shown = shown_answer(answer_of(written(kind), "x.json"))
    assert shown.title
    assert shown.headline
    assert ".to_frame" not in shown.remark
    assert shown.tables or shown.figures
    for table in shown.tables:
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
        assert not any("{" in str(cell) for row in table["rows"] for cell in row)
    assert data_of(page_of(shown))["tables"] == json.loads(json.dumps(shown.tables))


def test_a_comparison_has_its_terms_and_steps_in_seconds():
    shown = shown_answer(answer_of(written("compare"), "x.json"))
    terms = next(one for one in shown.tables if one["name"] == "terms")
    assert terms["columns"] == [["name", "text"], ["A", "seconds"], ["B", "seconds"]]
    assert shown.figures[0]["series"].keys() == {asked("compare").a.name, asked("compare").b.name}


def test_a_queue_says_what_each_job_gets_and_its_strategy_in_words():
    shown = shown_answer(answer_of(written("allocate"), "x.json"))
    assert shown.headline == "a gets 8 GPUs of h100-sxm"
    (job,) = rows_of(shown, "jobs")
    assert (job["name"], job["GPUs"]) == ("a", 8)
    assert "micro-batch" in job["strategy"]
    assert "tp" not in job
    assert any(line.startswith("assumed: ") for line in shown.assumptions)


def test_a_validation_has_its_errors_by_group_the_largest_first():
    rows = [
        {
            "id": f"r{n}",
            "group": "g",
            "metric": "iteration_time",
            "measured": 2.0,
            "predicted": 2.0 * (1 + e),
            "error": e,
        }
        for n, e in enumerate((0.1, -0.3, 0.2))
    ]
    rows.append({"id": "f", "group": "g", "metric": "fits", "measured": True, "predicted": False, "error": None})
    shown = shown_answer(answer_of({"rows": rows, "groups": {}, "summary": {}}, "mine.json"))
    assert shown.runs["runs"][1] == [2.0, 0.7, 0]
    assert rows_of(shown, "errors by group")[0] == {
        "group": "g", "metric": "iteration time", "figures": 3, "median": 0.2, "worst": 0.3, "bias": 0.0
    } | {"bias": pytest.approx(0.0)}  # fmt: skip
    assert [row["run"] for row in rows_of(shown, "rows")] == ["r1", "r2", "r0", "f"]
    assert [row["measured"] for row in rows_of(shown, "rows")] == ["2 s", "2 s", "2 s", "yes"]


def test_names_in_an_answer_cannot_become_markup():
    document = written("compare")
    document["a"]["name"] = EVIL
    page = page_of(shown_answer(answer_of(document, "x.json")))
    assert "<img" not in page
    assert page.count("</script>") == 2


def test_an_answer_that_was_changed_is_refused_in_one_line():
    with pytest.raises(BadRequest, match=r"^x\.json: a: "):
        answer_of(written("compare") | {"a": 7}, "x.json")
    assert answer_of({"schema": "else/1"}, "x.json") is None


def test_the_command_draws_them_from_a_file_and_from_stdin(tmp_path):
    text = json.dumps(written("why_not"))
    (tmp_path / "w.json").write_text(text)
    for source, given in ((str(tmp_path / "w.json"), None), ("-", text)):
        done = CliRunner().invoke(main, ["report", source, "-q"], input=given)
        assert done.exit_code == 0
        assert "<title>Why not tp 2</title>" in done.output
