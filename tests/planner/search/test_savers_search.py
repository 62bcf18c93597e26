"""Named modules and offloading in the search: brute force, the chain of bounds, requests and launch arguments."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from costmodels.layer.recompute_modules import MODULES
from costmodels.memory.limits import memory_limit
from costmodels.names import OFFLOADS, Recompute
from costmodels.step.offload import ACTIVATIONS, EVERYTHING, OPTIMIZER
from costmodels.strategy import strategies
from planner import PlanRequest, plan, predict, why_not
from planner.answer.plan import Plan
from planner.errors import BadRequest
from planner.jobs.preview import launch
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.search.best_first import search
from planner.search.core_bounds import core_bound
from planner.space.lattice import build
from planner.stages.from_strategies import least_peaks, stage_bounds
from tests.drawn import drawn_scenarios
from tests.planner.brute_force import every_row
from tests.planner.searched import agree, price_cores, tightened, tried
from tests.scenarios import toy_cluster, toy_model, toy_stack

PINS = {"offload": "any", "rank_order": "tp-cp-ep-dp-pp"}
ALL = OFFLOADS[1:]
SOME = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def offloading(scenario, *, host_memory=1e15):
    stack = scenario.stack.changed({"supports.offloads": ALL, "switches.optimizer": "adam"})
    group = scenario.group.model_copy(update={"host_memory": host_memory})
    return replace(scenario, stack=stack, group=group)


def offloaded_rows(scenario, limit):
    """All valid strategies with every kind of offloading; its rules written down once more."""
    plain = every_row(scenario, keep=lambda row: row["rank_order"] == 0)
    found = []
    for row in () if plain is None else map(plain.row, range(len(plain))):
        for code in range(len(OFFLOADS)):
            layered = code != ACTIVATIONS or row["recompute"] != Recompute.PARTIAL
            stays = code < OPTIMIZER or scenario.stack.switches.adapters is None
            zeros = stages(scenario, row, code) if stays and layered else ()
            found += [row | {"offload": code, "zero_stage": z} for z in zeros if code != EVERYTHING or z == 3]
    assume(0 < len(found) <= limit)
    return strategies(**{axis: [row[axis] for row in found] for axis in found[0]})


def stages(scenario, row, code):
    """ZeRO stages of a row: any of them may move states to the host on a single GPU, which shares with nobody."""
    alone = scenario.gpus == 1 and scenario.stack.offload.gradients_offloaded and code >= OPTIMIZER
    return {row["zero_stage"], *(scenario.stack.supports.zero_stages if alone else ())}


@SOME
@given(drawn_scenarios(gpus=(1, 2, 4), batches=(2, 4), layers=(1, 2, 3, 4)), st.floats(-0.1, 1.0))
def test_the_search_over_offloading_finds_what_trying_everything_finds(scenario, tightness):
    scenario = offloading(scenario)
    rows = offloaded_rows(scenario, 400)
    scenario = tightened(scenario, rows, tightness)
    outcome = search(build(scenario, parse_pins(PINS)), scenario, budget=Budget())
    agree(outcome, tried(rows, scenario))


@SOME
@given(drawn_scenarios(gpus=(2, 4, 8), batches=(4, 8), layers=(2, 3, 4, 6)))
def test_no_bound_of_a_saver_exceeds_what_it_bounds(scenario):
    stack = scenario.stack.changed({"supports.recompute_modules": MODULES})
    scenario = offloading(replace(scenario, stack=stack))
    space = build(scenario, parse_pins(PINS))
    assume(len(space.cores))
    cores = np.arange(len(space.cores))
    place, _ = np.nonzero(space.allowed[cores])
    priced = price_cores(space, cores, scenario)
    first = core_bound(space.cores, scenario)[place]
    some = priced.rows.recompute != Recompute.FULL  # whose cores know already that every layer is recomputed
    assert (first <= priced.bound * (1 + 1e-9))[some].all()
    tight, feasible = stage_bounds(priced.rows, priced.seconds, priced.memory, scenario)
    held = feasible & priced.fits
    least, limit = least_peaks(priced.rows, priced.memory, scenario), memory_limit(scenario, priced.rows)
    assert (least <= priced.even_split_peak_bytes * (1 + 1e-9)).all()
    assert (least <= limit * (1 + 1e-9))[feasible].all()
    assert (first[feasible] <= tight[feasible] * (1 + 1e-8)).all()
    assert (priced.bound[feasible] <= tight[feasible] * (1 + 1e-8)).all()
    assert (tight[held] <= priced.even_split_seconds[held] * (1 + 1e-8)).all()


@SOME
@given(drawn_scenarios(gpus=(2, 4), batches=(4,), layers=(2, 4)), st.floats(0, 1))
def test_more_memory_of_the_host_never_makes_a_plan_slower(scenario, share):
    scenario = offloading(scenario)
    rows = offloaded_rows(scenario, 400)
    scenario = tightened(scenario, rows, 0.2)
    pins = parse_pins(PINS)
    found = []
    for memory in (1e6 + share * 1e9, 1e15):
        known = offloading(scenario, host_memory=memory)
        best = search(build(known, pins), known, budget=Budget()).best
        found.append(best.iteration if best else np.inf)
    assert found[1] <= found[0] * (1 + 1e-9)


# ------------------------------------------------------------------------------------------------ requests


def asked(*, memory=80e9, **changes):
    cluster = toy_cluster(node=4)
    group = cluster.groups[0]
    device = group.accelerator.model_copy(update={"usable_memory": memory})
    cluster = cluster.model_copy(update={"groups": (group.model_copy(update={"accelerator": device}),)})
    stack = toy_stack(offloads=ALL, zero_stages=(0, 1, 2, 3), recompute_modules=MODULES, **changes.pop("stack", {}))
    fields = {"model": toy_model(), "gpus": 8, "cluster": cluster, "stack": stack, "global_batch_size": 16}
    return PlanRequest(**(fields | changes))


def least(**changes):
    """Bytes with which a little less than the leanest plan without offloading fits."""
    best = plan(asked(objective="memory", **changes, reasons=False))
    return max(stage.total for stage in best.memory_bytes) * 0.98


def test_nothing_is_offloaded_unless_asked_for():
    found = plan(asked(reasons=False))
    assert found.strategy.offload == "none"
    assert not any("offload" in line for line in found.defaults)


def test_where_nothing_fits_the_plan_offloads_and_says_so():
    found = plan(asked(memory=least(), reasons=False))
    assert found.strategy.offload != "none"
    assert f"offload {found.strategy.offload} (nothing fits without)" in found.defaults


def test_who_forbids_offloading_gets_none():
    assert plan(asked(memory=least(), pins={"offload": "none"}, reasons=False)).status == "infeasible"


def test_a_host_that_is_too_small_is_named():
    request = asked(pins={"offload": "optimizer"})
    group = request.cluster.groups[0].model_copy(update={"host_memory": 1e3})
    small = request.model_copy(update={"cluster": request.cluster.model_copy(update={"groups": (group,)})})
    answer = predict(small)
    assert not answer.fits
    assert answer.rejected[0].rule == "host-memory"
    assert "GiB of the host per GPU" in answer.rejected[0].example


def test_named_modules_alone_mean_selective_recomputation():
    answer = predict(asked(pins={"recompute_modules": "layernorm,mlp"}))
    assert answer.strategy.recompute == "selective"
    assert answer.strategy.recompute_modules == ("mlp", "layernorm")
    assert answer.breakdown_seconds["recompute"] > 0
    assert answer.prediction.hfu > answer.prediction.mfu


def test_modules_that_a_model_lacks_are_refused_with_those_it_has():
    answer = predict(asked(pins={"recompute_modules": "moe"}))
    assert answer.rejected[0].rule == "modules-exist"
    assert "core_attn,mlp,layernorm" in answer.rejected[0].example
    with pytest.raises(BadRequest, match="no module 'attention'"):
        predict(asked(pins={"recompute_modules": "attention"}))


def test_why_not_speaks_of_modules_by_name():
    assert why_not(asked(pins={"recompute_modules": "layernorm"})).pins == {"recompute_modules": "layernorm"}


@pytest.mark.parametrize(
    ("changes", "less"),
    [
        ({"optimizer": "adam-8bit"}, "optimizer"),
        ({"main_grads": "bf16"}, "gradients"),
        ({"main_params": "fp16"}, "optimizer"),
        ({"loss": "fused"}, "logits"),
        ({"loss_block": 128}, "logits"),
    ],
)
def test_a_choice_saves_where_it_says(changes, less):
    plain, saved = predict(asked()).memory_bytes[0], predict(asked(**changes)).memory_bytes[0]
    assert getattr(saved, less) < getattr(plain, less)
    same = {"weights", "gradients", "optimizer", "activations", "logits"} - {less}
    assert all(getattr(saved, name) == getattr(plain, name) for name in same)


def test_a_choice_is_echoed_and_can_be_asked_again():
    answer = predict(asked(optimizer="muon", loss_block=256))
    assert (answer.request["optimizer"], answer.request["loss_block"]) == ("muon", 256)
    assert "main_grads" not in answer.request


def test_weights_in_8_bits_need_a_recipe_of_8_bits():
    with pytest.raises(BadRequest, match="fp8_param_gather needs 8-bit matrix products; precision is bf16; fp8 works"):
        plan(asked(fp8_param_gather=True))


@pytest.mark.parametrize("optimizer", ["muon", "adam-8bit"])
def test_optimizers_of_the_device_have_no_step_on_the_host(optimizer):
    answer = predict(asked(optimizer=optimizer, pins={"offload": "optimizer"}))
    assert answer.rejected[0].rule == "offload-step"


def words(**changes):
    answer: Plan = predict(asked(stack={"name": "megatron-core"}, **changes))
    told = launch(answer.model_copy(update={"request": answer.request | {"stack": "megatron-core"}}), answer.strategy)
    return " ".join(told.words), " ".join(told.remarks)


def test_megatron_is_told_what_is_saved():
    assert (
        "--recompute-granularity selective --recompute-modules mlp layernorm"
        in words(pins={"recompute_modules": "layernorm,mlp"})[0]
    )
    assert "--use-precision-aware-optimizer --main-grads-dtype bf16" in words(main_grads="bf16")[0]
    assert (
        "--optimizer-cpu-offload --optimizer-offload-fraction 0.5"
        in words(offload_fraction=0.5, pins={"offload": "optimizer"})[0]
    )
    assert "--fine-grained-activation-offloading" in words(pins={"offload": "activations"})[0]
    assert "--exp-avg-dtype bf16" in words(optimizer="adam-bf16")[0]
    assert "--optimizer dist_muon" in words(optimizer="muon")[0]
    with pytest.raises(BadRequest, match="no optimizer lamb"):
        words(optimizer="lamb")
    with pytest.raises(BadRequest, match="blocks of 64 tokens"):
        words(loss_block=64)


def test_what_frees_nothing_is_told_by_no_argument():
    plain, remarks = words()
    assert not {"precision-aware", "offload", "recompute-modules", "fusion"} & set(plain.replace("--", " ").split())
    assert "offload" not in remarks


def test_codes_of_offloading_follow_their_names():
    assert [OFFLOADS[code] for code in (ACTIVATIONS, OPTIMIZER, EVERYTHING)] == list(ALL)
