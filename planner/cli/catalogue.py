"""The commands that look things up: list, show, schema, validate."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

import click

from planner.cli.command import Command, option
from planner.cli.live import working
from planner.cli.options import output_options
from planner.cli.output import as_json, deliver, shown, write
from planner.cli.values import Text, Word
from planner.errors import BadRequest

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

_KINDS = ("models", "clusters", "accelerators", "links", "servers", "stacks", "rules", "schedules", "exporters")


@click.command("list", cls=Command, short_help="What the catalogue holds.")
@click.argument("kind", type=Word(_KINDS), metavar="|".join(_KINDS))
@click.argument("words", type=Text(), nargs=-1, metavar="[WORD]...")
@output_options("table", "json")
def list_(kind: str, words: tuple[str, ...], **params: Any) -> None:
    """List the entries of one kind, or those that say a WORD: plan list clusters h100.

    What takes more than 60 lines is shown in short; with -v in full. As JSON, what is stated as a number is one;
    quantities are text with their unit, as in the files.
    """
    from planner.render.catalogue import rows
    from planner.render.terminal.catalogue import print_list

    word = " ".join(words)
    deliver(rows(kind, word), lambda _, console: print_list(kind, word, console, whole=params["verbose"]), params)


@click.command("show", cls=Command, short_help="One entry, every figure with its source.")
@click.argument("name", type=Text())
@option("--kind", type=Word(_KINDS), metavar="KIND", help=f"Where a name means several things: {', '.join(_KINDS)}.")
@output_options("table", "json")
def show(name: str, kind: str | None, **params: Any) -> None:
    """Show one entry of the catalogue with the source of every figure.

    Of a stack, or a release of one (torchtitan@2024-12), it shows the switches that --set takes, a line each; with -v
    all of it, what frameworks call them, and its costs. Of what has more than 60 lines it shows the most; with -v all.
    """
    from planner.render import catalogue as view

    base, at, release = name.partition("@")
    found, full = view.find(base, ("stacks",) if at else (kind,) if kind else _KINDS)
    asked = f"{full}@{release}" if at else full
    facts = view.figures(found, full)
    heading, others = view.title(found, full), view.shorts(found, full)
    from planner.render.terminal.catalogue import print_figures, print_switches

    head = {"kind": found.name, "name": full, "title": heading, "aliases": others}
    also = f"  (also {', '.join(others)})" if others else ""
    releases = view.release_lines(full) if found.name == "stacks" else []

    def draw(_: object, console: Console) -> None:
        if found.name == "stacks":
            switches = view.switches(asked)
            print_switches(f"{asked}  {heading}{also}", switches, releases, console, words=bool(params["verbose"]))
        if found.name != "stacks" or params["verbose"]:
            print_figures(f"{full}  {heading}{also}", facts, console, whole=params["verbose"])

    deliver(head | {"figures": [vars(fact) for fact in facts]}, draw, params)


_DOCUMENTS = {
    "request": "planner.request.request:PlanRequest",
    "run": "planner.runs.schema:Run",
    "plan": "planner.answer.plan:Plan",
    "calibration": "planner.runs.calibrate.document:Calibration",
    "sparse": "planner.sparse.document:SparsePlan",
    "allocation": "planner.allocation.document:Allocation",
    "replan": "planner.analyses.replan_document:Replan",
    "size": "planner.analyses.size_search:Size",
    "what-if": "planner.analyses.what_if:Sensitivity",
    "robust": "planner.analyses.robust:Robust",
    "why-not": "planner.explain.why_not:WhyNot",
    "comparison": "planner.analyses.compare:Comparison",
}


@click.command("schema", cls=Command, short_help="JSON Schema of a request or an answer.")
@click.argument("document", type=Word(_DOCUMENTS), metavar="DOCUMENT")
@option("--output", "-o", heading="Answer", metavar="FILE", help="Write there instead of stdout.")
def schema(document: str, output: str | None) -> None:
    """Print the JSON Schema of what goes in (request, run) or comes out (the others)."""
    record: type[BaseModel] = pkgutil.resolve_name(_DOCUMENTS[document])
    write(as_json({"$schema": _DIALECT} | record.model_json_schema()), output)


schema.help = f"Print the JSON Schema of what goes in (request, run) or comes out ({', '.join([*_DOCUMENTS][2:])})."
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@click.command("validate", cls=Command, short_help="Predicted against measured runs.")
@click.argument("files", type=Text(), nargs=-1, metavar="[FILE]...")
@option("--floor", is_flag=True, help="What the measurements leave to any model: noise, releases, rounding.")
@option("--ranking", is_flag=True, help="Judge the choice among measured strategies: regret, rank correlation.")
@option("--profile", metavar="FILE", help="Cluster and stack that `plan calibrate` wrote.")
@output_options("table", "json")
def validate(files: tuple[str, ...], ranking: bool, floor: bool, profile: str | None, **params: Any) -> None:
    """Compare predictions with measured runs: error per run of a file of yours, per group and in all.

    FILE holds runs as JSON lines (- for stdin). None means the shipped ones. The table has a line for every run where
    these are 40 or fewer; --format json has one for each of any number. Of the shipped runs it has the groups farthest
    off, with -v all.
    """
    from planner.render.terminal.tables import print_lines
    from planner.runs import noise_floor
    from planner.runs import ranking as choice
    from planner.runs.judge import judge
    from planner.runs.report import check_priced, paths_of, written
    from planner.studies.cores import usable

    if ranking and floor:
        raise BadRequest("--ranking and --floor are two reports; leave out one")
    if (ranking or floor) and profile is not None:
        raise BadRequest(f"--{'ranking' if ranking else 'floor'} judges the shipped constants; leave out --profile")
    paths, by_file, form, whole = paths_of(files), None, params["form"], params["verbose"]
    with working("pricing measured runs", params) as watched:
        shared = {"workers": usable(), **watched}
        if ranking:
            text = choice.report(choice.timed(paths, **shared), form=form)
        elif floor:
            text = noise_floor.report(paths, form=form, whole=whole, **shared)
        else:
            by_file = judge(paths, profile, **shared)
    if by_file is not None:
        text = written(by_file, form=form, whole=whole)
    if form == "table":
        report = text
        text = shown(lambda console: print_lines(report, console), params["output"])
    write(text.rstrip("\n") + "\n", params["output"])
    if by_file is not None:
        check_priced(by_file)
