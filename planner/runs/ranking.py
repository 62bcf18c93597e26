"""Does the model choose rightly? Measured sweeps, and what following the predictions would have cost."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from costmodels.strategy import Floats
from planner.runs.case import Case, case_of
from planner.runs.corpus import of_each
from planner.runs.files import read_runs
from planner.runs.judge import judge_run
from planner.runs.schema import Run
from planner.trust.table import LEFT_OUT

SMALLEST = 4
"""Strategies that make a sweep."""
USUAL_NOISE = 0.02
"""Relative standard deviation of a run that was measured again, where its source measured none twice: the median over
the shipped sources that did."""
DRAWS = 400
"""Noisy copies of a sweep that its ceiling and its floor are the means of."""


class Cell(NamedTuple):
    """What all strategies of one sweep have in common."""

    group: str
    accelerator: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_query_groups: int
    ffn_hidden_size: int
    seq_length: int
    vocab_size: int
    gpus: int
    precision: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """One sweep: how much longer the strategy predicted fastest really took than the best, and the rank correlation."""

    cell: Cell
    strategies: int
    regret: float
    correlation: float
    chosen: str
    """The run predicted fastest."""
    best: str
    """The run measured fastest."""
    ceiling: float
    """The rank correlation that measuring again would reach: what noise leaves to any model."""
    floor: float
    """The regret that a model which knows these times has on average once they are measured again."""


class Timed(NamedTuple):
    """One strategy of a sweep: predicted and measured seconds per token, its run's id."""

    predicted: float
    measured: float
    name: str


def sweeps(paths: Iterable[Path], *, workers: int = 1) -> list[Sweep]:
    """Every sweep of four or more measured strategies: same source, accelerator, model, sequence, GPUs and precision.

    Times are per token, since batches may differ. What was measured again counts once, with the median of its times.
    """
    cells: dict[Cell, dict[str, list[Timed]]] = defaultdict(lambda: defaultdict(list))
    runs = [run for path in paths for run in read_runs(path)]
    for run, found in zip(runs, of_each(runs, _times, workers=workers), strict=True):
        if found is not None:
            cell, timed = found
            cells[cell][run.question].append(timed)
    noises = _noises(cells)
    ordered = sorted(cells.items(), key=str)
    return [_judged(cell, alike, noises) for cell, alike in ordered if len(alike) >= SMALLEST]


def _times(run: Run) -> tuple[Cell, Timed] | None:
    """None where the run does not count."""
    for verdict in judge_run(run):
        if verdict.metric == "iteration_time" and verdict.scored and verdict.predicted:
            found = case_of(run)
            tokens = found.scenario.tokens
            timed = Timed(float(verdict.predicted) / tokens, float(verdict.measured) / tokens, verdict.id)
            return cell_of(run, found), timed
    return None


def _noises(cells: dict[Cell, dict[str, list[Timed]]]) -> dict[str, float]:
    """Relative standard deviation of measuring again, by source, of those that did."""
    squares: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for cell, alike in cells.items():
        for runs in alike.values():
            if len(runs) > 1:
                logs = np.log([run.measured for run in runs])
                squares[cell.group].append((float(np.sum((logs - logs.mean()) ** 2)), len(runs) - 1))
    return {name: math.sqrt(sum(s for s, _ in found) / sum(n for _, n in found)) for name, found in squares.items()}


def cell_of(run: Run, found: Case) -> Cell:
    """The sweep that a run belongs to."""
    scenario, model = found.scenario, found.scenario.model
    return Cell(
        group=run.group,
        accelerator=scenario.group.accelerator.name,
        num_layers=model.num_layers,
        hidden_size=model.hidden_size,
        num_heads=model.num_heads,
        num_query_groups=model.num_query_groups,
        ffn_hidden_size=model.ffn_hidden_size,
        seq_length=scenario.seq_length,
        vocab_size=model.vocab_size,
        gpus=scenario.gpus,
        precision=scenario.precision,
    )


def _judged(cell: Cell, alike: dict[str, list[Timed]], noises: dict[str, float]) -> Sweep:
    from scipy.stats import spearmanr

    runs = [_middle(again) for again in alike.values()]
    chosen, best = min(runs), min(runs, key=lambda run: run.measured)
    predicted, measured = [run.predicted for run in runs], [run.measured for run in runs]
    level = len(set(predicted)) == 1 or len(set(measured)) == 1
    correlation = 0.0 if level else float(spearmanr(predicted, measured).statistic)
    regret, noise = chosen.measured / best.measured - 1.0, noises.get(cell.group, USUAL_NOISE)
    within = {"ceiling": ceiling(measured, noise), "floor": floor(measured, noise)}
    return Sweep(cell, len(runs), regret, correlation, chosen.name, best.name, **within)


def _middle(again: list[Timed]) -> Timed:
    return again[0]._replace(measured=statistics.median(run.measured for run in again))


def ceiling(measured: Sequence[float], noise: float) -> float:
    """Mean rank correlation of measured times with the same times measured again.

    Args:
        measured: times of a sweep, in any unit.
        noise: relative standard deviation of one measurement.
    """
    logs, again = _measured_again(measured, noise)
    ranks, once = (np.argsort(np.argsort(x, axis=-1), axis=-1) - (len(logs) - 1) / 2.0 for x in (again, logs))
    return float(np.mean(ranks @ once) / np.sum(once**2))


def floor(measured: Sequence[float], noise: float) -> float:
    """Mean regret of who takes the fastest of measured times, once all of them are measured again.

    True times lie closer together than measured ones, which noise has spread: among them the regret is greater still.

    Args:
        measured: times of a sweep, in any unit.
        noise: relative standard deviation of one measurement.
    """
    logs, again = _measured_again(measured, noise)
    return float(np.mean(np.expm1(again[:, np.argmin(logs)] - again.min(axis=1))))


def _measured_again(measured: Sequence[float], noise: float) -> tuple[Floats, Floats]:
    """Logarithms of the times (N,), and of ``DRAWS`` further measurements of them (DRAWS, N)."""
    logs, random = np.log(np.asarray(measured)), np.random.default_rng(0)
    return logs, logs + noise * random.standard_normal((DRAWS, len(logs)))


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
            "ceiling": statistics.fmean(s.ceiling for s in group),
            "regret_floor": statistics.fmean(s.floor for s in group),
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
        "ceiling": statistics.fmean(group["ceiling"] for group in groups.values()),
        "regret_floor": statistics.fmean(group["regret_floor"] for group in groups.values()),
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
                "ceiling": sweep.ceiling,
                "regret_floor": sweep.floor,
                "chosen": sweep.chosen,
                "best": sweep.best,
            }
            for sweep in found
        ]
        told = {
            "sweeps": rows,
            "groups": groups,
            "summary": total,
            "summary_without_left_out": without_left_out(groups),
        }
        return json.dumps(told, indent=1)
    if not found:
        return f"No sweep: none of the runs differ from {SMALLEST - 1} others in nothing but their strategy"
    head = (
        f"{'group':30s}{'sweeps':>8s}{'regret':>9s}{'floor':>9s}{'worst':>9s}{'rank correlation':>18s}{'ceiling':>9s}"
    )
    legend = (
        "Regret: how much longer the strategy predicted fastest took than the fastest of its sweep. Floor and "
        "ceiling: the mean regret and rank correlation of a model that knows the measurements, once they are measured "
        "again with their source's noise."
    )
    lines = [_line(name, group) for name, group in groups.items()]
    return "\n".join([head, *lines, _line("mean over groups", total), *_further(groups), "", legend])


def _line(name: str, figures: dict[str, float]) -> str:
    worst = f"{figures['worst_regret']:.1%}" if "worst_regret" in figures else ""
    return (
        f"{name:30s}{figures['sweeps']:8d}{figures['mean_regret']:9.1%}{figures['regret_floor']:9.1%}{worst:>9s}"
        f"{figures['rank_correlation']:18.2f}{figures['ceiling']:9.2f}"
    )


def without_left_out(groups: dict[str, dict[str, float]]) -> dict[str, float]:
    """``overall`` without the sources that every fit leaves out: what they scatter by says nothing of the model."""
    return overall({name: group for name, group in groups.items() if name not in LEFT_OUT})


def _further(groups: dict[str, dict[str, float]]) -> list[str]:
    rest = without_left_out(groups)
    if rest["sweeps"] in {0, overall(groups)["sweeps"]}:
        return []
    return [_line("without those left out of fits", rest)]
