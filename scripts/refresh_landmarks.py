"""Pick the published training runs that people compare with out of the shipped measurements.

    python scripts/refresh_landmarks.py            # rewrite planner/trust/published.csv
    python scripts/refresh_landmarks.py --check    # exit 1 where it differs from the measurements

One run stands for every source, model, accelerator and number of GPUs: the fastest per GPU, among 16-bit runs where
there are any. Releases of one source count as one source.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hardware.catalogue import accelerator
from planner.runs.rows import Row, measured_seconds, read_rows
from planner.trust.published import Landmark

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "planner" / "trust" / "published.csv"
RUNS = tuple(ROOT / "planner" / "runs" / "data" / f"{split}.jsonl.gz" for split in ("fit", "dev"))
SMALLEST = 0.3
"""Billions of parameters below which nobody asks for a plan."""
STUDIES = ("vtrain-single", "megatron-bridge-skills", "megatron-lm-golden", "simumax")
"""Groups of cut models, functional tests and sweeps of one setting: not runs that people compare with."""
UNUSABLE = re.compile(r"formula check|token dropping|tokendrop|not published|known slow|to \+/-40%")
"""Notes of rows whose figure says little about a usual run."""
RECOMPUTED = re.compile(r"hardware|with.recompute|sustained")
"""Conventions that count the recomputed work as done."""

_RELEASE = re.compile(r"-(v?\d+\.[\d.]+|20\d\d(\.\d+)?|early20\d\d)$")
_SOURCE = re.compile(r"(?:\([^)]*\)|[^,;+(])+")
_DETAIL = re.compile(r" ([^( ]+/|result sheet|results repo|docs |with the job|recipe|README).*")
"""Where the name of a source ends and its page, table or file begins."""
ELSEWHERE: tuple[tuple[str, str, float, int, str, str], ...] = (
    ("BigScience BLOOM, 2022", "BLOOM-176B", 176.2, 384, "a100-sxm-80gb", "about 150 TFLOP/s per GPU"),
    ("Yuan 1.0, 2021", "Yuan 1.0", 245.7, 2128, "a100-sxm-40gb", "44.8 % of peak, recomputation counted"),
)
"""Runs that the shipped measurements do not hold."""


def landmarks() -> list[Landmark]:
    """The chosen runs, by size, accelerator, GPUs and source."""
    chosen = dict[tuple[str, str, str, int], tuple[tuple[bool, float], Row]]()
    for row in (row for path in RUNS for row in read_rows(path) if usable(row)):
        where = (_RELEASE.sub("", row["group"]), row["model"]["name"].lower(), row["cluster"]["accelerator"])
        key, merit = (*where, int(row["strategy"]["gpus"])), (sixteen_bit(row), speed(row))
        if key not in chosen or merit > chosen[key][0]:
            chosen[key] = merit, row
    return sorted([*(landmark(row) for _, row in chosen.values()), *elsewhere()], key=_order)


def _order(run: Landmark) -> tuple[float, str, int, str, str]:
    return run.billions, run.accelerator, run.gpus, run.source, run.model


def usable(row: Row) -> bool:
    """Whether this is a usual pretraining run with a result, of a known size on a known machine."""
    plan, model = row["strategy"], row["model"]
    if row["task"] != "pretrain" or row["measured"].get("oom") or row.get("suspect"):
        return False
    if row["group"].startswith(STUDIES) or model["name"].startswith("BERT"):
        return False
    if plan.get("offload") not in {None, "none"} or model.get("params_reduced_model"):
        return False
    known = plan.get("gpus") and row["cluster"].get("accelerator") and (model.get("params_b") or 0.0) >= SMALLEST
    return bool(known and result(row)) and not UNUSABLE.search(str(row.get("notes")))


def speed(row: Row) -> float:
    """Model FLOP/s per GPU up to a constant of the key: out of the time, else the rate, else the utilization."""
    said, plan, seconds = row["measured"], row["strategy"], measured_seconds(row)
    if seconds and plan.get("global_batch_size"):
        tokens = plan["global_batch_size"] * (row["model"].get("seq_length") or 1)
        return 6e9 * row["model"]["params_b"] * tokens / seconds / plan["gpus"]
    return said.get("tflops_per_gpu", 0.0) * 1e12 or said.get("mfu", 0.0) * 1e14


def sixteen_bit(row: Row) -> bool:
    """Whether the matrices were multiplied in bf16 or fp16, or nothing else is said."""
    return (row["strategy"].get("precision") or "bf16") in {"bf16", "fp16"}


def result(row: Row) -> str:
    """What was measured, in the source's own measure; empty where nothing was."""
    said, seconds = row["measured"], measured_seconds(row)
    if said.get("mfu"):
        return f"{100 * said['mfu']:.1f} % MFU"
    if said.get("tflops_per_gpu"):
        counted = ", recomputation counted" if RECOMPUTED.search(str(said.get("flops_convention"))) else ""
        return f"{said['tflops_per_gpu']:.0f} TFLOP/s per GPU{counted}"
    return f"{seconds:.3g} s per iteration{batch(row)}" if seconds else ""


def batch(row: Row) -> str:
    """The batch that an iteration took, where it is known."""
    sequences, length = row["strategy"].get("global_batch_size"), row["model"].get("seq_length")
    return f" of {sequences:,} x {length:,} tokens" if sequences and length else ""


def landmark(row: Row) -> Landmark:
    """One measured run, as the table has it."""
    name, device, gpus = row["model"]["name"], row["cluster"]["accelerator"], int(row["strategy"]["gpus"])
    precision, size = row["strategy"].get("precision") or "", float(row["model"]["params_b"])
    return Landmark(source(row), name, size, gpus, device, family(device), precision, result(row))


def elsewhere() -> Iterator[Landmark]:
    """The runs that only papers tell of."""
    for said, name, billions, gpus, device, text in ELSEWHERE:
        yield Landmark(said, name, billions, gpus, device, family(device), "", text)


def source(row: Row) -> str:
    """Who published it, without the page, table or file inside."""
    found = _SOURCE.match(row["source"])
    return _DETAIL.sub("", found.group() if found else row["source"]).strip()


@cache
def family(device: str) -> str:
    """Vendor and architecture of an accelerator of the catalogue."""
    found = accelerator(device)
    return f"{found.vendor} {found.architecture}"


def table() -> str:
    """The file as it should be."""
    text = io.StringIO()
    writer = csv.DictWriter(text, Landmark._fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(run._asdict() | {"billions": f"{run.billions:g}"} for run in landmarks())
    return text.getvalue()


def main() -> int:
    """Rewrite the table, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 where the table is stale")
    fresh = table()
    if not parser.parse_args().check:
        TABLE.write_text(fresh, encoding="utf-8")
    elif not TABLE.exists() or TABLE.read_text(encoding="utf-8") != fresh:
        sys.stderr.write(f"{TABLE.relative_to(ROOT)} is stale: run scripts/refresh_landmarks.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
