"""Where a plan's GPUs sit: the nodes of one replica in full, the rest counted, and who talks over which tier."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from costmodels.layout.placement import expert_group, group_of, inner_data_ranks, strides
from costmodels.node_groups import Mixed
from costmodels.primitives.rank_groups import Group
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies
from planner.answer.load import strategy_from_plan
from planner.answer.plan import Plan
from planner.errors import MeshwrightError
from planner.render.by_group import Part, parts_by_group
from planner.request.request import PlanRequest
from planner.request.resolve import resolve

MOST_DOMAINS: Final = 12
"""Nodes that are drawn GPU by GPU."""
MOST_GPUS: Final = 288
"""GPUs that are drawn in them, one node's in any case."""
_SHARDED: Final = "data parallel: trains on other samples, gathers weights in every pass and scatters their gradients"
_WITH_CONTEXT: Final = "; context ranks take part"
_GROUPS: Final = (
    ("TP", "tp", "tensor parallel: splits every matrix, adds up partial results twice a layer and pass"),
    ("CP", "cp", "context parallel: splits the sequence, passes keys and values on in every layer"),
    ("EP", "ep", "expert parallel: holds different experts, sends tokens to them and back in every expert layer"),
    ("PP", "pp", "pipeline parallel: holds different layers, hands activations to the next stage"),
    ("DP", "dp", "data parallel: trains on other samples, adds up gradients once an iteration"),
)


def layout_of(plan: Plan) -> dict[str, Any] | None:
    """The layout of a plan's strategy; None where there is none.

    ``stages`` have the layers, the node group and the degrees of every stage. ``domains`` are drawn nodes: their number
    and GPUs as [rank, replica, stage, tensor, context, expert index], all from 0; ``replica`` says how many there are
    and what one of them takes. ``tiers`` is the network inside out, ``groups`` who talks over which of them, with the
    seconds that are not hidden. Over several node groups ``parts`` have all this of each, in the order of the pipeline,
    and ``between`` the bytes per second of a GPU from one to the next.
    """
    if plan.strategy is None:
        return None
    strategy = plan.strategy
    told: dict[str, Any] = {
        "gpus": plan.request["gpus"],
        "degrees": {word: getattr(strategy, name) for word, name, _ in _GROUPS},
        "stages": [
            {"layers": stage.layers, "group": stage.group, "tp": stage.tp or strategy.tp, "dp": stage.dp or strategy.dp}
            for stage in strategy.stages
        ],
        "remark": "",
    }
    try:
        resolved = resolve(PlanRequest(**plan.request))
    except MeshwrightError as reason:
        return told | {"remark": f"no GPUs drawn: {reason}"}
    if resolved.mixed is None:
        row, scenario = strategy_from_plan(strategy), resolved.scenario
        return told | _placed(row, scenario, plan.breakdown_seconds)
    parts = list(parts_by_group(strategy, resolved.mixed))
    places = itertools.pairwise(part.scenario.group.name for part in parts)
    return told | {
        "parts": [_part(part, told["stages"]) for part in parts],
        "between": [_between(resolved.mixed, *pair) for pair in places],
    }


def _placed(row: Strategies, scenario: Scenario, seconds: Mapping[str, float], first: int = 0) -> dict[str, Any]:
    """GPUs and network of one node group; ``first`` is its first stage, ``seconds`` what is not hidden where known."""
    drawn = _drawn(row, scenario, first)
    return drawn | {"tiers": _tiers(scenario), "groups": list(_groups(row, scenario, seconds))}


def _part(part: Part, stages: list[dict[str, Any]]) -> dict[str, Any]:
    """One of several node groups, described as ``layout_of`` describes a single one, without seconds of terms."""
    group, count = part.scenario.group, int(part.row.pp[0])
    return {
        "name": group.name,
        "device": group.accelerator.title,
        "gpus": part.scenario.gpus,
        "first": part.first,
        "degrees": {word: int(getattr(part.row, name)[0]) for word, name, _ in _GROUPS},
        "stages": stages[part.first : part.first + count],
        **_placed(part.row, part.scenario, {}, part.first),
    }


def _between(mixed: Mixed, one: str, other: str) -> dict[str, Any]:
    """The way from one node group to the next, as wide as the narrower of its two ends."""
    tiers = mixed.cluster.crossing(one, other)
    return {"groups": [one, other], "bandwidth": min(tier.link.bandwidth for tier in tiers)}


def _drawn(row: Strategies, scenario: Scenario, first: int) -> dict[str, Any]:
    """The nodes of the first replica, or the first of them."""
    gpus, size = scenario.gpus, _domain(scenario)
    mine = _coordinates(row, np.arange(gpus))
    mine["pp"] += first
    held = np.unique(np.flatnonzero(mine["replica"] == 0) // size)
    most = max(1, min(MOST_DOMAINS, MOST_GPUS // size))
    names = ("rank", "replica", "pp", "tp", "cp", "ep")
    table = np.stack([mine[name] for name in names], axis=1)
    domains = [
        {"number": int(number), "gpus": table[number * size : (number + 1) * size].tolist()} for number in held[:most]
    ]
    replica = {"count": int(mine["replica"].max()) + 1, "gpus": int((mine["replica"] == 0).sum()), "domains": len(held)}
    node = scenario.group.tiers[0].name if scenario.group.tiers[0].domain else "node"
    return {"domains": domains, "domain": {"name": node, "gpus": size}, "replica": replica}


def _domain(scenario: Scenario) -> int:
    """GPUs of one drawn box: of the innermost tier, of a node where that is the whole cluster."""
    return min(scenario.group.tiers[0].domain or scenario.group.gpus_per_node, scenario.gpus)


def _coordinates(row: Strategies, ranks: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, Any]:
    """Place of every rank in every dimension; a replica is what holds the whole model once."""
    step, inner = strides(row), int(inner_data_ranks(row)[0])

    def place(name: str, size: int) -> Any:
        return ranks // int(step[name][0]) % size

    degree = {name: int(getattr(row, name)[0]) for name in ("tp", "cp", "pp", "dp", "ep", "etp")}
    tp, cp, pp = (place(name, degree[name]) for name in ("tp", "cp", "pp"))
    outer = place("dp", degree["dp"] // inner)
    replica = outer * inner + (place("sharding", inner) if inner > 1 else 0)
    order = tp + degree["tp"] * (cp + degree["cp"] * replica)
    ep = order // degree["etp"] % degree["ep"]
    return {"rank": ranks, "replica": replica, "pp": pp, "tp": tp, "cp": cp, "ep": ep}


def _tiers(scenario: Scenario) -> list[dict[str, Any]]:
    """The network inside out, as far as it takes to join all GPUs; bytes per second of one GPU, one direction."""
    tiers = scenario.group.tiers
    needed = next(
        (i for i, tier in enumerate(tiers) if not tier.domain or tier.domain >= scenario.gpus), len(tiers) - 1
    )
    return [
        {"name": tier.name, "gpus": min(tier.domain or scenario.gpus, scenario.gpus), "bandwidth": tier.link.bandwidth}
        for tier in tiers[: needed + 1]
    ]


def _groups(row: Strategies, scenario: Scenario, seconds: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """Every group of more than one GPU with the outermost tier that it crosses; without one it is copied nowhere."""
    domains, outermost = tuple(tier.domain for tier in scenario.group.tiers), len(_tiers(scenario)) - 1
    found: dict[str, Group] = {name: group_of(row, name) for name in ("tp", "cp", "pp")}
    found |= {"dp": group_of(row, "cp", "dp"), "ep": expert_group(row)}
    for word, name, meaning in _GROUPS:
        group = found[name]
        if group.size[0] < 2:
            continue
        crossed = [one for one in group.crossings(domains) if one.crossed[0]]
        yield {
            "name": word,
            "gpus": int(group.size[0]),
            "tier": min(crossed[-1].tier, outermost) if crossed else 0,
            "inside": int(group.ranks_within(domains[0])[0]),
            "seconds": max(seconds.get(name, 0.0), 0.0) if seconds else None,
            "meaning": meaning if name != "dp" else _of_data_ranks(row, meaning),
        }


def _of_data_ranks(row: Strategies, usual: str) -> str:
    """What data ranks do under a sharding stage, and who does it with them."""
    does = _SHARDED if row.zero_stage[0] >= 3 else usual
    return does + _WITH_CONTEXT * bool(row.cp[0] > 1)
