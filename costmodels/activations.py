"""Activations that a layer keeps of one micro-batch for its backward pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from costmodels.blocks import attention_kept
from costmodels.context import repeated_bytes
from costmodels.experts import expert_activation_bytes
from costmodels.kernels import WORD
from costmodels.layer_kinds import Kind
from costmodels.modules import module_bytes, picked
from costmodels.passes import region_tokens, tokens_per_rank
from costmodels.scan import mamba_kept_width
from costmodels.scenario import REDUCED, Scenario
from costmodels.strategy import Floats, Recompute, Strategies

_KEPT_OF_EXPERTS = {"attention": 1.0, "operators": 0.5, "projections": 0.0, "up-projections": 1.0}
"""Share of the experts' activations that each kind of selective recomputation keeps."""


def layer_activation_bytes(rows: Strategies, scenario: Scenario) -> Floats:
    """Bytes that an average layer keeps of one micro-batch for its backward pass, shape (N,)."""
    depth = scenario.depth
    if depth.uniform:
        return kind_activation_bytes(rows, scenario, depth.kinds[0])
    each = zip(depth.shares, depth.kinds, strict=True)
    return np.asarray(sum(share * kind_activation_bytes(rows, scenario, kind) for share, kind in each))


def kind_activation_bytes(rows: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Bytes that one layer of a kind keeps of one micro-batch for its backward pass, shape (N,).

    Kept whole, or split over the tensor ranks by sequence parallelism: the inputs of norms and of the
    column-parallel products, dropout masks; split always: queries, keys, values, scores, the inputs of the
    row-parallel products. For a GPT block this is s b h (10 + 24/t + 5 a s / (h t)) [Korthikanti22].
    """
    model, stack = scenario.model, scenario.stack
    h = float(model.hidden_size)
    mask = 1.0 if stack.dropout else 0.0
    branches = 1.0 if model.parallel_block else float(kind.parts)
    # Inputs of products are kept as they were multiplied.
    saved = scenario.recipe.word if scenario.precision in REDUCED else WORD
    norms = model.num_norms if kind.parts > 1 else 1
    whole: Any = norms * WORD * h + branches * saved * h + kind.parts * mask * h
    dense = float(kind.ffn == "dense")
    attention = kind.attends * WORD * (model.qkv_width + model.attention_output_width)
    inner: Any = attention + dense * (WORD * model.fc1_width + saved * model.ffn_hidden_size)
    if kind.mixer == "mamba":
        inner += mamba_kept_width(scenario, saved)
    if kind.attends and model.mla is not None:
        whole += WORD * (model.mla.q_down_width + model.mla.kv_down_width)
    if kind.attends and model.localized_filtering:
        inner += saved * (model.hidden_size / 2 + 2 * h)
    more_whole, more_inner = unfused_widths(scenario, kind)
    flash = scenario.rates.attention is not None
    scores: Any = kind.attends * attention_kept(scenario, kind)
    selective = (rows.recompute == Recompute.SELECTIVE) & (rows.recompute_modules == 0)
    if stack.selective == "attention":
        scores = scores if flash else np.where(selective, 0.0, scores)
    elif stack.selective == "operators":
        whole, inner = np.where(selective, whole / 2.0, whole), np.where(selective, inner / 2.0, inner)
    elif stack.selective == "up-projections":
        kept_inside = kind.attends * WORD * model.attention_output_width + dense * saved * model.fc1_width
        kept_inside += 0.0 if model.mla else kind.attends * WORD * model.qkv_width
        kept_inside += mamba_kept_width(scenario, saved) if kind.mixer == "mamba" else 0.0
        whole, inner = np.where(selective, whole - branches * saved * h, whole), np.where(selective, kept_inside, inner)
    else:
        whole, inner = (
            np.where(selective, WORD * h, whole),
            np.where(selective, kind.attends * WORD * model.qkv_width, inner),
        )
    plain = np.where(selective & (stack.selective != "attention"), 0.0, 1.0)
    gathered = tokens_per_rank(rows, scenario) - region_tokens(rows, scenario)
    products = branches * saved * h * stack.gathered_inputs
    whole, inner = whole + plain * more_whole, inner + plain * more_inner
    kept = (
        gathered * products
        + region_tokens(rows, scenario) * whole
        + tokens_per_rank(rows, scenario) * (inner + scores) / rows.tp
    )
    if kind.attends:
        kept = kept + repeated_bytes(rows, scenario)
    kept = kept - kind_module_bytes(rows, scenario, kind)
    if kind.ffn != "experts":
        return kept
    share = np.where(selective, _KEPT_OF_EXPERTS[stack.selective], 1.0)
    repeated = selective & (stack.selective == "up-projections")
    return kept + share * expert_activation_bytes(rows, scenario, saved, repeated=repeated)


def unfused_widths(scenario: Scenario, kind: Kind) -> tuple[float, float]:
    """Bytes per token that operations which a stack has not fused keep: of the whole width, and split over ranks."""
    model, keeps = scenario.model, scenario.stack.keeps
    norms = model.num_norms if kind.parts > 1 else 1
    gated = kind.ffn == "dense" and model.gated_ffn
    repeated = model.attention_width + model.attention_output_width - (model.qkv_width - model.attention_width)
    inner = {
        "gate": WORD * model.ffn_hidden_size * gated,
        "key-values": WORD * kind.attends * repeated,
        "rotated": WORD * kind.attends * (model.position == "rotary") * (model.attention_width + model.key_value_width),
        "transposed": WORD * kind.attends * model.attention_output_width,
    }
    width = 4.0 * ("norm" in keeps) + WORD * ("norm-16" in keeps)
    return width * model.hidden_size * norms, sum(inner.get(name, 0.0) for name in keeps)


def checkpoint_bytes(rows: Strategies, scenario: Scenario) -> Floats:
    """Bytes of one recomputed layer's input, of one micro-batch, (N,); its share where several have one together."""
    region = region_tokens(rows, scenario)
    if scenario.stack.partitioned_checkpoints:
        region = np.minimum(region, tokens_per_rank(rows, scenario) / rows.tp)
    return WORD * scenario.model.hidden_size * region / rows.recompute_num_layers


def kept_bytes_of_kind(rows: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Bytes that one layer keeps of one micro-batch, on the device or the host; its input where recomputed whole."""
    checkpoint = checkpoint_bytes(rows, scenario)
    return np.where(rows.recompute >= Recompute.FULL, checkpoint, kind_activation_bytes(rows, scenario, kind))


def kept_bytes_of_layer(rows: Strategies, scenario: Scenario) -> Floats:
    """The same of an average layer, (N,)."""
    depth = scenario.depth
    each = zip(depth.shares, depth.kinds, strict=True)
    return np.asarray(sum(share * kept_bytes_of_kind(rows, scenario, kind) for share, kind in each))


def kind_module_bytes(rows: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Bytes of one layer and micro-batch that named modules are repeated for instead of kept, shape (N,)."""
    if not rows.recompute_modules.any():
        return np.zeros(len(rows))
    return picked(rows.recompute_modules, module_bytes(rows, scenario, kind))
