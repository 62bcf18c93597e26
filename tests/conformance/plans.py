"""Random plans, as a search could propose them: any row that the rules allow, whether or not it fits in memory."""

import os
import random
from functools import cache

import numpy as np

from costmodels.pricing import row_assignment
from planner.answer.build import provenance_record, request_record, strategy_record
from planner.answer.plan import Plan
from planner.errors import MeshwrightError
from planner.request.pins import parse_pins
from planner.request.request import PlanRequest
from planner.request.resolve import resolve
from planner.search.split import best_split
from planner.space.lattice import build
from planner.stages.from_strategies import framework_split

DENSE = ("llama3-8b", "llama3-70b", "gpt3-13b", "qwen2.5-7b", "llama3.2-3b", "gpt3-175b", "qwen3-14b", "mistral-7b")
EXPERTS = ("mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v2-lite", "moonlight-16b-a3b")
GPUS = (8, 16, 24, 32, 64, 128, 256)
BATCHES = (32, 48, 96, 128, 256, 512)
SHIFT = int(os.environ.get("CONFORMANCE_SEED", "0"))
"""Other plans than the usual ones."""
PRECISIONS = ("bf16", "bf16", "bf16", "fp16", "fp8")


def random_plans(framework, count, *, seed=0, models=DENSE + EXPERTS, precisions=PRECISIONS, choices=({},), **fields):
    """``count`` plans for a framework, of many jobs, the same for the same seed.

    ``choices`` are further fields of the request, of which each job has one set; ``pins`` are pairs of axis and values.
    """
    chance, plans = random.Random(seed + SHIFT), []
    while len(plans) < count:
        job = (chance.choice(models), chance.choice(GPUS), chance.choice(BATCHES), chance.choice(precisions))
        chosen = fields | (chance.choice(choices) if len(choices) > 1 else choices[0])
        plans += _of_job(framework, job, min(6, count - len(plans)), chance, tuple(chosen.items()))
    return plans


def _of_job(framework, job, count, chance, fields):
    found = _lattice(framework, job, fields)
    if found is None:
        return []
    resolved, space, core, option = found
    chosen = [chance.randrange(len(core)) for _ in range(count)]
    return [_plan(resolved, space.rows(core[[at]], option[[at]])) for at in chosen]


@cache
def _lattice(framework, job, fields):
    """The strategies of one job that pass every rule; None where there is none."""
    model, gpus, batch, precision = job
    try:
        asked = {"model": model, "gpus": gpus, "global_batch_size": batch, "precision": precision}
        more = dict(fields)
        request = PlanRequest(**asked, framework=framework, pins=dict(more.pop("pins", ())), **more)
        resolved = resolve(request)
        space = build(resolved.scenario, parse_pins(request.pins))
    except MeshwrightError:
        return None
    core, option = np.nonzero(space.allowed)
    return (resolved, space, core, option) if len(core) else None


def _plan(resolved, row):
    scenario = resolved.scenario
    split = best_split(row, scenario)
    cut, layers = framework_split(scenario), scenario.model.num_layers
    even = row_assignment(row, layers, cut(scenario.model, int(row.pp[0])) if cut else None)
    assignment = split.assignment if split else even
    return Plan(
        status="feasible",
        request=request_record(resolved),
        strategy=strategy_record(row, assignment, scenario),
        provenance=provenance_record(resolved),
    )


def label(plan):
    """A plan in one line, for a failing test."""
    at = plan.strategy
    named = ("tp", "cp", "cp_kind", "pp", "vpp", "dp", "ep", "etp", "zero_stage", "sharding_degree", "schedule")
    degrees = " ".join(f"{name}={getattr(at, name)}" for name in named)
    stages = ",".join(f"{stage.layers}/{stage.recompute_layers}" for stage in at.stages)
    model = plan.request["model"]["name"]
    batch = f"x{plan.request['gpus']} mb={at.micro_batch_size} M={at.num_microbatches}"
    return f"{model} {batch} {degrees} {at.recompute} {stages}"
