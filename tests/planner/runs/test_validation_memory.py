"""How near the memory of shipped runs comes out."""

import statistics

import pytest

from planner.runs.judge import judge_run
from tests.planner.shipped import shipped_runs


def errors(group):
    """Signed errors of every scored allocator peak of a group."""
    found = [verdict for run in shipped_runs() if run.group == group for verdict in judge_run(run)]
    return [one.error for one in found if one.metric == "memory" and one.scored and one.error is not None]


def test_allocator_peaks_of_megatron_core_on_b200_come_out_within_one_percent():
    found = errors("simumax-b200")
    assert len(found) == 24
    assert max(map(abs, found)) < 0.01


@pytest.mark.parametrize("group", ["vocab-parallel-1f1b", "simumax-a100pcie", "zero-bubble"])
def test_allocator_peaks_of_pipelines_come_out_within_four_percent(group):
    assert statistics.median(map(abs, errors(group))) < 0.04
