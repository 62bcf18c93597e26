"""Megatron-LM: its own parser, validation, process groups and layer counts on exported plans."""

import os
import sys
from types import SimpleNamespace

import pytest
import torch
from megatron.core import parallel_state
from megatron.core.transformer import transformer_config
from megatron.core.transformer.transformer_block import get_num_layers_to_build
from megatron.training.arguments import core_transformer_config_from_args, parse_args, validate_args

from planner.jobs.registry import export
from tests.conformance.plans import label, random_plans
from tests.conformance.shell import sourced
from tests.conformance.world import rank_of

PLANS = random_plans("megatron-lm", 240, seed=7)
ASSUMING = [plan for name in ("nemo-26.06", "nemo") for plan in random_plans("megatron-lm", 110, seed=8, stack=name)]
"""Of stacks that hide traffic and replay graphs."""
CHOSEN = [
    plan
    for fields in (
        {"optimizer": "muon"}, {"optimizer": "adam-bf16"}, {"optimizer": "adam-8bit"}, {"optimizer": "sgd"},
        {"main_params": "fp16"}, {"main_grads": "bf16"}, {"main_grads": "fp32"},
    )
    for plan in random_plans("megatron-lm", 16, seed=9, **fields)
]  # fmt: skip
"""With every choice of states that its arguments can say."""
WITHOUT_ENGINE = ["--transformer-impl", "local", "--no-rope-fusion", "--no-persist-layer-norm",
                  "--no-gradient-accumulation-fusion"]  # fmt: skip
"""Transformer Engine is not there; nothing of the plan is in these."""


@pytest.fixture(autouse=True)
def hopper(monkeypatch):
    """Ask no device: a Hopper's capability, by which Megatron judges CUDA_DEVICE_MAX_CONNECTIONS."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_a, **_k: (9, 0))
    properties = SimpleNamespace(major=9, minor=0, name="H100")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_a, **_k: properties)
    monkeypatch.setattr(transformer_config, "is_te_min_version", lambda *_a, **_k: True)


@pytest.fixture
def understood(monkeypatch, tmp_path):
    """What Megatron makes of a plan's exported file."""

    def read(plan):
        (text,) = export(plan, "megatron-lm").files.values()
        words, variables = sourced(text, "MEGATRON_ARGS", tmp_path)
        for name in [name for name in os.environ if name.startswith("CUDA_DEVICE")]:
            monkeypatch.delenv(name)
        world = {"WORLD_SIZE": str(plan.request["gpus"]), "RANK": "0", "LOCAL_RANK": "0"}
        for name, value in (variables | world).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["pretrain_gpt.py", *words, *WITHOUT_ENGINE])
        return validate_args(parse_args())

    return read


def groups(args):
    """Build all process groups as this rank."""
    parallel_state.initialize_model_parallel(
        args.tensor_model_parallel_size,
        args.pipeline_model_parallel_size,
        args.virtual_pipeline_model_parallel_size,
        context_parallel_size=args.context_parallel_size,
        hierarchical_context_parallel_sizes=args.hierarchical_context_parallel_sizes,
        expert_model_parallel_size=args.expert_model_parallel_size,
        expert_tensor_parallel_size=args.expert_tensor_parallel_size,
        num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
        order="tp-cp-ep-pp-dp" if args.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp",
        create_gloo_process_groups=False,
    )


def degrees(args):
    return {
        "tp": args.tensor_model_parallel_size,
        "cp": args.context_parallel_size,
        "pp": args.pipeline_model_parallel_size,
        "dp": args.data_parallel_size,
        "vpp": args.virtual_pipeline_model_parallel_size or 1,
        "ep": args.expert_model_parallel_size,
        "etp": args.expert_tensor_parallel_size if args.num_experts else 1,
        "micro_batch_size": args.micro_batch_size,
        "global_batch_size": args.global_batch_size,
        "num_microbatches": args.global_batch_size // (args.micro_batch_size * args.data_parallel_size),
        "sequence_parallel": args.sequence_parallel,
        "cp_kind": (args.cp_comm_type[0] if args.cp_comm_type else "p2p").replace("_", "-"),
        "rank_order": "tp-cp-ep-pp-dp" if args.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp",
    }


def planned(plan):
    at = plan.strategy
    kind = at.cp_kind if at.cp > 1 else "p2p"
    return {name: getattr(at, name) for name in (
        "tp", "cp", "pp", "dp", "vpp", "ep", "etp", "micro_batch_size", "global_batch_size", "num_microbatches",
        "sequence_parallel", "rank_order",
    )} | {"cp_kind": kind}  # fmt: skip


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_megatron_understands_the_plan(plan, understood):
    args = understood(plan)
    assert degrees(args) == planned(plan), label(plan)
    config = core_transformer_config_from_args(args)
    assert recomputed(config, plan.strategy) == [stage.recompute_layers for stage in plan.strategy.stages], label(plan)
    sharded = plan.strategy.zero_stage > 0
    assert args.use_distributed_optimizer == sharded
    stages = range(args.pipeline_model_parallel_size)
    assert [layers_of(args, config, stage) for stage in stages] == [s.layers for s in plan.strategy.stages], label(plan)


@pytest.mark.parametrize("plan", ASSUMING, ids=range(len(ASSUMING)))
def test_megatron_takes_what_the_stack_assumes(plan, understood):
    args, at = understood(plan), plan.strategy
    assert degrees(args) == planned(plan), label(plan)
    config = core_transformer_config_from_args(args)
    assert config.tp_comm_overlap == (at.tp > 1 and at.sequence_parallel), label(plan)
    whole = at.recompute in {"full", "partial"}
    graphs = plan.request["stack"] == "nemo-26.06" and not whole and at.offload == "none"
    assert config.cuda_graph_impl == ("transformer_engine" if graphs else "none"), label(plan)
    paired = at.ep > 1 and (at.pp == 1 or at.vpp > 1) and not whole and "moe" not in at.recompute_modules
    predicting = plan.request["model"].get("mtp_layers") and at.pp == 1
    wanted = plan.request["stack"] == "nemo-26.06" and paired and not predicting
    assert config.overlap_moe_expert_parallel_comm == bool(wanted), label(plan)


@pytest.mark.parametrize("plan", CHOSEN, ids=range(len(CHOSEN)))
def test_megatron_takes_the_states_that_were_priced(plan, understood):
    args, asked = understood(plan), plan.request
    name, narrow = asked.get("optimizer", "adam"), asked["precision"] not in {"fp16", "fp32"}
    assert degrees(args) == planned(plan), label(plan)
    assert args.optimizer == {"muon": "muon", "sgd": "sgd"}.get(name, "adam")  # its own name for dist_muon by now
    assert args.exp_avg_dtype == {"adam-bf16": torch.bfloat16, "adam-8bit": torch.uint8}.get(name, torch.float32)
    assert args.main_params_dtype == {"fp16": torch.float16}.get(asked.get("main_params"), torch.float32)
    wide = asked.get("main_grads") != "bf16" if narrow else asked.get("main_grads") == "fp32"
    assert args.accumulate_allreduce_grads_in_fp32 == wide, label(plan)
    assert (args.attention_dropout, args.hidden_dropout) == (0.0, 0.0)


def recomputed(config, strategy):
    """Layers that every stage recomputes whole."""
    if config.recompute_granularity != "full":
        return [0] * strategy.pp
    if config.recompute_method == "uniform":
        return [stage.layers for stage in strategy.stages]
    return [min(config.recompute_num_layers * strategy.vpp, stage.layers) for stage in strategy.stages]


def layers_of(args, config, stage):
    """Layers that Megatron builds on one stage, over all its chunks, with the groups of one of its ranks."""
    world = args.world_size
    width = args.tensor_model_parallel_size * args.context_parallel_size
    rank = stage * (width if args.use_tp_pp_dp_mapping else world // args.pipeline_model_parallel_size)
    with rank_of(rank, world):
        try:
            groups(args)
            assert parallel_state.get_pipeline_model_parallel_rank() == stage
            tensor = parallel_state.get_tensor_model_parallel_group()
            assert torch.distributed.get_process_group_ranks(tensor) == [
                rank + i for i in range(args.tensor_model_parallel_size)
            ]
            chunks = args.virtual_pipeline_model_parallel_size
            return sum(get_num_layers_to_build(config, vp_stage=c) for c in (range(chunks) if chunks else [None]))
        finally:
            parallel_state.destroy_model_parallel()
