"""torchtitan 0.2, the last that reads TOML: its manager and parallel dimensions on exported files."""

import sys

import pytest
import torchtitan
from torchtitan.components.quantization import float8, mx
from torchtitan.config import ConfigManager
from torchtitan.distributed import ParallelDims
from torchtitan.protocols.model_converter import _registry_model_converter_cls

from planner.errors import BadRequest
from planner.jobs.registry import export
from tests.conformance.plans import label, random_plans
from tests.conformance.world import rank_of

PLANS = random_plans(
    "torchtitan", 480, seed=14, models=("llama3-8b", "llama3-70b", "deepseek-v3"), precisions=("bf16",)
)


def expressible(plan):
    try:
        return export(plan, "torchtitan", version="0.2")
    except BadRequest:
        return None


@pytest.mark.parametrize("plan", [plan for plan in PLANS if expressible(plan)])
def test_torchtitan_understands_the_plan(plan, tmp_path, monkeypatch):
    path = tmp_path / "torchtitan.toml"
    path.write_text(expressible(plan).files["torchtitan.toml"], encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["train.py", "--job.config_file", str(path)])
    config, at = ConfigManager().parse_args(["--job.config_file", str(path)]), plan.strategy
    given, shard = config.parallelism, at.sharding_degree // at.cp if at.zero_stage else 1
    degrees = (given.data_parallel_replicate_degree, given.data_parallel_shard_degree, given.context_parallel_degree,
               given.tensor_parallel_degree, given.pipeline_parallel_degree, given.expert_parallel_degree)  # fmt: skip
    assert degrees == (at.dp // shard, shard, at.cp, at.tp, at.pp, at.ep), label(plan)
    assert config.training.global_batch_size == at.global_batch_size
    assert config.training.seq_len == plan.request["seq_length"]
    assert config.activation_checkpoint.mode == at.recompute
    if at.pp > 1:
        held = [sum(name.startswith("layers.") for name in part) for part in given.module_fqns_per_model_part]
        assert sum(held) == plan.request["model"]["num_layers"]
        assert len(held) == at.pp * at.vpp
        assert config.training.local_batch_size == at.micro_batch_size * at.num_microbatches
    world = plan.request["gpus"]
    with rank_of(0, world):
        ParallelDims(
            dp_replicate=at.dp // shard, dp_shard=shard, cp=at.cp, tp=at.tp, pp=at.pp, ep=at.ep,
            etp=given.expert_tensor_parallel_degree, world_size=world,
        ).build_mesh()  # fmt: skip


def test_most_plans_are_expressible_in_toml_too():
    assert torchtitan.__file__
    assert sum(expressible(plan) is not None for plan in PLANS) >= 200


NARROW = random_plans(
    "torchtitan", 60, seed=15, models=("llama3-8b", "deepseek-v3"), precisions=("fp8-current", "fp8-rowwise", "mxfp8")
)


@pytest.mark.parametrize("plan", [plan for plan in NARROW if expressible(plan)])
def test_torchtitan_converts_the_products_as_the_plan_multiplies(plan, tmp_path):
    path = tmp_path / "torchtitan.toml"
    path.write_text(expressible(plan).files["torchtitan.toml"], encoding="utf-8")
    config = ConfigManager().parse_args(["--job.config_file", str(path)])
    kind = "mx" if plan.request["precision"] == "mxfp8" else "float8"
    kinds = ("linear", "grouped_mm") if plan.request["model"].get("moe") else ("linear",)
    assert config.model.converters == [f"quantize.{products}.{kind}" for products in kinds]
    assert {float8.__name__, mx.__name__}, "which register what they convert when they are imported"
    assert set(config.model.converters) <= set(_registry_model_converter_cls)
    recipe = {"fp8-current": "tensorwise", "fp8-rowwise": "rowwise", "mxfp8": "mxfp8_cublas"}[plan.request["precision"]]
    assert getattr(config.quantize.linear, kind).recipe_name == recipe
    if len(kinds) > 1:
        assert getattr(config.quantize.grouped_mm, kind).fqns == ["experts"]
