"""What is asked for and comes to nothing is said: values of a list, a share of nothing, GPUs that save no time."""

import pytest

from hardware.records import Cluster
from planner import PlanRequest, plan
from tests.scenarios import toy_cluster, toy_device, toy_group, toy_model, toy_stack

STACK = toy_stack(uneven_stages=False, zero_stages=(0, 1))


def ask(**changes):
    usual = {"model": toy_model(), "cluster": toy_cluster(), "stack": STACK, "gpus": 8, "global_batch_size": 16}
    return plan(PlanRequest(**(usual | changes)))


def idle(answer):
    return [line for line in answer.warnings if line.startswith(("no strategy has", "nor has"))]


@pytest.mark.parametrize(
    ("pins", "said"),
    [
        ({"tp": "1,3"}, "no strategy has tp 3: tp 3 does not divide 8 GPUs; 2 and 4 do"),
        ({"zero_stage": "0,2"}, "no strategy has zero_stage 2: stack toy has no ZeRO stage 2; it has 0 and 1"),
        ({"micro_batch_size": "1,5"}, "no strategy has micro_batch_size 5: "),
        ({"tp": "1,2", "sharding_degree": "1,3"}, "no strategy has sharding_degree 3: "),
    ],
)
def test_a_value_of_a_list_that_no_strategy_takes_is_named_with_the_reason(pins, said):
    (line,) = idle(ask(pins=pins))
    assert line.startswith(said)
    assert line.split(": ", 1)[1]


def test_values_that_are_taken_ranges_and_single_values_are_not_named():
    for pins in ({"tp": "..3"}, {"tp": 2, "zero_stage": "0,1", "offload": "any"}):
        assert not idle(ask(pins=pins))


def test_many_such_values_are_told_in_few_lines():
    lines = idle(ask(pins={"tp": "1,3,5,6,7,9"}))
    assert [line.split(":")[0] for line in lines] == [
        "no strategy has tp 3",
        "no strategy has tp 5",
        "no strategy has tp 6",
        "nor has any tp 7, 9",
    ]


def test_what_is_idle_does_not_change_the_plan():
    assert ask(pins={"tp": "2,3"}, reasons=False).strategy == ask(pins={"tp": 2}, reasons=False).strategy


def test_several_node_groups_name_them_too():
    old = toy_group().model_copy(update={"name": "old", "nodes": 2})
    new = toy_group(device=toy_device(peak=300e12)).model_copy(update={"name": "new", "nodes": 2})
    both = Cluster(name="mixed", title="Mixed", groups=(old, new), sources={"all": "toy"})
    answer = ask(cluster=both, gpus=16, global_batch_size=64, pins={"tp": "1,3", "dp": "2,4"})
    (line,) = idle(answer)
    assert line.startswith("no strategy has tp 3: tp 3 does not divide the 8 GPUs of old")


def test_a_share_of_what_is_not_offloaded_is_said_to_change_nothing():
    def told(**pins):
        asked = {"stack": "megatron-core", "model": "llama3-8b", "cluster": "dgx-h100", "reasons": False}
        answer = ask(**asked, offload_fraction=0.5, pins=pins)
        return any("offload fraction 0.5 has no effect" in line for line in answer.defaults)

    assert told()
    assert told(offload="activations")
    assert not told(offload="optimizer")


def test_gpus_that_save_next_to_no_time_are_named_with_what_fewer_take():
    many = ask(gpus=64, global_batch_size=2)
    fewer = next(line for line in many.what_helps if line.subject.endswith("GPUs"))
    number = int(fewer.subject.split()[0])
    assert number < 64
    again = ask(gpus=number, global_batch_size=2, reasons=False)
    assert again.prediction.iteration_seconds == pytest.approx(fewer.iteration_seconds)
    assert fewer.iteration_seconds <= 1.1 * many.prediction.iteration_seconds
    half = ask(gpus=number // 2, global_batch_size=2, reasons=False)
    assert half.status == "infeasible" or half.prediction.iteration_seconds > 1.1 * many.prediction.iteration_seconds


def test_gpus_that_are_worth_it_are_not_advised_against():
    assert not [line for line in ask(gpus=8, global_batch_size=4).what_helps if line.subject.endswith("GPUs")]
    assert not [line for line in ask().what_helps if line.subject.endswith("GPUs")]
