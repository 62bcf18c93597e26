"""Does the model choose rightly? Measured sweeps, and what following the predictions would have cost."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from costmodels.strategy import Floats
from planner.request.progress import Tell
from planner.runs.case import Case
from planner.runs.corpus import counting, grouped, map_cases
from planner.runs.effects import LEGEND as EFFECTS
from planner.runs.effects import Compared, Facts, effects, facts_of, lines
from planner.runs.figures import Column, table
from planner.runs.files import read_runs
from planner.runs.schema import Run
from planner.trust.table import LEFT_OUT, source

SMALLEST = 4
"""Strategies that make a sweep."""
USUAL_NOISE = 0.02
"""Relative standard deviation of a run that was measured again, where its source measured none twice: the median over
the shipped sources that did."""
EQUAL = 1e-9
"""Share within which predicted times are equal, so that no measurement may choose between them."""
DRAWS = 400
"""Noisy copies of a sweep that its ceiling and its floor are the means of."""


class Cell(NamedTuple):
    """What all strategies of one sweep have in common: what a question gives, and no strategy changes."""

    group: str
    accelerator: str
    network: tuple[float, ...]
    """GB/s of a GPU in every tier, inside out."""
    software: str
    """Stack and release, and what the run changes of it, but for what it may run."""
    num_layers: int
    hidden_size: int
    num_heads: int
    num_query_groups: int
    ffn_hidden_size: int
    seq_length: int
    vocab_size: int
    gpus: int
    precision: str


class Sweep(NamedTuple):
    """One sweep: how much longer the strategy predicted fastest really took than the best, and the rank correlation."""

    cell: Cell
    strategies: int
    regret: float
    rank_correlation: float
    ceiling: float
    """The rank correlation that measuring again would reach: what noise leaves to any model."""
    regret_floor: float
    """The regret that a model which knows these times has on average once they are measured again."""
    chosen: str
    """The run predicted fastest."""
    best: str
    """The run measured fastest."""
    near: float
    """Share of its pairs whose times differ by less than measurements of one strategy do: their order is noise."""


class Timed(NamedTuple):
    """One strategy of a sweep: predicted and measured seconds per token, its run, sweep and question."""

    predicted: float
    measured: float
    name: str
    cell: Cell
    question: str
    facts: Facts

    @property
    def compared(self) -> Compared:
        """The run in GPU-seconds."""
        return Compared(
            source(self.cell.group), self.facts, *(x * self.cell.gpus for x in (self.measured, self.predicted))
        )


def timed(paths: Iterable[Path], *, workers: int = 1, progress: Tell | None = None) -> list[Timed]:
    """Every run that counts, with its price."""
    every = [run for path in paths for run in read_runs(path) if run.measured.iteration_seconds]
    runs = [run for run in every if run.scored and not run.unpriced]
    priced = map_cases(runs, _timed_runs, workers=workers, report=counting(len(runs), progress))
    return [one for one in priced if one is not None]


def sweeps(runs: Iterable[Timed], *, same_batch: bool = False) -> list[Sweep]:
    """Every sweep of four or more measured strategies: same source, machine, software, model, sequence and precision.

    Times are per token, since batches may differ, unless ``same_batch`` keeps them apart, as a question does. What was
    measured again counts once, with the median of its times.
    """
    cells = grouped(runs, lambda one: (one.cell, one.facts["batch"] if same_batch else None))
    again = [list(grouped(cells[cell], lambda one: one.question).values()) for cell in sorted(cells, key=str)]
    noises = _noises(same for alike in again for same in alike if len(same) > 1)
    return [_judged(alike, noises) for alike in again if len(alike) >= SMALLEST]


def _timed_runs(runs: Sequence[Run], cases: Sequence[Case | str]) -> list[Timed | None]:
    return [_timed(run, case) for run, case in zip(runs, cases, strict=True)]


def _timed(run: Run, case: Case | str) -> Timed | None:
    """None where the run cannot be priced."""
    if isinstance(case, str):
        return None
    tokens, measured = case.scenario.tokens, run.measured.iteration_seconds or math.nan
    return Timed(
        case.price().iteration / tokens,
        measured / tokens,
        run.id,
        cell_of(run, case),
        run.question,
        facts_of(run, case),
    )


def _noises(repeated: Iterable[list[Timed]]) -> dict[str, float]:
    """Relative standard deviation of measuring again, by source, of runs that have each others' configuration."""
    found: dict[str, float] = {}
    for name, times in grouped(repeated, lambda same: same[0].cell.group).items():
        squares = sum(float(np.var(np.log([run.measured for run in same]))) * len(same) for same in times)
        found[name] = math.sqrt(squares / sum(len(same) - 1 for same in times))
    return found


def cell_of(run: Run, found: Case) -> Cell:
    """The sweep that a run belongs to."""
    scenario, model = found.scenario, found.scenario.model
    return Cell(
        group=run.group,
        accelerator=scenario.group.accelerator.name,
        network=tuple(round(tier.link.bandwidth / 1e9, 3) for tier in scenario.group.tiers),
        software=_software(run),
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


def _software(run: Run) -> str:
    """Which ZeRO stages and schedules a stack may run follows what the strategy asked for."""
    asked = json.loads(run.question)
    changes = {name: value for name, value in asked.get("changes", {}).items() if not name.startswith("stack.supports")}
    return " ".join([str(asked.get("stack", "")), *(f"{name}={value}" for name, value in changes.items())])


def _judged(alike: list[list[Timed]], noises: Mapping[str, float]) -> Sweep:
    from scipy.stats import spearmanr

    runs = [again[0]._replace(measured=statistics.median(run.measured for run in again)) for again in alike]
    predicted, measured = [run.predicted for run in runs], [run.measured for run in runs]
    chosen = [run for run in runs if run.predicted <= min(predicted) * (1.0 + EQUAL)]
    best, cell = min(runs, key=lambda run: run.measured), runs[0].cell
    level = len(set(predicted)) == 1 or len(set(measured)) == 1
    correlation = 0.0 if level else float(spearmanr(predicted, measured).statistic)
    regret = statistics.fmean(run.measured for run in chosen) / best.measured - 1.0
    noise = noises.get(cell.group, USUAL_NOISE)
    noise_alone, close = (ceiling(measured, noise), floor(measured, noise)), near(measured, noise)
    return Sweep(cell, len(runs), regret, correlation, *noise_alone, chosen[0].name, best.name, close)


def ceiling(measured: Sequence[float], noise: float) -> float:
    """Mean rank correlation of measured times with the same times measured again.

    ``noise`` is the relative standard deviation of one measurement.
    """
    logs, again = _measured_again(measured, noise)
    ranks, once = (np.argsort(np.argsort(x, axis=-1), axis=-1) - (len(logs) - 1) / 2.0 for x in (again, logs))
    return float(np.mean(ranks @ once) / np.sum(once**2))


def floor(measured: Sequence[float], noise: float) -> float:
    """Mean regret of who takes the fastest of measured times, once all of them are measured again.

    True times lie closer together than measured ones, which noise has spread: among them the regret is greater still.

    ``noise`` is the relative standard deviation of one measurement.
    """
    logs, again = _measured_again(measured, noise)
    return float(np.mean(np.expm1(again[:, np.argmin(logs)] - again.min(axis=1))))


def near(measured: Sequence[float], noise: float) -> float:
    """Share of the pairs of measured times that lie closer than two measurements of one strategy usually do.

    Args:
        measured: times of a sweep, two or more, in any unit.
        noise: relative standard deviation of one measurement.
    """
    logs = np.log(np.asarray(measured))
    apart = np.abs(logs[:, None] - logs)[np.triu_indices(len(logs), 1)]
    return float(np.mean(apart < math.sqrt(2.0) * noise))


def _measured_again(measured: Sequence[float], noise: float) -> tuple[Floats, Floats]:
    """Logarithms of the times (N,), and of ``DRAWS`` further measurements of them (DRAWS, N)."""
    logs, random = np.log(np.asarray(measured)), np.random.default_rng(0)
    return logs, logs + noise * random.standard_normal((DRAWS, len(logs)))


def by_group(found: Iterable[Sweep]) -> dict[str, dict[str, float]]:
    """Means over the sweeps of every source."""
    return {name: _figures(sweeps) for name, sweeps in sorted(grouped(found, lambda one: one.cell.group).items())}


def _figures(sweeps: list[Sweep]) -> dict[str, float]:
    return {
        "sweeps": len(sweeps),
        "mean_regret": statistics.fmean(one.regret for one in sweeps),
        "worst_regret": max(one.regret for one in sweeps),
        "rank_correlation": statistics.fmean(one.rank_correlation for one in sweeps),
        "ceiling": statistics.fmean(one.ceiling for one in sweeps),
        "regret_floor": statistics.fmean(one.regret_floor for one in sweeps),
        "near": statistics.fmean(one.near for one in sweeps),
    }


def overall(groups: dict[str, dict[str, float]]) -> dict[str, float]:
    """Means over the sources, so that none dominates by the number of its sweeps."""
    if not groups:
        return {"sweeps": 0}
    means = ("mean_regret", "rank_correlation", "ceiling", "regret_floor", "near")
    counts = {"sweeps": sum(group["sweeps"] for group in groups.values()), "sources": len(groups)}
    return counts | {name: statistics.fmean(group[name] for group in groups.values()) for name in means}


COLUMNS: Final = (
    Column("sweeps", "sweeps", 7, str),
    Column("mean_regret", "regret", 8, "{:.1%}".format),
    Column("regret_floor", "floor", 7, "{:.1%}".format),
    Column("worst_regret", "worst", 7, "{:.1%}".format),
    Column("rank_correlation", "ranks", 7, "{:.2f}".format),
    Column("ceiling", "ceiling", 8, "{:.2f}".format),
    Column("near", "near", 6, "{:.0%}".format),
)
NAME: Final = 28
"""Characters of the name of a source, so that a line takes eighty."""
LEGEND: Final = (
    "Ranks: rank correlation of predicted and measured times. Regret: how much longer the strategy predicted fastest "
    "took than the fastest of its sweep. Floor and ceiling: the mean regret and rank correlation of a model that knows "
    "the measurements, once they are measured again with their source's noise. Near: pairs that differ by less than "
    "such noise. Strategies with equal predictions count with the mean of their times."
)


def report(runs: list[Timed], *, form: str = "table") -> str:
    """The sweeps as a table by source, then what single options change; or all of it as JSON."""
    found, changed = sweeps(runs), effects(run.compared for run in runs)
    groups = by_group(found)
    total, rest = overall(groups), without_left_out(groups)
    alone = overall(by_group(sweeps(runs, same_batch=True)))
    if form == "json":
        rows = [one.cell._asdict() | {k: v for k, v in one._asdict().items() if k != "cell"} for one in found]
        document = {"sweeps": rows, "groups": groups, "summary": total, "summary_without_left_out": rest}
        return json.dumps(document | {"summary_same_batch": alone, "effects": changed}, indent=1)
    single = ["", *lines(changed), "", EFFECTS] if changed else []
    if not found:
        none = f"No sweep: none of the runs differ from {SMALLEST - 1} others in nothing but their strategy"
        return "\n".join([none, *single])
    means = {"mean over groups": total}
    if rest["sweeps"] not in {0, total["sweeps"]}:
        means["without those left out of fits"] = rest
    if alone["sweeps"]:
        means["sweeps of one batch size"] = alone
    return "\n".join([_answer(total), "", *table(groups | means, COLUMNS, wide=NAME), "", LEGEND, *single])


def _answer(total: Mapping[str, float]) -> str:
    """What following the predictions costs, in a sentence."""
    return (
        f"The strategy predicted fastest takes {total['mean_regret']:.1%} longer than the fastest measured one of its "
        f"sweep, of which noise leaves {total['regret_floor']:.1%} to any model (means over sources)."
    )


def without_left_out(groups: dict[str, dict[str, float]]) -> dict[str, float]:
    """``overall`` without the sources that every fit leaves out: what they scatter by says nothing of the model."""
    return overall({name: group for name, group in groups.items() if name not in LEFT_OUT})
