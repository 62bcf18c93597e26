"""Weights, gradients and optimizer states: bytes per parameter of one rank."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from costmodels.arrays import Columns
from costmodels.layer.adapters import trained_experts, trained_share, weights_word
from costmodels.layout.stage_contents import copies
from costmodels.memory.autocast import is_autocast
from costmodels.names import SHARDED_GRADIENTS, SHARDED_PARAMETERS, WORD
from costmodels.primitives.sizes import sharded_bytes
from costmodels.scenario import Scenario
from costmodels.stack.optimizers import kept_bytes, optimizer_of
from costmodels.step.offload import EVERYTHING, share_offloaded
from costmodels.step.sharded import gather_word, stays_whole
from costmodels.strategy import Bools, Floats, Ints, Strategies


@dataclass(frozen=True, slots=True)
class StateBytes(Columns):
    """Bytes per parameter of one rank, arrays (N,)."""

    weights: Floats
    gradients: Floats
    optimizer: Floats
    total: Floats = field(init=False)
    """All three."""

    def __post_init__(self) -> None:
        """Add up."""
        object.__setattr__(self, "total", self.weights + self.gradients + self.optimizer)


def state_bytes(strategies: Strategies, scenario: Scenario, shards: Ints | None = None) -> StateBytes:
    """Bytes per parameter whose states the sharding degree's ranks share, or those of experts ``shards``, arrays (N,).

    ZeRO 1 shards the optimizer, 2 the gradients too, 3 the weights too [Rajbhandari20], and a pipeline may then
    hold them whole. Where a pipeline holds every parameter twice, the two copies are replicas of each other and share
    what is sharded. Frozen weights come with adapters and their states, by ``trained_share``.
    """
    stack, z, fp32 = scenario.stack, strategies.zero_stage, scenario.precision == "fp32"
    shard = (strategies.sharding_degree if shards is None else shards) * copies(strategies)
    kept = kept_bytes(stack, fp32=fp32)
    optimizer = np.where(_own_masters(strategies, scenario), _moments_alone(scenario), kept)
    buffer = float(stack.gradients.gradient_bytes + stack.gradients.micro_batch_gradient_bytes)
    buckets = np.where((z == 0) & (strategies.dp > 1), stack.gradients.ddp_bucket_bytes, 0.0)
    gradient = buffer + stack.gradients.kept_until_next_step * (WORD + 4.0)
    if fp32:
        gradient = max(buffer, _words(scenario, ends=False)[0])
    buffered = np.where(is_autocast(strategies, scenario), max(gradient, 4.0), gradient)  # as wide as its weight
    whole = stays_whole(strategies, scenario)
    scattered = ~whole & (z >= SHARDED_GRADIENTS) & stack.sharding.scatters_each_micro_batch
    trained = trained_share(scenario) if shards is None else trained_experts(scenario)
    stays = 1.0 - share_offloaded(strategies, scenario)
    followed = np.where(scattered & stack.offload.gradients_offloaded, stays, 1.0)
    gradients = sharded_bytes(buffered, shard, scattered) + np.where(scattered, 0.0, buckets)
    adapting, _sharded = _words(scenario, ends=True)
    return StateBytes(
        weights=_weight_bytes(strategies, scenario, shard, ends=False),
        gradients=trained * _on_device(strategies) * followed * gradients,
        optimizer=trained * (sharded_bytes(optimizer, shard, z >= 1) * stays + scenario.frozen * adapting),
    )


def weight_bytes_of_ends(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes per parameter of the weights of embedding and head, which stay as wide as others, (N,)."""
    return _weight_bytes(strategies, scenario, strategies.sharding_degree * copies(strategies), ends=True)


def _weight_bytes(strategies: Strategies, scenario: Scenario, shard: Ints | Floats, *, ends: bool) -> Floats:
    """Bytes per parameter of weights, (N,), which stage 3 shards, and a pipeline may hold whole.

    Stage 2 of what shards fully does so too, and leaves them gathered between the passes (SHARD_GRAD_OP,
    ``reshard_after_forward=False`` [FSDP1] [FSDP2]).
    """
    z, (weights, sharded) = strategies.zero_stage, _words(scenario, ends=ends)
    wide = ends or scenario.precision == "fp32"
    between = scenario.word if wide else weights_word(scenario, gather_word(scenario))
    gathered = (z == SHARDED_GRADIENTS) & scenario.stack.sharding.fsdp_stage2
    third = np.where(stays_whole(strategies, scenario), scenario.word, 0.0)
    held = np.where(z >= SHARDED_PARAMETERS, third, np.where(gathered, between, weights))
    own = np.where(_own_masters(strategies, scenario), sharded / shard, 0.0)
    return _on_device(strategies) * (own + held) + _reference_bytes(strategies, scenario, shard)


def _words(scenario: Scenario, *, ends: bool) -> tuple[float, float]:
    """Bytes of one weight as layers multiply it, or embedding and head, and of a sharded one."""
    stack, fp32 = scenario.stack, scenario.precision == "fp32"
    weights, sharded = 4.0 if fp32 else WORD, 4.0 if fp32 else float(stack.states.weight_bytes)
    if scenario.recipe.reduced:
        narrow = stack.switches.fp8_param_gather and stack.states.weight_bytes == WORD
        # a copy along columns and one along rows [TE]: where products take both inputs along the depth, or where
        # both have scales of their own, so that what is gathered has 16 bits
        both = 2.0 if scenario.along_depth or scenario.recipe.gather_word >= WORD else 1.0
        more = scenario.recipe.word * both - WORD if narrow else stack.states.reduced_weight_bytes
        weights, sharded = weights + more, sharded + more
    return (weights, sharded) if ends else (weights_word(scenario, weights), weights_word(scenario, sharded))


def _moments_alone(scenario: Scenario) -> float:
    """Bytes per parameter of the optimizer's states where sharded weights in fp32 are their own master."""
    stack = scenario.stack
    kept = kept_bytes(stack, fp32=scenario.precision == "fp32")
    return optimizer_of(stack).moments if stack.states.weight_bytes > WORD else kept


def _own_masters(strategies: Strategies, scenario: Scenario) -> Bools:
    """Where sharded weights are apart from those that are multiplied, (N,)."""
    stack = scenario.stack
    fully = stack.sharding.fsdp_stage2 and _moments_alone(scenario) <= optimizer_of(stack).moments
    return strategies.zero_stage >= (SHARDED_GRADIENTS if fully else SHARDED_PARAMETERS)


def _on_device(strategies: Strategies) -> Floats:
    """Share of weights and gradients that are on the device, (N,)."""
    return np.where(strategies.offload == EVERYTHING, 0.0, 1.0)


def _reference_bytes(strategies: Strategies, scenario: Scenario, shard: Ints | Floats) -> Floats:
    """Bytes per parameter of a reference model's own copy, (N,): sharded where the trained weights are [TRL]."""
    word = scenario.word if scenario.stack.switches.reference_model == "copy" else 0.0
    return word / np.where(strategies.zero_stage >= SHARDED_PARAMETERS, shard, 1.0)
