"""torchtitan 0.3: its configuration manager, parallel dimensions, meshes, stages and schedules on exported Python."""

import importlib
import sys

import pytest
import torch
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
from torchtitan.config.manager import ConfigManager
from torchtitan.distributed import parallel_dims as dims
from torchtitan.distributed.pipeline_parallel import _get_pipeline_metadata
from torchtitan.models.common.decoder import Decoder

from costmodels.names import SCHEDULE_NAMES
from planner.jobs.registry import export
from planner.jobs.torchtitan.options import SCHEDULES
from tests.conformance.plans import label, random_plans
from tests.conformance.world import rank_of

MODELS = ("llama3-8b", "llama3-70b", "qwen3-0.6b", "qwen3-1.7b", "qwen3-14b", "qwen3-32b",
          "qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v3")  # fmt: skip
PLANS = random_plans("torchtitan", 220, seed=4, models=MODELS, precisions=("bf16",))


@pytest.fixture
def understood(monkeypatch, tmp_path):
    """What torchtitan makes of a plan's exported file."""

    def read(plan):
        exported = export(plan, "torchtitan")
        (tmp_path / "meshwright_plan.py").write_text(exported.files["meshwright_plan.py"], encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        sys.modules.pop("meshwright_plan", None)
        return ConfigManager().parse_args(list(exported.program[2:]))

    return read


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_torchtitan_understands_the_plan(plan, understood):
    at, config = plan.strategy, understood(plan)
    given = config.parallelism
    shard = at.sharding_degree // at.cp if at.zero_stage else 1
    degrees = (given.data_parallel_replicate_degree, given.data_parallel_shard_degree, given.context_parallel_degree,
               given.tensor_parallel_degree, given.pipeline_parallel_degree, given.expert_parallel_degree)  # fmt: skip
    assert degrees == (at.dp // shard, shard, at.cp, at.tp, at.pp, at.ep), label(plan)
    assert (given.fsdp_reshard_after_forward == "always") == (at.zero_stage == 3)
    assert config.training.global_batch_size == at.global_batch_size
    assert config.training.local_batch_size * at.dp * accumulation(at) == at.global_batch_size
    assert config.training.enable_cpu_offload == (at.offload != "none")
    assert checkpointing(config) == at.recompute
    if at.tp > 1:
        assert given.enable_sequence_parallel == at.sequence_parallel
    mesh_of(config, plan)
    if at.pp > 1:
        staged(config, plan)


def accumulation(at):
    return 1 if at.pp > 1 else at.num_microbatches


def checkpointing(config):
    named = config.activation_checkpoint
    return (
        "none"
        if named is None
        else {"SelectiveAC": "selective", "FullAC": "full"}[type(named).__qualname__.split(".")[0]]
    )


def mesh_of(config, plan):
    """The meshes of one rank, and the model's own checks of the degrees."""
    world = plan.request["gpus"]
    with rank_of(world - 1, world):
        made = dims.ParallelDims.from_config(config.parallelism, world)
        made.build_mesh()
        if plan.strategy.tp > 1:
            tensor = made.get_mesh("tp")
            ranks = torch.distributed.get_process_group_ranks(tensor.get_group())
            assert ranks == list(range(world - plan.strategy.tp, world))
    model = config.model_spec.model
    assert isinstance(model, Decoder.Config)
    config.model_spec.model.update_from_config(config=config)


def staged(config, plan):
    """Stages, their modules, and the schedule built with them."""
    at, given = plan.strategy, config.parallelism
    chosen = get_schedule_class(given.pipeline_parallel_schedule)
    assert given.pipeline_parallel_schedule == SCHEDULES[at.schedule]
    names = given.module_fqns_per_model_part
    assert len(names) == at.pp * at.vpp
    assert [name for part in names for name in part] == [
        "tok_embeddings", *(f"layers.{n}" for n in range(plan.request["model"]["num_layers"])), "norm", "lm_head",
    ]  # fmt: skip
    held = [sum(name.startswith("layers.") for name in part) for part in names]
    folded = at.schedule in {"zb-v", "dualpipe-v"}
    order = [(n if n < at.pp else 2 * at.pp - 1 - n) if folded else n % at.pp for n in range(len(names))]
    layers = [sum(n for n, stage in zip(held, order, strict=True) if stage == s) for s in range(at.pp)]
    assert layers == [stage.layers for stage in at.stages], label(plan)
    assert config.training.local_batch_size // given.pipeline_parallel_microbatch_size == at.num_microbatches
    _get_pipeline_metadata(dims.ParallelDims.from_config(given, plan.request["gpus"]), given, config.model_spec.model)
    scheduled(chosen, at)


def scheduled(chosen, at):
    """The schedule's own constructor, with stages that hold nothing."""
    stages = [_Stage(n, at) for n in range(at.vpp)]
    first = stages if issubclass(chosen, PipelineScheduleMulti) else stages[0]
    chosen(first, n_microbatches=at.num_microbatches, loss_fn=lambda *_: None)


class _Stage:
    """What a schedule asks of a stage."""

    def __init__(self, chunk, at):
        self.group_rank, self.group_size, self.num_stages = 0, at.pp, at.pp * at.vpp
        self.stage_index = chunk * at.pp
        self.is_first, self.is_last = chunk == 0, False
        self.has_backward, self.device, self.submod = True, torch.device("cpu"), torch.nn.Identity()
        self.stage_index_to_group_rank = {}
        self.group = None


def test_every_schedule_that_is_written_has_a_class():
    assert set(SCHEDULES) <= set(SCHEDULE_NAMES)
    assert all(get_schedule_class(name) for name in SCHEDULES.values())
