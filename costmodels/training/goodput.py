"""Failures, checkpoints and restarts: the share of wall time that trains.

[Daly06]: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006.
[Jiang24]: Z. Jiang et al., "MegaScale", NSDI 2024, arXiv 2402.15627.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from costmodels.layer.adapters import trained_experts, trained_parameters, trained_share
from costmodels.layout.parameters_per_rank import heaviest_experts, heaviest_stage_parameters
from costmodels.layout.placement import expert_shards
from costmodels.scenario import Scenario
from costmodels.stability import SPARE_RISK, STARTUP, STARTUP_GPUS, Stability, Startup
from costmodels.stack.optimizers import kept_bytes
from costmodels.strategy import Floats, Strategies
from hardware.records import NodeGroup
from hardware.units import PerSecond, Seconds


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What stability costs one strategy."""

    mean_time_between_failures: float
    """Seconds; infinite without failures."""
    checkpoint_bytes: float
    checkpoint_stall: float
    interval: float
    """Seconds of training between checkpoints."""
    downtime: float
    """Seconds from an interruption to the first new iteration."""
    startup: float
    """Seconds of the downtime in which process groups form."""
    spare_nodes: int
    rented: float
    """Devices of the job and of its spare nodes, which are paid for all the time, over the job's."""
    checkpoints: float
    """Share of the wall time that goes to checkpoints; the shares and ``effective`` add up to 1."""
    failures: float
    """To lost work and downtime."""
    repairs: float
    """To waiting for a node where all spares are in repair."""
    stragglers: float
    effective: float


def failure_rate(group: NodeGroup, gpus: int, stability: Stability) -> float:
    """Interruptions of the whole job per second."""
    each = stability.failure if stability.failure is not None else group.accelerator.failure
    return gpus * (each or 0.0)


def spare_nodes(scenario: Scenario, stability: Stability) -> int:
    """Nodes that replace broken ones: given, or enough for all but `SPARE_RISK` of the time."""
    return _enough(_in_repair(scenario, stability)) if stability.spare_nodes is None else stability.spare_nodes


def startup_seconds(gpus: int, kind: Startup) -> float:
    """Seconds until the process groups of a job exist.

        t = t0 (n / n0)^k

    Args:
        gpus: n, of the job.
        kind: how groups are formed: t0 and k of ``STARTUP``, for n0 GPUs.

    Returns:
        Seconds.

    Source:
        [Jiang24], section 3.5.

    >>> startup_seconds(12288, "ordered"), startup_seconds(2048, "tcpstore")
    (30.0, 1047.0)
    """
    seconds, power = STARTUP[kind]
    return seconds * (gpus / STARTUP_GPUS) ** power


def checkpoint_bytes(scenario: Scenario) -> float:
    """Weights in 16 bits, master weights and the optimizer's moments of the whole model."""
    return trained_parameters(scenario) * (2.0 + kept_bytes(scenario.stack))


def stall_seconds(strategies: Strategies, scenario: Scenario, stability: Stability) -> Floats:
    """Seconds that training stands still for a checkpoint, shape (N,).

    Writing straight to storage all of it; into host memory what the fullest rank holds: its weights, and its shard of
    the optimizer.
    """
    if stability.checkpoint == "sync":
        return np.full(len(strategies), checkpoint_bytes(scenario) / storage_rate(scenario, stability))
    dense = heaviest_stage_parameters(strategies, scenario) * trained_share(scenario)
    experts = heaviest_experts(strategies, scenario) * trained_experts(scenario)
    sharded = np.where(strategies.zero_stage >= 1, strategies.sharding_degree, 1.0)
    among = np.where(strategies.zero_stage >= 1, expert_shards(strategies), 1.0)
    kept = kept_bytes(scenario.stack)
    held = dense * (2.0 + kept / sharded) + experts * (2.0 + kept / among)
    return held / _host_link(scenario.group)


def _host_link(group: NodeGroup) -> float:
    return group.host_link or 16e9  # PCIe 3 x16, where a cluster does not say better


def storage_rate(scenario: Scenario, stability: Stability) -> float:
    """Bytes per second that the storage takes and gives."""
    nodes = max(scenario.gpus / scenario.group.gpus_per_node, 1.0)
    return stability.storage or 1e9 * nodes


def best_interval(stall: Floats, rate: float) -> Floats:
    """Best seconds of work between checkpoints where interruptions strike at random.

        tau = (1 + W(-exp(-1 - lambda delta))) / lambda,  near  sqrt(2 delta / lambda)  for short stalls

    The root of the derivative of ``expected_wall`` over the work; W is Lambert's function on its upper branch.

    Args:
        stall: delta, seconds that training stands still for a checkpoint, shape (N,).
        rate: lambda, interruptions per second.

    Returns:
        Seconds, shape (N,).

    Source:
        [Daly06], section 3; the approximation is of J. Young, CACM 17(9), 1974.

    >>> float(best_interval(np.array(60.0), 1 / 86400.0).round(1)), float(np.sqrt(2 * 60.0 * 86400.0).round(1))
    (3180.1, 3219.9)
    """
    from scipy.special import lambertw

    # at the branch point itself, a stall of nothing, rounding would leave the function's domain
    argument = np.maximum(-np.exp(-1.0 - rate * stall), (1e-15 - 1.0) / math.e)
    return np.asarray((1.0 + lambertw(argument).real) / rate)


def expected_wall(work: Floats, *, stall: Floats, downtime: Seconds, rate: PerSecond) -> Floats:
    """Seconds that a stretch of work and its checkpoint take on average where interruptions strike at random.

        T = exp(lambda R) (exp(lambda (tau + delta)) - 1) / lambda

    Interruptions strike in the downtime too.

    Args:
        work: tau, seconds of training between checkpoints, shape (N,).
        stall: delta, seconds of a checkpoint, shape (N,).
        downtime: R, seconds from an interruption to the first new iteration.
        rate: lambda, interruptions per second, more than 0.

    Returns:
        Seconds, shape (N,).

    Source:
        [Daly06], section 3.

    >>> float(expected_wall(np.array(3600.0), stall=np.array(60.0), downtime=900.0, rate=1 / 86400.0).round(1))
    3777.8
    """
    return np.asarray(np.exp(rate * downtime) * np.expm1(rate * (work + stall)) / rate)


def effective_share(*, failures: float, lost: Seconds, wall: Seconds) -> float:
    """Share of a wall time that trained.

        1 - n t / T

    Args:
        failures: n, interruptions.
        lost: t, seconds that each of them costs.
        wall: T, seconds of the whole run.

    Returns:
        A share.

    Source:
        [Jiang24], section 6.3.

    >>> effective_share(failures=100, lost=900.0, wall=1.8e6)
    0.95
    """
    return 1.0 - failures * lost / wall


def wall_stretch(strategies: Strategies, scenario: Scenario, stability: Stability) -> Floats:
    """Wall time over what it would be with checkpoints that stall nothing, shape (N,), at least 1.

    Other losses are the same for all strategies, and left out; so is a stall that is the same for all.
    """
    if stability.checkpoint == "sync":
        return np.ones(len(strategies))
    stall = stall_seconds(strategies, scenario, stability)
    free = _wall_per_work(np.zeros(1), scenario, stability)
    return np.asarray(np.maximum(_wall_per_work(stall, scenario, stability) / free, 1.0))


def upkeep(strategy: Strategies, scenario: Scenario, stability: Stability) -> Upkeep:
    """Where the wall time of one strategy goes."""
    stall = stall_seconds(strategy, scenario, stability)
    rate = failure_rate(scenario.group, scenario.gpus, stability)
    work, down = _interval(stall, scenario, stability), _downtime(scenario, stability)
    wall = float(_wall_per_work(stall, scenario, stability)[0])
    nodes = math.ceil(scenario.gpus / scenario.group.gpus_per_node)
    spares = spare_nodes(scenario, stability)
    waiting = 0.0 if stability.spare_nodes is None else _more_than(spares, _in_repair(scenario, stability))
    slow = stability.straggler_slowdown * (1.0 - (1.0 - stability.straggler_nodes) ** nodes)
    running = 1.0 - waiting
    trains, stalls = running / wall, float(stall[0] / work[0])
    return Upkeep(
        mean_time_between_failures=1.0 / rate if rate else math.inf,
        checkpoint_bytes=checkpoint_bytes(scenario),
        checkpoint_stall=float(stall[0]),
        interval=float(work[0]),
        downtime=down,
        startup=startup_seconds(scenario.gpus, stability.startup),
        spare_nodes=spares,
        rented=1.0 + spares * scenario.group.gpus_per_node / scenario.gpus,
        checkpoints=trains * stalls,
        failures=running - trains * (1.0 + stalls),
        repairs=waiting,
        stragglers=trains * slow / (1.0 + slow),
        effective=trains / (1.0 + slow),
    )


def _downtime(scenario: Scenario, stability: Stability) -> float:
    """Detection, restart, process groups, and reading the checkpoint once, which is then handed on over the network."""
    read = checkpoint_bytes(scenario) / storage_rate(scenario, stability)
    return stability.detect + stability.restart + startup_seconds(scenario.gpus, stability.startup) + read


def move_seconds(scenario: Scenario, stability: Stability) -> float:
    """Seconds that a planned move takes: write a checkpoint, restart, form process groups, read it back."""
    carried = 2.0 * checkpoint_bytes(scenario) / storage_rate(scenario, stability)
    return carried + stability.restart + startup_seconds(scenario.gpus, stability.startup)


def _lag(scenario: Scenario, stability: Stability) -> float:
    """Seconds until a checkpoint in host memory is safe on storage; work of that long is lost in addition."""
    if stability.checkpoint == "sync":
        return 0.0
    return checkpoint_bytes(scenario) / storage_rate(scenario, stability)


def _interval(stall: Floats, scenario: Scenario, stability: Stability) -> Floats:
    """Seconds of work between checkpoints: given, or the best that storage keeps up with, shape (N,)."""
    if stability.interval is not None:
        return np.full(len(stall), stability.interval)
    rate = failure_rate(scenario.group, scenario.gpus, stability)
    if not rate:
        return np.full(len(stall), np.inf)
    return np.maximum(best_interval(stall, rate), max(_lag(scenario, stability), 1.0))


def _wall_per_work(stall: Floats, scenario: Scenario, stability: Stability) -> Floats:
    """Expected seconds of wall time per second of training, spares and stragglers aside, shape (N,)."""
    rate = failure_rate(scenario.group, scenario.gpus, stability)
    work = _interval(stall, scenario, stability)
    if not rate:
        return 1.0 + stall / work
    down = _downtime(scenario, stability) + _lag(scenario, stability)
    return expected_wall(work, stall=stall, downtime=down, rate=rate) / work


def _in_repair(scenario: Scenario, stability: Stability) -> float:
    """Nodes that are in repair on average."""
    return failure_rate(scenario.group, scenario.gpus, stability) * stability.broken * stability.repair


def _more_than(spares: int, mean: float) -> float:
    """Probability that more nodes than the spares are in repair at a time.

        P(N > s)  with N of Poisson's distribution, as in a queue M/G/infinity

    Args:
        spares: s, nodes that replace broken ones.
        mean: nodes in repair on average: breaking nodes per second times the seconds of a repair.

    Returns:
        A probability.

    Source:
        D. Gross et al., "Fundamentals of Queueing Theory", section 2.6.

    >>> round(_more_than(8, 3.0), 4)
    0.0038
    """
    from scipy.special import pdtrc

    return float(pdtrc(spares, mean))


def _enough(mean: float) -> int:
    """The fewest spare nodes that leave a wait only `SPARE_RISK` of the time."""
    from scipy.special import pdtrik

    guess = int(pdtrik(1.0 - SPARE_RISK, mean)) if mean > 0.0 else 0
    return next(n for n in range(max(guess - 2, 0), guess + 4) if _more_than(n, mean) <= SPARE_RISK)
