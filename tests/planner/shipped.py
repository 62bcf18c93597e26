"""The runs that are shipped, read once for all tests of a process: some five thousand."""

from functools import cache

from planner.runs.files import read_runs
from planner.runs.judge import shipped


@cache
def shipped_runs():
    return [run for path in shipped() for run in read_runs(path)]
