"""States and activations in the memory of the host: traffic over the host link, Adam on the CPUs, bytes there.

What is moved frees the device. It is hidden behind computation as far as that lasts; the step on the CPUs is not,
since nothing can run before the weights are new (without delayed updates) [Ren21].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodels.layer.adapters import trained_experts, trained_share
from costmodels.layer.forward_backward import Passes
from costmodels.layout.parameters_per_rank import heaviest_experts, heaviest_stage_parameters
from costmodels.layout.placement import expert_shards
from costmodels.layout.split import even_layers
from costmodels.layout.stage_contents import by_chunk, copies
from costmodels.names import OFFLOADS, WORD
from costmodels.primitives.host import cpu_adam_seconds, transfer_seconds
from costmodels.scenario import Scenario
from costmodels.stack.optimizers import kept_bytes
from costmodels.step.sharded import is_hidden
from costmodels.strategy import Floats, Strategies

ACTIVATIONS, OPTIMIZER, EVERYTHING = (OFFLOADS.index(name) for name in OFFLOADS[1:])

LINK_SHARE = 0.75
"""Achieved over nominal bandwidth of the host link: 12 of 16 GB/s for one device of a DGX-2 [Rajbhandari21]."""
CPU_ADAM_SHARE = 0.46
"""Achieved over nominal bandwidth of the host's memory while CPUs step Adam: 1 to 10 billion parameters in 0.22 to 2.57
seconds on two sockets of six DDR4-2666 channels, 256 GB/s, are 100 to 136 GB/s, in the median 117 [Ren21], table 4."""
CAST = 6.0
"""Bytes per parameter that CPUs move where new weights are cast behind the step: 4 read, 2 written."""
STAGED = 6.0
"""Bytes per parameter that CPUs move where new weights leave memory that is not pinned, by the driver's buffer."""


def link_bandwidth(scenario: Scenario) -> float:
    """Bytes/s between one device and its host; 0 where the cluster does not say."""
    return LINK_SHARE * (scenario.group.host_link or 0.0) / scenario.stack.calibrated.offload_time


def host_stream(scenario: Scenario) -> float:
    """Bytes/s that one device's share of the CPUs streams through the host's memory; 0 where it is not said."""
    group = scenario.group
    return CPU_ADAM_SHARE * (group.host_bandwidth or 0.0) / group.gpus_per_node / scenario.stack.calibrated.offload_time


def described(scenario: Scenario) -> bool:
    """Whether the cluster says what offloading needs to know of its hosts."""
    group = scenario.group
    return None not in {group.host_link, group.host_memory, group.host_bandwidth}


def weights_are_copied(strategies: Strategies, scenario: Scenario) -> NDArray[np.bool_]:
    """Whether new weights are cast and copied behind the step, not written and sent by it piece by piece, (N,)."""
    return np.asarray(strategies.zero_stage >= scenario.stack.offload.copies_weights_from_stage)


def step_and_return_seconds(moved: Floats, scenario: Scenario, behind: NDArray[np.bool_], step: Floats) -> Floats:
    """Seconds of a step on the CPUs and of its new weights' way to the device, ``behind`` it where copied, (N,).

    A copy that casts makes 16-bit weights in memory that is not pinned, and blocks.
    """
    back, stream = transfer_seconds(moved * WORD, link_bandwidth(scenario)), host_stream(scenario)
    return np.where(behind, step + np.maximum(transfer_seconds(moved * STAGED, stream), back), np.maximum(step, back))


def share_offloaded(strategies: Strategies, scenario: Scenario) -> Floats:
    """Share of the optimizer states that live on the host, (N,)."""
    return np.where(strategies.offload >= OPTIMIZER, scenario.stack.switches.offload_fraction, 0.0)


def activations_away(strategies: Strategies, scenario: Scenario) -> Floats:
    """Share of the activations that live on the host, (N,)."""
    return np.where(strategies.offload == ACTIVATIONS, scenario.stack.switches.offloaded_layers, 0.0)


def updated_parameters(strategies: Strategies, scenario: Scenario) -> Floats:
    """Parameters whose states one rank of the heaviest stage keeps, experts included, (N,)."""
    size = heaviest_stage_parameters(strategies, scenario) * trained_share(scenario)
    experts = heaviest_experts(strategies, scenario) * trained_experts(scenario)
    sharded, twice = strategies.zero_stage > 0, copies(strategies)
    shares = np.where(sharded, strategies.sharding_degree * twice, 1.0)
    if scenario.model.moe is None:
        return size / shares
    return size / shares + experts / np.where(sharded, expert_shards(strategies) * twice, 1.0)


def layer_offload_seconds(strategies: Strategies, scenario: Scenario, kept: Floats, layer: Passes) -> Floats:
    """Exposed seconds per layer and micro-batch: what it keeps goes out behind its forward pass, and comes back.

    ``kept`` bytes, ``layer`` the computation to hide behind, arrays (N,). Both directions of the link run at once.
    Where only some layers are offloaded, what they keep has as much longer to travel (``layer_window_map`` of [TE]'s
    cpu_offload.py).
    """
    once = transfer_seconds(kept * activations_away(strategies, scenario), link_bandwidth(scenario))
    return np.maximum(once - layer.forward, 0.0) + np.maximum(once - layer.backward, 0.0)


def step_offload_seconds(strategies: Strategies, scenario: Scenario, layer: Passes) -> Floats:
    """Exposed seconds per iteration of states on the host, (N,); ``layer`` is one layer of one micro-batch.

    Gradients go out behind the last backward pass, the CPUs step, and new weights come in with the step, piece by
    piece, or behind it. Parameters on the host come in for every forward and backward pass, and their gradients go
    out with it; under a breadth-first pipeline once for all micro-batches, behind them.
    """
    if not (strategies.offload >= OPTIMIZER).any():
        return np.zeros(len(strategies))
    stack, bandwidth = scenario.stack, link_bandwidth(scenario)
    mine, behind = updated_parameters(strategies, scenario), weights_are_copied(strategies, scenario)
    moved = mine * share_offloaded(strategies, scenario)
    step = cpu_adam_seconds(
        parameters=moved,
        word=kept_bytes(stack),
        bandwidth=host_stream(scenario),
        gradient=stack.offload.host_gradient_traffic,
        weight=np.where(behind, CAST, WORD),
    )
    layers = even_layers(scenario.model.num_layers, strategies).low
    stage, gradient = layers * layer, stack.gradients.gradient_bytes
    out = transfer_seconds(moved * gradient, bandwidth)
    out = np.where(is_hidden(strategies, stack)[0], np.maximum(out - stage.backward, 0.0), out)
    states = out + step_and_return_seconds(moved, scenario, behind, step)
    fetched, returned = (transfer_seconds(mine * width, bandwidth) for width in (WORD, gradient))
    once, all_of_them = by_chunk(strategies), strategies.num_microbatches
    times = np.where(once, 1, all_of_them) if stack.sharding.gathers_per_micro_batch else np.ones(len(strategies))
    window = np.where(once, all_of_them, 1) * stage
    passes = np.maximum(fetched - window.forward, 0.0)
    passes = passes + np.maximum(np.maximum(fetched, returned) - window.backward, 0.0)
    everything = np.maximum(step, 0.0) + times * passes
    found = np.where(
        strategies.offload == OPTIMIZER, states, np.where(strategies.offload == EVERYTHING, everything, 0.0)
    )
    return np.asarray(found, dtype=np.float64)
