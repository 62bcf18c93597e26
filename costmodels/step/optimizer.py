"""Seconds of the optimizer's step: what it moves through memory, and what Muon multiplies."""

from __future__ import annotations

from collections import Counter

import numpy as np

from costmodels.layer.adapters import trained_experts, trained_share
from costmodels.layout.parameters_per_rank import heaviest_experts, heaviest_stage_parameters, layer_parameters_per_rank
from costmodels.layout.placement import expert_shards, sharding_groups
from costmodels.layout.split import even_layers
from costmodels.layout.stage_contents import copies
from costmodels.model.layer_kinds import layer_kinds
from costmodels.model.mixers import mixer_of
from costmodels.model.model import Model
from costmodels.model.parameters import attention_projections
from costmodels.names import SHARDED_GRADIENTS, SHARDED_PARAMETERS, WORD
from costmodels.primitives.collectives import gather_seconds
from costmodels.primitives.kernels import newton_schulz_flops
from costmodels.primitives.sizes import optimizer_traffic
from costmodels.scenario import Scenario
from costmodels.stack.optimizers import step_traffic_bytes
from costmodels.step.offload import share_offloaded, updated_parameters
from costmodels.step.sharded import gather_word, is_requantised
from costmodels.step.traffic import alike_steps
from costmodels.strategy import Floats, Strategies


def layer_matrices(model: Model) -> tuple[tuple[float, float, float], ...]:
    """(rows, columns, how many) of an average layer's matrices, routed experts left out; gates apart."""
    share, h = model.num_moe_layers / model.num_layers, float(model.hidden_size)
    attending, branched = model.num_attention_layers / model.num_layers, model.num_dense_layers / model.num_layers
    mixers = tuple((float(p.outputs), float(p.inputs), attending) for p in attention_projections(model))
    for name, there in Counter(kind.other_mixer for kind in layer_kinds(model) if kind.other_mixer).items():
        here = there / model.num_layers
        mixers += tuple((float(p.outputs), float(p.inputs), here) for p in mixer_of(model, name).projections)
    count = model.ffn_branches + 1.0
    dense = ((float(model.ffn_hidden_size), h, branched * count),)
    if model.moe is None:
        return mixers + dense
    shared = ((float(model.moe.shared_expert_ffn_hidden_size), h, share * count),)
    return mixers + dense + (shared if model.moe.num_shared_experts else ())


def muon_seconds(strategies: Strategies, scenario: Scenario) -> Floats:
    """Seconds per iteration to orthogonalise the momentum of a stage's matrices, (N,).

    Distributed as in [Moonlight25]: the momentum is gathered over the ranks that share the states, in 16 bits, and
    every rank multiplies the matrices that its part lies in, one more than its share. Tensor ranks share the products.
    """
    model, rates = scenario.model, scenario.rates
    layers = copies(strategies) * even_layers(model.num_layers, strategies).high
    shares = strategies.sharding_degree * _copies_sharing(strategies)
    matrices = layer_matrices(model)
    layer = sum(count * newton_schulz_flops(n, m) for n, m, count in matrices)
    largest = max(newton_schulz_flops(n, m) for n, m, count in matrices if count)
    work = layers * layer / shares + np.where(shares > 1, largest, 0.0)
    work = np.minimum(work, layers * layer) / strategies.tp + _expert_work(strategies, scenario, layers)
    near = sharding_groups(strategies)[0]
    size = WORD * layers * layer_parameters_per_rank(strategies, scenario)
    gathered = gather_seconds(size, near, scenario.group.tiers)
    pace = scenario.stack.calibrated.reached("data")
    return work / (rates.head.efficiency * rates.head.sustained * rates.head_peak) + gathered / pace


def _expert_work(strategies: Strategies, scenario: Scenario, layers: Floats) -> Floats:
    model, moe = scenario.model, scenario.model.moe
    if moe is None:
        return np.zeros(len(strategies))
    width = moe.expert_ffn_hidden_size / strategies.etp
    one = newton_schulz_flops(width, model.expert_hidden_size) * (model.ffn_branches + 1.0)
    held = moe.num_experts / strategies.ep * model.num_moe_layers / model.num_layers
    return layers * held * one / (expert_shards(strategies) * _copies_sharing(strategies))


def _copies_sharing(strategies: Strategies) -> Floats:
    """Copies of the model in one pipeline, which share what is sharded, (N,)."""
    return np.where(strategies.zero_stage > 0, copies(strategies), 1.0)


def optimizer_seconds(strategies: Strategies, scenario: Scenario) -> Floats:
    """Clip, step and cast of the parameters a rank updates, and zeroing of the gradients that it keeps, (N,).

    Under an 8-bit recipe the weights that are multiplied are quantised too, once an iteration where they are kept; Muon
    orthogonalises.
    """
    few, inverse = alike_steps(strategies)
    return _optimizer_seconds(few, scenario)[inverse]


def _optimizer_seconds(strategies: Strategies, scenario: Scenario) -> Floats:
    stack = scenario.stack
    size = heaviest_stage_parameters(strategies, scenario) * trained_share(scenario)
    size = size + heaviest_experts(strategies, scenario) * trained_experts(scenario)
    mine = updated_parameters(strategies, scenario) * (1.0 - share_offloaded(strategies, scenario))
    once = 1.0 - is_requantised(strategies, scenario)
    changed = 0.0 if scenario.frozen else scenario.recipe.step_traffic
    quantised = once * (mine if gather_word(scenario) < WORD else size) * changed
    scattered = (strategies.zero_stage >= SHARDED_PARAMETERS) | (
        (strategies.zero_stage >= SHARDED_GRADIENTS) & (strategies.pp == 1)
    )
    zeroed = np.where(scattered & stack.sharding.scatters_each_micro_batch, mine, size)
    known = {"step": step_traffic_bytes(stack), "gradient": stack.gradients.gradient_bytes}
    traffic = optimizer_traffic(updated=mine, held=zeroed, **known) + quantised
    seconds = scenario.rates.stream_seconds(traffic)
    seconds = seconds + muon_seconds(strategies, scenario) if stack.switches.optimizer == "muon" else seconds
    return stack.calibrated.optimizer_time * seconds
