"""What a command reads: saved answers, the strategy of one, and that no answer is written over an input."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from planner.cli.ending import say
from planner.cli.output import check_writable
from planner.errors import BadRequest
from planner.request.fields import PIN_AXES

if TYPE_CHECKING:
    from planner.answer.plan import Plan
    from planner.request.request import PlanRequest
    from planner.runs.schema import Run

_TEXTS: Final = "planner.texts"
WRITTEN: Final = ("output", "results")
"""Parameters that name a file to write an answer to; stores of studies look after themselves."""


def text_in(path: str) -> str:
    """The text of a file, or of stdin where the path is "-"; a command may ask again, though a pipe ends once.

    Raises:
        BadFile: there is no such file, or it is too large or no text.
        BadRequest: stdin is closed, or holds no text.
    """
    from hardware.files import expanded, read_text

    known: dict[str, str] = click.get_current_context().meta.setdefault(_TEXTS, {})
    if path not in known:
        known[path] = _piped() if path == "-" else read_text(expanded(path))
    return known[path]


def _piped() -> str:
    if sys.stdin is None:
        raise BadRequest("stdin is closed; name a file")
    try:
        return sys.stdin.read().removeprefix("\ufeff")  # the mark of byte order of some editors
    except UnicodeDecodeError:
        raise BadRequest("stdin holds no text in UTF-8") from None


def answer_in(path: str, *, quiet: bool = False) -> Plan:
    """What `plan --format json` wrote to a file, or to stdin where the path is "-".

    A remark on stderr says where another version made it, unless ``quiet``.

    Raises:
        BadFile: there is no such file, or it is too large or no text.
        BadRequest: it holds something else, or was changed to what no plan says.
    """
    from planner.answer.load import made_elsewhere, read

    found = read(text_in(path), path)
    if not quiet and (remark := made_elsewhere(found)):
        say(f"{path}: {remark}")
    return found


def with_saved_strategy(request: PlanRequest, config: str | None, origins: Mapping[str, str]) -> PlanRequest:
    """The request with the strategy of the answer in ``config``; pins that were given as options win.

    What the answer's question had pinned, such as a range, does not: its strategy keeps to that. ``origins`` says who
    gave each value. Stages keep their layers where no option says otherwise.

    Raises:
        BadRequest: the answer was changed to what no plan says.
    """
    from planner.answer.load import REPLANNED, SCHEMA

    document = document_in(config)
    plan = answer_in(str(config), quiet=True) if document.get("schema") in {SCHEMA, REPLANNED} else None
    if plan is None or plan.strategy is None:
        return request
    found = plan.strategy.model_dump(mode="json")
    pins = {axis: value for axis, value in found.items() if axis in PIN_AXES}
    ordered = _in_cluster_order(found["stages"], plan.request["cluster"])
    pins |= _widths(ordered)
    pins["recompute_modules"] = ",".join(pins["recompute_modules"]) or None
    layers, again = (tuple(stage[name] for stage in found["stages"]) for name in ("layers", "recompute_layers"))
    if any(0 < repeated < held for repeated, held in zip(again, layers, strict=True)):
        pins["recompute"] = "partial"
    given = {axis: value for axis, value in request.pins.items() if origins.get(f"pins.{axis}") != config}
    update: dict[str, Any] = {"pins": pins | given}
    same = ordered == found["stages"] and all(value in (None, pins[axis]) for axis, value in given.items())
    if same and request.layers_per_stage is None:
        update["layers_per_stage"] = layers
        update["recomputed_per_stage"] = again if update["pins"]["recompute"] == "partial" else None
    return request.model_copy(update=update)


def _in_cluster_order(stages: list[dict[str, Any]], cluster: Any) -> list[dict[str, Any]]:
    """The stages with those of each node group where the cluster has that group, as pins and layers are given."""
    groups = cluster.get("groups", ()) if isinstance(cluster, Mapping) else ()
    place = {group["name"]: number for number, group in enumerate(groups)}
    return sorted(stages, key=lambda stage: place.get(stage["group"], 0))


def _widths(stages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Pins of node groups whose stages differ in their ranks, one value a group."""
    by_group = {stage["group"]: stage for stage in stages if "tp" in stage}
    lists = {axis: [stage[axis] for stage in by_group.values()] for axis in ("tp", "dp", "micro_batch_size")}
    return {**lists, "sharding_degree": None} if by_group else {}


def document_in(config: str | None) -> dict[str, Any]:
    """What a configuration holds, TOML, JSON or YAML by its name; nothing where none is given.

    Raises:
        BadFile: it is none of these.
    """
    from hardware.files import expanded, parsed
    from planner.jobs.yaml_text import yaml_table

    if config is None:
        return {}
    path = expanded(config)
    return (yaml_table if path.suffix in {".yaml", ".yml"} else parsed)(text_in(config), path)


def is_run(document: Mapping[str, Any]) -> bool:
    """Whether a configuration is a measured run: it says so, or has a request and what was measured."""
    return str(document.get("schema", "")).startswith("run/") or {"request", "measured"} <= document.keys()


def measured_run(config: str | None) -> Run | None:
    """The measured run that is given as a configuration, None where it is none.

    Raises:
        BadFile: it is no document of a run.
    """
    document = document_in(config)
    if not is_run(document):
        return None
    from planner.runs.files import run_in

    return run_in(Path(str(config)), "the document", document)


def check_outputs(ctx: click.Context) -> None:
    """Refuse, before any work, an answer that cannot be written, or would be over what the command reads.

    "-" is stdout.

    Raises:
        BadRequest: there is no such place, or it is read-only.
        click.UsageError: the two are one file.
    """
    params: dict[str | None, click.Parameter] = {param.name: param for param in ctx.command.get_params(ctx)}
    for name in WRITTEN:
        target = ctx.params.get(name)
        if target == "-":  # as for a file that is read: the stream
            ctx.params[name] = target = None
        if not isinstance(target, str) or ctx.resilient_parsing:
            continue
        option = params[name].opts[0]
        for other, text in _texts(ctx, params, name):
            if _same(target, text):
                raise click.UsageError(
                    f"{option} {target} would write over {other}, which is read; name another file", ctx
                )
        if params[name].metavar == "FILE":
            check_writable(target, option)


def _texts(ctx: click.Context, params: dict[str | None, click.Parameter], written: str) -> Iterator[tuple[str, str]]:
    """What else is given as text, with its name for a person: all arguments, options where they look like a file."""
    for name, value in ctx.params.items():
        param = params.get(name)
        if param is None or name == written:
            continue
        for text in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(text, str) and (isinstance(param, click.Argument) or "." in text or "/" in text):
                yield text if isinstance(param, click.Argument) else f"{param.opts[0]} {text}", text


def _same(target: str, text: str) -> bool:
    try:
        one, other = Path(target).expanduser(), Path(text).expanduser()
        return one.resolve() == other.resolve() and (not one.exists() or one.is_file())
    except (OSError, RuntimeError, ValueError):  # not a path at all
        return False
