"""docs/cli.md, the reference of every command, from the parser itself: python scripts/refresh_cli.py [--check]."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from planner.cli import main
from planner.cli.app import EPILOG
from planner.cli.command import Command

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEAD = """# plan(1)

Written by `scripts/refresh_cli.py` from the parser; `plan COMMAND --help` says the same in a terminal.
"""


def page() -> str:
    """The whole reference as Markdown."""
    root = click.Context(main, info_name="plan", **main.context_settings)
    named = [(name, main.get_command(root, name)) for name in main.list_commands(root)]
    table = [f"| [`plan {name}`](#plan-{name}) | {command.get_short_help_str(80)} |" for name, command in named]
    parts = [
        HEAD,
        "## Name\n",
        f"plan - {first_line(main)}\n",
        "## Commands\n",
        "| command | does |\n|---|---|",
        *table,
    ]
    parts += ["\nWithout a command it is `plan solve`.\n", "## Exit status\n", *exits(), ""]
    parts += [line for name, command in named for line in section(root, name, command)]
    return "\n".join(parts).rstrip() + "\n"


def first_line(command: click.Command) -> str:
    """The first paragraph of a command's help."""
    return inspect.cleandoc(command.help or "").split("\n\n", maxsplit=1)[0].replace("\n", " ")


def exits() -> Iterator[str]:
    """The epilogue's codes, one a line."""
    said = " ".join(EPILOG.replace("\b", "").split())
    codes, _, rest = said.partition("Every option")
    yield from (f"- {code.strip().rstrip('.')}" for code in codes.removeprefix("Exit codes:").split(";"))
    yield f"\nEvery option{rest}"


def section(root: click.Context, name: str, command: click.Command) -> Iterator[str]:
    """One command: synopsis, description, arguments and options."""
    context = click.Context(command, info_name=name, parent=root)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"## plan {name}\n"
    yield f"    plan {name} {usage}\n"
    yield f"{text(command.help)}\n"
    for heading, options in headed(command, context).items():
        if heading:
            yield f"**{heading}**\n"
        yield from (line for one in options if not one.hidden for line in option(one, context))
        yield ""


def headed(command: click.Command, context: click.Context) -> dict[str, list[click.Option]]:
    """All options of a command under the headings of its help."""
    if isinstance(command, Command):
        return command.sections(context, whole=True)
    return {"": [one for one in command.get_params(context) if isinstance(one, click.Option)]}


def text(said: str | None) -> str:
    """Help as paragraphs; what click would not fill again becomes a block."""
    parts = inspect.cleandoc(said or "").split("\n\n")
    return "\n\n".join(block(part) if part.startswith("\b") else part for part in parts)


def block(part: str) -> str:
    """A paragraph that keeps its lines."""
    lines = part.removeprefix("\b").strip("\n").splitlines()
    return "\n".join(["```text", *inspect.cleandoc("\n".join(lines)).splitlines(), "```"])


def option(one: click.Option, context: click.Context) -> Iterator[str]:
    """The spellings with what they take, then what it means, its default and its variable."""
    spelled = ", ".join(f"`{word}`" for word in (*one.opts, *one.secondary_opts))
    takes = "" if one.is_flag or one.count else f" *{one.make_metavar(context).replace('|', ' | ')}*"
    names = [one.envvar] if isinstance(one.envvar, str) else list(one.envvar or ())
    variable = f" [{', '.join(f'`{name}`' for name in names)}]" if names else ""
    record = one.get_help_record(context)
    said = record[1].partition("  [also ")[0].replace("<", "\\<") if record else ""
    yield f"- {spelled}{takes}{variable}: {said.strip()}"


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        fresh = PAGE.read_text(encoding="utf-8") == page()
        sys.exit(0 if fresh else "docs/cli.md is stale: python scripts/refresh_cli.py")
    PAGE.write_text(page(), encoding="utf-8")
