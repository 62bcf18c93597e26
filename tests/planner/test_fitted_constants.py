"""The constants of stacks and accelerators, fitted on runs that the model itself made."""

from dataclasses import replace

import pytest

from costmodels.pricing import quote
from planner.validation.calibrate import (
    EXPERTS,
    STACK_KNOBS,
    Sample,
    alone_on_machines,
    calibrate,
    calibrate_experts,
    with_experts,
)
from planner.validation.mapping import case
from tests.planner.measured_run import run


def test_calibration_finds_the_machine_that_made_the_runs():
    """Runs that the model itself made on a machine a fifth slower, where no host binds them, are explained by it."""
    samples = []
    for layers, micro in ((12, 1), (24, 2), (48, 4)):
        mapped = case(run(model={"num_layers": layers}, strategy={"micro_batch_size": micro, "recompute": "none"}))
        neutral: dict[str, object] = {knob.field: knob.neutral for knob in STACK_KNOBS} | {"cuda_graphs": True}
        scenario = mapped.scenario
        scenario = type(scenario)(
            scenario.model, scenario.group, scenario.stack.model_copy(update=neutral), scenario.gpus,
            scenario.seq_length, scenario.global_batch_size, scenario.precision,
        )  # fmt: skip
        slow = scenario.group.accelerator.model_copy(update={"training_rate": 0.8})
        made = type(scenario)(
            scenario.model, scenario.group.model_copy(update={"accelerator": slow}), scenario.stack, scenario.gpus,
            scenario.seq_length, scenario.global_batch_size, scenario.precision,
        )  # fmt: skip
        seconds = quote(mapped.rows, made, mapped.assignment).iteration
        samples.append(Sample("made", type(mapped)(scenario, mapped.rows, mapped.assignment, ()), seconds, 1.0))
    _, rates = calibrate(samples, rounds=1)
    assert rates["a100-sxm-80gb"] == pytest.approx(0.8, rel=0.05)


def test_a_stack_alone_on_its_machines_leaves_their_speed_to_them():
    """No run tells its kernels from the machine's; where another stack runs there too, one does."""
    mapped = case(run())
    scenario = mapped.scenario
    others = scenario.stack.model_copy(update={"name": "another"})
    with_other = type(mapped)(replace(scenario, stack=others), mapped.rows, mapped.assignment, ())
    mine, theirs = (Sample("made", one, 1.0, 1.0) for one in (mapped, with_other))
    assert alone_on_machines([mine]) == {scenario.stack.name}
    assert alone_on_machines([mine, theirs]) == set()
    stacks, _ = calibrate([mine], rounds=2)
    assert stacks[scenario.stack.name][0] == STACK_KNOBS[0].neutral


def test_three_quarters_of_the_expert_efficiency_are_kept():
    experts = {"num_experts": 8, "top_k": 2, "expert_ffn_hidden_size": 8192, "num_shared_experts": 0}
    shape = {"kind": "moe", "moe": experts}
    mapped = case(run(model=shape, strategy={"ep": 2, "recompute": "none"}))
    assert mapped.scenario.model.moe is not None
    slower = quote(mapped.rows, with_experts(mapped.scenario, 0.64), mapped.assignment).iteration
    stack = mapped.scenario.stack
    known = {stack.name: [float(getattr(stack, knob.field)) for knob in STACK_KNOBS]}
    ((name, (value, left)),) = calibrate_experts([Sample("made", mapped, slower, 1.0)], known, {}).items()
    assert name == stack.name
    assert value == pytest.approx(0.64**0.75, rel=0.01)
    assert left.bias < 0
    assert EXPERTS.low < value < EXPERTS.high
