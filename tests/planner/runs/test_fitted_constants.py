"""The constants of stacks and accelerators, fitted on runs that the model itself made."""

import math
from dataclasses import replace

import pytest

from costmodels.pricing import price_strategy
from hardware.catalogue import accelerator
from planner.runs.fit import (
    Sample,
    alone_on_machines,
    calibrate,
    calibrate_experts,
    errors_left,
    set_fields,
    with_experts_of_others,
)
from planner.runs.least_squares import EXPERTS, RATE, STACK_KNOBS, with_constants, with_rate
from planner.runs.leave_one_out import without_each
from tests.planner.measured_run import case, run

DEVICE = ("a100-sxm-80gb", RATE.field)


def made_at(rate, group="made"):
    """Runs that the model itself made where the accelerator trains at that rate, and no host binds them."""
    samples = []
    for layers, micro in ((12, 1), (24, 2), (48, 4)):
        mapped = case(run(model={"num_layers": layers}, pins={"micro_batch_size": micro, "recompute": "none"}))
        neutral: dict[str, object] = {knob.field: knob.neutral for knob in STACK_KNOBS} | {"switches.cuda_graphs": True}
        stack = mapped.scenario.stack.changed(neutral)
        scenario = replace(mapped.scenario, stack=stack)
        seconds = price_strategy(mapped.strategy, with_rate(scenario, rate), mapped.assignment).iteration
        samples.append(Sample(group, replace(mapped, scenario=scenario), seconds, 1.0 / math.sqrt(3)))
    return samples


def test_calibration_finds_the_machine_that_made_the_runs():
    """A fifth slower: the runs are explained by the machine."""
    assert calibrate(made_at(0.8), rounds=2)[DEVICE] == pytest.approx(0.8, rel=0.03)


def test_without_a_source_the_constants_are_those_of_the_others():
    """Two sources, a tenth below and above the shipped rate: each is judged by what the other one draws."""
    shipped = accelerator("a100-sxm-80gb").training_rate
    slow, fast = 0.9 * shipped, 1.1 * shipped
    without = without_each([*made_at(slow, "slow-2021"), *made_at(fast, "fast")])
    assert without["slow"][DEVICE] == pytest.approx(fast, rel=0.03)
    assert without["fast"][DEVICE] == pytest.approx(slow, rel=0.03)


def test_what_a_source_alone_speaks_of_is_neutral_without_it():
    without = without_each(made_at(0.8))
    assert without["made"][DEVICE] == pytest.approx(1.0, abs=0.01)


def test_a_stack_alone_on_its_machines_leaves_their_speed_to_them():
    """No run separates its kernels from the machine's; where another stack runs there too, one does."""
    mapped = case(run())
    scenario = mapped.scenario
    others = scenario.stack.changed({"name": "another"})
    with_other = type(mapped)(replace(scenario, stack=others), mapped.strategy, mapped.assignment)
    mine, theirs = (Sample("made", one, 1.0, 1.0) for one in (mapped, with_other))
    assert alone_on_machines([mine]) == {scenario.stack.name}
    assert alone_on_machines([mine, theirs]) == set()
    assert calibrate([mine], rounds=2)[scenario.stack.name, STACK_KNOBS[0].field] == STACK_KNOBS[0].neutral


def test_three_quarters_of_the_expert_efficiency_are_kept():
    experts = {"num_experts": 8, "top_k": 2, "expert_ffn_hidden_size": 8192, "num_shared_experts": 0}
    mapped = case(run(model={"moe": experts}, pins={"ep": 2, "recompute": "none"}))
    assert mapped.scenario.model.moe is not None
    stack = mapped.scenario.stack
    key = stack.name, EXPERTS.field
    slower = price_strategy(mapped.strategy, with_constants(mapped.scenario, {key: 0.64}), mapped.assignment).iteration
    known = {(stack.name, knob.field): float(stack.value(knob.field)) for knob in STACK_KNOBS}
    mine = [Sample("made", mapped, slower, 1.0)]
    found = calibrate_experts(mine, known)
    assert found == {key: pytest.approx(0.64**0.75, rel=0.01)}
    assert EXPERTS.low < found[key] < EXPERTS.high
    assert "1 runs that it is fitted to: bias -" in errors_left(mine, {**known, **found})[stack.name]
    assert calibrate_experts(mine, {}) == {}


def test_an_efficiency_that_is_another_stacks_is_fitted_with_it():
    text = """expert_efficiency = 1.083
[bf16]
expert_efficiency = 0.962  # as nemo: for the others alone
[fp16]
expert_efficiency = 0.9  # as torchtitan
"""
    written = with_experts_of_others(text, {("nemo", EXPERTS.field): 0.95})
    assert written == text.replace("0.962", "0.950")


def test_constants_are_written_into_their_table_of_a_stacks_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\n\n[calibrated]\nstraggler = 0.1  # of old\n\n[bf16]\nstraggler = 0.2\n')
    set_fields(path, {"calibrated.straggler": "0.3", "calibrated.own_runs": "4", "title": '"Mine"', "host.x": "1"})
    assert path.read_text() == (
        'name = "mine"\ntitle = "Mine"\n\n[calibrated]\nstraggler = 0.3\nown_runs = 4\n\n[bf16]\nstraggler = 0.2\n'
        "\n[host]\nx = 1\n"
    )
