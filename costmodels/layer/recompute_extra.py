"""What recomputation does not repeat of a layer, and what a list of operators repeats of its products."""

from __future__ import annotations

import numpy as np

from costmodels.layer.attention import attention_matmuls
from costmodels.layer.experts import grouped
from costmodels.layer.forward_backward import (
    Passes,
    last_product,
    linear,
    region_tokens,
    tokens_per_rank,
    turning_seconds,
)
from costmodels.layout.placement import group_of
from costmodels.model.layer_kinds import Kind
from costmodels.names import WORD
from costmodels.primitives.collectives import all_reduce_seconds, gather_seconds
from costmodels.primitives.kernels import stream_seconds
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Strategies

FOLLOWED = 2
"""Norms of a layer up to which none reads what its last product returns."""


def spared(unread: Passes, rows: Strategies, scenario: Scenario, kind: Kind, ahead: Floats) -> Floats:
    """By how much a repeated forward pass of a dense layer is shorter for ending where no gradient reads on, (N,).

    Left out are the ``unread`` products, the sum of what they return over the tensor ranks and the addition to the
    residual, as far as the device runs ``ahead`` seconds behind the host that launches them. A norm behind the last
    product, or dropout, reads it.
    """
    model, stack = scenario.model, scenario.stack
    if kind.ffn != "dense" or model.num_norms > FOLLOWED or stack.switches.dropout:
        return np.zeros(len(rows))
    added = 6.0 * model.hidden_size * region_tokens(rows, scenario)
    adding = stream_seconds(traffic=added, share=scenario.rates.stream, bandwidth=scenario.rates.bandwidth)
    whole = unread.forward + adding + summing_up(rows, scenario)
    return whole if stack.switches.launch_blocking else np.clip(ahead, 0.0, whole)


def summing_up(rows: Strategies, scenario: Scenario) -> Floats:
    """Exposed forward seconds of adding up a part's outputs over the tensor ranks, as in ``tensor_parallel``, (N,)."""
    size = WORD * tokens_per_rank(rows, scenario) * scenario.model.hidden_size
    group, tiers = group_of(rows, "tp"), scenario.group.tiers
    scattered = gather_seconds(size, group, tiers) + turning_seconds(size, scenario)
    one = np.where(rows.sequence_parallel > 0, scattered, all_reduce_seconds(size, group, tiers))
    return one * (rows.tp > 1) * scenario.stack.overlap.tp_forward / scenario.stack.calibrated.communication_efficiency


def second_products(rows: Strategies, scenario: Scenario, kind: Kind, matmul: Passes) -> Floats:
    """Forward seconds of the products of a layer that a list of operators does not keep, shape (N,).

    Every second one, in the order in which it runs them: of queries, keys, values, output, gate, up and down these are
    keys, output and up; down where there is no gate. Half of all where a layer has others. Grouped products of experts
    are in no list (``_grouped_mm`` [torchtitan]); no gradient reads what the last of them returns.
    """
    model, T, t = scenario.model, tokens_per_rank(rows, scenario), rows.tp.astype(np.float64)
    if kind.ffn == "experts" and scenario.stack.switches.recompute_policy == "operators":
        each = grouped(rows, scenario).forward
        return (matmul.forward - each) / 2.0 + each * model.ffn_branches / (model.ffn_branches + 1.0)
    if not kind.attends or model.mla is not None or kind.ffn != "dense":
        return matmul.forward / 2.0
    h = float(model.hidden_size)
    keys = linear(T, model.head_dim * np.maximum(model.num_query_groups / t, 1.0), h, scenario)
    output = attention_matmuls(rows, scenario, ("output",))
    wide = linear(T, model.ffn_hidden_size / t, h, scenario) if model.gated_ffn else last_product(rows, scenario)
    return keys.forward + output.forward + wide.forward
