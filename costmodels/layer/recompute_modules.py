"""Modules that selective recomputation can name, as Megatron-Core does: what repeating costs, what it saves.

A set of modules is one number, bit k standing for ``MODULES[k]``. The output of a named module (for ``core_attn``,
``mlp``, ``moe`` and ``shared_experts``: all that happens inside it) is let go after the forward pass and made
again when the backward pass asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from costmodels.layer.attention import attention_kept, up_projections
from costmodels.layer.blocks import LayerSeconds, norm_passes, rotary_traffic, tensor_parallel
from costmodels.layer.expert_traffic import ACTIVATION
from costmodels.layer.experts import (
    activation_seconds,
    arrived_tokens,
    expert_activation_bytes,
    expert_layer,
    experts_of,
    shared_experts,
)
from costmodels.layer.forward_backward import ffn_matmuls, region_tokens, tokens_per_rank
from costmodels.model.layer_kinds import Kind
from costmodels.model.model import Model
from costmodels.names import MODULES
from costmodels.primitives.kernels import stream_seconds
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Ints, Strategies

INSIDE = {"moe": ("moe_act", "shared_experts")}
"""Modules that are part of another; named beside it they add nothing."""


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


def preset_masks(model: Model, known: tuple[str, ...]) -> list[int]:
    """The sets that a search tries: outputs cheap to make again; with experts, also these and the experts whole.

    Most of a dense layer is better recomputed layer by layer, as many as memory asks for.
    """
    usable = [name for name in modules_of(model) if name in known]
    cheap = [name for name in ("layernorm", "moe_act", "mla_up_proj") if name in usable]
    whole = [*cheap, *(name for name in ("moe",) if name in usable)]
    return sorted({module_mask(cheap), module_mask(whole)} - {0})


def picked(masks: Ints, values: dict[str, Floats]) -> Floats:
    """The sum of the named modules' values, (N,)."""
    total = np.zeros(len(masks))
    for place, name in enumerate(MODULES):
        if name in values:
            total = total + np.where(masks >> place & 1, values[name], 0.0)
    return total


def module_seconds(rows: Strategies, scenario: Scenario, layer: LayerSeconds, kind: Kind) -> dict[str, Floats]:
    """Seconds to repeat each module of one layer of a kind for one micro-batch, arrays (N,)."""
    model = scenario.model
    known = {"share": scenario.rates.stream, "bandwidth": scenario.rates.bandwidth}
    T, region, t = tokens_per_rank(rows, scenario), region_tokens(rows, scenario), rows.tp.astype(np.float64)
    passes, _ = norm_passes(scenario)
    count = model.num_norms if kind.parts > 1 else 1
    norms = stream_seconds(traffic=region * count * model.hidden_size * 4.0 * passes, **known)
    activation = ACTIVATION[model.gated_ffn][0]
    inner = stream_seconds(traffic=T / t * model.ffn_hidden_size * activation, **known)
    pair = tensor_parallel(rows, scenario).forward / (1.0 if model.parallel_block else 2.0)
    found = {"core_attn": layer.attention.forward, "layernorm": norms}
    if kind.ffn == "dense":
        found["mlp"] = ffn_matmuls(rows, scenario).forward + inner + pair
    if model.mla is not None and kind.attends:
        found["mla_up_proj"] = _turned_up_projections(rows, scenario)
    if model.moe is not None and kind.ffn == "experts":
        experts = expert_layer(rows, scenario)
        shared = _shared_seconds(rows, scenario) + (pair if model.moe.num_shared_experts else 0.0)
        gathered = pair if model.moe.num_shared_experts else 0.0
        whole = experts.matmul.forward + experts.stream.forward + experts.ep.forward + gathered
        found |= {"moe": whole, "moe_act": activation_seconds(rows, scenario), "shared_experts": shared}
    return found


def _shared_seconds(rows: Strategies, scenario: Scenario) -> Floats:
    moe, T = experts_of(scenario), tokens_per_rank(rows, scenario)
    if not moe.num_shared_experts:
        return np.zeros(len(rows))
    activation = ACTIVATION[scenario.model.gated_ffn][0]
    known = {"share": scenario.rates.stream, "bandwidth": scenario.rates.bandwidth}
    moved = T * moe.shared_expert_ffn_hidden_size / rows.tp * activation
    return shared_experts(rows, scenario).forward + stream_seconds(traffic=moved, **known)


def _turned_up_projections(rows: Strategies, scenario: Scenario) -> Floats:
    known = {"share": scenario.rates.stream, "bandwidth": scenario.rates.bandwidth}
    turned = stream_seconds(traffic=tokens_per_rank(rows, scenario) / rows.tp * rotary_traffic(scenario), **known)
    return up_projections(rows, scenario).forward + turned


def before_activation(scenario: Scenario) -> float:
    """Bytes kept per value that a dense network's activation reads: none where its output says its gradient."""
    return 0.0 if scenario.model.activation == "relu" else scenario.word


def module_bytes(rows: Strategies, scenario: Scenario, kind: Kind) -> dict[str, Floats]:
    """Bytes of one micro-batch that a layer of a kind does not keep where a module is repeated, arrays (N,)."""
    model, h = scenario.model, float(scenario.model.hidden_size)
    T, region = tokens_per_rank(rows, scenario) / rows.tp, region_tokens(rows, scenario)
    saved = scenario.recipe.word
    branches = 1.0 if model.parallel_block else float(kind.parts)
    found = {"core_attn": kind.attends * T * attention_kept(scenario, kind), "layernorm": region * branches * saved * h}
    if kind.ffn == "dense":
        found["mlp"] = T * (before_activation(scenario) * model.fc1_width + saved * model.ffn_hidden_size)
    if model.mla is not None and kind.attends:
        found["mla_up_proj"] = T * scenario.word * model.qkv_width
    if model.moe is not None and kind.ffn == "experts":
        routed = arrived_tokens(rows, scenario) * model.moe.expert_ffn_hidden_size / rows.etp
        shared = T * model.moe.shared_expert_ffn_hidden_size * (scenario.word * model.ffn_branches + saved)
        whole = expert_activation_bytes(rows, scenario, saved)
        found |= {"moe": whole, "moe_act": saved * routed, "shared_experts": shared}
    return found
