"""Write down who published the measured runs and how well they are predicted: what intervals and nearest runs rest on.

    python scripts/refresh_measured.py            # rewrite the tables and trust.toml of planner/trust
    python scripts/refresh_measured.py --check    # exit 1 where they differ from what the model predicts today

Run it after every change of a predicted time, and before scripts/refresh_readme.py. It takes two minutes:
the constants are fitted again without each source.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import tomllib

from planner.runs import memory_errors, residuals
from planner.runs.files import read_runs
from planner.runs.judge import shipped
from planner.trust import memory
from planner.trust.sources import FILE
from planner.trust.table import FIGURES, TABLE

TOLERANCE = 0.0021
"""Difference below which two errors are one: two last digits."""
ENDS = 0.03
"""The same of ends of intervals, which a search finds."""


def sources() -> str:
    """The table of who published each group of runs, as its runs say it."""
    found = {run.group: run.source for path in shipped() for run in read_runs(path)}
    return residuals.as_csv(
        [
            {"group": group, "title": one.publication, "kind": one.kind, "date": one.published}
            for group, one in sorted(found.items())
        ]
    )


def fresh() -> tuple[str, str, str, str]:
    """The tables of publishers, times and memory, and the figures, as they should be."""
    runs = residuals.priced_runs()
    readings, variances = memory_errors.find(memory_errors.table())
    rows, figures = residuals.find(residuals.table(runs), runs, variances)
    measured = residuals.as_csv(rows, residuals.COLUMNS)
    return sources(), measured, residuals.as_csv(readings), residuals.as_toml(figures)


def alike(old: str, new: str) -> bool:
    """Whether two tables hold the same runs with the same errors, but for last digits."""
    was, due = (list(csv.DictReader(io.StringIO(text))) for text in (old, new))
    most = {"error": TOLERANCE, "miss": TOLERANCE, "low": ENDS, "high": ENDS, "room": TOLERANCE, "scale": ENDS}
    near = {name: allowed for name, allowed in most.items() if name in due[0]}
    return len(was) == len(due) and all(
        {**a, **dict.fromkeys(near)} == {**b, **dict.fromkeys(near)}
        and all(abs(float(a[key] or 0) - float(b[key] or 0)) <= allowed for key, allowed in near.items())
        for a, b in zip(was, due, strict=True)
    )


def near(old: str, new: str) -> bool:
    """Whether two files of figures say the same, but for last digits."""
    was, due = map(tomllib.loads, (old, new))
    parts = [({**was, **was[name]}, {**due, **due[name]}) for name in ("variances", "memory", "ends")]
    return all(a.keys() == b.keys() and all(_near(a[key], b[key]) for key in b) for a, b in parts)


def _near(was: object, due: object) -> bool:
    """Numbers that are alike, or lists of them; tables are compared by their own figures."""
    if isinstance(was, list) and isinstance(due, list):
        return all(map(_near, was, due))
    return not isinstance(was, float) or not isinstance(due, float) or abs(was - due) <= 0.02 * abs(due)


def main() -> int:
    """Rewrite the files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 where a file is stale")
    files = (FILE, TABLE, memory.TABLE, FIGURES)
    if not parser.parse_args().check:
        for path, text in zip(files, fresh(), strict=True):
            path.write_text(text, encoding="utf-8")
        return 0
    tests = (str.__eq__, alike, alike, near)
    stale = [
        path.name
        for path, text, same in zip(files, fresh(), tests, strict=True)
        if not same(path.read_text(encoding="utf-8"), text)
    ]
    if stale:
        sys.stderr.write(f"stale in planner/trust: {', '.join(stale)}; run scripts/refresh_measured.py\n")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
