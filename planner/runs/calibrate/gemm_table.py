"""A table of timed matrix products: CSV with a header, columns by name, the unit of time in its column's name."""

from __future__ import annotations

import csv
import difflib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hardware.errors import BadFile
from planner.runs.calibrate.records import Product

TIMES: Final[Mapping[str, float]] = {"time_us": 1e-6, "time_ms": 1e-3, "time_s": 1.0, "time_ns": 1e-9}
"""Column of a time to seconds."""
RATES: Final[Mapping[str, float]] = {"tflops": 1e12, "gflops": 1e9}
"""Column of a rate, 2 m n k over the time, to FLOP/s."""
SIZES: Final = ("m", "n", "k")
DTYPES: Final[Mapping[str, str]] = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "bf16",
    "float16": "bf16",
    "half": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "mxfp8": "mxfp8",
    "nvfp4": "nvfp4",
}
"""Number formats, torch's words too, to the entry of the accelerator's table; fp16 is as fast as bf16."""
_LARGEST: Final = 2**31
_COLUMNS: Final = (*SIZES, "dtype", *TIMES, *RATES)


def read_products(path: Path, text: str) -> list[Product]:
    """The timed products of a table.

    Raises:
        BadFile: a column that is missing, misspelt or without a unit, or a value that is none; the message names
            the line.
    """
    every = enumerate(text.splitlines(), start=1)
    lines = [(number, line) for number, line in every if line.strip() and not line.startswith("#")]
    first, header = lines[0]
    separator = max(",;\t", key=header.count)
    columns = [name.strip().lower() for name in next(csv.reader([header], delimiter=separator))]
    _check(path, first, columns)
    products = []
    for number, line in lines[1:]:
        cells = next(csv.reader([line.replace("\0", " ")], delimiter=separator))
        if len(cells) != len(columns):
            raise BadFile(path, f"line {number}: {len(cells)} values under {len(columns)} columns")
        products.append(_product(path, number, dict(zip(columns, map(str.strip, cells), strict=True))))
    if not products:
        raise BadFile(path, "a header of products, and none below it")
    return products


def _check(path: Path, line: int, columns: Sequence[str]) -> None:
    """Every column that is needed is there once, under its own name."""
    if twice := [name for name in columns if columns.count(name) > 1]:
        raise BadFile(path, f"line {line}: column {twice[0]!r} appears twice")
    missing = [name for name in (*SIZES, "dtype") if name not in columns]
    timed = [name for name in columns if name in TIMES or name in RATES]
    if not missing and timed:
        return
    wanted = missing[0] if missing else "time_us"
    others = [name for name in columns if name not in _COLUMNS]
    near = [name for name in others if name[:4] == wanted[:4]] if wanted == "time_us" else []
    near = near or difflib.get_close_matches(wanted, others, n=1, cutoff=0.5)
    units = f"one of {', '.join((*TIMES, *RATES))}" if wanted == "time_us" else f"column {wanted!r}"
    hint = f"is {near[0]!r} meant? rename it" if near else f"it has {', '.join(columns)[:80]}"
    raise BadFile(path, f"line {line}: a table of products needs {units}; {hint}")


def _product(path: Path, line: int, cells: Mapping[str, str]) -> Product:
    m, n, k = (_size(path, line, name, cells[name]) for name in SIZES)
    said = cells["dtype"].lower().removeprefix("torch.")
    if said not in DTYPES:
        raise BadFile(path, f"line {line}: dtype {cells['dtype']!r} is not fitted; these are: {', '.join(DTYPES)}")
    seconds = _seconds(path, line, cells, 2.0 * m * n * k)
    return Product(path.name, line, m, n, k, DTYPES[said], seconds)


def _size(path: Path, line: int, name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:20]) < _LARGEST):
        raise BadFile(path, f"line {line}: {name} should be a whole number such as 4096, got {text[:40]!r}")
    return int(text)


AGREEING = 1.1
"""Longest over shortest time by the figures of one product up to which they say the same."""


def _seconds(path: Path, line: int, cells: Mapping[str, str], flops: float) -> float:
    """The time as stated, a time before a rate."""
    said = {name: _positive(path, line, name, cells[name]) for name in (*TIMES, *RATES) if cells.get(name)}
    if not said:
        raise BadFile(path, f"line {line}: neither a time nor a rate is said")
    times = {name: v * TIMES[name] if name in TIMES else flops / (v * RATES[name]) for name, v in said.items()}
    first, seconds = next(iter(times.items()))
    for name, other in times.items():
        if not 1.0 / AGREEING <= other / seconds <= AGREEING:
            both = f"{first} {cells[first]} is {seconds:.3g} s, {name} {cells[name]} {other:.3g} s"
            raise BadFile(path, f"line {line}: {both}; leave out the wrong column")
    return seconds


def _positive(path: Path, line: int, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1e-12 < value < 1e18:
        raise BadFile(path, f"line {line}: {name} should be a positive number, got {text[:40]!r}")
    return value
