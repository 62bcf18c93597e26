"""States and activations in the memory of the host: traffic over the host link, Adam on the CPUs, bytes there.

What is moved frees the device. It is hidden behind computation as far as that lasts; the step on the CPUs is not,
since nothing can run before the weights are new (without delayed updates) [Ren21].
"""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.typing import NDArray

from costmodels.layer.experts import expert_shards
from costmodels.layer.frozen import trained_experts, trained_share
from costmodels.layer.passes import Passes
from costmodels.layout.pieces import by_chunk, copies, in_flight_at, queued
from costmodels.layout.sizes import heaviest_experts, heaviest_stage_parameters
from costmodels.layout.split import even_layers
from costmodels.memory.activations import kept_bytes_of_layer
from costmodels.primitives.kernels import WORD, Number
from costmodels.scenario import Scenario
from costmodels.stack.optimizers import kept_bytes
from costmodels.step.sharded import hidden
from costmodels.strategy import OFFLOADS, Bools, Floats, Strategies

ACTIVATIONS, OPTIMIZER, EVERYTHING = (OFFLOADS.index(name) for name in OFFLOADS[1:])

LINK_SHARE = 0.75
"""Achieved over nominal bandwidth of the host link: 12 of 16 GB/s for one device of a DGX-2 [Rajbhandari21]."""
CPU_ADAM_SHARE = 0.46
"""Achieved over nominal bandwidth of the host's memory while CPUs step Adam: 1 to 10 billion parameters in 0.22 to 2.57
seconds on two sockets of six DDR4-2666 channels, 256 GB/s, are 100 to 136 GB/s, in the median 117 [Ren21], table 4."""
CAST = 6.0
"""Bytes per parameter that CPUs move where new weights are cast behind the step: 4 read, 2 written."""
STAGED = 6.0
"""The same where these go to the device out of memory that is not pinned: through a buffer of the driver, and read."""


def link_bandwidth(scenario: Scenario) -> float:
    """Bytes/s between one device and its host; 0 where the cluster does not say."""
    return LINK_SHARE * (scenario.group.host_link or 0.0)


def host_stream(scenario: Scenario) -> float:
    """Bytes/s that one device's share of the CPUs streams through the host's memory; 0 where it is not said."""
    group = scenario.group
    return CPU_ADAM_SHARE * (group.host_bandwidth or 0.0) / group.gpus_per_node


def described(scenario: Scenario) -> bool:
    """Whether the cluster says what offloading needs to know of its hosts."""
    group = scenario.group
    return None not in {group.host_link, group.host_memory, group.host_bandwidth}


def cpu_adam_seconds(
    *, parameters: Number, word: Number, bandwidth: Number, gradient: Number = 4.0, weight: Number | None = None
) -> Floats:
    """Seconds of a step on the CPUs, bound by their memory of ``bandwidth`` bytes/s.

    Per parameter ``word`` bytes of states are read and written, ``gradient`` bytes read, a 16-bit weight written,
    or ``weight`` bytes moved for it.
    """
    written = WORD if weight is None else weight
    return parameters * (2.0 * word + gradient + written) / bandwidth if bandwidth else parameters * inf


def copied(rows: Strategies, scenario: Scenario) -> NDArray[np.bool_]:
    """Whether new weights are cast and copied behind the step, not written and sent by it piece by piece, (N,)."""
    return np.asarray(rows.zero_stage >= scenario.stack.offload.copies_weights_from_stage)


def returned_seconds(moved: Floats, scenario: Scenario, behind: NDArray[np.bool_], step: Floats) -> Floats:
    """Seconds of a step on the CPUs and of its new weights' way to the device, ``behind`` it where copied, (N,).

    A copy that casts makes 16-bit weights in memory that is not pinned, and blocks.
    """
    back, stream = transfer_seconds(moved * WORD, link_bandwidth(scenario)), host_stream(scenario)
    return np.where(behind, step + np.maximum(transfer_seconds(moved * STAGED, stream), back), np.maximum(step, back))


def transfer_seconds(size: Number, bandwidth: Number) -> Floats:
    """Seconds of ``size`` bytes over the host link."""
    return size / bandwidth if bandwidth else np.where(size > 0, inf, 0.0)


def share_offloaded(rows: Strategies, scenario: Scenario) -> Floats:
    """Share of the optimizer states that live on the host, (N,)."""
    return np.where(rows.offload >= OPTIMIZER, scenario.stack.switches.offload_fraction, 0.0)


def activations_away(rows: Strategies, scenario: Scenario) -> Floats:
    """Share of the activations that live on the host, (N,)."""
    return np.where(rows.offload == ACTIVATIONS, scenario.stack.switches.offloaded_layers, 0.0)


def updated_parameters(rows: Strategies, scenario: Scenario) -> Floats:
    """Parameters whose states one rank of the heaviest stage keeps, experts included, (N,)."""
    size = heaviest_stage_parameters(rows, scenario) * trained_share(scenario)
    experts = heaviest_experts(rows, scenario) * trained_experts(scenario)
    sharded, twice = rows.zero_stage > 0, copies(rows)
    shares = np.where(sharded, rows.sharding_degree * twice, 1.0)
    if scenario.model.moe is None:
        return size / shares
    return size / shares + experts / np.where(sharded, expert_shards(rows) * twice, 1.0)


def layer_offload_seconds(rows: Strategies, scenario: Scenario, kept: Floats, layer: Passes) -> Floats:
    """Exposed seconds per layer and micro-batch: what it keeps goes out behind its forward pass, and comes back.

    ``kept`` bytes, ``layer`` the computation to hide behind, arrays (N,). Both directions of the link run at once.
    Where only some layers are offloaded, what they keep has as much longer to travel (``layer_window_map`` of [TE]'s
    cpu_offload.py).
    """
    once = transfer_seconds(kept * activations_away(rows, scenario), link_bandwidth(scenario))
    return np.maximum(once - layer.forward, 0.0) + np.maximum(once - layer.backward, 0.0)


def step_offload_seconds(rows: Strategies, scenario: Scenario, layer: Passes) -> Floats:
    """Exposed seconds per iteration of states on the host, (N,); ``layer`` is one layer of one micro-batch.

    Gradients go out behind the last backward pass, the CPUs step, and new weights come in with the step, piece by
    piece, or behind it. Parameters on the host come in for every forward and backward pass, and their gradients go
    out with it; under a breadth-first pipeline once for all micro-batches, behind them.
    """
    if not (rows.offload >= OPTIMIZER).any():
        return np.zeros(len(rows))
    stack, bandwidth = scenario.stack, link_bandwidth(scenario)
    mine = updated_parameters(rows, scenario)
    moved = mine * share_offloaded(rows, scenario)
    behind = copied(rows, scenario)
    known = {
        "word": kept_bytes(stack),
        "gradient": stack.offload.host_gradient_traffic,
        "weight": np.where(behind, CAST, WORD),
    }
    step = cpu_adam_seconds(parameters=moved, bandwidth=host_stream(scenario), **known)
    layers = even_layers(scenario.model.num_layers, rows).low
    forward, backward = layers * layer.forward, layers * layer.backward
    out = transfer_seconds(moved * stack.gradients.gradient_bytes, bandwidth)
    out = np.where(hidden(rows, stack)[0], np.maximum(out - backward, 0.0), out)
    states = out + returned_seconds(moved, scenario, behind, step)
    fetched, given = (
        transfer_seconds(mine * WORD, bandwidth),
        transfer_seconds(mine * stack.gradients.gradient_bytes, bandwidth),
    )
    once, all_of_them = by_chunk(rows), rows.num_microbatches
    times = np.where(once, 1, all_of_them) if stack.sharding.gathers_per_micro_batch else np.ones(len(rows))
    window = np.where(once, all_of_them, 1)
    passes = np.maximum(fetched - window * forward, 0.0)
    passes = passes + np.maximum(np.maximum(fetched, given) - window * backward, 0.0)
    everything = np.maximum(step, 0.0) + times * passes
    found = np.where(rows.offload == OPTIMIZER, states, np.where(rows.offload == EVERYTHING, everything, 0.0))
    return np.asarray(found, dtype=np.float64)


def host_bytes(rows: Strategies, scenario: Scenario, kept: Floats, in_flight: Floats) -> Floats:
    """Bytes of one device's offloaded data on its host, under the even split's heaviest stage, (N,).

    ``kept`` is what a layer keeps of a micro-batch, ``in_flight`` the micro-batches of the first stage. Beside states
    lie the gradients that the CPUs read, and where parameters are offloaded these too.
    """
    stack, mine = scenario.stack, updated_parameters(rows, scenario)
    states = mine * share_offloaded(rows, scenario) * (kept_bytes(stack) + stack.gradients.gradient_bytes)
    parameters = np.where(rows.offload == EVERYTHING, mine * WORD, 0.0)
    layers = even_layers(scenario.model.num_layers, rows).high
    activations = activations_away(rows, scenario) * in_flight * layers * kept
    return states + parameters + activations


def host_room(scenario: Scenario) -> float:
    """Bytes of the host's memory per device; 0 where the cluster does not say."""
    return (scenario.group.host_memory or 0.0) / scenario.group.gpus_per_node


def host_fits(rows: Strategies, scenario: Scenario) -> Bools:
    """Whether what is offloaded fits the host's memory, shape (N,)."""
    if not rows.offload.any():
        return np.ones(len(rows), dtype=np.bool_)
    return host_need(rows, scenario) <= host_room(scenario)


def host_need(rows: Strategies, scenario: Scenario) -> Floats:
    """Bytes of the host's memory that one device's offloaded data take, shape (N,)."""
    held = in_flight_at(rows, np.zeros_like) + queued(rows, scenario.stack.pipeline.vocabulary_in_flight)
    return host_bytes(rows, scenario, kept_bytes_of_layer(rows, scenario), held)
