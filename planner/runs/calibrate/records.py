"""What a person's files hold, as records: runs, collectives, matrix products."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from planner.runs.probe.records import Probe
from planner.runs.schema import Run

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"]


FileRun = tuple[str, Run]
"""A measured training run, behind the name of the file that it stands in."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One size of one collective: bytes of the whole buffer as nccl-tests counts them, seconds out of place."""

    size: float
    seconds: float
    line: int


@dataclass(frozen=True, slots=True)
class Log:
    """One test of nccl-tests.

    Attributes:
        file: where it stands.
        line: its first line.
        operation: which test.
        device: the accelerator in the words of its driver.
        nodes: distinct hosts.
        ranks_per_node: devices of each host that took part.
        transfers: one per size.
    """

    file: str
    line: int
    operation: Operation
    device: str
    nodes: int
    ranks_per_node: int
    transfers: tuple[Transfer, ...]

    @property
    def ranks(self) -> int:
        """Devices that took part."""
        return self.nodes * self.ranks_per_node


@dataclass(frozen=True, slots=True)
class Product:
    """One timed matrix product C[m,n] = A[m,k] B[k,n]: element counts, number format, seconds."""

    file: str
    line: int
    m: int
    n: int
    k: int
    dtype: str
    seconds: float


@dataclass(slots=True)
class Evidence:
    """Everything that the files hold, and what was left aside with the reason."""

    runs: list[FileRun] = field(default_factory=list)
    logs: list[Log] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
