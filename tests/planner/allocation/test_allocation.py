"""Dividing a cluster among jobs: read strictly, best by brute force, proved at size, and explained."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from planner import PlanRequest, plan
from planner.allocation import curves
from planner.allocation.allocate import COSTS, allocate
from planner.allocation.curves import best_point, placements
from planner.allocation.document import in_words
from planner.allocation.options import Option, options_of
from planner.allocation.queue import queue_of
from planner.cli import main
from planner.errors import BadRequest, OutOfTime
from planner.request.budget import Budget
from tests.each import each

MIXED = {
    "name": "two",
    "groups": [
        {"name": name, "accelerator": device, "gpus_per_node": 8, "nodes": nodes, "network": {"bandwidth": "400 Gb/s"}}
        for name, device, nodes in (("old", "a100-sxm-80gb", 2), ("new", "h100-sxm", 4))
    ],
}
SMALL = {"model": "gpt3-125m", "global_batch_size": 64, "tokens": "10B"}
LARGER = {"model": "gpt3-1.3b", "global_batch_size": 64, "tokens": "10B"}


def queue(*jobs, **more):
    named = [{"name": f"j{place}", **job} for place, job in enumerate(jobs)]
    return {"cluster": MIXED, **more, "jobs": named}


def test_a_placement_s_strategy_is_the_one_that_a_plan_takes_of_what_is_tied():
    asked = PlanRequest(model="39.1b", gpus=16, global_batch_size=512, top=0, reasons=False, memory_margin=0)
    asked = asked.model_copy(update={"framework": "any"})
    taken, quickest = plan(asked), plan(asked.model_copy(update={"ties": "fastest"}))
    assert taken.strategy != quickest.strategy
    assert best_point(asked, Budget()).strategy == taken.strategy


@pytest.fixture(scope="module")
def divided():
    asked = queue(
        SMALL | {"priority": 2.0},
        LARGER | {"gpus": [8, 16], "deadline": "30 d"},
        SMALL | {"running": {"group": "old", "gpus": 16}, "migration": "1 h"},
    )
    return {goal: allocate(queue_of(asked | {"objective": goal})) for goal in GOALS}


GOALS = ("throughput", "weighted-finish", "cost", "fairness")


@pytest.mark.parametrize("goal", GOALS)
def test_a_division_is_proved_and_within_the_groups(divided, goal):
    found = divided[goal]
    assert found.status == "optimal"
    assert found.gap == 0
    for group in found.groups:
        mine = [job.placed for job in found.jobs if job.placed and job.placed.group == group.name]
        assert sum(at.gpus for at in mine) == group.used <= group.gpus
        assert all(at.gpus == at.nodes * 8 for at in mine)
    assert json.loads(found.to_json())["schema"] == "allocation/1"


def test_a_job_may_name_one_count():
    assert queue_of(queue(SMALL | {"gpus": 8})).jobs[0].gpus == (8,)


def test_a_job_that_waits_costs_what_its_cheapest_place_will():
    points = [None, *(SimpleNamespace(dollars=dollars, seconds=10.0) for dollars in (5.0, 3.0))]
    assert COSTS["cost"](None, [Option(point, 0.0, 1.0, late=False) for point in points], 1.0) == [3.0, 5.0, 3.0]


def test_fairness_weighs_the_logarithm_of_a_share_and_who_waits_as_who_is_slowest():
    job, points = SimpleNamespace(priority=3.0), [None, *(SimpleNamespace(flops=flops) for flops in (1.0, 4.0))]
    shares = COSTS["fairness"](job, [Option(point, 0.0, 1.0, late=False) for point in points], 1.0)
    assert shares == pytest.approx([3 * np.log(4), 3 * np.log(4), 0.0])


def test_what_fairness_has_found_is_told_in_words_alone():
    told = []
    asked = queue_of(queue(SMALL | {"gpus": [8]}, SMALL | {"gpus": [8]}, objective="fairness"))
    allocate(asked, progress=told.append)
    said = {(each.best, each.bound) for each in told if each.so_far}
    assert said == {(None, None)}


def test_the_objectives_want_different_things(divided):
    def sums(name):
        values = {}
        for goal, found in divided.items():
            placed = [(job, job.placed) for job in found.jobs if job.placed]
            values[goal] = {
                "throughput": sum(job.priority * at.model_flops_per_second for job, at in placed),
                "cost": sum(at.cost_dollars for _, at in placed) if len(placed) == len(found.jobs) else np.inf,
            }[name]
        return values

    flops, dollars = sums("throughput"), sums("cost")
    assert flops["throughput"] == max(flops.values())
    assert dollars["cost"] == min(dollars.values())
    assert flops["cost"] < flops["throughput"]


def test_the_value_is_what_the_placements_add_up_to(divided):
    found = divided["weighted-finish"]
    assert all(job.placed for job in found.jobs)
    total = sum(job.priority * job.placed.finish_seconds for job in found.jobs)
    assert found.value == pytest.approx(total)


WEIGHED = {
    "throughput": ("the fastest", " of its pace "),
    "weighted-finish": ("the soonest done", "done in "),
    "cost": ("the cheapest", "costs $"),
    "fairness": ("the fastest", " of its pace "),
}


@pytest.mark.parametrize("goal", GOALS)
def test_a_placement_is_reasoned_by_what_the_objective_weighs(divided, goal):
    best, less = WEIGHED[goal]
    for job in divided[goal].jobs:
        assert job.because.startswith(f"{best} of its placements") != (
            less in job.because and ", of which" in job.because
        )


def test_a_job_that_waits_where_too_little_is_left_says_how_much_that_is():
    waits = allocate(queue_of(_rivals(None))).jobs[1]
    assert waits.because == "waits: it needs 32 GPUs at least, the others leave 0 new"


def test_whoever_could_be_faster_is_told_what_that_would_take(divided):
    for found in divided.values():
        for job in found.jobs:
            fastest = max(point.tokens_per_second for point in job.curve)
            assert job.because
            assert bool(job.with_more) == (job.placed is None or job.placed.tokens_per_second < fastest)


def test_a_running_job_stays_where_moving_costs_more_than_it_brings():
    running = LARGER | {"running": {"group": "old", "gpus": 16}}
    stays = allocate(queue_of(queue(running | {"migration": "30 d"}))).jobs[0]
    moves = allocate(queue_of(queue(running | {"migration": "1 min"}))).jobs[0]
    assert (stays.change, stays.move_seconds) == ("stays", 0.0)
    assert (moves.change, moves.move_seconds, moves.placed.group) == ("moves", 60.0, "new")
    assert "moving loses 60 s" in moves.because


def test_the_cost_of_a_job_that_moves_has_the_rent_of_its_move():
    must = LARGER | {"running": {"group": "old", "gpus": 16}, "groups": ["new"]}
    found = [allocate(queue_of(queue(must | {"migration": time}, objective="cost"))) for time in ("1 h", "3 h")]
    one, three = (each.jobs[0].placed for each in found)
    assert one.strategy == three.strategy
    rent = one.cost_dollars / one.finish_seconds
    assert three.cost_dollars - one.cost_dollars == pytest.approx(7200 * rent)
    assert [each.value for each in found] == pytest.approx([one.cost_dollars, three.cost_dollars])


def test_pins_that_few_gpus_cannot_make_up_leave_the_other_placements():
    found = allocate(queue_of(queue(SMALL | {"pins": {"pp": 4, "tp": 4}})))
    assert found.jobs[0].placed.strategy.pp == 4
    assert {point.gpus for point in found.jobs[0].curve} == {16, 32}
    with pytest.raises(BadRequest, match=r"^job j1: tp 3 does not divide 32 GPUs; 2 and 4 do"):
        allocate(queue_of(queue(SMALL, SMALL | {"pins": {"tp": 3}})))


def test_gpus_that_leave_a_node_group_out_are_said():
    found = allocate(queue_of(queue(SMALL, gpus=16)))
    assert found.assumed[0] == "the fastest 16 of 48 GPUs in whole nodes: 16 new"
    assert not allocate(queue_of(queue(SMALL, gpus=48))).assumed[0].startswith("the fastest")
    assert not queue_of(queue(SMALL, cluster="dgx-h100", gpus=16)).taken


@pytest.mark.parametrize("limit", ["60", "60s", "1 min"])
def test_a_time_limit_is_read_as_a_plan_reads_it(tmp_path, limit):
    path = tmp_path / "queue.json"
    path.write_text(json.dumps(queue(SMALL | {"gpus": [8]})))
    assert CliRunner().invoke(main, ["allocate", str(path), "--time-limit", limit]).exit_code == 0
    wrong = CliRunner().invoke(main, ["allocate", str(path), "--time-limit", "soon"])
    assert (wrong.exit_code, "--time-limit" in wrong.stderr, str(path) in wrong.stderr) == (2, True, False)


def test_a_deadline_outweighs_every_priority():
    lazy = allocate(queue_of(_rivals(None)))
    assert lazy.jobs[1].placed is None
    urgent = allocate(queue_of(_rivals("3 d")))
    assert urgent.jobs[1].placed is not None
    assert not urgent.jobs[1].late
    assert "meets its deadline" in urgent.jobs[1].because


def _rivals(deadline):
    """Two jobs that want the same only placement."""
    only = {"gpus": [32], "groups": ["new"]}
    second = LARGER | only | ({"deadline": deadline} if deadline else {})
    return queue(SMALL | only | {"priority": 100.0}, second, period="10 d")


def test_jobs_that_may_not_wait_and_do_not_fit_are_infeasible():
    only = {"gpus": [32], "groups": ["new"], "may_wait": False}
    found = allocate(queue_of(queue(SMALL | only, LARGER | only)))
    assert found.status == "infeasible"
    needed = (
        "jobs that may not wait need at least 32 new for j0 + 32 new for j1, of 16 old + 32 new GPUs in whole nodes"
    )
    assert found.statement == f"{needed}; nearest that works: j1 waits"


def test_jobs_that_may_wait_are_not_named_where_the_others_do_not_fit():
    firm = LARGER | {"gpus": [32], "groups": ["new"], "may_wait": False}
    found = allocate(queue_of(queue(firm, SMALL | {"gpus": [8]}, firm)))
    assert "at least 32 new for j0 + 32 new for j2, of " in found.statement


def test_the_job_that_is_said_to_wait_is_one_without_which_the_others_fit():
    firm = LARGER | {"gpus": [32], "groups": ["new"], "may_wait": False}
    aside = LARGER | {"gpus": [16], "groups": ["old"], "may_wait": False, "priority": 0.5}
    found = allocate(queue_of(queue(firm, firm, aside)))
    assert found.statement.endswith("; nearest that works: j1 waits")


def test_a_job_that_may_not_wait_and_fits_nowhere_is_told_what_is_short_and_how_many_devices_would_do():
    huge = {"model": "175b", "groups": ["new"], "may_wait": False, "pins": {"offload": "none", "tp": 8, "cp": 1}}
    found = allocate(queue_of(queue(huge)))
    assert found.status == "infeasible"
    short, near = found.statement.split("; nearest that works: ")
    assert re.search(
        r"^j0 .* none of its 3 placements: on 32 new the nearest .* needs [\d.]+ GiB per GPU, [\d.]+ GiB av",
        short,
    )
    enough = MIXED["groups"][1] | {"nodes": int(near.removesuffix(" GPUs")) // 8}
    assert allocate(queue_of(queue(huge, cluster=MIXED | {"groups": [enough]}))).jobs[0].placed


def test_placements_that_were_not_priced_in_time_prove_nothing(monkeypatch):
    in_time = iter([True, False])
    real = curves.best_point
    monkeypatch.setattr(curves, "best_point", lambda asked, budget: real(asked, budget) if next(in_time) else None)
    stuck = LARGER | {"gpus": [32], "groups": ["new"], "may_wait": False}
    with pytest.raises(OutOfTime, match="1 placement not priced within the effort of one search"):
        allocate(queue_of(queue(SMALL | {"gpus": [8], "groups": ["new"]}, stuck)))


def test_without_time_there_is_no_division():
    with pytest.raises(OutOfTime, match="no placement within"):
        allocate(queue_of(queue(SMALL)).model_copy(update={"time_limit": 1e-9}))


def test_placements_are_whole_nodes():
    asked = queue_of(queue(SMALL, SMALL | {"gpus": [8, 12, 32]}, SMALL | {"min_gpus": 16, "groups": ["new"]}))
    counts = [[(at.group, at.gpus) for at in placements(job, asked.cluster)] for job in asked.jobs]
    assert counts[0] == [("old", 8), ("old", 16), ("new", 8), ("new", 16), ("new", 32)]
    assert counts[1] == [("old", 8), ("new", 8), ("new", 32)]
    assert counts[2] == [("new", 16), ("new", 32)]


def test_a_node_of_one_device_is_a_placement():
    single = {"groups": [MIXED["groups"][1] | {"gpus_per_node": 1, "nodes": 2}]}
    asked = queue_of(queue(SMALL, cluster=MIXED | single))
    assert [at.gpus for at in placements(asked.jobs[0], asked.cluster)] == [1, 2]


def test_waiting_comes_after_the_period():
    assert options_of(queue_of(queue(SMALL)), ((),)) == [[Option(None, 0.0, float("inf"), late=False)]]


def test_a_job_takes_the_words_of_the_command_line():
    words = {"model": "gpt3-1.3b", "global-batch": 64, "seq_len": 1024, "lora": "16"}
    own = {"model": "gpt3-1.3b", "global_batch_size": 64, "seq_length": 1024, "adapters": "16"}
    pinned = ({"pins": {"micro_batch": 1, "zero": 1}}, {"pins": {"micro_batch_size": 1, "zero_stage": 1}})
    assert queue_of(queue(words | pinned[0])) == queue_of(queue(own | pinned[1]))


WRONG = [
    ({"clusters": "dgx-h100", "jobs": []}, "there is no field 'clusters'; did you mean cluster?"),
    ({"jobs": []}, "cluster: required, but missing"),
    ({"cluster": "dgx-h100", "jobs": [{"name": "a"}]}, "gpus: dgx-h100 leaves the number of nodes open"),
    ({"cluster": "dgx-h10", "gpus": 8}, "cluster: unknown cluster 'dgx-h10': did you mean dgx-h100"),
    ({"cluster": "dgx-h100", "gpus": 12}, "12 GPUs do not fill nodes of 8"),
    ({"cluster": "dgx-h100", "gpus": "8"}, "gpus: expected a whole number such as 64"),
    ({"cluster": "dgx-h100", "gpus": 2**30}, "gpus: expected 1 to 16777216, got 1073741824"),
    ({"cluster": MIXED}, "jobs: expected at least one"),
    (queue(), "jobs: expected at least one"),
    (queue({}), "job j0: model is missing"),
    (queue(SMALL | {"prioritty": 1}), "job j0: there is no field 'prioritty'; did you mean priority?"),
    (queue(SMALL | {"tp": 8}), "job j0: there is no field 'tp'; it belongs under [jobs.pins]: tp = ..."),
    (queue(SMALL | {"zero": 1}), "job j0: there is no field 'zero'; it belongs under [jobs.pins]: zero_stage = ..."),
    (queue(SMALL | {"top": 3}), "job j0: there is no field 'top'"),
    (queue(SMALL | {"time_limit": "9 s"}), "job j0: there is no field 'time_limit'; it belongs to the whole queue"),
    (
        queue(SMALL | {"global_batch": 8, "global_batch_size": 8}),
        "job j0: global_batch_size and global_batch are the same option",
    ),
    (queue(SMALL | {"priority": 0}), "job j0: priority: expected more than 0, got 0"),
    (queue(SMALL | {"deadline": 3}), "deadline: expected a time"),
    (queue(SMALL | {"deadline": "3 GB"}), "deadline"),
    (
        queue(SMALL | {"gpus": [12]}),
        "12 GPUs are no whole nodes of what there is: 16 old in nodes of 8, 32 new in nodes of 8; 8 and 16 do",
    ),
    (queue(SMALL | {"gpus": [64]}), "64 GPUs are no whole nodes of what there is: 16 old in nodes of 8"),
    (queue(SMALL | {"groups": ["nwe"]}), "the cluster has no group 'nwe'; did you mean new?"),
    (queue(SMALL | {"min_gpus": 16, "max_gpus": 8}), "min_gpus 16 exceeds max_gpus 8"),
    (queue(SMALL | {"gpus": [8], "min_gpus": 16}), "job j0: gpus 8: none is within min_gpus 16"),
    (queue(SMALL | {"migration": "1 h"}), "say where it runs"),
    (queue(SMALL | {"priority": "2"}), "job j0: priority: expected a number, got '2'"),
    (queue(SMALL | {"tokens": "many"}), "job j0: tokens"),
    (queue(SMALL | {"tokens": "1.5"}), "job j0: tokens: expected a whole number such as 300B, got '1.5'"),
    (queue(SMALL | {"tokens": 1.5}), "job j0: tokens: expected a whole number such as 300B, got 1.5"),
    (queue(SMALL | {"name": "x"}, SMALL | {"name": "x"}), "job x: two jobs have this name"),
    (queue(SMALL | {"model": "gpt3-125"}), "job j0: unknown model 'gpt3-125': did you mean gpt3-125m"),
    (queue(SMALL | {"pins": {"tpp": 2}}), "job j0: pins: cannot pin 'tpp'"),
    (queue(SMALL, objective="speed"), "objective: expected 'throughput', 'weighted-finish'"),
]


@each(("document", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_is_wrong_with_a_queue_is_said_in_one_line(document, said):
    with pytest.raises(BadRequest) as caught:
        allocate(queue_of(document))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_command_answers_and_ends_as_documented(tmp_path):
    path = tmp_path / "queue.json"
    path.write_text(json.dumps(queue(SMALL | {"gpus": [8]})))
    done = CliRunner().invoke(main, ["allocate", str(path), "--format", "json", "--objective", "fairness"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["objective"] == "fairness"
    table = CliRunner().invoke(main, ["allocate", str(path)])
    assert "the fastest of its placements" in table.stdout
    path.write_text(
        json.dumps(queue({"model": "175b", "may_wait": False, "pins": {"offload": "none", "tp": 8, "cp": 1}}))
    )
    refused = CliRunner().invoke(main, ["allocate", str(path)])
    assert refused.exit_code == 3
    assert refused.stderr.startswith(
        "plan: infeasible: j0 may not wait and fits on none of its 5 placements: on 32 new"
    )
    assert refused.stderr.count("\n") == 1
    path.write_text(json.dumps(queue(SMALL, period=1)))
    wrong = CliRunner().invoke(main, ["allocate", str(path)])
    assert wrong.exit_code == 2
    assert wrong.stderr.count("\n") == 1
    assert CliRunner().invoke(main, ["allocate", str(tmp_path / "none.toml")]).exit_code == 2


def test_a_job_that_ends_within_a_day_has_its_finish_in_shorter_units(tmp_path):
    path = tmp_path / "queue.json"
    path.write_text(json.dumps(queue({**SMALL, "tokens": "100M", "gpus": [8]})))
    row = next(
        line for line in CliRunner().invoke(main, ["allocate", str(path)]).stdout.splitlines() if "  j0 " in line
    )
    assert re.search(r" \d+\.\d+ (seconds|minutes) ", row)


def test_the_value_of_a_division_is_said_with_what_it_counts_and_never_as_minus_nothing():
    for goal, value, said in (
        ("throughput", 4.4789e16, "44.8 PFLOP/s, each job's times its priority"),
        ("throughput", 3.2e14, "320.0 TFLOP/s, each job's times its priority"),
        ("weighted-finish", 864e4, "100.0 days until jobs are done, each job's times its priority"),
        ("fairness", -1e-4, "0.000, the logarithms of jobs' shares of their best pace, each times its priority"),
    ):
        assert in_words(goal, value) == said
