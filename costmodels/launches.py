"""Host seconds to launch a layer: where launching takes longer than running, the device waits."""

from __future__ import annotations

from typing import Final

import numpy as np

from costmodels.layer_kinds import Kind
from costmodels.passes import Passes
from costmodels.scenario import REDUCED, Scenario
from costmodels.softmax import WRITTEN_OUT_KERNELS, written_out
from costmodels.strategy import Floats, Strategies
from costmodels.tensor_ranks import exchanging_parts

CAPTURED: Final = {"moe_router": 0.3, "moe_preprocess": 0.2}
"""Share of the launches of a layer's experts that a captured part of it makes: scores, selection and auxiliary loss;
counts and indices."""
UNASKED: Final = 0.3
"""The share of all of them where capacity is fixed, so that the host need not ask how many tokens came, nor cut by
expert. Eight B200 train Qwen3 30B-A3B with micro-batches of one at 4.5 ms a layer with a capacity and 8.9 without
(Megatron-Bridge 25.09 and 25.11). The recipe of 25.09 replays whole layers besides (v0.1.0rc4), so that this is known
of the device's small kernels and guessed of launches; 64 B200 without graphs bound it at 0.8 (Qwen3 235B-A22B)."""
SCALED_ANEW: Final = REDUCED - {"fp8"}
"""Formats whose scales are found and laid out for either operand of every product, one expert after the other; where
they are known from earlier steps one kernel casts for all. With eight experts a rank, 16 H100 take 9.5 ms a layer in
fp8 with current or block-wise scaling, and 6.5 where graphs replay all but the experts (Megatron-Bridge, releases from
26.04 on and skills/nemo-mbridge-perf-cuda-graphs)."""

PRODUCTS: Final = 2.5
"""Kernels of half a layer whose own formulas count their launch and drain: two products and half of attention."""

CALLS: Final = 5.0
"""Calls of the host for one collective of PyTorch, each like a launch: an event on the stream of the computation, a
wait for it on that of the communication, the kernel, an event behind it, a wait for that (``ProcessGroupNCCL.cpp``)."""


def small_kernels(rows: Strategies, scenario: Scenario, kind: Kind) -> Passes:
    """Device seconds to start and drain the kernels of a layer beside its products and attention, (N,).

    Bytes over bandwidth leave out what a kernel takes whatever its size: the time that the fit of products has as
    ``overhead``, measured in replayed graphs, without any host. Backward every one of them has two.
    """
    count = max(scenario.stack.kernels_per_layer / 2.0 - PRODUCTS, 0.0) * kind.parts
    seconds = np.full(len(rows), count * scenario.rates.head.overhead)
    return Passes(seconds, 2.0 * seconds)


def exposed_launches(floor: Floats, busy: Passes, scenario: Scenario) -> Passes:
    """Device seconds that wait for the host, given ``floor`` to launch a forward pass; backward are twice as many.

    Where every launch waits for its kernel, nothing is launched ahead, and no kernel hides the next one's launch.
    """
    if scenario.stack.blocking_launches:
        return Passes(floor, 2.0 * floor)
    return Passes(np.maximum(floor - busy.forward, 0.0), np.maximum(2.0 * floor - busy.backward, 0.0))


def launch_floor(rows: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Host seconds to launch a layer's forward kernels, shape (N,); 0 where the device replays a graph.

    A graph of the whole iteration replays everything; one of parts of the layer leaves the rest to the host
    [MegatronMoE26]. A mixer or a feed-forward network alone launches half of what the two together do.
    """
    stack, model = scenario.stack, scenario.model
    if stack.cuda_graphs:
        return np.zeros(len(rows))
    captured = ("mamba" if kind.mixer == "mamba" else "attn") in stack.graphs
    kernels = np.full(len(rows), 0.0 if captured else stack.kernels_per_layer * kind.parts / 2.0)
    if model.moe is not None and kind.ffn == "experts" and "moe" not in stack.graphs:
        each = model.moe.num_experts / rows.ep * stack.kernels_per_local_expert
        left = 1.0 - sum(CAPTURED.get(part, 0.0) for part in stack.graphs)
        own = left * stack.kernels_per_expert_layer + each * (scenario.precision in SCALED_ANEW)
        kernels = kernels + own * (UNASKED if stack.expert_capacity else 1.0)
    if not captured:
        kernels = kernels + CALLS * tensor_collectives(rows, scenario, kind)
        if kind.attends and scenario.rates.attention is None:
            kernels = kernels + WRITTEN_OUT_KERNELS * written_out(rows, scenario)
    return kernels * stack.launch * stack.combined_launches


def tensor_collectives(rows: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Collectives of the tensor ranks in a layer's forward pass, shape (N,): each is two under sequence parallelism."""
    return np.where(rows.tp > 1, exchanging_parts(kind, scenario) * (1.0 + (rows.sequence_parallel > 0)), 0.0)
