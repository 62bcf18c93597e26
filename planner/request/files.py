"""Files that another file names: looked for next to it first, then from the working directory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from costmodels.stack.stack import Stack
from costmodels.stack.stack import stack as find_stack
from hardware.catalogue import cluster as find_cluster
from hardware.files import PROFILE, expanded, read
from hardware.records import Cluster
from planner.errors import BadFile, BadRequest

FIELDS: Final = re.compile(r"(model|cluster|stack|profile|stability)s?")
"""Fields that may name a file."""
FILES: Final = (".toml", ".json", ".yaml", ".yml")
CONDITIONS: Final = "where"
"""The field whose texts compare with the values of others."""


def with_relative_files(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The document with the files that lie next to its own file named as they are from here."""
    return {field: _moved(field, value, path.parent) for field, value in document.items()}


def _moved(field: str, value: Any, folder: Path) -> Any:
    if isinstance(value, Mapping):
        return {name: _moved(name, inner, folder) for name, inner in value.items()}
    if isinstance(value, list):
        return [_moved(field, one, folder) for one in value]
    if isinstance(value, str) and field == CONDITIONS:
        return re.sub(r"(['\"])(.*?)\1", lambda said: f"{said[1]}{_in_folder(said[2], folder)}{said[1]}", value)
    return _in_folder(value, folder) if isinstance(value, str) and FIELDS.fullmatch(field) else value


def _in_folder(name: str, folder: Path) -> str:
    """A file of the folder as it is named from here; any other name as it is."""
    is_file = ("/" in name or name.lower().endswith(FILES)) and "\0" not in name and (folder / name).is_file()
    return str(folder / name) if is_file else name


def with_profile(document: Mapping[str, Any]) -> dict[str, Any]:
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
    names = dict.fromkeys(profile_records(profile), profile)
    return names | {name: value for name, value in document.items() if name != "profile"}


def profile_records(profile: str) -> dict[str, Cluster | Stack]:
    """The cluster and, where it has one, the stack of a profile, by the field that takes it.

    Raises:
        BadFile: it is no profile.
    """
    path = expanded(profile)
    document = read(path)
    if document.get("schema") != PROFILE:
        raise BadFile(path, "no profile; `plan calibrate FILE... -o profile.toml` writes one")
    stack = {"stack": find_stack(str(path))} if "stack" in document else {}
    return {"cluster": find_cluster(path), **stack}
