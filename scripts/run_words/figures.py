"""Seconds, bytes and remarks of one run, out of its measured figures and the case that its words make."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from flop_definitions import flops_per_token

from costmodels.model.flops import Recompute as Repeated
from run_words.mapping import Case
from run_words.memory_words import MEBIBYTES, memory_kind, memory_said, share_of
from run_words.rows import contradicting, convention, efficiency_seconds, measured_seconds, told_by

Row = Mapping[str, Any]

_RECOMPUTED: tuple[Repeated, ...] = ("none", "selective", "full", "full")
"""By the code of ``costmodels.names.Recompute``."""


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


def _efficiency_seconds(row: Row, mapped: Case) -> float | None:
    """What a TFLOP/s or MFU of a stated convention says of the time, where nothing else does."""
    scenario, name = mapped.scenario, convention(row)
    if not name:
        return None
    recompute = _RECOMPUTED[int(mapped.rows.recompute[0])]
    each = flops_per_token(scenario.model, seq_length=scenario.seq_length, definition=name, recompute=recompute)
    flops = each * scenario.global_batch_size * scenario.seq_length
    return efficiency_seconds(row, flops, scenario.group.accelerator.half_rate)


def derived_from(row: Row, mapped: Case | None) -> str:
    """What the measured time was derived from; "" where the source gives it."""
    measured = row["measured"]
    whole = row if mapped is None else sized(row, mapped)
    if measured.get("iteration_time_s"):
        words = row.get("derived") or ()
        said = [words] if isinstance(words, str) else [str(word) for word in words]
        return next((word for word in said if re.match(r"(measured\.)?iteration[_ ]time|time ", word)), "")
    if name := told_by(whole):
        return f"{name} {measured[name]:g}"
    if mapped is None or not seconds_of(row, mapped):
        return ""
    name = next(name for name in ("tflops_per_gpu", "mfu", "hfu") if measured.get(name))
    return f"{name} {measured[name]:g}, FLOP convention {convention(row)}"


def memory_remarks(row: Row) -> Iterator[str]:
    """What was made of a memory figure whose unit is not as written."""
    if row["measured"].get("memory") is None:
        return
    if share_of(row) == 0.0:
        yield "memory is a share of a device whose memory_gb is not stated, and is not read"
    elif share_of(row):
        yield f"memory is a share of the device's {row['cluster']['memory_gb']} GiB"
    elif re.search(MEBIBYTES, memory_said(row)):
        yield "memory read in MiB"


def memory_bytes(row: Row) -> float | None:
    """The memory figure in bytes; None where there is none, or its unit is not clear."""
    figure, (unit, _kind) = row["measured"].get("memory"), memory_kind(row)
    return float(figure) * unit if figure is not None and unit else None


def time_remarks(row: Row, mapped: Case) -> tuple[str, ...]:
    """A remark where two figures of a run tell two times."""
    return contradicting(sized(row, mapped))


PRINTED: Mapping[str, tuple[str, ...]] = {
    "time": ("iteration_time_s", "tokens_per_s_per_gpu", "tokens_per_s", "samples_per_s", "tflops_per_gpu", "mfu"),
    "memory": ("memory",),
}
"""Figures that a measured one stands on: the first that the source printed and nobody derived."""


def rounding(row: Row, among: list[Row], what: str, seconds: float | None) -> float:
    """Half the last printed digit of what a measured figure stands on, over the figure; 0.0 where it is not known.

    The last digit is the finest of the group: where 7.25 stands too, 7.5 is 7.50. Throughputs that are not in the
    row have as many significant digits as its words on them say.
    """
    figures = row["measured"]
    said = re.search(r"(\d)\s*significant digits", str(row.get("derived")))
    if said is not None and what == "time" and seconds:
        rate = float(row["strategy"]["global_batch_size"]) / float(row["strategy"]["gpus"]) / seconds
        return 0.5 * 10.0 ** (1 - int(said[1])) / _mantissa(rate)
    names = (name for name in PRINTED[what] if figures.get(name) and not _derived(row, name))
    if (name := next(names, None)) is None:
        return 0.0
    decimals = max(_decimals(other["measured"].get(name)) for other in among)
    return float(0.5 * 10.0**-decimals / figures[name])


def _mantissa(value: float) -> float:
    import math

    return 10.0 ** (math.log10(value) % 1.0)


def _derived(row: Row, name: str) -> bool:
    words = row.get("derived") or ()
    return any(re.match(rf"(measured\.)?{name}( from | = |$)", str(word)) for word in words)


def _decimals(figure: float | None) -> int:
    return len(str(figure).partition(".")[2].removesuffix("0")) if figure else 0
