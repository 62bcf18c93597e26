"""A cluster file that somebody uploads or pastes: its table, checked, and the machines in words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from hardware.assembly import cluster_record
from hardware.files import PROFILE, Document, built, parsed, part
from hardware.records import Cluster
from planner.answer.plan import Record
from planner.answer.text import plural
from planner.errors import BadFile, BadRequest
from planner.machines.readers import READERS
from planner.service.guard import names_only

YOURS: Final = Path("your file")
"""What errors call a text without a name."""


class Machines(Record):
    """What a cluster file says, schema ``machines/1``."""

    schema_: Literal["machines/1"] = Field("machines/1", alias="schema")
    cluster: dict[str, Any]
    """The table that a question takes as its cluster."""
    stack: dict[str, Any] | None = None
    """Of a profile: the table that a question takes as its stack."""
    words: str
    """Nodes and devices, for people."""
    gpus: int | None
    """All that there are; None where there are as many as asked for."""
    usd_per_gpu_hour: float | None


def machines_in(text: object, name: Path = YOURS) -> Machines:
    """The machines of the text of a cluster file or of a profile, TOML or JSON.

    Raises:
        BadRequest, BadFile: it is none, or a field is wrong.
    """
    if not isinstance(text, str) or not text.strip():
        raise BadRequest("text: expected what a cluster file holds, as `plan init` writes it")
    if reader := next((one for one in READERS if one.is_mine(text)), None):
        raise BadRequest(f"{name}: this is {reader.title}; `plan init FILE` makes a cluster file of it")
    document = parsed(text, name)
    table = part(document, "cluster", name)
    names_only({"cluster": table})
    found = built(table, cluster_record, name)
    return Machines(
        cluster=table,
        stack=document.get("stack") if document.get("schema") == PROFILE else None,
        words=" + ".join(_words(found)),
        gpus=found.gpus,
        usd_per_gpu_hour=found.usd_per_gpu_hour,
    )


def tells_machines(text: str) -> bool:
    """Whether a text is a cluster file or a profile, right or wrong."""
    try:
        document = parsed(text, YOURS)
    except BadFile:
        return False
    return _is_cluster(document)


def _is_cluster(document: Document) -> bool:
    groups = document.get("groups")
    one = groups[0] if isinstance(groups, list) and groups else document
    named = isinstance(one, Mapping) and "accelerator" in one and "model" not in document
    return named or document.get("schema") == PROFILE


def _words(found: Cluster) -> list[str]:
    return [
        f"{plural(group.nodes, 'node') if group.nodes else 'nodes'} of {group.gpus_per_node} {group.accelerator.title}"
        for group in found.groups
    ]
