"""What a stack hides or captures, as arguments of Megatron-Core 0.17: without them the price would promise too much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from costmodels.stack.stack import Stack
from planner.answer.plan import Strategy
from planner.jobs.changed import assumed_stack
from planner.jobs.megatron.write_words import Arguments

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
    parts = (_tensor(strategy, assumed), experts, graphs, _gradients(assumed, request))
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
    if assumed.switches.dispatcher == "allgather":
        yield "where tokens are gathered"
    if assumed.switches.shared_expert_overlap:
        yield "beside shared experts that hide it"


def _gradients(assumed: Stack, request: Mapping[str, Any]) -> Arguments:
    """Where the stack adds gradients up in another format than Megatron-LM, and the request says none of its own."""
    kept, sent, precision = assumed.gradients.gradient_bytes, assumed.gradients.reduce_bytes, request.get("precision")
    if request.get("main_grads"):
        return [], ()
    if kept != sent:
        said = f"gradients up in {8 * kept} bits and reduces them in {8 * sent}"
        return [], (f"stack {assumed.name} adds {said}; Megatron-LM does both in one format",)
    if precision == "fp16":
        return (["--accumulate-allreduce-grads-in-fp32"] if kept == _FP32 else []), ()
    return (["--grad-reduce-in-bf16"] if kept < _FP32 and precision != "fp32" else []), ()


def _graphs(strategy: Strategy, assumed: Stack, request: Mapping[str, Any], *, paired: bool) -> Arguments:
    if not (assumed.switches.cuda_graphs or assumed.switches.cuda_graph_scope):
        return [], ()
    if strategy.recompute in {"full", "partial"} or strategy.offload != "none":
        why = "recomputed" if strategy.offload == "none" else "offloaded"
        return [], (f"stack {assumed.name} replays graphs; Megatron-LM captures none of layers that are {why}",)
    scope = [
        part
        for part in assumed.switches.cuda_graph_scope or _scope(strategy, request)
        if not (paired and part in {"mlp", "moe"})
    ]
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
