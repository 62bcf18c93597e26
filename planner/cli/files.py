"""The files of a job that a command is given: what options add to them, and what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hardware.errors import BadFile
from planner.cli.output import talk
from planner.errors import BadRequest
from planner.request.fields import as_document

if TYPE_CHECKING:
    from planner.cli.ask import Given
    from planner.jobs.assemble import FilesOfJob

_OWN = ("request", "plan", "run")
"""Kinds that ``--config`` takes too."""


def files_of_job(ctx: click.Context, *, config: bool = True) -> FilesOfJob | None:
    """What the files of the command say; None where there are none, or one that ``--config`` takes.

    ``config`` says whether the command has such an option; it is then that file.

    Raises:
        BadFile: a file is missing or unreadable.
        BadRequest: the files, or the options about them, contradict each other.
    """
    params = ctx.params
    paths, form = _paths_and_kind(params["files"], params)
    if not paths:
        if lost := next((name for name in ("env", "arguments", "launch", "expand") if params[name]), None):
            raise BadRequest(f"--{lost.removesuffix('uments')} is about a script, and no FILE is given")
        return None
    found = _read(ctx, paths, form)
    if config and len(found.parts) == 1 and found.parts[0].reader.form in _OWN:
        if params.get("config"):
            raise BadRequest(f"{paths[0]} and --config {params['config']} are both questions; give one of them")
        params["config"] = str(paths[0])
        return None
    return found


def files_of_side(ctx: click.Context, name: str) -> FilesOfJob:
    """What one file says, with those of ``--from``; arguments and errors as of ``files_of_job``."""
    return _read(ctx, *_paths_and_kind((name,), ctx.params))


def _read(ctx: click.Context, paths: Sequence[Path], form: str | None) -> FilesOfJob:
    from planner.jobs.reader import Context
    from planner.jobs.readers import read_job

    params = ctx.params
    known = [name for name, value in params.items() if value is not None and ctx.command.name != name]
    context = Context(
        known=frozenset({*known, *(f"pins.{name}" for name in known)}),
        environment=params["env"],
        arguments=params["arguments"],
        launch=params["launch"],
        expand=params["expand"],
    )
    return read_job(paths, context, form)


def _paths_and_kind(files: Sequence[str], params: dict[str, Any]) -> tuple[list[Path], str | None]:
    """The files, of the arguments and of ``--from``, and the kind that it says, if it does."""
    if not files and not params["source"]:
        return [], None
    from hardware.errors import meant
    from hardware.files import expanded
    from planner.jobs.readers import forms  # every reader of files: a fifth of a second

    names, kinds = list(files), []
    for said in params["source"]:
        if said in forms():
            kinds.append(said)
        elif expanded(said).exists() or "/" in said or "." in said:
            names.append(said)
        else:
            raise BadRequest(f"--from: there is no file and no kind {said!r:.60}; {meant(said, forms())}")
    if len(kinds) > 1:
        raise BadRequest(f"--from {' and --from '.join(kinds)}: files have one kind each; leave --from out")
    if kinds and not names:
        raise BadRequest(f"--from {kinds[0]} needs a FILE")
    paths = [expanded(name) for name in names]
    for name, path in zip(names, paths, strict=True):
        option, sign, value = name.partition("=")
        if sign and option.isidentifier() and not path.exists():
            raise BadRequest(f"{name}: no such file; the value of an option is written --{option} {value}".rstrip())
    return [_in_folder(path) for path in paths], next(iter(kinds), None)


def _in_folder(path: Path) -> Path:
    """The file itself; of a folder the configuration of its model.

    Raises:
        BadFile: a folder without one.
    """
    if not path.is_dir():
        return path
    if not (path / "config.json").exists():
        raise BadFile(path, "a folder without a config.json; name the files in it")
    return path / "config.json"


def document_of(found: FilesOfJob, given: Given) -> dict[str, Any]:
    """The question as a file has it, or the run with its question."""
    request = as_document(given.values)
    if found.run is None:
        return request
    run = dict(found.run)
    assumed = {path: why for path, why in (run.get("assumed") or {}).items() if path.split(".")[-1] not in given.values}
    return run | {"request": request} | ({"assumed": run["assumed"]} if "assumed" in run and assumed else {})


def say_of_files(params: dict[str, Any], found: FilesOfJob | None) -> None:
    """What a reader of the answer should know of the files, on stderr."""
    if found:
        talk(params, *found.job.lines)
