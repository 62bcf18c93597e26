"""How near the memory of shipped runs comes out."""

import statistics

import pytest

from planner.runs.files import read_runs
from planner.runs.judge import judge_run, shipped


def errors(group):
    """Signed errors of every scored allocator peak of a group."""
    runs = [run for path in shipped() for run in read_runs(path) if run.group == group]
    found = [v for run in runs for v in judge_run(run) if v.metric == "memory" and v.scored and v.error is not None]
    return [v.error for v in found]


def test_allocator_peaks_of_megatron_core_on_b200_come_out_within_one_percent():
    found = errors("simumax-b200")
    assert len(found) == 24
    assert max(map(abs, found)) < 0.01


@pytest.mark.parametrize("group", ["vocab-parallel-1f1b", "simumax-a100pcie", "zero-bubble"])
def test_allocator_peaks_of_pipelines_come_out_within_four_percent(group):
    assert statistics.median(map(abs, errors(group))) < 0.04
