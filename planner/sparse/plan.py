"""Plans for sparse models on parameter servers: ``plan_sparse``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from costmodels.sparse.load import MODES, RESOURCES, TIERS, Mode
from costmodels.sparse.model import SparseModel, sparse_model
from costmodels.sparse.parameter_server import SparseScenario
from costmodels.sparse.server_runtime import runtime
from hardware.errors import flatten
from hardware.servers import SparseCluster, sparse_cluster
from planner.answer.build import catalogue_hashes
from planner.errors import BadRequest, OutOfTime
from planner.request.budget import SEARCH, Budget
from planner.request.progress import Tell
from planner.request.values import file_name, quantity
from planner.sparse.document import (
    MACHINES,
    Alternative,
    Machines,
    Placed,
    Rented,
    SparsePlan,
    SparseProof,
    SparseRequest,
    Stage,
)
from planner.sparse.infeasible import refusal
from planner.sparse.layout import SLACK, layout
from planner.sparse.search import RESOLUTION, Best, cheapest, fastest, usage
from planner.sparse.solver import Limits
from planner.sparse.standing import HOUR, Standing
from planner.version import VERSION

SPEEDING_UP = 2.5e6
"""Effort for a faster plan among the cheapest, on top of as much as the search took."""


def plan_sparse(
    model: SparseModel | str | Path,
    cluster: SparseCluster | str | Path,
    *,
    min_throughput: float | str | None = None,
    max_cost_per_hour: float | str | None = None,
    mode: Mode | None = None,
    max_staleness: int | None = None,
    nodes: Mapping[str, int] | None = None,
    time_limit: float | str | None = None,
    progress: Tell | None = None,
) -> SparsePlan:
    """The cheapest plan that reaches a throughput, or the fastest that a rent buys.

    Args:
        model: a sparse model, or the path of its file.
        cluster: machines, their name in the catalogue (`plan list servers`), or the path of their file.
        min_throughput: examples per second to reach, or text such as "2M"; the cheapest plan that does is returned.
        max_cost_per_hour: dollars per hour to keep to, or text such as "50 $/h"; alone it asks for the fastest plan.
        mode: "sync", "async" or "geo"; None takes the best of them.
        max_staleness: steps of other workers between a worker's pull and its push, at most.
        nodes: nodes of some groups, at most; 0 leaves a group out.
        time_limit: seconds, also as text such as "2 min"; without it effort is counted.
        progress: called with a `Progress`: the modes and machines searched, the best so far.

    Returns:
        A plan, or one of status "infeasible" with the reason and the nearest request that works.

    Raises:
        BadFile, UnknownName: the model or the machines cannot be read.
        BadRequest: neither a throughput nor a rent is given, an unknown group is named, or an argument is not what it
            should be.
        OutOfTime: the effort or the time limit was spent before any plan was found.
    """
    if min_throughput is None and max_cost_per_hour is None:
        raise BadRequest("give --min-throughput, such as 2M examples per second, or --max-cost, such as '50 $/h'")
    machines = cluster if isinstance(cluster, SparseCluster) else sparse_cluster(file_name("cluster", cluster))
    rent = quantity("max_cost_per_hour", max_cost_per_hour, "price")
    try:
        request = SparseRequest(
            model=model if isinstance(model, SparseModel) else sparse_model(file_name("model", model)),
            cluster=machines if nodes is None else _with_nodes(machines, nodes),
            min_throughput=quantity("min_throughput", min_throughput, "count"),
            max_cost_per_hour=rent * HOUR if isinstance(max_cost_per_hour, str) and rent is not None else rent,
            mode=mode,
            max_staleness=max_staleness,
            time_limit=None if time_limit is None else quantity("time_limit", time_limit, "time"),
        )
    except ValidationError as error:
        raise BadRequest(flatten(error)) from None
    return answered(request, progress)


def _with_nodes(cluster: SparseCluster, nodes: Any) -> SparseCluster:
    if not isinstance(nodes, Mapping):
        raise BadRequest(f"nodes: expected groups and numbers such as {{'cpu': 10}}, got {nodes!r:.60}")
    known = [group.name for group in cluster.groups]
    for name, count in nodes.items():
        if isinstance(count, bool) or not isinstance(count, int):
            raise BadRequest(f"nodes: expected a whole number of {name} such as 10, got {count!r:.40}")
        if name not in known:
            raise BadRequest(f"nodes: {cluster.name} has no group {name!r}; it has {', '.join(known)}")
        most = cluster.groups[known.index(name)].nodes
        if not 0 <= count <= most:
            raise BadRequest(f"nodes: {cluster.name} has {most} {name}; {count} were asked for")
    left = [
        group.model_copy(update={"nodes": nodes.get(group.name, group.nodes)})
        for group in cluster.groups
        if nodes.get(group.name, group.nodes)
    ]
    if not left:
        raise BadRequest(f"nodes: no group of {cluster.name} is left; give one of {', '.join(known)} more than 0")
    return cluster.model_copy(update={"groups": tuple(left)})


@dataclass(frozen=True, slots=True)
class Tried:
    """The best plan on some machines in one mode."""

    machines: Machines
    mode: Mode
    best: Best


def answered(request: SparseRequest, progress: Tell | None = None) -> SparsePlan:
    """The answer to a request (see ``plan_sparse``)."""
    budget, limits = Budget(request.time_limit, progress=progress), limits_of(request)
    before = budget.effort
    tried = list(_tried(request, limits, budget))
    plans = [one for one in tried if one.best.chosen]
    if not plans:
        if any(one.best.status == "unknown" for one in tried):
            raise OutOfTime(f"no plan found {budget.limit}")
        budget.settle("looking for what would work")
        return _refused(request, limits, tried, budget)
    place = tried.index(min(plans, key=partial(_rank, request)))
    if request.min_throughput is not None:
        more = budget.part(before - budget.effort + SPEEDING_UP, share=1.0)
        tried = _sped_up(tried, place, limits, budget=more)
    return _document(request, tried[place], tried, budget.elapsed)


def _sped_up(tried: list[Tried], first: int, limits: Limits, *, budget: Budget) -> list[Tried]:
    """The cheapest plan, then others as cheap, each the fastest for its rent."""
    found, rent = list(tried), tried[first].best.cost * (1.0 + SLACK)
    for place in sorted(range(len(tried)), key=lambda one: one != first):
        best = tried[place].best
        if best.chosen and best.cost <= rent:
            faster = fastest(best.layout, limits._replace(budget=best.cost), budget=budget)
            if faster.rate > best.rate:
                same = replace(faster, status=best.status, bound=best.bound, gap=best.gap)
                found[place] = replace(tried[place], best=same)
    return found


def limits_of(request: SparseRequest) -> Limits:
    """The request in the units of the search."""
    budget = float("inf") if request.max_cost_per_hour is None else request.max_cost_per_hour / HOUR
    return Limits(request.min_throughput or 0.0, budget, request.max_staleness)


def _tried(request: SparseRequest, limits: Limits, budget: Budget) -> Iterator[Tried]:
    """Every mode, on all machines and on either kind alone."""
    modes = MODES if request.mode is None else (request.mode,)
    standing = Standing(budget, cheapest=request.min_throughput is not None)
    parts, done = list(subsets(request.cluster)), 0
    for mode in modes:
        whole = layout(SparseScenario(request.model, request.cluster.groups, runtime(), mode))
        bests = dict[Machines, Best]()
        for machines, groups in reversed(parts):  # what one kind can do, all machines can
            part = whole.restricted(groups)
            standing.bounded = machines == "all" and len(modes) == 1
            budget.go_on(f"searching plans in {mode} mode on {MACHINES[machines]}", done, len(modes) * len(parts))
            known = max((one.rate for one in bests.values()), default=0.0) if machines == "all" else 0.0
            if part is None:
                nodes = np.zeros(len(whole.prices), dtype=np.int64)
                bests[machines] = Best("infeasible", whole, (), nodes, 0.0, math.inf, math.inf, math.inf)
            elif request.min_throughput is None:
                bests[machines] = fastest(part, limits, budget=budget, known=known, report=standing.found)
            else:
                bests[machines] = cheapest(part, limits, budget=budget, report=standing.found)
            done += 1
        yield from (Tried(machines, mode, bests[machines]) for machines, _ in parts)


def subsets(cluster: SparseCluster) -> Iterator[tuple[Machines, set[int]]]:
    """All groups; those without and those with accelerators, where there are both."""
    bare = {index for index, group in enumerate(cluster.groups) if group.accelerator is None}
    every = set(range(len(cluster.groups)))
    yield "all", every
    if bare and bare != every:
        yield "cpu", bare
        yield "accelerators", every - bare


def _rank(request: SparseRequest, one: Tried) -> tuple[float, int, float]:
    """Cheapest, or fastest, first; among equals the freshest, then the fastest."""
    first = -one.best.rate if request.min_throughput is None else one.best.cost
    return (first, MODES.index(one.mode), -one.best.rate)


def _refused(request: SparseRequest, limits: Limits, tried: list[Tried], budget: Budget) -> SparsePlan:
    seconds, layouts = budget.elapsed, [one.best.layout for one in tried if one.machines == "all"]
    reason, nearest = refusal(request, limits, layouts, budget.part(SEARCH))
    proof = SparseProof(objective=_objective(request), gap=0.0, solve_seconds=seconds)
    return SparsePlan(status="infeasible", proof=proof, reason=reason, nearest=nearest, **_frame(request, tried))


def _frame(request: SparseRequest, tried: list[Tried]) -> dict[str, Any]:
    """What every answer says."""
    return {
        "request": request,
        "parameters": request.model.parameters,
        "table_bytes": sum(map(request.model.table_bytes, request.model.tables)),
        "alternatives": tuple(_alternative(request, one) for one in tried),
        "assumed": tuple(_assumed(request)),
        "version": VERSION,
        "catalogue_hash": catalogue_hashes(),
    }


def _assumed(request: SparseRequest) -> Iterator[str]:
    if request.mode is None:
        yield f"the best of the modes {', '.join(MODES)} (--mode fixes one)"
    if request.max_staleness is None and request.mode != "sync":
        yield "updates may be as late as the mode makes them (--max-staleness limits that)"
    yield (
        "speeds of PaddlePaddle's parameter server: two fitted to published runs on CPU nodes, the others from general "
        "knowledge"
    )


def _objective(request: SparseRequest) -> Literal["cost", "throughput"]:
    return "throughput" if request.min_throughput is None else "cost"


def _document(request: SparseRequest, winner: Tried, tried: list[Tried], seconds: float) -> SparsePlan:
    best = winner.best
    places = tuple(_placed(request, best))
    proof = _proof(request, winner, tried, seconds)
    tolerance = 1e-6 if proof.objective == "cost" else 1.01 * RESOLUTION
    return SparsePlan(
        status="optimal" if proof.gap <= tolerance else "feasible",
        mode=winner.mode,
        examples_per_second=best.rate,
        cost_per_hour=best.cost * HOUR,
        cost_per_million_examples=1e6 * best.cost / best.rate,
        staleness=best.layout.staleness(best.chosen, best.nodes),
        rented=tuple(_rented(request, best)),
        places=places,
        stages=tuple(
            Stage(group=group, places=tuple(one.name for one in run))
            for group, run in groupby(places, key=lambda place: place.group)
        ),
        proof=proof,
        **_frame(request, tried),
    )


def _proof(request: SparseRequest, winner: Tried, tried: list[Tried], seconds: float) -> SparseProof:
    """The weakest bound of all modes on all machines: nothing on part of them can be better.

    A mode for which there was no time may hold a faster plan; a cheaper one only as far as its bound goes.
    """
    whole = [one.best for one in tried if one.machines == "all" and one.best.status != "infeasible"]
    if _objective(request) == "cost":
        least = max(0.0, min((one.bound for one in whole), default=0.0))
        gap = max(0.0, 1.0 - least / winner.best.cost)
        return SparseProof(objective="cost", bound=least * HOUR, gap=gap, solve_seconds=seconds)
    most = max((one.bound if one.chosen else math.inf for one in whole), default=math.inf)
    gap = max(0.0, 1.0 - winner.best.rate / most)
    bound = most if math.isfinite(most) else None
    return SparseProof(objective="throughput", bound=bound, gap=gap, solve_seconds=seconds)


def _rented(request: SparseRequest, best: Best) -> Iterator[Rented]:
    shares = usage(best)
    rates = best.layout.rates(best.layout.load(best.chosen), best.nodes)
    for group, nodes, share, rate in zip(request.cluster.groups, best.nodes.tolist(), shares, rates, strict=True):
        if nodes:
            yield Rented(
                group=group.name,
                nodes=nodes,
                of=group.nodes,
                cost_per_hour=nodes * group.price * HOUR,
                examples_per_second=float(rate) if np.isfinite(rate) else None,
                usage={name: float(part) for name, part in zip(RESOURCES, share, strict=True) if part > 0.0},
                binds=RESOURCES[int(share.argmax())],
            )


def _placed(request: SparseRequest, best: Best) -> Iterator[Placed]:
    groups = request.cluster.groups
    for place, index in zip(best.layout.places, best.chosen, strict=True):
        choice, held = place.choices[index], dict[str, Any]()
        if choice.home is not None:
            stored = choice.load.stored[choice.home]
            held = {
                "home": groups[choice.home].name,
                "bytes_by_tier": {tier: float(size) for tier, size in zip(TIERS, stored, strict=True) if size > 0.0},
                "bytes_per_node": float(stored.sum() / best.nodes[choice.home]),
            }
        yield Placed(name=place.name, kind=place.kind, group=groups[choice.group].name, **held)


def _alternative(request: SparseRequest, one: Tried) -> Alternative:
    found, names = dict[str, Any](), [group.name for group in request.cluster.groups]
    if one.best.chosen:
        nodes = {name: count for name, count in zip(names, one.best.nodes.tolist(), strict=True) if count}
        found = {"cost_per_hour": one.best.cost * HOUR, "examples_per_second": one.best.rate, "nodes": nodes}
    return Alternative(machines=one.machines, mode=one.mode, status=one.best.status, **found)
