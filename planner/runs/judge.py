"""Predicted against measured, run by run: iteration time, memory, whether it fits."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from costmodels.memory.footprint import readings
from costmodels.pricing import Price
from costmodels.strategy import concatenate
from hardware.errors import MeshwrightError
from planner.answer.build import mfu_of
from planner.answer.plan import Interval
from planner.processes import check_interrupt
from planner.request.files import profile_records
from planner.request.progress import Progress, Tell
from planner.runs.case import Case
from planner.runs.corpus import case_or_reason, grouped, map_cases
from planner.runs.files import read_runs
from planner.runs.schema import Run
from planner.trust.interval import intervals
from planner.trust.table import source

HOME = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Verdict:
    """One measured quantity of one run and its prediction; ``reason`` where it could not be priced.

    ``measured`` is 0.0 where no time could be read.
    """

    id: str
    group: str
    metric: str
    measured: float | bool
    predicted: float | bool | None
    reason: str = ""
    notes: tuple[str, ...] = ()
    """What was assumed of the run, and of this figure."""
    scored: bool = False
    """Complete and not suspect: counts in the summary."""
    interval: Interval | None = None
    """Where the time should lie, by the runs of other sources."""
    broken: tuple[str, ...] = ()
    """Rules that would refuse the run as a plan, with what they say."""

    @property
    def error(self) -> float | None:
        """Predicted over measured, minus one; None of what is not measured or fits or not."""
        if self.predicted is None or isinstance(self.measured, bool) or not self.measured:
            return None
        return float(self.predicted) / self.measured - 1.0

    @property
    def within(self) -> bool | None:
        """Whether a measured time lies inside the interval that would have been promised."""
        return None if self.interval is None else self.interval.low <= self.measured <= self.interval.high

    def document(self) -> dict[str, Any]:
        """As JSON shows it."""
        shown: dict[str, Any] = {
            "id": self.id,
            "group": self.group,
            "metric": self.metric,
            "measured": self.measured if isinstance(self.measured, bool) else self.measured or None,
            "predicted": self.predicted,
            "error": self.error,
        }
        if self.reason:
            shown["reason"] = self.reason
        if self.interval is not None:
            shown["interval"] = {"low": self.interval.low, "high": self.interval.high}
            shown["within_interval"] = self.within
        if self.broken:
            shown["broken_rules"] = list(self.broken)
        return {**shown, "assumed": list(self.notes), "scored": self.scored}


def shipped() -> list[Path]:
    """The measured runs that come with the project: the evidence of constants, intervals, nearest runs and ties."""
    return [HOME / "runs.jsonl.gz"]


def read_named(paths: Iterable[Path]) -> Iterator[tuple[str, Run]]:
    """The runs of some files, each with what its file is called: its name, or its path where several have that name."""
    files = list(paths)
    counts = Counter(path.name for path in files)
    return ((path.name if counts[path.name] == 1 else str(path), run) for path in files for run in read_runs(path))


Compared = Mapping[str, list[Verdict]]
"""The verdicts on every file, by its name."""


def judge(
    paths: Iterable[Path], profile: str | None = None, *, workers: int = 1, progress: Tell | None = None
) -> Compared:
    """Every quantity of every run, in order, by file; on the cluster and the stack of a profile if one is named.

    ``progress`` receives how many runs are priced, and the median error so far.

    Raises:
        BadFile: a file or the profile cannot be read.
    """
    named = list(read_named(paths))
    parts: Mapping[str, Any] = {} if profile is None else profile_records(profile)
    report = None if progress is None else _Counted(len(named), progress)
    verdicts = map_cases([run for _, run in named], judge_runs, workers=workers, report=report, **parts)
    by_file = grouped(zip(named, verdicts, strict=True), lambda pair: pair[0][0])
    return {name: [verdict for _, found in pairs for verdict in found] for name, pairs in by_file.items()}


class _Counted:
    """Tells how many runs are priced, and the median error of their times so far."""

    def __init__(self, total: int, progress: Tell) -> None:
        self.at, self.progress, self.errors = Progress("pricing measured runs", total=total), progress, list[float]()

    def __call__(self, found: list[list[Verdict]]) -> None:
        verdicts = [one for verdicts in found for one in verdicts if one.metric == "iteration_time"]
        self.errors += [abs(one.error) for one in verdicts if one.scored and one.error is not None]
        so_far = f"median error of times so far {statistics.median(self.errors):.1%}" if self.errors else ""
        self.at = replace(self.at, done=self.at.done + len(found), so_far=so_far)
        self.progress(self.at)


def judge_run(run: Run, **parts: Any) -> list[Verdict]:
    """The verdicts on one run; one with a reason where it cannot be priced.

    Args:
        run: the run.
        parts: cluster and stack in place of its own, as ``case_of`` takes them.
    """
    return judge_runs([run], [case_or_reason(run, **parts)])[0]


def judge_runs(runs: Sequence[Run], cases: Sequence[Case | str]) -> list[list[Verdict]]:
    """The same of runs whose cases, or why they have none, are known."""
    found = [_priced(run, case) for run, case in zip(runs, cases, strict=True)]
    timed = [one for one in found if one.price and one.run.measured.iteration_seconds]
    promised = dict(zip(map(id, timed), _intervals(timed) if timed else (), strict=True))
    return [_verdicts(one, promised.get(id(one))) for one in found]


class _Priced(NamedTuple):
    """A run with its price, or with the reason why it has none, and what is predicted of it by metric."""

    run: Run
    case: Case | None
    price: Price | None
    predicted: Mapping[str, float | bool]
    reason: str = ""


def _priced(run: Run, case: Case | str) -> _Priced:
    reason = run.unpriced or ("" if _measured(run) else "nothing measured") or (case if isinstance(case, str) else "")
    if not reason and isinstance(case, Case):
        try:
            price = case.price()
            return _Priced(run, case, price, _predicted(run, case, price))
        except (MeshwrightError, ValueError, ArithmeticError) as error:
            check_interrupt(error)
            reason = str(error)
    return _Priced(run, None, None, {}, reason)


def _measured(run: Run) -> dict[str, float | bool]:
    """What was measured of a run, by metric."""
    said = run.measured
    peak = said.peak_memory.bytes if said.peak_memory else None
    values = zip(_PATHS, (said.iteration_seconds, peak, said.fits), strict=True)
    return {metric: value for metric, value in values if value is not None}


def _verdicts(found: _Priced, promised: Interval | None) -> list[Verdict]:
    """The verdicts on one run; ``promised`` is where its time should lie."""
    run, case = found.run, found.case
    return [
        Verdict(
            id=_printable(run.id),
            group=_printable(run.group),
            metric=metric,
            measured=value,
            predicted=found.predicted.get(metric),
            reason=found.reason,
            notes=_notes(run, metric),
            # What a run held when it failed is no peak.
            scored=run.scored and not (case and metric == "memory" and run.measured.out_of_memory),
            interval=promised if metric == "iteration_time" else None,
            broken=tuple(f"{one.rule}: {one.example}" for one in case.broken) if case else (),
        )
        for metric, value in (_measured(run) or {"iteration_time": 0.0}).items()
    ]


_PATHS: Mapping[str, str] = {
    "iteration_time": "measured.iteration_seconds",
    "memory": "measured.peak_memory",
    "fits": "",
}


def _notes(run: Run, metric: str) -> tuple[str, ...]:
    """What was assumed of the run, and of the figure."""
    own = _PATHS[metric]
    said = tuple(why for path, why in run.assumed.items() if path == own or not path.startswith("measured."))
    return (*said, f"time derived from {run.derived_from}") if run.derived_from and metric == "iteration_time" else said


def _printable(said: str) -> str:
    """A name on one line of a terminal, whatever codes it holds."""
    return said if said.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in said)


def _intervals(found: Sequence[_Priced]) -> list[Interval]:
    """Where the measured times should lie, by the runs of other publishers."""
    each = [(one.run, one.case, one.price) for one in found if one.case and one.price]
    runs, cases, prices = zip(*each, strict=True)
    scenarios, seconds = [case.scenario for case in cases], [price.iteration for price in prices]
    return intervals(
        scenarios,
        concatenate([case.strategy for case in cases]),
        seconds,
        breakdown={term: np.array([price.breakdown[term] for price in prices]) for term in prices[0].breakdown},
        mfu=np.array([mfu_of(*one) for one in zip(scenarios, seconds, strict=True)]),
        sources=[source(run.group) for run in runs],
    )


def stages_read(run: Run) -> slice:
    """The stages that the run's memory figure is the largest of: all, or the one that was read."""
    peak = run.measured.peak_memory
    return slice(None) if peak is None or peak.stage is None else slice(peak.stage, peak.stage + 1)


def shown_bytes(run: Run, found: Case, priced: Price) -> float:
    """Predicted bytes of the quantity that was read of a run."""
    reserved, device = readings(priced.footprint, found.scenario)
    quantities = {"allocated": priced.footprint.handed_out, "reserved": reserved, "device": device}
    kind = run.measured.peak_memory.kind if run.measured.peak_memory else "allocated"
    return float(np.max(quantities[kind][stages_read(run)]))


def room_of(found: Case) -> float:
    """Logarithm of what the device has over what the run is predicted to need."""
    usable = found.scenario.group.accelerator.usable_memory
    return math.log(usable / float(np.max(found.price().footprint.total)))


def _predicted(run: Run, found: Case, priced: Price) -> dict[str, float | bool]:
    usable = found.scenario.group.accelerator.usable_memory
    return {
        "iteration_time": priced.iteration,
        "memory": shown_bytes(run, found, priced),
        "fits": bool(np.max(priced.footprint.total) <= usable),
    }


def coverage(verdicts: Iterable[Verdict]) -> dict[str, float]:
    """Share of the scored times inside their intervals, by source group."""
    judged = grouped((v for v in verdicts if v.scored and v.within is not None), lambda verdict: verdict.group)
    return {name: statistics.fmean(bool(v.within) for v in found) for name, found in sorted(judged.items())}


def groups(verdicts: Iterable[Verdict], metric: str) -> dict[str, dict[str, float]]:
    """Signed bias and sizes of the errors of the scored rows, by source group."""
    scored = (v for v in verdicts if v.scored and v.metric == metric and v.error is not None)
    by_group = grouped(scored, lambda verdict: verdict.group)
    return {name: error_figures([v.error or 0.0 for v in found]) for name, found in sorted(by_group.items())}


def error_figures(errors: Sequence[float]) -> dict[str, float]:
    """Number, signed bias and sizes of some errors."""
    sizes = sorted(map(abs, errors))
    return {
        "n": len(errors),
        "bias": statistics.median(errors),
        "median_abs_error": statistics.median(sizes),
        "mean_abs_error": statistics.fmean(sizes),
        "p90_abs_error": sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))],
    }


def summary(by_group: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Averages over groups, so that no source dominates by the number of its runs."""
    if not by_group:
        return {"n": 0}
    fields = ("median_abs_error", "mean_abs_error", "p90_abs_error", "bias")
    averages = {name: statistics.fmean(group[name] for group in by_group.values()) for name in fields}
    return {"n": sum(int(group["n"]) for group in by_group.values()), "groups": len(by_group), **averages}
