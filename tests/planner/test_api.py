"""The three questions on small machines: what a plan says is true, a prediction is a plan's price, why not."""

import time

import pytest

from planner import BadRequest, OutOfTime, PlanRequest, plan, predict, why_not
from planner.explain import nearest
from planner.request.fields import FIELDS
from tests.scenarios import toy_cluster, toy_device, toy_model, toy_stack, with_experts

STACK = toy_stack(uneven_stages=True, zero_stages=(0, 1, 2, 3))


def request(**changes):
    usual = {
        "model": toy_model(),
        "cluster": toy_cluster(),
        "stack": STACK,
        "gpus": 8,
        "global_batch_size": 16,
        "tokens": 10**9,
    }
    return PlanRequest(**(usual | changes))


def pins_of(strategy):
    axes = (
        "tp",
        "cp",
        "cp_kind",
        "pp",
        "vpp",
        "ep",
        "etp",
        "zero_stage",
        "sharding_degree",
        "micro_batch_size",
        "schedule",
    )
    pins = {axis: getattr(strategy, axis) for axis in (*axes, "cp_kind", "recompute")}
    return pins | {"sequence_parallel": strategy.sequence_parallel, "rank_order": strategy.rank_order}


def test_a_prediction_of_the_plan_s_strategy_is_the_plan_s_prediction():
    best = plan(request(reasons=False))
    layers = [stage.layers for stage in best.strategy.stages]
    again = predict(request(pins=pins_of(best.strategy)), layers=layers)
    assert again.prediction == best.prediction
    assert again.breakdown_seconds == best.breakdown_seconds
    assert again.memory_bytes == best.memory_bytes


@pytest.mark.parametrize(
    ("model", "gpus", "objective", "pins"),
    [
        ("llama-33b", 64, "time", {"pp": 8, "vpp": 2}),
        ("llama-33b", 64, "time", {"pp": 8, "vpp": 2, "recompute": "partial"}),
        ("llama3-8b", 64, "time", {"pp": 6, "vpp": 1}),
        ("gpt3-175b", 128, "memory", {"pp": 8, "vpp": 1}),
        ("nemotron-h-8b", 64, "memory", {"pp": 4, "vpp": 2}),
    ],
)
def test_a_prediction_without_layers_splits_them_as_the_search_does(model, gpus, objective, pins):
    asked = {"model": model, "gpus": gpus * 3 if pins["pp"] == 6 else gpus, "objective": objective, "reasons": False}
    best = plan(PlanRequest(**asked, pins=pins))
    batch = best.strategy.global_batch_size
    again = predict(PlanRequest(**asked, global_batch_size=batch, pins=pins_of(best.strategy)))
    assert again.strategy.stages == best.strategy.stages


def test_of_equally_fast_splits_the_even_one_is_taken_which_spares_the_stages_of_the_ends():
    asked = PlanRequest(model="llama-33b", gpus=64, global_batch_size=256, pins={"pp": 8, "vpp": 2})
    found = predict(asked)
    held = [stage.layers for stage in found.strategy.stages]
    assert held == [6, 8, 8, 8, 8, 8, 8, 6]
    other = predict(asked, layers=sorted(held)[::-1])
    assert other.prediction.iteration_seconds == pytest.approx(found.prediction.iteration_seconds)
    assert max(one.total for one in other.memory_bytes) > max(one.total for one in found.memory_bytes)


def test_planning_with_everything_pinned_is_predicting():
    pins = {"tp": 2, "pp": 2, "cp": 1, "vpp": 1, "micro_batch_size": 2, "zero_stage": 1, "sharding_degree": 2}
    pins |= {"recompute": "none", "schedule": "1f1b", "sequence_parallel": "true", "rank_order": "tp-cp-ep-dp-pp"}
    even = toy_stack(uneven_stages=False)
    planned, predicted = plan(request(pins=pins, stack=even)), predict(request(pins=pins, stack=even))
    assert planned.prediction.iteration_seconds == pytest.approx(predicted.prediction.iteration_seconds, rel=1e-12)
    assert planned.strategy == predicted.strategy


def test_the_alternatives_are_slower_and_differ_in_kind():
    best = plan(request(top=4))
    seconds = [other.iteration_seconds for other in best.alternatives]
    assert seconds == sorted(seconds)
    assert seconds[0] >= best.prediction.iteration_seconds * (1 - 1e-9)
    kinds = [
        (o.strategy.tp, o.strategy.cp, o.strategy.pp, o.strategy.recompute, o.strategy.zero_stage >= 2)
        for o in best.alternatives
    ]
    assert len(set(kinds)) == len(kinds) <= 4


def test_no_alternatives_where_none_are_asked_for():
    assert plan(request(top=0)).alternatives == ()


@pytest.mark.parametrize("objective", ["time", "mfu", "cost", "tokens-per-gpu-hour"])
def test_with_a_given_machine_time_mfu_cost_and_throughput_want_the_same(objective):
    assert plan(request(objective=objective, reasons=False)).strategy == plan(request(reasons=False)).strategy


def test_what_memory_refuses_is_named_with_its_bytes_and_its_limit():
    small = toy_cluster(device=toy_device(memory=2e8))
    answer = plan(request(cluster=small, reasons=False))
    assert answer.status == "infeasible"
    assert answer.strategy is None
    assert answer.proof is None
    memory = next(rejection for rejection in answer.rejected if rejection.rule == "memory")
    assert memory.count > 0
    assert "available" in memory.example


def test_pins_that_no_rule_admits_are_answered_not_raised():
    answer = plan(request(pins={"micro_batch_size": 1024}))
    assert answer.status == "infeasible"
    assert [r.rule for r in answer.rejected] == ["batch-divides"]
    assert answer.nearest.subject == "without --micro-batch"


def test_a_refusal_names_the_rule_about_the_pins_before_any_about_what_only_repeats():
    asked = {"cluster": "dgx-a100-80gb", "model": "llama2-7b", "stack": "deepspeed"}
    answer = plan(request(pins={"zero_stage": 3, "pp": 2}, **asked, reasons=False))
    assert answer.status == "infeasible"
    assert answer.rejected[0].rule == "zero-pipeline"
    assert not {"context-kind", "sharding-repeats"} & {one.rule for one in answer.rejected}


def test_expert_ranks_without_experts_are_refused_by_name():
    answer = predict(request(pins={"ep": 2}))
    assert answer.status == "infeasible"
    assert answer.rejected[0].rule == "experts"
    assert "has no experts" in answer.rejected[0].example


def test_a_model_with_experts_is_planned_predicted_and_compared_over_expert_ranks():
    model = with_experts(toy_model())
    best = plan(request(model=model))
    layers = [stage.layers for stage in best.strategy.stages]
    again = predict(request(model=model, pins=pins_of(best.strategy)), layers=layers)
    assert again.prediction == best.prediction
    assert again.breakdown_seconds == best.breakdown_seconds
    assert again.memory_bytes == best.memory_bytes
    other = why_not(request(model=model, pins={"ep": 8 if best.strategy.ep == 1 else 1}))
    assert other.iteration_seconds >= best.prediction.iteration_seconds * (1 - 1e-9)


def test_a_prediction_that_breaks_a_rule_says_which():
    answer = predict(request(pins={"pp": 2, "schedule": "none"}))
    assert answer.status == "infeasible"
    assert [rejection.rule for rejection in answer.rejected] == ["schedule"]
    assert answer.prediction is None


@pytest.mark.parametrize(
    "pins", [{"pp": 2, "schedule": "none"}, {"zero_stage": 1, "sharding_degree": 3}, {"pp": 2, "vpp": 3}, {"ep": 2}]
)
def test_a_prediction_that_breaks_a_rule_names_the_nearest_that_works(pins):
    answer = predict(request(pins=pins))
    assert answer.status == "infeasible"
    word, value = answer.nearest.subject.split()
    (axis,) = (name for name in pins if f"--{FIELDS[name].words[0]}" == word)
    other = predict(request(pins={name: pin for name, pin in pins.items() if name != "dp"} | {axis: value}))
    assert other.status == "feasible"
    assert other.prediction.iteration_seconds == pytest.approx(answer.nearest.iteration_seconds)
    assert predict(request(pins=pins), near=False).nearest is None


def test_a_prediction_that_does_not_fit_comes_with_its_seconds():
    answer = predict(request(cluster=toy_cluster(device=toy_device(memory=1e8))))
    assert answer.status == "infeasible"
    assert not answer.fits
    assert answer.prediction.iteration_seconds > 0
    assert [rejection.rule for rejection in answer.rejected] == ["memory"]


@pytest.mark.parametrize(
    ("pins", "layers", "said"),
    [
        ({"tp": 3}, None, r"^tp 3 does not divide 8 GPUs; tp 2 and 4 do$"),
        (
            {"tp": 4, "pp": 8},
            None,
            r"^tp 4 x pp 8 = 32 does not divide 8 GPUs; the nearest that works: --\w+ \d, the rest as asked$",
        ),
        ({"tp": "1,2"}, None, r"one strategy is priced at a time"),
        ({"dp": 4}, None, r"^dp 4 is not 8 GPUs; dp 8 is"),
        ({"micro_batch_size": 3}, None, r"micro-batch 3 x dp 8 does not divide the global batch of 16; 24 would"),
        ({"pp": 2}, [8], r"layers are given for 1 stage, pp is 2; 4,4 would do"),
        ({"pp": 2}, [4, 5], r"hold 9 layers, the model has 8; 4,4 would do"),
    ],
)
def test_a_strategy_that_is_none_is_refused_with_what_would_be_one(pins, layers, said):
    with pytest.raises(BadRequest, match=said):
        predict(request(pins=pins), layers=layers)


@pytest.mark.parametrize(
    ("stack", "pins", "layers"),
    [
        (toy_stack(uneven_stages=False), {"pp": 2}, [3, 5]),
        (STACK, {"pp": 2}, [0, 8]),
        (STACK, {"pp": 2, "vpp": 2, "tp": 4}, [1, 7]),
    ],
)
def test_layers_that_a_plan_could_not_choose_are_no_feasible_prediction(stack, pins, layers):
    try:
        answer = predict(request(stack=stack, pins=pins, gpus=8), layers=layers)
    except BadRequest:
        return
    assert answer.status == "infeasible"


def test_recomputed_layers_are_priced_as_given():
    pins = {"pp": 2, "tp": 4, "recompute": "partial"}
    answer = predict(request(pins=pins), layers=[5, 3], recomputed=[4, 1])
    assert [(stage.layers, stage.recompute_layers) for stage in answer.strategy.stages] == [(5, 4), (3, 1)]
    fewer = predict(request(pins=pins), layers=[5, 3], recomputed=[3, 1])
    assert fewer.prediction.iteration_seconds < answer.prediction.iteration_seconds
    assert fewer.memory_bytes[0].activations > answer.memory_bytes[0].activations


@pytest.mark.parametrize(
    ("recompute", "recomputed", "said"),
    [
        ("partial", [6, 1], "a stage of 5 layers cannot recompute 6"),
        ("partial", [-1, 1], "a stage of 5 layers cannot recompute -1"),
        ("partial", [1], "recomputed layers are given for 1 stage, pp is 2"),
        ("full", [1, 1], "recomputed layers are given, but recompute is full; recompute partial takes them"),
    ],
)
def test_recomputed_layers_that_no_stage_has_are_refused(recompute, recomputed, said):
    with pytest.raises(BadRequest, match=said):
        predict(request(pins={"pp": 2, "tp": 4, "recompute": recompute}), layers=[5, 3], recomputed=recomputed)


def test_chunks_of_a_stage_recompute_as_many_layers_each():
    pins = {"pp": 2, "tp": 4, "vpp": 2, "recompute": "partial"}
    assert predict(request(pins=pins), layers=[4, 4], recomputed=[2, 4]).strategy.stages[0].recompute_layers == 2
    with pytest.raises(BadRequest, match="2 chunks cannot recompute 3 layers, the same number in each; 4 works"):
        predict(request(pins=pins), layers=[4, 4], recomputed=[3, 4])


def test_uneven_layers_are_priced_as_given():
    answer = predict(request(pins={"pp": 2, "tp": 4}), layers=[5, 3])
    assert [stage.layers for stage in answer.strategy.stages] == [5, 3]
    even = predict(request(pins={"pp": 2, "tp": 4}), layers=[4, 4])
    assert answer.prediction.iteration_seconds != even.prediction.iteration_seconds


def test_why_not_prices_the_best_of_what_is_pinned_compare_with_best_of_all():
    answer = why_not(request(pins={"tp": 8}))
    assert answer.strategy.tp == 8
    assert answer.pins == {"tp": "8"}
    assert answer.best_iteration_seconds == pytest.approx(plan(request()).prediction.iteration_seconds)
    assert answer.iteration_seconds >= answer.best_iteration_seconds
    mine, best = (sum(pair[k] for pair in answer.terms.values()) for k in (0, 1))
    assert (mine, best) == pytest.approx((answer.iteration_seconds, answer.best_iteration_seconds))
    assert answer.verdict


def test_nothing_speaks_against_the_plan_itself():
    best = plan(request(reasons=False))
    answer = why_not(request(pins={"tp": best.strategy.tp, "pp": best.strategy.pp}))
    assert "it is as good as the best plan" in answer.verdict


def test_a_busy_machine_names_the_nearest_that_an_idle_one_does(monkeypatch):
    late, clock, row = [0.0], time.perf_counter, nearest.single_strategy

    def slow(*given):
        late[0] += 10.0
        return row(*given)

    asked = PlanRequest(model="175b", gpus=1024, pins={"tp": 8, "pp": 8, "vpp": 3, "schedule": "dualpipe"})
    idle = predict(asked)
    monkeypatch.setattr("planner.explain.nearest.single_strategy", slow)
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + late[0])
    assert predict(asked).nearest == idle.nearest
    assert idle.nearest.subject == "--schedule interleaved-groups"
    assert late[0] > 100.0


@pytest.mark.parametrize(
    ("pins", "why"),
    [
        ({"pp": 7}, "pp 7 does not divide 64 GPUs; 4 and 8 do"),
        ({"tp": 8, "pp": 8, "dp": 2}, "does not fit 64 GPUs"),
        ({"zero_stage": 0, "sharding_degree": 8}, "ZeRO stage 0 has sharding degree 1"),
    ],
)
def test_why_not_degrees_that_make_up_no_strategy_says_so(pins, why):
    asked = request(gpus=64, pins=pins)
    with pytest.raises(BadRequest, match=why):
        plan(asked)
    answer = why_not(asked)
    assert answer.verdict.startswith("it cannot run: ")
    assert why in answer.verdict
    assert [rule.rule for rule in answer.rules] == ["pins"]
    assert answer.best_iteration_seconds > 0
    assert answer.strategy is None


def test_why_not_what_is_not_understood_is_no_question():
    with pytest.raises(BadRequest, match="tp"):
        why_not(request(pins={"tp": "eight"}))


def test_why_not_something_impossible_names_the_rule():
    answer = why_not(request(pins={"micro_batch_size": 1024}))
    assert answer.strategy is None
    assert answer.rules
    assert answer.verdict.startswith("it cannot run")


def test_out_of_time_is_an_error_of_its_own():
    with pytest.raises(OutOfTime, match=r"no plan: .* within 1e-09 s"):
        plan(request(gpus=14_400_000, time_limit=1e-9))
