"""Files that another file names: looked for beside it first, then from the working directory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from planner.errors import BadRequest

FIELDS: Final = re.compile(r"(model|cluster|stack|profile|stability)s?")
"""Fields that may name a file."""
FILES: Final = (".toml", ".json", ".yaml", ".yml")
CONDITIONS: Final = "where"
"""The field whose texts compare with the values of others."""


def led(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The document with the files that lie beside its own file named as they are from here.

    Args:
        document: what a file holds.
        path: the file.
    """
    files = (name for name in _named(document) if "/" in name or name.lower().endswith(FILES))
    found = {name: str(path.parent / name) for name in files if (path.parent / name).is_file()}
    return {field: _moved(field, value, found) for field, value in document.items()}


def profiled(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the cluster and the stack of the profile that it names; what it says of either itself wins.

    Raises:
        BadFile: there is no such profile.
        BadRequest: it is not the name of a file.
    """
    profile = document.get("profile")
    if profile is None:
        return dict(document)
    if not isinstance(profile, str):
        raise BadRequest(f"profile: expected the file that `plan calibrate` wrote, got {profile!r:.40}")
    from planner.runs.judge import parts_of

    parts = parts_of(profile)
    names = {name: profile for name, part in (("cluster", "machines"), ("stack", "software")) if part in parts}
    return names | {name: value for name, value in document.items() if name != "profile"}


def _named(document: Mapping[str, Any]) -> Iterator[str]:
    """Texts of all fields that may name a file."""
    for field, value in document.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Mapping):
                yield from _named(one)
            elif isinstance(one, str) and FIELDS.fullmatch(field) and "\0" not in one:
                yield one


def _moved(field: str, value: Any, found: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _moved(name, inner, found) for name, inner in value.items()}
    if isinstance(value, list):
        return [_moved(field, one, found) for one in value]
    if isinstance(value, str) and field == CONDITIONS:
        return re.sub(r"(['\"])(.*?)\1", lambda said: f"{said[1]}{found.get(said[2], said[2])}{said[1]}", value)
    return found.get(value, value) if isinstance(value, str) and FIELDS.fullmatch(field) else value
