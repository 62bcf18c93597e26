"""One's own runs, a line each: measured, predicted, how far apart, and what was assumed of it alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from hardware.units import format_quantity
from planner.runs.judge import Verdict
from planner.trust.interval import COVERAGE

MOST: Final = 40
"""Runs up to which each has its lines."""
_WIDEST: Final = 28
"""Characters of a run's name for which columns make room; a longer one has a line of its own."""
_METRICS: Final = {"iteration_time": "time", "memory": "memory", "fits": "fits"}


def run_lines(by_file: Mapping[str, list[Verdict]]) -> list[str]:
    """The lines on the runs of some files; of too many one line that says where they are."""
    found = [verdict for verdicts in by_file.values() for verdict in verdicts]
    runs = len({(name, verdict.id) for name, verdicts in by_file.items() for verdict in verdicts})
    if not runs:
        return []
    if runs > MOST:
        return [f"{runs:,} runs; --format json has the error of each, this table of up to {MOST}", ""]
    name = min(max(len(verdict.id) for verdict in found), _WIDEST)
    head = f"{'run':{name}s}  {'':6s}{'measured':>10s}{'predicted':>11s}{'error':>8s}  {COVERAGE:.0%} interval"
    shared = _shared(found)
    lines = [head]
    for file, verdicts in by_file.items():
        lines += [f"{file}:"] * (len(by_file) > 1)
        each = groupby(verdicts, key=lambda verdict: verdict.id)
        lines += [line for _, one in each for line in _of_run(list(one), name, shared)]
    return [*lines, ""]


def _of_run(verdicts: list[Verdict], name: int, shared: frozenset[str]) -> list[str]:
    """The figures of a run, and what was assumed of it and not of all."""
    # One reason is that of all figures, and of a run that fits as predicted the other figures say more.
    refused = [verdict for verdict in verdicts if verdict.reason]
    shown = refused[:1] + [verdict for verdict in verdicts if not verdict.reason and not _as_predicted(verdict)]
    notes = dict.fromkeys(note for verdict in shown for note in verdict.notes)
    alone = [note for note in notes if note not in shared]
    apart = len(verdicts[0].id) > name
    figures = [_line(verdict, name, "" if apart else verdict.id) for verdict in shown]
    return [*([verdicts[0].id] if apart and shown else []), *figures, *(f"    {note}" for note in alone)]


def _as_predicted(verdict: Verdict) -> bool:
    return verdict.metric == "fits" and verdict.measured == verdict.predicted


def _line(verdict: Verdict, name: int, called: str) -> str:
    begin = f"{called:{name}s}  {_METRICS[verdict.metric]:6s}"
    if verdict.reason:
        return f"{begin}{_said(verdict, verdict.measured):>10s}  not priced: {verdict.reason}"
    error = "wrong" if verdict.error is None else f"{verdict.error:+.1%}"
    within = {True: "inside", False: "outside", None: ""}[verdict.within]
    aside = "" if verdict.scored else "  not scored"
    figures = f"{_said(verdict, verdict.measured):>10s}{_said(verdict, verdict.predicted):>11s}{error:>8s}"
    return f"{begin}{figures}  {within}{aside}".rstrip()


def _said(verdict: Verdict, value: float | bool | None) -> str:
    if verdict.metric == "fits":
        return "ran" if value else "out of mem"
    if not value:
        return ""
    if verdict.metric == "memory":
        return f"{value / 2**30:.1f} GiB"
    return format_quantity(float(value), "time")


def _shared(verdicts: Iterable[Verdict]) -> frozenset[str]:
    """What was assumed of all runs, which is said once."""
    priced: Sequence[Verdict] = [verdict for verdict in verdicts if not verdict.reason]
    runs = {verdict.id for verdict in priced}
    counts = Counter(note for _, note in {(verdict.id, note) for verdict in priced for note in verdict.notes})
    return frozenset(note for note, count in counts.items() if count == len(runs))
