"""Predicted against measured, row by row: iteration time, memory, whether it fits."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from costmodels.memory.footprint import Footprint, readings
from costmodels.model.flops import Recompute as Repeated
from costmodels.model.flops import flops_per_iteration
from costmodels.pricing import iteration_seconds, stage_bytes
from hardware.errors import MeshwrightError
from planner.answer.build import mfu_of
from planner.request.files import profile_records
from planner.runs.corpus import of_each
from planner.runs.row_fields import unknown_fields
from planner.runs.row_values import wrong_value
from planner.runs.rows import (
    CHECK,
    Row,
    contradicting,
    convention,
    efficiency_seconds,
    measured_seconds,
    read_rows,
    told_by,
    unknown_split,
)
from planner.runs.words.mapping import Case, case
from planner.runs.words.nanotron_words import counted_beyond
from planner.trust.interval import interval
from planner.trust.table import source

HOME = Path(__file__).parent / "data"

MEMORY_KINDS: tuple[tuple[str, float, str], ...] = (
    (r"max_memory_allocated", 2.0**30, "allocated"),
    (r"max_(memory_)?reserved", 2.0**30, "cached"),
    (r"largest total", 1e9, "shown"),  # bytes in its files [Sailor]
    (r"nvidia[-_ ]smi|nvml|nvtop|nvitop|gpustat|dcgm|real use|\b(rocm|amd|npu|hl|xpu)-smi|driver", 2.0**30, "shown"),
    (r"\bmax[ _]ca\b", 2.0**30, "cached"),  # DeepSpeed's see_memory_usage, as the next
    (r"\bmax[ _]ma\b|see_memory_usage", 2.0**30, "allocated"),
    (r"converted to gb|converted from gib|decimal gb|converted to 1e9", 1e9, "allocated"),
    (r"peak gb|max post-optimizer|rank-0|per-gpu", 1e9, "allocated"),
    (r"unit mb is read as mib", 1e9, "allocated"),
    (r"gb or gib not stated", 1e9, "allocated"),  # the zero-bubble fork counts in millions of bytes throughout
    (r"reserved or allocated not stated", 2.0**30, "cached"),
    (r"^(?!.*not stated).*reserved", 2.0**30, "cached"),
    (r"gib|not stated|as printed|xla", 2.0**30, "allocated"),
)
"""First match of a row's words on its memory figure: bytes of one unit, and which of our quantities it is."""

MEBIBYTES = r"^(?!.*(read as|converted))((?!\bgi?b\b).)*\b(mi?b|mega ?bytes?|mebi ?bytes?)\b"
"""Words on a figure that is neither in GB nor in GiB: tools that say MB count in 2^20 bytes all the same."""

OF_ALL = (
    r"\b(sum(med)?|total|aggregated?) (over|of|across|for) (all |both |the |\d+ )*"
    r"([gnhx]pus|devices|ranks|cards|chips)\b"
)
"""Words on a figure that is of all devices together."""
_NO_BYTES = r"^(?!.*\bgi?b\b)"
SHARES = ((rf"{_NO_BYTES}.*(%|\bper ?cent\b|\bpercentage\b)", 0.01), (rf"{_NO_BYTES}.*\b(fraction|share) of\b", 1.0))
"""Words on a figure that is a share of the device's memory and in no bytes, and its unit."""

UNREADABLE = "a value is missing or is not of its kind"
"""What is said of a row that no rule refused and nothing could be made of."""

RESERVED = r"^torchtitan"
"""Frameworks that log ``max_reserved`` of PyTorch's allocator as their memory [torchtitan]."""

RESERVED_SOURCE = r"example-results/full-exp\.txt"
"""Sources whose peak is what the allocator had reserved: show_result_full_exp.py reads "max reserved" out of the logs,
with the line for "max allocated" commented out [VocabularyParallelism]."""

BINARY = r"^kempnerforge"
"""Frameworks whose GB are 2^30 bytes, whatever their tables call them (metrics/memory.py [KempnerForge])."""

RANK_ZERO = r"^nanotron|^kempnerforge|rank-0|experiments/tr3m-1b3"
"""Runs whose figure is of rank 0 alone, which holds the first stage, by the framework, the source or the figure's own
words: nanotron's table (helpers.py, ``log_throughput``), KempnerForge's log (metrics/logger.py). BigScience's table of
1.3B shows the first of two nodes: four stages with micro-batches of 8 show 13 GB, and run out on devices of 16 GB,
which only the last stage, with the logits, can have done."""

_RECOMPUTED: tuple[Repeated, ...] = ("none", "selective", "full", "full")
"""By the code of ``costmodels.strategy.Recompute``."""


@dataclass(frozen=True)
class Verdict:
    """One measured quantity of one run beside its prediction; ``reason`` where it could not be priced.

    ``measured`` is 0.0 where no time could be read.
    """

    id: str
    group: str
    metric: str
    measured: float | bool
    predicted: float | bool | None
    error: float | None
    reason: str = ""
    notes: tuple[str, ...] = ()
    scored: bool = False
    """Complete and not suspect: counts in the summary."""
    within: bool | None = None
    """Whether a measured time lies inside the interval that would have been promised."""

    def document(self) -> dict[str, Any]:
        """As JSON shows it."""
        shown: dict[str, Any] = {
            "id": self.id,
            "group": self.group,
            "metric": self.metric,
            "measured": self.measured if isinstance(self.measured, bool) else self.measured or None,
            "predicted": self.predicted,
            "error": self.error,
        }
        if self.reason:
            shown["reason"] = self.reason
        if self.within is not None:
            shown["within_interval"] = self.within
        return {**shown, "assumed": list(self.notes), "scored": self.scored}


def shipped() -> list[Path]:
    """The measured runs that come with the project, a file a split; those that nothing is learnt from come last."""
    return [*learnt_from(), *HOME.glob(f"{CHECK}.jsonl.gz")]


def learnt_from() -> list[Path]:
    """The shipped runs that constants, intervals, nearest runs and ties may rest on: all but the check split."""
    return sorted(path for path in HOME.glob("*.jsonl.gz") if path.name != f"{CHECK}.jsonl.gz")


def names_of(paths: Iterable[Path]) -> dict[Path, str]:
    """What files are called: by their names, or their whole paths where several have that name."""
    found = list(paths)
    counts = Counter(path.name for path in found)
    return {path: path.name if counts[path.name] == 1 else str(path) for path in found}


def judge(paths: Iterable[Path], profile: str | None = None, *, workers: int = 1) -> list[list[Verdict]]:
    """Every quantity of every run of each file, in order; on the cluster and the stack of a profile if one is named.

    Raises:
        BadFile: a file or the profile cannot be read.
    """
    mapped = case if profile is None else partial(case, **parts_of(profile))
    files = [list(read_rows(path)) for path in paths]
    told = iter(of_each([row for rows in files for row in rows], partial(judge_row, mapping=mapped), workers=workers))
    return [[verdict for _ in rows for verdict in next(told)] for rows in files]


def parts_of(profile: str) -> dict[str, Any]:
    """The cluster and, where it has one, the stack of a profile, as ``case`` takes them.

    Raises:
        BadFile: it is no profile.
    """
    names = {"cluster": "machines", "stack": "software"}
    return {names[field]: record for field, record in profile_records(profile).items()}


def judge_row(row: Row, mapping: Callable[[Row], Case] = case) -> list[Verdict]:
    """The verdicts on one run; one with a reason where it cannot be priced."""
    make = partial(
        Verdict, id=_printable(row.get("id", "?")), group=_printable(row.get("group", "?")), notes=strange(row)
    )
    scored = row.get("complete") is not False and not row.get("suspect")
    nothing = partial(make, metric="iteration_time", measured=0.0, predicted=None, error=None, scored=scored)
    if wrong := wrong_value(row):
        return [nothing(reason=wrong)]
    try:
        mapped = mapping(row)
        measured = dict(_measured(row, mapped))
        predicted = _predicted(mapped, row)
    except (MeshwrightError, ValueError, TypeError, KeyError, ArithmeticError) as error:
        reason = str(error) if isinstance(error, MeshwrightError) else f"{UNREADABLE} ({error!r:.120})"
        found = dict(_measured(row)) or {"iteration_time": 0.0}
        refused = partial(make, predicted=None, error=None, reason=reason, scored=scored)
        return [refused(metric=m, measured=v) for m, v in found.items()]
    if not measured:
        return [nothing(reason=_unmeasured(row))]
    failed = bool(row["measured"].get("oom"))  # what it held when it failed is no peak
    return [
        make(
            metric=m,
            measured=v,
            predicted=predicted[m],
            error=_error(predicted[m], v),
            notes=mapped.notes + _derived(sized(row, mapped), m) + strange(row, mapped),
            scored=scored and not (m == "memory" and failed),
            within=_within(mapped, str(row.get("group")), predicted[m], v) if m == "iteration_time" else None,
        )
        for m, v in measured.items()
    ]


def _printable(said: object) -> str:
    """A name on one line of a terminal, whatever codes it holds."""
    return "".join(sign if sign.isprintable() else "?" for sign in str(said))


def _derived(row: Row, metric: str) -> tuple[str, ...]:
    """A note where the measured time stands on a throughput or an efficiency, or memory on a unit not as written."""
    if metric == "memory" and _share(row):
        return (f"memory is a share of the device's {row['cluster']['memory_gb']} GiB",)
    if metric == "memory" and re.search(MEBIBYTES, _memory_words(row)):
        return ("memory read in MiB",)
    if metric != "iteration_time" or row["measured"].get("iteration_time_s"):
        return ()
    if said := told_by(row):
        return (f"time out of the stated {said}",)
    return (f"time derived from the stated efficiency, FLOP convention {convention(row)!r}",)


def _unmeasured(row: Row) -> str:
    """Why nothing of a run is compared: days of a whole training hold stops and restarts."""
    days = row["measured"].get("training_days") is not None
    return "nothing measured but the days of a whole training, which hold its stops" if days else "nothing measured"


def _within(mapped: Case, group: str, predicted: float, measured: float) -> bool:
    """Whether the measured time lies in the interval that rests on the runs of other sources."""
    mfu = mfu_of(mapped.scenario, predicted)
    likely = interval(mapped.scenario, mapped.rows, predicted, mfu=mfu, source=source(group))
    return likely.low <= measured <= likely.high


def _measured(row: Row, mapped: Case | None = None) -> Iterator[tuple[str, float | bool]]:
    seconds = seconds_of(row, mapped)
    if seconds:
        yield "iteration_time", seconds
    if row["measured"].get("memory") is not None and (unit := memory_kind(row)[0]):
        yield "memory", float(row["measured"]["memory"]) * unit
    if row["measured"].get("oom") is not None or seconds:
        yield "fits", not row["measured"].get("oom", False)


def seconds_of(row: Row, mapped: Case | None) -> float | None:
    """Seconds per iteration as measured, or out of a throughput, or, once mapped, out of a utilisation."""
    if mapped is None:
        return measured_seconds(row)
    return measured_seconds(sized(row, mapped)) or _efficiency_seconds(row, mapped)


def sized(row: Row, mapped: Case) -> Row:
    """The run with the sequence length and the batch that it was priced at, where it leaves that to its other words."""
    model, plan = row["model"], row["strategy"]
    if not model.get("seq_length"):
        model = {**model, "seq_length": mapped.scenario.seq_length}
    if not plan.get("global_batch_size"):
        plan = {**plan, "global_batch_size": mapped.scenario.global_batch_size}
    return {**row, "model": model, "strategy": plan}


def strange(row: Row, mapped: Case | None = None) -> tuple[str, ...]:
    """What of a run is not read, or says two things."""
    unread = unknown_split(row) + unknown_fields(row)
    if row["measured"].get("memory") is not None and _share(row) == 0.0:
        unread += ("memory is a share of a device whose memory_gb is not stated, and is not read",)
    return unread if mapped is None else contradicting(sized(row, mapped)) + unread


def _efficiency_seconds(row: Row, mapped: Case) -> float | None:
    """What a TFLOP/s or MFU of a stated convention says of the time, where nothing else does."""
    scenario, name = mapped.scenario, convention(row)
    if not name:
        return None
    flops = flops_per_iteration(
        scenario.model,
        global_batch_size=scenario.global_batch_size,
        seq_length=scenario.seq_length,
        definition=name,
        recompute=_RECOMPUTED[int(mapped.rows.recompute[0])],
    )
    flops += scenario.tokens * counted_beyond(row, scenario.model)
    return efficiency_seconds(row, flops, scenario.group.accelerator.half_rate)


def memory_kind(row: Row) -> tuple[float, str]:
    """Bytes of one unit of the row's memory figure, and which quantity: "allocated", "cached" or "shown".

    The unit is 0.0 where it is a share of a device of unknown size.
    """
    words = _memory_words(row)
    share = _share(row)
    usual = (1e9, "allocated") if share is None else (1e9, "shown")
    unit, name = next(((u, n) for pattern, u, n in MEMORY_KINDS if re.search(pattern, words)), usual)
    framework = str(row.get("stack", {}).get("framework")).lower()
    unit = 2.0**30 if re.search(BINARY, framework) else unit
    unit = 2.0**20 if re.search(MEBIBYTES, words) else unit
    unit /= float(row.get("strategy", {}).get("gpus") or 1) if re.search(OF_ALL, words) else 1.0
    reserved = bool(re.search(RESERVED, framework)) and "allocated" not in words
    reserved |= bool(re.search(RESERVED_SOURCE, str(row.get("source"))))
    return unit if share is None else share, "cached" if reserved and share is None else name


def _memory_words(row: Row) -> str:
    return str(row["measured"].get("memory_kind") or "").lower()


def _share(row: Row) -> float | None:
    """Bytes of one unit of a memory figure that is a share of the device, whose drivers count GiB; else None."""
    unit = next((u for pattern, u in SHARES if re.search(pattern, _memory_words(row))), None)
    return None if unit is None else unit * 2.0**30 * float(row.get("cluster", {}).get("memory_gb") or 0)


def stage_read(row: Row) -> slice:
    """The stages that the row's memory figure is the largest of: all, or the first where rank 0 reports its own."""
    said = (row.get("stack", {}).get("framework"), row["measured"].get("memory_kind"), row.get("source"))
    return slice(1) if any(re.search(RANK_ZERO, str(words).lower()) for words in said) else slice(None)


def _predicted(mapped: Case, row: Row) -> Mapping[str, float | bool]:
    known = (mapped.rows, mapped.scenario, mapped.assignment)
    footprint: Footprint = stage_bytes(*known)
    usable = mapped.scenario.group.accelerator.usable_memory
    cached, shown = readings(footprint, mapped.scenario)
    quantity = {"allocated": footprint.handed_out, "cached": cached, "shown": shown}[memory_kind(row)[1]]
    return {
        "iteration_time": iteration_seconds(*known),
        "memory": float(np.max(quantity[stage_read(row)])),
        "fits": bool(np.max(footprint.total) <= usable),
    }


def _error(predicted: float | bool, measured: float | bool) -> float | None:
    if isinstance(predicted, bool) or isinstance(measured, bool) or not measured:
        return None
    return float(predicted) / float(measured) - 1.0


def coverage(verdicts: Iterable[Verdict]) -> dict[str, float]:
    """Share of the scored times inside their intervals, by source group."""
    inside: dict[str, list[bool]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.scored and verdict.within is not None:
            inside[verdict.group].append(verdict.within)
    return {name: statistics.fmean(found) for name, found in sorted(inside.items())}


def groups(verdicts: Iterable[Verdict], metric: str) -> dict[str, dict[str, float]]:
    """Signed bias and sizes of the errors of the scored rows, by source group."""
    errors: dict[str, list[float]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.scored and verdict.metric == metric and verdict.error is not None:
            errors[verdict.group].append(verdict.error)
    return {name: _statistics(found) for name, found in sorted(errors.items())}


def _statistics(errors: list[float]) -> dict[str, float]:
    sizes = sorted(map(abs, errors))
    return {
        "n": len(errors),
        "bias": statistics.median(errors),
        "median_abs_error": statistics.median(sizes),
        "mean_abs_error": statistics.fmean(sizes),
        "p90_abs_error": sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))],
    }


def summary(by_group: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Averages over groups, so that no source dominates by the number of its runs."""
    if not by_group:
        return {"n": 0}
    fields = ("median_abs_error", "mean_abs_error", "p90_abs_error", "bias")
    averages = {name: statistics.fmean(group[name] for group in by_group.values()) for name in fields}
    return {"n": sum(int(group["n"]) for group in by_group.values()), "groups": len(by_group), **averages}
