"""What the measurements leave to any model: runs measured again, releases, rounding, one constant a source."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from planner.request.progress import Tell
from planner.runs.corpus import counting, grouped, map_cases
from planner.runs.figures import Column, line, table
from planner.runs.judge import Verdict, error_figures, judge_runs, read_named
from planner.runs.schema import Run
from planner.trust.table import source

STEPS = (np.arange(20) + 0.5) / 20
"""Where in its rounding interval a printed figure may lie, all alike."""


class Miss(NamedTuple):
    """Sizes of relative errors."""

    median: float
    p90: float


class Judged(NamedTuple):
    """One scored figure with the run that it is of."""

    run: Run
    verdict: Verdict
    part: str = "runs"
    """Its file."""

    @property
    def measured(self) -> float:
        """In seconds or bytes."""
        return float(self.verdict.measured)

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / float(self.verdict.predicted or np.nan)


class Floor(NamedTuple):
    """What is missed in one group, by this model and by others."""

    n: int
    now: Miss
    """This model's."""
    bound: Miss
    """No model that predicts equal figures for equal configurations misses less."""
    again: int
    """Rows whose configuration was measured again."""
    spread: Miss | None
    """Of those, how far they lie from the median of their configuration."""
    rounding: Miss
    """What a model misses on average that knows the exact figure, of which the source printed so many digits."""
    constant: Miss
    """This model's, times the one constant of this group that suits it best."""


def judged(paths: Iterable[Path], *, workers: int = 1, progress: Tell | None = None) -> list[Judged]:
    """Every scored time and memory figure of the files."""
    named = list(read_named(paths))
    runs, report_done = [run for _, run in named], counting(len(named), progress)
    verdicts = map_cases(runs, judge_runs, workers=workers, report=report_done)
    return [
        Judged(run, verdict, name)
        for (name, run), found in zip(named, verdicts, strict=True)
        for verdict in found
        if verdict.scored and verdict.error is not None
    ]


def least_errors(classes: Iterable[Sequence[float]]) -> list[float]:
    """The least sizes of relative errors that one prediction for each class can have.

    A prediction p is within e of measurements from a to b if b (1 - e) <= p <= a (1 + e), which some p is for
    log(b / a) <= log((1 + e) / (1 - e)), that is e >= tanh(log(b / a) / 2). The k-th smallest of what is returned is
    exactly the least k-th smallest error; the statistics of all of them together bound those of any predictions.

    Args:
        classes: measurements that must have the same prediction, in any unit, above 0.
    """
    found: list[float] = []
    for measured in classes:
        logs = np.sort(np.log(measured))
        widths = (float(np.min(logs[k:] - logs[: len(logs) - k])) for k in range(len(logs)))
        found += [float(np.tanh(width / 2.0)) for width in widths]
    return found


def miss(sizes: Sequence[float]) -> Miss:
    """Median and 90th percentile as ``judge.groups`` takes them."""
    figures = error_figures(sizes)
    return Miss(figures["median_abs_error"], figures["p90_abs_error"])


def floor(runs: Sequence[Judged]) -> Floor:
    """The floors of one group and metric, of one run or more."""
    classes = [[run.measured for run in same] for same in grouped(runs, lambda run: run.run.question).values()]
    off = _off(times for times in classes if len(set(times)) > 1)
    half_widths = np.array([rounding(run) for run in runs])
    return Floor(
        n=len(runs),
        now=miss([abs(run.verdict.error or 0.0) for run in runs]),
        bound=miss(least_errors(classes)),
        again=len(off),
        spread=miss(off) if off else None,
        rounding=miss(np.outer(half_widths, STEPS).ravel().tolist()),
        constant=miss(least_errors([[run.ratio for run in runs]])),
    )


def _off(classes: Iterable[Sequence[float]]) -> list[float]:
    """How far measurements lie from the median of their class."""
    return [abs(statistics.median(times) / time - 1.0) for times in classes for time in times]


def rounding(run: Judged) -> float:
    """Half the last printed digit of what a measured figure stands on, over the figure."""
    measured = run.run.measured
    if run.verdict.metric == "memory":
        return measured.peak_memory.rounding if measured.peak_memory else 0.0
    return measured.rounding


class Releases(NamedTuple):
    """Equal configurations in several releases of one source."""

    configurations: int
    n: int
    bound: Miss
    """No model misses less that does not ask which release it is."""
    spread: Miss
    """How far releases lie from the median of their configuration."""


def releases(runs: Iterable[Judged]) -> dict[str, Releases]:
    """By source; a configuration counts once in every release, with the median of its times."""
    known = (run for run in runs if run.run.configuration is not None)
    found: dict[str, list[list[float]]] = defaultdict(list)
    for (name, _), alike in sorted(
        grouped(known, lambda run: (source(run.verdict.group), run.run.configuration)).items()
    ):
        by_release = grouped(alike, lambda run: run.verdict.group).values()
        if len(by_release) > 1:
            found[name].append([statistics.median(run.measured for run in same) for same in by_release])
    return {
        name: Releases(len(classes), len(off := _off(classes)), miss(least_errors(classes)), miss(off))
        for name, classes in found.items()
    }


SIDES = ("now", "bound", "spread", "rounding", "constant")


def mean(floors: Iterable[Floor]) -> dict[str, Miss]:
    """Means over groups; of spreads, over the groups that measured something again."""
    found = list(floors)
    known = {name: [side for one in found if (side := getattr(one, name)) is not None] for name in SIDES}
    return {name: Miss(*map(statistics.fmean, zip(*sides, strict=True))) for name, sides in known.items() if sides}


def floors(runs: Iterable[Judged]) -> dict[tuple[str, str], dict[str, Floor]]:
    """By file and metric, by group."""
    parts = grouped(runs, lambda run: (run.part, run.verdict.metric))
    return {
        part: {name: floor(found) for name, found in sorted(grouped(mine, lambda run: run.verdict.group).items())}
        for part, mine in sorted(parts.items(), key=lambda item: item[0][::-1])
    }


def report(
    paths: Iterable[Path],
    *,
    form: str = "table",
    workers: int = 1,
    progress: Tell | None = None,
    whole: bool = False,
) -> str:
    """All floors of the files as a table, of the groups farthest off unless it is to be ``whole``, or as JSON."""
    runs = judged(paths, workers=workers, progress=progress)
    by_part = floors(runs)
    between = releases(run for run in runs if run.verdict.metric == "iteration_time")
    if form == "json":
        return json.dumps({"parts": [*_documents(by_part)], "releases": _plain(between)}, indent=1)
    return "\n".join([*_answer(by_part), "", *_tables(by_part, whole=whole), *_between(between), "", *LEGEND])


def _documents(by_part: dict[tuple[str, str], dict[str, Floor]]) -> Iterator[dict[str, Any]]:
    for (file, metric), found in by_part.items():
        yield {
            "file": file,
            "metric": metric,
            "groups": _plain(found),
            "mean": _plain(mean(found.values())),
        }


def _plain(found: Any) -> Any:
    """Named tuples as objects."""
    found = found._asdict() if hasattr(found, "_asdict") else found
    return {name: _plain(part) for name, part in found.items()} if isinstance(found, dict) else found


def _both(size: Miss) -> str:
    return f"{size.median:6.1%}{size.p90:7.1%}"


def _median(size: Miss) -> str:
    return f"{size.median:.1%}"


NAME = 24
"""Characters of the name of a source, so that a line takes eighty."""
FARTHEST_OFF = 12
"""Groups that a table gives where all are not asked for."""
COLUMNS = (
    Column("n", "n", 6, str),
    Column("now", "now, p90", 14, _both),
    *(Column(name, name, 8, _median) for name in ("bound", "spread")),
    *(Column(name, name, 10, _median) for name in ("rounding", "constant")),
)
BETWEEN = (
    Column("configurations", "configurations", 15, str),
    Column("n", "n", 6, str),
    *(Column(name, name, 13, _both) for name in ("bound", "spread")),
)


def _answer(by_part: dict[tuple[str, str], dict[str, Floor]]) -> Iterator[str]:
    """What is missed, and what nothing could avoid, in a sentence for each quantity."""
    for (file, metric), found in by_part.items():
        sides = mean(found.values())
        title, now = metric.replace("_", " ").capitalize(), _median(sides["now"])
        left = f"the best constant factor for each source would leave {_median(sides['constant'])}"
        yield f"{title}, {file}: predictions miss by {now} (median, mean over sources); {left}."


def _tables(by_part: dict[tuple[str, str], dict[str, Floor]], *, whole: bool) -> Iterator[str]:
    for (file, metric), found in by_part.items():
        far = sorted(found, key=lambda name: -found[name].now.median)[: len(found) if whole else FARTHEST_OFF]
        shown = {name: one._asdict() for name, one in found.items() if name in far}
        few = "" if len(shown) == len(found) else f"; the {len(shown)} of {len(found)} groups farthest off (-v: all)"
        total: dict[str, Any] = {"n": sum(one.n for one in found.values()), **mean(found.values())}
        title = metric.replace("_", " ").capitalize()
        yield f"{title}, {file}: |predicted / measured - 1|, medians{few}"
        yield from table(shown, COLUMNS, wide=NAME)
        yield line("mean over groups", total, COLUMNS, NAME)
        yield ""


def _between(found: dict[str, Releases]) -> list[str]:
    if not found:
        return ["No configuration is in two releases of one source"]
    heading = "Equal configurations in several releases of a source: iteration time"
    return [heading, *table({name: one._asdict() for name, one in found.items()}, BETWEEN, "source")]


LEGEND = (
    "bound: no model that predicts one figure for equal configurations misses less; rows measured once bound nothing.",
    "spread: how far rows that were measured again lie from the median of their configuration.",
    "rounding: what is missed on average for want of digits, were predictions exact.",
    "constant: what the best factor for each group would leave of this model's errors; fitted to what it is judged by,",
    "  and no such factor is used.",
    "releases: bound of a model that does not ask which release it is.",
)
