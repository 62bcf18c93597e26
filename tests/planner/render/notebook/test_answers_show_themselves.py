"""Every answer shows itself: three lines, a card, the screen's text, a table, a picture."""

import json
import re
from html.parser import HTMLParser
from io import StringIO

import pytest
from rich.console import Console

import planner
from planner import BadRequest
from planner.render.notebook import charts, frames, headlines
from planner.render.terminal.terminal import render
from tests.planner.render.notebook.conftest import ASK, EXAMPLES, KNOWN, every_answer, one_answer

QUESTIONS = {name for name in planner.__all__ if name.islower()} - {"queue_of"}


class Page(HTMLParser):
    """Which tags are open, and what is fetched from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.fetched = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.fetched += [value for name, value in attrs if name in {"src", "href"} or "url(" in (value or "")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_every_question_is_tried_here():
    assert set(ASK) >= QUESTIONS


@every_answer()
def test_an_answer_is_three_short_lines_at_a_prompt(answer):
    lines = repr(answer).split("\n")
    assert len(lines) == 3
    assert all(line.strip() and len(line) <= headlines.LONGEST for line in lines)
    assert str(answer) == repr(answer)


@every_answer()
def test_its_card_is_one_element_that_fetches_nothing(answer):
    page = Page()
    page.feed(card := answer._repr_html_())
    assert (page.open, page.fetched) == ([], [])
    assert card.startswith("<div")
    assert card.count('class="meshwright-card"') == 1


@every_answer()
def test_its_card_takes_the_colours_around_it(answer):
    assert "background:#fff" not in answer._repr_html_()
    assert ";color:" not in answer._repr_html_()


@every_answer()
def test_its_summary_is_text_without_colours(answer):
    text = answer.summary()
    assert text.count("\n") >= 3
    assert "\x1b" not in text


@one_answer("plan")
@pytest.mark.parametrize("width", [80, 120])
def test_the_summary_of_a_plan_is_the_screen_of_the_command(answer, width):
    sheet = StringIO()
    render(answer, Console(file=sheet, width=width, highlight=False))
    assert answer.summary(width) == "".join(f"{line.rstrip()}\n" for line in sheet.getvalue().splitlines())
    assert max(map(len, answer.summary(width).splitlines())) <= width


@every_answer("infeasible")
def test_every_table_of_it_is_rows_of_plain_values(answer):
    tables = frames.TABLES[answer.schema_]
    assert frames.rows_of(answer)
    for name in tables:
        for row in frames.rows_of(answer, name):
            json.dumps(row)
            assert not any(isinstance(value, dict | list | tuple) for value in row.values())


@every_answer()
def test_its_document_says_its_schema(answer):
    assert json.loads(answer.to_json())["schema"] == answer.schema_


def test_the_guide_lists_every_question_with_its_tables():
    page = (EXAMPLES.parent / "docs" / "embedding.md").read_text()
    rows = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| `")]
    said = {re.search(r"`(\w+)\(", call)[1]: re.findall(r"`(\w+)`", tables) for call, _, tables in rows}
    assert set(said) == QUESTIONS
    for name, tables in said.items():
        if name in ASK and tables:
            schema = ASK[name]().schema_ if name not in KNOWN else KNOWN[name].schema_
            assert tables == list(frames.TABLES[schema]), name


def test_every_kind_of_answer_has_a_headline_and_tables():
    assert set(headlines._KINDS) == set(frames.TABLES)


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "a & b", '"quoted"'])
def test_names_are_escaped_in_a_card(text):
    found = planner.predict(planner.PlanRequest(model="llama3-8b", gpus=8))
    named = found.model_copy(update={"warnings": (text,), "request": found.request | {"model": {"name": text}}})
    assert text not in named._repr_html_()
    assert text in repr(named)


@one_answer("plan")
def test_the_rows_of_a_plan_are_its_figures(answer):
    rows = frames.rows_of(answer)
    assert len(rows) == 1 + len(answer.alternatives)
    assert rows[0]["iteration_seconds"] == answer.prediction.iteration_seconds
    assert rows[0]["tp"] == answer.strategy.tp
    stages = frames.rows_of(answer, "stages")
    assert [row["layers"] for row in stages] == [one.layers for one in answer.strategy.stages]
    assert [row["total"] for row in stages] == [one.total for one in answer.memory_bytes]
    assert sum(row["share"] for row in frames.rows_of(answer, "breakdown")) == pytest.approx(1.0)


@one_answer("sweep")
def test_a_row_of_a_sweep_is_a_point(answer):
    assert [row["gpus"] for row in frames.rows_of(answer)] == [8, 16]
    assert answer.axes == ("gpus",)
    assert json.loads(answer.model_dump_json(by_alias=True))["schema"] == "sweep/1"


@one_answer("plan")
def test_a_table_that_there_is_none_of_is_refused_with_the_nearest(answer):
    with pytest.raises(BadRequest, match="plan/1 has no table 'stage': did you mean stages"):
        answer.to_frame("stage")
    with pytest.raises(BadRequest, match="library: expected pandas or polars"):
        answer.to_frame(library="excel")


@one_answer("plan")
@pytest.mark.parametrize(
    ("ask", "said"),
    [
        ("to_frame", "to_frame needs pandas or polars, which is not installed: pip install pandas"),
        ("plot", "plot needs matplotlib or plotly, which is not installed: pip install matplotlib"),
    ],
)
def test_a_library_that_is_missing_is_named(answer, ask, said, monkeypatch):
    monkeypatch.setattr(frames, "find_spec", lambda _name: None)
    with pytest.raises(BadRequest, match=said):
        getattr(answer, ask)()


@every_answer("infeasible", "robust", "plan_sparse", "examine_run", "validate", "read_job")
def test_the_bars_of_a_picture_are_the_figures_of_the_answer(answer):
    for picture in charts.pictures_of(answer):
        assert picture.labels
        assert all(len(values) == len(picture.labels) for values in picture.series.values())


@one_answer("plan")
def test_the_bars_of_a_plan_add_up(answer):
    time, memory = charts.pictures_of(answer)
    assert sum(time.series["seconds"]) == pytest.approx(answer.prediction.iteration_seconds, rel=0.01)
    stacked = sum(values[0] for values in memory.series.values())
    assert stacked * 2**30 == pytest.approx(answer.memory_bytes[0].total)


@one_answer("infeasible")
def test_what_has_nothing_to_draw_says_so(answer):
    with pytest.raises(BadRequest, match=r"nothing to draw; to_frame\(\) has its rows"):
        answer.plot()
