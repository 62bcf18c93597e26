"""Where embedding and head sit: end stages of their own, or spread over all stages."""

import pytest

from planner.api import plan, predict
from planner.errors import BadRequest
from planner.jobs.megatron.write import strategy_values
from planner.request.request import PlanRequest

JOB = {"model": "gemma2-2b", "gpus": 16, "global_batch_size": 256}
PINS = {"pp": 16, "tp": 1, "vpp": 1, "micro_batch_size": 1}


def layers(answer):
    return [stage.layers for stage in answer.strategy.stages]


def test_an_end_stage_holds_the_vocabulary_alone_where_the_stack_can_say_so():
    free, held = (
        plan(PlanRequest(**JOB, stack=stack, pins=PINS, reasons=False)) for stack in ("megatron-core", "torchtitan")
    )
    assert layers(free)[-1] == 0
    assert min(layers(held)) == 1
    layout = strategy_values(free.strategy, free.request)[0]["layout"]
    assert layout.endswith("|L")
    assert layout.startswith("E")


def test_layers_given_by_hand_leave_an_end_stage_empty_only_where_that_is_known():
    given = (0, *[2] * 12, 1, 1, 0)
    priced = predict(PlanRequest(**JOB, stack="megatron-core", pins=PINS), layers=given)
    assert tuple(layers(priced)) == given
    assert sum(priced.breakdown_seconds.values()) == pytest.approx(priced.prediction.iteration_seconds)
    with pytest.raises(BadRequest, match="a stage holds 0 layers"):
        predict(PlanRequest(**JOB, stack="torchtitan", pins=PINS), layers=given)
    with pytest.raises(BadRequest, match="a stage holds 0 layers"):
        predict(PlanRequest(**JOB, stack="megatron-core", pins=PINS), layers=(2, 0, *[2] * 11, 1, 1, 0))


def test_a_large_vocabulary_is_spread_over_the_stages_where_the_stack_can():
    job = JOB | {"stack": "zero-bubble", "cluster": "dgx-a100-80gb"}
    pins = {"pp": 16}
    best = plan(PlanRequest(**job, pins=pins, reasons=False))
    assert best.strategy.vocabulary == "spread"
    ends = plan(PlanRequest(**job, pins={**pins, "vocabulary": "ends"}, reasons=False))
    assert best.prediction.iteration_seconds < ends.prediction.iteration_seconds
    _, remarks = strategy_values(best.strategy, best.request)
    assert any("--enable-vocab-parallel" in remark for remark in remarks)


def test_a_stack_that_keeps_the_vocabulary_at_the_ends_says_so():
    answer = plan(PlanRequest(**JOB, pins={"vocabulary": "spread"}, reasons=False))
    assert answer.status == "infeasible"
    assert any("megatron-core has no vocabulary spread" in one.example for one in answer.rejected)


@pytest.mark.parametrize(
    ("torch", "ours"), [("LoopedBFS", "breadth-first"), ("InterleavedZeroBubble", "interleaved-zb")]
)
def test_pytorch_s_names_of_schedules_are_understood(torch, ours):
    pins = {"pp": 2, "vpp": 13, "schedule": torch}
    assert predict(PlanRequest(**JOB, stack="torchtitan", pins=pins)).strategy.schedule == ours


def test_a_folded_schedule_has_two_chunks_unless_more_is_said():
    told = predict(PlanRequest(**JOB, stack="torchtitan", pins={"pp": 4, "schedule": "ZBVZeroBubble"}))
    assert (told.strategy.schedule, told.strategy.vpp) == ("zb-v", 2)


@pytest.mark.parametrize("schedule", ["zb-2p", "1f1b"])
@pytest.mark.parametrize(("layers", "name"), [(0, "none"), (4, "full")])
def test_partial_recomputation_is_priced_as_what_it_comes_to(schedule, layers, name):
    asked = {"model": "olmoe-1b-7b", "gpus": 16, "cluster": "dgx-h100", "stack": "zero-bubble", "global_batch_size": 64}
    pins = {"vpp": 1, "tp": 1, "pp": 4, "ep": 4, "zero_stage": 1, "micro_batch_size": 1, "schedule": schedule}
    pins |= {"vocabulary": "spread"}
    part = predict(PlanRequest(**asked, pins=pins | {"recompute": "partial"}), recomputed=[layers] * 4)
    whole = predict(PlanRequest(**asked, pins=pins | {"recompute": name}))
    assert part.strategy.recompute == name
    assert part.prediction.iteration_seconds == pytest.approx(whole.prediction.iteration_seconds)
    assert part.memory_bytes == whole.memory_bytes
