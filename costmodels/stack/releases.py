"""Releases of a stack: what a framework did before each of its changes, with the public reason.

A stack's file states today. Each of its ``[[releases]]`` says since when something is so and how it was ``before``, so
that a fact stands once: a release, or a month, is today with all later changes taken back. A release whose fields are a
file of their own names that ``stack``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from hardware.errors import UnknownName
from hardware.kernels import Label, Record
from hardware.units import Matching

_MONTH: Final = re.compile(r"20\d\d-(0[1-9]|1[0-2])")
Month = Annotated[str, Matching(_MONTH.pattern, "a month such as 2024-12")]


class Release(Record):
    """A change of a framework: from which release and month on, why, and how it was before."""

    name: Label
    since: Month
    """Month of the release, such as 2025-04."""
    reason: Label
    """What changed, and who says so."""
    stack: Label | None = None
    """The stack of the catalogue that this release is; None: this one."""
    before: Mapping[str, Mapping[str, Any]] = {}
    """Fields as they were before, by group, as in a stack's file."""


def chosen(name: str, wanted: str, releases: Sequence[Release]) -> int:
    """How many of the releases, the oldest first, there were at a release or in a month.

    Raises:
        UnknownName: no such release of the stack, with the nearest.
    """
    names = [one.name.lower() for one in releases]
    if (said := wanted.strip().lower()) in names:
        return names.index(said) + 1
    if _MONTH.fullmatch(said):
        return sum(one.since <= said for one in releases)
    known = [*names, "a month such as 2025-04"]
    raise UnknownName(f"release of stack {name}", wanted, known, listed_by=f"plan show {name} --kind stacks")


def before_releases(fields: Mapping[str, Any], later: Sequence[Release]) -> dict[str, Any]:
    """The fields of a stack's file as they were before some releases, the oldest of which comes first."""
    found = {name: dict(value) if isinstance(value, Mapping) else value for name, value in fields.items()}
    for release in reversed(later):
        for group, values in release.before.items():
            found[group] = {**found.get(group, {}), **values}
    return found
