"""What a source says elsewhere of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import heard as re

Row = Mapping[str, Any]

SELECTED: Final[Mapping[str, str]] = {
    "2024-05 34b": "full recompute of 48 layers per stage",
    "2024-05 70b": "full recompute of 80 layers per stage",
    "2024-05 13b": "full recompute of 13 layers per stage",
    "2024-02b 13b": "every second layer",
}
"""Layers that fms-fsdp recomputes where its README says that some are, by its count of FLOPs over the model's: 0.74
over 0.55 of 34B and 70B are as many as in its runs with full recomputation, 0.64 over 0.47; 0.69 over 0.61 and 0.59
over 0.51 of 13B are a third and a half of that, the nearest fractions that ``selective_checkpointing`` is given as."""


def as_run(row: Row) -> Row:
    """The run with the layers that its source's own counts say it recomputed."""
    plan = row["strategy"]
    if "fms-fsdp" not in str(row.get("source")) or "whole blocks" not in str(plan.get("recompute_detail")):
        return row
    released, size = re.search(r"20\d\d-\d\d[a-z]?", str(row["source"])), str(row["model"].get("name")).lower()
    told = next((how for key, how in SELECTED.items() if released and key == f"{released[0]} {size[-3:]}"), None)
    return {**row, "strategy": {**plan, "recompute_detail": told}} if told else row


def as_dispatched(row: Row) -> Row:
    """The run with the dispatcher that its own table has.

    Two runs of Qwen3 30B-A3B on 16 H100, with and without overlap (24.71 and 20.99 s), are headed "HybridEP
    Production-Shape Benchmark" (Megatron-Bridge, skills/nemo-mbridge-perf-expert-parallel-overlap, 2026-07-25).
    """
    stack = row["stack"]
    words = f"{stack.get('overlap') or ''}"
    if "expert-parallel-overlap" not in str(row.get("source")) or "hybridep" in words.lower():
        return row
    return {**row, "stack": {**stack, "overlap": f"{words}; HybridEP"}}


def as_configured(row: Row) -> Row:
    """The run with what its own configuration says, and the row leaves out.

    Megatron-LM's functional tests that are measured for speed have ``--untie-embeddings-and-output-weights``, all of
    them (the ``model_config.yaml`` of each under tests/functional_tests/test_cases, August 2026).
    """
    model = row["model"]
    if "functional_tests" not in str(row.get("source")) or model.get("tied_embeddings") is not None:
        return row
    return {**row, "model": {**model, "tied_embeddings": False}}
