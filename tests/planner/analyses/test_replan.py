"""Planning anew when nodes fail or join: what moves, by hand and by counting devices, and what is nearest."""

import json
import math
import time

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.model.parameters import parameters
from costmodels.names import SCHEDULE_NAMES
from costmodels.pricing import row_assignment
from costmodels.stability import Stability
from costmodels.stack.optimizers import kept_bytes
from costmodels.strategy import strategies
from costmodels.training.moving import Layout, held, kept_share, move, overlaps
from hardware.units import format_quantity
from planner import PlanRequest, plan
from planner.analyses.replan import replan
from planner.cli import main
from planner.errors import BadRequest
from planner.request.resolve import resolve
from planner.search.objective import Objective
from planner.space.divisors import good_counts
from planner.space.table import Table

MODEL = "gpt3-1.3b"
LAYERS = 24


def layout(tp=1, pp=1, dp=1, *, vpp=1, schedule="1f1b", zero=1, sharding=None):
    row = strategies(
        tp=tp,
        pp=pp,
        dp=dp,
        vpp=vpp,
        schedule=SCHEDULE_NAMES.index(schedule),
        zero_stage=zero,
        sharding_degree=(sharding or dp) if zero else 1,
        num_microbatches=8,
    )
    return Layout(row, row_assignment(row, LAYERS))


def scenario(gpus):
    return resolve(PlanRequest(model=MODEL, gpus=gpus, global_batch_size=64)).scenario


def moved(old, new, lost=0):
    gpus = [int(at.row.tp[0] * at.row.pp[0] * at.row.dp[0]) for at in (old, new)]
    return move(old, new, scenario(gpus[0]), scenario(gpus[1]), lost=lost, stability=Stability())


WEIGHTS = 2.0 * parameters(scenario(8).model)
STATES = kept_bytes(scenario(8).stack) * parameters(scenario(8).model)


def test_nothing_moves_where_nothing_changes():
    found = moved(layout(2, 4, 2), layout(2, 4, 2))
    assert (found.weight_bytes, found.state_bytes, found.lost_bytes, found.fabric_seconds) == (0, 0, 0, 0)
    assert found.seconds == found.restart_seconds


def test_a_replica_that_joins_gets_its_weights_and_its_share_of_the_states():
    found = moved(layout(2, 4, 1, zero=0), layout(2, 4, 2, zero=0))
    assert found.weight_bytes == pytest.approx(WEIGHTS)
    assert found.state_bytes == pytest.approx(STATES)
    assert found.lost_bytes == 0


def test_a_move_takes_as_long_as_the_device_that_receives_most_on_the_outermost_network():
    found, tier = moved(layout(2, 4, 1, zero=0), layout(2, 4, 2, zero=0)), scenario(16).group.tiers[-1]
    assert found.most_bytes >= (WEIGHTS + STATES) / 8
    rate = tier.link.bandwidth * tier.link.point_to_point / tier.oversubscription
    assert found.fabric_seconds == pytest.approx(found.most_bytes / rate)


def test_half_the_tensor_ranks_hold_half_of_what_they_need():
    found = moved(layout(tp=8), layout(tp=4, dp=2, zero=0))
    assert found.weight_bytes == pytest.approx(WEIGHTS)  # 8 devices each hold 1/8 and need 1/4


def test_replicas_that_leave_take_their_shards_with_them():
    found = moved(layout(dp=8), layout(dp=6), lost=2)
    assert found.weight_bytes == 0
    assert found.lost_bytes == pytest.approx(STATES / 4)
    assert found.seconds == found.restart_seconds + found.checkpoint_seconds


@pytest.mark.parametrize(("zero", "sharding"), [(0, None), (1, 4)])
def test_a_second_copy_spares_the_checkpoint(zero, sharding):
    found = moved(layout(dp=8, zero=zero, sharding=sharding), layout(dp=4, zero=zero), lost=4)
    assert found.lost_bytes == 0
    assert found.seconds == found.restart_seconds + found.fabric_seconds


def test_every_layer_lies_somewhere_once():
    for at in (layout(pp=4), layout(pp=4, vpp=3, schedule="interleaved-1f1b"), layout(pp=6, vpp=2, schedule="zb-v")):
        assert (held(at).sum(axis=0) == 1).all()
        assert held(at)[:, 1:-1].sum(axis=1).tolist() == at.split.layers.tolist()


def test_chunks_are_dealt_around():
    loop, fold = (held(layout(pp=2, vpp=2, schedule=name)) for name in ("interleaved-1f1b", "zb-v"))
    assert loop[0].nonzero()[0].tolist() == [0, *range(1, 7), *range(13, 19)]
    assert fold[0].nonzero()[0].tolist() == [0, *range(1, 7), *range(19, 25), 25]


@given(st.integers(1, 64), st.integers(1, 64))
def test_shares_are_shares(old, new):
    assert overlaps(old, new).sum() == pytest.approx(1.0)
    assert 0 <= kept_share(old, new) <= 1 + 1e-12
    assert kept_share(old, old) == pytest.approx(1.0)


def devices(at):
    """What each device holds, (devices, units, 64ths of a tensor slice), devices in no particular order."""
    stages, tp, dp = held(at), int(at.row.tp[0]), int(at.row.dp[0])
    slices = np.repeat(np.eye(tp, dtype=bool), 64 // tp, axis=1)
    return np.repeat(np.einsum("su,tx->stux", stages, slices).reshape(-1, stages.shape[1], 64), dp, axis=0)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_weights_that_move_are_those_of_the_best_deal_of_devices(data):
    shapes = [(tp, pp, 8 // (tp * pp)) for tp in (1, 2, 4, 8) for pp in (1, 2, 4) if tp * pp <= 8]
    old, new = (layout(*data.draw(st.sampled_from(shapes)), zero=0) for _ in range(2))
    from scipy.optimize import linear_sum_assignment

    unit = np.zeros(LAYERS + 2)
    unit[1:-1] = 1.0  # the ends are compared in the tests above
    first, second = devices(old), devices(new)
    need = np.einsum("dux,u->d", second, unit)
    common = np.einsum("aux,bux,u->ab", first, second, unit)
    least = need.sum() - common[linear_sum_assignment(-common)].sum()
    found = moved(old, new).weight_bytes / 2.0
    per_layer = (found / least) if least else 1.0
    layer = parameters(scenario(8).model) / LAYERS / 64
    assert (found == 0) == (least == 0)
    if least:
        assert 0.7 * layer < per_layer < 1.35 * layer


def test_good_counts_divide_the_batch_and_fill_nodes():
    counts = good_counts(1016, 1536, 8)
    assert counts == sorted(counts, reverse=True)
    assert all(n % 8 == 0 and 508 <= n < 1016 for n in counts)
    assert 960 in counts


@pytest.fixture(scope="module")
def old():
    return plan(PlanRequest(model="llama2-7b", gpus=64, global_batch_size=192, top=0, reasons=False))


def test_the_fastest_is_what_a_plan_for_its_devices_finds(old):
    found = replan(old, 56)
    again = plan(PlanRequest(model="llama2-7b", gpus=found.fastest.gpus, global_batch_size=192, top=0, reasons=False))
    assert found.fastest.iteration_seconds == pytest.approx(again.prediction.iteration_seconds)
    assert found.fastest.idle_gpus == 56 - found.fastest.gpus
    assert found.status == "optimal"


def test_no_lattice_is_laid_out_once_the_time_limit_has_passed(old, monkeypatch):
    clock, late = [0.0], []
    search, allowed = Objective.search, Table._allowed

    def searched(*given, **named):
        found = search(*given, **named)
        clock[0] = math.inf  # the limit passes while the first number of devices is searched
        return found

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(Objective, "search", searched)
    monkeypatch.setattr(Table, "_allowed", lambda *given: late.extend([1] * (clock[0] > 0.0)) or allowed(*given))
    found = replan(old, 56, time_limit=60.0)
    assert late == []
    assert (found.status, found.counts) == ("feasible", (56,))
    assert "ended before its proof" in found.statement


def test_of_what_is_tied_with_the_fastest_it_takes_what_a_plan_takes():
    """Here they differ by less than a thousandth."""
    asked = {"model": "39.1b", "global_batch_size": 512, "top": 0, "reasons": False, "memory_margin": 0}
    asked |= {"framework": "any"}
    quickest, again = (plan(PlanRequest(gpus=16, ties=ties, **asked)) for ties in ("fastest", "close"))
    found = replan(plan(PlanRequest(gpus=32, **asked)), 16)
    assert again.strategy != quickest.strategy
    assert found.fastest.plan.strategy == again.strategy
    assert found.fastest.iteration_seconds == pytest.approx(again.prediction.iteration_seconds)


@pytest.mark.parametrize("gpus", [56, 96])
def test_the_nearest_moves_least_within_the_tolerance(old, gpus):
    tight, loose = (replan(old, gpus, tolerance=share) for share in (0.0, 0.3))
    for found in (tight, loose):
        assert found.nearest.iteration_seconds <= found.fastest.iteration_seconds * (1 + found.tolerance) * (1 + 1e-9)
        assert found.global_batch_size == 192
        assert found.nearest.plan.strategy.global_batch_size == 192

    def total(choice):
        return choice.moved.weight_bytes + choice.moved.state_bytes

    assert total(loose.nearest) <= total(tight.nearest) <= total(tight.fastest)


def test_the_same_devices_keep_the_plan(old):
    found = replan(old, 64)
    assert found.nearest.moved.only_regroups
    assert found.nearest.moved.weight_bytes == found.nearest.moved.state_bytes == 0
    assert found.nearest.moved.seconds == 0
    assert found.nearest.moved.statement == "nothing changes: the job can go on as it runs"


@pytest.mark.parametrize("gpus", [0, 2**24 + 1])
def test_so_many_devices_as_no_plan_has_are_refused(old, gpus):
    with pytest.raises(BadRequest, match=f"expected 1 to 16777216, got {gpus}"):
        replan(old, gpus)


def test_the_answer_s_own_cluster_stands(old, tmp_path):
    path = tmp_path / "old.json"
    path.write_text(old.to_json())
    ask = ["replan", str(path), "--gpus", "56", "--format", "json"]
    plain = json.loads(CliRunner().invoke(main, ask).stdout)
    by_environment = CliRunner().invoke(main, ask, env={"PLAN_CLUSTER": "dgx-a100-80gb"})
    assert json.loads(by_environment.stdout)["fastest"]["plan"]["request"] == plain["fastest"]["plan"]["request"]
    refused = CliRunner().invoke(main, [*ask, "--cluster", "dgx-v100"])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "the answer names" in refused.stderr


def test_pins_stay_but_those_of_the_number_of_replicas():
    asked = PlanRequest(
        model="llama2-7b", gpus=64, global_batch_size=192, pins={"tp": "2", "dp": "32"}, top=0, reasons=False
    )
    assert replan(plan(asked), 48).fastest.plan.strategy.tp == 2


def test_numbers_that_the_pins_cannot_make_up_are_left_out():
    pinned = plan(PlanRequest(model=MODEL, gpus=32, global_batch_size=64, pins={"tp": 4, "pp": 4}, reasons=False))
    for gpus in (16, 24, 48):  # the second is searched on 16 of its devices alone
        found = replan(pinned, gpus)
        assert found.fastest.plan.strategy.tp * found.fastest.plan.strategy.pp == 16
        assert all(count % 16 == 0 for count in found.counts)
    with pytest.raises(BadRequest, match="does not fit"):
        replan(pinned, 8)


def test_too_few_devices_are_told_with_what_is_short_and_how_many_would_do():
    runs = plan(PlanRequest(model="22b", gpus=64, global_batch_size=64, reasons=False))
    found = replan(runs, 1)
    assert found.status == "infeasible"
    short, near = found.statement.split("; nearest that works: ")
    assert short.startswith("nothing fits on 1 GPU with a global batch of 64: the nearest to fitting, one GPU, needs ")
    assert short.endswith(" GiB available")
    assert replan(runs, int(near.removesuffix(" GPUs"))).fastest


def test_answers_that_cannot_be_planned_anew_are_refused():
    with pytest.raises(
        BadRequest, match=r"infeasible and has no strategy to start from: .* GiB.*; nearest: without --"
    ):
        replan(plan(PlanRequest(model="llama2-70b", gpus=8, pins={"offload": "none"})), 16)
    mixed = plan(PlanRequest(model="llama2-7b", gpus=128, cluster="a100-h100-mixed", top=0, reasons=False))
    with pytest.raises(BadRequest, match="several node groups"):
        replan(mixed, 64)


def test_the_command_answers_and_ends_as_documented(old, tmp_path):
    path = tmp_path / "old.json"
    path.write_text(old.to_json())

    def run(*more):
        return CliRunner().invoke(main, ["replan", str(path), *more])

    document = json.loads(run("--gpus", "56", "--format", "json").stdout)
    assert document["schema"] == "replan/1"
    table = run("--gpus", "56").stdout
    assert "idle" in table
    moved = document["fastest"]["moved"]
    told = format_quantity(moved["weight_bytes"] + moved["state_bytes"], "bytes")  # as the sentence below counts them
    assert told in table
    assert "TP=" in run("--gpus", "56", "--format", "env", "--pick", "fastest").stdout
    refused = run("--gpus", "1", "--global-batch", "7")
    assert refused.exit_code in (0, 3)
    wrong = run("--gpus", "56", "--tolerance", "lots")
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (2, 1)
    assert run("--gpus", "57").exit_code == 2
    assert run().exit_code == 2


@pytest.mark.parametrize("pick", ["nearest", "fastest"])
def test_what_was_picked_of_a_replan_is_exported_priced_and_compared_as_a_plan_is(old, pick, tmp_path):
    before, after, alone = (tmp_path / name for name in ("old.json", "new.json", "alone.json"))
    before.write_text(old.to_json())

    def run(*arguments):
        return CliRunner().invoke(main, [*map(str, arguments)])

    found = run("replan", before, "--gpus", 56, "--format", "json", "--pick", pick)
    after.write_text(found.stdout)
    chosen = json.loads(found.stdout)[pick]["plan"]
    alone.write_text(json.dumps(chosen))
    assert json.loads(found.stdout)["picked"] == pick
    for command in (["export", "--to", "megatron-lm"], ["predict", "--format", "json", "--config"], ["trace"]):
        outputs = [run(*command, path) for path in (after, alone)]
        assert [done.exit_code for done in outputs] == [0, 0], outputs[0].stderr
        assert outputs[0].stdout.replace("new.json", "") == outputs[1].stdout.replace("alone.json", "")
    assert run("compare", before, after).exit_code == 0


def test_a_replan_that_found_nothing_has_nothing_to_export(tmp_path):
    path = tmp_path / "none.json"
    path.write_text(json.dumps({"schema": "replan/1", "fastest": None, "nearest": None}))
    done = CliRunner().invoke(main, ["export", str(path), "--to", "megatron-lm"])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "an answer of `plan replan` without a plan" in done.stderr


def test_where_nothing_fits_it_offloads_as_a_plan_for_its_devices_does_and_says_so():
    runs = plan(PlanRequest(model="llama3-70b", gpus=32, global_batch_size=768, reasons=False))
    again = plan(PlanRequest(model="llama3-70b", gpus=16, global_batch_size=768, reasons=False))
    found = replan(runs, 16)
    assert again.strategy.offload != "none"
    assert found.fastest.plan.strategy == again.strategy
    assert found.fastest.iteration_seconds == pytest.approx(again.prediction.iteration_seconds)
    assert f"with offload {again.strategy.offload}, as nothing fits without" in found.statement
    assert [said for said in found.fastest.plan.defaults if "nothing fits without" in said]


@pytest.mark.parametrize("objective", ["memory", "goodput", "cost"])
def test_the_job_is_planned_anew_by_what_it_was_planned_for(objective):
    asked = {"model": MODEL, "global_batch_size": 64, "objective": objective, "reasons": False}
    found = replan(plan(PlanRequest(gpus=16, **asked)), 8, tolerance=0.1)
    again = plan(PlanRequest(gpus=8, **asked))
    assert found.fastest.plan.value == pytest.approx(again.value, rel=1e-9)
    assert found.fastest.plan.value <= found.nearest.plan.value <= 1.1 * found.fastest.plan.value * (1 + 1e-9)
    assert found.nearest.slower == pytest.approx(found.nearest.plan.value / found.fastest.plan.value - 1.0, abs=1e-9)
    assert found.statement.startswith(f"proved {'to need the least memory' if objective == 'memory' else ''}")


def test_a_batch_that_the_copies_left_divide_is_proposed_and_never_taken():
    asked = {"model": "llama3.1-405b", "cluster": "meta-24k", "global_batch_size": 2048, "reasons": False}
    old = plan(PlanRequest(gpus=16384, **asked))
    found = replan(old, 16376)
    assert found.global_batch_size == found.fastest.plan.strategy.global_batch_size == 2048
    other = found.other_batch
    assert other.global_batch_size % other.copies == 0
    again = replan(old, 16376, global_batch_size=other.global_batch_size)
    assert again.fastest.iteration_seconds <= other.iteration_seconds * (1 + 1e-9)
    assert again.other_batch is None
    rates = 2048 / found.fastest.iteration_seconds, other.global_batch_size / other.iteration_seconds
    assert rates[1] / rates[0] - 1.0 == pytest.approx(other.faster)


def test_the_batch_that_is_proposed_gains_more_than_that_of_the_old_copies():
    """Of 16,376 devices 16,128 are 63 doubled eight times, which 63 x 32 sequences divide; 31 old copies are left."""
    asked = {"model": "llama3.1-405b", "cluster": "meta-24k", "global_batch_size": 2048, "reasons": False}
    old = plan(PlanRequest(gpus=16384, **asked))
    other = replan(old, 16376).other_batch
    assert (other.global_batch_size, other.gpus) == (2016, 16128)
    of_copies = replan(old, 15872, global_batch_size=1984).fastest
    assert other.global_batch_size / other.iteration_seconds > 1984 / of_copies.iteration_seconds
