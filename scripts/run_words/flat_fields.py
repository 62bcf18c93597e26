"""Fields of a stack by the flat names that this package knows them by, as the paths that they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.stack.renamed import new_path
from costmodels.stack.stack import PATHS, Stack

_SENT: Final = {"every-copy": "alltoall", "once-per-domain": "deepep"}


def changed(chosen: Stack, fields: Mapping[str, Any]) -> Stack:
    """The stack with other values of fields, each by its flat name or by its path."""
    given, found = dict(fields), {}
    routes, sent = given.pop("gathered_routes", False), given.pop("dispatch", None)
    if sent is not None:
        found["switches.dispatcher"] = "hybridep" if routes else _SENT.get(sent, sent)
    if "fixed_segments" in given:
        found["switches.expandable_segments"] = not given.pop("fixed_segments")
    return chosen.changed(found | {_path(name): value for name, value in given.items()})


def _path(name: str) -> str:
    if name in PATHS:
        return name
    path = new_path(name, PATHS)
    if path is None:
        raise KeyError(name)
    return path
