"""The command that draws an answer or a study as one page: report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.command import Command, option
from planner.cli.input import answer_in, text_in
from planner.cli.options import output_options
from planner.cli.output import talk, write
from planner.cli.values import Text
from planner.errors import BadRequest

if TYPE_CHECKING:
    from planner.render.page import Shown, ShownAnswer

_SQLITE = b"SQLite format 3\0"


@click.command("report", cls=Command, short_help="An answer or a study as one interactive page.")
@click.argument("source", type=Text(), metavar="STORE|ANSWER")
@option("--study", metavar="STUDY", help="Show this study's points of the store, all of them.")
@output_options()
def report(source: str, study: str | None, **params: Any) -> None:
    """Draw a page that needs nothing but itself: the answer in a sentence, then its drawings, tables and sources.

    STORE is what `plan sweep` keeps its answers in; ANSWER is what a command wrote with --format json: a plan, a sweep,
    a comparison, an allocation, a validation, a plan with parameter servers and more (- for one on stdin, but a sweep).
    """
    from planner.render.page import page_of

    page = page_of(_shown(source, study, quiet=params["quiet"]))
    write(page, params["output"])
    size = f"{len(page.encode()) / 1e3:,.0f} kB"
    talk(params, f"wrote {params['output'] or 'the page'}, {size}: open it in a browser; it needs no network")


def _shown(source: str, study: str | None, *, quiet: bool) -> Shown | ShownAnswer:
    from hardware.files import expanded, read_text
    from planner.render.page import shown_study
    from planner.render.page.source import study_in

    if source == "-":
        return _of_answer(text_in(source), source, quiet=quiet)
    path = expanded(source)
    if _is_store(path):
        return _of_store(path, study)
    if study:
        raise BadRequest(f"--study needs a store, and {source} is not one")
    if path.suffix == ".toml" and path.is_file():
        asks = f"`plan sweep {source} -o runs.sqlite`, then `plan report runs.sqlite`"
        raise BadRequest(f"{source} is a question, not an answer; if it is a study: {asks}")
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else read_text(path)
    if '"sweep/1"' in text[:200]:
        return shown_study(*study_in(path, text))
    return _of_answer(text, source, quiet=quiet)


def _of_answer(text: str, source: str, *, quiet: bool) -> Shown | ShownAnswer:
    """A plan, or another answer with all that notebooks show of it."""
    from planner.render.page import answer_of, read_document, shown_answer, shown_plan

    found = answer_of(read_document(text), source)
    return shown_plan(answer_in(source, quiet=quiet)) if found is None else shown_answer(found)


def _is_store(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(_SQLITE)) == _SQLITE


def _of_store(path: Path, study: str | None) -> Shown:
    from planner.render.page import shown_study
    from planner.studies.result import every_result, results
    from planner.studies.study_file import read_study

    if study is None:
        return shown_study(every_result(path), path.stem)
    asked = read_study(study)
    axes = [axis.field.removeprefix("pins.") for axis in asked.axes]
    axes += ["scenario"] if asked.scenarios and "scenario" not in axes else []
    return shown_study(results(asked, path), asked.name, axes)
