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
from costmodels.strategy import Floats, Ints, Strategies


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


def state_bytes(
    strategies: Strategies, scenario: Scenario, shards: Ints | None = None, *, ends: bool = False
) -> StateBytes:
    """Bytes per parameter whose states the sharding degree's ranks share, or those of experts ``shards``, arrays (N,).

    ZeRO 1 shards the optimizer, 2 the gradients too, 3 the weights too [Rajbhandari20], and a pipeline may then
    hold them whole; so does stage 2 of what shards fully, which leaves them gathered between the passes
    (SHARD_GRAD_OP, ``reshard_after_forward=False`` [FSDP1] [FSDP2]). Where a pipeline holds every parameter twice, the
    two copies are replicas of each other and share what is sharded. Frozen weights come with adapters and their
    states, by ``trained_share``; ``ends`` are embedding and head, which stay as wide as others.
    """
    stack, z = scenario.stack, strategies.zero_stage
    shard = (strategies.sharding_degree if shards is None else shards) * copies(strategies)
    fp32 = scenario.precision == "fp32"
    weights, sharded = 4.0 if fp32 else WORD, 4.0 if fp32 else float(stack.states.weight_bytes)
    if scenario.recipe.reduced:
        narrow = stack.switches.fp8_param_gather and stack.states.weight_bytes == WORD
        # a copy along columns and one along rows [TE]: where products take both inputs along the depth, or where
        # both have scales of their own, so that what is gathered has 16 bits
        both = 2.0 if scenario.along_depth or scenario.recipe.gather_word >= WORD else 1.0
        more = scenario.recipe.word * both - WORD if narrow else stack.states.reduced_weight_bytes
        weights, sharded = weights + more, sharded + more
    adapting = weights
    if not ends:
        weights, sharded = weights_word(scenario, weights), weights_word(scenario, sharded)
    kept = kept_bytes(stack, fp32=fp32)
    alone = optimizer_of(stack).moments if stack.states.weight_bytes > WORD else kept
    gathered = (z == SHARDED_GRADIENTS) & stack.sharding.fsdp_stage2
    own = z >= np.where(
        stack.sharding.fsdp_stage2 and alone <= optimizer_of(stack).moments, SHARDED_GRADIENTS, SHARDED_PARAMETERS
    )
    optimizer = np.where(own, alone, kept)  # sharded weights in fp32 are their own master
    buffer = float(stack.gradients.gradient_bytes + stack.gradients.micro_batch_gradient_bytes)
    buckets = np.where((z == 0) & (strategies.dp > 1), stack.gradients.ddp_bucket_bytes, 0.0)
    gradient = max(buffer, weights) if fp32 else buffer + stack.gradients.kept_until_next_step * (WORD + 4.0)
    buffered = np.where(is_autocast(strategies, scenario), max(gradient, 4.0), gradient)  # as wide as its weight
    whole = stays_whole(strategies, scenario)
    between = scenario.word if ends or fp32 else weights_word(scenario, gather_word(scenario))
    held = np.where(z >= SHARDED_PARAMETERS, np.where(whole, scenario.word, 0.0), np.where(gathered, between, weights))
    scattered = ~whole & (z >= SHARDED_GRADIENTS) & stack.sharding.scatters_each_micro_batch
    left = np.where(strategies.offload == EVERYTHING, 0.0, 1.0)
    trained = trained_share(scenario) if shards is None else trained_experts(scenario)
    stays = 1.0 - share_offloaded(strategies, scenario)
    followed = np.where(scattered & stack.offload.gradients_offloaded, stays, 1.0)
    gradients = sharded_bytes(buffered, shard, scattered) + np.where(scattered, 0.0, buckets)
    copied = _reference_bytes(strategies, scenario, shard)
    return StateBytes(
        weights=left * (np.where(own, sharded / shard, 0.0) + held) + copied,
        gradients=trained * left * followed * gradients,
        optimizer=trained * (sharded_bytes(optimizer, shard, z >= 1) * stays + scenario.frozen * adapting),
    )


def _reference_bytes(strategies: Strategies, scenario: Scenario, shard: Ints | Floats) -> Floats:
    """Bytes per parameter of a reference model's own copy, (N,): sharded where the trained weights are [TRL]."""
    word = scenario.word if scenario.stack.switches.reference_model == "copy" else 0.0
    return word / np.where(strategies.zero_stage >= SHARDED_PARAMETERS, shard, 1.0)
