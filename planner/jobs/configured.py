"""The configuration that a command line names, with what its words say otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.jobs.data import put
from planner.jobs.imported import ImportedJob
from planner.jobs.reader import Context, Launch
from planner.jobs.yaml_text import parse_yaml


def configured(
    launch: Launch, context: Context, name: str, pairs: Mapping[str, str], job: Callable[[dict[str, Any]], ImportedJob]
) -> ImportedJob:
    """The job of the file that a command line names with its overrides, or that the file is missing.

    Args:
        launch: the command line.
        context: with the files.
        name: of the file; without one the overrides are all.
        pairs: what ``path=value`` says in place of the file; values are YAML's.
        job: of the document that this makes.
    """
    file = launch.file(name, context) if name else None
    if name and (file is None or file.document is None):
        return ImportedJob(missing=(f"{name} has the options, but is not here; give that file too",))
    made: dict[str, Any] = {**((file.document if file else None) or {})}
    for path, text in pairs.items():
        try:
            put(made, path.split("."), parse_yaml(text))
        except ValueError:
            put(made, path.split("."), text)
    return job(made)
