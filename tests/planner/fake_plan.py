"""A fixed plan and an infeasible one, so that the screen is tested without the search."""

from typing import Any

from costmodels.model.catalogue import model
from planner.answer.plan import Plan

GIB = 2**30


def strategy(**changes: Any) -> dict[str, Any]:
    fields = {
        "tp": 8, "cp": 1, "cp_kind": "p2p", "cp_near": 1, "pp": 8, "vpp": 6, "dp": 192, "ep": 1, "etp": 1,
        "zero_stage": 1, "sharding_degree": 192, "micro_batch_size": 1, "num_microbatches": 32,
        "global_batch_size": 6144, "schedule": "interleaved-1f1b", "sequence_parallel": True, "recompute": "none",
        "rank_order": "tp-cp-ep-dp-pp",
    }  # fmt: skip
    stages = [{"layers": 12, "recompute_layers": 0, "group": "dgx-a100-80gb"}] * changes.get("pp", 8)
    return {**fields, "stages": stages, **changes}


def stage(number: int, total: float) -> dict[str, float]:
    parts = {"weights": 5.2, "gradients": 10.4, "optimizer": 0.2, "logits": 0.4, "slack": 1.1, "reserved": 2.0}
    activations = total - sum(parts.values())
    quantities = {**parts, "activations": activations, "total": total, "limit": 79.2}
    return {"stage": number} | {name: value * GIB for name, value in quantities.items()}


def request() -> dict[str, Any]:
    return {
        "model": {**model("gpt3-175b").model_dump(exclude_defaults=True), "parameters": 174_600_000_000},
        "cluster": {
            "name": "dgx-a100-80gb", "accelerator": "a100-sxm-80gb", "gpus_per_node": 8, "nodes": 1536,
        },
        "stack": "megatron-core", "gpus": 12288, "global_batch_size": 6144, "seq_length": 2048,
        "tokens": 300_000_000_000, "precision": "bf16", "objective": "time", "pins": {},
    }  # fmt: skip


PROVENANCE = {"version": "0.1.0", "catalogue_hash": "0123456789ab", "sources": ["model gpt3-175b: arXiv 2005.14165"]}


def document() -> dict[str, Any]:
    other = strategy(pp=16, dp=96, sharding_degree=96)
    return {
        "schema": "plan/1",
        "status": "optimal",
        "request": request(),
        "defaults": ["stack megatron-core", "300B training tokens (the model's)"],
        "strategy": strategy(),
        "prediction": {
            "iteration_seconds": 6.71, "mfu": 0.527, "hfu": 0.527, "model_tflops_per_gpu": 164.4,
            "tokens_per_second": 1.875e6, "tokens_per_second_per_gpu": 152.6, "iterations": 23842,
            "training_days": 1.852, "gpu_hours": 546_100.0, "cost_dollars": 1.61e6,
            "energy_megawatt_hours": 301.4,
            "interval": {"low": 6.1, "high": 7.4, "coverage": 0.9},
        },
        "breakdown_seconds": {
            "compute": 5.22, "recompute": 0.0, "tp": 0.66, "cp": 0.0, "pp": 0.11, "bubble": 0.21, "dp": 0.17,
            "optimizer": 0.06, "host": 0.1, "straggler": 0.18,
        },
        "memory_bytes": [stage(number, 30.8 - 0.3 * number) for number in range(8)],
        "alternatives": [
            {"strategy": other, "iteration_seconds": 6.79, "mfu": 0.52, "peak_memory_bytes": 23.3 * GIB,
             "differs": "PP 16 instead of 8"},
        ],
        "why_not": [
            {"subject": "TP 16", "text": "leaves the 8-GPU NVLink domain; tp exposed 0.66 → 5.8 s"},
            {"subject": "data parallel", "text": "12,288 replicas, but only 6,144 sequences per batch"},
        ],
        "what_helps": [{"subject": "fabric 2x", "text": "-0.14 s", "iteration_seconds": 6.57}],
        "closest_run": "175 B on 12,288 GPUs: 55.2 % MFU (MegaScale, NSDI 2024)",
        "rejected": [
            {"rule": "memory", "count": 1049652, "example": "stage 0 needs 110.6 GiB, 79.2 available"},
        ],
        "proof": {
            "candidates": 1347840, "feasible": 298188, "priced": 298188, "solves": 36,
            "lower_bound_seconds": 6.71, "gap": 0.0, "wall_seconds": 2.1,
            "statement": "the next best row cannot beat 6.71 s",
        },
        "provenance": PROVENANCE,
    }  # fmt: skip


def fake_plan(**changes: Any) -> Plan:
    return Plan.model_validate(document() | changes)


def infeasible_plan() -> Plan:
    kept = {"schema", "request", "defaults", "proof", "provenance"}
    return Plan.model_validate(
        {name: value for name, value in document().items() if name in kept}
        | {
            "status": "infeasible",
            "rejected": [
                {"rule": "memory", "count": 812, "example": "stage 0 needs 410.6 GiB of memory, 79.2 GiB available"},
                {"rule": "heads", "count": 40, "example": "tp 5 does not divide the 96 attention heads; 4 and 6 do"},
            ],
            "nearest": {"subject": "64 GPUs", "text": "TP 8, PP 8 fits at 41.2 s per iteration"},
        }
    )
