"""From options, environment and a configuration file to a `PlanRequest`, with the origin of every value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from planner.cli.command import TYPED
from planner.cli.input import document_in, measured_run
from planner.errors import BadRequest, MeshwrightError
from planner.request.fields import FIELDS, IN_STEPS, apart

if TYPE_CHECKING:
    from planner.jobs.assemble import FilesOfJob
    from planner.jobs.imported import ImportedJob
    from planner.request.request import PlanRequest


@dataclass(frozen=True)
class Question:
    """A request and, for each value that somebody gave, who gave it: an option, a variable or a file."""

    request: PlanRequest
    origins: Mapping[str, str]


@dataclass(frozen=True)
class Given:
    """What was said of a question, by the names of fields and of pins as ``pins.tp``, and who said it."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]


def question(
    ctx: click.Context,
    files: FilesOfJob | None = None,
    usual: Mapping[str, Any] | None = None,
    *,
    strategy: bool = True,
) -> Question:
    """The request that the options of a command make, with a configuration file or the files of a job below them.

    Args:
        ctx: of the command.
        files: of a job.
        usual: what stands below all of these.
        strategy: the strategy of the files is asked about; without it, their job alone.

    Raises:
        BadRequest: values that are missing, one that is wrong or contradicts another.
        BadFile: the configuration cannot be read.
    """
    given = gathered(ctx, files, usual, strategy=strategy)
    if files and (lacking := still_missing(files.job, given)):
        raise BadRequest(f"{files.names}: {'; '.join(lacking)}")
    return Question(request_of(given), given.origins)


def request_of(given: Given) -> PlanRequest:
    """The request of all that was said.

    Raises:
        BadRequest: the model or the devices are missing, or a value is wrong.
    """
    for name in ("model", "gpus"):
        if name not in given.values:
            has = _devices_of(given.values.get("cluster")) if name == "gpus" else ""
            command = getattr(click.get_current_context(silent=True), "info_name", None)
            words = "plan" if command in (None, "plan", "solve") else f"plan {command}"
            raise BadRequest(f"--{name} is missing, as in `{words} --model 175b --gpus 12288`{has}")
    from planner.request.request import request_from

    fields, pins = apart(given.values)
    if isinstance(said := fields.get("stability"), str) and "=" not in said:
        fields["stability"] = Path(said)
    return request_from(fields | {"pins": pins})


def gathered(
    ctx: click.Context,
    files: FilesOfJob | None = None,
    usual: Mapping[str, Any] | None = None,
    *,
    strategy: bool = True,
) -> Given:
    """All that was said of the question, whether it is complete or not; arguments as of ``question``."""
    given, origins = _options(ctx)
    _spell_profile(ctx, given, origins)
    job, source = (files.job, files.names) if files else (None, "")
    if path := ctx.params.get("config"):
        fields = _configured(path)
        if any(f"pins.{word}" in fields for word in IN_STEPS):
            job, source = _as_job(fields), path
        else:
            _put_below(fields, path, given, origins)
    if job:
        from planner.jobs.question import question_of

        _put_below(question_of(job, given, strategy=strategy), source, given, origins, job.origins)
    _put_below(usual or {}, "default", given, origins)
    _spell_chunks(ctx, given, origins)
    _spell_trainer(ctx, given, origins)
    if ctx.params.get("goodput"):
        _wants_goodput(given, origins)
    _spell_framework(given)
    return Given(given, origins)


def _spell_framework(given: dict[str, Any]) -> None:
    """Take the short names of exporters, and refuse a launcher, which no plan is restricted to.

    Raises:
        BadRequest: it is one.
    """
    if given.get("framework") is None:
        return
    from planner.jobs.registry import SHORT, TARGETS

    name = str(given["framework"])
    given["framework"] = name = SHORT.get(name, name)
    target = TARGETS.get(name)
    if target and target.kind == "launcher":
        takes = f"--for takes a framework, such as megatron-lm; `plan export --to {name}` writes its files"
        raise BadRequest(f"--for: {name} starts jobs of any framework; {takes}")


def still_missing(job: ImportedJob, given: Given) -> list[str]:
    """What must be said before there is a price, all of it."""
    from planner.jobs.question import still_missing as lacking

    return lacking(job, given.values)


def _as_job(fields: Mapping[str, Any]) -> ImportedJob:
    """A configuration whose batch follows from the number of devices."""
    from planner.jobs.imported import ImportedJob

    return ImportedJob(*apart(fields))


def _put_below(
    fields: Mapping[str, Any],
    origin: str,
    given: dict[str, Any],
    origins: dict[str, str],
    each: Mapping[str, str] | None = None,
) -> None:
    """Take those fields that nobody gave yet, with the origin of each; each change counts by itself."""
    if isinstance(changes := fields.get("changes"), Mapping) and "changes" in given:
        given["changes"] = {**changes, **given["changes"]}
    for name, value in fields.items():
        if name not in given:
            given[name], origins[name] = value, (each or {}).get(name, origin)


def _wants_goodput(given: dict[str, Any], origins: dict[str, str]) -> None:
    said = given.setdefault("objective", "goodput")
    if said != "goodput":
        raise BadRequest(f"--goodput and objective {said} (from {origins['objective']}) differ; give one of them")
    origins.setdefault("objective", "--goodput")


def _options(ctx: click.Context) -> tuple[dict[str, Any], dict[str, str]]:
    given, origins = {}, {}
    for param in ctx.command.params:
        name = param.name or ""
        if name not in FIELDS or (value := ctx.params.get(name)) is None:
            continue
        key = f"pins.{name}" if FIELDS[name].axis else name
        given[key] = value
        from_environment = ctx.get_parameter_source(name) == ParameterSource.ENVIRONMENT
        typed = ctx.meta.get(TYPED, {})
        origins[key] = typed[name] = _variable(param) if from_environment else typed.get(name, param.opts[0])
    return given, origins


def _variable(param: click.Parameter) -> str:
    """The variable that gave a parameter its value, of those that are read for it."""
    names = [param.envvar] if isinstance(param.envvar, str) else list(param.envvar or ())
    return next((name for name in names if os.environ.get(name)), names[0])


def _spell_profile(ctx: click.Context, given: dict[str, Any], origins: dict[str, str]) -> None:
    """A profile is a cluster and, where it has one, a stack; --cluster or --stack win over it, a variable does not."""
    profile = ctx.params.get("profile")
    if profile is None:
        return
    from planner.request.files import with_profile

    for name, file in with_profile({"profile": profile}).items():
        if ctx.get_parameter_source(name) != ParameterSource.COMMANDLINE:
            given[name], origins[name] = file, "--profile"


def _configured(path: str) -> dict[str, Any]:
    from hardware.files import expanded
    from planner.request.document import question_fields
    from planner.request.files import with_relative_files

    document = document_in(path)
    if ran := measured_run(path):
        if ran.request is None:
            raise BadRequest(f"{path}: the run makes no request: {ran.unpriced}")
        document = document["request"]
    document = with_relative_files(document, expanded(path))
    if str(document.get("schema", "")).startswith(("plan/", "replan/")):
        document = _asked_again(document, path)
    return question_fields(document, path)


def _asked_again(answer: dict[str, Any], path: str) -> dict[str, Any]:
    """The question of an answer."""
    from planner.answer.load import check_schema, picked

    answer = picked(answer, path)
    check_schema(answer["schema"], path)
    if not isinstance(asked := answer.get("request"), dict):
        raise BadRequest(f"{path}: not an answer of `plan --format json`: request: required, but missing")
    return asked


def _spell_chunks(ctx: click.Context, given: dict[str, Any], origins: dict[str, str]) -> None:
    """Turn Megatron's layers per chunk into chunks per stage: vpp = layers / (pp * layers per chunk)."""
    per_chunk = ctx.params.get("layers_per_virtual_stage")
    if per_chunk is None:
        return
    flag, pp = "--num-layers-per-virtual-pipeline-stage", str(given.get("pins.pp", ""))
    if "pins.vpp" in given:
        raise BadRequest(f"{flag} and --vpp say the same thing twice; give one of them")
    if not (pp.isascii() and pp.isdecimal() and int(pp) > 0) or "model" not in given:
        raise BadRequest(f"{flag} {per_chunk} needs --model and one --pp, such as --pp 8; or give --vpp")
    from costmodels.model.catalogue import model

    length = given.get("seq_length")
    layers = model(str(given["model"]), length if isinstance(length, int) else None).num_layers
    chunks, left = divmod(layers, int(pp) * per_chunk)
    if left or not chunks:
        raise BadRequest(
            f"{flag} {per_chunk} x --pp {pp} = {int(pp) * per_chunk} does not divide {layers} layers; "
            f"give --vpp for uneven stages"
        )
    given["pins.vpp"], origins["pins.vpp"] = str(chunks), flag


def _spell_trainer(ctx: click.Context, given: dict[str, Any], origins: dict[str, str]) -> None:
    """Turn a trainer on Hugging Face's into the framework that shards under it, without ranks that it lacks."""
    from planner.cli.output import talk
    from planner.frameworks.registry import TRAINERS

    trainer = str(given.get("framework", "")).lower()
    if (under := TRAINERS.get(trainer)) is None:
        return
    given["framework"] = under
    for axis in ("pins.tp", "pins.ep", "pins.pp"):
        if (asked := str(given.get(axis, "1"))).isdecimal() and int(asked) > 1:
            raise BadRequest(f"{trainer} starts no plan of {axis.removeprefix('pins.')} {asked}; 1 works")
        if axis not in given:
            given[axis], origins[axis] = "1", f"--for {trainer}"
    writes = f"`plan export PLAN --to {trainer}` writes its files"
    talk(ctx.params, f"{trainer} runs on {under}: a plan for {under}; {writes}")


def _devices_of(cluster: object) -> str:
    """How many devices a cluster has that was given by name or file, where it says so."""
    from hardware.catalogue import cluster as find_cluster

    with suppress(MeshwrightError):
        found = find_cluster(cluster) if isinstance(cluster, str | Path) else None
        if found is not None and found.gpus is not None:
            return f"; {found.name} has {found.gpus:,}"
    return ""
