"""Answers that were saved, read back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from planner.cli.ending import say
from planner.errors import BadRequest

if TYPE_CHECKING:
    from planner.document import Plan


def answer_in(path: str, *, quiet: bool = False) -> Plan:
    """What `plan --format json` wrote to a file, or to stdin where the path is "-".

    A remark on stderr says where another version made it, unless ``quiet``.

    Raises:
        BadFile: there is no such file, or it is too large or no text.
        BadRequest: it holds something else, or was changed to what no plan says.
    """
    from hardware.files import expanded, read_text
    from planner.saved import made_elsewhere, read

    try:
        text = sys.stdin.read() if path == "-" else read_text(expanded(path))
    except UnicodeDecodeError:
        raise BadRequest(f"{path}: not text in UTF-8") from None
    found = read(text, path)
    if not quiet and (remark := made_elsewhere(found)):
        say(f"{path}: {remark}")
    return found
