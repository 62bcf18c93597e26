"""The page of a study or a plan: what it holds, that it is one file, and that names in it stay text."""

import json
import re
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner

from planner.cli import main
from planner.errors import BadRequest
from planner.render.page import page_of, shown_plan, shown_study
from planner.render.page.html import embedded
from planner.render.page.source import strategy_words
from planner.studies.result import Result
from tests.planner.page_samples import EVIL, data_of, results, small_plan
from tests.planner.sweep_studies import TOML, written


@pytest.fixture(scope="module")
def best():
    return small_plan()


class Elements(HTMLParser):
    """Names and attributes of every element that a parser sees."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def study_page():
    return page_of(shown_study(results(), EVIL, ("gpus", "cluster")))


def test_names_in_a_page_stay_text(study_page):
    tags = [tag for tag, _ in Elements(study_page).found]
    assert tags.count("script") == 2
    assert not {"img", "b"} & set(tags)
    assert data_of(study_page)["points"][3]["axes"]["cluster"] == EVIL


def test_data_cannot_end_its_element():
    assert not set("<>&") & set(embedded({"</script>": "<!-- & -->"}))
    assert json.loads(embedded({"a": EVIL})) == {"a": EVIL}


def test_a_page_asks_nobody_for_anything(study_page):
    for tag, attributes in Elements(study_page).found:
        assert not {"src", "srcset", "action"} & attributes.keys(), tag
        assert attributes.get("href", "data:,").startswith("data:")
    assert not re.search(r"@import|url\(http|fetch\(|XMLHttpRequest|innerHTML|eval\(", study_page)
    assert "default-src 'none'" in study_page


def test_an_infeasible_or_failed_point_has_no_figures_and_says_why(study_page):
    infeasible, failed = data_of(study_page)["points"][:2]
    assert (infeasible["seconds"], infeasible["note"]) == (None, "needs 99 GiB")
    assert (failed["status"], failed["gpus"], failed["note"]) == ("failed", 8, f"no such thing: {EVIL}")


def test_a_plan_shows_its_runners_up_memory_and_timeline(best):
    shown = data_of(page_of(shown_plan(best)))
    first, *others = shown["points"]
    assert first["seconds"] == best.prediction.iteration_seconds
    assert sum(first["terms"].values()) == pytest.approx(first["seconds"])
    assert [other["seconds"] for other in others] == [other.iteration_seconds for other in best.alternatives]
    for other in others:
        assert sum(other["terms"].values()) == pytest.approx(other["seconds"])
        assert other["days"] / first["days"] == pytest.approx(other["seconds"] / first["seconds"])
    for stage, record in zip(shown["plan"]["memory"], best.memory_bytes, strict=True):
        assert sum(stage["parts"].values()) == pytest.approx(record.total / 2**30, abs=0.01)
    events = shown["plan"]["timeline"]["events"]
    assert {event[0] for event in events} == {0, 1}
    assert max(start + length for _, _, start, length, _ in events) / 1e6 == pytest.approx(first["seconds"], rel=0.02)


def test_a_plan_of_another_version_is_shown_without_timeline(best):
    slower = best.prediction.model_copy(update={"iteration_seconds": 2 * best.prediction.iteration_seconds})
    drawn = shown_plan(best.model_copy(update={"prediction": slower}))
    assert drawn.plan["timeline"] is None
    assert "this version" in drawn.plan["remark"]


def test_a_plan_that_does_not_fit_says_so(best):
    bare = {"strategy": None, "prediction": None, "memory_bytes": (), "alternatives": (), "proof": None}
    shown = shown_plan(best.model_copy(update={"status": "infeasible", "fits": False, **bare}))
    assert shown.points[0]["status"] == "infeasible"
    assert "timeline" in page_of(shown)


def test_axes_of_a_store_are_what_differs_between_its_requests():
    bare = [Result(one.index, {}, one.status, one.document, one.error, None) for one in reversed(results())]
    shown = shown_study(bare, "runs")
    assert shown.axes == ("gpus", "cluster")
    assert [point["gpus"] for point in shown.points[:3]] == [8, 16, 16]


def test_what_an_axis_settles_is_no_axis_of_its_own():
    found = results()
    for one in found:
        if one.document:
            one.document["request"]["global_batch_size"] = 4 * one.document["request"]["gpus"]
    assert shown_study([Result(0, {}, one.status, one.document, None, None) for one in found], "x").axes == (
        "gpus",
        "cluster",
    )


def test_a_study_without_answers_is_refused():
    with pytest.raises(BadRequest, match="no answers"):
        shown_study([], "runs")
    with pytest.raises(BadRequest, match="by this version"):
        shown_study([Result(0, {"gpus": 8}, "pending", {}, None, None)], "runs", ("gpus",))


def test_a_strategy_in_words_names_what_is_not_usual(best):
    words = strategy_words(best.strategy.model_dump() | {"recompute": "full", "offload": "optimizer", "cp": 4})
    assert {"CP 4", "recompute full", "offload optimizer"} <= set(words.split(", "))


def test_the_command_reads_stores_studies_and_answers(tmp_path, best):
    study, store, page = written(tmp_path, TOML), tmp_path / "runs.sqlite", tmp_path / "page.html"
    answer, table = tmp_path / "plan.json", tmp_path / "runs.json"
    answer.write_text(best.to_json())
    run = CliRunner()
    swept = run.invoke(main, ["sweep", str(study), "-o", str(store), "-q", "--workers", "1", "--format", "json"])
    table.write_text(swept.stdout)
    for source in ([store], [store, "--study", study], [answer], [table]):
        done = run.invoke(main, ["report", *map(str, source), "-o", str(page)])
        assert done.exit_code == 0, done.output
        assert data_of(page.read_text())["points"][0]["seconds"] > 0


@pytest.mark.parametrize(("arguments", "reason"), [(["no.sqlite"], "no such file"), (["a.txt"], "not an answer of")])
def test_the_command_refuses_what_it_cannot_show(tmp_path, monkeypatch, arguments, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("hello")
    done = CliRunner().invoke(main, ["report", *arguments])
    assert (done.exit_code, reason in done.stderr) == (2, True), done.stderr


def test_a_study_needs_a_store(tmp_path, best):
    answer = tmp_path / "plan.json"
    answer.write_text(best.to_json())
    done = CliRunner().invoke(main, ["report", str(answer), "--study", "x.toml"])
    assert (done.exit_code, "needs a store" in done.stderr) == (2, True)
