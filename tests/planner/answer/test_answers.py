"""What an answer says of other choices is what asking for them would say, on machines that people have."""

import numpy as np
import pytest

from hardware.catalogue import accelerator, cluster
from hardware.records import NodeGroup
from planner import PlanRequest, plan, predict, why_not
from planner.analyses.compare_with_best import compare_with_best

LLAMA = {"model": "llama3-8b", "cluster": "dgx-h100", "gpus": 8}
TIGHT = {"model": "llama3-70b", "cluster": "dgx-h100", "gpus": 64, "framework": "any"}
EDGE = {**TIGHT, "memory_margin": 0}
AXES = (
    "tp",
    "cp",
    "cp_kind",
    "pp",
    "vpp",
    "zero_stage",
    "sharding_degree",
    "micro_batch_size",
    "schedule",
    "recompute",
)
LATER_AXES = ("recompute_modules", "offload")


def ask(**changes):
    return plan(PlanRequest(**(LLAMA | changes)))


def bare(**asked):
    """The answer without its reasons, which take most of the time."""
    return plan(PlanRequest(**asked, reasons=False))


@pytest.fixture(name="tight", scope="module")
def fixture_tight():
    """The answer with all its reasons, to the edge of the memory."""
    return plan(PlanRequest(**EDGE))


def pins_of(strategy):
    pins = {axis: getattr(strategy, axis) for axis in AXES + LATER_AXES}
    return pins | {"sequence_parallel": strategy.sequence_parallel, "rank_order": strategy.rank_order}


def test_the_plan_has_uneven_or_partly_recomputed_stages_so_that_what_follows_is_a_test(tight):
    stages = tight.strategy.stages
    assert len({(stage.layers, stage.recompute_layers) for stage in stages}) > 1


@pytest.mark.parametrize("nth", range(4))
def test_why_not_says_what_pinning_the_other_choice_costs(tight, nth):
    line = [line for line in tight.why_not if line.subject.startswith(("TP ", "PP "))][nth]
    axis, size = line.subject.split()
    pinned = bare(**EDGE, pins={axis.lower(): int(size)})
    fastest = (
        pinned.proof.fastest_seconds or pinned.prediction.iteration_seconds
    )  # of ties the better validated is taken
    assert line.iteration_seconds == pytest.approx(fastest, rel=1e-8)


def test_every_alternative_costs_what_predicting_it_costs(tight):
    for other in tight.alternatives:
        again = predict(PlanRequest(**TIGHT, pins=pins_of(other.strategy)))
        assert again.prediction.iteration_seconds == pytest.approx(other.iteration_seconds, rel=1e-8)
        assert other.peak_memory_bytes <= again.memory_bytes[0].limit * (1 + 1e-9)


def test_no_why_not_is_faster_than_an_alternative_of_its_kind(tight):
    best = min(line.iteration_seconds for line in tight.why_not if line.iteration_seconds)
    assert tight.alternatives[0].iteration_seconds <= best * (1 + 1e-9)


def test_predicting_a_plan_s_strategy_without_its_stages_finds_them_again(tight):
    again = predict(PlanRequest(**TIGHT, pins=pins_of(tight.strategy)))
    assert again.fits
    assert again.prediction.iteration_seconds == pytest.approx(tight.prediction.iteration_seconds, rel=1e-8)


def test_predicting_a_plan_s_strategy_with_its_layers_recomputes_as_many_of_them(tight):
    layers = [stage.layers for stage in tight.strategy.stages]
    again = predict(PlanRequest(**TIGHT, pins=pins_of(tight.strategy)), layers=layers)
    assert again.strategy.stages == tight.strategy.stages
    assert again.prediction.iteration_seconds == pytest.approx(tight.prediction.iteration_seconds, rel=1e-8)


def test_full_recomputation_recomputes_every_layer():
    full = ask(pins={"recompute": "full"}, reasons=False)
    assert full.strategy.recompute == "full"
    assert all(stage.recompute_layers == stage.layers for stage in full.strategy.stages)
    assert full.prediction.iteration_seconds > ask(reasons=False).prediction.iteration_seconds
    assert full.prediction.hfu > full.prediction.mfu


def test_partial_recomputation_is_no_slower_than_all_or_nothing():
    partial = ask(pins={"recompute": "partial"}, reasons=False).prediction.iteration_seconds
    for kind in ("none", "full"):
        pinned = ask(pins={"recompute": kind}, reasons=False)
        assert pinned.prediction is None or partial <= pinned.prediction.iteration_seconds * (1 + 1e-9)


def test_a_window_lets_no_machine_do_more_than_it_can():
    for model in ("mistral-7b", "phi-3-mini"):
        answer = ask(model=model, seq_length=131072)
        assert 0 < answer.prediction.mfu < 1
        assert all(0 < other.mfu < 1 for other in answer.alternatives)


def test_a_margin_leaves_memory_alone_and_never_makes_a_plan_faster():
    free, kept = (bare(**TIGHT, memory_margin=margin) for margin in (0, "20%"))
    limit = free.memory_bytes[0].limit
    assert max(stage.total for stage in kept.memory_bytes) <= 0.8 * limit * (1 + 1e-9)
    assert kept.prediction.iteration_seconds >= free.prediction.iteration_seconds * (1 - 1e-9)
    assert not kept.warnings


def test_a_plan_that_fills_the_device_says_so(tight):
    roomy = ask(model="qwen2.5-0.5b", pins={"micro_batch_size": 1}, reasons=False)
    for answer, full in ((tight, True), (roomy, False)):
        share = max(stage.total for stage in answer.memory_bytes) / answer.memory_bytes[0].limit
        assert (share > 0.95) is full
        assert bool(answer.warnings) is full


@pytest.mark.parametrize(
    ("pins", "rule"),
    [
        ({"micro_batch_size": 4096}, "batch-divides"),
        ({"schedule": "1f1b", "vpp": 4}, "schedule"),
        ({"pp": 1, "vpp": 4}, "interleaving"),
    ],
)
def test_what_refuses_a_pin_is_told_first(pins, rule):
    answer = plan(PlanRequest(model="175b", cluster="dgx-a100-80gb", gpus=1024, pins=pins))
    assert answer.status == "infeasible"
    assert answer.rejected[0].rule == rule
    assert why_not(PlanRequest(model="175b", cluster="dgx-a100-80gb", gpus=1024, pins=pins)).rules[0].rule == rule


@pytest.mark.parametrize(
    ("model", "pins", "rule"),
    [("175b", {"ep": 4}, "experts"), ("mixtral-8x7b", {"ep": 16}, "experts-divide"), ("175b", {"tp": 64}, "heads")],
)
def test_only_rules_about_what_was_pinned_are_told(model, pins, rule):
    answer = plan(PlanRequest(model=model, cluster="dgx-h100", gpus=1024, pins=pins, reasons=False))
    assert [rejection.rule for rejection in answer.rejected] == [rule]


def test_the_pin_that_stands_in_the_way_is_named():
    answer = plan(PlanRequest(**TIGHT, pins={"tp": 8, "schedule": "1f1b", "vpp": 4}))
    assert answer.nearest.subject in ("without --vpp", "without --schedule")


def test_the_nearest_number_of_gpus_lies_between_two_doublings():
    pins = {"offload": "none", "tp": 8, "cp": 1, "micro_batch_size": 1}
    answer = plan(PlanRequest(model="175b", cluster="dgx-h100", gpus=8, pins=pins))
    gpus = int(answer.nearest.subject.split()[0])
    assert gpus % 8 == 0
    assert bare(model="175b", cluster="dgx-h100", gpus=gpus, pins=pins).status == "optimal"
    assert bare(model="175b", cluster="dgx-h100", gpus=gpus - 8, pins=pins).status == "infeasible"


def test_the_nearest_number_of_gpus_counts_on_what_a_plan_would_offload():
    asked = {"model": "175b", "cluster": "dgx-h100", "memory_margin": 0, "framework": "any", "pins": {"tp": 8, "cp": 1}}
    advice = plan(PlanRequest(**asked, gpus=8)).nearest
    gpus = int(advice.subject.split()[0])
    enough = bare(**asked, gpus=gpus)
    assert enough.strategy.offload in advice.text.split()
    assert enough.strategy.offload != "none"
    assert enough.prediction.iteration_seconds == pytest.approx(advice.iteration_seconds, rel=0.01)
    assert bare(**asked, gpus=gpus - 8).status == "infeasible"


def test_the_nearest_number_of_gpus_keeps_the_pins_where_it_can():
    asked = {"model": "175b", "cluster": "dgx-h100", "pins": {"tp": 4, "dp": 2, "offload": "none"}}
    advice = plan(PlanRequest(**asked, gpus=8)).nearest
    assert "without" not in advice.text
    assert bare(**asked, gpus=int(advice.subject.split()[0])).status == "optimal"


def test_the_nearest_number_of_gpus_drops_pins_that_never_fit_and_says_so():
    advice = plan(PlanRequest(model="175b", cluster="dgx-h100", gpus=8, pins={"tp": 8, "pp": 1})).nearest
    assert "without --tp and --pp" in advice.text


def test_more_gpus_than_the_batch_can_be_divided_among_are_told_how_many_can():
    asked = {"model": "llama3-8b", "cluster": "dgx-h100", "global_batch_size": 512, "pins": {"tp": 1, "pp": 1, "cp": 1}}
    refused = plan(PlanRequest(**asked, gpus=520))
    assert refused.nearest.subject == "512 GPUs"
    enough = bare(**asked, gpus=512)
    assert enough.prediction.iteration_seconds == pytest.approx(refused.nearest.iteration_seconds)


def test_a_rounder_number_of_gpus_that_is_faster_is_told():
    asked = {"model": "llama3-70b", "cluster": "dgx-h100", "global_batch_size": 512}
    odd = plan(PlanRequest(**asked, gpus=1056))
    lines = {line.subject: line for line in odd.what_helps}
    fewer = plan(PlanRequest(**asked, gpus=1024))
    assert fewer.prediction.iteration_seconds < odd.prediction.iteration_seconds
    assert lines["1,024 GPUs"].iteration_seconds == pytest.approx(fewer.prediction.iteration_seconds)
    assert not any("GPUs" in line.subject for line in fewer.what_helps if line.proved)


def test_why_not_says_what_a_strategy_needs_to_fit():
    pins = {"tp": 1, "pp": 1, "cp": 1, "micro_batch_size": 1, "recompute": "none", "zero_stage": 1}
    answer = why_not(PlanRequest(**LLAMA, pins=pins))
    assert answer.verdict.startswith("it fits only with offload activations: it takes")


def test_a_configuration_that_does_not_fit_is_told_so_compare_with_best():
    given = PlanRequest(**LLAMA, pins={"tp": 1})
    beside = compare_with_best(predict(given), given)
    assert [line.text for line in beside.why_not] == ["it cannot run: every GPU needs 102.5 GiB, 79.1 GiB available"]


def test_a_configuration_in_doubt_is_said_to_run_out_likely():
    given = PlanRequest(**LLAMA, pins={"tp": 1})
    doubted = predict(given).model_copy(update={"rejected": ()})
    (line,) = compare_with_best(doubted, given).why_not
    assert line.text.startswith("it is likely to run out of memory; the best fits and takes ")


def test_utilisation_beyond_the_peak_and_a_cost_that_nobody_knows_are_told():
    long = bare(model="llama3-8b", gpus=128, seq_length=10_000_000, global_batch_size=1)
    assert long.prediction.hfu > 1.0
    assert any("count all of attention" in warning for warning in long.warnings)
    cheap = bare(model="llama3-8b", gpus=64, cluster="dgx-h800", objective="cost")
    assert any("dgx-h800 has no price" in warning for warning in cheap.warnings)
    assert not any(
        "price" in warning or "causal" in warning for warning in ask(objective="cost", reasons=False).warnings
    )


def test_long_sequences_say_what_of_their_utilisation_is_computed():
    long = plan(PlanRequest(model="llama3-8b", gpus=16, seq_length=131072, global_batch_size=16, reasons=False))
    assert long.prediction.hfu < 0.85 or long.prediction.mfu < 0.85
    (said,) = [warning for warning in long.warnings if "count all of attention" in warning]
    halved = float(said.partition("MFU is ")[2].partition("%")[0]) / 100
    assert 0.5 * long.prediction.mfu < halved < long.prediction.mfu / 1.2
    short = plan(PlanRequest(model="llama3-8b", gpus=16, reasons=False))
    assert not any("causal" in warning for warning in short.warnings)


def test_a_cluster_without_hosts_says_why_nothing_is_offloaded():
    bare = NodeGroup.model_validate(cluster("rtx4090-8x").groups[0].model_dump() | {"host_bandwidth": None})
    refused = plan(PlanRequest(model="llama3-70b", gpus=8, cluster={"name": "mine", "groups": [bare.model_dump()]}))
    assert refused.status == "infeasible"
    assert any("says no host_memory, host_link or host_bandwidth" in one.example for one in refused.rejected)


def test_a_batch_with_few_divisors_is_told_of_one_with_more():
    lines = {line.subject: line for line in ask(global_batch_size=1021).what_helps}
    assert any(subject.startswith("batch 10") for subject in lines)
    assert not any(
        subject.startswith("batch 1") for subject in {x.subject for x in ask(global_batch_size=1024).what_helps}
    )


def test_twice_the_memory_helps_as_much_as_planning_on_it(tight):
    from hardware.catalogue import cluster

    machine = cluster("dgx-h100").with_gpus(64)
    group = machine.groups[0]
    device = group.accelerator.model_copy(update={"usable_memory": 2 * group.accelerator.usable_memory})
    larger = machine.model_copy(update={"groups": (group.model_copy(update={"accelerator": device}),)})
    replanned = bare(**(EDGE | {"cluster": larger, "ties": "fastest"}))
    line = next(line for line in tight.what_helps if line.subject == "memory 2x")
    assert np.isclose(line.iteration_seconds, replanned.prediction.iteration_seconds, rtol=1e-8)


@pytest.mark.parametrize(
    ("says", "assumed"),
    [
        ({}, ["price 2.95 $/h per h100-sxm (the catalogue's)", "energy of the GPUs alone (no node_power_overhead)"]),
        ({"price": "2 $/h"}, ["energy of the GPUs alone (no node_power_overhead)"]),
        ({"node_power_overhead": "0 W"}, ["price 2.95 $/h per h100-sxm (the catalogue's)"]),
        ({"price": "2 $/h", "node_power_overhead": "4.6 kW"}, []),
        ({"accelerator": "h20", "node_power_overhead": "4.6 kW"}, ["no cost (h20 has no price; --price gives one)"]),
    ],
)
def test_a_cluster_of_one_s_own_is_told_whose_price_it_has_and_that_its_hosts_draw_nothing(says, assumed):
    mine = {"name": "mine", "accelerator": "h100-sxm", "gpus_per_node": 8, "nodes": 1}
    found = predict(PlanRequest(**LLAMA | {"cluster": mine | says}, tokens=10**9, pins={"tp": 2}))
    assert [line for line in found.defaults if "price" in line or "energy" in line] == assumed
    watts = 1e6 * found.prediction.energy_megawatt_hours / found.prediction.gpu_hours
    hosts = 4600 / 8 if says.get("node_power_overhead") == "4.6 kW" else 0
    assert watts == pytest.approx(accelerator((mine | says)["accelerator"]).power + hosts)
    again = predict(PlanRequest(**LLAMA | {"cluster": found.request["cluster"]["file"]}, pins={"tp": 2}))
    assert set(assumed) <= set(again.defaults)


def test_a_cluster_of_the_catalogue_has_nothing_to_say_of_price_and_energy():
    found = predict(PlanRequest(**LLAMA, pins={"tp": 2}))
    assert not [line for line in found.defaults if "price" in line or "energy" in line]
