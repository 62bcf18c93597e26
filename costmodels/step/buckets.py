"""How many collectives carry the gradients of an iteration, and what of them nothing can hide.

Megatron-Core fills buckets with parameters in the order in which their gradients appear; a bucket travels when its
last gradient is there, so that the last one, with the embedding, has no backward pass left to hide behind. Parameters
come back bucket by bucket in the opposite order. Every bucket goes round the ring by itself: with many ranks it is as
long on its way as it takes to send. With a pipeline only the first stage has buckets, while the others reduce whole
chunks beside its last passes; that is left at one collective [Megatron-Core, distributed_data_parallel.py].
"""

from __future__ import annotations

import numpy as np

from costmodels.layout.parameters_per_rank import embedding_parameters_per_rank
from costmodels.layout.placement import group_of
from costmodels.layout.split import even_layers
from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Floats, Strategies


def collectives(rows: Strategies, scenario: Scenario, size: Floats) -> Floats:
    """Collectives in which the gradients of ``size`` parameters travel once an iteration, shape (N,)."""
    layers = even_layers(scenario.model.num_layers, rows).high
    few = np.maximum(scenario.stack.sharding.collectives_per_layer * layers, 1.0)
    return np.where(_filled(rows, scenario), np.maximum(np.ceil(size / _bucket(rows, scenario)), 1.0), few)


def unhidden_share(rows: Strategies, scenario: Scenario, size: Floats) -> Floats:
    """Share of ``size`` parameters whose gradients appear, and which are needed, with nothing left to compute, (N,).

    A parameter is never cut in two, so that the last bucket holds all of the embedding.
    """
    last = np.maximum(_bucket(rows, scenario), embedding_parameters_per_rank(rows, scenario))
    share = np.minimum(last / np.maximum(size, 1.0), 1.0)
    return np.where(_filled(rows, scenario), share, scenario.stack.sharding.bucket_exposed)


def _filled(rows: Strategies, scenario: Scenario) -> Bools:
    return (rows.pp == 1) & (scenario.stack.switches.bucket_size > 0)


def _bucket(rows: Strategies, scenario: Scenario) -> Floats:
    """Parameters of one bucket, more where there are more ranks, so that pieces of a ring do not become too small."""
    ranks = group_of(rows, "cp", "dp").size
    return np.maximum(max(scenario.stack.switches.bucket_size, 1.0), scenario.stack.sharding.bucket_per_rank * ranks)
