"""What training adapters beside frozen weights takes and spares.

A frozen weight has no gradient: its product multiplies twice, not three times, keeps no input for the backward pass,
and owes optimizer and data ranks nothing. Adapters are two narrow products beside it, which memory bounds, and the sums
of what both return [Hu21].
"""

from __future__ import annotations

import numpy as np

from costmodels.adapters import OF_ATTENTION, Adapted
from costmodels.kernels import WORD, stream_seconds
from costmodels.layer_kinds import Kind, layer_kinds
from costmodels.model import Model
from costmodels.parameters import attention_projections, expert_parameters, mtp_sets, parameters
from costmodels.passes import Passes, product, tokens_per_rank
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies

SUMMED = 3.0 * WORD
"""Bytes per value to add what an adapter returns to what its module does: both are read, their sum is written."""
KERNELS = 4.0
"""Of one adapter's forward pass: two products, a scale, a sum."""


def sides(model: Model, kind: Kind, module: Adapted) -> tuple[tuple[float, float], ...]:
    """Inputs and outputs of every product that a module of a layer of this kind has; none where there is no module.

    Latent attention's products in front of the core are all ``linear_qkv``; routed experts have no adapters.
    """
    if module in OF_ATTENTION:
        last = module == "linear_proj"
        found = [p for p in attention_projections(model) if (p.name == "output") == last]
        return tuple((float(p.inputs), float(p.outputs)) for p in found) if kind.attends else ()
    h = float(model.hidden_size)
    if kind.ffn != "dense":
        return ()
    return ((h, float(model.fc1_width)),) if module == "linear_fc1" else ((float(model.ffn_hidden_size), h),)


def adapted(scenario: Scenario, kind: Kind) -> tuple[tuple[Adapted, float, float], ...]:
    """Modules of a layer of this kind with adapters, inputs and outputs of each product."""
    adapters = scenario.stack.adapters
    modules = adapters.modules if adapters else ()
    return tuple((module, n, k) for module in modules for n, k in sides(scenario.model, kind, module))


def adapter_parameters(scenario: Scenario) -> float:
    """Values of all adapters of the model."""
    adapters = scenario.stack.adapters
    if adapters is None:
        return 0.0
    each = {kind: sum(n + k for _, n, k in adapted(scenario, kind)) for kind in scenario.depth.kinds}
    return adapters.rank * sum(each[kind] for kind in layer_kinds(scenario.model, scenario.seq_length))


def weights_word(scenario: Scenario, word: float) -> float:
    """Bytes per parameter of a layer's weights, which may be narrower than ``word`` where they are frozen.

    Embedding and head stay wide [Dettmers23].
    """
    return (scenario.frozen and scenario.stack.frozen_bytes) or word


def trained_share(scenario: Scenario) -> float:
    """Values that train over the model's parameters without routed experts and routers: 1 unless weights are frozen.

    Adapters are counted as if they were spread over these parameters alike.
    """
    if scenario.stack.adapters is None:
        return 1.0
    model, moe = scenario.model, scenario.model.moe
    each = expert_parameters(model) + model.hidden_size
    routed = (model.num_moe_layers + mtp_sets(model)) * moe.num_experts * each if moe else 0
    return adapter_parameters(scenario) / (parameters(model) - routed)


def trained_experts(scenario: Scenario) -> float:
    """Share of the parameters of routed experts that train, which have no adapters."""
    return 0.0 if scenario.frozen else 1.0


def trained_parameters(scenario: Scenario) -> float:
    """Values of the whole model that train."""
    return adapter_parameters(scenario) if scenario.frozen else float(parameters(scenario.model))


def reads_input(scenario: Scenario, kind: Kind, module: Adapted) -> bool:
    """Whether an adapter reads what enters a module, and keeps it for its own gradient."""
    return any(name == module for name, _, _ in adapted(scenario, kind))


def adapter_seconds(rows: Strategies, scenario: Scenario, kind: Kind) -> Passes:
    """Seconds of a layer's adapters, (N,): in 16 bits, the wide side of either product split as its module's is."""
    adapters, rates, t = scenario.stack.adapters, scenario.rates, rows.tp.astype(np.float64)
    T = tokens_per_rank(rows, scenario)
    total = Passes(np.zeros(len(T)), np.zeros(len(T)))
    if adapters is None:
        return total
    rank = float(adapters.rank)
    known = {"share": rates.stream, "bandwidth": rates.bandwidth}
    for module, inputs, outputs in adapted(scenario, kind):
        rowwise = module in {"linear_proj", "linear_fc2"}
        k, n = (inputs / t, outputs) if rowwise else (inputs, outputs / t)
        down = product(T, rank, k, rates.head, rates.head_peak, rates.bandwidth)
        up = product(T, n, rank, rates.head, rates.head_peak, rates.bandwidth)
        sums = Passes(stream_seconds(traffic=SUMMED * T * n, **known), stream_seconds(traffic=SUMMED * T * k, **known))
        total = total + down + up + sums
    return total
