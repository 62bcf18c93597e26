"""What a search learned of the strategies that do not fit serves the next one on its lattice, and changes nothing."""

from unittest import mock

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner.explain.levers import scale_compute, scale_device, scale_links
from planner.request.budget import Budget
from planner.search import fitting
from planner.search.best_first import search
from planner.space.lattice import build
from tests.drawn import drawn_scenarios

SOME = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
FEW = {"gpus": (2, 4, 8, 16), "batches": (8, 16), "layers": (2, 3, 4, 6, 8)}


def searched(space, scenario):
    return search(space, scenario, budget=Budget())


@SOME
@given(drawn_scenarios(**FEW), st.sampled_from([0.02, 0.05, 0.1, 0.3]))
def test_a_search_finds_the_same_whatever_others_on_its_lattice_learned(scenario, share):
    scenario = scale_device(scenario, usable_memory=share)
    alone, shared = build(scenario, {}), build(scenario, {})
    for machine in (scale_links(scenario, 2.0, inner=True), scale_device(scenario, usable_memory=2.0)):
        searched(shared, machine)
    first, later = searched(alone, scenario), searched(shared, scenario)
    assume(first.memory_refused)
    counts = [(one.priced, one.feasible, one.memory_refused) for one in (first, later)]
    assert counts[0] == counts[1]
    assert first.nearest[0] == later.nearest[0]
    assert (first.best is None) == (later.best is None)
    assert first.best is None or first.best.iteration == later.best.iteration


@SOME
@given(drawn_scenarios(**FEW), st.sampled_from([0.02, 0.05, 0.1]))
def test_memory_is_worked_out_again_only_of_what_may_fit(scenario, share):
    scenario = scale_device(scenario, usable_memory=share)
    space = build(scenario, {})
    cores = np.arange(len(space.cores))
    some, unfitting = fitting.part_fitting(space, cores, scenario)
    assume(len(unfitting))
    with mock.patch.object(fitting, "row_bytes", wraps=fitting.row_bytes) as asked:
        again, known = fitting.part_fitting(space, cores, scale_compute(scenario, 2.0))
    may_fit = 0 if some is None else len(some.rows)
    assert sum(len(call.args[0]) for call in asked.call_args_list) == may_fit
    assert may_fit == (0 if again is None else len(again.rows))
    assert sorted(zip(known.core, known.option, strict=True)) == sorted(
        zip(unfitting.core, unfitting.option, strict=True)
    )
