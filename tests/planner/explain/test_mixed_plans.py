"""What a person gets who asks about a cluster of several node groups."""

import json
import math
from dataclasses import replace
from io import StringIO
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

from hardware.catalogue import cluster as find_cluster
from hardware.records import BadNodeCount, Cluster
from planner.answer.plan import Plan
from planner.answer.text import NOT_KNOWN
from planner.api import plan, predict, why_not
from planner.api.answers import found_plan
from planner.errors import BadRequest, OutOfTime
from planner.explain.levers import faster_between, faster_networks
from planner.explain.runners_up import alternatives, runners_up
from planner.explain.what_helps import what_helps
from planner.explain.why_not import challenges, why_not_lines
from planner.render.terminal.formats import written
from planner.render.terminal.terminal import render
from planner.request.budget import Budget
from planner.request.request import PlanRequest
from planner.request.resolve import resolve
from planner.search.best_first import search
from planner.search.objective import Search, search_question
from planner.space import mixed as space_of_groups
from planner.space.mixed import build
from tests.each import each
from tests.scenarios import toy_device, toy_group, toy_model, toy_stack

ASK = {"model": toy_model(num_layers=12), "stack": toy_stack(uneven_stages=True), "global_batch_size": 64}


def cluster(*, slow=2, fast=2, memory=80e9):
    """Nodes of four toy devices, some of them three times as fast."""
    old = toy_group().model_copy(update={"name": "old", "nodes": slow})
    device = toy_device(peak=300e12, memory=memory)
    new = toy_group(device=device).model_copy(update={"name": "new", "nodes": fast})
    return Cluster(name="mixed", title="Mixed", groups=(old, new), sources={"all": "toy"})


def request(**changes):
    return PlanRequest(**(ASK | {"cluster": cluster(), "gpus": 16} | changes))


def searched(asked):
    """A question with its lattice and what a search finds there."""
    return search_question(resolve(asked), Budget())


def screen(answer, width=100):
    console = Console(width=width, record=True, file=StringIO())
    render(answer, console)
    return console.export_text()


def test_every_gpu_of_every_group_is_used_and_the_faster_group_holds_more_layers():
    found = plan(request(reasons=False))
    assert found.status == "optimal"
    assert found.proof.gap == 0
    s = found.strategy
    assert s.tp * s.cp * s.pp * s.dp == 16
    assert s.micro_batch_size * s.num_microbatches * s.dp == 64
    names = [stage.group for stage in s.stages]
    assert set(names) == {"old", "new"}
    assert sum(a != b for a, b in pairwise(names)) == 1
    layers = {name: [stage.layers for stage in s.stages if stage.group == name] for name in names}
    assert np.mean(layers["new"]) > np.mean(layers["old"])
    assert sum(map(sum, layers.values())) == 12
    assert sum(found.breakdown_seconds.values()) == pytest.approx(found.prediction.iteration_seconds)
    assert 0 < found.prediction.mfu < 1


@pytest.fixture(scope="module")
def whole():
    """The plan with all its reasons."""
    return plan(request())


def test_a_plan_over_groups_reads_back_and_can_be_asked_again(whole):
    found = whole
    assert Plan.model_validate_json(found.to_json()) == found
    stage = json.loads(found.to_json())["strategy"]["stages"][0]
    assert {"layers", "recompute_layers", "group"} <= set(stage)
    assert None not in stage.values()
    shipped = PlanRequest(model="gpt2-124m", cluster="a100-h100-mixed", gpus=128, reasons=False)
    record = plan(shipped).request
    again = resolve(PlanRequest(model="gpt2-124m", cluster=record["cluster"], gpus=128))
    assert again.cluster == resolve(shipped).cluster


def test_memory_is_held_against_the_device_of_each_stage():
    found = plan(request(cluster=cluster(memory=60e9), reasons=False))
    limits = {
        stage.group: memory.limit for stage, memory in zip(found.strategy.stages, found.memory_bytes, strict=True)
    }
    assert limits == pytest.approx({"old": 80e9, "new": 60e9})
    assert all(memory.total <= memory.limit for memory in found.memory_bytes)


def test_fewer_gpus_are_the_fastest_and_the_plan_says_which():
    part = plan(request(gpus=12, reasons=False))
    assert "the fastest 12 of 16 GPUs in whole nodes: 4 old + 8 new" in part.defaults
    assert {stage.group for stage in part.strategy.stages} == {"old", "new"}
    alone = plan(request(gpus=8, reasons=False))
    assert "the fastest 8 of 16 GPUs in whole nodes: 8 new" in alone.defaults
    assert {stage.group for stage in alone.strategy.stages} == {"new"}
    with pytest.raises(BadNodeCount, match="8 and 12 can"):
        plan(request(gpus=10))
    with pytest.raises(BadNodeCount, match="8 old \\+ 8 new = 16 GPUs; 20 were asked for; at most 16 works"):
        plan(request(gpus=20))


def test_predict_takes_degrees_for_every_group_and_prices_them_as_the_search_does():
    best = plan(request(pins={"tp": 2, "pp": 4, "cp": 1}, reasons=False))
    axes = ("tp", "pp", "cp", "dp", "vpp", "zero_stage", "micro_batch_size", "schedule", "recompute")
    pins = {name: getattr(best.strategy, name) for name in axes}
    pins["sequence_parallel"] = best.strategy.sequence_parallel
    again = predict(request(pins=pins))
    if not any(stage.tp or stage.dp for stage in best.strategy.stages):
        assert again.prediction.iteration_seconds == pytest.approx(best.prediction.iteration_seconds)
    each = predict(request(pins={"tp": "1,4", "pp": 4}))
    degrees = {stage.group: (stage.tp, stage.dp, stage.micro_batch_size) for stage in each.strategy.stages}
    assert degrees == {"old": (1, 4, 1), "new": (4, 1, 4)}
    told = predict(request(pins={"tp": 2, "pp": 4}), layers=(2, 2, 4, 4))
    assert [stage.layers for stage in told.strategy.stages] == [2, 2, 4, 4]
    assert [stage.group for stage in told.strategy.stages] == ["old", "old", "new", "new"]


@pytest.mark.parametrize(
    ("pins", "rule"),
    [
        ({"vocabulary": "spread"}, "group-vocabulary"),
        ({"recompute_num_layers": 2}, "group-recompute"),
        ({"offload": "optimizer"}, "group-offload"),
        ({"pp": 4, "vpp": 2, "schedule": "breadth-first"}, "group-schedule"),
        ({"pp": 4, "schedule": "dualpipe"}, "group-schedule"),
    ],
)
def test_what_is_priced_for_equal_stages_is_refused_over_groups_by_a_rule(pins, rule):
    told = predict(request(pins=pins))
    assert told.status == "infeasible"
    assert rule in {one.rule for one in told.rejected}


def test_the_kind_of_context_parallelism_and_named_modules_are_priced_as_they_are_pinned():
    stack = toy_stack(cp_kinds=("p2p", "a2a"), recompute_modules=("layernorm",), uneven_stages=True)
    told = predict(request(stack=stack, pins={"cp": 2, "cp_kind": "a2a", "recompute_modules": "layernorm"}))
    assert (told.strategy.cp_kind, told.strategy.recompute_modules) == ("a2a", ("layernorm",))
    assert told.strategy.recompute == "selective"


@pytest.mark.parametrize(
    ("memory", "kind", "stage", "layers"),
    [(80e9, "none", 1, None), (80e9, "none", 1, (2, 2, 2, 2)), (8e9, "full", 3, None), (1e9, "full", 3, (2, 2, 2, 2))],
)
def test_partial_recomputation_over_groups_is_priced_as_what_it_comes_to(memory, kind, stage, layers):
    stack = toy_stack(uneven_stages=layers is None, zero3_in_pipelines=True, zero_stages=(0, 1, 2, 3))
    old, new = (group.model_copy(update={"accelerator": toy_device(memory=memory)}) for group in cluster().groups)
    machines = cluster().model_copy(update={"groups": (old, new)})
    asked = {"model": toy_model(vocab_size=256000), "stack": stack, "cluster": machines}
    pins = {"tp": 1, "pp": 4, "zero_stage": stage, "micro_batch_size": 1 if kind == "none" else 16}
    part, whole = (
        predict(request(**asked, pins=pins | {"recompute": recompute}), layers=layers)
        for recompute in ("partial", kind)
    )
    assert part.strategy.recompute == kind
    assert part.memory_bytes == whole.memory_bytes
    assert part.prediction.iteration_seconds == pytest.approx(whole.prediction.iteration_seconds, rel=1e-12)


def test_an_end_stage_may_be_empty_over_groups_where_the_stack_can():
    job = {"stack": toy_stack(uneven_stages=True, empty_ends=True), "pins": {"pp": 16, "tp": 1, "cp": 1, "dp": 1}}
    model = toy_model(num_layers=16, vocab_size=400_000)
    found = plan(request(model=model, **job, reasons=False))
    assert min(stage.layers for stage in (found.strategy.stages[0], found.strategy.stages[-1])) == 0
    again = predict(request(model=model, **job), layers=[stage.layers for stage in found.strategy.stages])
    assert again.prediction.iteration_seconds == pytest.approx(found.prediction.iteration_seconds)
    held = plan(request(model=model, stack=toy_stack(uneven_stages=True), pins=job["pins"], reasons=False))
    assert held.prediction.iteration_seconds > found.prediction.iteration_seconds


def test_stages_of_different_widths_are_predicted_and_said_to_be_unusual():
    answer = predict(request(pins={"tp": 1, "dp": "2,8"}))
    assert answer.strategy.pp == 4 + 1
    assert any("ranks" in warning for warning in answer.warnings)
    with pytest.raises(BadRequest, match="has them by stage"):
        written(answer, "args")


def test_why_not_compares_with_the_best_over_all_groups():
    answer = why_not(request(pins={"tp": 4}))
    assert answer.iteration_seconds >= answer.best_iteration_seconds
    assert set(answer.terms) >= {"compute", "bubble"}
    refused = why_not(request(pins={"rank_order": "tp-cp-ep-pp-dp"}))
    assert refused.rules[0].rule == "group-order"
    assert refused.nearest.subject == "without --rank-order"


def test_other_orders_and_one_group_alone_are_compared(whole):
    found = whole
    lines = {line.subject: line for line in found.why_not}
    assert {"8 old alone", "8 new alone"} <= set(lines)
    assert any("before" in subject for subject in lines)
    if any(stage.tp for stage in found.strategy.stages):
        assert "same degrees everywhere" in lines
    for line in lines.values():
        if "alone" not in line.subject and line.iteration_seconds:
            assert line.iteration_seconds >= found.prediction.iteration_seconds * (1 - 1e-9)
    times = [other.iteration_seconds for other in found.alternatives]
    assert times == sorted(times)
    searched = [line.iteration_seconds for line in lines.values() if "alone" not in line.subject]
    assert min(times) <= min(seconds for seconds in searched if seconds) * (1 + 1e-9)
    assert not times or times[0] >= found.prediction.iteration_seconds * (1 - 1e-9)


def test_reasons_have_the_time_that_was_asked_for_and_no_clock_where_none_was(monkeypatch):
    ends = []

    def told(_search, budget):
        ends.append(budget.seconds)
        return ()

    monkeypatch.setattr("planner.api.answers.what_helps", told)
    for asked in ({"time_limit": 5.0}, {}, {"time_limit": 60.0}):
        plan(request(**asked))
    assert ends[0] <= 5.0 < ends[2] <= 60.0
    assert ends[1] == math.inf


def test_reasons_that_have_no_time_left_are_said_not_to_be_known():
    asked = searched(request())
    assert runners_up(asked, [], Budget()).complete
    assert runners_up(asked, [], Budget(0.0)) == ((asked.outcome.best,), False)
    known, late = (why_not_lines(asked, challenges(asked, budget)) for budget in (Budget(), Budget(0.0)))
    assert [line.subject for line in late] == [line.subject for line in known]
    for line in late:
        assert not line.proved
        assert line.text.startswith(("not known", "at most "))
    helped = what_helps(asked, Budget(0.0))
    assert not any(line.proved for line in helped)
    assert all(line.text == NOT_KNOWN or line.text.startswith("at least -") for line in helped)


def test_better_links_help_as_much_as_a_search_with_them_finds():
    asked = searched(request())
    mixed, space, best = asked.resolved.mixed, asked.space, asked.outcome.best
    lines = {line.subject: line for line in what_helps(asked, Budget())}
    for subject, faster in (("links between groups 2x", faster_between), ("networks 2x", faster_networks)):
        fresh = search(space, faster(mixed), budget=Budget()).best.iteration
        assert lines[subject].proved
        assert lines[subject].iteration_seconds == pytest.approx(min(fresh, best.iteration), rel=1e-9)


def test_a_lattice_that_is_not_laid_out_in_time_proves_nothing():
    mixed = resolve(request()).mixed
    with pytest.raises(OutOfTime, match=r"none of the .* layouts that were looked at was priced within the effort"):
        build(mixed, {}, budget=Budget(effort=0.0))
    impossible = request(cluster=cluster(memory=1e6), time_limit=1e-9)
    with pytest.raises(OutOfTime):
        plan(impossible)
    late = search(build(mixed, {}), mixed, budget=Budget(effort=0.0))
    assert (late.best, late.proved, late.lower_bound) == (None, False, 0.0)


def test_what_a_search_finds_does_not_depend_on_how_many_cores_are_bounded_at_a_time(monkeypatch):
    mixed = resolve(request()).mixed
    whole = search(build(mixed, {}), mixed, budget=Budget())
    monkeypatch.setattr("planner.search.best_first.BOUNDED", 67)
    parts = search(build(mixed, {}), mixed, budget=Budget())
    assert (parts.best.iteration, parts.proved) == (whole.best.iteration, True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pins": {"tp": 3}}, "tp 3 does not divide the 8 GPUs of old; 2 and 4 do"),
        ({"pins": {"pp": 7}}, "pp 7 stages cannot be made of 8 old \\+ 8 new GPUs; 6 and 8 do"),
        ({"objective": "memory"}, "objective memory is searched for one node group"),
        ({"pins": {"tp": 8, "dp": 8}}, "does not fit the 8 GPUs of old"),
    ],
)
def test_requests_that_cannot_be_are_refused_in_one_line(changes, said):
    with pytest.raises(BadRequest, match=said):
        plan(request(**changes))


@each(
    ("pins", "said"),
    [
        ({"pp": 3}, "pp 3 stages of equal width cannot be made of 8 \\+ 8 GPUs; 2 and 4 do"),
        ({"tp": "1,2,4"}, "3 values for 2 node groups"),
        ({"tp": 8, "pp": 4}, "tp 8 x cp 1 does not divide the 4 ranks of a stage; 4 does"),
        ({"tp": 2, "dp": 3}, "6 ranks do not divide the 8 GPUs of old; 4 and 8 do"),
        ({"tp": 1, "dp": "4,8", "micro_batch_size": "1,3"}, "must be the same on every node group"),
        ({"tp": 2, "dp": 2, "pp": 8}, "pp 8 is not the 2 \\+ 2 stages"),
    ],
)
def test_a_predicted_strategy_that_cannot_be_is_refused_in_one_line(pins, said):
    with pytest.raises(BadRequest, match=said):
        predict(request(pins=pins))


def test_what_no_group_can_hold_is_infeasible_with_reasons_and_the_nearest_that_works():
    nothing = plan(request(model=toy_model(num_layers=24, hidden_size=32768, num_heads=64)))
    assert nothing.status == "infeasible"
    assert nothing.rejected[0].rule == "memory"
    pinned = plan(request(pins={"rank_order": "tp-cp-ep-pp-dp"}))
    assert pinned.status == "infeasible"
    assert pinned.rejected[0].rule == "group-order"
    assert pinned.nearest.subject == "without --rank-order"


def test_a_group_without_a_number_of_nodes_is_asked_for_it():
    machines = cluster()
    open_ended = machines.groups[0].model_copy(update={"nodes": None})
    with pytest.raises(BadNodeCount, match="old needs its number of nodes"):
        plan(request(cluster=machines.model_copy(update={"groups": (open_ended, machines.groups[1])})))


def test_widths_differ_only_where_no_plan_of_one_width_fits(monkeypatch):
    def crippled(mixed, pins, *, one_width=True, budget=None):
        space = build(mixed, pins, one_width=one_width, budget=budget)
        return replace(space, allowed=np.zeros_like(space.allowed)) if one_width else space

    monkeypatch.setattr(space_of_groups, "build", crippled)
    found = plan(request())
    assert found.status == "optimal"
    assert not found.proof.scope[0].endswith("with as many ranks on every stage")


def test_the_screen_shows_the_groups_along_the_pipeline_and_the_order_of_the_nodes():
    found = plan(request(pins={"tp": 2, "pp": 4, "cp": 1}))
    text = screen(found)
    assert "2 nodes x 4 toy + 2 nodes x 4 toy" in text
    first = found.strategy.stages[0].group
    assert f"{first} stages 0 to 1" in " ".join(text.split())
    assert "alone" in text
    words, remarks = written(found, "args")
    assert "--pipeline-model-parallel-size 4" in words
    assert any("rank nodes by node group" in remark for remark in remarks)


@pytest.mark.parametrize("name", ["a100-h100-mixed", "a100-two-networks"])
def test_a_shipped_mixed_cluster_says_its_nodes_and_is_planned(name):
    machines = find_cluster(name)
    assert all(group.nodes for group in machines.groups)
    found = plan(PlanRequest(model="llama2-7b", cluster=name, gpus=machines.gpus, top=0, reasons=False))
    assert found.status == "optimal"
    assert {stage.group for stage in found.strategy.stages} == {group.name for group in machines.groups}


def test_the_screen_says_among_which_strategies_the_plan_is_proved_best():
    found = plan(request(reasons=False))
    assert found.status == "optimal"
    assert found.proof.scope[0].endswith("with as many ranks on every stage")
    assert "strategies over all node groups with as many ranks on every stage is faster in the model" in " ".join(
        screen(found).split()
    )


def test_no_two_alternatives_read_the_same():
    """The columns show the degrees of the first stage alone."""
    asked = searched(request(top=1000))
    shown = alternatives(asked, runners_up(asked, [], Budget()).best)
    words = [other.differs for other in shown]
    assert len(words) > 10
    assert len(set(words)) == len(words)
    assert any(" on old, " in said for said in words)
    assert any("new before old" in said for said in words) != any("old before new" in said for said in words)


def test_what_a_cut_off_search_s_runners_up_find_better_is_proposed():
    asked = searched(request())
    best, outcome = asked.outcome.best, asked.outcome
    poorest = runners_up(asked, [], Budget()).best[-1]
    assert poorest.iteration > best.iteration * (1 + 1e-6)
    outcome.best, outcome.proved, outcome.lower_bound = poorest, False, 0.0
    found = found_plan(Search(asked.resolved, {}, asked.space, outcome), Budget())
    assert found.status == "feasible"
    assert found.prediction.iteration_seconds < poorest.iteration * (1 - 1e-6)
    assert all(other.iteration_seconds >= found.prediction.iteration_seconds for other in found.alternatives)


def test_what_was_tried_is_said_where_nothing_near_works_on_several_groups_either():
    answer = plan(request(cluster=cluster(memory=1e6), memory_margin=0.2))
    assert (answer.status, answer.nearest) == ("infeasible", None)
    assert answer.nothing_near.startswith("without one of --memory-margin 0.2, --stack ")
    assert "times as many GPUs" not in answer.nothing_near
