"""Megatron-Bridge's overrides against Megatron-Core: its package needs devices and more than installs here."""

import dataclasses

import pytest
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig
from megatron.core.transformer import transformer_config
from megatron.core.transformer.transformer_config import TransformerConfig

from planner.jobs.registry import export
from tests.conformance.plans import DENSE, label, random_plans
from tests.conformance.shell import sourced

PLANS = random_plans(
    "megatron-bridge", 220, seed=31, precisions=("bf16", "fp8"), models=(*DENSE, "mixtral-8x7b", "gpt-oss-20b")
)
CHOSEN = [
    plan
    for fields in ({"optimizer": "muon"}, {"optimizer": "adam-bf16"}, {"main_params": "fp16"})
    for plan in random_plans("megatron-bridge", 12, seed=32, models=DENSE, precisions=("bf16",), **fields)
]
FIELDS = {
    "model": {field.name for field in dataclasses.fields(TransformerConfig)} | {"seq_length"},
    "ddp": {field.name for field in dataclasses.fields(DistributedDataParallelConfig)},
    "optimizer": {field.name for field in dataclasses.fields(OptimizerConfig)},
    "train": {"micro_batch_size", "global_batch_size"},
    "dist": {"use_tp_pp_dp_mapping"},
}


def value(text):
    if text.startswith("["):
        return [value(part) for part in text[1:-1].split(",")]
    named = {"true": True, "false": False}
    if text.replace(".", "", 1).isdecimal():
        return float(text) if "." in text else int(text)
    return named.get(text, text.strip("'"))


@pytest.mark.parametrize("plan", [*PLANS, *CHOSEN], ids=range(len(PLANS) + len(CHOSEN)))
def test_megatron_core_takes_the_overrides(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(transformer_config, "is_te_min_version", lambda *_a, **_k: True)
    words, _ = sourced(export(plan, "megatron-bridge").files["bridge-overrides.sh"], "BRIDGE_OVERRIDES", tmp_path)
    given = dict(word.split("=", 1) for word in words)
    for name in given:
        section, _, field = name.partition(".")
        assert not field or field in FIELDS[section], name
    model = {name.partition(".")[2]: value(text) for name, text in given.items() if name.startswith("model.")}
    at, shape = plan.strategy, plan.request["model"]
    assert model.pop("seq_length") == plan.request["seq_length"]
    modes = {"bf16": True, "pipeline_dtype": "bf16"}
    moe = {"num_moe_experts": shape["moe"]["num_experts"], "moe_grouped_gemm": True} if shape.get("moe") else {}
    made = TransformerConfig(
        num_layers=shape["num_layers"], hidden_size=shape["hidden_size"], num_attention_heads=shape["num_heads"],
        num_query_groups=shape.get("num_query_groups"), add_bias_linear=False, **modes, **moe, **model,
    )  # fmt: skip
    assert made.tensor_model_parallel_size == at.tp, label(plan)
    assert (made.pipeline_model_parallel_size, made.context_parallel_size) == (at.pp, at.cp)
    assert (made.virtual_pipeline_model_parallel_size or 1) == at.vpp
    assert made.sequence_parallel == at.sequence_parallel
    assert value(given["train.global_batch_size"]) == at.global_batch_size
    alone = plan.request.get("optimizer") == "muon"
    written = "ddp.use_distributed_optimizer" in given
    assert written == (at.zero_stage > 0 and not alone) or (written and at.dp == 1)  # as narrow states need it
