"""Parameters that one rank holds: of a layer, of the embedding, of the head, arrays (N,) over strategies."""

from __future__ import annotations

import numpy as np

from costmodels.parameters import (
    dense_layer_matrix_parameters,
    dense_layer_replicated_parameters,
    embedding_norm_parameters,
    embedding_projection_parameters,
    final_norm_parameters,
    moe_layer_matrix_parameters,
    moe_layer_replicated_parameters,
    mtp_projection_parameters,
    position_parameters,
)
from costmodels.pieces import copies, folded, joined
from costmodels.scenario import Scenario
from costmodels.split import even_layers
from costmodels.strategy import Floats, Strategies


def layer_parameters_per_rank(rows: Strategies, scenario: Scenario) -> Floats:
    """Parameters of an average layer on one tensor rank, routed experts left out.

    Matrices are split, norms, router and row-parallel biases whole.
    """
    model = scenario.model
    share = model.num_moe_layers / model.num_layers
    matrix = (1.0 - share) * dense_layer_matrix_parameters(model) + share * moe_layer_matrix_parameters(model)
    whole = (1.0 - share) * dense_layer_replicated_parameters(model) + share * moe_layer_replicated_parameters(model)
    return matrix / rows.tp + whole


def embedding_parameters_per_rank(rows: Strategies, scenario: Scenario) -> Floats:
    """Parameters of the first stage beside its layers: its vocabulary slice, positions, projections."""
    model = scenario.model
    table = padded_vocabulary_rows(rows, scenario) * model.embedding_width / rows.tp
    whole = position_parameters(model) + embedding_projection_parameters(model) + embedding_norm_parameters(model)
    return table + whole


def head_parameters_per_rank(rows: Strategies, scenario: Scenario) -> Floats:
    """Parameters of the last stage beside its layers: the output matrix, a copy of a tied one unless both meet.

    Multi-token-prediction layers sit there too; their routed experts are counted with the layers'.
    """
    model = scenario.model
    vocabulary = padded_vocabulary_rows(rows, scenario) / rows.tp
    own = np.ones(len(rows)) if not model.tied_embeddings else (~joined(rows)).astype(np.float64)
    width = model.embedding_width if model.tied_embeddings else model.hidden_size
    ahead = model.mtp_layers * (mtp_projection_parameters(model) + layer_parameters_per_rank(rows, scenario))
    return vocabulary * (own * width + int(model.head_bias)) + final_norm_parameters(model) + ahead


def heaviest_stage_parameters(rows: Strategies, scenario: Scenario) -> Floats:
    """Parameters of the stage with the most, under an even split: its gradients take longest to reduce."""
    layers = copies(rows) * even_layers(scenario.model.num_layers, rows).high
    first = embedding_parameters_per_rank(rows, scenario)
    last = head_parameters_per_rank(rows, scenario)
    ends = np.where(joined(rows), first + last, np.maximum(first, last))
    ends = np.where(rows.vocabulary > 0, (first + last) / rows.pp, ends)
    return layers * layer_parameters_per_rank(rows, scenario) + ends


def padded_vocabulary_rows(rows: Strategies, scenario: Scenario) -> Floats:
    """Rows of the embedding after padding to a multiple of 128 tensor ranks, shape (N,)."""
    step = 128.0 * rows.tp
    padded = np.ceil(scenario.model.vocab_size / step) * step
    stated = scenario.model.padded_vocab_size
    if stated is None:
        return padded
    return np.where(stated % rows.tp == 0, float(stated), padded)


def expert_layers(rows: Strategies, scenario: Scenario) -> Floats:
    """Layers whose experts the fullest stage holds: those that predict further tokens are with the head, shape (N,)."""
    split, twice = even_layers(scenario.model.num_layers, rows), copies(rows)
    head = np.where(folded(rows), split.first, split.last)
    return np.maximum(twice * split.high, twice * head + scenario.model.mtp_layers)
