"""Layouts that trained somewhere are never called impossible: those of papers, and the largest of every source."""

import tomllib
from pathlib import Path

from planner import BadRequest, PlanRequest, predict
from tests.each import each
from tests.planner.shipped import shipped_runs

LAYOUTS = tomllib.loads(Path(__file__).with_name("published_layouts.toml").read_text())["layouts"]
REFUSED = {
    "caraml-mi250-800m": "stack-modules",
    "dsv3-gb300-61l-gbs2048": "equal-chunks",
    "lumi-175b-2048g": "even-stages",
    "mindformers-llama2_70b_64p-900a2podc-405": "zero-pipeline",
    "alpa-gpt2.6b-8v100": "zero-pipeline",
    "neuron-trn1-gpt3-175b": "stack-modules",
    "neuron-2.20-llama-3.1-70b": "stack-modules",
    "primus-mi355x-mixtral-8x22b-bf16": "memory",
    "sailor-opt-350-n32-dp16pp2tp4-mbs8-gbs1024": "needs equal stages",
    "torchax-tpu-v4-regular": "memory",
    "titan-dsv3-671b-512g-alltoall": "equal-chunks",
    "axlearn-fuji70b-v2-v6e-1024": "offload-host",
    "ironwood-dsv3-256-bf16": "offload-host",
    "tpu-recipes-v5p-deepseek3-512": "offload-host",
    "trl-qwen3-8b-1m": "stack-offload",
    "vp-v-half-16g-s2048-v128k-baseline": "stack-schedule",
    "nebius-dsv3-256g-bf16": "equal-chunks",
    "nemo4a100-tp1pp1cp1": "memory",
    "zb-table-6-14.6b-24g-b2-m72-zb-v": "chunks",
}
"""Runs that are refused still, by what: a mended one may leave the list, and only one of a new source may join it."""


def refusals(request):
    """The rules that refuse a strategy that is given, or what is wrong with it; none where it is priced."""
    try:
        answer = predict(request, near=False, chunked=False)
    except BadRequest as error:
        return [str(error)]
    return [one.rule for one in answer.rejected] if answer.status == "infeasible" else []


@each("layout", LAYOUTS)
def test_a_published_layout_can_be_priced(layout):
    asked = {name: value for name, value in layout.items() if name not in {"source", "assumed", "refused"}}
    assert set(refusals(PlanRequest(**asked))) <= {layout.get("refused")}


def largest_of_every_source():
    """The run on most devices of every shipped source, of those with a time that counts."""
    found = {}
    for run in shipped_runs():
        if not run.scored or run.unpriced or run.measured.out_of_memory or not run.measured.iteration_seconds:
            continue
        if run.group not in found or run.request.gpus > found[run.group].request.gpus:
            found[run.group] = run
    return list(found.values())


def test_the_largest_run_of_every_source_can_be_priced_as_a_plan():
    runs = largest_of_every_source()
    assert len(runs) + len(LAYOUTS) > 100
    refused = {run.id: found for run in runs if (found := refusals(run.request))}
    assert refused.keys() <= REFUSED.keys()
    for name, found in refused.items():
        assert REFUSED[name] in found[0], name
