"""A question as a file has it: fields of a request, and its pins in a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import BadRequest
from planner.request.fields import IN_STEPS, PIN_AXES, QUESTION, by_own_name, no_such_field
from planner.request.files import with_profile


def question_fields(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of a question and its pins, these as ``pins.tp``.

    Args:
        document: the file, whose names of other files are right from here.
        where: its name, which stands in front of what is wrong in it.

    Raises:
        BadRequest: a field that no question has.
        BadFile: a profile that is none.
    """
    document = by_own_name(with_profile(document), QUESTION)
    pins = document.pop("pins", {})
    if not isinstance(pins, Mapping):
        raise BadRequest(f"{where}: pins must be a table such as [pins] tp = 8, got {pins!r}")
    if unknown := [name for name in document if name not in QUESTION]:
        raise BadRequest(f"{where}: {no_such_field(unknown[0], '[pins]')}")
    return document | {f"pins.{name}": value for name, value in by_own_name(pins, (*PIN_AXES, *IN_STEPS)).items()}
