"""Seconds of one layer of any kind, of the embedding and of the output head, per micro-batch and rank.

Shapes follow Megatron's tensor parallelism [Shoeybi19] with sequence parallelism [Korthikanti22]: T tokens
per rank (micro-batch x sequence / context degree), t tensor ranks; the matrix products split their width
over t, the norms and residuals split their tokens over t when sequence parallelism is on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from costmodels.layer.adapters import adapter_seconds, trained_experts, trained_share
from costmodels.layer.attention import attention_core, attention_matmuls, up_projections
from costmodels.layer.context import context_parallel
from costmodels.layer.deterministic import filled
from costmodels.layer.experts import ExpertSeconds, expert_layer
from costmodels.layer.forward_backward import (
    Passes,
    ffn_matmuls,
    last_product,
    linear,
    region_tokens,
    tokens_per_rank,
    turning_seconds,
)
from costmodels.layer.fp8_scales import scale_seconds
from costmodels.layer.launches import exposed_launches, launch_floor, small_kernels
from costmodels.layer.loss import loss_seconds
from costmodels.layer.mamba_scan import exchange_of_heads, mamba_matmuls, scan
from costmodels.layer.overlapped_experts import exposed_seconds, is_overlapped
from costmodels.layer.recompute_extra import second_products, spared
from costmodels.layer.tensor_ranks import exchanging_parts, input_reductions, logit_gather, logits_seen
from costmodels.layer.user_buffers import left_open, served
from costmodels.layout.parameters_per_rank import (
    kind_expert_parameters,
    kind_parameters_per_rank,
    padded_vocabulary_rows,
)
from costmodels.layout.placement import group_of
from costmodels.model.layer_kinds import DENSE, Kind
from costmodels.names import WORD
from costmodels.primitives.collectives import all_reduce_seconds, gather_seconds
from costmodels.primitives.kernels import stream_seconds
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Strategies


@dataclass(frozen=True, slots=True)
class LayerSeconds:
    """One layer, one micro-batch, one rank: arrays (N,), seconds; communication is the exposed part."""

    matmul: Passes
    attention: Passes
    stream: Passes
    launch: Passes
    """What the host adds where launching takes longer than running and exchanging keys and values."""
    device_lag: Passes
    """How long the device runs behind its host in either pass; negative where it waits."""
    tp: Passes
    cp: Passes
    ep: Passes
    """Beside another micro-batch's passes, where a stack ``overlaps`` them."""
    ep_alone: Passes
    """Dispatch and combine of a micro-batch that has no partner."""
    hidden_ep: Passes
    """Dispatch and combine beside the layer's own computation, which hides nothing else then."""
    paired: Passes
    """Computation of either pass that another micro-batch's exchanges run beside, where it has a partner."""
    up_projections: Passes
    """Out of latent vectors, included in ``matmul``."""
    beyond: Passes
    """Products behind queries, keys and values, included in ``matmul``."""
    output: Passes
    """Attention's output projection, included in ``beyond``, where a gradient reads what it returns."""
    unread: Passes
    """Products of a dense layer whose outputs no gradient reads, included in ``beyond``: the last one, and in a
    parallel block the output projection too, which is only added up with it."""
    spared: Floats
    """Forward seconds that full recomputation leaves out where it ends there."""
    second: Floats
    """Forward seconds of the products that a list of operators does not keep."""

    def weight_gradients(self, ratio: float) -> Floats:
        """Seconds of the weight gradients, which take ``ratio`` of the time of the data gradients."""
        return self.matmul.backward * ratio / (1.0 + ratio)

    @property
    def compute(self) -> Passes:
        """Everything but communication."""
        return self.matmul + self.attention + self.stream + self.launch

    def repeated(self, selective: str, *, attends: bool = False, exchanges: bool = False) -> Floats:
        """Forward seconds that selective recomputation repeats, by the stack's kind of it.

        A list of operators repeats what it lacks: what ``attends``, the ``exchanges`` of tokens.
        """
        if selective == "operators":  # scatters are kept, gathers run again
            again = self.attention.forward * attends + self.ep_alone.forward * exchanges
            return self.stream.forward + self.second + self.tp.forward / 2.0 + again
        if selective == "up-projections":
            return self.stream.forward + self.up_projections.forward
        if selective == "products":
            return self.stream.forward + self.attention.forward
        if selective in {"projections", "attention-products", "feed-forward"}:
            core = 0.0 if selective == "feed-forward" else self.attention.forward
            kept = 0.0 if selective == "projections" else self.output.forward
            return self.stream.forward + core + self.beyond.forward - self.unread.forward - kept
        return self.attention.forward

    @property
    def communication(self) -> Passes:
        """Exposed tensor-, context- and expert-parallel seconds."""
        return self.tp + self.cp + self.ep

    @property
    def alone(self) -> Passes:
        """Exposed communication of a pass that no other micro-batch's runs beside, such as one that is repeated."""
        return self.tp + self.cp + self.ep_alone


def layer_seconds(rows: Strategies, scenario: Scenario) -> LayerSeconds:
    """Seconds of an average layer for each of N strategies: every kind of layer by its share of the depth."""
    kinds = scenario.depth.kinds
    return average([kind_seconds(rows, scenario, kind) for kind in kinds], scenario.depth.shares)


def average(layers: Sequence[LayerSeconds], shares: Sequence[float]) -> LayerSeconds:
    """The layers weighed by their shares."""
    if len(layers) == 1:
        return layers[0]
    mean = {}
    for field in fields(LayerSeconds):
        parts = [share * getattr(layer, field.name) for layer, share in zip(layers, shares, strict=True)]
        mean[field.name] = sum(parts[1:], parts[0])
    return LayerSeconds(**mean)


def kind_seconds(rows: Strategies, scenario: Scenario, kind: Kind) -> LayerSeconds:
    """Seconds of one layer of a kind; reads tp, cp, ep, etp, micro-batch, sequence parallelism."""
    nothing = Passes(np.zeros(len(rows)), np.zeros(len(rows)))
    experts = expert_layer(rows, scenario) if kind.ffn == "experts" else ExpertSeconds(*[nothing] * 5)
    products, stream = _products(rows, scenario, kind, experts), _streams(rows, scenario, kind, experts)
    attention, cp = nothing, nothing
    if kind.attends:
        attention = attention_core(rows, scenario, kind)
        cp = context_parallel(rows, scenario, attention)
    if kind.mixer == "mamba":
        cp = exchange_of_heads(rows, scenario)
    tp = tensor_parallel(rows, scenario, kind)
    apart = products.matmul + attention + stream + tp + cp
    ep, paired, floor = experts.ep, nothing, launch_floor(rows, scenario, kind)
    if is_overlapped(scenario.stack):  # traffic goes on while a pass waits for its host
        free = apart + exposed_launches(floor, apart, scenario) + -1.0 * experts.hidden
        ep, paired = exposed_seconds(ep, layer=free, experts=experts.between, stack=scenario.stack)
    busy = apart + ep
    return LayerSeconds(
        **products._asdict(),
        attention=attention,
        stream=stream,
        launch=exposed_launches(floor, busy, scenario),
        device_lag=busy + -1.0 * Passes(floor, 2.0 * floor),
        tp=tp,
        cp=cp,
        ep=ep,
        ep_alone=experts.ep,
        hidden_ep=experts.hidden,
        paired=paired,
        up_projections=up_projections(rows, scenario) if kind.attends else nothing,
        spared=spared(products.unread, rows, scenario, kind, busy.forward - floor),
        second=second_products(rows, scenario, kind, products.matmul),
    )


class _Products(NamedTuple):
    """Matrix products of a layer, as ``LayerSeconds`` has them."""

    matmul: Passes
    beyond: Passes
    output: Passes
    unread: Passes


def _products(rows: Strategies, scenario: Scenario, kind: Kind, experts: ExpertSeconds) -> _Products:
    nothing = Passes(np.zeros(len(rows)), np.zeros(len(rows)))
    matmul, output, unread = experts.matmul, nothing, nothing
    if kind.ffn == "dense":
        matmul, unread = ffn_matmuls(rows, scenario), last_product(rows, scenario)
    beyond = matmul
    if kind.attends:
        output = attention_matmuls(rows, scenario, ("output",))
        beyond = output + matmul
        if scenario.model.parallel_block and kind.ffn == "dense":
            unread, output = unread + output, nothing
        matmul = attention_matmuls(rows, scenario) + matmul
    if kind.mixer == "mamba":
        matmul = mamba_matmuls(rows, scenario) + matmul
    return _Products(matmul, beyond, output, unread)


def _streams(rows: Strategies, scenario: Scenario, kind: Kind, experts: ExpertSeconds) -> Passes:
    """What a layer spends on kernels that memory bounds, and on those too small to be bound by anything."""
    stream = layer_streams(rows, scenario, kind) + small_kernels(rows, scenario, kind) + experts.stream
    stream = stream + accumulation(rows, scenario, kind) + filled(rows, scenario, kind)
    stream = stream + scale_seconds(rows, scenario, kind) + adapter_seconds(rows, scenario, kind)
    return stream + scan(rows, scenario) if kind.mixer == "mamba" else stream


def accumulation(rows: Strategies, scenario: Scenario, kind: Kind = DENSE) -> Passes:
    """Adding the gradients of one layer to the buffer, where no product does it."""
    size = kind_parameters_per_rank(rows, scenario, kind) * trained_share(scenario)
    return added_up(size + kind_expert_parameters(rows, scenario, kind) * trained_experts(scenario), scenario)


def added_up(size: Floats, scenario: Scenario) -> Passes:
    """Seconds of a backward pass to add ``size`` gradients to their buffer."""
    seconds = stream_seconds(
        traffic=scenario.stack.gradients.accumulate_traffic * size,
        share=scenario.rates.stream,
        bandwidth=scenario.rates.bandwidth,
    )
    return Passes(np.zeros_like(size), seconds)


def layer_streams(rows: Strategies, scenario: Scenario, kind: Kind = DENSE) -> Passes:
    """Norms, residuals, dropout, rotary and activation: bytes through memory, forward and backward.

    The activation of experts is counted with them, and what lies between a Mamba-2 mixer's projections with its scan.
    """
    forward, backward = stream_traffic(scenario, kind)
    T, region, t = tokens_per_rank(rows, scenario), region_tokens(rows, scenario), rows.tp.astype(np.float64)
    known = {"share": scenario.rates.stream, "bandwidth": scenario.rates.bandwidth}
    return Passes(
        stream_seconds(traffic=region * forward[0] + T * forward[1] / t, **known),
        stream_seconds(traffic=region * backward[0] + T * backward[1] / t, **known),
    )


NORM_PASSES = {("layernorm", False): (1.6, 1.2), ("rmsnorm", False): (9.0, 14.0)}
"""Traffic of an unfused norm over a fused one, forward and backward: a stock LayerNorm reaches 0.52 of the bandwidth
where a fused one reaches 0.82 [Liger]. An RMSNorm written out makes kernels of its own of a cast to fp32 (6 bytes a
value), square (8), mean (4), product with the root (8), cast (6) and weight (4), 36 for 4; backward of the weight (12),
cast (6), product (24), mean, square (24), sum (12) and cast (6), 84 for 6 [eager norms]."""
PYTORCH_RMS_NORM = (1.2, 1.2)
"""The same of PyTorch's own RMSNorm: on an H100 2.40 TB/s forward where a compiled one reaches 2.83, and backward 1.28,
where norms written for it reach 1.0 to 1.4."""
UNFUSED_ROTARY = 6.0
"""Traffic of rotary written out (negate, concatenate, two products, sum) over a fused kernel's [Liger]."""


def norm_passes(scenario: Scenario) -> tuple[float, float]:
    """Traffic of the stack's norms over fused ones, forward and backward."""
    stack = scenario.stack
    fused = stack.switches.fused_elementwise and stack.kernels.fused_norms
    if not fused and stack.kernels.pytorch_rms_norm and scenario.model.norm == "rmsnorm":
        return PYTORCH_RMS_NORM
    return NORM_PASSES.get((scenario.model.norm, fused), (1.0, 0.75))


def copied_traffic(scenario: Scenario, kind: Kind) -> tuple[float, float]:
    """Bytes per token beyond fused kernels around attention and activation, both ways, split over tensor ranks.

    cuDNN's takes queries, keys and values wherever they lie. Fewer heads of keys and values are so much less to copy.
    What it multiplies in 8 bits is read in 16 and written in 8 before: these three, and the gradient of the output.
    """
    stack, model, rates = scenario.stack, scenario.model, scenario.rates
    copied = kind.attends and rates.attention is not None and rates.attention_name != "cudnn"
    width = (model.attention_width + 2.0 * model.key_value_width) / 3.0 * copied
    f = (kind.ffn == "dense") * model.ffn_hidden_size
    forward, backward = zip(stack.kernels.attention_copy_bytes, stack.kernels.activation_copy_bytes, strict=True)
    cast = 3.0 * kind.attends * scenario.attends_in_8_bits
    return (
        forward[0] * width + forward[1] * f + cast * model.qkv_width,
        backward[0] * width + backward[1] * f + cast * model.attention_output_width,
    )


def stream_traffic(scenario: Scenario, kind: Kind = DENSE) -> tuple[tuple[float, float], tuple[float, float]]:
    """Bytes per token that memory-bound kernels of one layer move: ((split over tokens, over width), backward).

    A norm reads and writes (4h bytes), a fused bias-dropout-residual reads two and writes one (6h, plus the
    mask), rotary reads and writes queries and keys, a gated activation reads two branches and writes one.
    Backward, a norm reads two and writes one at its own, lower share of the bandwidth. Norms of queries and keys do
    the same over the tensor ranks.
    """
    model, stack, rates = scenario.model, scenario.stack, scenario.rates
    h, f, fused = (
        float(model.hidden_size),
        (kind.ffn == "dense") * model.ffn_hidden_size,
        stack.switches.fused_elementwise,
    )
    norms = (model.num_norms if kind.parts > 1 else 1) * h
    passes, returned = norm_passes(scenario)
    branches = (1.0 if model.parallel_block and not stack.kernels.separate_branches else float(kind.parts)) * h
    mask = 1.0 if stack.switches.dropout else 0.0
    apart = 0.0 if fused else 4.0 * model.linear_bias + 5.0 * mask
    turning = kind.attends * rotary_traffic(scenario)
    inner = kind.attends * (model.qk_norm != "none") * (model.attention_width + model.key_value_width)
    there, back = copied_traffic(scenario, kind)
    split = 0.0 if fused else 4.0
    forward = (
        norms * 4.0 * passes + branches * (6.0 + mask + apart),
        turning + there + inner * 4.0 * passes + f * ((6.0 if model.gated_ffn else 4.0) + split),
    )
    slow = max(rates.stream / rates.norm_backward, returned)
    backward = (
        norms * 6.0 * slow + branches * (4.0 + 4.0 * mask),
        turning + back + inner * 6.0 * slow + f * ((10.0 + 2.0 * split) if model.gated_ffn else (6.0 + split)),
    )
    return forward, backward


def rotary_traffic(scenario: Scenario) -> float:
    """Bytes per token that turning queries and keys by their positions moves, split over tensor ranks."""
    model, stack = scenario.model, scenario.stack
    if model.position != "rotary":
        return 0.0
    fused = stack.switches.fused_elementwise and (stack.kernels.fused_scaled_rotary or not model.rotary_scaled)
    passes = stack.kernels.rotary_traffic if fused else UNFUSED_ROTARY
    return 4.0 * (model.attention_width + model.key_value_width) * passes


def tensor_parallel(rows: Strategies, scenario: Scenario, kind: Kind = DENSE) -> Passes:
    """Exposed tensor-parallel seconds of one layer.

    An all-reduce of the activations forward and one backward for each of its parts, one each with a parallel
    block; with sequence parallelism each is a reduce-scatter and an all-gather, and the backward gathers the
    inputs once more behind the data gradient [Korthikanti22].
    """
    stack, pairs = scenario.stack, exchanging_parts(kind, scenario)
    size = WORD * tokens_per_rank(rows, scenario) * scenario.model.hidden_size
    group, tiers = group_of(rows, "tp"), scenario.group.tiers
    whole = all_reduce_seconds(size, group, tiers)
    half = gather_seconds(size, group, tiers)
    narrow = scenario.stack.exchange.fp8_tensor_gather and scenario.recipe.reduced
    thin = size * scenario.recipe.word / WORD if narrow else size
    gathered = gather_seconds(thin, group, tiers) + turning_seconds(thin, scenario)
    half = half + turning_seconds(size, scenario)
    split = rows.sequence_parallel > 0
    again = 1.0 if stack.exchange.keeps_gathered_inputs else 2.0
    forward = np.where(split, half + gathered, whole) * pairs
    backward = np.where(split, half + again * gathered, whole) * pairs
    alone = np.where(split, 0.0 if stack.exchange.norm_gathers else half, whole)
    backward = backward + input_reductions(kind, scenario) * alone
    active = (rows.tp > 1) / stack.calibrated.communication_efficiency
    shares = Passes(forward * stack.overlap.tp_forward, backward * stack.overlap.tp_backward)
    if parts := served(scenario, kind):
        others = 1.0 - len(parts) / max(pairs, len(parts))
        counted = left_open(rows, scenario, parts) + others * shares
        shares = Passes(
            np.where(split, counted.forward, shares.forward), np.where(split, counted.backward, shares.backward)
        )
    return Passes(shares.forward * active, shares.backward * active)


def embedding_seconds(rows: Strategies, scenario: Scenario) -> Passes:
    """Token and position look-up of the first stage, and the scatter of its gradient."""
    rates, model = scenario.rates, scenario.model
    T, region = tokens_per_rank(rows, scenario), region_tokens(rows, scenario)
    forward = stream_seconds(
        traffic=model.hidden_size * (4.0 * T + 6.0 * region), share=rates.stream, bandwidth=rates.bandwidth
    )
    size = WORD * T * model.hidden_size
    group = group_of(rows, "tp")
    reduce = np.where(
        rows.sequence_parallel > 0,
        gather_seconds(size, group, scenario.group.tiers),
        all_reduce_seconds(size, group, scenario.group.tiers),
    )
    shared = np.where(rows.tp > 1, reduce, 0.0) * scenario.stack.overlap.tp_forward
    if scenario.frozen:
        return Passes(forward + shared, np.zeros(len(rows)))
    passes = Passes(forward + shared, forward + np.where(rows.sequence_parallel > 0, shared, 0.0))
    return passes + added_up(padded_vocabulary_rows(rows, scenario) * model.embedding_width / rows.tp, scenario)


def head_seconds(rows: Strategies, scenario: Scenario) -> Passes:
    """Final norm, logits and cross-entropy of the last stage, vocabulary split over the tensor ranks.

    A stack that keeps the head whole has every rank multiply all of it, and nothing to exchange. Every
    multi-token-prediction layer passes the head once more.
    """
    model, stack = scenario.model, scenario.stack
    T = tokens_per_rank(rows, scenario)
    t = np.ones(len(rows)) if "head" in stack.exchange.whole_vocabulary else rows.tp.astype(np.float64)
    vocabulary = np.ceil(padded_vocabulary_rows(rows, scenario) / t)
    loss = loss_seconds(T, vocabulary, scenario, seen=logits_seen(t, vocabulary, scenario))
    size = WORD * T * model.hidden_size
    group = group_of(rows, "tp")
    half = np.where(t > 1, gather_seconds(size, group, scenario.group.tiers), 0.0)
    small = np.where(t > 1, 2.0 * all_reduce_seconds(4.0 * T, group, scenario.group.tiers), 0.0)
    gathered = np.where(rows.sequence_parallel > 0, half, 0.0) * stack.overlap.tp_forward
    gathered = gathered + np.where(t > 1, logit_gather(rows, T * vocabulary * t, scenario), 0.0)
    returned = np.where(rows.sequence_parallel > 0, half, 2.0 * half) * stack.overlap.tp_backward
    passes = loss + Passes(gathered + small, returned)
    weights = vocabulary * model.hidden_size * (not scenario.frozen)
    return (1.0 + model.mtp_layers) * passes + added_up(weights, scenario)


def further_token_projection(rows: Strategies, scenario: Scenario) -> Passes:
    """The product that joins hidden state and next token's embedding, 2 h -> h.

    It stands in front of a layer that predicts a further token (DeepSeek-V3, section 2.2); tensor ranks split its
    output.
    """
    h = float(scenario.model.hidden_size)
    return linear(tokens_per_rank(rows, scenario), h / rows.tp, 2.0 * h, scenario)
