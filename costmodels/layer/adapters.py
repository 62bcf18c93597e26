"""What training adapters next to frozen weights costs and saves.

A frozen weight has no gradient: its product multiplies twice, not three times, keeps no input for the backward pass,
and owes optimizer and data ranks nothing. Adapters are two further narrow products, which memory bounds, and the sums
of what both return [Hu21].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costmodels.layer.forward_backward import Passes, no_passes, product, streamed, tokens_per_rank
from costmodels.model.layer_kinds import EXPERTS, Kind, layer_kinds
from costmodels.model.model import Model
from costmodels.model.parameters import (
    attention_projections,
    embedding_parameters,
    expert_parameters,
    kind_matrix_parameters,
    kind_replicated_parameters,
    mtp_sets,
    parameters,
    position_parameters,
)
from costmodels.names import WORD
from costmodels.scenario import Scenario
from costmodels.stack.adapters import OF_ATTENTION, Adapted, AdapterKernels
from costmodels.strategy import Floats, Strategies


class KernelTraffic(NamedTuple):
    """Bytes that an adapter's kernels other than its products move, per value that enters or leaves its module."""

    enters: Passes
    leaves: Passes
    dropped: float
    """Of either pass, per value that enters, where some are dropped: value and mask on either side."""
    kernels: float
    """Of the forward pass, without the one that drops."""


SUMMED = 3.0 * WORD
"""Bytes per value to add what an adapter returns to what its module does: both are read, their sum is written."""


def _passes(forward: float, backward: float) -> Passes:
    return Passes(np.array(forward), np.array(backward))


KERNEL_TRAFFIC: dict[AdapterKernels, KernelTraffic] = {
    "summed": KernelTraffic(_passes(0.0, SUMMED), _passes(SUMMED, 0.0), 0.0, 4.0),
    "16-bit": KernelTraffic(_passes(0.0, SUMMED), _passes(4.0 + SUMMED, 4.0), 5.0, 4.0),
    "autocast": KernelTraffic(_passes(12.0, 12.0 + SUMMED), _passes(4.0 + SUMMED, 4.0), 9.0, 6.0),
    "32-bit": KernelTraffic(_passes(8.0, 10.0 + SUMMED), _passes(26.0, 24.0), 9.0, 6.0),
}
"""By ``Linear.forward`` of PEFT and its gradients, an operation a kernel [PEFT]. In 16 bits a scale moves 4. Under
autocast inputs are cast to 32 bits and back, 6 each, in either pass. In 32 bits inputs are cast, 6, and read as such,
2; outputs are written, 2, scaled, 8, summed, 10, and cast back, 6; the backward pass casts twice, 12, scales, 8, and
reads outputs' gradients twice, 4; inputs and their gradients, 4, are cast, 6, and summed."""


def product_widths(model: Model, kind: Kind, module: Adapted) -> tuple[tuple[float, float], ...]:
    """Inputs and outputs of every product that a module of a layer of this kind has; none where there is no module.

    Latent attention's products in front of the core are all ``linear_qkv``; those of routed experts are counted apart.
    """
    model = model.with_sizes_of(kind.variant)
    if module in OF_ATTENTION:
        last = module == "linear_proj"
        found = [p for p in attention_projections(model) if (p.name == "output") == last]
        return tuple((float(p.inputs), float(p.outputs)) for p in found) if kind.attends else ()
    h = float(model.hidden_size)
    if kind.ffn != "dense" or module == "experts":
        return ()
    return ((h, float(model.fc1_width)),) if module == "linear_fc1" else ((float(model.ffn_hidden_size), h),)


def adapted(scenario: Scenario, kind: Kind) -> tuple[tuple[Adapted, float, float], ...]:
    """Modules of a layer of this kind with adapters, inputs and outputs of each product."""
    adapters = scenario.stack.switches.adapters
    modules = adapters.modules if adapters else ()
    return tuple((module, n, k) for module in modules for n, k in product_widths(scenario.model, kind, module))


def adapter_parameters(scenario: Scenario) -> float:
    """Values of all adapters of the model but those of routed experts."""
    adapters = scenario.stack.switches.adapters
    if adapters is None:
        return 0.0
    each = {kind: sum(n + k for _, n, k in adapted(scenario, kind)) for kind in scenario.depth.kinds}
    return adapters.rank * sum(each[kind] for kind in layer_kinds(scenario.model, scenario.seq_length))


def weights_word(scenario: Scenario, word: float) -> float:
    """Bytes per parameter of a layer's weights, which may be narrower than ``word`` where they are frozen.

    Embedding and head stay wide [Dettmers23].
    """
    return scenario.base_bytes or word


def trained_share(scenario: Scenario) -> float:
    """Values that train over the model's parameters without routed experts and routers: 1 unless weights are frozen.

    What trains is counted as if it were spread over these parameters alike.
    """
    if not scenario.embedding_frozen:
        return 1.0
    model, moe = scenario.model, scenario.model.moe
    each = expert_parameters(model) + model.hidden_size
    routed = (model.num_moe_layers + mtp_sets(model)) * moe.num_experts * each if moe else 0
    whole = parameters(model) - routed
    trained = adapter_parameters(scenario) if scenario.frozen else whole - _frozen_parameters(scenario)
    return trained / whole


def _frozen_parameters(scenario: Scenario) -> float:
    """Parameters of the embedding and of the first layers that do not train, routed experts left out."""
    model = scenario.model
    kinds = layer_kinds(model, scenario.seq_length)[: scenario.stack.switches.frozen_layers]
    router = model.moe.num_experts * model.hidden_size if model.moe else 0
    each = (
        kind_matrix_parameters(model, kind) + kind_replicated_parameters(model, kind) - router * (kind.ffn == "experts")
        for kind in kinds
    )
    return embedding_parameters(model) + position_parameters(model) + sum(each)


def adapts_experts(scenario: Scenario) -> bool:
    """Whether routed experts have adapters."""
    adapters = scenario.stack.switches.adapters
    return adapters is not None and "experts" in adapters.modules and scenario.model.moe is not None


def expert_adapter_parameters(scenario: Scenario) -> float:
    """Values of the adapters of one routed expert, into its network and out of it."""
    adapters, moe, model = scenario.stack.switches.adapters, scenario.model.moe, scenario.model
    if adapters is None or moe is None or not adapts_experts(scenario):
        return 0.0
    inner = moe.expert_ffn_hidden_size * (model.ffn_branches + 1.0)
    return adapters.rank * (2.0 * model.expert_hidden_size + inner)


def trained_experts(scenario: Scenario) -> float:
    """Share of the parameters of routed experts that train."""
    if not (scenario.frozen or scenario.stack.switches.frozen_layers):
        return 1.0
    if not scenario.frozen:
        kinds = layer_kinds(scenario.model, scenario.seq_length)
        routed = [kind.ffn == "experts" for kind in kinds]
        still = sum(routed[: scenario.stack.switches.frozen_layers])
        return 1.0 - still / sum(routed) if still else 1.0
    return expert_adapter_parameters(scenario) / expert_parameters(scenario.model) if adapts_experts(scenario) else 0.0


def trained_parameters(scenario: Scenario) -> float:
    """Values of the whole model that train."""
    if not scenario.frozen:
        return float(parameters(scenario.model)) * trained_share(scenario)
    model = scenario.model
    experts = model.num_moe_layers * model.moe.num_experts if model.moe else 0
    return adapter_parameters(scenario) + experts * expert_adapter_parameters(scenario)


def reads_input(scenario: Scenario, kind: Kind, module: Adapted) -> bool:
    """Whether an adapter reads what enters a module, and keeps it for its own gradient."""
    return any(name == module for name, _, _ in adapted(scenario, kind))


def kept_input_bytes(scenario: Scenario, kind: Kind, module: Adapted) -> float:
    """Bytes per value of what enters a module that its adapters keep for their own gradients.

    Where PEFT casts or drops it, every adapter keeps its own: of queries, keys, values, gate and up apart.
    """
    adapters = scenario.stack.switches.adapters
    if adapters is None or not (reads_input(scenario, kind, module) or module == "experts"):
        return 0.0
    word, apart = (4.0 if adapters.kernels == "32-bit" else scenario.word), separate_products(scenario, module)
    if adapters.kernels == "summed":
        return word
    own = adapters.dropout or adapters.kernels != "16-bit"
    return (word + adapters.dropout) * apart if own else word


def kept_expert_bytes(scenario: Scenario) -> tuple[float, float]:
    """Bytes per value of what enters a routed expert, and its second product, that adapters keep."""
    if not adapts_experts(scenario):
        return 0.0, 0.0
    out = kept_input_bytes(scenario, EXPERTS, "experts")
    shared = out == scenario.word
    return (out if shared else out * scenario.model.ffn_branches), out


def expert_adapter_seconds(arrived: Floats, held: Floats, inner: Floats, scenario: Scenario) -> Passes:
    """Seconds of the adapters of a rank's ``held`` experts, ``arrived`` tokens of ``inner`` values in between, (N,).

    Memory bounds products so narrow; every expert has four of its own, and backward eight.
    """
    rates, h = scenario.rates, np.full_like(arrived, scenario.model.expert_hidden_size)
    if not adapts_experts(scenario):
        return Passes(np.zeros_like(arrived), np.zeros_like(arrived))
    total = Passes(4.0 * held * rates.head.overhead, 8.0 * held * rates.head.overhead)
    for module, k, n in (("linear_fc1", h, inner * scenario.model.ffn_branches), ("linear_fc2", inner, h)):
        others = kernel_traffic(scenario, module, k, n)  # type: ignore[arg-type]
        forward = arrived * (scenario.word * (k + n) + others.forward)
        total = total + streamed(forward, arrived * (2.0 * scenario.word * (k + n) + others.backward), scenario)
    return total


def kept_copy_bytes(scenario: Scenario, kind: Kind) -> float:
    """Bytes per value of attention's output that adapters behind it keep; the core keeps it as it is anyway."""
    adapters = scenario.stack.switches.adapters
    if adapters is None or adapters.kernels == "summed" or (adapters.kernels == "16-bit" and not adapters.dropout):
        return 0.0
    return kept_input_bytes(scenario, kind, "linear_proj")


def adapter_seconds(strategies: Strategies, scenario: Scenario, kind: Kind) -> Passes:
    """Seconds of a layer's adapters, (N,): in 16 bits, the wide side of either product split as its module's is."""
    adapters, rates, t = scenario.stack.switches.adapters, scenario.rates, strategies.tp.astype(np.float64)
    T = tokens_per_rank(strategies, scenario)
    total = no_passes(strategies)
    if adapters is None:
        return total
    rank = float(adapters.rank)
    for module, inputs, outputs in adapted(scenario, kind):
        rowwise = module in {"linear_proj", "linear_fc2"}
        k, n = (inputs / t, outputs) if rowwise else (inputs, outputs / t)
        down = product(T, rank, k, rates.head, rates.head_peak, rates.bandwidth)
        up = product(T, n, rank, rates.head, rates.head_peak, rates.bandwidth)
        moved = kernel_traffic(scenario, module, k, n)
        total = total + down + up + streamed(T * moved.forward, T * moved.backward, scenario)
    return total


def separate_products(scenario: Scenario, module: Adapted) -> int:
    """Products of a module's adapters that kernels of their own each serve."""
    adapters, model = scenario.stack.switches.adapters, scenario.model
    if adapters is None or adapters.kernels == "summed":
        return 1
    if module == "linear_qkv":
        return 3 if model.mla is None else 1
    return 2 if module == "linear_fc1" and model.gated_ffn else 1


def kernel_traffic(scenario: Scenario, module: Adapted, k: Floats | float, n: Floats | float) -> Passes:
    """Bytes per token that an adapter's kernels other than its products move, k inputs and n outputs, (N,)."""
    adapters = scenario.stack.switches.adapters
    if adapters is None:
        return Passes(np.zeros(1), np.zeros(1))
    found, inputs = KERNEL_TRAFFIC[adapters.kernels], k * separate_products(scenario, module)
    dropped = np.asarray(found.dropped * adapters.dropout * inputs)
    return inputs * found.enters + n * found.leaves + Passes(dropped, dropped)


def adapter_kernels(scenario: Scenario, kind: Kind) -> float:
    """Kernels of the forward pass of a layer's adapters: two products each, and what else there is."""
    adapters = scenario.stack.switches.adapters
    if adapters is None:
        return 0.0
    found = KERNEL_TRAFFIC[adapters.kernels]
    each = found.kernels + adapters.dropout * (adapters.kernels != "summed")
    return each * sum(separate_products(scenario, module) for module, _, _ in adapted(scenario, kind))
