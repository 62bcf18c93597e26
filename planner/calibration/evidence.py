"""What a person measured: training runs, collectives, matrix products; told apart by content, not by name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hardware.errors import BadFile
from hardware.files import expanded, read_text
from planner.validation.rows import Row, read_rows, row_of

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"]


@dataclass(frozen=True, slots=True)
class Run:
    """One measured training run and where it stands."""

    file: str
    id: str
    row: Row


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

    runs: list[Run] = field(default_factory=list)
    logs: list[Log] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


NCCL = re.compile(r"# nThread \d+|#\s+size\s+count\s+type|out-of-place\s+in-place|Rank\s+\d+ .*Pid\s+\d+ on ")
_TABLE = re.compile(r"[^,;\t\n]+([,;\t][^,;\t\n]+)+")


def gather(files: Iterable[str | Path]) -> Evidence:
    """Read every file as what it holds.

    Raises:
        BadFile: a file that is none of the three, or a line of it that is wrong; the message names the line.
    """
    found = Evidence()
    for name in dict.fromkeys(map(str, files)):
        _read(expanded(name), found)
    return found


def _read(path: Path, found: Evidence) -> None:
    if path.suffix == ".gz":
        found.runs += [_run(path, row) for row in read_rows(path)]
        return
    text = read_text(path)
    if text.lstrip()[:1] in {"{", "["}:
        found.runs += [_run(path, row) for row in _rows(path, text)]
    elif NCCL.search(text):
        from planner.calibration.nccl_log import read_logs

        logs, notes = read_logs(path, text)
        found.logs += logs
        found.notes += notes
    elif _TABLE.fullmatch(_first_line(text)):
        from planner.calibration.gemm_table import read_products

        found.products += read_products(path, text)
    elif not text.strip():
        raise BadFile(path, "empty, where runs, output of nccl-tests or a table of products is expected")
    else:
        raise BadFile(
            path,
            "neither runs (JSON lines), nor output of nccl-tests, nor a table of products "
            f"(CSV with m, n, k, dtype, time_us); it begins with {_first_line(text)[:40]!r}",
        )


def _first_line(text: str) -> str:
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return next(lines, "").strip()


def _rows(path: Path, text: str) -> list[Row]:
    """Runs of JSON lines, or of one JSON document: a run, or a list of runs."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return list(read_rows(path))
    if isinstance(document, dict):
        return [row_of(path, "the document", document)]
    if not document:
        raise BadFile(path, "an empty list; runs are expected, as `plan validate` reads them")
    return [row_of(path, f"entry {number}", entry) for number, entry in enumerate(document, start=1)]


def _run(path: Path, row: Row) -> Run:
    return Run(path.name, str(row.get("id") or "?"), row)
