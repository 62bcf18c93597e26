"""What one option changes, as measured and as predicted: pairs of runs of one publisher that differ in nothing else.

All that a publisher's runs have in common cancels in a pair, so that an error of one sign over many publishers is one
of the mechanism behind the option. The unit is GPU-seconds per token: more GPUs that are as efficient change nothing.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import permutations
from typing import Any, Final, NamedTuple

from costmodels.names import Recompute
from costmodels.stack.precision import RECIPES
from planner.runs.case import Case
from planner.runs.corpus import grouped
from planner.runs.figures import Column, line
from planner.runs.schema import Run

CLEAR: Final = 0.03
"""Logarithm of a measured change from which its direction is no noise."""
Facts = Mapping[str, Hashable]
Steps = Callable[[Facts, Facts], float]


class Option(NamedTuple):
    """An option whose effect is looked at."""

    name: str
    changes: frozenset[str]
    """The facts that may differ: the option itself, and what follows from it."""
    steps: Steps
    """How often the second run has it more than the first: doublings, or 1; 0 or less where the pair says nothing."""


class Compared(NamedTuple):
    """A run as pairs are made of it."""

    publisher: str
    facts: Facts
    measured: float
    """GPU-seconds per token, as all times here."""
    predicted: float


class Effect(NamedTuple):
    """How a pair differs, logarithms per step."""

    publisher: str
    measured: float
    predicted: float


def facts_of(run: Run, case: Case) -> dict[str, Hashable]:
    """All that a run's price depends on, by name: the axes of its strategy, what its question gives, and the rest."""
    row, scenario = case.strategy.row(0), case.scenario
    kept = row.pop("sharding_degree") != row["dp"] * row["cp"] and row["zero_stage"] > 0
    named = {"gpus", "global_batch_size", "seq_length", "precision", "pins", "layers_per_stage", "recomputed_per_stage"}
    asked = json.loads(run.question)
    rest = {key: value for key, value in asked.items() if key not in named | {"model", "changes"}}
    changes = {key: value for key, value in asked.get("changes", {}).items() if not key.startswith("stack.supports")}
    model = scenario.model.model_copy(update={"seq_length": 0, "max_positions": 0, "name": "", "title": ""})
    return row | {
        "gpus": scenario.gpus,
        "batch": scenario.global_batch_size,
        "seq_length": scenario.seq_length,
        "bits": "16" if not RECIPES[scenario.precision].reduced else "8 or 4",
        "precision": scenario.precision,
        "partly_sharded": kept,
        "recomputed": str(asked.get("recomputed_per_stage")),
        "rest": json.dumps([rest, changes], sort_keys=True) + model.model_dump_json(),
    }


def _doubled(fact: str) -> Steps:
    return lambda one, other: math.log2(other[fact] / one[fact])  # type: ignore[operator]


def _instead(fact: str, before: Hashable, after: Hashable) -> Steps:
    return lambda one, other: float(one[fact] == before and other[fact] == after)


def _first_copies(one: Facts, other: Facts) -> float:
    return float(one["dp"] == 1 and other["dp"] != 1)


def _further_copies(one: Facts, other: Facts) -> float:
    return _doubled("dp")(one, other) if one["dp"] != 1 else 0.0


_SHARDED: Final = frozenset({"zero_stage", "partly_sharded"})
_PIPELINE: Final = frozenset({"pp", "vpp", "schedule", "vocabulary"})
_RECOMPUTE: Final = frozenset({"recompute", "recompute_modules", "recomputed", "recompute_num_layers"})
_LENGTH: Final = frozenset({"seq_length", "batch", "micro_batch_size", "num_microbatches"})
_BY_DATA: Final = frozenset({"dp", "num_microbatches", "partly_sharded"})

OPTIONS: Final = tuple(
    Option(name, frozenset(changes), steps)
    for name, changes, steps in (
        ("micro-batch x2", {"micro_batch_size", "num_microbatches"}, _doubled("micro_batch_size")),
        ("batch x2, more micro-batches", {"batch", "num_microbatches"}, _doubled("batch")),
        ("batch x2, larger micro-batch", {"batch", "micro_batch_size"}, _doubled("batch")),
        ("several data ranks for one", {"gpus", "dp", "batch"} | _SHARDED, _first_copies),
        ("data ranks x2, batch x2", {"gpus", "dp", "batch", "partly_sharded"}, _further_copies),
        ("data ranks x2, same batch", {"gpus"} | _BY_DATA, _doubled("gpus")),
        ("TP x2 for DP", {"tp", "sequence_parallel"} | _BY_DATA, _doubled("tp")),
        ("TP x2 for PP", {"tp", "sequence_parallel"} | _PIPELINE, _doubled("tp")),
        ("PP x2 for DP", _PIPELINE | _BY_DATA, _doubled("pp")),
        ("virtual stages x2", {"vpp", "schedule"}, _doubled("vpp")),
        ("EP x2", {"ep", "partly_sharded"}, _doubled("ep")),
        ("sequence x2, same tokens", _LENGTH, _doubled("seq_length")),
        ("full recomputation for none", _RECOMPUTE, _instead("recompute", Recompute.NONE, Recompute.FULL)),
        ("8 or 4 bits for 16", {"bits", "precision"}, _instead("bits", "16", "8 or 4")),
    )
)
"""What most sweeps are over."""


def pairs(option: Option, runs: Iterable[Compared]) -> Iterator[Effect]:
    """The effects of an option in every pair of runs that differ in it alone."""

    def alike(one: Compared) -> tuple[Hashable, ...]:
        return one.publisher, *(value for name, value in one.facts.items() if name not in option.changes)

    for same in grouped(runs, alike).values():
        for one, other in permutations(same, 2):
            if (steps := option.steps(one.facts, other.facts)) > 0.0:
                measured, predicted = (
                    math.log(after / before) / steps
                    for before, after in ((one.measured, other.measured), (one.predicted, other.predicted))
                )
                yield Effect(one.publisher, measured, predicted)


def effects(runs: Iterable[Compared]) -> dict[str, dict[str, float]]:
    """By option: publishers, pairs, and means over publishers of the change, measured and predicted, as shares.

    ``error`` is predicted over measured, ``deviation`` its standard error with publishers as units, ``right`` the share
    of clear changes whose direction is predicted. Runs that were measured again count with their geometric mean.
    """
    once = [_once(same) for same in grouped(runs, lambda one: (one.publisher, *one.facts.values())).values()]
    found = {option.name: list(pairs(option, once)) for option in OPTIONS}
    return {name: _figures(some) for name, some in found.items() if some}


def _once(same: list[Compared]) -> Compared:
    return same[0]._replace(measured=statistics.geometric_mean(one.measured for one in same))


def _figures(some: list[Effect]) -> dict[str, float]:
    by_publisher = list(grouped(some, lambda one: one.publisher).values())
    means = [
        [statistics.fmean(values) for values in zip(*((one.measured, one.predicted) for one in mine), strict=True)]
        for mine in by_publisher
    ]
    errors = [predicted - measured for measured, predicted in means]
    clear = [[one for one in mine if abs(one.measured) > CLEAR] for mine in by_publisher]
    right = [statistics.fmean((one.measured > 0.0) == (one.predicted > 0.0) for one in mine) for mine in clear if mine]
    figures = {
        "publishers": len(means),
        "pairs": len(some),
        "measured": math.expm1(statistics.fmean(measured for measured, _ in means)),
        "predicted": math.expm1(statistics.fmean(predicted for _, predicted in means)),
        "error": math.expm1(statistics.fmean(errors)),
    }
    if len(errors) > 1:
        figures["deviation"] = statistics.stdev(errors) / math.sqrt(len(errors))
    return figures | ({"right": statistics.fmean(right)} if right else {})


COLUMNS: Final = (
    Column("publishers", "sources", 8, str),
    Column("pairs", "pairs", 6, "{:,}".format),
    Column("measured", "measured", 9, "{:+.1%}".format),
    Column("predicted", "predicted", 10, "{:+.1%}".format),
    Column("error", "error", 7, "{:+.1%}".format),
    Column("deviation", "+-", 6, "{:.1%}".format),
    Column("right", "right", 6, "{:.0%}".format),
)
WIDE: Final = 28
LEGEND: Final = (
    "Changes of the GPU-seconds per token between two runs that differ in this option alone, means over sources. "
    "+-: standard error of the error. Right: how often the direction of a change beyond 3% is predicted."
)


def lines(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The figures as a table."""
    head = f"{'option':{WIDE}s}" + "".join(f"{column.heading:>{column.width}s}" for column in COLUMNS)
    return [head, *(line(name, figures, COLUMNS, WIDE) for name, figures in found.items())]
