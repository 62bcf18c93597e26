"""What the launch scripts of a benchmark switch on, where the pages with its measured runs do not say so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.names import SHARDED_PARAMETERS
from run_words import heard as re

Row = Mapping[str, Any]

NARROW: Final = 32
"""Chips that hold a recipe's model in bf16 throughout."""
ROUNDED: Final = 64
"""Layers of DeepSeek-V3 that are dealt out: the embedding counts as one, the head with its further token as two."""
DROPPED: Final = {
    "moe_dispatcher": "alltoall",
    "moe_pad_expert_input_to_capacity": True,
    "moe_capacity_factor": 1.0,
    "moe_shared_expert_overlap": True,
}
"""Tokens beyond an even load are dropped, places short of it padded, behind a plain all-to-all."""

OFFLOADED: Final[tuple[tuple[str, str, str, int], ...]] = (
    ("llama3-70b", "gb300", "bf16", 30),
    ("llama3-70b", "gb300", "fp8", 20),
    ("llama3-70b", "gb200", "bf16", 20),
    ("llama3-70b", "gb200", "fp8", 40),
    ("llama3-70b", "b200", "fp8", 5),
    ("llama3.1-405b", "gb300", "bf16", 40),
    ("llama3.1-405b", "gb300", "fp8", 10),
    ("llama3.1-405b", "gb200", "fp8", 92),
)
"""Layers whose activations Megatron-Bridge's benchmark offloads where it shards fully: ``cpu_offloading_num_layers`` of
``scripts/performance/configs/llama/*_workload_base_configs.py``, the same from v0.2.0 to v0.5.0 [Megatron-Bridge]."""


WHOLE: Final = "cuda graphs of whole layers"
"""Words for graphs that hold all of a layer."""
REPLAYED: Final[tuple[tuple[str, str, str], ...]] = (
    (r"performance-summary.*container 25\.09", r"qwen3-30b", r"gb200|b200"),
    (r"performance-summary.*container 25\.09", r"qwen3-235b", r"gb200"),
    (r"container 25\.04, dgx-gb200", r"gpt3-175b|llama3-8b|mixtral-8x7b|nemotron4", r"gb200"),
    (r"dgxc-benchmarking v25\.05, nemotron4", r"nemotron4", r"gb200"),
)
"""Source, model and device of runs that replay graphs of whole layers, or of an iteration, and whose tables do not say
so: ``cuda_graphs: true`` in ``scripts/performance/configs/qwen3`` (v0.1.0rc4) [Megatron-Bridge], the column of that
name in ``recommended_model_configs/model_configs_gb200.csv`` [NeMo], ``nemotron/launch.sh`` of dgxc-benchmarking."""


def as_launched(row: Row) -> Row:
    """The run with what its launch script says; what the run says itself is kept."""
    return _narrow(_offloading(_replaying(_deepseek(row))))


def _replaying(row: Row) -> Row:
    """The run with the graphs that its recipe replays, where its table names none."""
    source, model = str(row.get("source")).lower(), str(row["model"].get("name")).lower()
    device, stack = str(row["cluster"].get("accelerator")), row["stack"]
    known = any(
        re.search(place, source) and re.match(name, model) and re.fullmatch(devices, device)
        for place, name, devices in REPLAYED
    )
    return {**row, "stack": {**stack, "notes": f"{stack.get('notes') or ''} {WHOLE}"}} if known else row


def _narrow(row: Row) -> Row:
    """Llama 3.1 70B on 32 chips of Trillium: ``weight_dtype`` is bfloat16 there, and in no other of these recipes."""
    plan, model = row["strategy"], str(row["model"].get("name")).lower()
    here = "tpu-recipes training/trillium" in str(row.get("source"))
    if not here or not re.fullmatch(r"llama3(\.1)?-70b", model) or plan.get("gpus") != NARROW:
        return row
    return {**row, "strategy": {**plan, "precision_note": "bf16 weights and states"}}


def _offloading(row: Row) -> Row:
    """Megatron-Bridge's performance summary with the layers whose activations go to the host."""
    plan, model, device = row["strategy"], str(row["model"].get("name")).lower(), row["cluster"].get("accelerator")
    summary = re.search(r"megatron-bridge docs performance-summary", str(row.get("source")).lower())
    sharded = plan.get("zero_stage") == SHARDED_PARAMETERS and int(plan.get("pp") or 1) == 1
    if summary is None or not sharded or plan.get("offload"):
        return row
    known = (model, device, plan.get("precision"))
    layers = next((count for *one, count in OFFLOADED if tuple(one) == known), 0)
    return {**row, "strategy": {**plan, "offload": f"activations of {layers} layers"}} if layers else row


def _deepseek(row: Row) -> Row:
    """DeepSeek-V3 of NVIDIA's benchmark.

    DeepSeek-V3 in dgxc-benchmarking v25.05 and v25.07: ``deepseek_v3/*/launch.sh`` names the recomputed modules and
    starts NeMo's ``pretrain_deepseek_v3.py`` (commits 7a8f1cc and 00b778e), which trains the layer that predicts a
    further token, drops tokens, deals 64 layers out and runs shared experts beside the dispatch. That of v25.08
    (commit 9244b1e) drops tokens on Blackwell only; Hopper has DeepEP and a forced balance.
    """
    found = re.search(r"dgxc-benchmarking v25\.0([578]), deepseek", str(row.get("source")).lower())
    if found is None:
        return row
    plan, device = row["strategy"], str(row["cluster"].get("accelerator"))
    if found[1] == "8" and device.startswith("h"):
        kernels = {**row["stack"], "notes": f"deepep {row['stack'].get('notes') or ''}"}
        forced = f"forced load balance {row.get('notes') or ''}"
        return {**row, "notes": forced, "stack": kernels, "strategy": _recomputing(plan, "mla_up_proj mlp moe")}
    if found[1] == "8":
        return {**row, "stack": _flagged(row["stack"]), "strategy": _recomputing(plan, "mla_up_proj")}
    return {
        **row,
        "model": {"mtp_layers": 1, **row["model"]},
        "stack": _flagged(row["stack"]),
        "strategy": _dealt(_recomputing(plan, _early_modules(device, int(plan.get("tp") or 1)))),
    }


def _early_modules(device: str, tp: int) -> str:
    """Modules recomputed in v25.05 and v25.07: the attention core where there was no fused one yet."""
    if device.startswith("h"):
        return "mla_up_proj"
    return "core_attn, mla_up_proj" if device == "b200" and tp == 1 else "core_attn"


def _flagged(stack: Row) -> Row:
    return {**stack, "flags": {**DROPPED, **(stack.get("flags") or {})}}


def _recomputing(plan: Row, modules: str) -> Row:
    """The strategy with the modules, where selective recomputation is said without any that are known."""
    return {**plan, "recompute_detail": modules} if plan.get("recompute") == "selective" else plan


def _dealt(plan: Row) -> Row:
    """The strategy with layers per stage: as many everywhere, one fewer on the first stage and two on the last."""
    pp = int(plan.get("pp") or 1)
    if pp == 1 or ROUNDED % pp or plan.get("layers_per_stage"):
        return plan
    each = [ROUNDED // pp] * pp
    each[0] -= 1
    each[-1] -= 2
    return {**plan, "layers_per_stage": each}
