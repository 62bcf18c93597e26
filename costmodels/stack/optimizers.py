"""What an optimizer keeps per parameter, what its step moves, and what it multiplies.

A stack says what Adam keeps and moves (``optimizer_bytes``, ``optimizer_traffic``: master weights and two fp32
moments); here stands how other optimizers differ from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from costmodels.layer.experts import expert_shards
from costmodels.layout.pieces import copies
from costmodels.layout.placement import sharding_groups
from costmodels.layout.sizes import layer_parameters_per_rank
from costmodels.layout.split import even_layers
from costmodels.model.model import Model
from costmodels.model.parameters import attention_projections
from costmodels.primitives.collectives import gather_seconds
from costmodels.primitives.kernels import WORD
from costmodels.scenario import Scenario
from costmodels.stack.stack import Stack
from costmodels.strategy import Floats, Strategies

OptimizerName = Literal["adam", "adam-bf16", "adam-8bit", "lamb", "sgd", "adafactor", "muon"]

ADAM_MOMENTS = 8.0
"""Bytes per parameter of Adam's two moments in fp32."""
BLOCK_SCALES = 2.0 * 4.0 / 256.0
"""Two fp32 scales per block of 256 values [Dettmers21]."""
NEWTON_SCHULZ = 5
"""Iterations that orthogonalise Muon's momentum [Moonlight25]."""


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Per parameter: bytes kept beside the master weight, bytes moved beyond reading and writing these."""

    moments: float
    edge_moments: float
    """The same of embedding and head, which are not orthogonalised."""
    extra_traffic: float = 0.0


OPTIMIZERS: dict[str, Optimizer] = {
    "adam": Optimizer(ADAM_MOMENTS, ADAM_MOMENTS),
    "adam-bf16": Optimizer(4.0, 4.0),
    "adam-8bit": Optimizer(2.0 + BLOCK_SCALES, 2.0 + BLOCK_SCALES),
    # Two passes: the update is written, read for its norm beside the weight's, and read again to be applied [You20].
    "lamb": Optimizer(ADAM_MOMENTS, ADAM_MOMENTS, extra_traffic=20.0),
    "sgd": Optimizer(4.0, 4.0),
    # Factors of rows and columns are too small to count; the gradient is read for them and to be clipped [Shazeer18].
    "adafactor": Optimizer(0.0, 0.0, extra_traffic=8.0),
    # The momentum is written for the orthogonalisation in 16 bits, and its result read [Moonlight25].
    "muon": Optimizer(4.0, ADAM_MOMENTS, extra_traffic=2.0 * WORD),
}


ONE_PASS = 38.0
"""Bytes per parameter that a step in one kernel moves at most; PyTorch's multi-tensor AdamW moves 92 of fp32 states."""


def root_bytes(stack: Stack) -> float:
    """Bytes per parameter of the second moments' roots, which a step that is no single kernel writes out beside them.

    ``_foreach_sqrt`` in torch/optim/adamw.py, of all parameters of a rank at once.
    """
    return optimizer_of(stack).moments / 2.0 if stack.states.optimizer_traffic > ONE_PASS else 0.0


def optimizer_of(stack: Stack) -> Optimizer:
    """What the stack trains with."""
    return OPTIMIZERS[stack.switches.optimizer]


def kept_bytes(stack: Stack, *, fp32: bool = False) -> float:
    """Bytes per parameter of master weights and moments; weights kept in fp32 are their own master."""
    narrow = 2.0 if stack.switches.main_params == "fp16" else 0.0
    masters = 0.0 if fp32 else stack.states.optimizer_bytes - ADAM_MOMENTS - narrow
    return masters + optimizer_of(stack).moments


def step_traffic_bytes(stack: Stack) -> float:
    """Bytes per parameter that clip, step and cast move: what is kept is read and written."""
    chosen = optimizer_of(stack)
    kept = chosen.moments - ADAM_MOMENTS - (2.0 if stack.switches.main_params == "fp16" else 0.0)
    return stack.states.optimizer_traffic + 2.0 * kept + chosen.extra_traffic


def newton_schulz_flops(rows: float, columns: float) -> float:
    """FLOP that orthogonalise one matrix: per iteration X X^T, its square, and the product with X [Moonlight25].

    With n the shorter side and m the longer: 2 n^2 m + 2 n^3 + 2 n^2 m.
    """
    n, m = min(rows, columns), max(rows, columns)
    return NEWTON_SCHULZ * (4.0 * n * n * m + 2.0 * n**3)


def layer_matrices(model: Model) -> tuple[tuple[float, float, float], ...]:
    """(rows, columns, how many) of an average layer's matrices, routed experts left out; gates apart."""
    share, h = model.num_moe_layers / model.num_layers, float(model.hidden_size)
    attending, branched = model.num_attention_layers / model.num_layers, model.num_dense_layers / model.num_layers
    mixers = tuple((float(p.outputs), float(p.inputs), attending) for p in attention_projections(model))
    if model.mamba is not None:
        here = model.layer_pattern.count("M") / model.num_layers
        mixers += ((float(model.mamba.in_width), h, here), (h, float(model.mamba.inner_width), here))
    count = model.ffn_branches + 1.0
    dense = ((float(model.ffn_hidden_size), h, branched * count),)
    if model.moe is None:
        return mixers + dense
    shared = ((float(model.moe.shared_expert_ffn_hidden_size), h, share * count),)
    return mixers + dense + (shared if model.moe.num_shared_experts else ())


def muon_seconds(rows: Strategies, scenario: Scenario) -> Floats:
    """Seconds per iteration to orthogonalise the momentum of a stage's matrices, (N,).

    Distributed as in [Moonlight25]: the momentum is gathered over the ranks that share the states, in 16 bits, and
    every rank multiplies the matrices that its part lies in, one more than its share. Tensor ranks share the products.
    """
    model, rates = scenario.model, scenario.rates
    layers = copies(rows) * even_layers(model.num_layers, rows).high
    shares = rows.sharding_degree * _copies_sharing(rows)
    matrices = layer_matrices(model)
    layer = sum(count * newton_schulz_flops(n, m) for n, m, count in matrices)
    largest = max(newton_schulz_flops(n, m) for n, m, count in matrices if count)
    work = layers * layer / shares + np.where(shares > 1, largest, 0.0)
    work = np.minimum(work, layers * layer) / rows.tp + _expert_work(rows, scenario, layers)
    near = sharding_groups(rows)[0]
    size = WORD * layers * layer_parameters_per_rank(rows, scenario)
    gathered = np.where(near.size > 1, gather_seconds(size, near, scenario.group.tiers), 0.0)
    pace = scenario.stack.calibrated.communication_efficiency
    return work / (rates.head.efficiency * rates.head.sustained * rates.head_peak) + gathered / pace


def _expert_work(rows: Strategies, scenario: Scenario, layers: Floats) -> Floats:
    model, moe = scenario.model, scenario.model.moe
    if moe is None:
        return np.zeros(len(rows))
    width = moe.expert_ffn_hidden_size / rows.etp
    n, m = np.minimum(width, model.expert_hidden_size), np.maximum(width, model.expert_hidden_size)
    one = NEWTON_SCHULZ * (4.0 * n * n * m + 2.0 * n**3) * (model.ffn_branches + 1.0)
    held = moe.num_experts / rows.ep * model.num_moe_layers / model.num_layers
    return layers * held * one / (expert_shards(rows) * _copies_sharing(rows))


def _copies_sharing(rows: Strategies) -> Floats:
    """Copies of the model in one pipeline, which share what is sharded, (N,)."""
    return np.where(rows.zero_stage > 0, copies(rows), 1.0)
