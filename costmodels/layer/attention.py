"""Attention of one layer: the projections around it and its core, fused into a kernel or not."""

from __future__ import annotations

from functools import partial
from math import log2

import numpy as np

from costmodels.arrays import Number
from costmodels.layer.context import is_gathered, merge_seconds, ring_ranks
from costmodels.layer.forward_backward import (
    Passes,
    linear,
    linears,
    no_passes,
    region_tokens,
    sequences_per_rank,
    streamed,
    tokens_per_rank,
)
from costmodels.model.further import entries_of, further_parts, further_projections, scored_keys
from costmodels.model.layer_kinds import DENSE, Kind, reach_of
from costmodels.model.model import Model
from costmodels.model.parameters import attention_projections
from costmodels.primitives.kernels import (
    attention_flops,
    attention_seconds,
    blocked_pairs,
    causal_pairs,
    matmul_seconds,
)
from costmodels.scenario import Scenario
from costmodels.strategy import DENSE_AXES, Bools, Floats, Strategies, of_axes
from hardware.kernels import AttentionFit

RANDOM_NUMBER = 62e-12
"""Seconds in which one compute unit draws the random number of a query-key pair. Forward and backward together, 33.6
million pairs take 24 and 45 us more with dropout on B300, under FlashAttention-2 and cuDNN, 33 on GB200 and 20 on H200
[TE-dropout]: 124 ps a unit and pair, by the logarithms' mean."""
MAPS = 4
"""Attention maps, and rows of them, that Megatron's fused softmax takes at a time."""
UNFUSED_SOFTMAX = (36.0, 40.0)
"""Bytes per pair of Megatron's softmax without it, both ways: a cast to fp32 (6), scale (8), mask (8), softmax
(8) and a cast back (6); of their gradients the softmax's reads two and writes one (12)."""
UNFUSED_SOFTMAX_KERNELS = 4.0
"""Kernels that this launches more than the fused one."""
BIASED = 4.0
"""Bytes per pair by which ALiBi lengthens unfused attention: its slopes are written out as the output that the product
of queries and keys adds to (``torch.baddbmm``) and read there, or added to it by a kernel [Megatron-DeepSpeed]."""
BLOCK_KEYS = 128.0
"""Keys that a block of FlashAttention-2's backward pass holds, of heads of 64 to 128 values."""
SUM_WORD = 4.0
"""Bytes of a value of a sum in fp32."""


def up_projections(strategies: Strategies, scenario: Scenario) -> Passes:
    """Queries, keys and values out of their latent vectors; nothing in ordinary attention."""
    return attention_matmuls(strategies, scenario, ("q_up", "kv_up"))


@of_axes(*DENSE_AXES)
def attention_matmuls(strategies: Strategies, scenario: Scenario, among: tuple[str, ...] = (), but: str = "") -> Passes:
    """The projections around the attention core (and Yuan's two convolutions) but one, or those of the names given.

    Projections that tensor parallelism shards split the side that belongs to heads; those into the latent
    vectors of latent attention are whole on every rank, over its own tokens.
    """
    model, T, t = scenario.model, tokens_per_rank(strategies, scenario), strategies.tp.astype(np.float64)
    total = no_passes(strategies)
    for p in attention_projections(model):
        if p.name == but or (among and p.name not in among):
            continue
        if not p.sharded:
            total = total + linear(region_tokens(strategies, scenario), float(p.outputs), float(p.inputs), scenario)
        elif p.name == "output":
            total = total + linear(T, float(p.outputs), p.inputs / t, scenario)
        elif p.name == "qkv":
            widths = projected_widths(model, t)
            total = total + linears(T, widths, float(p.inputs), scenario, name="qkv")
        else:
            total = total + linear(T, p.outputs / t, float(p.inputs), scenario)
    if model.localized_filtering and not among:
        h = float(model.hidden_size)
        total = total + linear(T, h / 2 / t, 2 * h, scenario) + linear(T, h / t, h, scenario)
    return total


def projected_widths(model: Model, t: Floats) -> tuple[Floats, ...]:
    """Widths on a rank of queries, and of the keys and values that a layer projects."""
    groups = np.maximum(model.num_query_groups / t, 1.0)
    keys, values = model.head_dim * groups, model.v_head_dim * groups
    queries = model.attention_width / t
    return {"none": (queries, keys, values), "values": (queries, keys), "all": (queries,)}[model.shared_keys]


def has_further_matmuls(scenario: Scenario, kind: Kind) -> bool:
    """Whether the layer multiplies by matrices other than those of its mixer and its network."""
    return bool(further_parts(scenario.model, kind))


def further_matmuls(strategies: Strategies, scenario: Scenario, kind: Kind) -> Passes:
    """Products of ``further_parts`` and an indexer's scores of all keys, whole on every tensor rank.

    Scores are products in 8 bits in DeepSeek-V3.2's kernel; priced in the format of the layers.
    """
    model, region = scenario.model, region_tokens(strategies, scenario)
    total, keys = no_passes(strategies), scored_keys(model, kind, float(scenario.seq_length))
    for p in further_projections(model, kind):
        total = total + linear(region, float(p.outputs), float(p.inputs), scenario)
    if keys and model.indexer is not None:
        width = float(model.indexer.head_dim)
        total = total + linear(region * model.indexer.num_heads, keys, width, scenario)
    return total


def attended_pairs(model: Model, seq_length: float, kind: Kind = DENSE) -> float:
    """Causal query-key pairs per sequence and head, those with compressed keys included."""
    if model.bidirectional:
        return seq_length * seq_length
    pairs = causal_pairs(seq_length, window=_window(model, kind), chunked=_chunked(model, kind))
    return pairs + _compressed_pairs(model, seq_length, kind)


def _compressed_pairs(model: Model, seq_length: float, kind: Kind) -> float:
    """Pairs with keys that stand for so many tokens each, all of them or as many as an indexer selects."""
    entries = entries_of(model, kind)
    if entries is None:
        return 0.0
    rate, chosen = entries
    return rate * causal_pairs(seq_length / rate, window=None if chosen is None else float(chosen))


def _window(model: Model, kind: Kind) -> float | None:
    reach = reach_of(model, kind)
    return None if reach is None else float(reach)


def _chunked(model: Model, kind: Kind) -> bool:
    return model.chunked_attention and kind.mixer == "local"


def packed_pairs(scenario: Scenario, kind: Kind = DENSE) -> float:
    """Causal query-key pairs per sequence and head, of all the documents that are packed into it."""
    length = scenario.attended_length
    return scenario.seq_length / length * attended_pairs(scenario.model, float(length), kind)


def computed_pairs(model: Model, seq_length: float, kind: Kind, block: float) -> float:
    """Pairs of a sequence and head that a kernel computes in blocks of ``block`` queries and keys; 0: just those."""
    if not block or model.bidirectional:
        return attended_pairs(model, seq_length, kind)
    blocks = blocked_pairs(seq_length, block, window=_window(model, kind), chunked=_chunked(model, kind))
    return blocks + _compressed_pairs(model, seq_length, kind)


def attention_core(strategies: Strategies, scenario: Scenario, kind: Kind = DENSE) -> Passes:
    """Scores, softmax and weighted sum of one layer, without its projections."""
    if scenario.rates.attention is None:
        return _unfused_attention(strategies, scenario, kind)
    once = _fused_attention(strategies, scenario, kind)
    if scenario.stack.switches.deterministic:
        once = Passes(once.forward, _deterministic_backward(strategies, scenario, kind, once.backward))
    return once + dropout_seconds(strategies, scenario, kind)


def _deterministic_backward(strategies: Strategies, scenario: Scenario, kind: Kind, usual: Floats) -> Floats:
    """Seconds of a fused backward pass that adds up queries' gradients in one order, for ``usual`` ones in any, (N,).

    FlashAttention-2 gives each of ceil(units / heads) sums its share of the keys, where elsewhere every 128 keys are a
    block of work [flash-attention]: just more blocks than units, so that most of these idle in the second wave; and
    every sum is zeroed and read. On H100, 2 x 16 heads and 8,192 tokens that is 7.8 ms, for 4.4 without; measured were
    8.3 (GitHub Dao-AILab/flash-attention, pull request 1893). cuDNN on Hopper writes the gradients of all scores to
    memory for a product of their own (GitHub NVIDIA/cudnn-frontend, pull request 398). What others pay nobody
    published.
    """
    rates, model = scenario.rates, scenario.model
    heads = np.maximum(sequences_per_rank(strategies, scenario) * model.num_heads / strategies.tp, 1.0)
    if rates.attention_name == "flash-2":
        blocks_of_keys = np.ceil(scenario.seq_length / strategies.cp / BLOCK_KEYS)
        splits = np.minimum(np.ceil(rates.compute_units / heads), blocks_of_keys)
        filling = splits * heads / (rates.compute_units * np.ceil(splits * heads / rates.compute_units))
        summed = SUM_WORD * tokens_per_rank(strategies, scenario) * model.attention_width / strategies.tp
        return usual / filling + rates.stream_seconds(2.0 * (splits - 1.0) * summed)
    if rates.attention_name == "cudnn" and scenario.group.accelerator.architecture.startswith("Hopper"):
        pairs = packed_pairs(scenario, kind)
        return usual + rates.stream_seconds(2.0 * scenario.word * heads * pairs / strategies.cp)
    return usual


def dropout_seconds(strategies: Strategies, scenario: Scenario, kind: Kind) -> Passes:
    """Seconds to draw what fused attention's dropout needs, a number for every pair in either pass, (N,).

    Of other vendors' kernels nobody published what it costs.
    """
    if not scenario.stack.switches.dropout or scenario.group.accelerator.vendor != "NVIDIA":
        return no_passes(strategies)
    pairs = packed_pairs(scenario, kind) * scenario.model.num_heads
    shared = strategies.tp * strategies.cp * scenario.rates.compute_units
    drawn = pairs * sequences_per_rank(strategies, scenario) / shared
    once = RANDOM_NUMBER * drawn
    return Passes(once, once)


def keys_scored(scenario: Scenario, kind: Kind) -> float:
    """Keys that unfused attention multiplies every query with, half of which a mask leaves out.

    All of them, or block by block as far as the diagonal; within a sliding window where a stack cuts the scores into
    chunks twice as long as it [Beltagy20].
    """
    if scenario.stack.kernels.attention_block:
        s = float(scenario.seq_length)
        return computed_pairs(scenario.model, s, DENSE, scenario.stack.kernels.attention_block) / s
    if not scenario.stack.kernels.chunked_windows:
        return float(scenario.seq_length)
    return 2.0 * attended_pairs(scenario.model, scenario.seq_length, kind) / scenario.seq_length


def attention_kept(scenario: Scenario, kind: Kind = DENSE) -> float:
    """Bytes per token that the attention core keeps for its backward pass, all heads together.

    Fused, or block by block: one fp32 number per head. Unfused: softmax, in fp32 too where a stack keeps that, and with
    dropout its mask and output.
    """
    heads, stack = float(scenario.model.num_heads), scenario.stack
    if scenario.rates.attention is not None or stack.kernels.attention_block:
        return 4.0 * heads
    wide = 4.0 if "softmax" in stack.kernels.saved_tensors else 0.0
    kept = scenario.word + wide + ((1.0 + scenario.word) if stack.switches.dropout else 0.0)
    return kept * heads * keys_scored(scenario, kind)


def _fused_attention(strategies: Strategies, scenario: Scenario, kind: Kind) -> Passes:
    """One kernel; around a ring of r ranks r of them, each on s/r tokens; two over gathered keys and values.

    Of a rank's two chunks of s/2c tokens the first step of a ring attends with both, causally; in every later one
    some rank attends with one chunk to all that arrived, and sets the pace. Keys and values that were gathered are
    attended to by each chunk in a call of its own.
    """
    model, s = scenario.model, float(scenario.seq_length)
    share = sequences_per_rank(strategies, scenario) / (strategies.tp * strategies.cp)
    pairs = packed_pairs(scenario, kind)
    widths = {"key_width": model.attention_width, "value_width": model.attention_output_width}
    flops = attention_flops(pairs=pairs, **widths) * share
    span = 2.0 * pairs / s
    work = np.maximum(model.num_heads * s * share, 1.0)
    if not (strategies.cp > 1).any():
        return _fused_kernel(scenario, kind, flops, span, work)
    steps, gathered = ring_ranks(strategies, scenario), is_gathered(strategies)
    calls = np.where(gathered, 2, steps)
    first = _fused_kernel(scenario, kind, flops / calls, span / steps, np.where(gathered, work / 2.0, work))
    later = _fused_kernel(scenario, kind, flops / calls, span / steps, work / 2.0)
    return first + (calls - 1) * later + merge_seconds(strategies, scenario)


KERNEL_WIDTHS = {
    "memory-efficient": (32, 64, 128),
    "flash-1": (32, 64, 128),
    "flash-2": (32, 64, 96, 128, 160, 192, 224, 256),
    "flash-3": (64, 96, 128, 192, 256),
}
"""Widths of heads that a kernel is compiled for; others run as the next wider one (``max_k`` of ``cutlassB`` [SDPA],
``run_fmha_fwd`` of FlashAttention 1, ``HEADDIM_SWITCH`` of version 2 [Dao22])."""


def kernel_width(name: str, head_dim: int) -> int:
    """Width of a head that the kernel of that name computes for heads of ``head_dim``."""
    return next((width for width in KERNEL_WIDTHS.get(name, ()) if width >= head_dim), head_dim)


def _fused_kernel(scenario: Scenario, kind: Kind, flops: Floats, span: Number, work: Floats) -> Passes:
    rates, head_dim = scenario.rates, scenario.model.head_dim
    assert rates.attention is not None
    fit = rates.attention
    width = kernel_width(rates.attention_name, head_dim)
    flops = flops * width / head_dim
    known = {
        "span": span,
        "rows": work,
        "fit": fit,
        "peak": rates.attention_peak * fit.narrow ** log2(fit.full_width / min(width, fit.full_width)),
        "units": rates.compute_units,
    }
    there, back = _narrower_formats(scenario, fit)
    back = back if scenario.model.head_dim == scenario.model.v_head_dim else back / fit.unequal
    there = there * _computed_share(scenario, kind, fit.block)
    back = back * _computed_share(scenario, kind, fit.backward_block)
    past = _window_excess(scenario, kind)
    return Passes(
        attention_seconds(flops=flops * there, **known),
        attention_seconds(flops=flops * back * past, **known | {"span": span * past}, backward=True),
    )


def _window_excess(scenario: Scenario, kind: Kind) -> float:
    """Causal pairs over those of a window, where the backward pass computes the former all the same: in 8 bits.

    cuDNN 9.22 takes four times as long for twice the tokens then: 1.9 and 6.6 ms for 4096 and 8192 in MXFP8, with a
    window of 128 on GB300, where 16 bits take 0.44 and 0.86 [cudnn_frontend_sdpa].
    """
    if not scenario.attends_in_8_bits:
        return 1.0
    s = float(scenario.attended_length)
    return attended_pairs(scenario.model, s) / attended_pairs(scenario.model, s, kind)


def _narrower_formats(scenario: Scenario, fit: AttentionFit) -> tuple[float, float]:
    """Time of either pass in the format that attention runs in, over that in 16 bits."""
    if not scenario.attends_in_8_bits:
        return 1.0, 1.0
    widths = "" if scenario.model.head_dim == scenario.model.v_head_dim else "-unequal"
    whole = fit.in_8_bits.get(f"fp8{widths}", fit.in_8_bits["fp8"])
    return fit.in_8_bits.get(f"{scenario.recipe.fit}{widths}", whole)


def _computed_share(scenario: Scenario, kind: Kind, block: float) -> float:
    """Pairs computed over pairs attended."""
    model, s = scenario.model, float(scenario.attended_length)
    return computed_pairs(model, s, kind, block) / attended_pairs(model, s, kind)


ALIGNED = 8
"""Matrix units take rows of multiples of so many 16-bit values; batched products of other rows run on the ordinary
ones [Anthony24]."""


def _unfused_attention(strategies: Strategies, scenario: Scenario, kind: Kind) -> Passes:
    """Two batched products over all pairs (the causal half is computed and masked) and passes over the scores."""
    model, rates, s = scenario.model, scenario.rates, float(scenario.seq_length)
    d, span = float(model.head_dim), keys_scored(scenario, kind)
    queries = sequences_per_rank(strategies, scenario) * s * model.num_heads / (strategies.tp * strategies.cp)
    fit, peak = (rates.vector, rates.vector_peak) if model.head_dim % ALIGNED else (rates.head, rates.head_peak)
    product = partial(matmul_seconds, m=queries, fit=fit, peak=peak, bandwidth=rates.bandwidth)
    scores, context = product(n=span, k=d), product(n=float(model.v_head_dim), k=span)
    pairs = queries * span
    softmax, softmax_backward = softmax_traffic(strategies, scenario)
    products = Passes(scores + context, 2.0 * (scores + context))
    return products + streamed(pairs * softmax, pairs * softmax_backward, scenario)


def softmax_falls_back(strategies: Strategies, scenario: Scenario) -> Bools:
    """Whether the softmax of unfused attention falls back to PyTorch's own operators, shape (N,).

    Megatron's kernel takes rows no longer than the stack's ``softmax_keys``, and four attention maps at a time:
    micro-batch times heads of a rank must be a multiple of four [FusedSoftmax].
    """
    longest, s = scenario.stack.kernels.longest_fused_softmax, scenario.seq_length
    if not longest:
        return np.full(len(strategies), False)
    maps = sequences_per_rank(strategies, scenario) * scenario.model.num_heads // strategies.tp
    return (maps % MAPS != 0) | (s > longest) | (s % MAPS != 0)


def softmax_traffic(strategies: Strategies, scenario: Scenario) -> tuple[Floats, Floats]:
    """Bytes that scale, mask, softmax and dropout move per query-key pair, forward and backward, shape (N,)."""
    switches, again = scenario.stack.switches, softmax_falls_back(strategies, scenario)
    mask = 5.0 if switches.dropout else 0.0
    biased = BIASED * (scenario.model.position == "alibi")
    forward, backward = (4.0, 6.0) if switches.fused_softmax else (16.0, 14.0)
    return np.where(again, UNFUSED_SOFTMAX[0], forward) + mask + biased, np.where(
        again, UNFUSED_SOFTMAX[1], backward
    ) + mask
