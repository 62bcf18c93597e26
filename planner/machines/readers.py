"""Which program wrote a file, by its content, and what it tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hardware.files import read_text
from planner.errors import BadFile
from planner.machines import host, kubernetes, nvidia_smi, slurm
from planner.machines.findings import Node, Reader

READERS: Final[tuple[Reader, ...]] = (*kubernetes.READERS, *nvidia_smi.READERS, *slurm.READERS, *host.READERS)
"""Those whose files are recognised most surely come first."""
_HINTS: Final = (
    ("| NVIDIA-SMI ", "the table of nvidia-smi cuts names short; nvidia-smi -q > FILE tells all"),
    ("<nvidia_smi_log>", "XML; nvidia-smi -q > FILE, without -x, tells the same"),
    ("PORT_ACTIVE", "ibv_devinfo says no rate; ibstat > FILE does"),
    ("Name:               ", "kubectl describe is for people; kubectl get nodes -o json > FILE tells the same"),
    ("gpu:", "a table of Slurm without its head, it seems; leave -h out"),
    ("ROCm System Management", "rocm-smi is not read; --accelerator mi300x --gpus-per-node 8 say what it tells"),
    ("apiVersion:", "YAML of Kubernetes; kubectl get nodes -o json > FILE tells the same"),
)


@dataclass(frozen=True)
class FileRead:
    """A file, the program that wrote it, and the kinds of nodes that it tells."""

    path: Path
    reader: Reader
    nodes: tuple[Node, ...]


def read_machines(paths: Sequence[Path]) -> list[FileRead]:
    """What some files tell of machines.

    Raises:
        BadFile: one is missing or unreadable, or is of no kind that is known.
    """
    return [_read(path) for path in paths]


def _read(path: Path) -> FileRead:
    text = read_text(path)
    reader = next((one for one in READERS if one.is_mine(text)), None)
    if reader is None:
        known = ", ".join(dict.fromkeys(one.title for one in READERS))
        hint = next((f"; {said}" for mark, said in _HINTS if mark in text), "")
        raise BadFile(path, f"not the output of {known}{hint}")
    try:
        return FileRead(path, reader, tuple(reader.read(text, path.name)))
    except ValueError as error:
        raise BadFile(path, f"{reader.title}: {error}") from None
