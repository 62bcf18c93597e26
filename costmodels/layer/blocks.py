"""Seconds of one layer of any kind, of the embedding and of the output head, per micro-batch and rank.

Shapes follow Megatron's tensor parallelism [Shoeybi19] with sequence parallelism [Korthikanti22]: T tokens
per rank (micro-batch x sequence / context degree), t tensor ranks; the matrix products split their width
over t, the norms and residuals split their tokens over t when sequence parallelism is on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from costmodels.arrays import Columns
from costmodels.layer.adapters import adapter_seconds
from costmodels.layer.attention import (
    attention_core,
    attention_matmuls,
    further_matmuls,
    has_further_matmuls,
    up_projections,
)
from costmodels.layer.context import context_parallel
from costmodels.layer.elementwise import fill_seconds, layer_accumulation, layer_streams
from costmodels.layer.experts import ExpertSeconds, expert_layer, grouped_products
from costmodels.layer.forward_backward import (
    Passes,
    average,
    ffn_matmuls,
    last_product,
    linear,
    no_passes,
    region_tokens,
    tokens_per_rank,
)
from costmodels.layer.fp8_scales import scale_seconds
from costmodels.layer.frozen_weights import unpacking_seconds
from costmodels.layer.launches import exposed_launches, launch_floor, small_kernels
from costmodels.layer.mixers import exchange_of_heads, mixer_matmuls, scan
from costmodels.layer.overlapped_experts import exposed_seconds, is_overlapped
from costmodels.layer.tensor_parallel import exposed_summing, tensor_parallel
from costmodels.model.layer_kinds import Kind, MixerName
from costmodels.scenario import Scenario
from costmodels.strategy import BLOCK_AXES, DENSE_AXES, Floats, Strategies, of_axes, once_for

FOLLOWED = 2
"""Norms of a layer up to which none reads what its last product returns."""


@dataclass(frozen=True, slots=True)
class LayerSeconds(Columns):
    """One layer, one micro-batch, one rank: arrays (N,), seconds; communication is the exposed part."""

    matmul: Passes
    attention: Passes
    stream: Passes
    launch: Passes
    """What the host adds where launching takes longer than running and exchanging keys and values."""
    device_lag: Passes
    """How long the device runs behind its host in either pass; negative where it waits."""
    tp: Passes
    cp: Passes
    ep: Passes
    """At the same time as another micro-batch's passes, where a stack ``overlaps`` them."""
    ep_alone: Passes
    """Dispatch and combine of a micro-batch that has no partner."""
    hidden_ep: Passes
    """Dispatch and combine hidden behind the layer's own computation, which hides nothing else then."""
    paired: Passes
    """Computation of either pass that another micro-batch's exchanges can hide behind, where it has a partner."""
    up_projections: Passes
    """Out of latent vectors, included in ``matmul``."""
    beyond: Passes
    """Products behind queries, keys and values, included in ``matmul``."""
    output: Passes
    """Attention's output projection, included in ``beyond``, where a gradient reads what it returns."""
    experts: Floats
    """Forward seconds of all that experts do, exchanges with no partner included."""
    unread: Passes
    """Products of a dense layer whose outputs no gradient reads, included in ``beyond``: the last one, and in a
    parallel block the output projection too, which is only added up with it."""
    skipped: Floats
    """Forward seconds that full recomputation leaves out where it ends there."""
    second: Floats
    """Forward seconds of the products that a list of operators does not keep, where a stack has one."""

    def weight_gradients(self, ratio: float) -> Floats:
        """Seconds of the weight gradients, which take ``ratio`` of the time of the data gradients."""
        return self.matmul.backward * ratio / (1.0 + ratio)

    @property
    def compute(self) -> Passes:
        """Everything but communication."""
        return self.matmul + self.attention + self.stream + self.launch

    def repeated(self, selective: str, *, attends: bool = False, exchanges: bool = False) -> Floats:
        """Forward seconds that selective recomputation repeats, by the stack's kind of it.

        A list of operators repeats what it lacks: what ``attends``, the ``exchanges`` of tokens.
        """
        if selective == "operators":  # scatters are kept, gathers run again
            again = self.attention.forward * attends + self.ep_alone.forward * exchanges
            return self.stream.forward + self.second + self.tp.forward / 2.0 + again
        if selective == "up-projections":
            return self.stream.forward + self.up_projections.forward
        if selective == "products":
            return self.stream.forward + self.attention.forward
        if selective in {"projections", "attention-products", "feed-forward"}:
            core = 0.0 if selective == "feed-forward" else self.attention.forward
            kept = 0.0 if selective == "projections" else self.output.forward
            return self.stream.forward + core + self.beyond.forward - self.unread.forward - kept
        return self.attention.forward

    @property
    def communication(self) -> Passes:
        """Exposed tensor-, context- and expert-parallel seconds."""
        return self.tp + self.cp + self.ep

    @property
    def alone(self) -> Passes:
        """Exposed communication of a pass that no other micro-batch hides, such as one that is repeated."""
        return self.tp + self.cp + self.ep_alone


def layer_seconds(strategies: Strategies, scenario: Scenario) -> LayerSeconds:
    """Seconds of an average layer for each of N strategies: every kind of layer by its share of the depth."""
    kinds = scenario.depth.kinds
    return average([kind_seconds(strategies, scenario, kind) for kind in kinds], scenario.depth.shares)


def kind_seconds(strategies: Strategies, scenario: Scenario, kind: Kind) -> LayerSeconds:
    """Seconds of one layer of a kind; reads tp, cp, ep, etp, micro-batch, sequence parallelism."""
    axes = BLOCK_AXES if kind.ffn == "experts" else DENSE_AXES
    return once_for(strategies, axes, lambda few: _kind_seconds(few, scenario.with_sizes_of(kind.variant), kind))


def _kind_seconds(strategies: Strategies, scenario: Scenario, kind: Kind) -> LayerSeconds:
    nothing = no_passes(strategies)
    experts = expert_layer(strategies, scenario) if kind.ffn == "experts" else ExpertSeconds(*[nothing] * 5)
    products, stream = _products(strategies, scenario, kind, experts), _streams(strategies, scenario, kind, experts)
    attention, cp = _mixing(strategies, scenario, kind.mixer)
    tp = tensor_parallel(strategies, scenario, kind)
    apart = products.matmul + attention + stream + tp + cp
    ep, paired, floor = experts.ep, nothing, launch_floor(strategies, scenario, kind)
    if is_overlapped(scenario.stack):  # traffic goes on while a pass waits for its host
        free = apart + exposed_launches(floor, apart, scenario) - experts.hidden
        ep, paired = exposed_seconds(ep, layer=free, experts=experts.between, stack=scenario.stack)
    busy = apart + ep
    return LayerSeconds(
        **products._asdict(),
        attention=attention,
        stream=stream,
        launch=exposed_launches(floor, busy, scenario),
        device_lag=busy - Passes(floor, 2.0 * floor),
        tp=tp,
        cp=cp,
        ep=ep,
        ep_alone=experts.ep,
        hidden_ep=experts.hidden,
        experts=experts.matmul.forward + experts.stream.forward + experts.ep.forward,
        paired=paired,
        up_projections=up_projections(strategies, scenario) if kind.attends else nothing,
        skipped=_skipped(products.unread, strategies, scenario, kind, busy.forward - floor),
        second=_second_products(strategies, scenario, kind, products.matmul),
    )


@of_axes(*DENSE_AXES)
def _mixing(strategies: Strategies, scenario: Scenario, mixer: MixerName) -> tuple[Passes, Passes]:
    """The core of attention, and what context ranks exchange for it or for another mixer; alike before any network."""
    kind, attention, cp = Kind(mixer, "none"), no_passes(strategies), no_passes(strategies)
    if kind.attends:
        attention = attention_core(strategies, scenario, kind)
        cp = context_parallel(strategies, scenario, attention)
    if kind.other_mixer:
        cp = cp + exchange_of_heads(strategies, scenario, kind.other_mixer)
    return attention, cp


class _Products(NamedTuple):
    """Matrix products of a layer, as ``LayerSeconds`` has them."""

    matmul: Passes
    beyond: Passes
    output: Passes
    unread: Passes


def _products(strategies: Strategies, scenario: Scenario, kind: Kind, experts: ExpertSeconds) -> _Products:
    nothing = no_passes(strategies)
    matmul, output, unread = experts.matmul, nothing, nothing
    if kind.ffn == "dense":
        matmul, unread = ffn_matmuls(strategies, scenario), last_product(strategies, scenario)
    beyond = matmul
    if kind.attends:
        output = attention_matmuls(strategies, scenario, ("output",))
        beyond = output + matmul
        matmul = attention_matmuls(strategies, scenario, but="output") + output + matmul
        if scenario.model.parallel_block and kind.ffn == "dense":
            unread, output = unread + output, nothing
    if has_further_matmuls(scenario, kind):
        matmul = further_matmuls(strategies, scenario, kind) + matmul
    if kind.other_mixer:
        matmul = mixer_matmuls(strategies, scenario, kind.other_mixer) + matmul
    return _Products(matmul, beyond, output, unread)


def _streams(strategies: Strategies, scenario: Scenario, kind: Kind, experts: ExpertSeconds) -> Passes:
    """What a layer spends on kernels that memory bounds, and on those too small to be bound by anything."""
    stream = layer_streams(strategies, scenario, kind) + small_kernels(strategies, scenario, kind) + experts.stream
    stream = stream + layer_accumulation(strategies, scenario, kind) + fill_seconds(strategies, scenario, kind)
    stream = stream + scale_seconds(strategies, scenario, kind) + adapter_seconds(strategies, scenario, kind)
    stream = stream + unpacking_seconds(strategies, scenario, kind)
    return stream + scan(strategies, scenario, kind.other_mixer) if kind.other_mixer else stream


def _skipped(unread: Passes, strategies: Strategies, scenario: Scenario, kind: Kind, lag: Floats) -> Floats:
    """By how much a repeated forward pass of a dense layer is shorter for ending where no gradient reads on, (N,).

    Left out are the ``unread`` products, the sum of what they return over the tensor ranks and the addition to the
    residual, as far as the device runs ``lag`` seconds behind the host that launches them. A norm behind the last
    product, or dropout, reads it.
    """
    model, switches = scenario.model, scenario.stack.switches
    if kind.ffn != "dense" or model.num_norms > FOLLOWED or switches.dropout:
        return np.zeros(len(strategies))
    adding = scenario.rates.stream_seconds(6.0 * model.hidden_size * region_tokens(strategies, scenario))
    whole = unread.forward + adding + exposed_summing(strategies, scenario)
    return whole if switches.launch_blocking else np.clip(lag, 0.0, whole)


def _second_products(strategies: Strategies, scenario: Scenario, kind: Kind, matmul: Passes) -> Floats:
    """Forward seconds of a layer's products that a list of operators does not keep, (N,); 0 where a stack has none.

    Every second one, in the order in which it runs them: of queries, keys, values, output, gate, up and down these are
    keys, output and up; down where there is no gate. Half of all where a layer has others. Grouped products of experts
    are in no list (``_grouped_mm`` [torchtitan]); no gradient reads what the last of them returns.
    """
    model, T, t = scenario.model, tokens_per_rank(strategies, scenario), strategies.tp.astype(np.float64)
    if scenario.stack.switches.recompute_policy != "operators":
        return np.zeros(len(strategies))
    if kind.ffn == "experts":
        each = grouped_products(strategies, scenario).forward
        return (matmul.forward - each) / 2.0 + each * model.ffn_branches / (model.ffn_branches + 1.0)
    if not kind.attends or model.mla is not None or kind.ffn != "dense":
        return matmul.forward / 2.0
    h = float(model.hidden_size)
    keys = linear(T, model.head_dim * np.maximum(model.num_query_groups / t, 1.0), h, scenario)
    output = attention_matmuls(strategies, scenario, ("output",))
    wide = linear(T, model.ffn_hidden_size / t, h, scenario) if model.gated_ffn else last_product(strategies, scenario)
    return keys.forward + output.forward + wide.forward
