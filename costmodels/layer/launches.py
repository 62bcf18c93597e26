"""Host seconds to launch a layer: where launching takes longer than running, the device waits."""

from __future__ import annotations

from typing import Final

import numpy as np

from costmodels.layer.adapters import adapter_kernels
from costmodels.layer.attention import UNFUSED_SOFTMAX_KERNELS, softmax_falls_back
from costmodels.layer.forward_backward import Passes
from costmodels.layer.tensor_parallel import exchanging_parts
from costmodels.model.layer_kinds import Kind
from costmodels.scenario import REDUCED, Scenario
from costmodels.stack.fields import SENT_ONCE
from costmodels.stack.stack import Stack
from costmodels.strategy import Floats, Strategies

CAPTURED: Final = {"moe_router": 0.43, "moe_preprocess": 0.30}
"""Share of the calls of a layer's experts that a captured part of it makes: scores, selection and auxiliary loss;
counts and indices. Eight B200 with micro-batches of one take 9.2 and 8.8 ms a layer of Qwen3 30B-A3B with both of them
captured, behind a plain all-to-all and behind DeepEP (Megatron-Bridge 25.11 and 26.02); set by hand."""
CAPACITY_SHARE: Final = 0.3
"""Share of the kernels of every expert's own that stay where its capacity is fixed. Eight B200 train Qwen3 30B-A3B with
micro-batches of one at 4.5 ms a layer with a capacity and 8.9 without (Megatron-Bridge 25.09 and 25.11), where whole
layers are replayed."""
CURRENT_SCALES: Final = REDUCED - {"fp8"}
"""Formats whose scales are found and laid out for either operand of every product, one expert after the other; where
they are known from earlier steps one kernel casts for all. With eight experts a rank, 16 H100 take 9.5 ms a layer in
fp8 with current or block-wise scaling, and 6.5 where graphs replay all but the experts (Megatron-Bridge, releases from
26.04 on and skills/nemo-mbridge-perf-cuda-graphs)."""

BIASED: Final = 2.5
"""Kernels of every expert for the bias of its second product, which the router's weight scales, each pass: a product
and a sum; backward a cast, two products and two sums (``TEGroupedMLP._apply_bias`` of [Megatron-Core])."""

PRODUCTS: Final = 2.5
"""Kernels of half a layer whose own formulas count their launch and drain: two products and half of attention."""

FUSED: Final = 0.79
"""Calls of experts behind a dispatcher that permutes by itself, over those behind a plain all-to-all: with DeepEP 256
GB200 bound by their hosts take DeepSeek-V3 from 540 to 566 TFLOP/s, 1.4 ms a layer [MegatronMoE26]."""
GROUPED: Final = 0.28
"""Calls of a router that takes groups first, by sigmoids and biases, beyond a softmax's, over those of all that experts
call: 23 operations forward and 17 backward, counted in Megatron-Core 0.12 on one rank [Megatron-Functional]."""
SHARED: Final = 0.1
"""Calls of shared experts over those of all that experts call: 5 operations forward and 10 backward."""

NORM: Final = 10.0
"""Calls of the host for one norm of queries, or of keys, a module of its own: Transformer Engine's take 90 to 100 us
each on a Grace host (GitHub NVIDIA/TransformerEngine, issue 2053)."""

CALLS: Final = 5.0
"""Calls of the host for one collective of PyTorch, each like a launch: an event on the stream of the computation, a
wait for it on that of the communication, the kernel, an event behind it, a wait for that (``ProcessGroupNCCL.cpp``)."""


def small_kernels(strategies: Strategies, scenario: Scenario, kind: Kind) -> Passes:
    """Device seconds to start and drain the kernels of a layer besides its products and attention, (N,).

    Bytes over bandwidth leave out what a kernel takes whatever its size: the time that the fit of products has as
    ``overhead``, measured in replayed graphs, without any host. Backward every one of them has two.
    """
    count = max(scenario.stack.host.kernels_per_layer / 2.0 - PRODUCTS, 0.0) * kind.parts
    seconds = np.full(len(strategies), count * scenario.rates.head.overhead)
    return Passes(seconds, 2.0 * seconds)


def exposed_launches(floor: Floats, busy: Passes, scenario: Scenario) -> Passes:
    """Device seconds that wait for the host, given ``floor`` to launch a forward pass; backward are twice as many.

    Where every launch waits for its kernel, nothing is launched ahead, and no kernel hides the next one's launch.
    """
    if scenario.stack.switches.launch_blocking:
        return Passes(floor, 2.0 * floor)
    return Passes(np.maximum(floor - busy.forward, 0.0), np.maximum(2.0 * floor - busy.backward, 0.0))


def launch_floor(strategies: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Host seconds to launch a layer's forward kernels, shape (N,); 0 where the device replays a graph.

    A graph of the whole iteration replays everything; one of parts of the layer leaves the rest to the host
    [MegatronMoE26]. A mixer or a feed-forward network alone launches half of what the two together do.
    """
    stack = scenario.stack
    if stack.switches.cuda_graphs:
        return np.zeros(len(strategies))
    calls = np.zeros(len(strategies))
    if ("attn" if kind.attends or not kind.other_mixer else "mamba") not in stack.switches.cuda_graph_scope:
        calls = calls + CALLS * tensor_collectives(strategies, scenario, kind)
        calls = calls + module_calls(strategies, scenario, kind)
        if kind.attends and scenario.rates.attention is None:
            calls = calls + UNFUSED_SOFTMAX_KERNELS * softmax_falls_back(strategies, scenario)
    if kind.ffn == "experts" and "moe" not in stack.switches.cuda_graph_scope:
        calls = calls + expert_calls(strategies, scenario)
    return calls * scenario.rates.launch * stack.host.interleaved_launches


def module_calls(strategies: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Calls of the host, in launches, for the modules of a layer but its experts, shape (N,).

    172 small models of Megatron-LM's functional tests, all bound by their hosts, take 2.9 ms a layer and micro-batch
    on a DGX H100's host, forward and backward; 3.9 more where attention is latent, 1.7 on context ranks, 1.5 in 8 bits
    and 3.7 with experts [Megatron-Functional].
    """
    stack = scenario.stack
    calls = np.full(len(strategies), half_calls(stack) * kind.parts + adapter_kernels(scenario, kind))
    if scenario.precision in REDUCED:
        calls = calls + stack.host.calls_to_cast / 2.0 * (kind.parts - (kind.ffn == "experts"))
    if not kind.attends:
        return calls
    calls = calls + 2.0 * (scenario.model.qk_norm != "none") * (1.0 if stack.host.calls_per_layer is None else NORM)
    if scenario.model.mla is not None:
        calls = calls + stack.host.calls_per_latent_attention
    return calls + stack.host.calls_per_ring * (strategies.cp > 1)


def half_calls(stack: Stack) -> float:
    """Calls of the host for half of a layer, attention or a dense network, in launches."""
    return (stack.host.kernels_per_layer if stack.host.calls_per_layer is None else stack.host.calls_per_layer) / 2.0


def expert_calls(strategies: Strategies, scenario: Scenario) -> Floats:
    """Calls of the host, in launches, for routing, dispatch, experts and combine of a layer, shape (N,)."""
    stack, moe = scenario.stack, scenario.model.moe
    if moe is None:
        return np.zeros(len(strategies))
    share = 1.0 - sum(CAPTURED.get(part, 0.0) for part in stack.switches.cuda_graph_scope)
    if "moe_router" not in stack.switches.cuda_graph_scope:
        # a router with one group of all experts too, as DeepSeek-V3's kin are configured
        by_groups = moe.router_groups > 1 or scenario.model.router_steered
        share += GROUPED * by_groups + SHARED * (moe.num_shared_experts > 0)
    share *= FUSED if stack.switches.dispatcher in SENT_ONCE else 1.0
    return share * stack.host.kernels_per_expert_layer + local_kernels(strategies, scenario)


def local_kernels(strategies: Strategies, scenario: Scenario) -> Floats:
    """Kernels that a rank's experts have of their own, each of them, besides their products, shape (N,).

    Where scales are found anew, inputs are quantised and scales laid out expert by expert.
    """
    stack, moe = scenario.stack, scenario.model.moe
    if moe is None or scenario.fused_experts:
        return np.zeros(len(strategies))
    each = BIASED if scenario.model.ffn_bias else 0.0
    if scenario.precision in CURRENT_SCALES:
        each += stack.host.kernels_per_local_expert * (CAPACITY_SHARE if stack.switches.expert_capacity else 1.0)
    return np.asarray(each * moe.num_experts / strategies.ep)


def tensor_collectives(strategies: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Collectives of the tensor ranks in a layer's forward pass, shape (N,): each is two under sequence parallelism."""
    each = exchanging_parts(kind, scenario) * (1.0 + (strategies.sequence_parallel > 0))
    return np.where(strategies.tp > 1, each, 0.0)
