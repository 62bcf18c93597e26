"""What runs pay that repeat themselves to the bit (``--deterministic-mode`` of Megatron-Core, ``deterministic``).

Sums that come in any order elsewhere come in one: the gradient of attention's queries. And PyTorch fills whatever it
allocates, ``torch.utils.deterministic.fill_uninitialized_memory`` being on by default.
"""

from __future__ import annotations

import numpy as np

from costmodels.layer.forward_backward import Passes, region_tokens, tokens_per_rank
from costmodels.layout.parameters_per_rank import kind_parameters_per_rank
from costmodels.model.layer_kinds import Kind
from costmodels.primitives.kernels import stream_seconds
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Strategies

KEYS = 128.0
"""Keys that a block of FlashAttention-2's backward pass holds, of heads of 64 to 128 values."""
WRITTEN_AND_READ = 2.0
SUMS = 4.0
"""Bytes of a value of a sum in fp32."""
FILLED_LOGIT = 8.0
"""Bytes per logit that are filled in vain [PyTorch-deterministic]: logits and their gradient in 16 bits, and the copy
in fp32 between them."""


def ordered_attention(rows: Strategies, scenario: Scenario, once: Passes, pairs: float) -> Passes:
    """The seconds of fused attention whose backward pass adds up queries' gradients in one order, (N,).

    FlashAttention-2 gives each of ceil(units / heads) sums its share of the keys, where elsewhere every 128 keys are a
    block of work [flash-attention]: just more blocks than units, so that most of these idle in the second wave; and
    every sum is zeroed and read. On H100, 2 x 16 heads and 8,192 tokens that is 7.8 ms, for 4.4 without; measured were
    8.3 (GitHub Dao-AILab/flash-attention, pull request 1893). cuDNN on Hopper writes the gradients of all scores to
    memory for a product of their own (GitHub NVIDIA/cudnn-frontend, pull request 398). What others pay nobody
    published.
    """
    rates, heads = scenario.rates, np.maximum(_heads(rows, scenario), 1.0)
    known = {"share": rates.stream, "bandwidth": rates.bandwidth}
    if rates.attention_name == "flash-2":
        splits = _splits(rows, scenario, heads)
        blocks = splits * heads
        filling = blocks / (rates.compute_units * np.ceil(blocks / rates.compute_units))
        sums = stream_seconds(traffic=WRITTEN_AND_READ * (splits - 1.0) * _sum_bytes(rows, scenario), **known)
        return Passes(once.forward, once.backward / filling + sums)
    if rates.attention_name == "cudnn" and scenario.group.accelerator.architecture.startswith("Hopper"):
        scores = scenario.word * heads * pairs / rows.cp
        return Passes(once.forward, once.backward + stream_seconds(traffic=WRITTEN_AND_READ * scores, **known))
    return once


def _heads(rows: Strategies, scenario: Scenario) -> Floats:
    """Heads of all sequences of a micro-batch on one rank, (N,)."""
    return rows.micro_batch_size * scenario.model.num_heads / rows.tp


def _splits(rows: Strategies, scenario: Scenario, heads: Floats) -> Floats:
    """Sums of queries' gradients in FlashAttention-2, (N,): as many as fill the device, but one for a block of keys."""
    keys = np.ceil(scenario.seq_length / rows.cp / KEYS)
    return np.minimum(np.ceil(scenario.rates.compute_units / heads), keys)


def _sum_bytes(rows: Strategies, scenario: Scenario) -> Floats:
    """Bytes of one sum of queries' gradients, (N,)."""
    return SUMS * tokens_per_rank(rows, scenario) * scenario.model.attention_width / rows.tp


def filled(rows: Strategies, scenario: Scenario, kind: Kind) -> Passes:
    """Seconds to fill what the modules of a dense layer are about to write, (N,): nothing unless ``deterministic``.

    Norms, products and attention allocate their outputs, and backward the gradients of their inputs; weights' too where
    products do not add them up. What a compiler fused allocates is not filled.
    """
    nothing = np.zeros(len(rows))
    if not scenario.stack.switches.deterministic:
        return Passes(nothing, nothing)
    model, T, region = scenario.model, tokens_per_rank(rows, scenario), region_tokens(rows, scenario)
    dense, attends = float(kind.ffn == "dense"), float(kind.attends)
    whole = (model.num_norms if kind.parts > 1 else 1) * region + (dense + attends) * T
    heads = attends * (2.0 * model.attention_width + 2.0 * model.key_value_width)
    wide = dense * model.ffn_hidden_size
    out = whole * model.hidden_size + T / rows.tp * (heads + wide * model.ffn_branches)
    back = whole * model.hidden_size + T / rows.tp * (heads + wide)
    weights = kind_parameters_per_rank(rows, scenario, kind) if scenario.stack.gradients.accumulate_traffic else nothing
    known = {"share": scenario.rates.stream, "bandwidth": scenario.rates.bandwidth}
    return Passes(
        stream_seconds(traffic=scenario.word * out, **known),
        stream_seconds(traffic=scenario.word * (back + weights), **known),
    )
