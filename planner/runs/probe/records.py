"""What ``measure`` wrote, as a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hardware.errors import BadFile

SCHEMA: Final = "probe/1"
SECTIONS: Final = ("allocator", "host", "matrix", "attention", "memory", "grouped", "optimizer", "copies")
"""What ``measure`` measures on one device; under torchrun it measures collectives too."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One machine as it was measured.

    Attributes:
        file: where it stands.
        device: the accelerator in the words of its driver.
        machine: versions, memory in bytes, compute units, power in watts.
        entries: what was measured and did not fail, seconds throughout.
    """

    file: str
    device: str
    machine: Mapping[str, Any]
    entries: tuple[Mapping[str, Any], ...]

    def all(self, what: str, **wanted: object) -> list[Mapping[str, Any]]:
        """The entries of a kind whose fields have these values."""
        return [e for e in self.entries if e["what"] == what and all(e.get(name) == v for name, v in wanted.items())]


def is_probe(document: object) -> bool:
    """Whether a JSON document is one."""
    return isinstance(document, Mapping) and document.get("schema") == SCHEMA


def probe_of(path: Path, document: Mapping[str, Any]) -> Probe:
    """The record of a file.

    Raises:
        BadFile: it lacks what ``plan probe`` writes, or no GPU was there.
    """
    try:
        machine = document["machine"]
        entries = [entry for section in document["sections"].values() for entry in section["entries"]]
        found = Probe(
            path.name, machine["device"], machine, tuple(e for e in entries if "error" not in e and e["what"])
        )
    except (KeyError, TypeError, AttributeError):
        raise BadFile(
            path, "is not a complete answer of plan probe: it needs machine.device and sections with entries"
        ) from None
    if document.get("small"):
        raise BadFile(
            path, "was measured without a GPU, with shapes that are too small; run plan probe where the GPU is"
        )
    return found
