"""What a source prints of a run that people compare with, in its own measure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import heard as re
from run_words.rows import measured_seconds

Row = Mapping[str, Any]

SMALLEST: Final = 0.3
"""Billions of parameters below which nobody asks for a plan."""
UNUSABLE: Final = re.compile(r"formula check|token dropping|tokendrop|not published|known slow|to \+/-40%")
"""Notes of rows whose figure says little about a usual run."""
RECOMPUTED: Final = re.compile(r"hardware|with.recompute|sustained")
"""Conventions that count the recomputed work as done."""


def printed(row: Row) -> str:
    """The result of a usual pretraining run of a known size on a known machine, as its source prints it; else ""."""
    plan, model = row["strategy"], row["model"]
    if row.get("task") != "pretrain" or row["measured"].get("oom") or row.get("suspect"):
        return ""
    if str(model.get("name")).startswith("BERT"):
        return ""
    if plan.get("offload") not in {None, "none"} or model.get("params_reduced_model"):
        return ""
    known = plan.get("gpus") and row["cluster"].get("accelerator") and (model.get("params_b") or 0.0) >= SMALLEST
    return _result(row) if known and not UNUSABLE.search(str(row.get("notes"))) else ""


def _result(row: Row) -> str:
    said, seconds = row["measured"], measured_seconds(row)
    if said.get("mfu"):
        return f"{100 * said['mfu']:.1f} % MFU"
    if said.get("tflops_per_gpu"):
        counted = ", recomputation counted" if RECOMPUTED.search(str(said.get("flops_convention"))) else ""
        return f"{said['tflops_per_gpu']:.0f} TFLOP/s per GPU{counted}"
    return f"{seconds:.3g} s per iteration{_batch(row)}" if seconds else ""


def _batch(row: Row) -> str:
    sequences, length = row["strategy"].get("global_batch_size"), row["model"].get("seq_length")
    return f" of {sequences:,} x {length:,} tokens" if sequences and length else ""
