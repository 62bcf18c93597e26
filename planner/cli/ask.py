"""From options, environment and a configuration file to a `PlanRequest`, with the origin of every value."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from hardware.errors import meant
from planner.cli.input import is_run, text_in
from planner.errors import BadQuantity, BadRequest
from planner.request.fields import FIELDS, GIVEN_SPLIT, PIN_AXES, QUESTION, by_own_name, own_name

if TYPE_CHECKING:
    from planner.jobs.imported import ImportedJob
    from planner.request.request import PlanRequest

_FACTOR: Final = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
"""A number in plain digits, as files of commands and the shell hand it on: as text."""


@dataclass(frozen=True)
class Question:
    """A request and, for each value that somebody gave, who gave it: an option, a variable or a file."""

    request: PlanRequest
    origins: Mapping[str, str]


def question(
    ctx: click.Context, imported: ImportedJob | None = None, usual: Mapping[str, Any] | None = None
) -> Question:
    """The request that the options of a command make, with a configuration file or another program's below them.

    ``usual`` stands below all of these.

    Raises:
        BadRequest: a value that is missing, wrong or contradicts another.
        BadFile: the configuration cannot be read.
    """
    given, origins = _options(ctx)
    _spell_profile(ctx, given, origins)
    path = ctx.params.get("config")
    if path:
        below = _configured(path)
        for name, value in below.items():
            if name not in given:
                given[name], origins[name] = value, path
    if imported:
        _below(imported, ctx.params["source"], given, origins)
        if imported.lacks and "model" not in given:
            raise BadRequest(f"{ctx.params['file']}: {imported.lacks}")
    for name, value in (usual or {}).items():
        given.setdefault(name, value)
    _spell_chunks(ctx, given, origins)
    if ctx.params.get("goodput"):
        _wants_goodput(given, origins)
    return Question(_request(given), origins)


def _wants_goodput(given: dict[str, Any], origins: dict[str, str]) -> None:
    said = given.setdefault("objective", "goodput")
    if said != "goodput":
        raise BadRequest(f"--goodput and objective {said} (from {origins['objective']}) differ; give one of them")
    origins.setdefault("objective", "--goodput")


def _below(imported: ImportedJob, source: str, given: dict[str, Any], origins: dict[str, str]) -> None:
    """Put what another program's file says below the options."""
    from planner.jobs.imported import complete

    fields = dict(imported.fields) | {name: value for name, value in given.items() if not name.startswith("pins.")}
    pins = dict(imported.pins) | {name: given[f"pins.{name}"] for name in _axes(given)}
    fields, pins = complete(fields, pins, asked=given, length=imported.length)
    if changes := dict(
        imported.fields.get("changes", {})
    ):  # each counts by itself, one that is given before the file's
        said = given.get("changes", {})
        given["changes"] = changes | (_changes(said) if isinstance(said, tuple) else dict(said))
        origins.setdefault("changes", source)
    for name, value in (fields | {f"pins.{axis}": value for axis, value in pins.items()}).items():
        if name not in given:
            given[name], origins[name] = value, source


def _options(ctx: click.Context) -> tuple[dict[str, Any], dict[str, str]]:
    given, origins = {}, {}
    for param in ctx.command.params:
        name = param.name or ""
        value = ctx.params.get(name)
        if value is None or value == () or name not in (*QUESTION, *PIN_AXES):
            continue
        key = f"pins.{name}" if name in PIN_AXES else name
        given[key] = value
        from_environment = ctx.get_parameter_source(name) == ParameterSource.ENVIRONMENT
        origins[key] = _variable(param) if from_environment else param.opts[0]
    return given, origins


def _variable(param: click.Parameter) -> str:
    """The variable that gave a parameter its value, of those that are read for it."""
    names = [param.envvar] if isinstance(param.envvar, str) else list(param.envvar or ())
    return next((name for name in names if os.environ.get(name)), names[0])


def _spell_profile(ctx: click.Context, given: dict[str, Any], origins: dict[str, str]) -> None:
    """A profile is a cluster and, where it has one, a stack; either option beside it wins, a variable does not."""
    profile = ctx.params.get("profile")
    if profile is None:
        return
    from planner.request.files import with_profile

    for name, file in with_profile({"profile": profile}).items():
        if ctx.get_parameter_source(name) != ParameterSource.COMMANDLINE:
            given[name], origins[name] = file, "--profile"


def _configured(path: str) -> dict[str, Any]:
    from hardware.files import expanded, parsed
    from planner.request.files import with_files_beside, with_profile

    try:
        document = with_files_beside(_of_run(parsed(text_in(path), expanded(path)), path), expanded(path))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{path}: {error}") from None
    if str(document.get("schema", "")).startswith(("plan/", "replan/")):
        document = _asked_again(document, path)
    document = by_own_name(with_profile(document), (*QUESTION, *GIVEN_SPLIT))
    pins = document.pop("pins", {})
    if not isinstance(pins, Mapping):
        raise BadRequest(f"{path}: pins must be a table such as [pins] tp = 8, got {pins!r}")
    if unknown := [name for name in document if name not in (*QUESTION, *GIVEN_SPLIT)]:
        axis = own_name(unknown[0])
        hint = f"it belongs under [pins]: {axis} = ..." if axis in PIN_AXES else meant(unknown[0], (*QUESTION, "pins"))
        raise BadRequest(f"{path}: there is no field {unknown[0]!r}; {hint}")
    return document | {f"pins.{name}": value for name, value in by_own_name(pins, PIN_AXES).items()}


def _of_run(document: dict[str, Any], path: str) -> dict[str, Any]:
    """The question of a measured run; any other document as it is."""
    if not is_run(document):
        return document
    from planner.runs.files import run_in

    if run_in(Path(path), "the document", document).request is None:
        raise BadRequest(f"{path}: the run makes no request: {document['unpriced']}")
    return dict(document["request"])


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


def _request(given: Mapping[str, Any]) -> PlanRequest:
    for name in ("model", "gpus"):
        if name not in given:
            raise BadRequest(f"--{name} is missing, as in `plan --model 175b --gpus 12288`")
    from planner.request.request import request_from

    fields = {name: _value(name, value) for name, value in given.items() if not name.startswith("pins.")}
    pins = {name: _pin(given[f"pins.{name}"]) for name in _axes(given)}
    return request_from(fields | {"pins": pins})


def _axes(given: Mapping[str, Any]) -> list[str]:
    return [name.removeprefix("pins.") for name in given if name.startswith("pins.")]


def _pin(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _value(name: str, value: Any) -> Any:
    """A value as the request takes it, of text as the shell hands it on."""
    if isinstance(value, tuple):
        return _changes(value)
    if not isinstance(value, str) or name in GIVEN_SPLIT:
        return value
    kind = FIELDS[name].kind
    if kind in _TEXTS:
        return _TEXTS[kind](name, value)
    if kind == "number" and _FACTOR.fullmatch(value.strip()):
        return float(value)
    if "\0" in value:
        raise BadRequest(f"{name}: contains a NUL character")
    return value


def _changes(given: tuple[str, ...]) -> dict[str, str]:
    """Paths and values of ``path=value``."""
    changes: dict[str, str] = {}
    for text in given:
        path, sign, value = (part.strip() for part in text.partition("="))
        if not (path and sign and value):
            raise BadRequest(f"--set: expected path=value, got {text!r:.60}; such as stack.overlap.pp=0.1")
        if path in changes:
            raise BadRequest(f"--set: {path} is given twice; give it once")
        changes[path] = value
    return changes


def _stability(name: str, text: str) -> Any:
    """A file, or name=value pairs with commas between them."""
    from planner.request.values import stability_written

    try:
        return stability_written(text if "=" in text else Path(text))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{name}: {error}") from None


def _whole(name: str, text: str) -> int:
    from hardware.units import counted

    number = quantity_in(name, text, "count")
    if not 1 <= number < 1e18:
        raise BadRequest(f"{name}: expected a count between 1 and 1e18 such as 300B, got {text!r}")
    try:
        return int(counted(text))
    except ValueError as error:
        raise BadRequest(f"{name}: {error}") from None


def seconds_in(name: str, text: str) -> float:
    """A time as people write it, or plain seconds.

    Raises:
        BadRequest: no such time, or none that makes sense.
    """
    from planner.request.values import seconds_written

    try:
        return float(seconds_written(text))
    except ValueError as error:
        raise BadRequest(f"{name}: {error}") from None


def quantity_in(name: str, text: str, dimension: Any) -> float:
    """A quantity as people write it, in the units of the code.

    Raises:
        BadRequest: it is none, or not in plain digits.
    """
    from hardware.units import parse_quantity

    if not text.isascii():
        raise BadRequest(f"{name}: expected plain digits and a unit, got {text!r}")
    try:
        return parse_quantity(text, dimension)
    except BadQuantity as error:
        raise BadRequest(f"{name}: {error}") from None


_TEXTS: Final = {"tokens": _whole, "pairs": _stability, "time": seconds_in}
"""What reads text for fields that are written with a unit or in pairs, by their kind."""
