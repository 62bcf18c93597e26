"""Optimizer, formats of states and offloading as arguments of Megatron-LM, as of Megatron-Core 0.17."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from planner.answer.plan import Strategy
from planner.jobs.changed import assumed_stack
from planner.jobs.megatron.write_words import Arguments

_MOMENTS: Final[Mapping[str, str]] = {"adam-bf16": "bf16", "adam-8bit": "fp8"}
_OPTIMIZERS: Final[Mapping[str, str]] = {"sgd": "sgd", "muon": "dist_muon"}
_ABSENT: Final = frozenset({"lamb", "adafactor"})
_GATHERED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("fp8", "fp8-current", "fp8-block", "mxfp8"), "--fp8-param-gather"),
    "nvfp4": "--fp4-param-gather",
}
"""How weights in the format of the products are asked for."""


def saver_arguments(strategy: Strategy, request: Mapping[str, Any]) -> Arguments:
    """Arguments for what a request and its strategy save, and remarks on what they cannot say."""
    weights, beside = _weights(strategy, request)
    words = [*_optimizer(strategy, request), *weights]
    if strategy.offload == "activations":
        words += ["--fine-grained-activation-offloading", "--offload-modules"]
        words += ["attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act"]
    return words, (*savers_unsaid(strategy, request), *beside)


def shards_by_itself(request: Mapping[str, Any]) -> bool:
    """Whether the optimizer shares its states out layer by layer, in place of Megatron-LM's distributed optimizer."""
    return chosen_of(request, "optimizer") == "muon"


def chosen_of(request: Mapping[str, Any], name: str) -> Any:
    """A choice as it was priced; of a stack that the catalogue lacks, as it was asked for."""
    priced = assumed_stack(request)
    return request.get(name) if priced is None else getattr(priced.switches, name)


def _optimizer(strategy: Strategy, request: Mapping[str, Any]) -> Iterator[str]:
    name = str(chosen_of(request, "optimizer") or "adam")
    if name in _OPTIMIZERS:
        yield from ("--optimizer", _OPTIMIZERS[name])
    yield from _gradients(request)
    # The precision-aware optimizer is Adam's, and the distributed optimizer's: gradients alone are narrow without it.
    aware = _aware(request, name) if name.startswith("adam") and strategy.zero_stage else {}
    offloaded = strategy.offload.startswith("optimizer")
    if offloaded or any(aware.values()):
        yield "--use-precision-aware-optimizer"
    for option, value in aware.items():
        yield from (option, value) if value else ()
    if offloaded:
        share = chosen_of(request, "offload_fraction") or 1.0
        yield from ("--optimizer-cpu-offload", "--optimizer-offload-fraction", f"{share:g}")
        yield "--overlap-cpu-optimizer-d2h-h2d"


def _weights(strategy: Strategy, request: Mapping[str, Any]) -> Arguments:
    """Weights that are kept and gathered as they are multiplied, which the distributed optimizer alone does."""
    option = _GATHERED.get(str(request.get("precision")))
    if option is None or not chosen_of(request, "fp8_param_gather"):
        return [], ()
    if shards_by_itself(request) or not strategy.zero_stage:
        return [], (f"{option} needs --use-distributed-optimizer: weights stay in 16 bits, which the plan has in 8",)
    if strategy.offload.startswith("optimizer") and request.get("precision") != "fp8":
        return [], (f"{option} goes with offloaded states under delayed scaling alone: weights stay in 16 bits",)
    return [option], ()


def _gradients(request: Mapping[str, Any]) -> Iterator[str]:
    """In fp16 Megatron-LM adds gradients up as they are, in bf16 in fp32, unless it is told otherwise."""
    wanted, precision = request.get("main_grads"), request.get("precision")
    if precision == "fp16" and wanted == "fp32":
        yield "--accumulate-allreduce-grads-in-fp32"
    elif wanted == "bf16" and precision not in {"fp16", "fp32"}:
        yield "--grad-reduce-in-bf16"


def _aware(request: Mapping[str, Any], name: str) -> dict[str, str | None]:
    """Formats that the precision-aware optimizer is told, None for its own."""
    moments = _MOMENTS.get(name)
    params = chosen_of(request, "main_params")
    grads = request.get("main_grads") if request.get("precision") not in {"fp16", "fp32"} else None
    return {
        "--main-params-dtype": None if params == "fp32" else params,
        "--main-grads-dtype": None if grads == "fp32" else grads,
        "--exp-avg-dtype": moments,
        "--exp-avg-sq-dtype": moments,
    }


def savers_unsaid(strategy: Strategy, request: Mapping[str, Any]) -> tuple[str, ...]:
    """What of a request and its strategy these arguments cannot say."""
    return tuple(_remarks(strategy, request))


def _remarks(strategy: Strategy, request: Mapping[str, Any]) -> Iterator[str]:
    if (name := chosen_of(request, "optimizer")) in _ABSENT:
        yield f"Megatron-LM has no optimizer {name}; these arguments run Adam"
    if block := request.get("loss_block"):
        yield f"Megatron-LM has no loss in blocks of {block} tokens"
    if chosen_of(request, "loss") == "fused":
        yield "Megatron-LM has no loss fused with the head's product"
    if strategy.offload == "optimizer+parameters":
        yield "Megatron-LM keeps parameters on the device; these arguments offload the optimizer alone"
    if request.get("precision") == "fp8-rowwise":
        yield "Megatron-LM has no row-wise scaling; these arguments scale by tensor"
