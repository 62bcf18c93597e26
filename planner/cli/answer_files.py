"""Answers that were saved, read back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from planner.cli.ending import say
from planner.errors import BadRequest

if TYPE_CHECKING:
    from planner.answer.plan import Plan

_TEXTS: Final = "planner.texts"


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
