"""Answers that were saved, read back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from planner.errors import BadRequest

if TYPE_CHECKING:
    from planner.document import Plan


def answer_in(path: str) -> Plan:
    """What `plan --format json` wrote to a file, or to stdin where the path is "-".

    Raises:
        BadFile: there is no such file, or it is too large or no text.
        BadRequest: it holds something else, or was changed to what no plan says.
    """
    from pydantic import ValidationError

    from hardware.files import expanded, read_text
    from planner.document import Plan
    from planner.saved import checked

    try:
        found = Plan.model_validate_json(sys.stdin.read() if path == "-" else read_text(expanded(path)))
    except ValidationError:
        raise BadRequest(f"{path}: not an answer of `plan --format json`") from None
    except UnicodeDecodeError:
        raise BadRequest(f"{path}: not text in UTF-8") from None
    return checked(found, path)
