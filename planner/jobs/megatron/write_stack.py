"""What was chosen besides the strategy, as arguments of Megatron-LM: the optimizer, its states, what a stack hides.

As of Megatron-Core 0.19; without what a stack hides or captures the price would promise too much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from costmodels.stack.stack import Stack
from planner.answer.plan import Strategy
from planner.jobs.job import assumed_stack, switches_of
from planner.jobs.megatron.options import FLASH, MOMENTS, NATIVE_LOSS, OPTIONS, STANDS_FOR, SWITCHED, TE_LOSS, UNFUSED
from planner.jobs.options import applicable

Values = tuple[dict[str, Any], tuple[str, ...]]
"""Values by the fields of Megatron-LM's options, and remarks on what they cannot say."""

_PRESENT: Final = frozenset({"adam", "adam-bf16", "adam-8bit", "sgd", "muon"})
_GATHERED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("fp8", "fp8-current", "fp8-block", "mxfp8"), "fp8_param_gather"),
    "nvfp4": "fp4_param_gather",
}
"""How weights in the format of the products are asked for."""
_OFFLOADED: Final = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act")
_FP32: Final = 4
"""Bytes of a value."""
_GRAPHED_EXPERTS: Final = ("attn", "moe_router", "moe_preprocess")
"""What of a layer with experts is captured where no token is dropped: sizes behind the router are the device's."""


def state_values(strategy: Strategy, request: Mapping[str, Any]) -> Values:
    """What a request and its strategy have of the optimizer, the formats of its states, and offloading."""
    weights, remarks = _weights(strategy, request)
    offloaded = {"fine_grained_activation_offloading": True, "offload_modules": _OFFLOADED}
    values = _optimizer(strategy, request) | weights | (offloaded if strategy.offload == "activations" else {})
    return values, (*state_lacks(strategy, request), *remarks)


def shards_by_itself(request: Mapping[str, Any]) -> bool:
    """Whether the optimizer shares its states out layer by layer, in place of Megatron-LM's distributed optimizer."""
    return switches_of(request).optimizer == "muon"


def _optimizer(strategy: Strategy, request: Mapping[str, Any]) -> dict[str, Any]:
    switches = switches_of(request)
    name = switches.optimizer
    # The precision-aware optimizer is Adam's, and the distributed optimizer's: gradients alone are narrow without it.
    aware = _formats(request, name) if name.startswith("adam") and _distributes(strategy) else {}
    offloaded = strategy.offload.startswith("optimizer")
    values = {"optimizer": name if name in {"sgd", "muon"} else None, **_gradients(request), **aware}
    values["use_precision_aware_optimizer"] = offloaded or any(aware.values())
    if offloaded:
        values |= {"optimizer_cpu_offload": True, "overlap_cpu_optimizer_d2h_h2d": True}
        values["offload_fraction"] = switches.offload_fraction
    if values["use_precision_aware_optimizer"] and _distributes(strategy):
        values["use_distributed_optimizer"] = True
    return values


def _distributes(strategy: Strategy) -> bool:
    """Whether the distributed optimizer runs or may: over one data rank it changes nothing but what else it allows."""
    return strategy.zero_stage > 0 or strategy.dp * strategy.cp == 1


def _weights(strategy: Strategy, request: Mapping[str, Any]) -> Values:
    """Weights that are kept and gathered as they are multiplied, which the distributed optimizer alone does."""
    field = _GATHERED.get(str(request.get("precision")))
    if field is None or not switches_of(request).fp8_param_gather:
        return {}, ()
    option = f"--{OPTIONS[field].word}"
    if shards_by_itself(request) or not _distributes(strategy):
        return {}, (f"{option} needs --use-distributed-optimizer: weights stay in 16 bits, which the plan has in 8",)
    if strategy.offload.startswith("optimizer") and request.get("precision") != "fp8":
        return {}, (f"{option} goes with offloaded states under delayed scaling alone: weights stay in 16 bits",)
    return {field: True, "use_distributed_optimizer": True}, ()


def _gradients(request: Mapping[str, Any]) -> dict[str, Any]:
    """In fp16 Megatron-LM adds gradients up as they are, in bf16 in fp32, unless an option says otherwise."""
    wanted, precision = request.get("main_grads"), request.get("precision")
    return {
        "accumulate_allreduce_grads_in_fp32": precision == "fp16" and wanted == "fp32",
        "grad_reduce_in_bf16": wanted == "bf16" and precision not in {"fp16", "fp32"},
    }


def _formats(request: Mapping[str, Any], name: str) -> dict[str, str | None]:
    """Formats that the precision-aware optimizer is given, None for its own."""
    moments = next((kind for kind, optimizer in MOMENTS.items() if optimizer == name), None)
    params = switches_of(request).main_params
    grads = request.get("main_grads") if request.get("precision") not in {"fp16", "fp32"} else None
    return {
        "main_params": None if params == "fp32" else params,
        "main_grads": None if grads == "fp32" else grads,
        "moments": moments,
        "second_moments": moments,
    }


def state_lacks(strategy: Strategy, request: Mapping[str, Any]) -> tuple[str, ...]:
    """What of a request and its strategy Megatron-LM's arguments cannot say of these."""
    switches, precision = switches_of(request), request.get("precision")
    return applicable({
        f"Megatron-LM has no optimizer {switches.optimizer}; these arguments run Adam": switches.optimizer
        not in _PRESENT,
        "Megatron-LM adds the gradients of fp32 up in fp32; --main-grads fp32 prices that": (
            request.get("main_grads") == "bf16" and precision == "fp32"
        ),
        f"Megatron-LM has no loss in blocks of {request.get('loss_block')} tokens": bool(request.get("loss_block")),
        "Megatron-LM has no loss fused with the head's product": switches.loss == "fused",
        "Megatron-LM keeps parameters on the device; these arguments offload the optimizer alone": (
            strategy.offload == "optimizer+parameters"
        ),
        "Megatron-LM has no row-wise scaling; these arguments scale by tensor": precision == "fp8-rowwise",
    })  # fmt: skip


def changed_values(request: Mapping[str, Any]) -> dict[str, Any]:
    """What a request changed of its stack, as the options that stand for it; what is switched off is left out."""
    changes: Mapping[str, Any] = request.get("changes") or {}
    values: dict[str, Any] = {flag: True for flag, fields in STANDS_FOR.items() if fields.items() <= changes.items()}
    values |= {flag: changes[path] for flag, name in SWITCHED.items() if (path := f"stack.{name}") in changes}
    if (size := changes.get("stack.bucket_size")) and "stack.sharding.bucket_per_rank" in changes:
        values["bucket_size"] = size
    if changes.items() >= UNFUSED.items():
        values["attention"] = "unfused"
    values |= {"attention_dropout": "0.0", "hidden_dropout": "0.0"} if changes.get("stack.dropout") is False else {}
    values |= {"attention": "flash"} if changes.get("stack.attention_backend") in FLASH.values() else {}
    moved = {NATIVE_LOSS: "native", TE_LOSS: "te"}.get(changes.get("stack.logits.cross_entropy_traffic", 0))
    return values | ({"cross_entropy_loss_fusion": True, "loss": moved} if moved else {})


def stack_values(strategy: Strategy, request: Mapping[str, Any]) -> Values:
    """Flags for what the request's stack assumes, and remarks where Megatron-LM refuses them for this strategy."""
    assumed, model = assumed_stack(request), request.get("model")
    if assumed is None or not isinstance(model, Mapping):
        return {}, ()
    experts = _experts(strategy, assumed, model)
    graphs = _graphs(strategy, assumed, request, paired=bool(experts[0]))
    parts = (_tensor(strategy, assumed), experts, graphs, _stack_gradients(assumed, request))
    values = {field: value for found, _ in parts for field, value in found.items()}
    return values, tuple(remark for _, remarks in parts for remark in remarks)


def _tensor(strategy: Strategy, assumed: Stack) -> Values:
    if strategy.tp == 1 or assumed.overlap.tp_forward == 1:
        return {}, ()
    if strategy.sequence_parallel:
        return {"tp_comm_overlap": True}, ()
    only = "Megatron-LM does so under --sequence-parallel only"
    return {}, (f"stack {assumed.name} hides tensor-parallel traffic; {only}",)


def _experts(strategy: Strategy, assumed: Stack, model: Mapping[str, Any]) -> Values:
    """Micro-batches in pairs, so that one computes while the tokens of the other travel."""
    if strategy.ep == 1 or assumed.overlap.ep == 1:
        return {}, ()
    if why := next(_unpaired(strategy, assumed, model), None):
        return {}, (f"stack {assumed.name} hides experts' traffic; Megatron-LM does not {why}",)
    return {"overlap_moe_expert_parallel_comm": True}, (
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
        yield "where shared experts hide it"


def _stack_gradients(assumed: Stack, request: Mapping[str, Any]) -> Values:
    """Where the stack adds gradients up in another format than Megatron-LM, and the request says none of its own."""
    kept, sent, precision = assumed.gradients.gradient_bytes, assumed.gradients.reduce_bytes, request.get("precision")
    if request.get("main_grads"):
        return {}, ()
    if kept != sent:
        formats = f"gradients up in {8 * kept} bits and reduces them in {8 * sent}"
        return {}, (f"stack {assumed.name} adds {formats}; Megatron-LM does both in one format",)
    if precision == "fp16":
        return {"accumulate_allreduce_grads_in_fp32": kept == _FP32}, ()
    return {"grad_reduce_in_bf16": kept < _FP32 and precision != "fp32"}, ()


def _graphs(strategy: Strategy, assumed: Stack, request: Mapping[str, Any], *, paired: bool) -> Values:
    if not (assumed.switches.cuda_graphs or assumed.switches.cuda_graph_scope):
        return {}, ()
    if strategy.recompute in {"full", "partial"} or strategy.offload != "none":
        why = "recomputed" if strategy.offload == "none" else "offloaded"
        return {}, (f"stack {assumed.name} replays graphs; Megatron-LM captures none of layers that are {why}",)
    parts = assumed.switches.cuda_graph_scope or _scope(strategy, request)
    scope = [part for part in parts if not (paired and part in {"mlp", "moe"})]
    return {"graphs": "transformer_engine", "cuda_graph_scope": scope or None}, ()


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
