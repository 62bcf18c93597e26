"""x"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from costmodels.stack.stack import Stack
from planner.answer.plan import Strategy
from planner.jobs.choices import assumed_stack
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
    return request.get(name) if priced is None else getattr(priced, name)


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


_FP32: Final = 4
"""Bytes of a value."""
_GRAPHED_EXPERTS: Final = ("attn", "moe_router", "moe_preprocess")
"""What of a layer with experts is captured where no token is dropped: sizes behind the router are the device's."""


def stack_arguments(strategy: Strategy, request: Mapping[str, Any]) -> Arguments:
    """Flags for what the request's stack assumes, and remarks where Megatron-LM refuses them for this strategy.

    Args:
        strategy: degrees, switches and stages.
        request: the resolved request of the answer, with its stack and its model.
    """
    assumed, model = assumed_stack(request), request.get("model")
    if assumed is None or not isinstance(model, Mapping):
        return [], ()
    experts = _experts(strategy, assumed, model)
    graphs = _graphs(strategy, assumed, request, paired=bool(experts[0]))
    parts = (_tensor(strategy, assumed), experts, graphs, _stack_gradients(assumed, request))
    return [word for words, _ in parts for word in words], tuple(said for _, remarks in parts for said in remarks)


def _tensor(strategy: Strategy, assumed: Stack) -> Arguments:
    if strategy.tp == 1 or assumed.overlap.tp_forward == 1:
        return [], ()
    if strategy.sequence_parallel:
        return ["--tp-comm-overlap"], ()
    return [], (
        f"stack {assumed.name} hides tensor-parallel traffic; Megatron-LM does so under --sequence-parallel only",
    )


def _experts(strategy: Strategy, assumed: Stack, model: Mapping[str, Any]) -> Arguments:
    """Micro-batches in pairs, so that one computes while the tokens of the other travel."""
    if strategy.ep == 1 or assumed.overlap.ep == 1:
        return [], ()
    if why := next(_unpaired(strategy, assumed, model), None):
        return [], (f"stack {assumed.name} hides experts' traffic; Megatron-LM does not {why}",)
    return ["--overlap-moe-expert-parallel-comm"], (
        "--delay-wgrad-compute, from Transformer Engine 2.8 on, hides more of the experts' traffic than is priced",
    )


def _unpaired(strategy: Strategy, assumed: Stack, model: Mapping[str, Any]) -> Iterator[str]:
    """Why not, by TransformerConfig."""
    predicted = int(model.get("mtp_layers") or 0)
    if strategy.pp > 1 and strategy.vpp == 1:
        yield "in a pipeline without interleaving"
    if strategy.recompute in {"full", "partial"}:
        yield "where whole layers are recomputed"
    if "moe" in strategy.recompute_modules:
        yield "where experts are recomputed"
    if predicted > 1 or (predicted and strategy.pp == 1):
        yield f"with {predicted} layers that predict further tokens on {strategy.pp} stages"
    if assumed.dispatch == "allgather":
        yield "where tokens are gathered"
    if assumed.shared_expert_overlap:
        yield "beside shared experts that hide it"


def _stack_gradients(assumed: Stack, request: Mapping[str, Any]) -> Arguments:
    """Where the stack adds gradients up in another format than Megatron-LM, and the request says none of its own."""
    kept, sent, precision = assumed.gradient_bytes, assumed.reduce_bytes, request.get("precision")
    if request.get("main_grads"):
        return [], ()
    if kept != sent:
        said = f"gradients up in {8 * kept} bits and reduces them in {8 * sent}"
        return [], (f"stack {assumed.name} adds {said}; Megatron-LM does both in one format",)
    if precision == "fp16":
        return (["--accumulate-allreduce-grads-in-fp32"] if kept == _FP32 else []), ()
    return (["--grad-reduce-in-bf16"] if kept < _FP32 and precision != "fp32" else []), ()


def _graphs(strategy: Strategy, assumed: Stack, request: Mapping[str, Any], *, paired: bool) -> Arguments:
    if not (assumed.cuda_graphs or assumed.graphs):
        return [], ()
    if strategy.recompute in {"full", "partial"} or strategy.offload != "none":
        why = "recomputed" if strategy.offload == "none" else "offloaded"
        return [], (f"stack {assumed.name} replays graphs; Megatron-LM captures none of layers that are {why}",)
    scope = [part for part in assumed.graphs or _scope(strategy, request) if not (paired and part in {"mlp", "moe"})]
    return ["--cuda-graph-impl", "transformer_engine", *(["--cuda-graph-scope", *scope] if scope else [])], ()


def _scope(strategy: Strategy, request: Mapping[str, Any]) -> Sequence[str]:
    """Parts of a layer; none named is all of it."""
    model = request["model"]
    hybrid, moe = str(model.get("layer_pattern") or ""), model.get("moe")
    if not moe:
        return ("attn", "mamba", "mlp") if hybrid else ()
    parts = list(_GRAPHED_EXPERTS)
    if request.get("expert_capacity") is not None:
        parts.remove("moe_preprocess")
    if "moe" in strategy.recompute_modules:
        parts = ["attn"]
    return [*parts, *(["mamba"] if "M" in hybrid else []), *(["mlp"] if moe.get("dense_layers") else [])]
