"""Write down how well the measured runs are predicted: what intervals, nearest runs and ties rest on.

    python scripts/refresh_measured.py            # rewrite planner/trust/measured.csv and planner/trust/trust.toml
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

from planner.runs import residuals
from planner.trust.table import FIGURES, TABLE

TOLERANCE = 0.0021
"""Difference below which two errors are one: two last digits."""
ENDS = 0.03
"""The same of ends of intervals, which a search finds."""


def fresh() -> tuple[str, str]:
    """Both files as they should be."""
    runs = residuals.priced_runs()
    rows, figures = residuals.find(residuals.table(runs), runs)
    return residuals.as_csv(rows), residuals.as_toml(figures)


def alike(old: str, new: str) -> bool:
    """Whether two tables hold the same runs with the same errors, but for last digits."""
    was, due = (list(csv.DictReader(io.StringIO(text))) for text in (old, new))
    near = {"error": TOLERANCE, "miss": TOLERANCE, "low": ENDS, "high": ENDS}
    return len(was) == len(due) and all(
        {**a, **dict.fromkeys(near)} == {**b, **dict.fromkeys(near)}
        and all(abs(float(a[key]) - float(b[key])) <= most for key, most in near.items())
        for a, b in zip(was, due, strict=True)
    )


def near(old: str, new: str) -> bool:
    """Whether two files of figures say the same, but for last digits."""
    was, due = ({**found.pop("variances"), **found} for found in map(tomllib.loads, (old, new)))
    return was.keys() == due.keys() and all(abs(was[key] - due[key]) <= 0.02 * abs(due[key]) for key in due)


def main() -> int:
    """Rewrite the files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 where a file is stale")
    table, figures = fresh()
    if not parser.parse_args().check:
        TABLE.write_text(table, encoding="utf-8")
        FIGURES.write_text(figures, encoding="utf-8")
        return 0
    if alike(TABLE.read_text(encoding="utf-8"), table) and near(FIGURES.read_text(encoding="utf-8"), figures):
        return 0
    sys.stderr.write(
        "planner/trust/measured.csv or planner/trust/trust.toml is stale: run scripts/refresh_measured.py\n"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
