"""Errors of predicted memory: the table that the probability of fitting rests on, and the figures of its model.

Likely are figures under which the readings of every publisher together are, as with times, and the side on which every
other run lay: one that ran needed no more than its device has, one that ran out of memory more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from costmodels.stack.costs import Calibrated
from costmodels.strategy import Floats
from planner.runs.case import Case
from planner.runs.corpus import grouped, scored_cases
from planner.runs.error_fit import FOLDS, SPEAK, likelihood
from planner.runs.fit_memory import caches, held, tensor_slacks, tensor_verdicts
from planner.runs.judge import room_of, shipped, shown_bytes
from planner.runs.residuals import thinned_evenly
from planner.runs.schema import Run
from planner.trust.error_model import Variances, likeness, spread
from planner.trust.interval import micro_batch_tokens
from planner.trust.memory import EXTENT, FREEDOM, SETTING, Readings, below, from_rows, of_setting
from planner.trust.similarity import distance, traits
from planner.trust.table import source

TIGHT: Final = math.log(2.0)
"""Room beyond which a run that ran says nothing of errors."""
FREE: Final = ("common", "cell", "smooth", "noise", "distance", "few", "own_model")
"""What is found; memory has no terms."""
USUAL: Final = Variances(**dict.fromkeys(Variances._fields, 0.0))._replace(
    common=0.05, cell=0.03, smooth=0.03, noise=0.02, distance=0.4
)
"""Where the search begins, and the middle of its wide prior."""
_DEVIATIONS: Final = 4
"""How many of these are standard deviations, which are sought by their logarithms."""
_PRIOR: Final = np.array([2.0] * _DEVIATIONS + [1.0, 0.5, 0.5])


def table() -> list[dict[str, str]]:
    """The rows of ``memory.csv``, the scales of their errors still open."""
    cases = scored_cases(shipped(), lambda run: run.measured.peak_memory or run.measured.fits is not None)
    rows = [_record(run, case) for run, case in cases]
    useful = [row for row in rows if row["reading"] or row["fits"] == "no" or float(row["room"]) < TIGHT]
    groups = grouped(useful, lambda row: (row["group"], row["reading"], row["fits"]))
    kept = [row for key in sorted(groups) for row in thinned_evenly(groups[key])]
    return _with_nearest(kept)


def _record(run: Run, case: Case) -> dict[str, str]:
    scenario, row, said = case.scenario, case.strategy, run.measured
    # What a run held when it failed is no peak.
    peak = None if said.out_of_memory else said.peak_memory
    known, unseen = traits(scenario, row), _unseen(case, source(run.group))
    fits = {None: "", True: "yes", False: "no"}[said.fits]
    numbers = {"error": math.nan, "miss": math.nan, "room": room_of(unseen)}
    if peak is not None:
        numbers["error"] = shown_bytes(run, case, case.price()) / peak.bytes - 1.0
        numbers["miss"] = math.log(peak.bytes / shown_bytes(run, unseen, unseen.price()))
    sizes = {key: 2.0 ** float(known.sizes[key][0]) for key in (*EXTENT, "tp", "pp")}
    sizes |= {
        "micro_batch_tokens": micro_batch_tokens(row, scenario.seq_length)[0],
        "tokens_per_gpu": scenario.tokens / scenario.gpus,
    }
    return {
        "group": run.group,
        "reading": peak.kind if peak else "",
        **{name: "" if math.isnan(value) else f"{value:.3f}" for name, value in numbers.items()},
        "fits": fits,
        "precision": scenario.precision,
        "own_model": "yes" * scenario.stack.own_model,
        **{name: str(known.names[name][0]) for name in SETTING},
        **{name: f"{value:.4g}" for name, value in sizes.items()},
    }


def _unseen(case: Case, publisher: str) -> Case:
    """The case with the constants of its allocator as they would be without a publisher's runs."""
    stack = case.scenario.stack
    found = {f"calibrated.{name}": value for name, value in _constants(stack.name, publisher).items()}
    return Case(replace(case.scenario, stack=stack.changed(found)), case.strategy, case.assignment) if found else case


@cache
def _constants(stack: str, publisher: str) -> Mapping[str, float | None]:
    """What the fit of allocators' constants gives a stack without a publisher, of those that it does give it."""
    found: dict[str, float | None] = {}
    fits = {"cached_share": partial(caches, _held()), "tensor_fragmentation": partial(tensor_slacks, _ran())}
    for field, fit in fits.items():
        if stack in fit():
            left = fit(without=publisher).get(stack)
            found[field] = left[0] if left else getattr(Calibrated(), field)
    return found


_held = cache(lambda: held(shipped()))
_ran = cache(lambda: tensor_verdicts(shipped()))


def _with_nearest(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    known = from_rows([row | {"nearest": "0", "scale": "0"} for row in rows])
    read = known.take(np.flatnonzero(known.read))
    same = known.sources[:, None] == read.sources
    away = np.where(same, np.inf, distance(of_setting(known.traits), read.traits)).min(axis=1)
    return [row | {"nearest": f"{near:.3f}"} for row, near in zip(rows, away, strict=True)]


def find(rows: list[dict[str, str]]) -> tuple[list[dict[str, str]], Variances]:
    """The rows with the scales of their errors, each by the runs of other publishers; and the figures by all."""
    known = from_rows([row | {"scale": "0"} for row in rows])
    names, scale = np.unique(known.sources), np.empty(len(rows))
    for fold in range(FOLDS):
        held_out = np.isin(known.sources, names[fold::FOLDS])
        without = fitted(known.take(np.flatnonzero(~held_out)))
        scale[held_out] = spread(known.points.take(np.flatnonzero(held_out)), without)
    rows = [row | {"scale": f"{wide:.4f}"} for row, wide in zip(rows, scale, strict=True)]
    return rows, fitted(known)


def fitted(known: Readings) -> Variances:
    """The figures of greatest likelihood."""
    points, misses, room = known.points, known.column("miss"), known.column("room")
    parts = []
    for name in np.unique(known.sources[known.read]):
        runs = np.flatnonzero(known.read & (known.sources == name))
        mine = points.take(runs)
        parts.append((mine, misses[runs], likeness(mine, mine)))
    judged = np.flatnonzero((known.column("fits") != "") & ~known.read)
    sides, weight = np.where(known.column("fits")[judged] == "yes", 1.0, -1.0), _weights(known.sources[judged])
    known_points, reached = points.take(judged), sides * room[judged]
    middle = _sought(USUAL)

    def unlikely(at: Floats) -> float:
        here = _meant(at)
        said = sum(likelihood(*part, here, FREEDOM) * min(1.0, SPEAK / len(part[1])) for part in parts)
        said += float(weight @ np.log(np.maximum(below(reached / spread(known_points, here)), 1e-12)))
        return float(0.5 * (((at - middle) / _PRIOR) ** 2).sum() - said)

    return _meant(minimize(unlikely, middle, method="L-BFGS-B").x)


def _weights(names: NDArray[np.str_]) -> Floats:
    """Every run one, of a publisher with many ``SPEAK`` together."""
    _, place, runs = np.unique(names, return_inverse=True, return_counts=True)
    weight: Floats = np.minimum(1.0, SPEAK / runs[place])
    return weight


def _sought(known: Variances) -> Floats:
    found = np.array([getattr(known, name) for name in FREE])
    return np.array([*np.log(found[:_DEVIATIONS]), *found[_DEVIATIONS:]])


def _meant(at: Floats) -> Variances:
    found = (*np.exp(at[:_DEVIATIONS]), *at[_DEVIATIONS:])
    return USUAL._replace(**dict(zip(FREE, map(float, found), strict=True)))
