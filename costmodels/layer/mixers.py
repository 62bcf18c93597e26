"""Seconds and bytes of mixers other than attention: projections, kernels of their own between them, exchange of heads.

Tensor ranks split heads and groups; input projections are column-parallel, the output projection row-parallel and
norms are per group, so that nothing is reduced in between. Context ranks exchange tokens for heads in front of the
convolution and heads for tokens behind the norm (Megatron-Core's MambaMixer and MambaContextParallel).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodels.layer.forward_backward import Passes, linear, no_passes, region_tokens, tokens_per_rank
from costmodels.layout.placement import group_of
from costmodels.model.mamba import ScanKernel
from costmodels.model.mixers import Mixer, mixer_of
from costmodels.names import WORD
from costmodels.primitives.collectives import all_to_all_seconds
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Strategies


def mixer_matmuls(strategies: Strategies, scenario: Scenario, name: str) -> Passes:
    """The projections of a mixer; those that tensor ranks do not split run over a rank's own tokens."""
    T, t = tokens_per_rank(strategies, scenario), strategies.tp.astype(np.float64)
    total = no_passes(strategies)
    for p in mixer_of(scenario.model, name).projections:
        if not p.sharded:
            total = total + linear(region_tokens(strategies, scenario), float(p.outputs), float(p.inputs), scenario)
        elif p.rowwise:
            total = total + linear(T, float(p.outputs), p.inputs / t, scenario)
        else:
            total = total + linear(T, p.outputs / t, float(p.inputs), scenario)
    return total


def scan(strategies: Strategies, scenario: Scenario, name: str = "mamba") -> Passes:
    """What a mixer does between its projections, kernel by kernel: its traffic, or its products if those take longer.

    The kernels are those of one library in every framework, so that the machine alone says how fast they multiply.
    """
    share = tokens_per_rank(strategies, scenario) / strategies.tp
    mixer = mixer_of(scenario.model, name)
    turned = share * _transpose_seconds(strategies, scenario, mixer)
    forward, backward = (_per_token(kernels, scenario) for kernels in (mixer.forward, mixer.backward))
    return Passes(share * forward + turned, share * backward + turned)


def _transpose_seconds(strategies: Strategies, scenario: Scenario, mixer: Mixer) -> Floats:
    """Seconds per token to lay the sequences of a micro-batch one after the other for the scan, and back again.

    Megatron-Core has the tokens of several sequences beside each other and copies what comes out of the input
    projection and what goes into the output projection (MambaMixer's ``rearrange(...).contiguous()``); their gradients
    go the same way. A single sequence lies in either order.
    """
    moved = 2.0 * WORD * (mixer.projections[0].outputs + mixer.multiplied)
    ordered = scenario.stack.exchange.batch_first or scenario.stack.sharding.fsdp_stage2
    beside = (strategies.micro_batch_size > 1.0) & (not ordered)
    return np.where(beside, scenario.rates.stream_seconds(moved), 0.0)


def _per_token(kernels: Sequence[ScanKernel], scenario: Scenario) -> float:
    """Seconds per token of kernels that run one after the other."""
    rates, device = scenario.rates, scenario.group.accelerator
    speed = device.kernels.scan.efficiency * device.half_rate * device.clock("bf16")
    times = (k.flops / speed + k.vector / rates.vector_peak for k in kernels)
    return float(sum(np.maximum(rates.stream_seconds(k.traffic), each) for k, each in zip(kernels, times, strict=True)))


def exchange_of_heads(strategies: Strategies, scenario: Scenario, name: str = "mamba") -> Passes:
    """Exposed all-to-alls of context parallelism; groups are copied where there are fewer than context ranks."""
    mixer, stack = mixer_of(scenario.model, name), scenario.stack
    copies = np.maximum(strategies.cp * strategies.tp / mixer.groups, 1.0)
    width = mixer.exchanged + mixer.grouped * copies
    size = WORD * tokens_per_rank(strategies, scenario) * width / strategies.tp
    seconds = all_to_all_seconds(size, group_of(strategies, "cp"), scenario.group.tiers)
    once = np.where(strategies.cp > 1, seconds / stack.calibrated.reached("tensor"), 0.0)
    return Passes(once, once)


def mixer_kept_width(scenario: Scenario, saved: float, name: str) -> float:
    """Bytes per token that a mixer keeps for its backward pass, split over tensor ranks, its input left out.

    What goes into its kernels and what they cannot make again, the input of the output projection (``saved`` bytes
    per value), and what is kept in 32 bits.
    """
    mixer = mixer_of(scenario.model, name)
    return scenario.word * mixer.kept + saved * mixer.multiplied + 4.0 * mixer.kept_32bit
