"""What nccl-tests prints (and rccl-tests, which prints the same), with all that launchers and NCCL print in between.

The table names neither its test nor its ranks. The test is named by a line of newer versions, by a command line or
by the name of the file; else it follows from the ratio of bus to algorithm bandwidth, 2 (n - 1) / n for all-reduce
and (n - 1) / n for the others, and from the reduction. Ranks and hosts are those of the lines under "Using devices".
[nccl-tests]: GitHub NVIDIA/nccl-tests, doc/PERFORMANCE.md and src/common.cu.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final, cast, get_args

from hardware.errors import BadFile
from planner.runs.calibrate.records import Log, Operation, Transfer

_TYPES: Final = r"(?:u?int(?:8|32|64)|char|half|float|double|bfloat16|float16|fp8_e[45]m[0-9]\w*|f8e[45]m[0-9]\w*)"
_TAG: Final = re.compile(r"\[\d+(?:,\d+)?\](?:<std(?:out|err)>:?)?")
"""mpirun's ``--tag-output``, which can stand between the pieces of a line too."""
_NUMBER: Final = r"[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?"
_NONE: Final = r"-?[nN]/[aA]-?"
_ANY: Final = rf"(?:{_NUMBER}|{_NONE})"
_ROW: Final = re.compile(
    rf"(?<![\w.])(?P<size>[0-9]+)\s+(?P<count>[0-9]+)\s+{_TYPES}\s+(?:(?P<redop>[a-z]\w*)\s+)?(?:-?[0-9]+\s+)??"
    rf"(?P<time>{_NUMBER})\s+(?P<algbw>{_NUMBER})\s+(?P<busbw>{_NUMBER})(?:\s+(?P<wrong>{_ANY}))?"
    rf"(?:\s+{_ANY}\s+{_ANY}\s+{_ANY}(?:\s+\S+)?)?\s*$"
)
_CUT: Final = re.compile(rf"(?<![\w.])[0-9]+\s+[0-9]+\s+{_TYPES}\b")
_RANK: Final = re.compile(
    r"Rank\s+(?P<rank>\d+)\s+(?:Group\s+(?P<group>\d+)\s+)?Pid\s+\d+\s+on\s+(?P<host>\S+)\s+device\s+\d+\s+"
    r"\[[^\]]*\]\s*(?P<device>.*?)\s*$"
)
_NAME: Final = re.compile(r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv)", re.IGNORECASE)
_STARTS: Final = re.compile(r"Collective test starting:\s*(\w+)")
_HEADER: Final = re.compile(r"# nThread \d+")
_PROGRAM: Final = re.compile(r"\b(\w+)_perf\w*")
_RATIO: Final = 0.04
"""How far the ratio of the printed bandwidths, which are rounded, may be from the ratio of a test."""


@dataclass(slots=True)
class _Block:
    """The lines of one test, as far as they have been read."""

    line: int
    name: str | None = None
    ranks: list[tuple[int, str, str, str]] = field(default_factory=list)
    rows: list[tuple[Transfer, str | None, float]] = field(default_factory=list)
    wrong: int = 0
    cut: int = 0
    ended: bool = False

    def bad(self, path: Path, what: str) -> BadFile:
        """What is wrong with it, by its line."""
        return BadFile(path, f"line {self.line}: {what}")


def read_logs(path: Path, text: str) -> tuple[list[Log], list[str]]:
    """The tests that a file holds, and what had to be left aside.

    Raises:
        BadFile: no test in it, or one whose ranks or collective are not clear.
    """
    blocks = [block for block in _blocks(text) if block.rows or block.cut or block.ranks or block.wrong]
    notes: list[str] = []
    logs = []
    for block in blocks:
        if not block.rows:
            wrong = f"of whose {block.wrong} sizes all came out wrong (#wrong)"
            said = wrong if block.wrong else "without a single complete size"
            raise block.bad(path, f"a test of nccl-tests {said}")
        logs.append(_log(path, block, notes))
    if not logs:
        raise BadFile(path, "a header of nccl-tests, and no sizes below it")
    return logs, notes


def _blocks(text: str) -> list[_Block]:
    """The file cut at every header; a name before the first header is that of the first test."""
    blocks, named = [_Block(1)], None
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _TAG.sub(" ", raw)
        if (found := _STARTS.search(line) or _PROGRAM.search(line)) and "concluded" not in line:
            named = found[1]
        if _HEADER.search(line) and (blocks[-1].rows or blocks[-1].ended):
            blocks.append(_Block(number))
        block = blocks[-1]
        before = block.ended
        _take(block, line, number)
        if block.name is None and not block.ended and not block.rows:
            block.name = named
        if block.ended and not before:
            named = None  # what is named from here on is the next test
    return blocks


def _take(block: _Block, line: str, number: int) -> None:
    """One line of a test: a rank, a size, its end, or noise."""
    if found := _RANK.search(line):
        block.ranks.append((int(found["rank"]), found["group"] or "0", found["host"], found["device"]))
    elif found := _ROW.search(line):
        seconds, bandwidth = 1e-6 * float(found["time"]), float(found["algbw"])
        if found["wrong"] and found["wrong"][0].isdigit() and float(found["wrong"]) >= 1.0:  # older ones print an error
            block.wrong += 1
        elif int(found["size"]) > 0 and 0.0 < seconds < math.inf:
            ratio = float(found["busbw"]) / bandwidth if bandwidth >= 1.0 else math.nan
            block.rows.append((Transfer(float(found["size"]), seconds, number), found["redop"], ratio))
    elif _CUT.search(line):
        block.cut += 1
    elif "Avg bus bandwidth" in line:
        block.ended = True


def _log(path: Path, block: _Block, notes: list[str]) -> Log:
    where = f"{path.name}, line {block.line}"
    nodes, per_node, device = _placed(path, block)
    operation = _operation(path, block, nodes * per_node)
    if block.wrong:
        notes.append(f"{where}: {block.wrong} sizes came out wrong (#wrong) and were left out")
    if block.cut or not block.ended:
        notes.append(f"{where}: the log is cut short; its {len(block.rows)} complete sizes were used")
    return Log(path.name, block.line, operation, device, nodes, per_node, tuple(row[0] for row in block.rows))


def _placed(path: Path, block: _Block) -> tuple[int, int, str]:
    """Hosts, ranks of each, and the device of all."""
    if not block.ranks:
        raise block.bad(path, "no lines `Rank 0 ... on HOST device ...`, which say how many ranks")
    if len({group for _, group, _, _ in block.ranks}) > 1:
        raise block.bad(path, "ranks in several groups at once; run it without NCCL_TESTS_SPLIT")
    seen = Counter(rank for rank, *_ in block.ranks)
    twice = [rank for rank, times in seen.items() if times > 1]
    if twice:
        times = f"rank {twice[0]} appears {seen[twice[0]]} times"
        raise block.bad(path, f"{times}, so its processes did not form one group; build nccl-tests with MPI=1")
    if len(seen) != max(seen) + 1:
        raise block.bad(path, f"ranks up to {max(seen)}, of which only {len(seen)} are listed")
    hosts = Counter(host for _, _, host, _ in block.ranks)
    if len(set(hosts.values())) > 1:
        counts = ", ".join(f"{count} on {host}" for host, count in sorted(hosts.items())[:4])
        raise block.bad(path, f"hosts with different numbers of ranks ({counts}) are not fitted")
    devices = {device for *_, device in block.ranks}
    if len(devices) > 1:
        raise block.bad(path, f"different devices: {' and '.join(sorted(devices)[:2])}")
    return len(hosts), next(iter(hosts.values())), devices.pop()


def _operation(path: Path, block: _Block, ranks: int) -> Operation:
    if ranks < 2:
        raise block.bad(path, "a single rank sends nothing; give a test of two or more")
    allowed = _by_ratio(block, ranks)
    said = block.name if block.name is not None else path.stem
    found = _NAME.search(said)
    if found is None and block.name is not None:
        raise block.bad(path, f"{block.name} is not fitted; there are {', '.join(get_args(Operation))}")
    if found is not None:
        name = _plain(found[1])
        if allowed and name not in allowed:
            raise block.bad(path, f"called {name}, with the bandwidths of {' or '.join(allowed)}")
        return name
    if len(allowed) == 1:
        return allowed[0]
    choice = " or ".join(allowed) if allowed else "which test"
    raise block.bad(path, f"{choice} cannot be distinguished; put the test's name into the file name")


def _plain(word: str) -> Operation:
    letters = word.lower().replace("_", "")
    return cast("Operation", next(name for name in get_args(Operation) if name.replace("_", "") == letters))


def _by_ratio(block: _Block, ranks: int) -> list[Operation]:
    """Tests whose bus bandwidth stands to algorithm bandwidth as printed; empty where nothing large was sent."""
    ratios = [ratio for _, _, ratio in block.rows if math.isfinite(ratio)]
    if not ratios:
        return []
    ratio, sums = median(ratios), block.rows[-1][1] not in (None, "none")
    share = (ranks - 1) / ranks
    expected: dict[Operation, float] = {
        "all_reduce": 2.0 * share,
        "reduce_scatter": share,
        "all_gather": share,
        "alltoall": share,
        "sendrecv": 1.0,
    }
    matching = [name for name, value in expected.items() if abs(ratio / value - 1.0) < _RATIO]
    unsummed = {"all_gather", "alltoall"} if sums else {"all_reduce", "reduce_scatter"}
    return [name for name in matching if name not in unsummed]
