"""What the values of a measured run have to be before anything is made of them, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

Row = Mapping[str, Any]

COUNTS: Final = {
    "cluster": ("gpus_per_node",),
    "strategy": (
        "gpus", "tp", "cp", "pp", "vpp", "dp", "ep", "etp", "global_batch_size", "sharding_degree", "num_microbatches",
    ),
}  # fmt: skip
FIGURES: Final = (
    "iteration_time_s", "tokens_per_s_per_gpu", "tokens_per_s", "samples_per_s", "samples_per_s_per_gpu",
    "tflops_per_gpu", "mfu", "hfu", "mfu_peak_tflops", "memory",
)  # fmt: skip
SWITCHES: Final = {
    "strategy": ("sequence_parallel",),
    "measured": ("oom",),
    "model": ("gated_ffn", "tied_embeddings"),
}
MOST_COUNTED: Final = 10**9
LEAST, MOST = 1e-9, 1e18
"""Figures beyond which a value is a slip in whatever unit it is."""
SHARE: Final = (2.0, "a share of the peak, such as 0.4")
HIGHEST: Final = {"mfu": SHARE, "hfu": SHARE, "memory": (1e5, "GB of one device, such as 61.2")}
"""Figures with a unit of their own, the highest that one of them can be, and what is wanted; utilisation of 8-bit
products is counted over 1 by the peak of 16-bit ones."""


def wrong_value(row: Row) -> str:
    """What is not of its kind among a run's values, in words; "" where all are or are not said."""
    return next(_wrong(row), "")


def _wrong(row: Row) -> Iterator[str]:
    yield from _wrong_counts(row)
    yield from _wrong_figures(row)
    yield from _wrong_switches(row)
    if not isinstance(row["cluster"].get("accelerator"), str):
        yield _expected("cluster", "accelerator", row, "a name such as h100-sxm")
    if not isinstance(row["stack"].get("flags") or {}, Mapping | list | str):
        yield _expected("stack", "flags", row, "a table of names and values")


def _wrong_counts(row: Row) -> Iterator[str]:
    least = "a whole number from 1"
    for section, names in COUNTS.items():
        for name in names:
            value = row[section].get(name)
            if not _counts(value):
                yield _expected(section, name, row, f"{least} to {MOST_COUNTED:,}" if _above(value, 1) else least)
    micro = row["strategy"].get("micro_batch_size")  # a part of a sequence where context ranks share one
    if not (_counts(micro) or (_number(micro) and 1.0 / MOST_COUNTED < micro <= MOST_COUNTED)):
        yield _expected("strategy", "micro_batch_size", row, "a number of sequences above 0")


def _wrong_figures(row: Row) -> Iterator[str]:
    least = "a number above 0"
    for name in FIGURES:
        value = row["measured"].get(name)
        if not _measures(value):
            wanted = f"{least}, {HIGHEST[name][1]}" if name in HIGHEST else least
            yield _expected("measured", name, row, f"{least}, {LEAST:g} to {MOST:g}" if _above(value, 0) else wanted)
        elif value is not None and name in HIGHEST and value > HIGHEST[name][0]:
            yield _expected("measured", name, row, HIGHEST[name][1])


def _wrong_switches(row: Row) -> Iterator[str]:
    for section, names in SWITCHES.items():
        for name in names:
            if not _switches(row[section].get(name)):
                yield _expected(section, name, row, "true, false or null")
    if not _switches(row.get("complete")):
        yield f"complete: expected true, false or null, got {_shown(row['complete'])}"


def _expected(section: str, name: str, row: Row, wanted: str) -> str:
    return f"{section}.{name}: expected {wanted}, got {_shown(row[section].get(name))}"


def _shown(value: object) -> str:
    """The value in at most forty characters; whole numbers too long to print by their size."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return f"a number of {value.bit_length()} bits"
    return f"{value!r:.40}"


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _above(value: Any, least: int) -> bool:
    return _number(value) and bool(value > least)


def _counts(value: Any) -> bool:
    """Whether it is a whole number from 1, however it is written: 64.0 is one too."""
    return value is None or (_number(value) and 1 <= value <= MOST_COUNTED and float(value).is_integer())


def _measures(value: Any) -> bool:
    return value is None or (_number(value) and LEAST <= value <= MOST)


def _switches(value: object) -> bool:
    return value is None or isinstance(value, bool)
