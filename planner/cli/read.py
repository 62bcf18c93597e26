"""The command that says what files of a job are and hold: read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from planner.cli.ask import Given, gathered, request_of, still_missing
from planner.cli.command import Command
from planner.cli.files import document_of, files_of_job
from planner.cli.options import needed_file_options, output_options, pin_options, question_options
from planner.cli.output import as_json, shown, talk, write
from planner.errors import BadRequest, MeshwrightError
from planner.request.fields import DEFAULT_CLUSTER, GIVEN_SPLIT, IN_STEPS, PIN_AXES, QUESTION

if TYPE_CHECKING:
    from planner.jobs.assemble import FilesOfJob
    from planner.jobs.imported import ImportedJob
    from planner.render.terminal.reading import Reading


_IN_ORDER = (*QUESTION, *(f"pins.{axis}" for axis in (*PIN_AXES, *IN_STEPS)))


@click.command("read", cls=Command, short_help="What a script, configuration, model or log holds.")
@needed_file_options
@question_options
@pin_options
@output_options("table", "json", "yaml")
@click.pass_context
def read(ctx: click.Context, /, **params: Any) -> None:
    """Say what each file is and what job the files are: what was read, assumed, not priced, and what is missing.

    json and yaml are a question that `plan predict --config` and `plan --config` take, of a log a measured run. A
    script is only read, never run.
    """
    found = files_of_job(ctx, config=False)
    if found is None:
        raise BadRequest("read needs a FILE: a script, a configuration, a config.json, a log")
    given = gathered(ctx, found)
    document = document_of(found, given)
    if params["form"] == "table":
        from planner.render.terminal.reading import print_reading

        text, whole = _reading(found, given), params["verbose"]
        write(shown(lambda console: print_reading(text, console, whole=whole), params["output"]), params["output"])
        return
    if params["form"] == "json":
        write(as_json(document), params["output"])
    else:
        from planner.jobs.yaml_text import yaml_text

        write(yaml_text(document), params["output"])
    assumed = (*found.job.assumed, *_assumed_machines(found.job, given))
    talk(params, *still_missing(found.job, given), *assumed, *found.job.unpriced, *found.job.remarks)


def _reading(found: FilesOfJob, given: Given) -> Reading:
    """All that the table shows."""
    from planner.render.terminal.reading import Reading

    job, missing = found.job, still_missing(found.job, given)
    model, unknown = _model_in_words(
        given.values.get("model"), given.values.get("seq_length"), given.values.get("changes") or {}
    )
    hidden = {name for name in GIVEN_SPLIT if name not in given.values}
    return Reading(
        files=tuple((str(part.file.path), part.title) for part in found.parts),
        values={name: given.values[name] for name in _IN_ORDER if name in given.values and name not in hidden},
        model=model,
        refused="" if missing else _refusal(given),
        origins=_origins(given),
        measured=dict((found.run or {}).get("measured") or {}),
        missing=(*((unknown,) if unknown and missing else ()), *missing),
        assumed=(*job.assumed, *_parts_of_model(given), *_assumed_machines(found.job, given)),
        unpriced=job.unpriced,
        remarks=job.remarks,
    )


def _refusal(given: Given) -> str:
    """What a question is refused for before it is priced; nothing where it is not."""
    from planner.request.resolve import resolve

    try:
        resolve(request_of(given))
    except MeshwrightError as error:
        return str(error)
    return ""


def _parts_of_model(given: Given) -> tuple[str, ...]:
    """Which parts of a model train, where it has more than a decoder, and which are not counted."""
    from costmodels.model.catalogue import model as find_model
    from planner.answer.text import format_count
    from planner.request.tables import model_of

    model = given.values.get("model")
    try:
        if model is None:
            return ()
        found = model_of(model) if isinstance(model, Mapping) else find_model(str(model))
    except (MeshwrightError, ValueError):
        return ()
    _, _, parts = found.source.partition(" without its ")
    said, tower = (f"the model is counted without its {parts}",) if parts else (), found.tower
    if tower is None:
        return said
    size = f"its vision tower of {format_count(tower.parameters)} parameters"
    if given.values.get("train_tower"):
        return (*said, f"{size} trains")
    priced = "frozen" if given.values.get("images_per_sample") else "without a price until --images-per-sample N"
    return (
        *said,
        f"the decoder trains; {size} is {priced}, --train-tower trains it",
    )


def _assumed_machines(job: ImportedJob, given: Given) -> tuple[str, ...]:
    """That no file says the machines, and nobody is asked for them."""
    said = f"nothing names the machines; {DEFAULT_CLUSTER} is priced, --cluster changes it"
    return () if job.asks_for("cluster") or "cluster" in given.values else (said,)


def _model_in_words(model: Any, seq_length: Any, changes: Mapping[str, Any]) -> tuple[str, str]:
    """The model with the number of its parameters, and why it has no price, where it has none."""
    from costmodels.model.catalogue import model as find_model
    from costmodels.model.parameters import parameters
    from planner.answer.text import format_count
    from planner.request.overrides import changed_model
    from planner.request.tables import model_of

    if model is None:
        return "", ""
    try:
        length = seq_length if isinstance(seq_length, int) else None
        found = model_of(model) if isinstance(model, Mapping) else find_model(str(model), length)
        found = changed_model(found, changes)
    except (MeshwrightError, ValueError) as error:
        return "a model that is not priced", str(error)
    name = "a model" if found.name == "given" else found.name
    return f"{name}, {format_count(parameters(found))} parameters,", ""


def _origins(given: Given) -> dict[str, str]:
    """Who said each value, files by their last part; what follows from several of them is no single one's."""
    several = ", "
    return {
        name: "follows" if several in origin else origin.rsplit("/", 1)[-1] for name, origin in given.origins.items()
    }
