"""What a question costs, counted: lattices laid out, strategies priced, modules loaded. Bounds that keep that small."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

import planner.search.objective as searches
from costmodels import pricing
from costmodels.strategy import strategies
from planner import PlanRequest, plan
from planner.explain.levers import scale_compute, scale_device, scale_links
from planner.search import best_first, fitting
from planner.search.core_bounds import core_bound, known_bound, layer_bound, passes_bound
from planner.search.objective import Objective, build_below, near_lattice
from planner.space import lattice
from planner.space.lattice import begin, build
from planner.stages import chain, chain_bounds
from tests.drawn import drawn_scenarios

SOME = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
DEEPSEEK = {"model": "deepseek-v3", "gpus": 2048}
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


def plain_of_passes(cores):
    """Cores of which only what decides the order of passes is known."""
    return strategies(**{name: getattr(cores, name) for name in (*lattice.PASSES, "num_microbatches")})


@SOME
@given(drawn_scenarios(**FEW))
def test_what_is_laid_out_for_less_than_some_seconds_holds_every_core_that_may_take_less(scenario):
    whole = build(scenario, {})
    assume(len(whole.cores))
    bound = core_bound(whole.cores, scenario)
    passes = passes_bound(plain_of_passes(whole.cores), scenario)
    assert (layer_bound(whole.cores, scenario) <= passes * (1 + 1e-9)).all()
    assert (passes <= bound * (1 + 1e-9)).all()
    below = float(np.median(bound))
    part = build_below(Objective("time", scenario, 0.0), {}, below)
    some = core_bound(part.cores, scenario)
    assert sorted(bound[bound < below]) == pytest.approx(sorted(some[some < below]), rel=1e-12)


@SOME
@given(drawn_scenarios(**FEW))
def test_a_lattice_without_what_is_far_slower_counts_as_the_whole_one_and_keeps_what_is_faster(scenario):
    whole, begun = build(scenario, {}), begin(scenario, {})
    assume(len(whole.cores))
    bound = core_bound(whole.cores, scenario)
    below = float(np.median(bound))
    objective = Objective("time", scenario, 0.0)
    part = near_lattice(begun, objective, below, begun.each(objective.passes_bound))
    assert known_bound(part.cores, scenario) == pytest.approx(core_bound(part.cores, scenario), rel=1e-12)
    assert (part.candidates, part.refusals) == (whole.candidates, whole.refusals)
    kept = np.flatnonzero(bound < below)
    columns = ("tp", "cp", "pp", "vpp", "dp", "schedule", "recompute", "micro_batch_size")
    for name in columns:
        assert (getattr(part.cores, name) == getattr(whole.cores, name)[kept]).all()
    assert (part.allowed == whole.allowed[kept]).all()
    assert (part.degree[part.layout] == whole.degree[whole.layout[kept]]).all()


class Counted:
    """Cores bounded and strategies priced by each search of a question.

    Then how many had their memory worked out, their slices laid out, or were priced alone; how many calls priced some,
    and how many chains of slices were split.
    """

    def __init__(self):
        self.searches, self.memory, self.laid_out, self.alone, self.calls, self.chains = [], 0, 0, 0, 0, 0


@pytest.fixture
def counted(monkeypatch):
    seen, search, memory, seconds = Counted(), searches.search, fitting.row_bytes, pricing.row_seconds
    chains, pairs, tables = chain_bounds._chains, best_first.price_pairs, chain._Chain._windows

    def counting(space, *arguments, **known):
        outcome = search(space, *arguments, **known)
        seen.searches.append((len(space.cores), outcome.priced))
        return outcome

    def weighing(rows, scenario):
        seen.memory += len(rows)
        return memory(rows, scenario)

    def laying_out(stages):
        seen.laid_out += len(stages.least)
        return chains(stages)

    def pricing_alone(row, scenario):
        seen.alone += 1
        return seconds(row, scenario)

    def pricing_pairs(*arguments):
        seen.calls += 1
        return pairs(*arguments)

    def splitting(problem):
        seen.chains += 1
        return tables(problem)

    monkeypatch.setattr(best_first, "price_pairs", pricing_pairs)
    monkeypatch.setattr(chain._Chain, "_windows", splitting)
    monkeypatch.setattr(pricing, "row_seconds", pricing_alone)
    monkeypatch.setattr(searches, "search", counting)
    monkeypatch.setattr(fitting, "row_bytes", weighing)
    monkeypatch.setattr(chain_bounds, "_chains", laying_out)
    monkeypatch.setattr(lattice, "LONG_SEQUENCE", 8192)  # as users have it
    return seen


@pytest.mark.parametrize(
    ("asked", "searches", "cores", "priced", "memory", "laid_out", "alone", "calls", "chains"),
    [
        ({"model": "175b", "gpus": 12288, "global_batch_size": 6144}, 20, 240_000, 184_000, 122_000, 0, 8, 22, 0),
        (DEEPSEEK, 20, 201_000, 315_000, 95_000, 234, 8, 21, 83),
        ({"model": "llama3.1-405b", "gpus": 16384}, 20, 246_000, 264_000, 61_000, 0, 8, 20, 0),
        ({"model": "22b", "gpus": 128, "cluster": "a100-h100-mixed"}, 8, 61_000, 49_000, 10_500, 0, 0, 4, 0),
    ],
)
def test_a_plan_with_its_reasons_takes_a_bounded_number_of_searches_cores_and_strategies(
    counted, asked, searches, cores, priced, memory, laid_out, alone, calls, chains
):
    plan(PlanRequest(**asked))
    assert len(counted.searches) <= searches
    assert max(known for known, _ in counted.searches) <= cores
    assert sum(number for _, number in counted.searches) <= priced
    assert counted.memory <= memory
    assert counted.laid_out <= laid_out
    assert counted.alone <= alone
    assert counted.calls <= calls
    assert counted.chains <= chains


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
    unread = {"ortools", "tree_sitter", "planner.jobs.readers", "yaml", "http.server", "multiprocessing", "numpy.ma"}
    assert not loaded & unread
    assert sum(name.partition(".")[0] in {"hardware", "costmodels", "planner"} for name in loaded) < 275


def test_linear_algebra_of_a_command_keeps_to_one_thread_unless_the_user_says_otherwise():
    code = "import os, planner.cli; print(*(os.environ[name + '_NUM_THREADS'] for name in ('OPENBLAS', 'MKL')))"
    said = {**os.environ, "MKL_NUM_THREADS": "3"}
    said.pop("OPENBLAS_NUM_THREADS", None)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=said)
    assert done.stdout.split() == ["1", "3"]
