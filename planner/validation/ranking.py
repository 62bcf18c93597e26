"""Does the model choose rightly? Measured sweeps, and what following the predictions would have cost."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from planner.validation.judge import judge_row
from planner.validation.rows import Row, read_rows

SMALLEST = 4
"""Strategies that make a sweep."""


class Cell(NamedTuple):
    """What all strategies of one sweep have in common."""

    group: str
    accelerator: str
    num_layers: int | None
    hidden_size: int | None
    seq_length: int
    vocab_size: int | None
    gpus: int
    precision: str | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """One sweep: how much longer the strategy predicted fastest really took than the best, and the rank correlation."""

    cell: Cell
    strategies: int
    regret: float
    correlation: float
    chosen: str
    """The row predicted fastest."""
    best: str
    """The row measured fastest."""


def sweeps(paths: Iterable[Path]) -> list[Sweep]:
    """Every sweep of four or more measured strategies: same source, accelerator, model, sequence, GPUs and precision.

    Times are per token, since batches may differ.
    """
    cells: dict[Cell, list[tuple[float, float, str]]] = defaultdict(list)
    for path in paths:
        for row in read_rows(path):
            if (found := _times(row)) is not None:
                cells[cell_of(row)].append(found)
    return [_judged(cell, runs) for cell, runs in sorted(cells.items(), key=str) if len(runs) >= SMALLEST]


def _times(row: Row) -> tuple[float, float, str] | None:
    """Predicted and measured seconds per token, and the row's id; None where it does not count."""
    for verdict in judge_row(row):
        if verdict.metric == "iteration_time" and verdict.scored and verdict.predicted:
            tokens = row["strategy"]["global_batch_size"] * row["model"]["seq_length"]
            return float(verdict.predicted) / tokens, float(verdict.measured) / tokens, verdict.id
    return None


def cell_of(row: Row) -> Cell:
    """The sweep that a run belongs to."""
    model, plan = row["model"], row["strategy"]
    return Cell(
        group=str(row["group"]),
        accelerator=row["cluster"]["accelerator"],
        num_layers=model.get("num_layers"),
        hidden_size=model.get("hidden_size"),
        seq_length=model["seq_length"],
        vocab_size=model.get("vocab_size"),
        gpus=plan["gpus"],
        precision=plan.get("precision"),
    )


def _judged(cell: Cell, runs: list[tuple[float, float, str]]) -> Sweep:
    from scipy.stats import spearmanr

    chosen, best = min(runs), min(runs, key=lambda run: run[1])
    predicted, measured = [run[0] for run in runs], [run[1] for run in runs]
    level = len(set(predicted)) == 1 or len(set(measured)) == 1
    correlation = 0.0 if level else float(spearmanr(predicted, measured).statistic)
    return Sweep(cell, len(runs), chosen[1] / best[1] - 1.0, correlation, chosen[2], best[2])


def by_group(found: Iterable[Sweep]) -> dict[str, dict[str, float]]:
    """Means over the sweeps of every source."""
    mine: dict[str, list[Sweep]] = defaultdict(list)
    for sweep in found:
        mine[sweep.cell.group].append(sweep)
    return {
        name: {
            "sweeps": len(group),
            "mean_regret": statistics.fmean(s.regret for s in group),
            "worst_regret": max(s.regret for s in group),
            "rank_correlation": statistics.fmean(s.correlation for s in group),
        }
        for name, group in sorted(mine.items())
    }


def overall(groups: dict[str, dict[str, float]]) -> dict[str, float]:
    """Means over the sources, so that none dominates by the number of its sweeps."""
    if not groups:
        return {"sweeps": 0}
    return {
        "sweeps": sum(group["sweeps"] for group in groups.values()),
        "mean_regret": statistics.fmean(group["mean_regret"] for group in groups.values()),
        "rank_correlation": statistics.fmean(group["rank_correlation"] for group in groups.values()),
    }


def report(found: list[Sweep], *, form: str = "table") -> str:
    """The sweeps as a table by source, or all of them as JSON."""
    groups = by_group(found)
    total = overall(groups)
    if form == "json":
        rows: list[dict[str, Any]] = [
            {
                **sweep.cell._asdict(),
                "strategies": sweep.strategies,
                "regret": sweep.regret,
                "rank_correlation": sweep.correlation,
                "chosen": sweep.chosen,
                "best": sweep.best,
            }
            for sweep in found
        ]
        return json.dumps({"sweeps": rows, "groups": groups, "summary": total}, indent=1)
    if not found:
        return f"No sweep: none of the runs differ from {SMALLEST - 1} others in nothing but their strategy"
    head = f"{'group':30s}{'sweeps':>8s}{'regret':>9s}{'worst':>9s}{'rank correlation':>18s}"
    lines = [
        f"{name:30s}{g['sweeps']:8d}{g['mean_regret']:9.1%}{g['worst_regret']:9.1%}{g['rank_correlation']:18.2f}"
        for name, g in groups.items()
    ]
    last = f"{'mean over groups':30s}{total['sweeps']:8d}{total['mean_regret']:9.1%}{'':9s}"
    told = "Regret: how much longer the strategy predicted fastest took than the fastest of its sweep."
    return "\n".join([head, *lines, f"{last}{total['rank_correlation']:18.2f}", "", told])
