"""What measured runs taught of memory, in plans for the stacks that have it."""

import pytest

from costmodels.model.catalogue import model
from costmodels.stack.stack import stack
from planner import PlanRequest, predict
from tests.scenarios import HOMES

LLAMA = model("llama2-7b")
TOKENS = 4 * LLAMA.seq_length
FULL = {"dp": 8, "sharding_degree": 8, "micro_batch_size": 4, "recompute": "full", "zero_stage": 3}


def first_stage(pins, **changes):
    asked = {"model": "llama2-7b", "gpus": 8, "cluster": "dgx-a100-80gb", "stack": "fsdp", "global_batch_size": 32}
    homes = {name: "" if HOMES[name] == "switches" else f"{HOMES[name]}." for name in changes}
    fields = {f"stack.{homes[name]}{name}": value for name, value in changes.items()}
    return predict(PlanRequest(**asked, pins=pins, changes=fields)).memory_bytes[0]


def test_a_plan_holds_the_keys_and_values_that_its_loop_holds():
    plain, named = (
        first_stage(FULL, saved_tensors=saved).activations for saved in ("gate,norm", "gate,norm,cache,cache")
    )
    both = 2 * LLAMA.num_layers * TOKENS * 2 * (LLAMA.key_value_width + LLAMA.value_width)
    assert named - plain == pytest.approx(both)


def test_a_plan_of_16_bit_states_keeps_shards_beside_what_stage_two_gathered():
    states = {"weight_bytes": 2, "optimizer": "adam-bf16", "optimizer_bytes": 8, "gradient_bytes": 2}
    second = first_stage(FULL | {"zero_stage": 2}, **states)
    assert second.weights / LLAMA.published_parameters == pytest.approx(2 + 2 / 8, rel=0.01)


@pytest.mark.parametrize("name", ["fsdp", "torchtitan", "generic"])
def test_stacks_of_pytorch_make_gradients_anew(name):
    assert stack(name).gradients.set_to_none
