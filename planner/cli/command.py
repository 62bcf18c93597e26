"""Commands and their options: help in groups, the usual ones first; each option once, and no answer over an input."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from planner.cli.input import check_outputs
from planner.cli.values import Text, short
from planner.errors import BadRequest

START: Final = "Start with these"
STRATEGY: Final = "Strategy, where you want to choose: 8, 4,8, ..8 or 2..16"
ANSWER: Final = "Answer"
HEADINGS: Final = (
    START,
    "",
    "Job",
    "Machines and framework",
    STRATEGY,
    "Goal",
    "Files of a job",
    "Instead of a plan",
    ANSWER,
)
"""Groups of the help in their order; at "" stand those that a command has of its own."""
_OWN: Final = "Options"
"""What the help writes above those of "", which would be a lone colon."""
_ALL: Final = "planner.help_all"
TYPED: Final = "planner.typed"
"""Where a context keeps how its options were spelt."""
_LONGEST_PIN: Final = 200
_LONGEST_TEXT: Final = 4096


class Option(click.Option):
    """An option under a heading of the help, which shows its first name, and a short one before it.

    The others stand behind the text where all is shown, as does an ``expert`` one.
    """

    def __init__(self, *declarations: Any, heading: str = ANSWER, expert: bool = False, **settings: Any) -> None:
        super().__init__(*declarations, **settings)
        self.heading, self.expert = heading, expert
        if self.expose_value and self.name and not isinstance(settings.get("envvar"), str):
            spelt = [self.name, *(name[2:].replace("-", "_") for name in self.opts if name.startswith("--"))]
            self.envvar = list(dict.fromkeys(f"PLAN_{name.upper()}" for name in spelt))

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The first spelling and the text; other spellings in brackets behind it."""
        record = super().get_help_record(ctx)
        if record is None or self.is_flag:
            return record
        # click lists all spellings before the value: "--tp, --tensor-model-parallel-size TEXT"
        metavar = record[0].rpartition(" ")[2]
        first, *others = self.opts
        brief = "".join(f"{name}, " for name in others if not name.startswith("--"))
        long = [name for name in others if name.startswith("--")]
        also = f"  [also {', '.join(long)}]" if long and ctx.meta.get(_ALL) else ""
        return f"{brief}{first} {metavar}", record[1] + also


class Command(click.Command):
    """A command whose help groups the options under their headings, and that takes each option once."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, but refuse an option with two values and an answer over an input, of which one would be lost."""
        ctx.meta[TYPED] = self._typed(ctx, args)
        rest = super().parse_args(ctx, args)
        check_outputs(ctx)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """Answer; what is wrong with a value is said under the option or variable that gave it, not its field."""
        try:
            return super().invoke(ctx)
        except BadRequest as error:
            error.args = (_as_typed(str(error), ctx.meta[TYPED]),)
            raise

    def _typed(self, ctx: click.Context, args: list[str]) -> dict[str, str]:
        """The spelling that was typed of every option, by its parameter.

        Raises:
            click.UsageError: one has two values.
        """
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
                both = f"{before} and {name}" if param.is_flag else f"{before} {short(other)} and {name} {short(value)}"
                raise click.UsageError(f"{both} are given; leave one of them out", ctx)
        return {param: name for param, (name, _) in said.items() if param and name.startswith("--")}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its parameters, with ``--help-all`` where the usual help leaves any out."""
        found = super().get_params(ctx)
        return [*found, HELP_ALL] if any(getattr(param, "expert", False) for param in found) else found

    def sections(self, ctx: click.Context, *, whole: bool) -> dict[str, list[click.Option]]:
        """Its options under their headings, in order; the ``whole`` has expert ones too."""
        found: dict[str, list[click.Option]] = {}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (whole or not getattr(param, "expert", False)):
                found.setdefault(getattr(param, "heading", ANSWER), []).append(param)
        places = {heading: place for place, heading in enumerate(HEADINGS)}
        return {name: found[name] for name in sorted(found, key=lambda name: places.get(name, places[""]))}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per heading, and where the rest is."""
        whole = bool(ctx.meta.get(_ALL))
        for heading, options in self.sections(ctx, whole=whole).items():
            if records := [record for one in options if (record := one.get_help_record(ctx))]:
                with formatter.section(heading or _OWN):
                    formatter.write_dl(records)
        left = sum(getattr(param, "expert", False) for param in self.get_params(ctx))
        if left and not whole:
            formatter.write_paragraph()
            formatter.write_text(f"{left} more options: {ctx.command_path} --help-all")


def _help_all(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


HELP_ALL: Final = Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_help_all,
    help="Show all options, other spellings too, and exit.",
)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def option(*names: str, heading: str = "", **settings: Any) -> Decorator:
    """An `Option` as a decorator; text that is neither empty nor an option unless said otherwise."""
    if not settings.get("is_flag") and "type" not in settings:
        settings["type"] = Text(_LONGEST_PIN if heading == STRATEGY else _LONGEST_TEXT)
    return click.option(*names, cls=Option, heading=heading, **settings)


def stacked(*decorators: Decorator) -> Decorator:
    """Several options as one decorator, listed in the order given."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def _as_typed(sentence: str, typed: Mapping[str, str]) -> str:
    """The sentence with the spelling that was typed of the field with which it begins.

    A field of one word may be one of the sentence's own, as in "tp 7 does not divide", and needs its colon.
    """
    for field, spelling in typed.items():
        if sentence.startswith((f"{field}: ", f"{field} ") if "_" in field else f"{field}: "):
            return spelling + sentence.removeprefix(field)
    return sentence
