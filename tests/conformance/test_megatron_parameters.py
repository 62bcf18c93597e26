"""Megatron's own model, built stage by stage without memory, against the parameters that the memory model counts."""

import os
import sys

import pytest
import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.tokenizers.text.libraries.null_tokenizer import NullTokenizer
from megatron.core.tokenizers.utils.build_tokenizer import vocab_size_with_padding
from megatron.training.arguments import core_transformer_config_from_args, parse_args, validate_args

from costmodels.memory.rows import row_bytes
from planner.answer.load import strategy_from_plan
from planner.jobs.registry import export
from planner.request.request import PlanRequest
from planner.request.resolve import resolve
from tests.conformance.plans import label, random_plans
from tests.conformance.test_megatron_lm import WITHOUT_ENGINE, groups, hopper
from tests.conformance.world import rank_of

__all__ = ["hopper"]

PLANS = random_plans(
    "megatron-lm", 60, seed=3, precisions=("bf16",),
    models=("llama3-8b", "llama3-70b", "qwen2.5-7b", "mistral-7b", "mixtral-8x7b", "qwen3-30b-a3b", "gpt3-13b",
            "gpt-oss-20b"),
)  # fmt: skip


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_every_stage_holds_the_parameters_that_its_memory_is_counted_by(plan, monkeypatch):
    built, counted = list(megatron(plan, monkeypatch)), ours(plan)
    assert built == pytest.approx(counted, rel=2e-3), label(plan)


def megatron(plan, monkeypatch):
    """Parameters of one rank of every stage; sequence and context parallelism, which split none, are left out."""
    exported = export(plan, "megatron-lm")
    words = [word for word in exported.program[1:] if word != "--sequence-parallel"]
    world = {"WORLD_SIZE": str(plan.request["gpus"]), "RANK": "0", "LOCAL_RANK": "0"}
    for name, value in (dict(exported.environment) | world).items():
        monkeypatch.setitem(os.environ, name, value)
    monkeypatch.setattr(torch.cuda, "Stream", lambda *_a, **_k: None)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor, *_a, **_k: tensor)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: torch.device("meta"))
    monkeypatch.setattr(sys, "argv", ["pretrain_gpt.py", *words, *WITHOUT_ENGINE])
    args = validate_args(parse_args())
    config = core_transformer_config_from_args(args)
    config.perform_initialization, config.use_cpu_initialization = False, True
    cp, config.context_parallel_size, config.fp8 = config.context_parallel_size, 1, None
    for stage in range(args.pipeline_model_parallel_size):
        width = args.tensor_model_parallel_size * cp
        whole = args.world_size // args.pipeline_model_parallel_size
        rank = stage * (width if args.use_tp_pp_dp_mapping else whole)
        with rank_of(rank, args.world_size):
            try:
                groups(args)
                yield sum(_parameters(args, config, chunk) for chunk in range(plan.strategy.vpp))
            finally:
                parallel_state.destroy_model_parallel()


def _parameters(args, config, chunk):
    chunks = args.virtual_pipeline_model_parallel_size
    stage = chunk if chunks else None
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, vp_stage=stage)
    first = parallel_state.is_pipeline_first_stage(ignore_virtual=chunks is None, vp_stage=stage)
    last = parallel_state.is_pipeline_last_stage(ignore_virtual=chunks is None, vp_stage=stage)
    padded = args.padded_vocab_size or vocab_size_with_padding(NullTokenizer(args.vocab_size).vocab_size, args, False)
    with torch.device("meta"):
        model = GPTModel(
            config, spec, padded, args.max_position_embeddings, pre_process=first, post_process=last,
            share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
            position_embedding_type=args.position_embedding_type, vp_stage=stage,
        )  # fmt: skip
    return sum(parameter.numel() for parameter in model.parameters())


def ours(plan):
    """Parameters of one rank of every stage, as the memory model counts them."""
    fields = {name: value for name, value in plan.request.items() if name != "pins"}
    scenario = resolve(PlanRequest(**fields)).scenario
    at, memory = plan.strategy, row_bytes(strategy_from_plan(plan.strategy), scenario)
    layer = memory.layer_parameters[0] + memory.expert_parameters[0]
    counts = [stage.layers * layer for stage in at.stages]
    counts[0] += memory.embedding_parameters[0]
    counts[-1] += memory.head_parameters[0]
    return counts
