"""Parameters that one rank holds: of a layer, of the embedding, of the head, arrays (N,) over strategies."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from costmodels.layout.layers_by_kind import contents
from costmodels.layout.split import even_layers
from costmodels.layout.stage_contents import copies, ends, folded, joined
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
    position_parameters,
)
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Strategies


def layer_parameters_per_rank(rows: Strategies, scenario: Scenario) -> Floats:
    """Parameters of an average layer on one tensor rank, routed experts left out.

    Matrices are split, norms, router and row-parallel biases whole.
    """
    return scenario.depth.average(lambda kind: kind_parameters_per_rank(rows, scenario, kind))


def kind_parameters_per_rank(rows: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Parameters of a layer of one kind on one tensor rank, routed experts left out, shape (N,)."""
    matrix = kind_matrix_parameters(scenario.model, kind)
    return np.asarray(matrix / rows.tp + kind_replicated_parameters(scenario.model, kind))


def embedding_parameters_per_rank(rows: Strategies, scenario: Scenario) -> Floats:
    """Parameters of the first stage beside its layers: its vocabulary slice, positions, projections."""
    model = scenario.model
    table = vocabulary_rows(rows, scenario, "embedding") * model.embedding_width
    whole = position_parameters(model) + embedding_projection_parameters(model) + embedding_norm_parameters(model)
    return table + whole


def head_parameters_per_rank(rows: Strategies, scenario: Scenario) -> Floats:
    """Parameters of the last stage beside its layers: the output matrix, a copy of a tied one unless both meet.

    Multi-token-prediction layers sit there too; their routed experts are counted with the layers'.
    """
    model = scenario.model
    vocabulary = vocabulary_rows(rows, scenario, "head")
    own = np.ones(len(rows)) if not model.tied_embeddings else (~joined(rows)).astype(np.float64)
    width = model.embedding_width if model.tied_embeddings else model.hidden_size
    ahead = kind_parameters_per_rank(rows, scenario, mtp_kind(model)) + mtp_projection_parameters(model)
    return vocabulary * (own * width + int(model.head_bias)) + final_norm_parameters(model) + mtp_sets(model) * ahead


def heaviest_stage_parameters(rows: Strategies, scenario: Scenario) -> Floats:
    """Parameters of the stage with the most, under an even split: its gradients take longest to reduce.

    Routed experts are left out. Where layers differ it is the stage with the most of both.
    """
    if not scenario.depth.uniform:
        return heaviest_stage(rows, scenario).parameters
    layers = copies(rows) * even_layers(scenario.model.num_layers, rows).high
    first = embedding_parameters_per_rank(rows, scenario)
    last = head_parameters_per_rank(rows, scenario)
    at_ends = np.where(joined(rows), first + last, np.maximum(first, last))
    at_ends = np.where(rows.vocabulary > 0, (first + last) / rows.pp, at_ends)
    return layers * layer_parameters_per_rank(rows, scenario) + at_ends


def padded_vocabulary_rows(rows: Strategies, scenario: Scenario) -> Floats:
    """Rows of the embedding after padding to a multiple of 128 tensor ranks, shape (N,)."""
    step = 128.0 * rows.tp
    padded = np.ceil(scenario.model.vocab_size / step) * step
    stated = scenario.model.padded_vocab_size
    if stated is None:
        return padded
    return np.where(stated % rows.tp == 0, float(stated), padded)


def vocabulary_rows(rows: Strategies, scenario: Scenario, matrix: Literal["embedding", "head"]) -> Floats:
    """Rows of the matrix on one tensor rank, shape (N,)."""
    whole = matrix in scenario.stack.exchange.whole_vocabulary
    return padded_vocabulary_rows(rows, scenario) / (np.ones(len(rows)) if whole else rows.tp)


class HeaviestStage(NamedTuple):
    """What the stage with the most parameters has where layers differ, arrays (N,): a row's own stage each."""

    parameters: Floats
    """Routed experts left out."""
    experts: Floats
    """Parameters of routed experts, those of layers that predict further tokens on the last stage."""
    held: Floats
    """Its layers of each kind that one micro-batch passes, shape (N, K)."""


def heaviest_stage(rows: Strategies, scenario: Scenario) -> HeaviestStage:
    """The stage whose parameters on one rank, routed experts included, are the most under an even split."""
    depth = scenario.depth
    stages = contents(rows, depth)
    first, last = embedding_parameters_per_rank(rows, scenario), head_parameters_per_rank(rows, scenario)
    at_first, at_last = ends(rows, stages.stage)
    spread, twice = rows.vocabulary[:, None] > 0, copies(rows)[:, None]
    vocabulary = at_first * first[:, None] + at_last * last[:, None]
    vocabulary = np.where(spread, ((first + last) / rows.pp)[:, None], vocabulary)
    dense = stages.total(np.array([kind_parameters_per_rank(rows, scenario, kind) for kind in depth.kinds]))
    dense = twice * dense + vocabulary
    experts = twice * stages.total(np.array([kind_expert_parameters(rows, scenario, kind) for kind in depth.kinds]))
    ahead = mtp_sets(scenario.model) * kind_expert_parameters(rows, scenario, mtp_kind(scenario.model))
    experts = experts + at_last * ahead[:, None]
    row, most = np.arange(len(rows)), (dense + experts).argmax(axis=1)
    return HeaviestStage(dense[row, most], experts[row, most], stages.held[row, most])


def expert_layers(rows: Strategies, scenario: Scenario) -> Floats:
    """Layers whose experts the fullest stage holds: those that predict further tokens are with the head, shape (N,)."""
    split, twice = even_layers(scenario.model.num_layers, rows), copies(rows)
    head = np.where(folded(rows), split.first, split.last)
    return np.maximum(twice * split.high, twice * head + mtp_sets(scenario.model))


def heaviest_experts(rows: Strategies, scenario: Scenario) -> Floats:
    """Parameters of routed experts on one rank of the stage with the most parameters, shape (N,)."""
    if scenario.model.moe is None:
        return np.zeros(len(rows))
    if not scenario.depth.uniform:
        return heaviest_stage(rows, scenario).experts
    return expert_layers(rows, scenario) * expert_parameters_per_rank(rows, scenario)


def expert_parameters_per_rank(rows: Strategies, scenario: Scenario) -> Floats:
    """Parameters of the routed experts of an average layer on one rank, shape (N,); 0 without experts."""
    model = scenario.model
    return kind_expert_parameters(rows, scenario, EXPERTS) * model.num_moe_layers / model.num_layers


def kind_expert_parameters(rows: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Parameters of the routed experts of one layer of a kind on one rank, shape (N,)."""
    model = scenario.model
    if model.moe is None or kind.ffn != "experts":
        return np.zeros(len(rows))
    return np.asarray(model.moe.num_experts / rows.ep * expert_parameters(model) / rows.etp)
