"""How near the nodes of a plan have to be to each other."""

from __future__ import annotations

import math

from planner.jobs.job import Job


def locality(job: Job) -> int:
    """Nodes that hold one tightest group: the tensor, context and expert ranks that exchange in every layer.

    Ranks are dealt out tensor fastest, then context, then the data ranks that experts fold over. The number divides
    the nodes, as a scheduler's blocks must.
    """
    strategy, per_node = job.strategy, job.gpus_per_node
    ranks = math.lcm(strategy.tp * strategy.cp, strategy.ep * strategy.etp)
    nodes = -(-ranks // per_node)
    return next((n for n in range(nodes, job.node_count + 1) if job.node_count % n == 0), job.node_count)
