"""Options of the questions: their spelling, their help, what a shell completes, and what their text alone says."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from hardware.errors import meant
from planner.cli.input import check_outputs
from planner.request.fields import FIELDS, PIN_AXES, PINS, QUESTION, Kind

_FACTOR: Final = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_DIGITS: Final = re.compile(r"\+?[0-9]+")
_LOOSE: Final = re.compile(r"([+-]?[0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)([kmbgt]?)", re.IGNORECASE)
_THOUSANDS: Final = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?[a-z]?", re.IGNORECASE)
_THOUSANDS_OF_TWO: Final = re.compile(r"([0-9]{1,6})[kK]", re.ASCII)
_SUFFIXES: Final = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
_MOST_DIGITS: Final = 15
_LONGEST_TEXT: Final = 4096
_LONGEST_PIN: Final = 200

_PLACES: Final = ("FILE", "DIR", "PATH")
"""What the placeholder of a parameter that is a file says."""
_NAMES: Final[Mapping[str, str]] = {
    "model": "models",
    "cluster": "clusters",
    "stack": "stacks",
    "target": "exporters",
    "schedule": "schedules",
    "framework": "",
    "name": "",
}
"""The kind of the catalogue that the values of a parameter come from; "" is another place, or all kinds."""


def _complete(param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names that begin so, and files where the parameter takes them."""
    found = [CompletionItem(name) for name in _known(param.name or "") if name.startswith(incomplete)]
    placed = str(param.metavar or "")
    files = isinstance(param, click.Argument) or param.name == "output" or any(word in placed for word in _PLACES)
    return found or ([CompletionItem(incomplete, type="file")] if files else [])


def _known(parameter: str) -> Iterable[str]:
    if parameter not in _NAMES:
        return ()
    from planner.frameworks.registry import ANY, FRAMEWORKS
    from planner.render.catalogue import KINDS

    if parameter == "framework":
        return (*FRAMEWORKS, ANY)
    kinds = [_NAMES[parameter]] if _NAMES[parameter] else KINDS
    return sorted({name for kind in kinds for name in KINDS[kind].names()})


class Text(click.ParamType[str]):
    """Text that is neither empty nor another option: a forgotten value must not swallow the next option."""

    name = "text"

    def __init__(self, most: int = _LONGEST_TEXT) -> None:
        self.most = most

    def shell_complete(self, _ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names of the catalogue or files, by the parameter."""
        return _complete(param, incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text, stripped."""
        text = str(value).strip()
        if len(text) > self.most:
            self.fail(f"{len(text)} characters, at most {self.most} make sense here", param, ctx)
        if not text:
            self.fail("empty, where a value is expected", param, ctx)
        if text.startswith("--"):
            self.fail(f"expected a value, got the option {text!r}", param, ctx)
        return text


class Read(Text):
    """Text that a function reads; what it says against it ends the command."""

    def __init__(self, read: Callable[[str], Any]) -> None:
        super().__init__()
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What it stands for."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(super().convert(value, param, ctx))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def read_as(kind: Kind) -> Read:
    """Text that is read as the fields of a kind are."""

    def read(text: str) -> Any:
        from planner.request.values import READERS

        return READERS[kind](text)

    return Read(read)


def quantity(dimension: str, most: float = math.inf, *, zero: bool = False) -> Read:
    """Text that is a quantity above nothing, or nothing too, in the units of the code."""

    def read(text: str) -> float:
        from hardware.units import parse_quantity

        if not text.isascii():
            raise ValueError(f"expected plain digits and a unit, got {text!r}")
        found = parse_quantity(text, dimension)  # type: ignore[arg-type]  # one of the units'
        if not (0.0 < found <= most or (zero and not found)):
            raise ValueError(f"expected more than 0 and at most {most:g}, got {text!r:.40}")
        return found

    return Read(read)


def _factor(text: str) -> float:
    if not _FACTOR.fullmatch(text):
        raise ValueError(f"expected a number, got {text!r:.40}")
    return float(text)


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


class Count(click.ParamType[int]):
    """A whole number in plain digits: "12k" or "1e3" may be meant well, but nobody should have to guess."""

    name = "n"

    def __init__(self, least: int = 1) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if isinstance(value, int):
            return value
        text = str(value).strip()
        if not _DIGITS.fullmatch(text):
            self.fail(self._refusal(text), param, ctx)
        if len(text) > _MOST_DIGITS:
            self.fail(f"a number of {len(text)} digits is out of range", param, ctx)
        if int(text) < self.least:
            self.fail(f"expected at least {self.least}, got {text}", param, ctx)
        return int(text)

    def _refusal(self, text: str) -> str:
        if not text:
            return "empty, where a whole number such as 64 is expected"
        meant = _meant(text)
        if meant is not None and meant < self.least:
            return f"expected at least {self.least}, got {_short(text)}"
        binary = f" or {meant * 128 // 125}" if meant and text.lower().endswith("k") and meant % 125 == 0 else ""
        hint = "such as 64" if meant is None else f"in plain digits: write {meant}{binary}"
        return f"expected a whole number {hint}, got {_short(text)}"


class Length(Count):
    """Tokens of a sequence: the same, but that everybody means 8,192 by "8k"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if found := _THOUSANDS_OF_TWO.fullmatch(str(value).strip()):
            value = int(found[1]) * 2**10
        return super().convert(value, param, ctx)


def _meant(text: str) -> int | None:
    """The whole number that "12k", "1e3", "12,288" or "１２" stand for, if there is one."""
    plain = unicodedata.normalize("NFKC", text)
    if "," in plain and not _THOUSANDS.fullmatch(plain.strip()):
        return None  # a list, not a number in groups of three digits
    match = _LOOSE.fullmatch(re.sub(r"[,_'\s]", "", plain))
    if match is None or len(text) > 2 * _MOST_DIGITS:
        return None
    number = float(match[1]) * _SUFFIXES[match[2].lower()]
    return int(number) if number.is_integer() and abs(number) < 10**_MOST_DIGITS else None


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


class Word(click.Choice[str]):
    """One of a few words; a singular is understood where plurals are listed."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002 - click's
        """The words."""
        return "|".join(map(str, self.choices))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word."""
        text = str(value).strip().lower()
        words = list(map(str, self.choices))
        for spelling in (text, f"{text}s"):
            if spelling in words:
                return spelling
        raise click.BadParameter(f"there is no {_short(str(value))}: {meant(text, words)}", ctx, param)


class Option(click.Option):
    """An option that shows its first name in the help, its others behind the text, under a heading."""

    def __init__(self, *declarations: Any, heading: str = "Other", **settings: Any) -> None:
        super().__init__(*declarations, **settings)
        self.heading = heading
        if self.expose_value and self.name and not isinstance(settings.get("envvar"), str):
            spelt = [self.name, *(name[2:].replace("-", "_") for name in self.opts if name.startswith("--"))]
            self.envvar = list(dict.fromkeys(f"PLAN_{name.upper()}" for name in spelt))

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The first spelling and the text; other spellings in brackets behind it."""
        record = super().get_help_record(ctx)
        if record is None or self.is_flag or self.opts[0].count("-") == 1:
            return record
        # click lists all spellings before the value: "--tp, --tensor-model-parallel-size TEXT"
        metavar = record[0].rpartition(" ")[2]
        others = f"  [also {', '.join(self.opts[1:])}]" if len(self.opts) > 1 else ""
        return f"{self.opts[0]} {metavar}", record[1] + others


class Command(click.Command):
    """A command whose help groups the options under their headings, and that takes each option once."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, but refuse an option with two values and an answer over an input, of which one would be lost."""
        self._refuse_twice(ctx, args)
        rest = super().parse_args(ctx, args)
        check_outputs(ctx)
        return rest

    def _refuse_twice(self, ctx: click.Context, args: list[str]) -> None:
        single = [p for p in self.get_params(ctx) if isinstance(p, click.Option) and not (p.multiple or p.count)]
        by_name = {name: param for param in single for name in (*param.opts, *param.secondary_opts)}
        said: dict[str | None, tuple[str, str]] = {}
        for place, word in enumerate(args[: args.index("--")] if "--" in args else args):
            name, _, value = word.partition("=")
            param = by_name.get(name)
            if param is None:
                continue
            if not (value or param.is_flag):
                value = "".join(args[place + 1 : place + 2])
            value = str(name in param.opts) if param.is_flag else value
            before, other = said.setdefault(param.name, (name, value))
            if value != other:
                both = (
                    f"{before} and {name}" if param.is_flag else f"{before} {_short(other)} and {name} {_short(value)}"
                )
                raise click.UsageError(f"{both} are given; leave one of them out", ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per heading, in order of first appearance."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(param, "heading", "Other"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def option(*names: str, heading: str = "Question", **settings: Any) -> Decorator:
    """An `Option` as a decorator; text that is neither empty nor an option unless said otherwise."""
    if not settings.get("is_flag") and "type" not in settings:
        settings["type"] = Text(_LONGEST_PIN if heading == PINS else _LONGEST_TEXT)
    return click.option(*names, cls=Option, heading=heading, **settings)


def stacked(*decorators: Decorator) -> Decorator:
    """Several options as one decorator, listed in the order given."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


_O = "Answer"
FORMATS: Final = ("table", "json", "yaml", "env", "args")


def field_option(name: str, **other: Any) -> Decorator:
    """The option of a field of a question or of an axis, as the table of them says but for what is said otherwise."""
    field = FIELDS[name]
    words = [f"--{word}" for word in field.words]
    settings: dict[str, Any] = {"heading": field.heading, "help": field.help, "metavar": field.takes}
    if field.kind == "switch":
        words = [f"{words[0]}/--no-{words[0][2:]}"]
        settings |= {"is_flag": True, "default": None}
    elif field.kind == "count":
        settings["type"] = Count(field.least)
    elif field.kind == "length":
        settings["type"] = Length(field.least)
    elif field.kind == "number":
        settings["type"] = Read(_factor)
    elif field.kind in {"tokens", "time", "share", "price", "counts"}:
        settings["type"] = read_as(field.kind)
    elif field.kind == "changes":
        settings |= {"multiple": True, "callback": _changes}
    return option(*words, name, **(settings | other))


_BETWEEN: Final = {
    "stack": option("--profile", metavar="FILE", help="Both, as `plan calibrate` wrote them."),
    "ties": option(
        "--goodput",
        is_flag=True,
        default=None,
        help="Count interruptions and checkpoints: --objective goodput.",
    ),
    "time_limit": option(
        "--config", metavar="FILE", help="File of these fields, TOML or JSON, or an answer (- for stdin)."
    ),
    "vpp": option(
        "--num-layers-per-virtual-pipeline-stage",
        "layers_per_virtual_stage",
        heading=PINS,
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
        heading=_O,
        type=Word(formats),
        default=next(iter(formats), None),
        envvar="PLAN_FORMAT",
        help="Form of the answer.",
    )
    output = option("--output", "-o", heading=_O, metavar=takes, help=written)
    return stacked(*([form] if formats else []), output, talk_options)


talk_options = stacked(
    option("--quiet", "-q", heading=_O, is_flag=True, help="No talk on stderr."),
    option("--verbose", "-v", heading=_O, is_flag=True, help="More talk on stderr."),
)


_F = "Files of a job"


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
        heading=_F,
        multiple=True,
        metavar="FILE|KIND",
        help="A file of the job: script, configuration, model, log. Or a kind, which the content must be of: "
        "megatron-args, deepspeed, torchtitan, accelerate, nanotron, maxtext, hf ...",
    ),
    option(
        "--env",
        heading=_F,
        multiple=True,
        metavar="NAME=VALUE",
        callback=_pairs,
        help="A variable that a script takes from outside. Again for more.",
    ),
    option(
        "--arg",
        "arguments",
        heading=_F,
        multiple=True,
        metavar="VALUE",
        type=str,
        help="An argument of a script: $1, then $2 ...",
    ),
    option("--launch", heading=_F, type=Count(), metavar="N", help="Which of several launches in a script."),
    option(
        "--expand",
        heading=_F,
        is_flag=True,
        help="Let bash expand the script: this runs its own code, every program that it calls replaced by a recorder.",
    ),
)
"""What is known beside the files of a job."""


def _file_options(asked: str) -> Decorator:
    """A command that takes the files of a job."""
    return stacked(click.argument("files", type=Text(), nargs=-1, metavar=asked), job_options)


file_options = _file_options("[FILE]...")
needed_file_options = _file_options("FILE...")


dry_run_option = option(
    "--dry-run",
    heading=_O,
    is_flag=True,
    help="Show the resolved question and who said what; stop.",
)
