"""DeepSpeed: its own configuration class on exported JSON, and its pipeline's partition of the layers."""

import json
import os
from itertools import pairwise

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import pytest
import torch
from deepspeed import load_ds_config
from deepspeed.pipe import LayerSpec, PipelineModule
from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.runtime.pipe.topology import PipeDataParallelTopology, PipelineParallelGrid

from planner.errors import BadRequest
from planner.jobs.registry import export
from tests.conformance.plans import label, random_plans
from tests.conformance.world import rank_of

HALVES = ("bf16", "bf16", "fp16", "fp32")
OWN = ({}, {}, {"pins": (("pp", "2.."),)}, {"pins": (("cp", "2.."),)})
"""Pipelines and long sequences are proposed where they are asked for, since they need code of the user's own."""
PLANS = random_plans("deepspeed", 240, seed=5, precisions=HALVES, choices=OWN)


@pytest.fixture
def world(monkeypatch):
    """A process group of any size, which DeepSpeed adopts."""

    def enter(gpus):
        made.append(rank_of(0, gpus))
        made[-1].__enter__()
        monkeypatch.setenv("LOCAL_RANK", "0")
        deepspeed.comm.comm.cdb = None
        deepspeed.init_distributed("fake", auto_mpi_discovery=False, verbose=False)

    made = []
    yield enter
    for context in made:
        context.__exit__(None, None, None)


def understood(path, mpu=None):
    """The configuration as ``deepspeed.initialize`` reads it from a file."""
    config, mesh = load_ds_config(str(path)), None
    if {"sequence_parallel_size", "data_parallel_size"} <= set(config):
        shape = (config["data_parallel_size"], config["sequence_parallel_size"])
        mesh = deepspeed.comm.initialize_mesh_device(shape, ("data_parallel", "sequence_parallel"))
    return DeepSpeedConfig(config, mpu, mesh_device=mesh)


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_deepspeed_understands_the_plan(plan, world, tmp_path):
    at, exported = plan.strategy, export(plan, "deepspeed")
    path = tmp_path / "ds_config.json"
    path.write_text(exported.files["ds_config.json"], encoding="utf-8")
    world(plan.request["gpus"])
    grid = PipelineParallelGrid(PipeDataParallelTopology(num_pp=at.pp, num_dp=at.dp)) if at.pp > 1 else None
    config = understood(path, mpu=grid)
    assert config.world_size == at.dp * at.tp, label(plan)
    assert config.train_batch_size == at.global_batch_size * at.tp, "AutoTP's ranks count as replicas"
    assert config.train_micro_batch_size_per_gpu == at.micro_batch_size
    assert config.gradient_accumulation_steps == at.num_microbatches
    assert config.zero_optimization_stage == at.zero_stage
    assert config.bfloat16_config.enabled == (plan.request["precision"] == "bf16")
    assert config.float16_config.enabled == (plan.request["precision"] == "fp16")
    offload = config.zero_config.offload_optimizer
    assert (offload is not None and offload.device == "cpu") == at.offload.startswith("optimizer")
    assert config.tensor_parallel_config.autotp_size == (at.tp if at.tp > 1 else 0)


class Block(torch.nn.Module):
    """A decoder layer, as far as the partition looks."""


class Edge(torch.nn.Module):
    """Embedding or head."""


PIPED = [plan for plan in PLANS if plan.strategy.pp > 1]


@pytest.mark.parametrize("plan", PIPED, ids=range(len(PIPED)))
def test_the_exported_pipeline_has_the_planned_layers_on_every_stage(plan, world):
    at = plan.strategy
    stub = {}
    exec(export(plan, "deepspeed").files["ds_pipeline.py"], stub)  # noqa: S102 - the file that is tested
    assert (stub["PIPELINE_STAGES"], stub["DATA_PARALLEL"]) == (at.pp, at.dp)
    world(plan.request["gpus"])
    layers = [LayerSpec(Edge), *(LayerSpec(Block) for _ in range(plan.request["model"]["num_layers"])), LayerSpec(Edge)]
    made = stub["pipeline"](layers, block=Block, loss_fn=None)
    assert isinstance(made, PipelineModule)
    blocks = [sum(1 <= i < len(layers) - 1 for i in range(*pair)) for pair in pairwise(made.parts)]
    assert blocks == [stage.layers for stage in at.stages]


def test_there_are_pipelines_among_the_plans():
    assert len(PIPED) >= 20


@pytest.mark.parametrize("key", ["zero_optimization", "train_batch_size"])
def test_a_mutated_export_is_refused(key, world, tmp_path):
    plan = next(plan for plan in PLANS if plan.strategy.dp == plan.request["gpus"])
    document = json.loads(export(plan, "deepspeed").files["ds_config.json"])
    document[key] = {"stage": 1, "no_such_key": 1} if key == "zero_optimization" else document[key] + 1
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(document))
    world(plan.request["gpus"])
    with pytest.raises(Exception, match=r"no_such_key|train_batch_size"):
        understood(path)


def test_sharding_over_some_ranks_is_refused_by_both(world, tmp_path):
    plan = next(plan for plan in PLANS if plan.strategy.zero_stage and plan.strategy.dp > 2)
    part = plan.model_copy(update={"strategy": plan.strategy.model_copy(update={"sharding_degree": 2})})
    with pytest.raises(BadRequest, match="no sharding over 2"):
        export(part, "deepspeed")
    document = json.loads(export(plan, "deepspeed").files["ds_config.json"])
    document["zero_optimization"]["mics_shard_size"] = 2
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(document))
    world(plan.request["gpus"])
    with pytest.raises(Exception, match="mics"):
        understood(path)
