"""Activations that a layer keeps of one micro-batch for its backward pass."""

from __future__ import annotations

import numpy as np

from costmodels.layer.adapters import kept_copy_bytes, kept_input_bytes
from costmodels.layer.attention import attention_kept, keys_scored
from costmodels.layer.context import repeated_bytes
from costmodels.layer.elementwise import normalised_width
from costmodels.layer.expert_activations import exchanged_bytes, expert_activation_bytes
from costmodels.layer.forward_backward import region_tokens, tokens_per_rank
from costmodels.layer.frozen_weights import cast_bytes
from costmodels.layer.mixers import mixer_kept_width
from costmodels.layer.recompute_modules import before_activation, module_bytes, named_modules, sum_of_modules
from costmodels.layout.parameters_per_rank import kind_expert_parameters, kind_parameters_per_rank
from costmodels.memory.autocast import (
    autocast_axes,
    is_autocast,
    layer_input_bytes,
    residual_bytes,
    score_bytes,
    wide_bytes,
)
from costmodels.model.further import further_parts, stream_width
from costmodels.model.layer_kinds import Kind
from costmodels.model.model import Model
from costmodels.names import SHARDED_PARAMETERS, Recompute
from costmodels.primitives.sizes import checkpoint_bytes, layer_activation_bytes
from costmodels.scenario import Scenario
from costmodels.step.sharded import stays_whole
from costmodels.strategy import LAYER_AXES, Bools, Floats, Strategies, of_axes

_KEEPS_EXPERTS = frozenset({"attention", "products", "up-projections"})
"""Kinds of selective recomputation that keep the experts' activations; a list of operators keeps what exchanges
return."""


def average_activation_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes that an average layer keeps of one micro-batch for its backward pass, shape (N,)."""
    return scenario.depth.average(lambda kind: kind_activation_bytes(strategies, scenario, kind))


def _sharding_axes(scenario: Scenario) -> tuple[str, ...]:
    """What of sharding a layer's activations depend on: whether weights are cast, or kept as they were gathered."""
    gathered = ("zero_stage", "sharding_degree", "pp") if "gathered" in scenario.stack.kernels.saved_tensors else ()
    return (*autocast_axes(scenario), *gathered)


@of_axes(*LAYER_AXES, further=_sharding_axes)
def kind_activation_bytes(strategies: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Bytes that one layer of a kind keeps of one micro-batch for its backward pass, shape (N,).

    Kept whole, or split over the tensor ranks by sequence parallelism: the inputs of norms and of the
    column-parallel products, dropout masks; split always: queries, keys, values, scores, the inputs of the
    row-parallel products. For a GPT block this is s b h (10 + 24/t + 5 a s / (h t)) [Korthikanti22].
    """
    scenario = scenario.with_sizes_of(kind.variant)
    policy = scenario.stack.switches.recompute_policy
    selective = (strategies.recompute == Recompute.SELECTIVE) & (named_modules(strategies, scenario) == 0)
    whole, inner = _left_by(selective, scenario, kind)
    more_whole, more_inner = _unfused_widths(scenario, kind)
    plain = np.where(selective & (policy != "attention"), 0.0, 1.0)
    kept = layer_activation_bytes(
        tokens=tokens_per_rank(strategies, scenario),
        region=region_tokens(strategies, scenario),
        tensor_ranks=strategies.tp,
        gathered=_product_inputs(scenario, kind) * scenario.stack.exchange.keeps_gathered_inputs,
        whole=whole + plain * more_whole,
        split=inner + plain * more_inner + _scores(selective, scenario, kind),
    )
    if kind.attends:
        kept = kept + repeated_bytes(strategies, scenario)
    gathered, cast = _kept_weights(strategies, scenario, kind)
    if is_autocast(strategies, scenario).any():
        kept = kept + _autocast_bytes(strategies, scenario, kind, selective)
    kept = kept - kind_module_bytes(strategies, scenario, kind) + gathered + cast_bytes(strategies, scenario, kind)
    kept = kept + np.where(selective & (policy == "operators"), 0.0, cast)
    if kind.ffn == "experts":
        repeated = selective & (policy == "up-projections")
        experts = expert_activation_bytes(strategies, scenario, scenario.recipe.word, repeated=repeated)
        again = exchanged_bytes(strategies, scenario) if policy == "operators" else (policy in _KEEPS_EXPERTS) * experts
        kept = kept + np.where(selective, again, experts)
    return np.maximum(kept, input_bytes(strategies, scenario))  # whatever is repeated


def _autocast_bytes(strategies: Strategies, scenario: Scenario, kind: Kind, selective: Bools) -> Floats:
    """Bytes that a layer keeps beyond 16 bits under autocast, less those that selective recomputation repeats, (N,)."""
    scores = kind.attends * score_bytes(scenario) * scenario.model.num_heads * keys_scored(scenario, kind)
    again = selective & (scenario.stack.switches.recompute_policy != "attention")
    wide = np.where(again, layer_input_bytes(scenario), wide_bytes(scenario, kind))
    scored = tokens_per_rank(strategies, scenario) / strategies.tp * np.where(selective, 0.0, scores)
    return is_autocast(strategies, scenario) * (region_tokens(strategies, scenario) * wide + scored)


def _product_inputs(scenario: Scenario, kind: Kind) -> float:
    """Bytes per token of the inputs of a layer's branches, as they were multiplied."""
    branches = 1.0 if scenario.model.parallel_block else float(kind.parts)
    if scenario.frozen:  # what adapters read
        read = [kept_input_bytes(scenario, kind, name) for name in ("linear_qkv", "linear_fc1")]
        return (max(read) if branches == 1.0 else sum(read)) * float(scenario.model.hidden_size)
    return branches * scenario.saved_word * float(scenario.model.hidden_size)


def _widths(scenario: Scenario, kind: Kind) -> tuple[float, float]:
    """Bytes per token that a layer keeps with nothing recomputed: of the whole width, and split over tensor ranks."""
    model, saved = scenario.model, scenario.saved_word
    h, dense = float(model.hidden_size), float(kind.ffn == "dense")
    last = saved if not scenario.frozen else kept_input_bytes(scenario, kind, "linear_fc2")
    mask = 1.0 if scenario.stack.switches.dropout else 0.0
    norms = model.num_norms if kind.parts > 1 else kind.parts
    normed = 0.0 if scenario.frozen and "norm" in scenario.stack.kernels.saved_tensors else scenario.word
    whole = norms * normed * h + _product_inputs(scenario, kind) + kind.parts * mask * h
    attention = kind.attends * scenario.word * (model.qkv_width + model.attention_output_width)
    attention += normed * normalised_width(model, kind)
    attention += kept_copy_bytes(scenario, kind) * model.attention_output_width
    if not saved:  # but attention's output is no cheap thing to make again, and its cast reads all of it
        attention += kind.attends * scenario.recipe.word * model.attention_output_width
    inner = attention + dense * (before_activation(scenario) * model.fc1_width + last * model.ffn_hidden_size)
    if kind.other_mixer:
        inner += mixer_kept_width(scenario, saved, kind.other_mixer)
    inner += kind.attends * scenario.word * _gates(model)
    whole += scenario.word * sum(part.kept for part in further_parts(model, kind))
    if kind.attends and model.compressed is not None:
        whole += scenario.word * model.compressed.query_rank
        inner += scenario.word * model.compressed.output_groups * model.compressed.output_rank
    if kind.attends and model.mla is not None:
        whole += scenario.word * (model.mla.q_down_width + model.mla.kv_down_width)
    if kind.attends and model.localized_filtering:
        inner += saved * (model.hidden_size / 2 + 2 * h)
    return whole, inner


def _gates(model: Model) -> float:
    """Values per token that a gate of attention keeps besides what it scales: itself, and the output as it was."""
    return float(model.gate_width + model.attention_output_width * (model.gate_width > 0))


def _left_by(selective: Bools, scenario: Scenario, kind: Kind) -> tuple[Floats | float, Floats | float]:
    """Bytes per token as of ``_widths``, less what the stack's selective recomputation repeats where it is on."""
    model, policy = scenario.model, scenario.stack.switches.recompute_policy
    whole, inner = _widths(scenario, kind)
    if policy == "attention":
        return whole, inner
    if policy == "operators":
        if kind.attends and model.mla is None:
            listed = _listed(scenario, kind)
            return np.where(selective, listed[0], whole), np.where(selective, listed[1], inner)
        returned = 0.0 if scenario.keeps_attention else kind.attends * scenario.word * model.attention_output_width
        left = max(whole / 2.0, scenario.word * model.hidden_size)  # what goes in is kept, whatever is frozen
        return np.where(selective, left, whole), np.where(selective, inner / 2.0 - returned, inner)
    if policy == "up-projections":
        left = whole - _product_inputs(scenario, kind)
        return np.where(selective, left, whole), np.where(selective, _without_up_projections(scenario, kind), inner)
    kept, outer = kind.attends * scenario.word * model.qkv_width, scenario.word * model.hidden_size
    if policy == "products":
        kept += (kind.ffn == "dense") * scenario.word * model.fc1_width
    if policy in {"products", "attention-products", "feed-forward"}:
        outer *= 1.0 + kind.attends * (kind.parts > 1)
    if policy == "feed-forward":
        kept += kind.attends * scenario.word * model.attention_output_width
    return np.where(selective, outer, whole), np.where(selective, kept, inner)


def _listed(scenario: Scenario, kind: Kind) -> tuple[float, float]:
    """Bytes per token where a list of operators names what is kept, as in torchtitan: attention, every second product.

    Of queries, keys, values, output, gate, up and down these are queries, values, gate and down; what comes down is
    added up at once, so that only eager autograd keeps it. All in 16 bits, whatever the products run in.
    """
    model, word = scenario.model, scenario.word
    down = 1.0 if scenario.stack.switches.fused_elementwise or not model.gated_ffn else 2.0
    inner = model.attention_width + model.value_width + (kind.ffn == "dense") * model.ffn_hidden_size
    return word * model.hidden_size * down, word * (inner + scenario.keeps_attention * model.attention_output_width)


def _without_up_projections(scenario: Scenario, kind: Kind) -> float:
    """Bytes per token, split over tensor ranks, that are kept where norms, activation and up-projections repeat."""
    model, saved = scenario.model, scenario.recipe.word
    kept = kind.attends * scenario.word * model.attention_output_width + (kind.ffn == "dense") * saved * model.fc1_width
    kept += 0.0 if model.mla else kind.attends * scenario.word * model.qkv_width
    kept += mixer_kept_width(scenario, saved, kind.other_mixer) if kind.other_mixer else 0.0
    return kept


def _scores(selective: Bools, scenario: Scenario, kind: Kind) -> Floats | float:
    """Bytes per token of what the attention core keeps, split over tensor ranks.

    Products without weights, and their softmax, are what every policy but two repeats.
    """
    scores = kind.attends * attention_kept(scenario, kind)
    policy = scenario.stack.switches.recompute_policy
    repeated = policy not in {"operators", "up-projections"} and scenario.rates.attention is None
    repeated |= policy == "operators" and not scenario.keeps_attention
    return np.where(selective, 0.0, scores) if repeated else scores


def _unfused_widths(scenario: Scenario, kind: Kind) -> tuple[float, float]:
    """Bytes per token that operations which a stack has not fused keep: of the whole width, and split over ranks."""
    model, keeps = scenario.model, scenario.stack.kernels.saved_tensors
    norms = model.num_norms if kind.parts > 1 else kind.parts
    gated = kind.ffn == "dense" and model.gated_ffn
    repeated = model.attention_width + model.attention_output_width - (model.qkv_width - model.attention_width)
    copied = "key-values" in keeps and model.num_query_groups < model.num_heads  # then nothing views the projection
    inner = {
        "gate": scenario.word * model.ffn_hidden_size * gated,
        "key-values": scenario.word * kind.attends * repeated,
        "rotated": scenario.word
        * kind.attends
        * (model.position == "rotary" and not copied)
        * (model.attention_width + model.key_value_width),
        "projected": scenario.word * kind.attends * (model.num_query_groups == model.num_heads) * 2 * model.value_width,
        "transposed": scenario.word * kind.attends * model.attention_output_width,
    }
    width = 4.0 * ("norm" in keeps) + scenario.word * ("norm-16" in keeps)
    kept = sum(inner.get(name, 0.0) for name in keeps) + width * normalised_width(model, kind)
    return width * model.hidden_size * norms, kept


def _kept_weights(strategies: Strategies, scenario: Scenario, kind: Kind) -> tuple[Floats, Floats]:
    """Bytes of a layer's weights that every micro-batch keeps anew: as ZeRO stage 3 gathered them, and as cast, (N,).

    PyTorch's autograd saves a view of what a product multiplied. DeepSpeed puts a product in its place that saves the
    parameter itself (runtime/zero/linear.py), but where models are built outside ``zero.Init``, or with
    ``mem_efficient_linear=False``. A compiled graph keeps weights as it cast them to 8 bits for the forward pass,
    whatever full sharding then gives up, unless it casts again (``force_recompute_fp8_weight_in_bwd``
    [TorchAO]).
    """
    saved = scenario.stack.kernels.saved_tensors
    size = kind_parameters_per_rank(strategies, scenario, kind) + kind_expert_parameters(strategies, scenario, kind)
    kept = (
        (strategies.zero_stage == SHARDED_PARAMETERS)
        & (strategies.sharding_degree > 1)
        & ~stays_whole(strategies, scenario)
    )
    gathered = np.where(kept & ("gathered" in saved), scenario.word * size, 0.0)
    return gathered, scenario.recipe.word * size * float("casts" in saved and scenario.recipe.reduced)


@of_axes(*LAYER_AXES, further=autocast_axes)
def layer_checkpoint_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes of one recomputed layer's input, of one micro-batch, (N,); its share where several have one together."""
    whole = input_bytes(strategies, scenario)
    return whole / strategies.recompute_num_layers + returned_bytes(strategies, scenario)


def input_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes of what one layer is given, of one micro-batch: all residual streams, (N,)."""
    region = region_tokens(strategies, scenario)
    if scenario.stack.recompute.partitioned_inputs:
        region = np.minimum(region, tokens_per_rank(strategies, scenario) / strategies.tp)
    word = scenario.word + residual_bytes(strategies, scenario)
    return checkpoint_bytes(tokens=region, hidden_size=stream_width(scenario.model), word=word)


def returned_bytes(strategies: Strategies, scenario: Scenario, *, without_this_pass: bool = False) -> Floats:
    """Bytes of keys and values of one layer that a model returns and a loop holds, as the loss is taken, (N,).

    Those of this pass, which attention keeps anyway where nothing is recomputed (``without_this_pass``), and of the
    pass before: a loop that names what came back holds it until the next forward pass is over [use_cache]. What models
    return whose layers do not all attend is not priced.
    """
    passes = max(scenario.stack.kernels.saved_tensors.count("cache") - without_this_pass, 0)
    passes *= all(kind.attends for kind in scenario.depth.kinds)
    width = float(scenario.model.key_value_width + scenario.model.value_width)
    return passes * scenario.word * width * tokens_per_rank(strategies, scenario) / strategies.tp


def kept_bytes_of_kind(strategies: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Bytes that one layer keeps of one micro-batch, on the device or the host; its input where recomputed whole."""
    checkpoint = layer_checkpoint_bytes(strategies, scenario)
    return np.where(
        strategies.recompute >= Recompute.FULL, checkpoint, kind_activation_bytes(strategies, scenario, kind)
    )


def kept_bytes_of_layer(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes that an average layer keeps of one micro-batch, on the device or the host, (N,)."""
    return scenario.depth.average(lambda kind: kept_bytes_of_kind(strategies, scenario, kind))


@of_axes(*LAYER_AXES)
def kind_module_bytes(strategies: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Bytes of one layer and micro-batch that named modules are repeated for instead of kept, shape (N,)."""
    masks = named_modules(strategies, scenario)
    return sum_of_modules(masks, module_bytes(strategies, scenario, kind)) if masks.any() else np.zeros(len(strategies))
