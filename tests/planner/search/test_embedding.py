"""The planner inside another program: importable, picklable, silent, deterministic, safe in threads, sound."""

import json
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pytest

from planner import Plan, PlanRequest, plan, predict
from planner.search.choice import CLOSE
from planner.search.question import resolve_search
from planner.space import cache

ASKED = {"model": "llama2-7b", "gpus": 16}

MACHINES = [
    ("gpt2-124m", 1, {}),
    ("gpt2-124m", 7, {}),
    ("gpt2-124m", 24, {}),
    ("gpt3-125m", 3, {"cluster": "dgx-a100-80gb"}),
    ("llama3-8b", 8, {"stack": "fsdp"}),
    ("llama3-8b", 64, {"seq_length": 2**20, "global_batch_size": 4}),
    ("llama3-70b", 24, {}),
    ("llama3-70b", 48, {}),
    ("llama3-70b", 60, {"cluster": "h200-4x"}),
    ("llama2-70b", 64, {"stack": "torchtitan", "global_batch_size": 512}),
    ("qwen2.5-7b", 56, {}),
    ("mistral-7b", 32, {"precision": "fp8", "seq_length": 32768}),
    ("llama3.1-405b", 2128, {}),
    ("llama3.1-405b", 16384, {"seq_length": 131072, "global_batch_size": 128}),
    ("megatron-1008b", 3072, {"cluster": "dgx-a100-80gb", "stack": "megatron-lm-2022", "global_batch_size": 3072}),
    ("bloom-176b", 384, {"cluster": "jean-zay-a100", "stack": "megatron-deepspeed", "global_batch_size": 2048}),
    ("palm-540b", 6144, {"cluster": "tpu-v4-pod", "stack": "maxtext", "global_batch_size": 2048}),
    ("175b", 12288, {}),
    ("175b", 1_048_576, {}),
    ("175b", 8, {}),
    ("llama3-8b", 8, {"objective": "memory"}),
]


def without_clock(document):
    plain = json.loads(document)
    plain.get("proof", {}).pop("wall_seconds", None)
    return plain


def faults(document):
    """What is wrong with a plan document, by arithmetic on the document alone."""
    if document["status"] == "infeasible":
        return [] if document["rejected"] else ["infeasible without reasons"]
    s, p, asked = document["strategy"], document["prediction"], document["request"]
    model, proof = asked["model"], document["proof"]
    tokens = asked["global_batch_size"] * asked["seq_length"]
    limits = [stage["total"] <= stage["limit"] * (1 + 1e-9) for stage in document["memory_bytes"]]
    holds = {
        "degrees make up the machine": s["tp"] * s["cp"] * s["pp"] * s["dp"] == asked["gpus"],
        "sharding divides its ranks": s["dp"] * s["cp"] % s["sharding_degree"] == 0,
        "batch": s["micro_batch_size"] * s["num_microbatches"] * s["dp"] == asked["global_batch_size"],
        "layers": sum(stage["layers"] for stage in s["stages"]) == model["num_layers"],
        "stages": len(s["stages"]) == s["pp"] == len(document["memory_bytes"]),
        "recomputed layers": all(0 <= t["recompute_layers"] <= t["layers"] for t in s["stages"]),
        "heads": model["num_heads"] % s["tp"] == 0,
        "sequence": asked["seq_length"] % s["cp"] == 0,
        "interleaving": s["vpp"] == 1 or s["num_microbatches"] % s["pp"] == 0,
        "memory": all(limits),
        "utilisation": 0 < p["mfu"] < 1 and p["mfu"] <= p["hfu"] * (1 + 1e-9),
        "tokens": abs(tokens / p["iteration_seconds"] / p["tokens_per_second"] - 1) < 1e-9,
        "terms": abs(sum(document["breakdown_seconds"].values()) / p["iteration_seconds"] - 1) < 1e-9,
        "interval": p["interval"]["low"] < p["iteration_seconds"] < p["interval"]["high"],
        "bound": proof["lower_bound_seconds"] <= p["iteration_seconds"] * (1 + 1e-9),
        "fastest": proof["gap"] == 0 or proof["fastest_seconds"] == proof["lower_bound_seconds"],
        "gap": proof["gap"] >= 0 and (document["status"] != "optimal" or proof["gap"] <= CLOSE),
        "counts": 0 < proof["feasible"] <= proof["priced"] <= proof["candidates"],
        "training": abs(p["iterations"] * p["iteration_seconds"] / 86400 / p["training_days"] - 1) < 1e-9,
    }
    return [what for what, held in holds.items() if not held]


@pytest.mark.parametrize(("model", "gpus", "more"), MACHINES)
def test_a_plan_document_is_sound_by_its_own_arithmetic(model, gpus, more):
    answer = plan(PlanRequest(model=model, gpus=gpus, reasons=False, **more))
    document = json.loads(answer.to_json())
    assert faults(document) == []
    assert Plan.model_validate_json(answer.to_json()) == answer


def test_unsound_documents_are_found():
    document = json.loads(plan(PlanRequest(**ASKED, reasons=False)).to_json())
    for spoil in (
        lambda d: d["strategy"].update(tp=3),
        lambda d: d["strategy"]["stages"].pop(),
        lambda d: d["breakdown_seconds"].update(compute=0.0),
        lambda d: d["memory_bytes"][0].update(total=1e12),
        lambda d: d["proof"].update(lower_bound_seconds=1e9),
    ):
        spoiled = json.loads(json.dumps(document))
        spoil(spoiled)
        assert faults(spoiled)


def test_requests_and_plans_can_be_pickled():
    asked = PlanRequest(**ASKED, pins={"tp": "1,2"})
    answer = plan(asked)
    assert pickle.loads(pickle.dumps(asked)) == asked  # noqa: S301 - our own bytes
    assert pickle.loads(pickle.dumps(answer)) == answer  # noqa: S301 - same


def test_requests_survive_json():
    asked = PlanRequest(**ASKED, pins={"tp": "1,2"}, objective="memory")
    assert PlanRequest.model_validate_json(asked.model_dump_json()) == asked


@pytest.mark.parametrize("question", [plan, predict])
def test_the_same_question_has_the_same_document(question):
    first, second = (question(PlanRequest(**ASKED)).to_json() for _ in range(2))
    assert without_clock(first) == without_clock(second)


def test_threads_do_not_disturb_each_other():
    asked = [PlanRequest(model="gpt3-1.3b", gpus=gpus) for gpus in (8, 24)]
    alone = [without_clock(plan(one).to_json()) for one in asked]
    with ThreadPoolExecutor(2) as pool:
        together = [without_clock(answer.to_json()) for answer in pool.map(plan, asked)]
    assert together == alone


def test_threads_share_a_lattice_without_disturbing_each_other():
    asked = [PlanRequest(model="llama2-7b", gpus=32, tokens=10**9 * n, reasons=n % 2 == 0) for n in range(1, 5)]
    alone = [without_clock(plan(one).to_json()) for one in asked]
    with ThreadPoolExecutor(3) as pool:
        together = [without_clock(answer.to_json()) for answer in pool.map(plan, asked)]
    assert together == alone


def test_processes_answer_as_one_does():
    asked = [PlanRequest(model="llama2-7b", gpus=gpus, reasons=False) for gpus in (8, 16)]
    alone = [plan(one) for one in asked]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        together = list(pool.map(plan, asked))
    for one, other in zip(alone, together, strict=True):
        assert (one.strategy, one.prediction) == (other.strategy, other.prediction)


def test_reasons_can_be_left_out():
    full, bare = (plan(PlanRequest(**ASKED, reasons=wanted)) for wanted in (True, False))
    assert (bare.strategy, bare.prediction, bare.status) == (full.strategy, full.prediction, full.status)
    assert full.why_not
    assert [bare.why_not, bare.alternatives, bare.what_helps, bare.closest_run] == [(), (), (), None]
    assert faults(json.loads(bare.to_json())) == []


def test_a_lattice_is_kept_for_the_next_call_and_not_for_ever():
    for gpus in (8, 16, 24, 32, 40, 48):
        plan(PlanRequest(model="llama2-7b", gpus=gpus, reasons=False))
    kept = [scenario.gpus for scenario, _, _ in cache._recent]
    assert kept == [48, 40, 32, 24]
    _, _, space = cache._recent[0]
    again = resolve_search(PlanRequest(model="llama2-7b", gpus=48, tokens=10**9))
    assert cache.cached_space(again.scenario, {}) is space


def test_planning_prints_nothing(capfd):
    plan(PlanRequest(**ASKED))
    predict(PlanRequest(**ASKED))
    assert capfd.readouterr() == ("", "")


def modules_after(code):
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in run.stdout.split()}


def test_importing_the_planner_loads_nothing_heavy():
    assert not modules_after("import planner") & {"ortools", "scipy", "rich", "click", "numpy", "pydantic"}


def test_importing_the_questions_loads_no_solver_and_no_terminal():
    loaded = modules_after("from planner import plan, predict, why_not, PlanRequest, Plan")
    assert not loaded & {"ortools", "scipy", "rich", "click", "pandas"}


def test_names_that_the_planner_does_not_have_are_attribute_errors():
    import planner

    with pytest.raises(AttributeError, match="no attribute 'plans'"):
        _ = planner.plans
    assert {"plan", "predict", "PlanRequest", "Plan"} <= set(planner.__all__)


def test_a_plan_is_frozen_and_names_its_schema():
    document = json.loads(plan(PlanRequest(**ASKED, reasons=False)).to_json())
    assert document["schema"] == "plan/1"
    assert document["provenance"]["version"]
    assert len(document["provenance"]["sources"]) == 3
