"""What recomputation costs and saves: whole layers, or modules as Megatron-Core names them.

A set of modules is one number, bit k standing for ``MODULES[k]``. The output of a named module (for ``core_attn``,
``mlp``, ``moe`` and ``shared_experts``: all that happens inside it) is let go after the forward pass and made
again when the backward pass asks for it. Every checkpoint has calls of its own for the host.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from costmodels.layer.attention import attention_kept, up_projections
from costmodels.layer.blocks import LayerSeconds
from costmodels.layer.elementwise import norm_passes, norms_of, rotary_traffic
from costmodels.layer.expert_activations import expert_activation_bytes
from costmodels.layer.experts import (
    ACTIVATION,
    activation_seconds,
    arrived_tokens,
    shared_experts,
)
from costmodels.layer.forward_backward import ffn_matmuls, region_tokens, tokens_per_rank
from costmodels.layer.launches import SHARED, expert_calls, half_calls
from costmodels.layer.tensor_parallel import tensor_parallel
from costmodels.model.layer_kinds import Kind
from costmodels.model.model import Model
from costmodels.names import MODULES, Recompute
from costmodels.scenario import Scenario
from costmodels.stack.stack import Stack
from costmodels.strategy import Floats, Ints, Strategies

CHECKPOINT: Final = 0.72
"""Calls of the host for one checkpoint beyond those of what runs again, over those of a dense layer's forward pass:
states of random generators read and set back in either pass, and a backward pass of its own. Layers that are recomputed
whole take 0.68 ms more than another forward pass, which takes 0.94, on a DGX H100's host [Megatron-Functional]."""
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

INSIDE = {"moe": ("moe_act", "shared_experts")}
"""Modules that are part of another; named together with it they add nothing."""
ALL_NAMED = {"up-projections": ("layernorm", "mla_up_proj")}
"""Modules that stand for all that a policy repeats where they are named together: its activations go with them."""


def module_mask(names: Iterable[str]) -> int:
    """The set of modules as a number.

    Raises:
        ValueError: a module that there is not.
    """
    given = set(names)
    if unknown := sorted(given - set(MODULES)):
        raise ValueError(f"there is no module {unknown[0]!r}; there are {', '.join(MODULES)}")
    inner = {part for name in given for part in INSIDE.get(name, ())}
    return sum(1 << MODULES.index(name) for name in given - inner)


def allowed_mask(names: Iterable[str]) -> int:
    """Every bit that a set out of these modules may have."""
    return sum(1 << place for place, name in enumerate(MODULES) if name in set(names))


def module_names(mask: int) -> tuple[str, ...]:
    """The modules of a set, in the order of ``MODULES``."""
    return tuple(name for place, name in enumerate(MODULES) if mask >> place & 1)


def modules_of(model: Model) -> tuple[str, ...]:
    """Modules that a model has."""
    moe = model.moe
    has = {
        "core_attn": model.num_attention_layers > 0,
        "layernorm": True,
        "mlp": model.num_dense_layers > 0,
        "moe": moe is not None,
        "moe_act": moe is not None,
        "shared_experts": moe is not None and moe.num_shared_experts > 0,
        "mla_up_proj": model.mla is not None,
    }
    return tuple(name for name in MODULES if has[name])


def preset_masks(model: Model, stack: Stack) -> list[int]:
    """The sets that a search tries: outputs cheap to make again; with experts, also these and the experts whole.

    Most of a dense layer is better recomputed layer by layer, as many as memory asks for. What the stack's policy
    repeats without names is not named once more.
    """
    usable = [name for name in modules_of(model) if name in stack.supports.recompute_modules]
    cheap = [name for name in ("layernorm", "moe_act", "mla_up_proj") if name in usable]
    whole = [*cheap, *(name for name in ("moe",) if name in usable)]
    return sorted({module_mask(cheap), module_mask(whole)} - {0, policy_mask(model, stack)})


def policy_mask(model: Model, stack: Stack) -> int:
    """The set of modules that names all that a stack's policy repeats of a model; 0 where no names do."""
    named = ALL_NAMED.get(stack.switches.recompute_policy, ())
    return module_mask(name for name in named if name in modules_of(model))


def named_modules(strategies: Strategies, scenario: Scenario) -> Ints:
    """Modules that are repeated one by one, (N,); none where all that the stack's policy repeats is named."""
    masks = strategies.recompute_modules
    return np.where(masks == policy_mask(scenario.model, scenario.stack), 0, masks)


def sum_of_modules(masks: Ints, values: dict[str, Floats]) -> Floats:
    """The sum of the named modules' values, (N,)."""
    total, named = np.zeros(len(masks)), int(np.bitwise_or.reduce(masks))
    for place, name in enumerate(MODULES):
        if name in values and named >> place & 1:
            total = total + np.where(masks >> place & 1, values[name], 0.0)
    return total


def module_seconds(strategies: Strategies, scenario: Scenario, layer: LayerSeconds, kind: Kind) -> dict[str, Floats]:
    """Seconds to repeat each module of one layer of a kind for one micro-batch, arrays (N,)."""
    scenario = scenario.with_sizes_of(kind.variant)
    model, moe, streamed = scenario.model, scenario.model.moe, scenario.rates.stream_seconds
    T = tokens_per_rank(strategies, scenario) / strategies.tp
    norms = norms_of(scenario, kind) * 4.0 * norm_passes(scenario)[0] * region_tokens(strategies, scenario)
    activation = ACTIVATION[model.gated_ffn][0]
    pair = tensor_parallel(strategies, scenario).forward / (1.0 if model.parallel_block else 2.0)
    found = {"core_attn": layer.attention.forward, "layernorm": streamed(norms * model.hidden_size)}
    if kind.ffn == "dense":
        inner = streamed(T * model.ffn_hidden_size * activation)
        found["mlp"] = ffn_matmuls(strategies, scenario).forward + inner + pair
    if model.mla is not None and kind.attends:
        turned = streamed(T * rotary_traffic(scenario))
        found["mla_up_proj"] = up_projections(strategies, scenario).forward + turned
    if moe is not None and kind.ffn == "experts":
        shared, gathered = np.zeros(len(strategies)), 0.0 * pair
        if moe.num_shared_experts:
            inner = streamed(T * moe.shared_expert_ffn_hidden_size * activation)
            shared, gathered = shared_experts(strategies, scenario).forward + inner + pair, pair
        found |= {
            "moe": layer.experts + gathered,
            "moe_act": activation_seconds(strategies, scenario),
            "shared_experts": shared,
        }
    return found


def before_activation(scenario: Scenario) -> float:
    """Bytes kept per value that a dense network's activation reads: none where its output says its gradient."""
    return 0.0 if scenario.model.activation == "relu" else scenario.word


def module_bytes(strategies: Strategies, scenario: Scenario, kind: Kind) -> dict[str, Floats]:
    """Bytes of one micro-batch that a layer of a kind does not keep where a module is repeated, arrays (N,)."""
    scenario = scenario.with_sizes_of(kind.variant)
    model, h = scenario.model, float(scenario.model.hidden_size)
    T, region = tokens_per_rank(strategies, scenario) / strategies.tp, region_tokens(strategies, scenario)
    saved = scenario.recipe.word
    branches = 1.0 if model.parallel_block else float(kind.parts)
    found = {"core_attn": kind.attends * T * attention_kept(scenario, kind), "layernorm": region * branches * saved * h}
    if kind.ffn == "dense":
        found["mlp"] = T * (before_activation(scenario) * model.fc1_width + saved * model.ffn_hidden_size)
    if model.mla is not None and kind.attends:
        found["mla_up_proj"] = T * scenario.word * model.qkv_width
    if model.moe is not None and kind.ffn == "experts":
        routed = arrived_tokens(strategies, scenario) * model.moe.expert_ffn_hidden_size / strategies.etp
        shared = T * model.moe.shared_expert_ffn_hidden_size * (scenario.word * model.ffn_branches + saved)
        whole = expert_activation_bytes(strategies, scenario, saved)
        found |= {"moe": whole, "moe_act": saved * routed, "shared_experts": shared}
    return found


def selective_seconds(
    strategies: Strategies, block: Strategies, inverse: Ints, scenario: Scenario, layer: LayerSeconds, kind: Kind
) -> Floats:
    """Seconds by which selective recomputation makes a layer of a kind longer, shape (N,).

    Args:
        strategies: the strategies, N of them.
        block: those of them that differ in what a layer costs, which ``layer`` and ``kind`` are priced for.
        inverse: where in ``block`` each of the N is, shape (N,).
        scenario: model, stack and device.
        layer: seconds of the layer without recomputation.
        kind: of the layer.
    """
    stack, policy = scenario.stack, scenario.stack.switches.recompute_policy
    exchanges = not stack.recompute.saves_exchanges
    repeated = layer.repeated(policy, attends=not scenario.keeps_attention, exchanges=exchanges)
    if policy == "attention":
        host = module_host_seconds(block, scenario, kind).get("core_attn", 0.0)
        repeated = _lengthened(repeated, host, layer.device_lag.backward, scenario)
    seconds = np.where(strategies.recompute == Recompute.SELECTIVE, repeated[inverse], 0.0)
    masks = named_modules(strategies, scenario)
    if not masks.any():
        return seconds
    lag = layer.device_lag.backward[inverse]
    each = (module_seconds(block, scenario, layer, kind), module_host_seconds(block, scenario, kind))
    device, host = (sum_of_modules(masks, {name: values[inverse] for name, values in found.items()}) for found in each)
    return np.where(masks > 0, _lengthened(device, host, lag, scenario), seconds)


def checkpoint_seconds(scenario: Scenario, layer: LayerSeconds) -> Floats:
    """Seconds that a checkpoint of layers recomputed whole takes where the device waits for its host, (N,)."""
    behind = np.maximum(layer.device_lag.forward, 0.0) + np.maximum(layer.device_lag.backward, 0.0)
    return np.maximum(_launches(scenario, whole_calls(scenario)) - behind, 0.0)


def whole_calls(scenario: Scenario) -> float:
    """Calls of the host for one checkpoint besides what it runs again, in launches."""
    return CHECKPOINT * 2.0 * half_calls(scenario.stack)


def module_host_seconds(strategies: Strategies, scenario: Scenario, kind: Kind) -> dict[str, Floats]:
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
        found["moe"] = whole + expert_calls(strategies, scenario)
        found["moe_act"] = light + SMALL * half
        found["shared_experts"] = whole + SHARED * stack.host.kernels_per_expert_layer
    return {name: np.full(len(strategies), _launches(scenario, 1.0)) * calls for name, calls in found.items()}


def _launches(scenario: Scenario, calls: float) -> float:
    return 0.0 if scenario.stack.switches.cuda_graphs else calls * scenario.rates.launch


def _lengthened(device: Floats, host: Floats | float, lag: Floats, scenario: Scenario) -> Floats:
    """Seconds by which a backward pass grows that repeats work of the device and calls of its host.

    ``lag`` is how long the device runs behind its host without them; negative where it waits.
    """
    if scenario.stack.switches.launch_blocking:
        return device + host
    return np.maximum(np.maximum(device + np.minimum(lag, 0.0), host - np.maximum(lag, 0.0)), 0.0)
