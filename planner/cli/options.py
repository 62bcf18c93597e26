"""Options of the questions, as the table of fields says, in the groups of the help."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from planner.cli.command import ANSWER, START, STRATEGY, Decorator, option, stacked
from planner.cli.values import Count, Length, Read, Text, Word, factor, read_as
from planner.request.fields import FIELDS, PIN_AXES, QUESTION

_JOB, _MACHINES, _GOAL, _FILES = "Job", "Machines and framework", "Goal", "Files of a job"
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    START: ("model", "gpus", "cluster", "global_batch_size"),
    _JOB: ("seq_length", "tokens", "precision", "optimizer", "task", "adapters"),
    _MACHINES: ("stack", "framework", "price", "memory_margin"),
    STRATEGY: ("tp", "pp", "dp", "cp", "ep", "vpp", "zero_stage", "micro_batch_size", "recompute", "offload"),
    _GOAL: ("objective", "time_limit"),
    ANSWER: ("top", "reasons"),
}
"""Fields that the usual help shows, by their headings; the others are for experts."""
_EXPERT: Final[Mapping[str, tuple[str, ...]]] = {_MACHINES: ("as_of", "changes", "stability"), _GOAL: ("ties",)}
"""Headings of those others that are neither about the job nor of the strategy."""
_SHORT: Final[Mapping[str, str]] = {"model": "-m", "gpus": "-g", "cluster": "-c"}


def _changes(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, str] | None:
    """Paths and values of every ``path=value``."""
    changes: dict[str, str] = {}
    for text in given:
        path, sign, value = (part.strip() for part in text.partition("="))
        if not (path and sign and value):
            raise click.BadParameter(f"expected path=value, got {text!r:.60}; such as stack.overlap.pp=0.1")
        if path in changes:
            raise click.BadParameter(f"{path} is given twice; give it once")
        changes[path] = value
    return changes or None


FORMATS: Final = ("table", "json", "yaml", "env", "args")


def _group(name: str) -> dict[str, Any]:
    """The heading of a field, and whether it is for experts."""
    usual = next((heading for heading, names in GROUPS.items() if name in names), None)
    other = next((heading for heading, names in _EXPERT.items() if name in names), None)
    split = FIELDS[name].axis or FIELDS[name].kind == "counts"
    return {"heading": usual or other or (STRATEGY if split else _JOB), "expert": usual is None}


def field_option(name: str, **other: Any) -> Decorator:
    """The option of a field of a question or of an axis, as the table of them says but for what is said otherwise."""
    field = FIELDS[name]
    words = [*(f"--{word}" for word in field.words), *([_SHORT[name]] if name in _SHORT else [])]
    settings: dict[str, Any] = _group(name) | {"help": field.help, "metavar": field.takes}
    if field.axis:
        settings["metavar"] = field.takes or "VALUES"
    if field.kind == "switch":
        words = [f"{words[0]}/--no-{words[0][2:]}"]
        settings |= {"is_flag": True, "default": None, "metavar": None}
    elif field.kind == "count":
        settings["type"] = Count(field.least)
    elif field.kind == "length":
        settings["type"] = Length(field.least)
    elif field.kind == "number":
        settings["type"] = Read(factor)
    elif field.kind in {"tokens", "time", "share", "price", "counts"}:
        settings["type"] = read_as(field.kind)
    elif field.kind == "changes":
        settings |= {"multiple": True, "callback": _changes}
    return option(*words, name, **(settings | other))


_BETWEEN: Final = {
    "stack": option(
        "--profile", heading=_MACHINES, metavar="FILE", help="Cluster and stack as `plan calibrate` wrote them."
    ),
    "ties": option(
        "--goodput",
        heading=_GOAL,
        is_flag=True,
        default=None,
        help="Count interruptions and checkpoints: --objective goodput.",
    ),
    "time_limit": option(
        "--config",
        heading=_FILES,
        metavar="FILE",
        help="File of these fields, TOML or JSON, or an answer (- for stdin).",
    ),
    "vpp": option(
        "--num-layers-per-virtual-pipeline-stage",
        "layers_per_virtual_stage",
        heading=STRATEGY,
        expert=True,
        type=Count(),
        help="The same by layers per chunk, as Megatron counts; needs one --pp.",
    ),
}
"""Options that stand for several fields, or for one in another form, behind the field that they are listed after."""


def _listed(names: Iterable[str]) -> Decorator:
    """The options of some fields, with those that stand between them."""
    between = {name: (_BETWEEN[name],) if name in _BETWEEN else () for name in names}
    return stacked(*(one for name in between for one in (field_option(name), *between[name])))


question_options = _listed(name for name in QUESTION if FIELDS[name].heading == "Question")
pin_options = _listed(PIN_AXES)


def output_options(*formats: str, takes: str = "FILE", written: str = "Write there instead of stdout.") -> Decorator:
    """Options on where the answer goes and in which of several forms, and on the talk."""
    form = option(
        "--format",
        "form",
        heading=ANSWER,
        type=Word(formats),
        default=next(iter(formats), None),
        envvar="PLAN_FORMAT",
        help="Form of the answer.",
    )
    output = option("--output", "-o", heading=ANSWER, metavar=takes, help=written)
    return stacked(*([form] if formats else []), output, talk_options)


talk_options = stacked(
    option("--quiet", "-q", heading=ANSWER, is_flag=True, help="Print no messages on stderr."),
    option(
        "--verbose",
        "-v",
        heading=ANSWER,
        is_flag=True,
        help="Show everything, and tracebacks of unexpected errors.",
    ),
)


def _pairs(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Names and values of every ``NAME=VALUE``."""
    pairs: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not (sign and name.strip().isidentifier()):
            raise click.BadParameter(f"expected NAME=VALUE, got {text!r:.60}; such as TP=8")
        pairs[name.strip()] = value
    return pairs


job_options = stacked(
    option(
        "--from",
        "source",
        heading=_FILES,
        multiple=True,
        metavar="FILE|KIND",
        help="A file of the job: script, configuration, model, log. Or a kind, which the content must be of: "
        "megatron-args, deepspeed, torchtitan, accelerate, nanotron, maxtext, hf ...",
    ),
    option(
        "--env",
        expert=True,
        heading=_FILES,
        multiple=True,
        metavar="NAME=VALUE",
        callback=_pairs,
        help="A variable that a script takes from outside. Again for more.",
    ),
    option(
        "--arg",
        "arguments",
        expert=True,
        heading=_FILES,
        multiple=True,
        metavar="VALUE",
        type=str,
        help="An argument of a script: $1, then $2 ...",
    ),
    option(
        "--launch",
        expert=True,
        heading=_FILES,
        type=Count(),
        metavar="N",
        help="Which of several launches in a script.",
    ),
    option(
        "--expand",
        expert=True,
        heading=_FILES,
        is_flag=True,
        help="Let bash expand the script: this runs its own code, every program that it calls replaced by a recorder.",
    ),
)
"""What a job needs that its files do not say."""


def _file_options(asked: str) -> Decorator:
    """A command that takes the files of a job."""
    return stacked(click.argument("files", type=Text(), nargs=-1, metavar=asked), job_options)


file_options = _file_options("[FILE]...")
needed_file_options = _file_options("FILE...")


dry_run_option = option(
    "--dry-run",
    heading=ANSWER,
    is_flag=True,
    help="Show the resolved question and who said what; stop.",
)
