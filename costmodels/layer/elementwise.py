"""Kernels of a layer that memory bounds: norms, residuals, rotary, activations, sums of gradients, fills."""

from __future__ import annotations

import numpy as np

from costmodels.layer.adapters import trained_experts, trained_share
from costmodels.layer.forward_backward import Passes, no_passes, region_tokens, streamed, tokens_per_rank
from costmodels.layout.parameters_per_rank import kind_expert_parameters, kind_parameters_per_rank
from costmodels.model.further import further_parts
from costmodels.model.layer_kinds import DENSE, Kind
from costmodels.model.model import Model
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Strategies

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


def layer_streams(strategies: Strategies, scenario: Scenario, kind: Kind = DENSE) -> Passes:
    """Norms, residuals, dropout, rotary and activation: bytes through memory, forward and backward.

    The activation of experts is counted with them, and what lies between a Mamba-2 mixer's projections with its scan.
    """
    forward, backward = stream_traffic(scenario, kind)
    region, split = region_tokens(strategies, scenario), tokens_per_rank(strategies, scenario) / strategies.tp
    return streamed(region * forward[0] + split * forward[1], region * backward[0] + split * backward[1], scenario)


def norms_of(scenario: Scenario, kind: Kind) -> int:
    """Norms of a layer of a kind, those of queries and keys left out."""
    return scenario.model.num_norms if kind.parts > 1 else kind.parts


def normalised_width(model: Model, kind: Kind) -> float:
    """Values per token of queries and keys that have a norm, over all tensor ranks."""
    return float(kind.attends * (model.qk_norm != "none") * (model.attention_width + model.key_value_width))


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
    cast = 3.0 * kind.attends * scenario.attends_in_8_bits
    attention, activation = stack.kernels.attention_copy_bytes, stack.kernels.activation_copy_bytes
    forward, backward = (attention[way] * width + activation[way] * f for way in (0, 1))
    return forward + cast * model.qkv_width, backward + cast * model.attention_output_width


def stream_traffic(scenario: Scenario, kind: Kind = DENSE) -> tuple[tuple[float, float], tuple[float, float]]:
    """Bytes per token that memory-bound kernels of one layer move: ((split over tokens, over width), backward).

    A norm reads and writes (4h bytes), a fused bias-dropout-residual reads two and writes one (6h, plus the
    mask), rotary reads and writes queries and keys, a gated activation reads two branches and writes one.
    Backward, a norm reads two and writes one at its own, lower share of the bandwidth. Norms of queries and keys do
    the same over the tensor ranks.
    """
    model, stack, rates = scenario.model, scenario.stack, scenario.rates
    fused, h = stack.switches.fused_elementwise, float(model.hidden_size)
    f, norms = (kind.ffn == "dense") * model.ffn_hidden_size, norms_of(scenario, kind) * h
    passes, returned = norm_passes(scenario)
    branches = (1.0 if model.parallel_block and not stack.kernels.separate_branches else float(kind.parts)) * h
    mask = 1.0 if stack.switches.dropout else 0.0
    apart = 0.0 if fused else 4.0 * model.linear_bias + 5.0 * mask
    turning = kind.attends * rotary_traffic(scenario)
    inner = normalised_width(model, kind)
    there, back = copied_traffic(scenario, kind)
    further = scenario.word * sum(part.moved for part in further_parts(model, kind))
    split = 0.0 if fused else 4.0
    forward = (
        norms * 4.0 * passes + branches * (6.0 + mask + apart) + further,
        turning + there + inner * 4.0 * passes + f * ((6.0 if model.gated_ffn else 4.0) + split),
    )
    slow = max(rates.stream / rates.norm_backward, returned)
    backward = (
        norms * 6.0 * slow + branches * (4.0 + 4.0 * mask) + 2.0 * further,
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


def layer_accumulation(strategies: Strategies, scenario: Scenario, kind: Kind = DENSE) -> Passes:
    """Adding the gradients of one layer to the buffer, where no product does it."""
    size = kind_parameters_per_rank(strategies, scenario, kind) * trained_share(scenario)
    experts = kind_expert_parameters(strategies, scenario, kind) * trained_experts(scenario)
    return accumulation_seconds(size + experts, scenario)


def accumulation_seconds(size: Floats, scenario: Scenario) -> Passes:
    """Seconds of a backward pass to add ``size`` gradients to their buffer, (N,)."""
    return streamed(np.zeros_like(size), scenario.stack.gradients.accumulate_traffic * size, scenario)


def fill_seconds(strategies: Strategies, scenario: Scenario, kind: Kind) -> Passes:
    """Seconds to fill what the modules of a dense layer are about to write, (N,): nothing unless ``deterministic``.

    PyTorch fills whatever it allocates then, ``torch.utils.deterministic.fill_uninitialized_memory`` being on by
    default. Norms, products and attention allocate their outputs, and backward the gradients of their inputs; weights'
    too where products do not add them up. What a compiler fused allocates is not filled.
    """
    if not scenario.stack.switches.deterministic:
        return no_passes(strategies)
    model, T, region = scenario.model, tokens_per_rank(strategies, scenario), region_tokens(strategies, scenario)
    dense, attends = float(kind.ffn == "dense"), float(kind.attends)
    whole = (norms_of(scenario, kind) * region + (dense + attends) * T) * model.hidden_size
    heads = attends * (2.0 * model.attention_width + 2.0 * model.key_value_width)
    wide = dense * model.ffn_hidden_size
    back = whole + T / strategies.tp * (heads + wide)
    if scenario.stack.gradients.accumulate_traffic:
        back = back + kind_parameters_per_rank(strategies, scenario, kind)
    forward = whole + T / strategies.tp * (heads + wide * model.ffn_branches)
    return streamed(scenario.word * forward, scenario.word * back, scenario)
