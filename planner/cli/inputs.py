"""Files that a command reads are not written over by its answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

WRITTEN: Final = ("output", "results")
"""Parameters that name a file to write an answer to; stores of studies look after themselves."""


def keep_inputs(ctx: click.Context) -> None:
    """Refuse an answer that would be written over what the same command reads; "-" is stdout.

    Raises:
        click.UsageError: the two are one file.
    """
    params: dict[str | None, click.Parameter] = {param.name: param for param in ctx.command.get_params(ctx)}
    for name in WRITTEN:
        target = ctx.params.get(name)
        if target == "-":  # as for a file that is read: the stream
            ctx.params[name] = target = None
        if not isinstance(target, str):
            continue
        for other, text in _texts(ctx, params, name):
            if _same(target, text):
                said = f"{params[name].opts[0]} {target}"
                raise click.UsageError(f"{said} would write over {other}, which is read; name another file", ctx)


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
