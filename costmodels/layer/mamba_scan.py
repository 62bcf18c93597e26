"""Seconds and bytes of a Mamba-2 mixer: projections, convolution, chunked scan, gated norm, exchange of heads.

Tensor ranks split heads and groups; the input projection is column-parallel, the output projection row-parallel and
the gated norm is per group, so that nothing is reduced in between. Context ranks exchange tokens for heads in front
of the convolution and heads for tokens behind the norm (Megatron-Core's MambaMixer and MambaContextParallel).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodels.layer.forward_backward import Passes, linear, tokens_per_rank
from costmodels.layout.placement import group_of
from costmodels.model.mamba import ScanKernel, mamba_of, scan_kernels
from costmodels.names import WORD
from costmodels.primitives.collectives import all_to_all_seconds
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Strategies


def mamba_matmuls(strategies: Strategies, scenario: Scenario) -> Passes:
    """The projections around the scan."""
    mamba, h = mamba_of(scenario.model), float(scenario.model.hidden_size)
    T = tokens_per_rank(strategies, scenario)
    return linear(T, mamba.in_width / strategies.tp, h, scenario) + linear(
        T, h, mamba.inner_width / strategies.tp, scenario
    )


def scan(strategies: Strategies, scenario: Scenario) -> Passes:
    """Convolution, chunked scan and gated norm, kernel by kernel: its traffic, or its products if those take longer.

    The kernels are those of one library in every framework, so that the machine alone says how fast they multiply.
    """
    share = tokens_per_rank(strategies, scenario) / strategies.tp
    forward, backward = scan_kernels(scenario.model)
    turned = share * _transpose_seconds(strategies, scenario)
    return Passes(share * _per_token(forward, scenario) + turned, share * _per_token(backward, scenario) + turned)


def _transpose_seconds(strategies: Strategies, scenario: Scenario) -> Floats:
    """Seconds per token to lay the sequences of a micro-batch one after the other for the scan, and back again.

    Megatron-Core has the tokens of several sequences beside each other and copies what comes out of the input
    projection and what goes into the output projection (MambaMixer's ``rearrange(...).contiguous()``); their gradients
    go the same way. A single sequence lies in either order.
    """
    mamba = mamba_of(scenario.model)
    moved = 2.0 * WORD * (mamba.in_width + mamba.inner_width)
    ordered = scenario.stack.exchange.batch_first or scenario.stack.sharding.fsdp_stage2
    beside = (strategies.micro_batch_size > 1.0) & (not ordered)
    return np.where(beside, scenario.rates.stream_seconds(moved), 0.0)


def _per_token(kernels: Sequence[ScanKernel], scenario: Scenario) -> float:
    """Seconds per token of kernels that run one after the other."""
    rates, device = scenario.rates, scenario.group.accelerator
    speed = device.kernels.scan.efficiency * device.half_rate * device.clock("bf16")
    return float(sum(np.maximum(rates.stream_seconds(k.traffic), k.flops / speed) for k in kernels))


def exchange_of_heads(strategies: Strategies, scenario: Scenario) -> Passes:
    """Exposed all-to-alls of context parallelism; groups are copied where there are fewer than context ranks."""
    mamba, stack = mamba_of(scenario.model), scenario.stack
    copies = np.maximum(strategies.cp * strategies.tp / mamba.num_groups, 1.0)
    width = 3.0 * mamba.inner_width + mamba.num_heads + 2.0 * mamba.group_width * copies
    size = WORD * tokens_per_rank(strategies, scenario) * width / strategies.tp
    seconds = all_to_all_seconds(size, group_of(strategies, "cp"), scenario.group.tiers)
    once = np.where(strategies.cp > 1, seconds / stack.calibrated.communication_efficiency, 0.0)
    return Passes(once, once)


def mamba_kept_width(scenario: Scenario, saved: float) -> float:
    """Bytes per token that a mixer keeps for its backward pass, split over tensor ranks, its input left out.

    The output of the input projection and that of the scan, from which all between is computed again, the input of
    the output projection (``saved`` bytes per value) and the norm's 32-bit scale per head.
    """
    mamba = mamba_of(scenario.model)
    return scenario.word * (mamba.in_width + mamba.inner_width) + saved * mamba.inner_width + 4.0 * mamba.num_heads
