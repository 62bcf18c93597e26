"""Seconds and bytes of layers with experts: routing, dispatch, grouped products, combine.

Expert ranks are folded over the tensor, context and data ranks as in Megatron-Core: neighbouring ranks first
split an expert (etp), then hold different experts (ep), and what is left replicates them. Every rank routes its
own tokens; with sequence parallelism those are the tokens of its tensor slice.

What kernels between the products do is read off Megatron-Core's `TEGroupedMLP` and token dispatchers [MegatronMoE26];
every pass that one kernel makes over a value counts its bytes once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from costmodels.arrays import Number
from costmodels.layer.adapters import expert_adapter_seconds
from costmodels.layer.forward_backward import (
    Passes,
    linear,
    no_passes,
    product,
    quantisation,
    region_tokens,
    streamed,
    tokens_per_rank,
)
from costmodels.layer.launches import local_kernels
from costmodels.layer.overlapped_experts import is_overlapped
from costmodels.layout.placement import expert_group
from costmodels.model.model import Experts
from costmodels.names import WORD
from costmodels.primitives.collectives import all_to_all_seconds, gather_seconds
from costmodels.primitives.kernels import matmul_seconds
from costmodels.primitives.rank_groups import Group
from costmodels.primitives.sizes import dispatched_bytes, expert_places
from costmodels.scenario import Scenario
from costmodels.stack.fields import SENT_ONCE
from costmodels.strategy import DENSE_AXES, Floats, Strategies, of_axes
from hardware.kernels import GemmFit

PERMUTE = 4.0 * WORD
"""Bytes per value to gather tokens by expert and to put them back: two kernels that read and write."""
SORT = 4.0 * WORD
"""Bytes per value to sort by expert what a plain all-to-all delivers by sender, there and back."""
PAD = 4.0 * WORD
"""Padding every expert's rows to the multiple that reduced precision needs, and taking the padding off; dispatchers
that send a token once per domain (DeepEP, HybridEP) pad while they permute, and a fixed capacity is such a multiple."""
BIAS = (28.0, 36.0)
"""A bias scaled by the router's fp32 weight: outer product, sum, concatenation and cast, and their gradients."""
WEIGHED = (20.0, 36.0)
"""Scores operation by operation: a cast to fp32, a product and a cast back; backward both products' gradients, and the
sum over a token's values that a score's gradient is."""
ACTIVATION = {True: (6.0, 10.0), False: (4.0, 6.0)}
"""An activation, gated or not: what enters it is read, what leaves it written, and their gradients."""
CLAMP = (16.0, 20.0)
"""Clamping both branches of a gated activation on the way in and putting them together again."""
SCORES = 40.0
"""Bytes per score that selection and the auxiliary loss move: ten passes in fp32."""
FUSED_CASTS = 0.5
"""Share of the quantisation that a fused operation leaves: of its two products, and of their gradients, what comes out
of the one is quantised on its way into the other."""
HYBRID_REACH = (0.75, 0.68)
"""Share of NVLink's bandwidth that HybridEP's kernels reach on the way to the experts and back, on 32 units: 664 to 687
and 580 to 645 GB/s leave a GB200 among 8 to 36 of them, weights and tokens counted; a B200 among 8 has 2 % less
on 16 units (docs/README_Hybrid-EP.md, kernel only, in 16 bits) [HybridEP]."""


@dataclass(frozen=True, slots=True)
class ExpertSeconds:
    """The feed-forward part of one layer with experts, one micro-batch, one rank: arrays (N,), seconds."""

    matmul: Passes
    stream: Passes
    ep: Passes
    """Dispatch and combine: the exposed part, or all of it where a stack ``overlaps`` it with another micro-batch."""
    between: Passes
    """What of ``matmul`` and ``stream`` lies between dispatch and combine."""
    hidden: Passes
    """Dispatch and combine hidden behind the shared experts: seconds of computation that hide nothing else."""


def experts_of(scenario: Scenario) -> Experts:
    """The model's experts; only asked of models that have them."""
    moe = scenario.model.moe
    assert moe is not None
    return moe


def routed_tokens(strategies: Strategies, scenario: Scenario) -> Floats:
    """Tokens that one rank sends to experts, each counted once per expert it goes to, shape (N,)."""
    return region_tokens(strategies, scenario) * experts_of(scenario).computed_experts


def expert_layer(strategies: Strategies, scenario: Scenario) -> ExpertSeconds:
    """Router, experts, shared experts and the traffic between them."""
    moe = experts_of(scenario)
    region, h = region_tokens(strategies, scenario), float(scenario.model.hidden_size)
    products = grouped_products(strategies, scenario)
    streams = expert_streams(strategies, scenario) + small_kernels(strategies, scenario)
    held, inner = np.maximum(moe.num_experts / strategies.ep, 1.0), moe.expert_ffn_hidden_size / strategies.etp
    streams = streams + expert_adapter_seconds(arrived_tokens(strategies, scenario), held, inner, scenario)
    matmul = router_seconds(region, scenario) + mask_products(strategies, scenario) + products
    exchange, hidden = dispatch_seconds(strategies, scenario), no_passes(strategies)
    if moe.num_shared_experts:
        shared, slow = shared_experts(strategies, scenario), scenario.stack.overlap.compute_slowdown
        matmul = matmul + shared
        if scenario.stack.switches.shared_expert_overlap:  # what is hidden slows the shared experts down
            backward = np.minimum(exchange.backward, shared.backward)
            hidden = Passes(np.minimum(exchange.forward, shared.forward), backward)
            exchange = exchange - hidden + slow / (1.0 + slow) * hidden
    if moe.latent_size is not None:
        latent = float(moe.latent_size)
        matmul = matmul + linear(region, latent, h, scenario) + linear(region, h, latent, scenario)
    return ExpertSeconds(matmul, streams, exchange, products + streams, hidden)


def small_kernels(strategies: Strategies, scenario: Scenario) -> Passes:
    """What it costs the device to begin and to end the kernels that every expert has of its own, without its products.

    Each has the fixed time of a product, however few its bytes. A fused operation has none of them.
    """
    once = local_kernels(strategies, scenario) * scenario.rates.head.overhead
    return Passes(once, 2.0 * once)


def router_seconds(tokens: Floats, scenario: Scenario) -> Passes:
    """A score per token and expert; never in reduced precision, scores kept in fp32 [MegatronMoE26]."""
    model, rates = scenario.model, scenario.rates
    moe = experts_of(scenario)
    scores = float(moe.num_experts + moe.zero_experts)
    h, frozen = float(model.hidden_size), scenario.frozen
    gate = product(tokens, scores, h, rates.head, rates.head_peak, rates.bandwidth, frozen=frozen)
    seconds = rates.stream_seconds(SCORES * tokens * scores)
    return gate + Passes(seconds, seconds)


def mask_products(strategies: Strategies, scenario: Scenario) -> Passes:
    """Products that bring tokens to their experts' places and back, where a stack multiplies with masks.

    "BSM,BSEC->EBCM" and "EBCM,BSEC->BSM" of the s tokens of a sequence and k s places times the capacity: two forward,
    and backward the gradients of the tokens, of what the experts return and of the mask that weighs it [Lepikhin20].
    """
    moe, rates, s = experts_of(scenario), scenario.rates, float(scenario.seq_length)
    if not scenario.stack.experts.dispatch_masks:
        return no_passes(strategies)
    sequences = region_tokens(strategies, scenario) / s
    places = expert_places(tokens=s, top_k=moe.top_k, capacity=scenario.stack.switches.expert_capacity or 1.0)
    h, peak = float(scenario.model.expert_hidden_size), rates.head_peak
    once = sequences * matmul_seconds(m=places, n=h, k=s, fit=rates.head, peak=peak, bandwidth=rates.bandwidth)
    return Passes(2.0 * once, 3.0 * once)


@of_axes(*DENSE_AXES)
def shared_experts(strategies: Strategies, scenario: Scenario) -> Passes:
    """The two products of the experts that every token passes, split over the tensor ranks."""
    model, moe = scenario.model, experts_of(scenario)
    T = tokens_per_rank(strategies, scenario)
    h = float(model.hidden_size)
    width = moe.shared_expert_ffn_hidden_size / strategies.tp
    return linear(T, width * model.ffn_branches, h, scenario) + linear(T, h, width, scenario)


def expert_load(strategies: Strategies, scenario: Scenario) -> Floats:
    """Tokens that the busiest expert rank computes over the mean of all, shape (N,).

    Dropless, all wait for the rank with the most, which has no more than all; one rank with every expert has them
    anyway and waits for nobody.
    With a capacity every expert computes just that many, tokens beyond it dropped, places short of it padded
    [Lepikhin20].
    """
    capacity = scenario.stack.switches.expert_capacity
    if capacity is not None:
        return np.full(len(strategies), capacity)
    return np.minimum(scenario.stack.experts.expert_imbalance, strategies.ep.astype(np.float64))


def arrived_tokens(strategies: Strategies, scenario: Scenario) -> Floats:
    """Tokens that the experts of the busiest rank compute, each counted once per expert, shape (N,)."""
    return routed_tokens(strategies, scenario) * strategies.etp * expert_load(strategies, scenario)


def grouped_products(strategies: Strategies, scenario: Scenario) -> Passes:
    """The experts' products: one small product per expert of the rank, of the tokens routed to it."""
    model, moe = scenario.model, experts_of(scenario)
    arrived = arrived_tokens(strategies, scenario)
    groups = np.maximum(moe.num_experts / strategies.ep, 1.0)
    h, f = float(model.expert_hidden_size), moe.expert_ffn_hidden_size / strategies.etp
    first = _grouped_product(arrived, groups, f * model.ffn_branches, h, scenario)
    second = _grouped_product(arrived, groups, h, f, scenario)
    return first + second + Passes(np.zeros(len(strategies)), _slowed_bias_gradients(arrived, groups, f, scenario))


def _grouped_product(tokens: Floats, groups: Floats, n: Number, k: Number, scenario: Scenario) -> Passes:
    """Forward, data gradient and weight gradient of ``groups`` products of tokens / groups rows each."""
    rows = tokens / groups
    fit, seconds = _of_one_expert(rows, scenario)
    forward, data, weight = seconds(rows, n, k), seconds(rows, k, n), seconds(n, k, rows)
    summed = np.maximum(weight * scenario.rates.matmul.wgrad_ratio, _accumulation(rows, n, k, fit, scenario))
    summed = 0.0 * summed if scenario.frozen else summed
    casts = (FUSED_CASTS if scenario.fused_experts else 1.0) * quantisation(rows, n, k, scenario)
    return Passes(groups * (forward + casts.forward), groups * (data + summed + casts.backward))


def _of_one_expert(rows: Floats, scenario: Scenario) -> tuple[GemmFit, Callable[[Number, Number, Number], Floats]]:
    """The rates of grouped products, and the seconds of one of (m, n, k) by an expert with so many rows."""
    rates, reached = scenario.rates, scenario.stack.calibrated.expert_efficiency
    fit = scenario.group.accelerator.kernels.grouped
    own = {"overhead": fit.group_overhead, "memory_efficiency": fit.memory_efficiency, "area_half": 0.0}
    plain = rates.matmul.model_copy(update=own)
    peak, bandwidth = rates.matmul_peak * reached / (1.0 + fit.rows_half / rows), rates.bandwidth * reached

    def seconds(m: Number, n: Number, k: Number) -> Floats:
        return matmul_seconds(m=m, n=n, k=k, fit=plain, peak=peak, bandwidth=bandwidth)

    return plain, seconds


def _slowed_bias_gradients(tokens: Floats, groups: Floats, inner: Floats, scenario: Scenario) -> Floats:
    """Seconds that the kernel of the activation's gradient takes beyond its usual time, as it sums gradients of biases.

    That kernel is the second product's data gradient with the activation's gradient behind it (``grouped_gemm_dglu``).
    """
    model, extra = scenario.model, scenario.stack.experts.bias_gradient_slowdown - 1.0
    if not (extra and scenario.fused_experts and model.ffn_bias) or scenario.frozen:
        return np.zeros_like(tokens)
    rows = tokens / groups
    product = groups * _of_one_expert(rows, scenario)[1](rows, inner, float(model.expert_hidden_size))
    moved = ACTIVATION[model.gated_ffn][1] * tokens * inner
    activation = scenario.rates.stream_seconds(moved, _routed_share(scenario))
    return extra * (product + activation)


def _accumulation(rows: Floats, n: Number, k: Number, fit: GemmFit, scenario: Scenario) -> Floats:
    """Seconds to read both operands of a weight gradient, and to read and write the buffer it is added to.

    Few rows an expert make that the longer part: the buffer is as large as the weights, however few tokens came. Of 36
    such products measured on B200 [simumax] the median error falls from 25 to 12 %.
    """
    stack = scenario.stack
    buffer = WORD if stack.gradients.accumulate_traffic else 2.0 * stack.gradients.gradient_bytes
    moved = WORD * rows * (n + k) + buffer * n * k
    reached = fit.memory_efficiency * stack.calibrated.expert_efficiency / stack.calibrated.compute_time
    return scenario.rates.stream_seconds(moved, reached) + fit.overhead


def expert_streams(strategies: Strategies, scenario: Scenario) -> Passes:
    """Permuting tokens to their experts and back, and everything memory-bound between the products.

    Routed tokens are scattered rows, which move at a share of the bandwidth of their own (``GroupedFit``); what is
    sorted or padded behind a plain all-to-all is copied in runs of rows, at that of other fused kernels.
    """
    moe, arrived = experts_of(scenario), arrived_tokens(strategies, scenario)
    inner, held = moe.expert_ffn_hidden_size / strategies.etp, moe.num_experts / strategies.ep
    shared = moe.shared_expert_ffn_hidden_size / strategies.tp * tokens_per_rank(strategies, scenario)
    forward, backward, copied = routed_traffic(scenario, arrived=arrived, inner=inner, held=held)
    routed, moved = streamed(forward, backward, scenario, _routed_share(scenario)), ACTIVATION[scenario.model.gated_ffn]
    weighed = routed_tokens(strategies, scenario) * float(scenario.model.expert_hidden_size)
    weighed = weighed * scenario.stack.experts.scores_in_fp32
    forward, backward = copied + WEIGHED[0] * weighed, copied + WEIGHED[1] * weighed
    return routed + streamed(moved[0] * shared + forward, moved[1] * shared + backward, scenario)


def routed_traffic(
    scenario: Scenario, *, arrived: Floats, inner: Floats, held: Floats
) -> tuple[Floats, Floats, Floats]:
    """Bytes of scattered rows and activations, forward and backward, and of rows copied in either pass, arrays (N,).

    Sorting what a plain all-to-all delivered moves the rows that one sender has for one expert together, padding an
    expert's rows all of them: Transformer Engine's kernels for both copy whole rows (``_sort_chunks_by_map_kernel``,
    ``multi_padding_kernel``; v2.6 to v2.9), and gather nothing. With a capacity Megatron-Core turns [ranks, experts,
    places, h] with PyTorch's copy of single values, which is taken to be as slow as gathering.

    Args:
        scenario: model, stack and precision.
        arrived: tokens that the experts of a rank compute.
        inner: inner width of one expert on a rank.
        held: experts of a rank.
    """
    model, h = scenario.model, float(scenario.model.expert_hidden_size)
    whole_rows = not (scenario.fused_experts or scenario.stack.switches.expert_capacity)
    plain = scenario.stack.switches.dispatcher == "alltoall"
    sort = SORT * plain * (held > 1)
    padding = PAD * plain if scenario.recipe.reduced else 0.0
    copied = arrived * (sort + padding) * h * whole_rows
    permuted = (PERMUTE + sort * (not whole_rows)) * h
    forward, backward = (permuted + each * inner for each in ACTIVATION[model.gated_ffn])
    if model.ffn_bias and not scenario.fused_experts:
        forward, backward = forward + BIAS[0] * h, backward + BIAS[1] * h
    if model.clamped_activation and not scenario.fused_experts:
        forward, backward = forward + CLAMP[0] * inner, backward + CLAMP[1] * inner
    return arrived * forward, arrived * backward, copied


def activation_traffic(scenario: Scenario, *, arrived: Floats, inner: Floats) -> Floats:
    """Bytes of the activation alone in the forward pass, (N,); arguments as of ``routed_traffic``."""
    model = scenario.model
    clamped = CLAMP[0] if model.clamped_activation and not scenario.fused_experts else 0.0
    return arrived * inner * (ACTIVATION[model.gated_ffn][0] + clamped)


def _routed_share(scenario: Scenario) -> float:
    """Share of the bandwidth at which routed tokens move."""
    grouped, calibrated = scenario.group.accelerator.kernels.grouped, scenario.stack.calibrated
    share = grouped.stream_efficiency * calibrated.elementwise_efficiency * calibrated.expert_efficiency
    return share / calibrated.compute_time


def activation_seconds(strategies: Strategies, scenario: Scenario) -> Floats:
    """Seconds of the routed experts' activation in the forward pass, at the rate of ``expert_streams``, (N,)."""
    inner = experts_of(scenario).expert_ffn_hidden_size / strategies.etp
    moved = activation_traffic(scenario, arrived=arrived_tokens(strategies, scenario), inner=inner)
    return scenario.rates.stream_seconds(moved, _routed_share(scenario))


def dispatch_seconds(strategies: Strategies, scenario: Scenario) -> Passes:
    """All-to-all to the experts and back, and the gather and scatter of split experts; exposed, unless hidden.

    The lanes of all tiers work at once: where a token enters a domain once, what is copied inside it travels while
    the next tokens arrive. HybridEP gathers the whole map of tokens to experts first [HybridEP].
    """
    stack, tiers, moe = scenario.stack, scenario.group.tiers, experts_of(scenario)
    routed = routed_tokens(strategies, scenario) * expert_load(strategies, scenario)
    group, h = expert_group(strategies), float(scenario.model.expert_hidden_size)
    split = Group(strategies.etp, ((strategies.etp, np.ones_like(strategies.etp)),))
    out, back = HYBRID_REACH if stack.switches.dispatcher == "hybridep" else (None, None)
    weights = routed_weights(strategies, scenario)

    def moved(width: float, extra: Floats | float, nearest: float | None) -> Floats:
        """Seconds on the way there, or back, of values of ``width`` bytes and so many further bytes for a token."""
        if stack.switches.dispatcher == "allgather":
            every = width * region_tokens(strategies, scenario) * h * strategies.ep
            across = gather_seconds(every, group, tiers)
        else:
            copies = moe.top_k if stack.switches.dispatcher in SENT_ONCE else 1
            limits = moe.router_group_top_k, moe.router_groups
            size = dispatched_bytes(copies=routed, hidden_size=h, word=width, extra=extra)
            across = all_to_all_seconds(size, group, tiers, copies=copies, groups=limits, nearest=nearest)
        whole = np.where(strategies.etp > 1, gather_seconds(width * routed * h * strategies.etp, split, tiers), 0.0)
        return np.where(strategies.ep > 1, across, 0.0) + whole

    left = 1.0 if is_overlapped(stack) else stack.overlap.ep
    reached = left / stack.calibrated.reached("expert")
    word, routes = stack.experts.dispatch_bytes, gathered_routes(strategies, scenario)
    forward = moved(word, weights, out) + moved(WORD, 0.0, back) + routes
    return reached * Passes(forward, moved(word, 0.0, out) + moved(WORD, weights, back))


def routed_weights(strategies: Strategies, scenario: Scenario) -> Floats:
    """Further bytes for every copy of a token on its way there, and of its gradient on its way back, (N,).

    HybridEP sends the weights that the router gave the token in fp32, one for each expert of the domain that it enters,
    most of them zero (``expert_output_prob``, ``NUM_OF_EXPERTS_PER_RANK * NUM_OF_RANKS_PER_NODE``) [HybridEP].
    """
    if scenario.stack.switches.dispatcher != "hybridep":
        return np.zeros(len(strategies))
    near = expert_group(strategies).ranks_within(scenario.group.tiers[0].domain)
    return 4.0 * experts_of(scenario).num_experts / strategies.ep * near


def gathered_routes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Seconds to gather which experts all tokens of a layer go to, a byte for each of either, (N,) [HybridEP]."""
    stack = scenario.stack
    if stack.switches.dispatcher != "hybridep":
        return np.zeros(len(strategies))
    size = region_tokens(strategies, scenario) * strategies.ep * experts_of(scenario).num_experts
    return np.where(strategies.ep > 1, gather_seconds(size, expert_group(strategies), scenario.group.tiers), 0.0)
