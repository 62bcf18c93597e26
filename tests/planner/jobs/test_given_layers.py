"""Layers that are given for every stage of a pipeline: only cuts that its schedule can have are priced."""

import json
import shlex

import pytest

from costmodels.layout.split import ends_of_cut, nearest_cut
from planner import BadRequest, PlanRequest, predict
from planner.jobs.preview import launch
from planner.service.answers import answer
from planner.studies.result import results
from planner.studies.running import run
from planner.studies.study_file import study_of
from tests.scenarios import toy_cluster, toy_model, toy_stack

JOB = {"model": "gpt3-350m", "gpus": 8, "global_batch_size": 64}
TWO = {"pp": 2, "vpp": 2}
WHY = "stage 0 holds 13 layers, which make no 2 equal chunks; 12,12 would"
"""gpt3-350m has 24 layers."""


def held(found):
    return [stage.layers for stage in found.strategy.stages]


def ends(num_layers, **stack):
    """A model of so many layers, under a stack that lets the ends take the places of layers."""
    stack = toy_stack(ends_as_layers=True, uneven_stages=True, schedules=("interleaved-1f1b",), **stack)
    model = toy_model(num_layers=num_layers)
    return {"model": model, "cluster": toy_cluster(), "stack": stack, "gpus": 8, "global_batch_size": 64}


def test_stages_that_make_no_equal_chunks_are_refused_with_the_nearest_that_do():
    with pytest.raises(BadRequest, match=f"^{WHY}$"):
        predict(PlanRequest(**JOB, pins=TWO), [13, 11])
    assert held(predict(PlanRequest(**JOB, pins=TWO), [14, 10])) == [14, 10]
    assert held(predict(PlanRequest(**JOB, pins={"pp": 2}), [13, 11])) == [13, 11]


def test_the_service_refuses_them_as_a_bad_request():
    status, body = answer("predict", json.dumps(JOB | {"pins": TWO, "layers_per_stage": [13, 11]}).encode(), 20.0)
    error = json.loads(body)["error"]
    assert (status, error["message"], error["exit_code"]) == (422, WHY, 2)


def test_a_study_keeps_them_as_a_failed_point_and_goes_on(tmp_path):
    asked = study_of(JOB | TWO | {"mode": "predict", "layers_per_stage": ["13,11", "14,10"]})
    run(asked, tmp_path / "runs.sqlite", workers=1)
    found = {one.axes["layers_per_stage"]: (one.status, one.error) for one in results(asked, tmp_path / "runs.sqlite")}
    assert found == {(13, 11): ("failed", WHY), (14, 10): ("feasible", None)}


def test_a_stage_of_a_v_holds_two_equal_chunks_too():
    asked = PlanRequest(**JOB, stack="zero-bubble", pins=TWO | {"schedule": "zb-v"})
    assert held(predict(asked, [14, 10])) == [14, 10]
    with pytest.raises(BadRequest, match=WHY):
        predict(asked, [13, 11])


def test_ends_take_no_layer_s_place_over_several_node_groups():
    job = {"model": toy_model(num_layers=22), "cluster": "a100-h100-mixed", "gpus": 128, "global_batch_size": 256}
    asked = PlanRequest(**job, pins={"tp": 1, "dp": 32, "vpp": 2})
    with pytest.raises(BadRequest, match="stage 0 holds 5 layers, which make no 2 equal chunks; 6,6,6,4 would"):
        predict(asked, [5, 6, 6, 5])
    assert held(predict(asked, [6, 6, 6, 4])) == [6, 6, 6, 4]


def test_chunks_that_a_file_draws_are_priced_with_a_word_on_them_over_several_node_groups_too():
    job = {"model": toy_model(num_layers=22), "cluster": "a100-h100-mixed", "gpus": 128, "global_batch_size": 256}
    asked = PlanRequest(**job, pins={"tp": 1, "dp": 32, "vpp": 2})
    found = predict(asked, [6, 5, 6, 5], chunked=False)
    assert held(found) == [6, 5, 6, 5]
    said = "stage 1 holds 5 layers, which make no 2 equal chunks; they are priced as equal chunks"
    assert said in found.warnings
    even = predict(asked, [6, 6, 6, 4], chunked=False)
    assert not any("chunks" in one for one in even.warnings)


def test_an_end_that_has_to_take_a_layer_s_place_makes_its_stage_s_chunks_equal():
    asked = PlanRequest(**ends(14), pins={"pp": 2, "vpp": 8})
    assert held(predict(asked, [7, 7])) == [7, 7]
    asked = PlanRequest(**ends(30), pins={"pp": 2, "vpp": 4})
    said = "stage 0 holds 14 layers and the embedding, which make no 4 equal chunks; 15,15 would"
    with pytest.raises(BadRequest, match=said):
        predict(asked, [14, 16])
    assert held(predict(PlanRequest(**ends(23), pins={"pp": 4, "vpp": 2}), [6, 6, 8, 3])) == [6, 6, 8, 3]


@pytest.mark.parametrize(
    ("num_layers", "layers", "layout"),
    [
        (22, [5, 6, 6, 5], "'Et*2|(t*3|)*5t*3|t*2L'"),
        (23, [5, 6, 6, 6], "'Et*2|(t*3|)*5t*3|t*3L'"),
        (6, [1, 2, 2, 1], "'E|(t|)*5t|L'"),
        (7, [2, 2, 2, 1], "'Et|(t|)*5t|L'"),
    ],
)
def test_ends_that_count_as_layers_make_all_stages_alike_as_megatron_s_switches_do(num_layers, layers, layout):
    asked = PlanRequest(**ends(num_layers), pins={"pp": 4, "vpp": 2})
    found = predict(asked, layers)
    assert held(found) == layers
    assert f"--pipeline-model-parallel-layout {layout}" in shlex.join(launch(found, found.strategy).words)


def test_ends_count_as_layers_only_where_the_stack_has_them_count():
    asked = ends(22)
    asked["stack"] = toy_stack(uneven_stages=True, schedules=("interleaved-1f1b",))
    with pytest.raises(BadRequest, match="stage 0 holds 5 layers, which make no 2 equal chunks; 6,6,6,4 would"):
        predict(PlanRequest(**asked, pins={"pp": 4, "vpp": 2}), [5, 6, 6, 5])
    partial = PlanRequest(**ends(22), pins={"pp": 4, "vpp": 2, "recompute": "partial"})
    with pytest.raises(BadRequest, match="make no 2 equal chunks"):
        predict(partial, [5, 6, 6, 5])


@pytest.mark.parametrize(
    ("changes", "layers", "said"),
    [
        ({}, [2, 2, 1, 1], "layers 1,2,2,1, where embedding or head counts as a layer, would do"),
        ({"pins": {"pp": 4, "vpp": 2, "recompute": "partial"}}, [1, 2, 2, 1], "one chunk on each would do"),
        ({"pins": {"pp": 4, "vpp": 3}}, [1, 2, 2, 1], "one chunk on each would do"),
    ],
)
def test_layers_that_leave_chunks_empty_are_refused_with_what_fills_them(changes, layers, said):
    asked = PlanRequest(**(ends(6) | {"pins": {"pp": 4, "vpp": 2}} | changes))
    found = predict(asked, layers)
    assert found.status == "infeasible"
    assert next(one.example for one in found.rejected if one.rule == "chunks").endswith(said)


def test_two_ends_do_not_excuse_stages_that_differ():
    assert ends_of_cut([13, 11], 2, counted=True) is None
    assert ends_of_cut([11, 12, 12, 11], 2, counted=True) == (1, 1)
    assert ends_of_cut([11, 12, 12, 11], 2, counted=False) is None


@pytest.mark.parametrize("layers", [[1, 15, 4, 4], [7, 5, 7, 5], [2, 2, 17, 3], [24, 0, 0, 0]])
def test_the_nearest_cut_has_the_model_s_layers_in_whole_slices_on_every_stage(layers):
    for step in (2, 4, 6):
        near = nearest_cut(layers, 2, step)
        assert sum(near) == 24
        assert all(n >= step and n % step == 0 for n in near)
    assert nearest_cut([6, 8, 6, 4], 2, 2) == [6, 8, 6, 4]


@pytest.mark.parametrize("stack", ["gpt-neox", "megatron-deepspeed", "megatron-deepspeed-2021"])
def test_a_pipeline_of_deepspeed_spreads_layers_itself_unless_it_is_told(stack):
    asked = PlanRequest(model="gpt-neox-20b", gpus=24, stack=stack, global_batch_size=24, pins={"tp": 4, "pp": 6})
    assert held(predict(asked)) == [8, 8, 7, 7, 7, 7]
    assert held(predict(asked, [7, 7, 8, 8, 7, 7])) == [7, 7, 8, 8, 7, 7]
    with pytest.raises(BadRequest, match="each of its 1 chunks needs one"):
        predict(asked, [9, 9, 9, 9, 8, 0])
