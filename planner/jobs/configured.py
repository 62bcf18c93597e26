"""The configuration that a command line names, with what its words say otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.jobs.data import put
from planner.jobs.imported import ImportedJob
from planner.jobs.reader import Context, Launch
from planner.jobs.yaml_text import parse_yaml


def with_overrides(document: Mapping[str, Any], pairs: Mapping[str, str]) -> dict[str, Any]:
    """A document with what ``path=value`` says in its place; values are YAML's."""
    made: dict[str, Any] = {**document}
    for path, text in pairs.items():
        try:
            put(made, path.split("."), parse_yaml(text))
        except ValueError:
            put(made, path.split("."), text)
    return made


def configured(
    launch: Launch, context: Context, name: str, pairs: Mapping[str, str] | None = None
) -> dict[str, Any] | ImportedJob:
    """The file that a command line names with its overrides, or what is missing where it is not here."""
    file = launch.file(name, context) if name else None
    if name and (file is None or file.document is None):
        return ImportedJob(missing=(f"{name} has the options, but is not here; give that file too",))
    return with_overrides((file.document if file else None) or {}, pairs or {})
