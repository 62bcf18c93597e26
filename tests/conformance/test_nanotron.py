"""nanotron: its parser on exported YAML, its grid of ranks, and its own cut of the pipeline."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from planner.jobs.job import Inexpressible
from planner.jobs.registry import export
from tests.conformance.nanotron_parts import SOURCE, load
from tests.conformance.plans import label, random_plans
from tests.conformance.world import rank_of

CONFIG, BASE, MODEL, PARALLEL = load()
MODELS = ("llama3-8b", "llama3-70b", "llama2-7b", "llama2-13b", "llama3.2-3b", "llama-33b", "llama3.1-405b")
VERSION = "2411b02" if SOURCE else "0.4"
DRAWN = random_plans("nanotron", 600, seed=17, models=MODELS, precisions=("bf16", "bf16", "fp32"))
PLANS = [plan for plan in DRAWN if SOURCE or plan.strategy.recompute == "none"][:220]
"""The release recomputes nothing."""


def understood(plan, folder):
    path = folder / "nanotron.yaml"
    path.write_text(export(plan, "nanotron", version=VERSION).files["nanotron.yaml"], encoding="utf-8")
    return CONFIG.get_config_from_file(str(path))


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_nanotron_understands_the_plan(plan, tmp_path):
    at, config, model = plan.strategy, understood(plan, tmp_path), plan.request["model"]
    given = config.parallelism
    assert (given.tp, given.pp, given.dp, given.expert_parallel_size) == (at.tp, at.pp, at.dp, at.ep), label(plan)
    assert given.tp * given.pp * given.dp == plan.request["gpus"]
    assert given.tp_mode.name == ("REDUCE_SCATTER" if at.sequence_parallel and at.tp > 1 else "ALL_REDUCE")
    assert given.tp_linear_async_communication == (given.tp_mode.name == "REDUCE_SCATTER")
    engine = type(given.pp_engine).__name__
    assert engine == ("AllForwardAllBackward" if at.schedule == "gpipe" else "OneForwardOneBackward") + "PipelineEngine"
    assert config.global_batch_size == at.global_batch_size
    assert config.tokens.batch_accumulation_per_replica == at.num_microbatches
    assert config.tokens.sequence_length == plan.request["seq_length"]
    assert config.optimizer.zero_stage == at.zero_stage
    assert config.model.dtype == {"bf16": torch.bfloat16, "fp32": torch.float32}[plan.request["precision"]]
    shape = config.model.model_config
    sizes = (shape.num_hidden_layers, shape.hidden_size, shape.intermediate_size, shape.vocab_size)
    assert sizes == tuple(model[name] for name in ("num_layers", "hidden_size", "ffn_hidden_size", "vocab_size"))
    heads = (shape.num_attention_heads, shape.num_key_value_heads)
    assert heads == (model["num_heads"], model["num_query_groups"])
    if SOURCE:
        assert given.recompute_layer == (at.recompute == "full")
    else:
        assert at.recompute == "none"
    assert shape.num_attention_heads % at.tp == shape.num_key_value_heads % at.tp == 0
    assert cut(shape, at.pp) == [stage.layers for stage in at.stages], label(plan)


def cut(shape, pp):
    """Layers of every stage as nanotron's own loop deals out blocks of its own costs."""
    kind = MODEL.LlamaDecoderLayer if not SOURCE else MODEL.Qwen2DecoderLayer
    body = MODEL.LlamaModel if not SOURCE else MODEL.Qwen2Model
    builders = [object, *[kind] * shape.num_hidden_layers, object, MODEL.TensorParallelColumnLinear]
    blocks = nn.ModuleList(_block(builder) for builder in builders)
    model = nn.Module()
    model.blocks, model.log_modules = blocks, lambda **_named: None
    model.get_block_compute_costs = lambda: body.get_block_compute_costs(SimpleNamespace(config=shape))
    groups = SimpleNamespace(pp_pg=SimpleNamespace(size=lambda: pp), world_pg=None)
    BASE.build_model(lambda: model, groups, torch.float32, device=torch.device("cpu"))
    ranks = [block.rank for block in blocks if block.module_builder is kind]
    return [ranks.count(stage) for stage in range(pp)]


def _block(builder):
    """A block that notes its stage and builds nothing."""
    block = BASE.PipelineBlock.__new__(BASE.PipelineBlock)
    nn.Module.__init__(block)
    block.module_builder = builder
    block.build_and_set_rank = lambda rank: setattr(block, "rank", rank)
    return block


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan.request["gpus"] <= 32][:12], ids=range(12))
def test_tensor_ranks_are_neighbours_and_stages_outermost(plan, monkeypatch):
    at, world = plan.strategy, plan.request["gpus"]
    for name, value in {"WORLD_SIZE": world, "RANK": world - 1, "LOCAL_RANK": 7, "LOCAL_WORLD_SIZE": 8}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _n: None)
    with rank_of(world - 1, world):
        groups = PARALLEL.ParallelContext(
            tensor_parallel_size=at.tp, pipeline_parallel_size=at.pp, data_parallel_size=at.dp
        )
        assert torch.distributed.get_process_group_ranks(groups.tp_pg) == list(range(world - at.tp, world))
        assert torch.distributed.get_process_group_ranks(groups.pp_pg)[0] == world // at.pp - 1


def test_there_are_as_many_plans_as_were_asked_for():
    assert len(PLANS) == 220


def test_a_key_that_nanotron_does_not_know_is_refused(tmp_path):
    path = tmp_path / "nanotron.yaml"
    text = export(PLANS[0], "nanotron", version=VERSION).files["nanotron.yaml"]
    path.write_text(text.replace("expert_parallel_size", "expert_parallel"), encoding="utf-8")
    with pytest.raises(Exception, match="expert_parallel"):
        CONFIG.get_config_from_file(str(path))


def test_another_cut_than_its_own_is_refused():
    plan = next(plan for plan in PLANS if plan.strategy.pp > 1)
    first, second, *rest = plan.strategy.stages
    moved = (
        first.model_copy(update={"layers": first.layers - 1}),
        second.model_copy(update={"layers": second.layers + 1}),
    )
    strategy = plan.strategy.model_copy(update={"stages": [*moved, *rest]})
    with pytest.raises(Inexpressible, match="divides the layers itself"):
        export(plan.model_copy(update={"strategy": strategy}), "nanotron", version=VERSION)
