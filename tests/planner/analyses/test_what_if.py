"""`plan --what-if` and `plan --robust`: levers, elasticities, regrets."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from costmodels.pricing import price_strategy
from planner.analyses.robust import changed_by, changed_groups, corners_of, robust
from planner.analyses.what_if import FACTOR, what_if
from planner.answer.load import stages_from_plan, strategy_from_plan
from planner.api import plan, predict
from planner.cli import main
from planner.errors import BadRequest
from planner.explain.levers import machine_levers, uncertain_levers
from planner.render.terminal.what_if import words
from planner.request.budget import Budget
from planner.request.request import PlanRequest
from planner.request.resolve import resolve
from planner.search.best_first import search
from planner.search.question import resolve_search

ASK = PlanRequest(model="22b", gpus=64, global_batch_size=128, ties="fastest")


@pytest.fixture(autouse=True, scope="module")
def _a_coarse_radius():
    """Every halving of the radius prices all corners anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.analyses.robust.STEPS", 1)
        yield


@pytest.fixture(scope="module")
def levers():
    return what_if(ASK)


@pytest.fixture(scope="module")
def columns():
    """How many candidates were priced at every corner."""
    return []


@pytest.fixture(scope="module")
def least(columns):
    from planner.analyses import robust as module

    with pytest.MonkeyPatch.context() as patch:
        together = module.iterations_together
        patch.setattr(module, "iterations_together", lambda *args: columns.append(len(args[0])) or together(*args))
        return robust(ASK, 0.3)


def test_every_lever_of_the_machines_the_batch_and_the_gpus_is_turned(levers):
    tiers = {f"{tier.name} bandwidth" for tier in resolve(ASK).scenario.group.tiers}
    wanted = {"arithmetic", "memory bandwidth", "memory", "latency", "batch", "GPUs"} | tiers
    assert {one.lever for one in levers.levers} == wanted


def test_planning_anew_is_never_slower_than_keeping_the_strategy(levers):
    for one in levers.levers:
        for turned in (one.less, one.more):
            if turned.kept_seconds is not None:
                assert turned.seconds <= turned.kept_seconds * (1 + 1e-9), one.lever


def test_more_of_what_helps_never_takes_longer(levers):
    for one in levers.levers:
        if one.lever not in {"latency", "batch", "GPUs"}:
            assert one.more.seconds <= levers.iteration_seconds * (1 + 1e-9) <= one.less.seconds * (1 + 2e-9)
            assert -1.001 <= one.elasticity <= 1e-9


def test_a_lever_whose_time_ran_out_is_not_said_to_leave_nothing_that_fits(monkeypatch):
    searches = []

    def hurried(space, scenario, *, budget):
        searches.append(scenario)
        return search(space, scenario, budget=budget if len(searches) == 1 else Budget(effort=0.0))

    monkeypatch.setattr("planner.analyses.what_if.search", hurried)
    found = what_if(ASK)
    assert found.proved
    assert {turned.outcome for one in found.levers for turned in (one.less, one.more)} == {"not known"}


def test_half_of_the_gpus_do_not_fit_or_leave_nothing_of_the_pins():
    large = PlanRequest(model="175b", gpus=64, global_batch_size=64, pins={"offload": "none"})
    pinned = ASK.model_copy(update={"pins": {"tp": "8", "pp": "8"}})
    for ask, outcome in ((large, "does not fit"), (pinned, "not possible")):
        one = next(one for one in what_if(ask).levers if one.lever == "GPUs")
        assert (one.less.outcome, one.more.outcome) == (outcome, "planned")


def test_a_plan_that_is_not_proved_says_so(monkeypatch):
    monkeypatch.setattr(
        "planner.analyses.what_if.search", lambda *ask, budget: replace(search(*ask, budget=budget), proved=False)
    )
    assert "not proved fastest" in " ".join(run("--what-if").stdout.split())


def test_an_elasticity_is_the_slope_between_the_two_turns(levers):
    one = next(one for one in levers.levers if one.lever == "arithmetic")
    assert one.elasticity == pytest.approx(math.log(one.more.seconds / one.less.seconds) / (2 * math.log(FACTOR)))


def test_the_strongest_lever_comes_first(levers):
    now = levers.iteration_seconds
    swings = [max(abs(math.log(t.seconds / now)) for t in (one.less, one.more) if t.seconds) for one in levers.levers]
    assert swings == sorted(swings, reverse=True)


def test_twice_the_gpus_are_what_plan_says_of_them(levers):
    one = next(one for one in levers.levers if one.lever == "GPUs")
    doubled = plan(ASK.model_copy(update={"gpus": 128, "reasons": False}))
    assert one.more.seconds == pytest.approx(doubled.prediction.iteration_seconds)
    batch = next(one for one in levers.levers if one.lever == "batch")
    larger = plan(ASK.model_copy(update={"global_batch_size": 256, "reasons": False}))
    assert batch.more.seconds == pytest.approx(larger.prediction.iteration_seconds / 2)


def test_a_lever_at_one_changes_no_price():
    scenario = resolve(ASK).scenario
    found = plan(ASK.model_copy(update={"reasons": False}))
    row, split = strategy_from_plan(found.strategy), stages_from_plan(found.strategy)
    for lever in (*machine_levers(scenario).values(), *uncertain_levers(scenario).values()):
        assert (
            price_strategy(row, lever(scenario, 1.0), split).iteration == price_strategy(row, scenario, split).iteration
        )


def test_regrets_are_over_the_proved_best_of_every_scenario(least):
    scenario = resolve_search(ASK).scenario
    row, split = strategy_from_plan(least.chosen.strategy), stages_from_plan(least.chosen.strategy)
    regrets = []
    for factors in corners_of(tuple(uncertain_levers(scenario)), 0.3):
        changed = changed_by(scenario, factors)
        best = plan_point(changed)
        regrets.append(price_strategy(row, changed, split).iteration / best - 1)
    assert min(regrets) >= -1e-9
    assert max(regrets) == pytest.approx(least.chosen.worst_regret, abs=1e-9)
    assert len(regrets) == least.scenarios == 17


def plan_point(scenario):
    """Seconds of the fastest strategy on machines that no name has, by the search of `plan`."""
    from planner.space.lattice import build

    return search(build(scenario, {}), scenario, budget=Budget()).best.iteration


def test_candidates_are_priced_once_at_every_corner_of_every_radius(least, columns):
    assert len(columns) == least.scenarios * (1 if least.radius == least.within else 2)
    assert len(set(columns)) == 1
    assert columns[0] >= len(least.others)


def test_the_choice_has_the_least_worst_regret_and_is_no_worse_than_the_best(least):
    worst = [least.chosen.worst_regret, *(other.worst_regret for other in least.others)]
    assert worst == sorted(worst)
    assert least.chosen.worst_regret <= least.best.worst_regret
    assert least.best.regret == 0.0
    assert 0.0 <= least.radius <= least.within


def test_corners_are_the_middle_and_every_combination():
    scenario = resolve(ASK).scenario
    corners = corners_of(tuple(uncertain_levers(scenario)), 0.25)
    assert set(corners[0].values()) == {1.0}
    assert len({tuple(corner.values()) for corner in corners}) == 1 + 2 ** len(corners[0])
    assert np.unique([list(corner.values()) for corner in corners[1:]]).tolist() == [0.75, 1.25]


@pytest.mark.parametrize("text", ["0", "100%", "-5%", "much", "nan"])
def test_a_share_that_is_none_is_refused(text):
    with pytest.raises(BadRequest, match=r"--robust: expected a share .*such as .*%"):
        robust(ASK, text)


def run(*arguments):
    ask = ["--model", "llama3-8b", "--global-batch", "32", *(() if "--gpus" in arguments else ("--gpus", "16"))]
    return CliRunner().invoke(main, [*ask, *arguments], env={"COLUMNS": "80", "NO_COLOR": "1"})


def once(ask):
    """The question, searched the first time that it is asked."""
    made = []

    def answer(*given, **named):
        if not made:
            made.append(ask(*given, **named))
        return made[0]

    return answer


def test_the_commands_answer_in_words_and_in_json(monkeypatch):
    monkeypatch.setattr("planner.analyses.what_if.what_if", once(what_if))
    monkeypatch.setattr("planner.analyses.robust.robust", once(robust))
    shown = run("--what-if")
    assert shown.exit_code == 0, shown.output
    assert "memory bandwidth" in shown.stdout
    assert "elasticity" in shown.stdout
    assert json.loads(run("--what-if", "--format", "json").stdout)["schema"] == "what-if/1"
    shown = run("--robust", "20%")
    assert "at worst" in shown.stdout
    assert "strategies were priced in 17 scenarios" in " ".join(shown.stdout.split())
    found = json.loads(run("--robust", "0.2", "--format", "json").stdout)
    assert found["within"] == 0.2
    assert f"ranks {found['chosen']['strategy']['rank_order']}: at worst" in " ".join(shown.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--what-if", "--robust", "20%"], "one at a time"),
        (["--robust", "2"], "such as 0.05 or 5%"),
        (["--what-if", "--format", "args"], "table or json"),
        (["--what-if", "--objective", "memory"], "objective memory"),
        (["--what-if", "--gpus", "128", "--cluster", "a100-h100-mixed"], "one node group"),
    ],
)
def test_what_cannot_be_turned_says_why(arguments, reason):
    done = run(*arguments)
    assert (done.exit_code, reason in done.stderr) == (2, True), done.stderr


def test_a_scenario_without_a_network_has_no_lever_for_it():
    scenario = resolve(ASK).scenario
    alone = replace(scenario, group=scenario.group.model_copy(update={"tiers": scenario.group.tiers[:1]}))
    assert "network" not in uncertain_levers(alone)


MIXED = PlanRequest(model="llama2-7b", gpus=128, global_batch_size=256, cluster="a100-h100-mixed", ties="fastest")


def test_several_node_groups_are_uncertain_together():
    mixed = resolve(MIXED).mixed
    factors = {"arithmetic": 0.8, "memory bandwidth": 1.2, "node links": 0.7, "network": 1.3}
    changed = changed_groups(mixed, factors)
    for one, was, group in zip(changed.scenarios, mixed.scenarios, changed.cluster.groups, strict=True):
        assert one == changed_by(was, factors)
        assert one.group == group
        assert one.group.accelerator.peak["bf16"] == pytest.approx(0.8 * was.group.accelerator.peak["bf16"])
    (now, _), (said, _) = changed.crossing(0, 1), mixed.crossing(0, 1)
    assert now.group.tiers[0].link.bandwidth == pytest.approx(1.3 * said.group.tiers[0].link.bandwidth)


def test_the_least_regret_over_several_node_groups_is_what_plans_at_the_corners_leave():
    """The corner where a candidate is worst is planned anew, as a cluster of its own, freely and with its degrees."""
    mixed, found = resolve(MIXED).mixed, robust(MIXED, 0.3)
    assert (found.scenarios, found.gpus) == (17, 128)
    assert found.chosen.worst_regret <= min(one.worst_regret for one in (found.best, *found.others))
    for told in (found.chosen, found.others[-1]):
        there = changed_groups(mixed, told.worst_where).cluster
        asked = MIXED.model_copy(update={"cluster": there, "top": 0, "reasons": False})
        pins = {name: str(getattr(told.strategy, name)) for name in ("tp", "pp", "vpp", "micro_batch_size")}
        free, kept = (plan(one) for one in (asked, asked.model_copy(update={"pins": pins})))
        least = free.prediction.iteration_seconds
        assert told.worst_regret >= kept.prediction.iteration_seconds / least - 1 - 1e-9


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "TP 4 PP 2 DP 8 micro-batch 1 ranks tp-cp-ep-dp-pp"),
        ({"sharding_degree": 4}, "TP 4 PP 2 DP 8 micro-batch 1 ZeRO-1 over 4 ranks tp-cp-ep-dp-pp"),
        (
            {"recompute": "selective", "recompute_modules": ("layernorm",)},
            "TP 4 PP 2 DP 8 micro-batch 1 recompute layernorm ranks tp-cp-ep-dp-pp",
        ),
        ({"cp": 2, "cp_kind": "a2a"}, "TP 4 CP 2 (a2a) PP 2 DP 8 micro-batch 1 ZeRO-1 over 8 ranks tp-cp-ep-dp-pp"),
        ({"rank_order": "tp-cp-ep-pp-dp"}, "TP 4 PP 2 DP 8 micro-batch 1 ranks tp-cp-ep-pp-dp"),
    ],
)
def test_words_of_a_strategy_tell_apart_what_is_sharded_recomputed_or_has_its_ranks_in_another_order(changes, said):
    asked = {"tp": "4", "pp": "2", "vpp": "1", "micro_batch_size": "1", "zero_stage": "1", "recompute": "none"}
    found = predict(ASK.model_copy(update={"pins": asked})).strategy
    assert words(found.model_copy(update=changes)) == said


def test_no_regret_is_told_where_nothing_fits_several_node_groups():
    asked = MIXED.model_copy(update={"model": "llama3.1-405b", "pins": {"tp": "1", "pp": "2"}})
    with pytest.raises(BadRequest, match="nothing fits"):
        robust(asked, 0.2)


@pytest.mark.parametrize("question", [["--what-if"], ["--robust", "20%"]])
def test_where_nothing_fits_the_command_says_why_and_what_comes_nearest(question):
    done = CliRunner().invoke(main, ["--model", "llama3-70b", "--gpus", "8", "--offload", "none", *question])
    assert done.exit_code == 3
    assert "What works: " in done.stdout
    assert done.stderr.count("\n") == 1


def test_a_lever_that_the_pins_leave_no_room_for_is_left_open():
    asked = ASK.model_copy(update={"pins": {"tp": 8, "pp": 8}})
    found = what_if(asked)
    gpus = next(one for one in found.levers if one.lever == "GPUs")
    assert (gpus.less.seconds, gpus.elasticity) == (None, None)
    assert gpus.more.seconds < found.iteration_seconds
