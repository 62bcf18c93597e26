"""Single values of a file's tables, each of the kind that it must be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.given import Asked

AUTO: Final = "auto"
"""What Hugging Face fills in from its own arguments."""


def table(document: Mapping[str, Any], name: str, *, such_as: str) -> Asked:
    """A table of a document, empty where absent.

    Raises:
        BadRequest: something else is there.
    """
    found = document.get(name)
    if found is None:
        return Asked({})
    if not isinstance(found, Mapping):
        raise BadRequest(f"{name}: expected a table such as {such_as}, got {found!r:.40}")
    return Asked(found)


def whole(at: Mapping[str, Any], name: str, default: int | None = None, *, least: int = 1, within: str = "") -> Any:
    """A whole number, or the default where it is absent or null.

    Raises:
        BadRequest: something else, or less than ``least``.
    """
    value = at.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadRequest(f"{within}{name}: expected a whole number from {least} on, got {value!r:.40}")
    return value


def flag(at: Mapping[str, Any], name: str, *, within: str = "", default: bool = False) -> bool:
    """True or false.

    Raises:
        BadRequest: something else.
    """
    value = at.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadRequest(f"{within}{name}: expected true or false, got {value!r:.40}")
    return value


def word(at: Mapping[str, Any], name: str, known: Iterable[str], default: str, *, within: str = "") -> str:
    """One of the words that are known, in any case, as they are written there.

    Raises:
        BadRequest: another.
    """
    value, names = at.get(name), list(known)
    if value is None:
        return default
    spelled = {one.lower(): one for one in names}
    if not isinstance(value, str) or value.lower() not in spelled:
        raise BadRequest(f"{within}{name}: {value!r:.40} is not priced; {', '.join(names)} are")
    return spelled[value.lower()]
