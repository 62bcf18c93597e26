"""Optimizer, formats of states, loss and offloading as arguments of Megatron-LM, as of Megatron-Core 0.17."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from planner.document import Strategy
from planner.export.megatron_words import Arguments

_MOMENTS: Final[Mapping[str, str]] = {"adam-bf16": "bf16", "adam-8bit": "fp8"}
_OPTIMIZERS: Final[Mapping[str, str]] = {"sgd": "sgd", "muon": "dist_muon"}
_ABSENT: Final = frozenset({"lamb", "adafactor"})


def saver_arguments(strategy: Strategy, request: Mapping[str, Any]) -> Arguments:
    """Arguments for what a request and its strategy save, and remarks on what they cannot say."""
    words = [*_optimizer(strategy, request), *_loss(request)]
    if request.get("fp8_param_gather"):
        words.append("--fp8-param-gather")
    if strategy.offload == "activations":
        words += ["--fine-grained-activation-offloading", "--offload-modules"]
        words += ["attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act"]
    return words, savers_unsaid(strategy, request)


def _optimizer(strategy: Strategy, request: Mapping[str, Any]) -> Iterator[str]:
    name = str(request.get("optimizer") or "adam")
    if name in _OPTIMIZERS:
        yield from ("--optimizer", _OPTIMIZERS[name])
    if request.get("main_grads") == "bf16":
        yield "--grad-reduce-in-bf16"
    aware = {"--main-params-dtype": request.get("main_params"), "--main-grads-dtype": request.get("main_grads")}
    moments = _MOMENTS.get(name)
    aware |= {"--exp-avg-dtype": moments, "--exp-avg-sq-dtype": moments}
    offloaded = strategy.offload.startswith("optimizer")
    if offloaded or any(aware.values()):
        yield "--use-precision-aware-optimizer"
    for option, value in aware.items():
        yield from (option, value) if value else ()
    if offloaded:
        share = request.get("offload_fraction") or 1.0
        yield from ("--optimizer-cpu-offload", "--optimizer-offload-fraction", f"{share:g}")
        yield "--overlap-cpu-optimizer-d2h-h2d"


def _loss(request: Mapping[str, Any]) -> Iterator[str]:
    if request.get("loss") == "fused":
        yield from ("--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl", "linear")


def savers_unsaid(strategy: Strategy, request: Mapping[str, Any]) -> tuple[str, ...]:
    """What of a request and its strategy these arguments cannot say."""
    return tuple(_remarks(strategy, request))


def _remarks(strategy: Strategy, request: Mapping[str, Any]) -> Iterator[str]:
    if request.get("optimizer") in _ABSENT:
        yield f"Megatron-LM has no optimizer {request['optimizer']}; these arguments run Adam"
    if request.get("loss_block"):
        yield f"Megatron-LM has no loss in blocks of {request['loss_block']} tokens"
    if strategy.offload == "optimizer+parameters":
        yield "Megatron-LM keeps parameters on the device; these arguments offload the optimizer alone"
    if request.get("precision") == "fp8-rowwise":
        yield "Megatron-LM has no row-wise scaling; these arguments scale by tensor"
