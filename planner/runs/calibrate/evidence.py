"""What a person measured: runs, probes, collectives, matrix products; recognized by content, not by name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from hardware.errors import BadFile
from hardware.files import expanded, read_text
from planner.runs.calibrate.gemm_table import read_products
from planner.runs.calibrate.nccl_log import read_logs
from planner.runs.calibrate.probe import logs_of
from planner.runs.calibrate.records import Evidence, FileRun
from planner.runs.files import read_runs, run_in
from planner.runs.probe.records import is_probe, probe_of

NCCL = re.compile(r"# nThread \d+|#\s+size\s+count\s+type|out-of-place\s+in-place|Rank\s+\d+ .*Pid\s+\d+ on ")
_TABLE = re.compile(r"[^,;\t\n]+([,;\t][^,;\t\n]+)+")


def gather(files: Iterable[str | Path], runs: Iterable[FileRun] = ()) -> Evidence:
    """Read every file as what it holds, and add it to runs that were read already.

    Raises:
        BadFile: a file that is none of the three, or a line of it that is wrong; the message names the line.
    """
    found = Evidence()
    found.runs += runs
    for name in dict.fromkeys(map(str, files)):
        _read(expanded(name), found)
    return found


def _read(path: Path, found: Evidence) -> None:
    if path.suffix == ".gz":
        found.runs += [(path.name, run) for run in read_runs(path)]
        return
    text = read_text(path)
    first = text.lstrip()[:1]
    if first == "{" or (first == "[" and not NCCL.search(text)):  # a log may begin with the tag of a rank, [1,0]
        _documents(path, text, found)
    elif NCCL.search(text):
        logs, notes = read_logs(path, text)
        found.logs += logs
        found.notes += notes
    elif _TABLE.fullmatch(_first_line(text)):
        found.products += read_products(path, text)
    elif not text.strip():
        raise BadFile(path, "empty, where runs, output of nccl-tests or a table of products is expected")
    else:
        raise BadFile(
            path,
            "neither runs (JSON lines), nor a log of a training run, nor an answer of plan probe, nor output of "
            "nccl-tests, nor a table of products (CSV with m, n, k, dtype, time_us); "
            f"it begins with {_first_line(text)[:40]!r}",
        )


def _first_line(text: str) -> str:
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return next(lines, "").strip()


def _documents(path: Path, text: str, found: Evidence) -> None:
    """Runs of JSON lines, or one JSON document: a probe, a run, or a list of runs."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        found.runs += [(path.name, run) for run in read_runs(path)]
        return
    if is_probe(document):
        found.probes.append(probe_of(path, document))
        found.logs += logs_of(found.probes[-1])
    elif isinstance(document, dict):
        found.runs.append((path.name, run_in(path, "the document", document)))
    elif not document:
        raise BadFile(path, "an empty list; runs are expected, as `plan validate` reads them")
    else:
        named = ((f"entry {number}", entry) for number, entry in enumerate(document, start=1))
        found.runs += [(path.name, run_in(path, name, entry)) for name, entry in named]
