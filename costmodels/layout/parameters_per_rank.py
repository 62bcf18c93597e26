"""Parameters that one rank holds: of a layer, of the embedding, of the head, arrays (N,) over strategies."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from costmodels.layout.layers_by_kind import contents
from costmodels.layout.split import even_layers
from costmodels.layout.stage_contents import copies, ends, folded, joined
from costmodels.model.further import stream_ends
from costmodels.model.layer_kinds import EXPERTS, Kind, mtp_kind
from costmodels.model.parameters import (
    embedding_norm_parameters,
    embedding_projection_parameters,
    expert_parameters,
    final_norm_parameters,
    kind_matrix_parameters,
    kind_replicated_parameters,
    mtp_projection_parameters,
    mtp_sets,
    per_layer_table_parameters,
    position_parameters,
    shared_parameters,
    shared_sets,
)
from costmodels.scenario import Scenario
from costmodels.strategy import STAGE_AXES, Floats, Strategies, of_axes


@of_axes("tp")
def layer_parameters_per_rank(strategies: Strategies, scenario: Scenario) -> Floats:
    """Parameters of an average layer on one tensor rank, routed experts left out.

    Matrices are split, norms, router and row-parallel biases whole.
    """
    return scenario.depth.average(lambda kind: kind_parameters_per_rank(strategies, scenario, kind))


def kind_parameters_per_rank(strategies: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Parameters of a layer of one kind on one tensor rank, routed experts left out, shape (N,)."""
    matrix, whole = kind_matrix_parameters(scenario.model, kind), kind_replicated_parameters(scenario.model, kind)
    if scenario.model.shared_blocks is not None:  # a layer's share of what several of them hold together
        (sets, runs), (split, alike) = shared_sets(scenario.model), shared_parameters(scenario.model, kind)
        return np.asarray((matrix - split * (1 - sets / runs)) / strategies.tp + whole - alike * (1 - sets / runs))
    return np.asarray(matrix / strategies.tp + whole)


@of_axes("tp")
def embedding_parameters_per_rank(strategies: Strategies, scenario: Scenario) -> Floats:
    """Parameters of the first stage besides its layers: vocabulary slice, positions, projections, a training tower."""
    model = scenario.model
    table = vocabulary_rows(strategies, scenario, "embedding") * model.embedding_width
    if scenario.tower is not None:
        table = table + tower_parameters(strategies, scenario, trained=True)
    whole = position_parameters(model) + embedding_projection_parameters(model) + embedding_norm_parameters(model)
    whole += stream_ends(model)[0] + model.model_vectors + per_layer_table_parameters(model)
    return table + whole


def tower_parameters(strategies: Strategies, scenario: Scenario, *, trained: bool) -> Floats:
    """Parameters of a vision tower on one tensor rank, where it trains as ``trained`` says, (N,); else 0."""
    tower = scenario.model.tower
    if scenario.tower is None or tower is None or scenario.tower_trains != trained:
        return np.zeros(len(strategies))
    return tower.parameters / strategies.tp.astype(np.float64)


@of_axes(*STAGE_AXES)
def head_parameters_per_rank(strategies: Strategies, scenario: Scenario) -> Floats:
    """Parameters of the last stage besides its layers: the output matrix, a copy of a tied one unless both meet.

    Multi-token-prediction layers sit there too; their routed experts are counted with the layers'.
    """
    model = scenario.model
    vocabulary = vocabulary_rows(strategies, scenario, "head")
    own = np.ones(len(strategies)) if not model.tied_embeddings else (~joined(strategies)).astype(np.float64)
    width = model.embedding_width if model.tied_embeddings else model.hidden_size
    mtp = kind_parameters_per_rank(strategies, scenario, mtp_kind(model)) + mtp_projection_parameters(model)
    return (
        vocabulary * (own * width + int(model.head_bias))
        + final_norm_parameters(model)
        + stream_ends(model)[1]
        + mtp_sets(model) * mtp
    )


@of_axes(*STAGE_AXES)
def heaviest_stage_parameters(strategies: Strategies, scenario: Scenario) -> Floats:
    """Parameters of the stage with the most, under an even split: its gradients take longest to reduce.

    Routed experts are left out. Where layers differ it is the stage with the most of both.
    """
    if not scenario.depth.uniform:
        return heaviest_stage(strategies, scenario).parameters
    layers = copies(strategies) * even_layers(scenario.model.num_layers, strategies).high
    first = embedding_parameters_per_rank(strategies, scenario)
    last = head_parameters_per_rank(strategies, scenario)
    at_ends = np.where(joined(strategies), first + last, np.maximum(first, last))
    at_ends = np.where(strategies.vocabulary > 0, (first + last) / strategies.pp, at_ends)
    return layers * layer_parameters_per_rank(strategies, scenario) + at_ends


@of_axes("tp")
def padded_vocabulary_rows(strategies: Strategies, scenario: Scenario) -> Floats:
    """Rows of the embedding after padding to a multiple of 128 tensor ranks, shape (N,)."""
    size, stated = scenario.model.vocab_size, scenario.model.padded_vocab_size
    step = 128.0 * strategies.tp
    padded = np.ceil(size / step) * step
    return padded if stated is None else np.where(stated % strategies.tp == 0, float(stated), padded)


def vocabulary_rows(strategies: Strategies, scenario: Scenario, matrix: Literal["embedding", "head"]) -> Floats:
    """Rows of the matrix on one tensor rank, shape (N,)."""
    whole = matrix in scenario.stack.exchange.whole_vocabulary
    rows = padded_vocabulary_rows(strategies, scenario)
    return rows if whole else rows / strategies.tp


class HeaviestStage(NamedTuple):
    """What the stage with the most parameters has where layers differ, arrays (N,): a strategy's own stage each."""

    parameters: Floats
    """Routed experts left out."""
    experts: Floats
    """Parameters of routed experts, those of layers that predict further tokens on the last stage."""
    held: Floats
    """Its layers of each kind that one micro-batch passes, shape (N, K)."""


@of_axes(*STAGE_AXES)
def heaviest_stage(strategies: Strategies, scenario: Scenario) -> HeaviestStage:
    """The stage whose parameters on one rank, routed experts included, are the most under an even split."""
    depth = scenario.depth
    stages = contents(strategies, depth)
    first, last = embedding_parameters_per_rank(strategies, scenario), head_parameters_per_rank(strategies, scenario)
    at_first, at_last = ends(strategies, stages.stage)
    spread, twice = strategies.vocabulary[:, None] > 0, copies(strategies)[:, None]
    vocabulary = at_first * first[:, None] + at_last * last[:, None]
    vocabulary = np.where(spread, ((first + last) / strategies.pp)[:, None], vocabulary)
    dense = stages.total(np.array([kind_parameters_per_rank(strategies, scenario, kind) for kind in depth.kinds]))
    dense = twice * dense + vocabulary
    each = np.array([kind_expert_parameters(strategies, scenario, kind) for kind in depth.kinds])
    mtp = mtp_sets(scenario.model) * kind_expert_parameters(strategies, scenario, mtp_kind(scenario.model))
    experts = twice * stages.total(each) + at_last * mtp[:, None]
    at = np.arange(len(strategies)), (dense + experts).argmax(axis=1)
    return HeaviestStage(dense[at], experts[at], stages.held[at])


@of_axes(*STAGE_AXES)
def heaviest_experts(strategies: Strategies, scenario: Scenario) -> Floats:
    """Parameters of routed experts on one rank of the stage with the most parameters, shape (N,)."""
    if scenario.model.moe is None:
        return np.zeros(len(strategies))
    if not scenario.depth.uniform:
        return heaviest_stage(strategies, scenario).experts
    # layers that predict further tokens are with the head
    split, twice = even_layers(scenario.model.num_layers, strategies), copies(strategies)
    head = np.where(folded(strategies), split.first, split.last)
    layers = np.maximum(twice * split.high, twice * head + mtp_sets(scenario.model))
    return layers * expert_parameters_per_rank(strategies, scenario)


def expert_parameters_per_rank(strategies: Strategies, scenario: Scenario) -> Floats:
    """Parameters of the routed experts of an average layer on one rank, shape (N,); 0 without experts."""
    model = scenario.model
    return kind_expert_parameters(strategies, scenario, EXPERTS) * model.num_moe_layers / model.num_layers


def kind_expert_parameters(strategies: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Parameters of the routed experts of one layer of a kind on one rank, shape (N,)."""
    model = scenario.model
    if model.moe is None or kind.ffn != "experts":
        return np.zeros(len(strategies))
    return np.asarray(model.moe.num_experts / strategies.ep * expert_parameters(model) / strategies.etp)
