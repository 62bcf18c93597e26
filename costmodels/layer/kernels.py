"""The kernels of one layer with what they multiply, move and take: where each stands under the machine's roofs.

The seconds are those of ``blocks``, kernel by kernel; FLOP and bytes are counted from the same shapes, each operand
read once and each result written once, so that FLOP over bytes is the intensity of a roofline (S. Williams et al.,
"Roofline", CACM 52(4), 2009).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from costmodels.arrays import Columns, Number
from costmodels.layer.adapters import adapter_seconds, expert_adapter_seconds
from costmodels.layer.attention import (
    attention_core,
    attention_matmuls,
    further_matmuls,
    has_further_matmuls,
    keys_scored,
    packed_pairs,
    softmax_traffic,
)
from costmodels.layer.elementwise import fill_seconds, layer_accumulation, layer_streams
from costmodels.layer.experts import (
    ACTIVATION,
    arrived_tokens,
    expert_streams,
    experts_of,
    grouped_products,
    mask_products,
    routed_traffic,
    router_seconds,
    shared_experts,
)
from costmodels.layer.experts import small_kernels as expert_kernels
from costmodels.layer.forward_backward import (
    Passes,
    ffn_matmuls,
    last_product,
    linear,
    no_passes,
    region_tokens,
    sequences_per_rank,
    tokens_per_rank,
)
from costmodels.layer.fp8_scales import scale_seconds
from costmodels.layer.frozen_weights import unpacking_seconds
from costmodels.layer.launches import small_kernels
from costmodels.layer.mixers import mixer_matmuls, scan
from costmodels.model.further import further_projections, scored_keys
from costmodels.model.layer_kinds import Kind
from costmodels.model.mixers import Projection, mixer_of
from costmodels.model.parameters import attention_projections
from costmodels.names import WORD
from costmodels.primitives.kernels import BACKWARD_PRODUCTS, attention_flops
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies

Bound = Literal["product", "attention", "memory"]
Size = tuple[Number, Number, Number, Number]
"""Rows, outputs and depth of a product, and how many of it there are."""


@dataclass(frozen=True, slots=True)
class Kernel(Columns):
    """One kernel of a layer, or several alike, for one micro-batch on one rank; arrays (N,)."""

    name: str
    kind: Bound
    """A matrix product, attention, or what only moves bytes."""
    seconds: Passes
    flops: Passes
    traffic: Passes
    """Bytes that it reads and writes at least."""


def layer_kernels(strategies: Strategies, scenario: Scenario, kind: Kind) -> tuple[Kernel, ...]:
    """The kernels of one layer of a kind in the order in which they run, what only moves bytes last.

    Their seconds add up to matrix products, attention and streams of ``costmodels.layer.blocks.kind_seconds``; what the
    host adds and communication are no kernels.
    """
    scenario = scenario.with_sizes_of(kind.variant)
    kernels = [*_mixing(strategies, scenario, kind), *_feed_forward(strategies, scenario, kind)]
    kernels += _streams(strategies, scenario, kind)
    return tuple(kernel for kernel in kernels if (kernel.seconds.total > 0).any())


def _mixing(strategies: Strategies, scenario: Scenario, kind: Kind) -> Iterator[Kernel]:
    """Attention with its projections, and a mixer in its place or in parallel."""
    if kind.other_mixer:
        projections = mixer_of(scenario.model, kind.other_mixer).projections
        sizes = [_projected(p, strategies, scenario, rowwise=p.rowwise) for p in projections]
        yield _product("mixer", mixer_matmuls(strategies, scenario, kind.other_mixer), sizes, scenario)
        yield _moving("scan", scan(strategies, scenario, kind.other_mixer), scenario)
    if has_further_matmuls(scenario, kind):
        further = further_matmuls(strategies, scenario, kind)
        yield _product("indexers and branches", further, _further(strategies, scenario, kind), scenario)
    if not kind.attends:
        return
    *before, output = attention_projections(scenario.model)
    for p in before:
        seconds = attention_matmuls(strategies, scenario, (p.name,))
        yield _product(p.name, seconds, [_projected(p, strategies, scenario)], scenario)
    if scenario.model.localized_filtering:
        yield _filtering(strategies, scenario)
    yield _attention(strategies, scenario, kind)
    seconds = attention_matmuls(strategies, scenario, ("output",))
    yield _product("output", seconds, [_projected(output, strategies, scenario, rowwise=True)], scenario)


def _projected(p: Projection, strategies: Strategies, scenario: Scenario, *, rowwise: bool = False) -> Size:
    T, t = tokens_per_rank(strategies, scenario), strategies.tp.astype(np.float64)
    if not p.sharded:
        return region_tokens(strategies, scenario), p.outputs, p.inputs, 1.0
    return (T, p.outputs, p.inputs / t, 1.0) if rowwise else (T, p.outputs / t, p.inputs, 1.0)


def _filtering(strategies: Strategies, scenario: Scenario) -> Kernel:
    T, t, h = tokens_per_rank(strategies, scenario), strategies.tp, float(scenario.model.hidden_size)
    seconds = linear(T, h / 2 / t, 2 * h, scenario) + linear(T, h / t, h, scenario)
    return _product("filtering", seconds, [(T, h / 2 / t, 2 * h, 1.0), (T, h / t, h, 1.0)], scenario)


def _further(strategies: Strategies, scenario: Scenario, kind: Kind) -> list[Size]:
    model, region = scenario.model, region_tokens(strategies, scenario)
    sizes: list[Size] = [(region, p.outputs, p.inputs, 1.0) for p in further_projections(model, kind)]
    keys = scored_keys(model, kind, float(scenario.seq_length))
    if keys and model.indexer is not None:
        sizes.append((region * model.indexer.num_heads, keys, model.indexer.head_dim, 1.0))
    return sizes


def _attention(strategies: Strategies, scenario: Scenario, kind: Kind) -> Kernel:
    """The core: FLOP of the pairs that are needed if fused, of all that are scored if not; q, k, v and output once."""
    model, s = scenario.model, float(scenario.seq_length)
    share = sequences_per_rank(strategies, scenario) / (strategies.tp * strategies.cp)
    fused = scenario.rates.attention is not None
    pairs = packed_pairs(scenario, kind) if fused else s * keys_scored(scenario, kind)
    flops = attention_flops(pairs=pairs, key_width=model.attention_width, value_width=model.attention_output_width)
    tokens, scores = s * share, 0.0 if fused else pairs * model.num_heads
    softmax, softmax_backward = softmax_traffic(strategies, scenario)
    moved = scenario.word * tokens * (model.qkv_width + model.attention_output_width)
    return Kernel(
        scenario.rates.attention_name if fused else "attention",
        "attention",
        attention_core(strategies, scenario, kind),
        Passes(flops * share, (BACKWARD_PRODUCTS if fused else 2.0) * flops * share),
        Passes(moved + scores * share * softmax, 2.0 * moved + scores * share * softmax_backward),
    )


def _feed_forward(strategies: Strategies, scenario: Scenario, kind: Kind) -> Iterator[Kernel]:
    model, T, t = scenario.model, tokens_per_rank(strategies, scenario), strategies.tp
    h = float(model.hidden_size)
    if kind.ffn == "dense":
        last, wide = last_product(strategies, scenario), model.ffn_hidden_size / t
        first = [(T, wide * model.ffn_branches, h, 1.0)]
        name = "gate and up" if model.gated_ffn else "up"
        yield _product(name, ffn_matmuls(strategies, scenario) - last, first, scenario)
        yield _product("down", last, [(T, h, wide, 1.0)], scenario)
    if kind.ffn == "experts":
        yield from _experts(strategies, scenario)


def _experts(strategies: Strategies, scenario: Scenario) -> Iterator[Kernel]:
    model, moe, region = scenario.model, experts_of(scenario), region_tokens(strategies, scenario)
    h, arrived = float(model.hidden_size), arrived_tokens(strategies, scenario)
    held, branches = np.maximum(moe.num_experts / strategies.ep, 1.0), model.ffn_branches
    router = [(region, float(moe.num_experts + moe.zero_experts), h, 1.0)]
    yield _product("router", router_seconds(region, scenario), router, scenario)
    nothing = no_passes(strategies)
    yield Kernel("dispatch masks", "product", mask_products(strategies, scenario), nothing, nothing)
    rows, inner, wide = arrived / held, moe.expert_ffn_hidden_size / strategies.etp, float(model.expert_hidden_size)
    sizes: list[Size] = [(rows, inner * branches, wide, held), (rows, wide, inner, held)]
    yield _product("experts", grouped_products(strategies, scenario), sizes, scenario)
    if moe.num_shared_experts:
        T, width = tokens_per_rank(strategies, scenario), moe.shared_expert_ffn_hidden_size / strategies.tp
        shared: list[Size] = [(T, width * branches, h, 1.0), (T, h, width, 1.0)]
        yield _product("shared experts", shared_experts(strategies, scenario), shared, scenario)
    if moe.latent_size is not None:
        latent = float(moe.latent_size)
        both = linear(region, latent, h, scenario) + linear(region, h, latent, scenario)
        yield _product("latent", both, [(region, latent, h, 1.0), (region, h, latent, 1.0)], scenario)


def _streams(strategies: Strategies, scenario: Scenario, kind: Kind) -> Iterator[Kernel]:
    """What only moves bytes, and what is too short to be bound by anything."""
    drained = small_kernels(strategies, scenario, kind)
    if kind.ffn == "experts":
        yield _permuting(strategies, scenario)
        moe = experts_of(scenario)
        held, inner = np.maximum(moe.num_experts / strategies.ep, 1.0), moe.expert_ffn_hidden_size / strategies.etp
        own = expert_adapter_seconds(arrived_tokens(strategies, scenario), held, inner, scenario)
        yield _moving("adapters of experts", own, scenario)
        drained = drained + expert_kernels(strategies, scenario)
    yield _moving("norms, residuals, activations", layer_streams(strategies, scenario, kind), scenario)
    summed = layer_accumulation(strategies, scenario, kind) + fill_seconds(strategies, scenario, kind)
    yield _moving("adding up gradients", summed, scenario)
    yield _moving("adapters", adapter_seconds(strategies, scenario, kind), scenario)
    casts = scale_seconds(strategies, scenario, kind) + unpacking_seconds(strategies, scenario, kind)
    yield _moving("scales and casts", casts, scenario)
    nothing = no_passes(strategies)
    yield Kernel("starting and draining kernels", "memory", drained, nothing, nothing)


def _permuting(strategies: Strategies, scenario: Scenario) -> Kernel:
    """Bringing tokens to their experts and back on the device, at the rates of scattered rows and of copies."""
    moe, arrived = experts_of(scenario), arrived_tokens(strategies, scenario)
    sizes = {"inner": moe.expert_ffn_hidden_size / strategies.etp, "held": moe.num_experts / strategies.ep}
    forward, backward, copied = routed_traffic(scenario, arrived=arrived, **sizes)
    shared = moe.shared_expert_ffn_hidden_size / strategies.tp * tokens_per_rank(strategies, scenario)
    there, back = (each * shared for each in ACTIVATION[scenario.model.gated_ffn])
    moved = Passes(forward + there + copied, backward + back + copied)
    return Kernel("permuting tokens", "memory", expert_streams(strategies, scenario), no_passes(strategies), moved)


def _product(name: str, seconds: Passes, sizes: Sequence[Size], scenario: Scenario) -> Kernel:
    """Products of the given sizes: two FLOP a multiplication, operands in the word of the layers, results in 16 bits.

    Backward, the gradients of input and, unless it is frozen, of weight.
    """
    word, nothing = scenario.rates.matmul.word, 0.0 * seconds
    flops, traffic = nothing, nothing
    trains = 0.0 if scenario.frozen else 1.0
    for m, n, k, count in sizes:
        once = count * 2.0 * m * n * k
        moved = count * (word * (m * k + k * n) + WORD * m * n)
        data, weight = word * (m * n + n * k) + WORD * m * k, word * (m * n + m * k) + WORD * n * k
        flops = flops + Passes(once + nothing.forward, (1.0 + trains) * once + nothing.forward)
        traffic = traffic + Passes(moved + nothing.forward, count * (data + trains * weight) + nothing.forward)
    return Kernel(name, "product", seconds, flops, traffic)


def _moving(name: str, seconds: Passes, scenario: Scenario) -> Kernel:
    """What memory bounds: the bytes that its seconds move at the stack's share of the bandwidth."""
    rates = scenario.rates
    return Kernel(name, "memory", seconds, 0.0 * seconds, rates.stream * rates.bandwidth * seconds)
