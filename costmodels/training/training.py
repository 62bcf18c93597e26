"""A whole training run: iterations, days, GPU-hours, money, energy."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hardware.records import Cluster
from hardware.units import Count, Dollars, DollarsPerSecond, Seconds, Watts

DAY = 86400.0
HOUR = 3600.0
JOULES_PER_MWH = 3.6e9


@dataclass(frozen=True, slots=True)
class Totals:
    """What training on a number of tokens takes at a constant iteration time, failures not counted."""

    iterations: int
    seconds: float
    gpu_hours: float
    cost: float | None
    """Dollars; None where the cluster has no price."""
    joules: float


def iterations(*, tokens: Count, tokens_per_iteration: Count) -> int:
    """Optimizer steps for a number of tokens, the last one whole.

    >>> iterations(tokens=300_000_000_000, tokens_per_iteration=3_145_728)
    95368
    """
    return math.ceil(tokens / tokens_per_iteration)


def rent(*, gpus: Count, seconds: Seconds, price: DollarsPerSecond) -> Dollars:
    """Dollars for a number of devices over a time, at a price per device and second.

    >>> rent(gpus=1024, seconds=86400.0, price=2.0 / 3600.0)
    49152.0
    """
    return gpus * seconds * price


def energy(*, gpus: Count, seconds: Seconds, device: Watts, node_share: Watts) -> float:
    """Joules of devices at rated power with their share of the node; an upper estimate.

        E = n t (P + P_node)

    Args:
        gpus: n, devices.
        seconds: t.
        device: P, watts of a device.
        node_share: P_node, watts of CPUs, network cards and fans divided by the devices of a node.

    Returns:
        Joules.

    >>> energy(gpus=8, seconds=3600.0, device=700.0, node_share=575.0) / 3.6e6  # kWh of a node
    10.2
    """
    return gpus * seconds * (device + node_share)


def totals(*, cluster: Cluster, gpus: int, iteration: float, tokens: int, tokens_per_iteration: float) -> Totals:
    """Everything about a run that follows from its iteration time."""
    steps = iterations(tokens=tokens, tokens_per_iteration=tokens_per_iteration)
    seconds = steps * iteration
    price = cluster.usd_per_gpu_hour
    each = [group.gpus or gpus for group in cluster.groups] if len(cluster.groups) > 1 else [gpus]
    return Totals(
        iterations=steps,
        seconds=seconds,
        gpu_hours=seconds * gpus / HOUR,
        cost=None if price is None else rent(gpus=gpus, seconds=seconds, price=price / HOUR),
        joules=sum(
            energy(
                gpus=count,
                seconds=seconds,
                device=group.accelerator.drawn,
                node_share=(group.node_power_overhead or 0.0) / group.gpus_per_node,
            )
            for group, count in zip(cluster.groups, each, strict=True)
        ),
    )
