"""The commands that ask many questions at once: sweep, sweep status, sweep merge."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.command import Command, option
from planner.cli.ending import BAD_REQUEST, UNEXPECTED
from planner.cli.options import talk_options
from planner.cli.output import as_json, opened, shown, talk, write
from planner.cli.values import Count, Read, Text, Word
from planner.errors import BadRequest

if TYPE_CHECKING:
    from planner.render.terminal.sweep import Counted
    from planner.studies.progress import Progress
    from planner.studies.study import Study

FORMATS = ("table", "json", "csv", "parquet")
_W, _A = "Work", "Answer"
_store_option = option(
    "--output", "-o", "store", heading=_W, metavar="STORE", help="File of the answers (default: STUDY.sqlite here)."
)


def _shard(text: str) -> tuple[int, int]:
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and len(text) < 20 and 1 <= int(part) <= int(parts)):
        raise BadRequest(f"expected a part and their number such as 1/16, got {text!r:.40}")
    return int(part), int(parts)


class SweepGroup(click.Group):
    """A group that takes whatever is no command of its own for a study."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``run`` in front of a study."""
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("sweep", cls=SweepGroup, no_args_is_help=True, short_help="Many questions at once, from a study file.")
def sweep() -> None:
    """Answer every point of a study: a grid of models, machines, sizes, batches and fields of the machines.

    \b
      plan sweep study.toml -o runs.sqlite        run it, or go on with it
      plan sweep status study.toml -o runs.sqlite what is done and what failed
      plan sweep merge part-*.sqlite -o runs.sqlite

    `plan sweep run --help` explains the options of a run.
    """  # noqa: D301 - click reads the backspace


@sweep.command("run", cls=Command, short_help="Answer what the store lacks, and show the results (the default).")
@click.argument("study", type=Text(), metavar="STUDY")
@_store_option
@option("--engine", heading=_W, type=Word(("local", "ray")), default="local", help="Who works.")
@option("--workers", heading=_W, type=Count(), help="Processes (default: as many as processors may be used).")
@option("--address", heading=_W, metavar="ADDRESS", help="Ray cluster (default: the one found, else a local one).")
@option(
    "--shard", heading=_W, type=Read(_shard), metavar="K/N", help="Only the K-th of N parts of the study, K from 1."
)
@option("--retry-failed", heading=_W, is_flag=True, help="Ask again what failed before.")
@option("--dry-run", heading=_W, is_flag=True, help="Print the number of points and the first of them; stop.")
@option("--format", "form", heading=_A, type=Word(FORMATS), default="table", help="Form.")
@option("--results", heading=_A, metavar="FILE", help="Write the results there instead of stdout.")
@talk_options
def run(study: str, **params: Any) -> None:
    """Answer every point of STUDY that the store lacks, then show the results of all.

    Killed at any moment it can be started again: what was finished is kept, and asked of nobody twice.
    """
    from planner.studies.study_file import read_study

    asked = read_study(study)
    if params["form"] == "parquet" and params["results"] is None and opened().isatty():
        raise BadRequest("--format parquet is for machines; name a file: --results runs.parquet")
    if params["dry_run"]:
        _rehearse(asked, params)
        return
    store = params["store"] or _usual_store(study)
    done = _run(asked, store, params)
    _conclude(done, _deliver(asked, store, params), store, params)


@sweep.command("status", cls=Command, short_help="What is done, what is left, what failed.")
@click.argument("study", type=Text(), metavar="STUDY")
@_store_option
@option("--format", "form", heading=_A, type=Word(("table", "json")), default="table", help="Form.")
@talk_options
def status(study: str, store: str | None, form: str, **_talk: bool) -> None:
    """Count the points of STUDY by what the store knows of them, and say what failed.

    Failed points whose messages are alike stand together; --format json names every one.
    """
    from planner.render.terminal.sweep import status_record, status_text
    from planner.render.terminal.tables import print_lines
    from planner.studies.result import results
    from planner.studies.study_file import read_study

    asked, place = read_study(study), store or _usual_store(study)
    known = asked.name, place, results(asked, place)
    if form == "table":
        text = status_text(*known)
        write(shown(lambda console: print_lines(text, console), None), None)
    else:
        write(as_json(status_record(*known)), None)


@sweep.command("merge", cls=Command, short_help="Gather the answers of several stores in one.")
@click.argument("parts", type=Text(), nargs=-1, required=True, metavar="PART...")
@option("--output", "-o", "store", heading=_W, metavar="STORE", required=True, help="File that gets them all.")
@talk_options
def merge(parts: tuple[str, ...], store: str, **params: Any) -> None:
    """Copy the answers of every PART that STORE lacks into it; what is there already stays as it is."""
    from planner.studies.store import merge as gather

    new = gather(parts, store)
    talk(params, f"{new:,} answers of {len(parts)} stores are new in {store}")


def _usual_store(study: str) -> str:
    return f"{Path(study).stem}.sqlite"


def _rehearse(study: Study, params: dict[str, Any]) -> None:
    from planner.render.terminal.tables import print_lines
    from planner.studies.study import in_order

    shown_points, count = list(islice(in_order(study), 5)), sum(1 for _ in in_order(study))
    if params["form"] == "json":
        first = [{"index": point.index, "point": dict(point.axes)} for point in shown_points]
        document = {"study": study.name, "mode": study.mode, "points": count, "product": study.product, "first": first}
        write(as_json(document), params["results"])
        return
    sizes = " x ".join(f"{len(factor[0].values)} {'+'.join(a.field for a in factor)}" for factor in study.factors)
    sizes = sizes or "one question, nothing varies"
    left_out = f", {study.product - count:,} filtered out" if count < study.product else ""
    lines = [f"{study.name}: {count:,} points ({sizes}{left_out})\n"]
    listed = (", ".join(f"{k} {v}" for k, v in point.axes.items()) for point in shown_points)
    lines += [f"  {point}\n" for point in listed if point]
    text = "".join([*lines, "  ...\n" if count > len(shown_points) else ""])
    write(shown(lambda console: print_lines(text, console), params["results"]), params["results"])


def _run(study: Study, store: str, params: dict[str, Any]) -> Progress:
    from planner.cli.live import watching
    from planner.studies.running import run as start

    try:
        with watching(quiet=params["quiet"]) as watch:
            return start(
                study,
                store,
                engine=params["engine"],
                workers=params["workers"],
                address=params["address"],
                shard=params["shard"] or (1, 1),
                retry_failed=params["retry_failed"],
                watch=watch,
            )
    except KeyboardInterrupt:
        talk(params, f"what was answered is in {store}; the same command goes on from there")
        raise


def _deliver(study: Study, store: str, params: dict[str, Any]) -> Counted:
    """Write the results of all points, and count them."""
    from planner.cli.output import parquet_to
    from planner.render.terminal.sweep import Counted, print_results
    from planner.studies.result import results
    from planner.studies.table import as_csv, as_json

    counted, place, whole = Counted(), params["results"], bool(params["verbose"])
    found = counted.passing(results(study, store))
    if params["form"] == "table":
        write(shown(lambda console: print_results(found, study, console, whole=whole), place), place, "--results")
    elif params["form"] == "parquet":
        parquet_to(found, study, place)
    else:
        write((as_json if params["form"] == "json" else as_csv)(found, study), place, "--results")
    return counted


def _conclude(done: Progress, counted: Counted, store: str, params: dict[str, Any]) -> None:
    """What is left to say: failed points, and the exit code that defects or nothing but failures deserve."""
    if done.failed:
        failed = f"{done.failed:,} point{'s' * (done.failed > 1)} failed"
        talk(params, f"{failed}; `plan sweep status` names them, --retry-failed asks again once the cause is mended")
    where = store if params["store"] else f"{store} in this folder (-o names another place)"
    talk(params, f"{counted.in_words()}, {done.answered - done.failed:,} answered now; the answers are in {where}")
    if done.defects:
        sys.exit(UNEXPECTED)
    if done.failed and done.failed == done.done:
        sys.exit(BAD_REQUEST)
