"""What ``plan validate`` prints."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from planner.errors import BadRequest
from planner.request.progress import Tell
from planner.runs.figures import Column, line, table
from planner.runs.judge import Compared, Verdict, coverage, groups, judge, shipped, summary
from planner.runs.run_lines import run_lines
from planner.runs.unseen import unseen_fits, unseen_lines, unseen_memory, unseen_times
from planner.trust.interval import COVERAGE
from planner.trust.sources import describe_source

METRICS = ("iteration_time", "memory")
FEW = 100
"""Runs up to which the table says what was assumed of them."""
MOST_REASONS = 20
"""Reasons that a table gives; the rest is counted."""
FARTHEST_OFF = 3
"""Groups, rules and reasons that the table on the shipped runs gives where all are not asked for."""
WIDE = 44
"""Characters of the name of a source in the table."""
LEAST = 4
"""Groups that are named where the interval holds less than it promises."""
COLUMNS: Final = (
    Column("n", "n", 6, str),
    Column("bias", "bias", 9, "{:+.1%}".format),
    Column("median_abs_error", "median", 9, "{:.1%}".format),
    Column("p90_abs_error", "p90", 9, "{:.1%}".format),
)


def validate(files: Sequence[str] = (), *, form: str = "table", profile: str | None = None, workers: int = 1) -> str:
    """The report on the given files, or on the shipped runs, as a table or as JSON.

    Args:
        files: files of runs; none are the shipped ones.
        form: "table" or "json".
        profile: a file with the cluster and the stack that the runs were on; None takes each run's own words.
        workers: processes to price the runs in; see `corpus.map_runs`.

    Raises:
        BadFile: a file that cannot be read.
    """
    return written(compared(files, profile=profile, workers=workers), form=form)


def compared(
    files: Sequence[str] = (), *, profile: str | None = None, workers: int = 1, progress: Tell | None = None
) -> Compared:
    """The verdicts behind ``validate``, by file; in so many processes.

    Raises:
        BadFile: a file that cannot be read.
    """
    return judge(paths_of(files), profile, workers=workers, progress=progress)


def written(by_file: Compared, *, form: str = "table", whole: bool = False) -> str:
    """The verdicts as a table or as JSON; the table on the shipped runs is short unless it is to be ``whole``."""
    figures = _figures(by_file)
    if form == "json":
        return json.dumps({"rows": [verdict.document() for verdict in _all(by_file)], **figures}, indent=1)
    return "\n".join(_table(by_file, figures, math.inf if whole or not figures["unseen"] else FARTHEST_OFF))


def check_priced(by_file: Compared) -> None:
    """Refuse files of which nothing could be compared.

    Raises:
        BadRequest: no measured figure is priced; with the most frequent reason.
    """
    verdicts = _all(by_file)
    if any(not verdict.reason for verdict in verdicts):
        return
    (reason, count), *_ = Counter(verdict.reason for verdict in verdicts).most_common(1)
    share = "the only one" if len(verdicts) == 1 else f"{count} of {len(verdicts):,}"
    raise BadRequest(f"{', '.join(by_file)}: no measured figure could be priced; {share}: {reason}")


def rank(files: Sequence[str] = (), *, form: str = "table", workers: int = 1, progress: Tell | None = None) -> str:
    """How well the model chooses among measured strategies: the report of ``ranking`` on the same files.

    Raises:
        BadFile: a file that cannot be read.
    """
    from planner.runs.ranking import report, timed

    return report(timed(paths_of(files), workers=workers, progress=progress), form=form)


def bottom(
    files: Sequence[str] = (),
    *,
    form: str = "table",
    workers: int = 1,
    progress: Tell | None = None,
    whole: bool = False,
) -> str:
    """What the measurements leave to any model: the report of ``noise_floor`` on the same files.

    Raises:
        BadFile: a file that cannot be read.
    """
    from planner.runs.noise_floor import report

    return report(paths_of(files), form=form, workers=workers, progress=progress, whole=whole)


def paths_of(files: Sequence[str]) -> list[Path]:
    """The files, each once; the shipped runs for none."""
    return [Path(name) for name in dict.fromkeys(files)] or shipped()


_FITS: Final = {
    "ran_and_predicted_to": "ran as predicted",
    "false_alarms": "ran though predicted to run out of memory",
    "out_of_memory_and_predicted_to": "ran out as predicted",
    "missed_out_of_memory": "ran out though predicted to fit",
}
"""What a run did and what was predicted of it, in words."""


def _figures(by_file: Compared) -> dict[str, Any]:
    """All that a report says of its verdicts together, by the keys of the JSON."""
    verdicts = _all(by_file)
    time, memory = (groups(verdicts, metric) for metric in METRICS)
    counts = Counter(
        (bool(v.measured), bool(v.predicted)) for v in verdicts if v.metric == "fits" and v.scored and not v.reason
    )
    return {
        "groups": time,
        "memory_groups": memory,
        "summary": summary(time),
        "memory_summary": summary(memory),
        "fits": {
            "ran_and_predicted_to": counts[True, True],
            "false_alarms": counts[True, False],
            "out_of_memory_and_predicted_to": counts[False, False],
            "missed_out_of_memory": counts[False, True],
        },
        "files": {
            name: {metric: summary(groups(found, metric)) for metric in METRICS} for name, found in by_file.items()
        },
        "interval_coverage": {name: _covered(found) for name, found in by_file.items()},
        **_unseen(by_file),
        "not_priced": sum(1 for verdict in verdicts if verdict.reason),
    }


def _unseen(by_file: Compared) -> dict[str, Any]:
    """Errors with the run's own publisher left out, where the shipped runs are compared."""
    whole = {path.name for path in shipped()} <= by_file.keys()
    return {
        "unseen": unseen_times() if whole else {},
        "unseen_memory": unseen_memory() if whole else {},
        "unseen_fits": unseen_fits() if whole else {},
    }


def _all(by_file: Compared) -> list[Verdict]:
    return [verdict for found in by_file.values() for verdict in found]


def _covered(verdicts: list[Verdict]) -> dict[str, Any]:
    """What the interval holds: mean over the groups, and every group."""
    by_group = coverage(verdicts)
    mean = statistics.fmean(by_group.values()) if by_group else None
    return {"promised": COVERAGE, "mean": mean, "groups": by_group}


def _table(by_file: Compared, figures: Mapping[str, Any], most: float) -> Iterator[str]:
    """The report: the answer, errors by kind of run, then ``most`` groups, rules and reasons."""
    published, verdicts = {path.name for path in shipped()}, _all(by_file)
    yield from _answer(figures)
    yield from run_lines({name: found for name, found in by_file.items() if name not in published})
    yield from unseen_lines(figures)
    for title, key in (("Iteration time", ""), ("Memory", "memory_")):
        each = figures[f"{key}groups"]
        shown = each if len(each) <= most else dict(sorted(each.items(), key=_off)[: int(most)])
        farthest = f", the {len(shown)} of {len(each)} groups farthest off" if shown is not each else ""
        yield f"{title}: predicted / measured - 1{farthest}"
        yield from table(shown, COLUMNS, wide=WIDE)
        if (total := figures[f"{key}summary"])["n"]:
            yield line("mean over groups", total, COLUMNS, WIDE)
        yield ""
    for name, metrics in figures["files"].items() if len(by_file) > 1 else ():
        for metric, total in metrics.items():
            if total["n"] and name not in {*published, *figures["groups"], *figures["memory_groups"]}:
                yield line(f"{metric.replace('_', ' ')}, {name}", total, COLUMNS)
    if most == math.inf:
        yield from _with_all_known(figures)
    yield from (*_assumed(verdicts), *_repeated(by_file), *_reasons(verdicts, most))
    if most < math.inf:
        yield from ("", "-v shows every group, rule and reason")


def _with_all_known(figures: Mapping[str, Any]) -> Iterator[str]:
    """What the interval holds and what is said to fit, nobody's runs left out."""
    for name, held in figures["interval_coverage"].items():
        if by_group := held["groups"]:
            least = sorted(by_group, key=by_group.__getitem__)[:LEAST]
            held_by = {describe_source(group): by_group[group] for group in least if by_group[group] < COVERAGE}
            low = ", ".join(f"{title} {share:.0%}" for title, share in held_by.items())
            over = "" if len(by_group) == 1 else f", mean over groups{low and f'; least: {low}'}"
            shares = f"holds {held['mean']:.1%}{over}"
            yield f"{COVERAGE:.0%} interval, {name}: {shares}"
    yield "Fits: " + ", ".join(f"{count} {_FITS[name]}" for name, count in figures["fits"].items())


def _off(named: tuple[str, Mapping[str, Any]]) -> float:
    return -float(named[1]["median_abs_error"] or 0.0)


def _answer(figures: Mapping[str, Any]) -> Iterator[str]:
    """How far predictions are off, in one sentence; of the shipped runs, as one of a publisher nobody knew is."""
    if unseen := figures["unseen"]:
        time, memory = unseen["all"]["unseen"], figures["unseen_memory"]["all"]["unseen"]
        yield f"Expect to be off by {time:.1%} in time and {memory:.1%} in memory on runs of somebody new"
        yield from ("(the median of each publisher's runs, in the mean over publishers).", "")
        return
    named = (("iteration times", figures["summary"]), ("memory", figures["memory_summary"]))
    said = [f"{what} by a median of {one['median_abs_error']:.1%}" for what, one in named if one["n"]]
    if said:
        yield from (f"Predictions miss {' and '.join(said)}.", "")


def _assumed(verdicts: list[Verdict]) -> list[str]:
    """What runs leave out and was assumed, with how many leave it out; nothing of many runs, which are in the JSON."""
    runs = {verdict.id for verdict in verdicts}
    notes = {(verdict.id, note) for verdict in verdicts for note in verdict.notes}
    if len(runs) > FEW or not notes:
        return []
    counts = Counter(note for _, note in notes)
    shown = [f"{n:6d}  {note}" for note, n in sorted(counts.items(), key=lambda found: (-found[1], found[0]))]
    return ["", f"Assumed of {len(runs)} run{'s' if len(runs) > 1 else ''}:", *shown]


def _repeated(by_file: Compared) -> list[str]:
    """Names that several runs of one file have, so that nobody can tell which is which."""
    lines = []
    for name, found in by_file.items():
        counts = Counter((verdict.id, verdict.metric) for verdict in found)
        if ids := sorted({key for (key, _), count in counts.items() if count > 1}):
            lines.append(f"{name}: several runs are called {', '.join(ids[:LEAST])}")
    return lines


def _broken(verdicts: list[Verdict], most: float) -> list[str]:
    """Rules that would refuse as plans what really ran, with how many runs break each."""
    broken = {(verdict.group, verdict.id, rule.partition(":")[0]) for verdict in verdicts for rule in verdict.broken}
    runs = len({run[:2] for run in broken})
    if not runs:
        return []
    counts = Counter(rule for *_, rule in broken)
    ordered = sorted(counts.items(), key=lambda found: (-found[1], found[0]))
    each = ", ".join(f"{rule} {n}" for rule, n in ordered[: int(min(most, len(ordered)))])
    each += ", ..." * (len(ordered) > most)
    return [f"Runs that break a rule for plans, priced as they ran: {runs} ({each})"]


def _reasons(verdicts: list[Verdict], most: float) -> list[str]:
    reasons = Counter(verdict.reason for verdict in verdicts if verdict.reason)
    aside = sum(not verdict.scored and not verdict.reason for verdict in verdicts)
    left = [f"Priced but not scored, of runs marked incomplete or suspect: {aside} figures"] if aside else []
    left += _broken(verdicts, most)
    if not reasons:
        return left
    count = int(min(most, MOST_REASONS))
    first, rest = reasons.most_common()[:count], reasons.most_common()[count:]
    return [
        *left,
        "",
        f"Not priced: {sum(reasons.values())} of {len(verdicts):,} measured figures",
        *(f"{n:6d}  {why}" for why, n in first),
        *[f"{sum(n for _, n in rest):6d}  for {len(rest)} further reasons, listed by --format json"] * bool(rest),
    ]
