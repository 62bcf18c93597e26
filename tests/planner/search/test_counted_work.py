"""What a question costs, counted: lattices laid out, strategies priced, modules loaded. Bounds that keep that small."""

import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

import planner.search.objective as searches
from planner import PlanRequest, plan
from planner.explain.levers import scale_compute, scale_device, scale_links
from planner.search import fitting
from planner.search.core_bounds import core_bound, layer_bound
from planner.search.objective import Objective, near_lattice
from planner.space import lattice
from planner.space.lattice import begin, build
from tests.drawn import drawn_scenarios

SOME = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
FEW = {"gpus": (2, 4, 8, 16), "batches": (8, 16), "layers": (2, 3, 4, 6, 8)}


@SOME
@given(drawn_scenarios(**FEW))
def test_no_core_gains_more_from_a_machine_than_that_is_faster(scenario):
    space = build(scenario, {})
    assume(len(space.cores))
    today = core_bound(space.cores, scenario)
    for changed, times in (
        (scale_links(scenario, 2.0, inner=True), 2.0),
        (scale_links(scenario, 2.0, inner=False), 2.0),
        (scale_device(scenario, memory_bandwidth=2.0), 2.0),
        (scale_compute(scenario, 1.25), 1.25),
    ):
        assert (core_bound(space.cores, changed) * times >= today * (1 - 1e-9)).all()


@SOME
@given(drawn_scenarios(**FEW))
def test_what_is_laid_out_for_less_than_some_seconds_holds_every_core_that_may_take_less(scenario):
    whole = build(scenario, {})
    assume(len(whole.cores))
    bound = core_bound(whole.cores, scenario)
    assert (layer_bound(whole.cores, scenario) <= bound * (1 + 1e-9)).all()
    below = float(np.median(bound))
    part = build(scenario, {}, likely=lambda rows: layer_bound(rows, scenario) < below)
    some = core_bound(part.cores, scenario)
    assert sorted(bound[bound < below]) == pytest.approx(sorted(some[some < below]), rel=1e-12)


@SOME
@given(drawn_scenarios(**FEW))
def test_a_lattice_without_what_is_far_slower_counts_as_the_whole_one_and_keeps_what_is_faster(scenario):
    whole, begun = build(scenario, {}), begin(scenario, {})
    assume(len(whole.cores))
    bound = core_bound(whole.cores, scenario)
    below = float(np.median(bound))
    with mock.patch.object(lattice, "SLAB", 7):
        part = near_lattice(begun, Objective("time", scenario, 0.0), below)
    assert (part.candidates, part.refusals) == (whole.candidates, whole.refusals)
    kept = np.flatnonzero(bound < below)
    columns = ("tp", "cp", "pp", "vpp", "dp", "schedule", "recompute", "micro_batch_size")
    for name in columns:
        assert (getattr(part.cores, name) == getattr(whole.cores, name)[kept]).all()
    assert (part.allowed == whole.allowed[kept]).all()
    assert (part.degree[part.layout] == whole.degree[whole.layout[kept]]).all()


class Counted:
    """Cores bounded and strategies priced by each search of a question; strategies whose memory was worked out."""

    def __init__(self):
        self.searches, self.memory = [], 0


@pytest.fixture
def counted(monkeypatch):
    seen, search, memory = Counted(), searches.search, fitting.row_bytes

    def counting(space, *arguments, **known):
        outcome = search(space, *arguments, **known)
        seen.searches.append((len(space.cores), outcome.priced))
        return outcome

    def weighing(rows, scenario):
        seen.memory += len(rows)
        return memory(rows, scenario)

    monkeypatch.setattr(searches, "search", counting)
    monkeypatch.setattr(fitting, "row_bytes", weighing)
    monkeypatch.setattr(lattice, "LONG_SEQUENCE", 8192)  # as users have it
    return seen


@pytest.mark.parametrize(
    ("asked", "searches", "cores", "priced", "memory"),
    [
        ({"model": "175b", "gpus": 12288, "global_batch_size": 6144}, 22, 240_000, 286_000, 175_000),
        ({"model": "deepseek-v3", "gpus": 2048, "global_batch_size": 4096}, 22, 110_000, 245_000, 118_000),
        ({"model": "deepseek-v3", "gpus": 2048}, 21, 350_000, 555_000, 278_000),
        ({"model": "llama3.1-405b", "gpus": 16384}, 22, 246_000, 476_000, 249_000),
        ({"model": "22b", "gpus": 128, "cluster": "a100-h100-mixed"}, 8, 61_000, 71_000, 12_500),
    ],
)
def test_a_plan_with_its_reasons_takes_a_bounded_number_of_searches_cores_and_strategies(
    counted, asked, searches, cores, priced, memory
):
    plan(PlanRequest(**asked))
    assert len(counted.searches) <= searches
    assert max(known for known, _ in counted.searches) <= cores
    assert sum(number for _, number in counted.searches) <= priced
    assert counted.memory <= memory


def test_a_question_loads_neither_the_solver_nor_the_readers_of_files():
    code = (
        "import sys, planner.cli as c\n"
        "try: c.main(['--model', '175b', '--gpus', '1024', '--output', '/dev/null'])\n"
        "except SystemExit: pass\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "planner.api.answers" in loaded
    assert not loaded & {"ortools", "tree_sitter", "planner.jobs.readers", "yaml", "http.server", "multiprocessing"}
    assert sum(name.partition(".")[0] in {"hardware", "costmodels", "planner"} for name in loaded) < 270
