"""What the measurements leave to any model: runs measured again, releases, rounding, one constant a source."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from planner.runs.corpus import of_each
from planner.runs.files import read_runs
from planner.runs.judge import Verdict, judge_run, names_of, shipped
from planner.runs.schema import Run
from planner.trust.table import source

STEPS = (np.arange(20) + 0.5) / 20
"""Where in its rounding interval a printed figure may lie, all alike."""


class Miss(NamedTuple):
    """Sizes of relative errors."""

    median: float
    p90: float


AIMS: dict[tuple[str, str], Miss] = {
    ("fit", "iteration_time"): Miss(0.04, 0.12),
    ("dev", "iteration_time"): Miss(0.05, 0.15),
    ("fit", "memory"): Miss(0.02, np.inf),
    ("dev", "memory"): Miss(0.03, np.inf),
}
"""What the project wants to reach in the mean over groups, by split and metric."""


class Judged(NamedTuple):
    """One scored figure with the run that it is of."""

    run: Run
    verdict: Verdict
    part: str = "runs"
    """The split of the shipped runs that it is in, else its file."""

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


def judged(paths: Iterable[Path], *, workers: int = 1) -> list[Judged]:
    """Every scored time and memory figure of the files."""
    files = list(paths)
    names = names_of(files) | {path: path.name.removesuffix(".jsonl.gz") for path in shipped()}
    runs = [(names[path], run) for path in files for run in read_runs(path)]
    told = of_each([run for _, run in runs], judge_run, workers=workers)
    return [
        Judged(run, verdict, name)
        for (name, run), verdicts in zip(runs, told, strict=True)
        for verdict in verdicts
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
    ordered = sorted(sizes)
    return Miss(statistics.median(ordered), ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))])


def floor(runs: Sequence[Judged]) -> Floor:
    """The floors of one group and metric, of one run or more."""
    classes = alike(runs)
    repeated = [times for times in classes if len(set(times)) > 1]
    off = [abs(statistics.median(times) / time - 1.0) for times in repeated for time in times]
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


def alike(runs: Sequence[Judged]) -> list[list[float]]:
    """Measurements by the question that they answer."""
    found: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        found[run.run.question].append(run.measured)
    return list(found.values())


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
    found: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if (key := run.run.configuration) is not None:
            group = run.verdict.group
            found[source(group), key][group].append(run.measured)
    by_source: dict[str, list[list[float]]] = defaultdict(list)
    for (name, _), groups in sorted(found.items()):
        if len(groups) > 1:
            by_source[name].append([statistics.median(times) for times in groups.values()])
    return {name: _releases(classes) for name, classes in by_source.items()}


def _releases(classes: list[list[float]]) -> Releases:
    off = [abs(statistics.median(times) / time - 1.0) for times in classes for time in times]
    return Releases(len(classes), len(off), miss(least_errors(classes)), miss(off))


def mean(floors: Iterable[Floor]) -> dict[str, Miss]:
    """Means over groups; of spreads, over the groups that measured something again."""
    found = list(floors)
    sides = {name: [getattr(one, name) for one in found] for name in ("now", "bound", "spread", "rounding", "constant")}
    known = {name: [side for side in values if side is not None] for name, values in sides.items()}
    return {
        name: Miss(*(statistics.fmean(side[i] for side in values) for i in (0, 1)))
        for name, values in known.items()
        if values
    }


def floors(runs: Iterable[Judged]) -> dict[tuple[str, str], dict[str, Floor]]:
    """By split or file and metric, by group."""
    parts: dict[tuple[str, str], dict[str, list[Judged]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        parts[run.part, run.verdict.metric][run.verdict.group].append(run)
    return {
        part: {name: floor(found) for name, found in sorted(groups.items())}
        for part, groups in sorted(parts.items(), key=lambda item: (item[0][1], item[0][0] != "fit", item[0][0]))
    }


def report(paths: Iterable[Path], *, form: str = "table", workers: int = 1) -> str:
    """All floors of the files as a table or as JSON."""
    runs = judged(paths, workers=workers)
    by_part = floors(runs)
    between = releases(run for run in runs if run.verdict.metric == "iteration_time")
    if form == "json":
        return json.dumps({"parts": [*_documents(by_part)], "releases": _plain(between)}, indent=1)
    return "\n".join([*_tables(by_part), *_between(between), "", *LEGEND])


def _documents(by_part: dict[tuple[str, str], dict[str, Floor]]) -> Iterator[dict[str, Any]]:
    for (split, metric), found in by_part.items():
        aim = AIMS.get((split, metric))
        yield {
            "split": split,
            "metric": metric,
            "groups": _plain(found),
            "mean": _plain(mean(found.values())),
            "aim": aim and {name: size for name, size in aim._asdict().items() if size < np.inf},
            "proved_out_of_reach": aim and _beyond(mean(found.values())["bound"], aim),
        }


def _plain(found: Any) -> Any:
    """Named tuples as objects."""
    found = found._asdict() if hasattr(found, "_asdict") else found
    return {name: _plain(part) for name, part in found.items()} if isinstance(found, dict) else found


def _beyond(bound: Miss, aim: Miss) -> bool:
    return bound.median > aim.median or bound.p90 > aim.p90


HEAD = f"{'group':30s}{'n':>6s}{'now':>13s}{'bound':>13s}{'again':>7s}{'spread':>13s}{'rounding':>13s}{'constant':>13s}"


def _tables(by_part: dict[tuple[str, str], dict[str, Floor]]) -> Iterator[str]:
    for (split, metric), found in by_part.items():
        total = mean(found.values())
        title = metric.replace("_", " ").capitalize()
        yield f"{title}, {split}: |predicted / measured - 1|, median and 90th percentile"
        yield HEAD
        for name, one in found.items():
            yield _line(name, str(one.n), str(one.again or ""), one._asdict())
        yield _line("mean over groups", str(sum(one.n for one in found.values())), "", total)
        if (aim := AIMS.get((split, metric))) is not None:
            proved = "is proved" if _beyond(total["bound"], aim) else "is not proved"
            yield f"{'aim':36s}{_both(aim)}  which {proved} out of reach by the bound"
        yield ""


def _line(name: str, n: str, again: str, sides: dict[str, Any]) -> str:
    now, bound, spread, rounded, constant = (
        _both(sides.get(key)) for key in ("now", "bound", "spread", "rounding", "constant")
    )
    return f"{name:30s}{n:>6s}{now}{bound}{again:>7s}{spread}{rounded}{constant}".rstrip()


def _both(size: Miss | None) -> str:
    if size is None:
        return f"{'':13s}"
    return f"{size.median:6.1%}" + (f"{size.p90:7.1%}" if size.p90 < np.inf else f"{'':7s}")


def _between(found: dict[str, Releases]) -> Iterator[str]:
    if not found:
        yield "No configuration is in two releases of one source"
        return
    yield "Equal configurations in several releases of a source: iteration time"
    yield f"{'source':30s}{'configurations':>15s}{'n':>6s}{'bound':>13s}{'spread':>13s}"
    for name, one in found.items():
        yield f"{name:30s}{one.configurations:15d}{one.n:6d}{_both(one.bound)}{_both(one.spread)}"


LEGEND = (
    "bound: no model that predicts one figure for equal configurations misses less; rows measured once bound nothing,",
    "  so an aim above it may still be out of reach.",
    "spread: how far rows that were measured again lie from the median of their configuration.",
    "rounding: what is missed on average for want of digits, were predictions exact.",
    "constant: what the best factor for each group would leave of this model's errors; fitted to what it is judged by,",
    "  and no such factor is used.",
    "releases: bound of a model that does not ask which release it is.",
)
