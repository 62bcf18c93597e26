"""The command group, whose default command is ``solve``."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from hardware.errors import meant
from planner.cli import (
    allocate,
    calibrate,
    catalogue,
    compare,
    export,
    init,
    probe,
    questions,
    read,
    replan,
    report,
    serve,
    size,
    sparse,
    sweep,
    trace,
)
from planner.cli.command import START, Command
from planner.cli.ending import Ending
from planner.request.budget import count_start_up

PURPOSES: dict[str, tuple[str, ...]] = {
    "Ask": ("solve", "predict", "why-not", "size", "compare", "sweep"),
    "Your own job": ("read", "export", "replan", "allocate", "sparse"),
    "Show": ("report", "trace", "serve"),
    "Measure and trust": ("init", "validate", "probe", "calibrate"),
    "Look up": ("list", "show", "schema"),
}
"""Commands by what they are for; those that stand nowhere here come last."""
_OTHER_WORDS = {"explain": "`plan why-not` says why another choice is worse, `plan show` what the catalogue knows"}
"""What people call a command, with those that do it."""
EPILOG = """\b
Exit codes: 0 answered; 1 unexpected error, or output that cannot be written;
2 bad request; 3 proved infeasible; 4 time ran out before any plan;
130 interrupted.
Every option reads its default from PLAN_<OPTION>, such as PLAN_CLUSTER."""


class PlanGroup(click.Group):
    """A group that takes an option where a command is expected for a question to ``solve``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``solve`` in front of anything that neither names a command nor asks for help.

        Where a shell asks what may follow, nothing typed yet may still become a command.
        """
        if (not args and not ctx.resilient_parsing) or (
            args and (args[0].startswith("-") and args[0] not in {"-h", "--help", "--version"})
        ):
            args = ["solve", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands, or the options of ``solve``, which needs no name."""
        own = super().shell_complete(ctx, incomplete)
        if not incomplete.startswith("-"):
            return own
        solve = self.commands["solve"]
        return own + solve.shell_complete(click.Context(solve, parent=ctx, info_name="solve"), incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of that name.

        Raises:
            click.UsageError: there is none, with the nearest names.
        """
        if args[0] not in self.commands:
            if Path(args[0]).is_file():
                raise click.UsageError(f"{args[0]} is a file: plan read, plan predict or plan --from {args[0]}", ctx)
            hint = _OTHER_WORDS.get(args[0]) or meant(args[0], self.commands, most=2)
            raise click.UsageError(f"no such command {args[0]!r}: {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that everybody needs first, the commands by what they are for, and its own options."""
        solve = self.commands["solve"]
        assert isinstance(solve, Command)
        own = [record for param in self.get_params(ctx) if (record := param.get_help_record(ctx))]
        first = [record for one in solve.sections(ctx, whole=False)[START] if (record := one.get_help_record(ctx))]
        grouped = {name for names in PURPOSES.values() for name in names}
        others = tuple(name for name in self.commands if name not in grouped)
        listed = {
            heading: [(name, self.commands[name].get_short_help_str(60)) for name in names]
            for heading, names in (PURPOSES | {"More commands": others}).items()
        }
        for heading, records in {START: first, **listed, "Options": own}.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Commands in the order of their use, not of the alphabet."""
        return list(self.commands)

    def main(  # type: ignore[override]  # it always ends the process, as click's does in standalone mode
        self, args: Sequence[str] | None = None, prog_name: str | None = "plan", **extra: Any
    ) -> None:
        """Run a command line and end the process with the documented exit code."""
        if "_PLAN_COMPLETE" in os.environ:
            super().main(args, prog_name, complete_var="_PLAN_COMPLETE")
        if args is None:
            count_start_up()
        arguments = list(sys.argv[1:] if args is None else args)
        extra.pop("standalone_mode", None)
        with Ending(verbose="-v" in arguments or "--verbose" in arguments):
            with self.make_context("plan", arguments, **extra) as ctx:
                self.invoke(ctx)
            sys.exit(0)


COMMANDS: tuple[click.Command, ...] = (
    questions.solve,
    questions.predict,
    questions.why_not,
    read.read,
    size.size,
    trace.trace,
    compare.compare,
    sweep.sweep,
    export.export,
    sparse.sparse,
    allocate.allocate,
    replan.replan,
    serve.serve,
    report.report,
    catalogue.validate,
    init.init,
    probe.probe,
    calibrate.calibrate,
    catalogue.list_,
    catalogue.show,
    catalogue.schema,
)


@click.group(
    cls=PlanGroup,
    commands=COMMANDS,
    no_args_is_help=False,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="meshwright", message="plan %(version)s", help="Show the version.")
def main() -> None:
    """Find the fastest way to split a training run over N accelerators, prove it, and say why.

    \b
      plan -m 175b -g 12288                       the best plan (= plan solve)
      plan -m 175b -g 1024 --tp ..8               with some choices pinned
      plan why-not -m 175b -g 1024 --tp 16 --pp 8
      plan read run.sh                            what your script or log holds
      plan list models

    `plan COMMAND --help` explains the options of a command; `plan solve --help` those of a plan.
    """  # noqa: D301 - click reads the backspace
