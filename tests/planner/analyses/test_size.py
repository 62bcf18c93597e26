"""`plan size`: the smallest, the cheapest, the fastest cluster within a deadline and a budget."""

import json
import re
from io import StringIO
from itertools import count

import pytest
from click.testing import CliRunner
from rich.console import Console

import planner.analyses.size as sizing
import planner.request.budget as budgets
from hardware.catalogue import cluster
from planner.analyses.size import size
from planner.analyses.size_search import Option, Size, within_limits
from planner.api import plan
from planner.cli import main
from planner.errors import BadRequest, OutOfTime
from planner.render.terminal.size import print_size
from planner.request.request import PlanRequest
from planner.trust.interval import probability_within

ASK = PlanRequest(model="llama3-8b", gpus=256, tokens=200_000_000_000, ties="fastest")


def run(*arguments):
    return CliRunner().invoke(main, ["size", *arguments], env={"COLUMNS": "100", "NO_COLOR": "1"})


@pytest.fixture(scope="module")
def met():
    return size(ASK, days=6.0)


def test_no_smaller_size_meets_the_deadline_and_the_answer_does(met):
    answer = met.answer
    assert (met.status, met.proved, answer) == ("met", True, met.smallest)
    assert answer.days <= 6.0
    for nodes in range(1, answer.nodes):
        slower = plan(ASK.model_copy(update={"gpus": 8 * nodes, "top": 0, "reasons": False}))
        assert slower.prediction is None or slower.prediction.training_days > 6.0


def test_what_is_smaller_than_the_least_size_is_no_whole_node_or_needs_more_than_the_peak(met):
    small = size(ASK.model_copy(update={"gpus": 64, "tokens": 20_000_000_000}), days=6.0)
    assert small.answer.gpus == 8
    assert small.statement == "clusters come in whole nodes of 8 GPUs"
    assert met.statement.endswith("16 GPUs would need more than 100 % MFU, and clusters come in whole nodes of 8 GPUs")
    assert met.answer.mfu * met.answer.gpus * met.answer.days / 6.0 > 16  # GPUs at their peak that it takes


def test_an_option_is_what_plan_says_of_that_size(met):
    said = plan(ASK.model_copy(update={"gpus": met.answer.gpus, "reasons": False}))
    assert met.answer.days == said.prediction.training_days
    assert met.answer.cost_dollars == said.prediction.cost_dollars
    assert met.answer.strategy == said.strategy


def test_the_table_tells_wall_time_from_training_that_runs_undisturbed(met):
    ask = ("--model", "llama3-8b", "--tokens", "200B", "--deadline", "6d", "--gpus", "64")
    table = run(*ask, "--stability", "failure=1 per 500 h").stdout
    option = json.loads(run(*ask, "--goodput", "--format", "json").stdout)["answer"]
    heads = ("wall time", "spares", "goodput")
    assert [name for name in heads if name not in table] == []
    assert " days of wall time, $" in table
    said = plan(ASK.model_copy(update={"gpus": option["gpus"], "objective": "goodput", "reasons": False})).goodput
    assert (option["effective"], option["spare_nodes"]) == (said.effective, said.spare_nodes)
    assert option["cost_dollars"] == said.wall_cost_dollars > met.answer.cost_dollars
    plain = run(*ask).stdout
    assert [name for name in heads if name in plain] == []


def test_the_answer_says_how_surely_it_is_in_time_and_fits_and_which_size_is_surer(met):
    said = plan(ASK.model_copy(update={"gpus": met.answer.gpus, "reasons": False})).prediction
    answer, surer = met.answer, met.surer
    assert answer.deadline_probability == probability_within(said, 6.0 / said.training_days)
    assert 0.5 < answer.deadline_probability < 0.8 <= surer.deadline_probability
    assert (answer.fit_probability, answer.budget_probability) == (said.fit_probability, None)
    assert surer.nodes == answer.nodes + 1
    screen = " ".join(run("-m", "llama3-8b", "-g", "256", "--tokens", "200B", "--deadline", "6d").stdout.split())
    with_it = f"40 GPUs meet the deadline with a probability of {answer.deadline_probability:.0%}; 48 GPUs with"
    assert with_it in screen
    assert f"Memory fits with {answer.fit_probability:.0%}." in screen


def test_both_limits_are_met_where_the_tighter_is_and_a_sure_size_names_no_other(met):
    both = size(ASK, days=6.0, dollars=1.02 * met.answer.cost_dollars).answer
    assert within_limits(both) == both.budget_probability < both.deadline_probability
    assert size(ASK, days=9.0).surer is None


def test_neighbours_and_days_stand_with_the_answer(met):
    assert {option.nodes - met.answer.nodes for option in met.neighbours} == {-1, 1}
    assert met.day_sooner.option.days <= 5.0
    assert met.day_sooner.option.nodes > met.answer.nodes
    extra = met.day_sooner.option.cost_dollars - met.answer.cost_dollars
    assert met.day_sooner.extra_dollars == pytest.approx(extra)
    assert met.cheapest.cost_dollars <= met.answer.cost_dollars
    assert met.fastest.days <= met.answer.days


def test_a_day_more_is_told_where_it_takes_fewer_nodes_and_not_where_it_takes_as_many(met):
    assert met.day_later is None
    fewer = plan(ASK.model_copy(update={"gpus": met.answer.gpus - 8, "top": 0, "reasons": False})).prediction
    late = size(ASK, days=fewer.training_days - 0.5)
    assert late.answer.nodes == met.answer.nodes
    assert late.day_later.option.nodes == met.answer.nodes - 1
    assert late.day_later.option.days == fewer.training_days


def test_what_a_day_less_costs_beyond_the_budget_is_said(met):
    sooner = met.day_sooner
    budget = (met.answer.cost_dollars + sooner.option.cost_dollars) / 2
    assert met.answer.cost_dollars < budget < sooner.option.cost_dollars
    tight = size(ASK, days=6.0, dollars=budget)
    assert tight.answer.nodes == met.answer.nodes
    assert tight.day_sooner.over_dollars == pytest.approx(tight.day_sooner.option.cost_dollars - budget)
    assert tight.day_sooner.over_dollars > 0
    rich = size(ASK, days=6.0, dollars=2 * budget).day_sooner
    assert (rich.option.gpus, rich.extra_dollars, rich.over_dollars) == (sooner.option.gpus, sooner.extra_dollars, None)
    ask = ("--model", "llama3-8b", "--tokens", "200B", "--deadline", "6d", "--budget", f"{budget}", "--ties", "fastest")
    assert "beyond the budget" in run(*ask, "--gpus", "256").stdout


def test_a_day_less_is_told_of_what_the_budget_pays_where_it_pays_anything(monkeypatch):
    known = {1: (9.0, 5.0), 2: (6.0, 6.0), 3: (4.5, 8.0), 4: (4.2, 8.0), 5: (4.0, 6.5), 6: (3.5, 8.0)}
    fakes = {nodes: option(nodes, *figures) for nodes, figures in known.items()}
    monkeypatch.setattr(sizing.Sizes, "_asked", lambda _, nodes: fakes.get(nodes))
    few = ASK.model_copy(update={"gpus": 64, "tokens": 10**9})
    found = size(few, days=6.0, dollars=7.0)
    assert (found.answer.nodes, found.day_sooner.option.nodes, found.day_sooner.over_dollars) == (2, 5, None)
    poorer = size(few, days=6.0, dollars=6.2)
    assert (poorer.day_sooner.option.nodes, poorer.day_sooner.over_dollars) == (3, pytest.approx(1.8))


def option(nodes, days, cost=1.0):
    strategy = plan(PlanRequest(model="llama3-8b", gpus=8, reasons=False)).strategy if not STRATEGY else STRATEGY[0]
    STRATEGY[:] = [strategy]
    figures = {"mfu": 0.5, "iteration_seconds": 1.0, "global_batch_size": 8, "strategy": strategy, "proved": True}
    return Option(gpus=8 * nodes, nodes=nodes, days=days, cost_dollars=cost, **figures)


STRATEGY = []


def test_a_smaller_size_that_beats_a_larger_one_is_found(monkeypatch):
    days = {nodes: 100.0 / nodes for nodes in range(1, 33)} | {9: 3.0}  # nine nodes do what others need 20 for
    monkeypatch.setattr(sizing.Sizes, "_asked", lambda _self, nodes: option(nodes, days[nodes]))
    found = size(ASK, days=5.0)
    assert found.smallest.nodes == 9
    assert found.proved


def test_what_was_not_searched_is_not_proved(monkeypatch):
    clock = count()
    monkeypatch.setattr(budgets.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(sizing.Sizes, "_asked", lambda _self, nodes: option(nodes, 100.0 / nodes))
    found = size(ASK, days=5.0, limit=14.0)
    assert not found.proved
    assert "smaller sizes were not searched" in found.statement
    with pytest.raises(OutOfTime, match="time-limit"):
        size(ASK, days=5.0, limit=2.0)


def test_a_budget_alone_is_answered_by_the_fastest_within_it(monkeypatch):
    asked = lambda _self, nodes: option(nodes, 100.0 / nodes, 1000.0 + 10 * nodes)  # noqa: E731
    monkeypatch.setattr(sizing.Sizes, "_asked", asked)
    found = size(ASK, dollars=1200.0)
    assert (found.answer.nodes, found.smallest.nodes, found.cheapest.nodes) == (20, 1, 1)


def test_a_neighbour_that_turns_out_faster_is_the_answer_to_a_budget_and_counted_as_searched(monkeypatch):
    days = {nodes: 100.0 / nodes for nodes in range(1, 33)} | {31: 3.0}  # 31 nodes divide the model, 32 do not
    monkeypatch.setattr(sizing.Sizes, "_asked", lambda _self, nodes: option(nodes, days[nodes]))
    found = size(ASK, dollars=1200.0)
    assert found.answer.nodes == found.fastest.nodes == 31
    assert [one.nodes for one in found.neighbours] == [30, 32]
    assert f"the fastest of {found.searched} sizes" in found.statement


def test_a_neighbour_that_meets_the_deadline_after_the_time_is_up_is_the_answer(monkeypatch):
    clock = count()
    monkeypatch.setattr(budgets.time, "perf_counter", lambda: float(next(clock)))
    days = {nodes: 100.0 / nodes for nodes in range(1, 33)} | {19: 4.9}
    monkeypatch.setattr(sizing.Sizes, "_asked", lambda _self, nodes: option(nodes, days[nodes]))
    monkeypatch.setattr(sizing.Sizes, "effort_spent", lambda self: {19, 20} & set(self.known) != set())
    found = size(ASK, days=5.0)
    assert found.answer.nodes == found.smallest.nodes == 19


@pytest.mark.parametrize("limits", [{"dollars": 999.0}, {"days": 3.05}, {"days": 20.0, "dollars": 999.0}])
def test_a_size_between_those_that_nearly_meet_the_limits_is_found(monkeypatch, limits):
    figures = {nodes: (100.0 / nodes, 1000.0 + nodes) for nodes in range(1, 33)} | {31: (3.0, 990.0)}
    monkeypatch.setattr(sizing.Sizes, "_asked", lambda _self, nodes: option(nodes, *figures[nodes]))
    assert size(ASK, **limits).answer.nodes == 31


def test_what_was_not_searched_is_not_said_to_miss_the_limits(monkeypatch):
    monkeypatch.setattr(sizing.Sizes, "_asked", lambda _self, nodes: option(nodes, 100.0 / nodes, 1000.0))
    found = size(ASK, dollars=800.0)
    assert found.statement == "none meets the limits of 10 sizes searched, up to 256 GPUs; 22 were not searched"
    every = size(ASK, dollars=950.0)
    assert every.statement == "no size of up to 256 GPUs meets the limits (searched: 32 of 32)"


def test_the_fastest_is_looked_for_among_the_sizes_beyond_the_answer(monkeypatch):
    monkeypatch.setattr(sizing.Sizes, "_asked", lambda _self, nodes: option(nodes, 100.0 / nodes))
    found = size(ASK, days=20.0)
    assert (found.answer.nodes, found.smallest.nodes, found.fastest.nodes) == (5, 5, 32)
    many_more = size(ASK.model_copy(update={"gpus": 65536}), days=20.0)
    assert many_more.fastest.nodes < 8192  # not looked at: far beyond what was asked for


def shown(found):
    console = Console(file=StringIO(), width=160)
    print_size(found, console)
    return console.file.getvalue()


def test_labels_say_that_sizes_were_searched_for_the_fastest(met):
    table = shown(met)
    assert re.search(r"^searched .*GPUs", table, re.MULTILINE)
    assert re.search(r"^(\S+, )*fastest", table, re.MULTILINE)


def test_a_figure_beyond_a_limit_is_not_rounded_to_it(monkeypatch):
    days = {nodes: 100.0 / nodes for nodes in range(1, 33)} | {9: 10.003}
    monkeypatch.setattr(sizing.Sizes, "_asked", lambda _self, nodes: option(nodes, days[nodes]))
    table = shown(size(ASK, days=10.0))
    assert "with a day more (11 days): 72 GPUs, 10.003 days" in table


def test_a_day_that_changes_nothing_says_why(monkeypatch):
    days = {nodes: 100.0 / nodes for nodes in range(1, 9)}
    monkeypatch.setattr(sizing.Sizes, "_asked", lambda _self, nodes: option(nodes, days[nodes]) if nodes < 9 else None)
    few = ASK.model_copy(update={"gpus": 64, "tokens": 10**9})
    table = shown(size(few, days=13.0))
    assert "with a day less (12 days): none that was searched is fast enough; a larger --gpus may be" in table
    days[4] = 18.0
    table = shown(size(few, days=20.0))
    assert "with a day less (19 days): the same 32 GPUs" in table
    assert "with a day more (21 days): no smaller cluster was found" in table
    days[8] = 0.9
    assert "a day less would leave no time" in shown(size(few, days=1.0))


def test_what_a_plan_warns_of_is_said_of_a_size_that_is_recommended():
    ask = PlanRequest(model="llama3-70b", gpus=128, tokens=2 * 10**9, global_batch_size=512, reasons=False)
    ask = ask.model_copy(update={"memory_margin": 0.0, "framework": "any", "stack": "torchtitan"})
    found = size(ask, days=2.0)
    said = plan(ask.model_copy(update={"gpus": found.answer.gpus}))
    (lack,), (named,) = (
        [line for line in of if "cannot start" in line] for of in (found.answer.careful, said.warnings)
    )
    assert named.startswith(lack.split("; --for")[0])  # a plan names one that starts too
    assert set(found.answer.careful) - {lack} == set(said.warnings) - {named}
    assert "of the usable memory" in said.warnings[0]
    assert f"warning: on {found.answer.gpus} GPUs stage " in shown(found)


def test_batches_that_differ_between_sizes_are_said_to(monkeypatch):
    asked = lambda _self, nodes: option(nodes, 100.0 / nodes).model_copy(update={"global_batch_size": 8 * nodes})  # noqa: E731
    monkeypatch.setattr(sizing.Sizes, "_asked", asked)
    found = size(ASK, days=5.0)
    assert "batches differ between sizes" in shown(found)
    assert any("rounded up to a power of two times the GPUs" in line for line in found.defaults)


def test_both_limits_hold_together(monkeypatch):
    asked = lambda _self, nodes: option(nodes, 100.0 / nodes, 1000.0 + 10 * nodes)  # noqa: E731
    monkeypatch.setattr(sizing.Sizes, "_asked", asked)
    found = size(ASK, days=10.0, dollars=1200.0)
    assert (found.smallest.nodes, found.fastest.nodes) == (10, 20)
    missed = size(ASK, days=4.0, dollars=1200.0)
    assert (missed.status, missed.nearest.nodes >= 25, missed.answer) == ("infeasible", True, None)


@pytest.mark.parametrize(
    ("request_", "limits", "reason"),
    [
        (ASK, {}, "needs a deadline"),
        (ASK.model_copy(update={"cluster": "a100-h100-mixed"}), {"days": 3.0}, "one kind"),
        (ASK.model_copy(update={"gpus": 8, "pins": {"tp": "3"}}), {"days": 30.0}, "nothing fits"),
        (ASK.model_copy(update={"gpus": 7}), {"days": 30.0}, "a node has 8 GPUs, more than --gpus 7"),
    ],
)
def test_what_cannot_be_sized_says_why(request_, limits, reason):
    with pytest.raises(BadRequest, match=reason):
        size(request_, **limits)


def test_a_budget_needs_a_price():
    dgx = cluster("dgx-h100")
    group = dgx.groups[0]
    free = group.model_copy(update={"price": None, "accelerator": group.accelerator.model_copy(update={"price": None})})
    unpriced = dgx.model_copy(update={"groups": (free,)})
    with pytest.raises(BadRequest, match="has none"):
        size(ASK.model_copy(update={"cluster": unpriced}), dollars=1e6)
    assert size(ASK.model_copy(update={"cluster": unpriced}), days=20.0).cheapest is None


def test_the_command_answers_in_words_and_in_json(met):
    done = run("--model", "llama3-8b", "--tokens", "200B", "--deadline", "6d", "--gpus", "256", "--ties", "fastest")
    assert done.exit_code == 0, done.output
    assert f"{met.answer.gpus} GPUs ({met.answer.nodes} nodes)" in done.stdout
    assert "with a day less (5 days)" in done.stdout
    done = run("--model", "llama3-8b", "--tokens", "200B", "--deadline", "144h", "--gpus", "256", "--format", "json")
    answer = Size.model_validate(json.loads(done.stdout))
    assert (answer.schema_, answer.answer.gpus) == ("size/1", met.answer.gpus)


def test_what_nothing_meets_ends_with_3_and_the_nearest():
    done = run("--model", "llama3-8b", "--tokens", "200B", "--deadline", "1", "--gpus", "64")
    assert done.exit_code == 3
    assert "nearest: 64 GPUs" in done.stderr


@pytest.mark.parametrize(
    "limit", [["--deadline", "soon"], ["--budget", "much"], ["--deadline", "0d"], ["--budget", "\u0663"]]
)
def test_limits_that_are_none_are_refused_in_one_line(limit):
    done = run("--model", "llama3-8b", *limit)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert limit[0] in done.stderr


def test_more_nodes_that_break_more_often_do_not_hide_the_size_that_meets_a_deadline():
    breaks = {"model": "llama3-8b", "gpus": 256, "tokens": 2 * 10**12, "objective": "goodput"}
    request = PlanRequest(**breaks, stability={"spare_nodes": 0, "repair": "30d"})
    found = size(request, days=68.5)
    assert found.status == "met"
    assert found.answer.gpus == 88
    assert any("interruptions" in line for line in found.defaults)
    assert min(option.days for option in found.neighbours) > 68.5
