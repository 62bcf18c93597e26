"""What recomputation costs: a part of a layer runs again, and every checkpoint has calls of its own for the host.

[Megatron-Functional]: Megatron-LM, tests/functional_tests (``benchmarks/host_calls.py``).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from costmodels.layer.blocks import LayerSeconds
from costmodels.layer.launches import SHARED, expert_calls, half_calls
from costmodels.layer.recompute_modules import module_seconds, picked
from costmodels.model.layer_kinds import Kind
from costmodels.names import Recompute
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Ints, Strategies

CHECKPOINT: Final = 0.72
"""Calls of the host for one checkpoint beyond those of what runs again, over those of a dense layer's forward pass:
states of random generators read and set back in either pass, and a backward pass of its own. Layers that are recomputed
whole take 0.68 ms more than another forward pass, which takes 0.94, beside a DGX H100's host [Megatron-Functional]."""
DISCARDED: Final = 0.5
"""Calls over ``CHECKPOINT`` of a part that only lets its output go (``CheckpointWithoutOutput``), which needs no
backward pass of its own; assumed."""
CORE: Final = 1.0 / 3.0
"""Calls of attention's core over those of half a layer, of which norm, two projections and positions are the others;
assumed."""
SMALL: Final = 1.0 / 8.0
"""Calls of one norm or activation over those of half a layer; assumed."""
LATENT: Final = 0.5
"""The way up out of latent vectors, of what latent attention calls beyond any attention; assumed."""


def selective_seconds(
    rows: Strategies, block: Strategies, inverse: Ints, scenario: Scenario, layer: LayerSeconds, kind: Kind
) -> Floats:
    """Seconds by which selective recomputation makes a layer of a kind longer, shape (N,).

    Args:
        rows: the strategies, N of them.
        block: those of them that differ in what a layer costs, which ``layer`` and ``kind`` are priced for.
        inverse: where in ``block`` each of the N is, shape (N,).
        scenario: model, stack and device.
        layer: seconds of the layer without recomputation.
        kind: of the layer.
    """
    stack = scenario.stack
    repeated = layer.repeated(
        stack.switches.recompute_policy,
        attends=not scenario.keeps_attention,
        exchanges=not stack.recompute.saves_exchanges,
    )
    if scenario.stack.switches.recompute_policy == "attention":
        host = module_host_seconds(block, scenario, kind).get("core_attn", 0.0)
        repeated = _longer(repeated, host, layer.device_lag.backward, scenario)
    seconds = np.where(rows.recompute == Recompute.SELECTIVE, repeated[inverse], 0.0)
    if not rows.recompute_modules.any():
        return seconds
    masks, ahead = rows.recompute_modules, layer.device_lag.backward[inverse]
    each = (module_seconds(block, scenario, layer, kind), module_host_seconds(block, scenario, kind))
    device, host = (picked(masks, {name: values[inverse] for name, values in found.items()}) for found in each)
    return np.where(masks > 0, _longer(device, host, ahead, scenario), seconds)


def checkpoint_seconds(scenario: Scenario, layer: LayerSeconds) -> Floats:
    """Seconds that a checkpoint of layers recomputed whole takes where the device waits for its host, (N,)."""
    behind = np.maximum(layer.device_lag.forward, 0.0) + np.maximum(layer.device_lag.backward, 0.0)
    return np.maximum(_launches(scenario, whole_calls(scenario)) - behind, 0.0)


def whole_calls(scenario: Scenario) -> float:
    """Calls of the host for one checkpoint beside what it runs again, in launches."""
    return CHECKPOINT * 2.0 * half_calls(scenario.stack)


def module_host_seconds(rows: Strategies, scenario: Scenario, kind: Kind) -> dict[str, Floats]:
    """Host seconds to repeat each module of a layer of a kind, arrays (N,); none for what graphs replay."""
    stack, half, whole = scenario.stack, half_calls(scenario.stack), whole_calls(scenario)
    light, found = DISCARDED * whole, dict[str, Floats | float]()
    if kind.attends and "attn" not in stack.switches.cuda_graph_scope:
        found |= {"core_attn": whole + CORE * half, "layernorm": kind.parts * (light + SMALL * half)}
        if scenario.model.mla is not None:
            found["mla_up_proj"] = light + LATENT * stack.host.calls_per_latent_attention
    if kind.ffn == "dense":
        found["mlp"] = whole + half
    if kind.ffn == "experts" and "moe" not in stack.switches.cuda_graph_scope:
        found["moe"] = whole + expert_calls(rows, scenario)
        found["moe_act"] = light + SMALL * half
        found["shared_experts"] = whole + SHARED * stack.host.kernels_per_expert_layer
    return {name: np.full(len(rows), _launches(scenario, 1.0)) * calls for name, calls in found.items()}


def _launches(scenario: Scenario, calls: float) -> float:
    return 0.0 if scenario.stack.switches.cuda_graphs else calls * scenario.rates.launch


def _longer(device: Floats, host: Floats | float, ahead: Floats, scenario: Scenario) -> Floats:
    """Seconds by which a backward pass grows that repeats work of the device and calls of its host.

    ``ahead`` is how long the device runs behind its host without them; negative where it waits.
    """
    if scenario.stack.switches.launch_blocking:
        return device + host
    waits = np.minimum(ahead, 0.0)
    return np.maximum(np.maximum(device + waits, host - np.maximum(ahead, 0.0)), 0.0)
