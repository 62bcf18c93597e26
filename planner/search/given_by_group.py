"""The one strategy over several node groups that a request describes, and what speaks against it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from costmodels.node_groups import PER_GROUP, Mixed, MixedStrategies, as_it_runs
from costmodels.pricing import row_assignment
from costmodels.strategy import AXES
from planner.answer.plan import Rejection
from planner.errors import BadRequest
from planner.request.budget import Budget
from planner.request.pins import Pin, parse_pins
from planner.request.resolve import Resolved
from planner.rules.divisors import around, divisors
from planner.rules.rule import Rule
from planner.search.given import Given, checked_layers, refused_by, single_value, with_recomputed
from planner.search.plain_strategy import plain_strategy
from planner.search.split import best_split, given_split
from planner.space.active_rules import binding
from planner.space.mixed import WIDTH


def given_on_groups(
    resolved: Resolved,
    mixed: Mixed,
    layers: Sequence[int] | None,
    recomputed: Sequence[int] | None,
    *,
    budget: Budget,
    chunked: bool = True,
) -> Given | tuple[Rejection, ...]:
    """The strategy that the pins describe in the best order of the groups, or in the cluster's where layers are given.

    Or only the rules that it breaks. Unless ``chunked`` the layers may make no equal chunks.

    Raises:
        BadRequest: an axis with several values that are not one for each group, or degrees that do not fit.
    """
    row = _given_strategy(resolved, mixed)
    if broken := broken_rules(row, mixed):
        return broken
    if layers is not None:
        layers = checked_layers(layers, row, mixed.lead, counted=False, chunked=chunked)
        if recomputed is None:
            split = given_split(row, mixed, layers)
        else:
            split = with_recomputed(row, row_assignment(row, mixed.lead.model.num_layers, layers), recomputed)
        return Given(as_it_runs(row, split), split, ())
    orders = (replace(row, order=np.array([order])) for order in itertools.permutations(range(len(row.groups))))
    found = [best for one in orders if (best := best_split(one, mixed, budget=budget))]
    if not found:
        split = row_assignment(row, mixed.lead.model.num_layers)
        return Given(as_it_runs(row, split), split, ())
    best = min(found, key=lambda one: one.iteration)
    return Given(best.row, best.assignment, ())


def _given_strategy(resolved: Resolved, mixed: Mixed) -> MixedStrategies:
    """The one strategy that the pins describe; unpinned axes take their plainest value.

    Raises:
        BadRequest: an axis with several values that are not one for each group, or degrees that do not fit.
    """
    axes = {name: pin for name, pin in parse_pins(resolved.request.pins).items() if name not in PER_GROUP}
    known = {name: single_value(pin) for name, pin in axes.items()}
    cp, count = known.get("cp", 1), len(mixed.scenarios)
    tp = _for_groups(resolved, "tp", count) or (1,) * count
    dp = _for_groups(resolved, "dp", count) or _replicas(mixed, tp, cp, known.get("pp"))
    stages = [_stages(one.gpus, one.group.name, t * cp * d) for one, t, d in zip(mixed.scenarios, tp, dp, strict=True)]
    if known.get("pp", sum(stages)) != sum(stages):
        raise BadRequest(
            f"pp {known['pp']} is not the {' + '.join(map(str, stages))} stages that result from tp, cp and dp"
        )
    micro = _micro_batches(resolved, mixed, dp)
    pipeline = {"vocabulary": 0, **known, "cp": cp, "pp": sum(stages)}
    groups = []
    for t, d, size in zip(tp, dp, micro, strict=True):
        own = pipeline | {"tp": t, "dp": d, "micro_batch_size": size}
        own |= {"zero_stage": 0, "sharding_degree": 1} if d * cp == 1 else {}  # a group of one rank shares nothing
        own |= {"sequence_parallel": 0} if t == 1 else {}
        groups.append(plain_strategy(mixed.lead, own, mixed.lead.global_batch_size // (size * d)))
    return MixedStrategies.of(tuple(groups), np.array([stages]), np.array([range(count)]))


def pins_by_group(resolved: Resolved, mixed: Mixed) -> dict[str, Pin] | None:
    """The pins, those with as many values as there are node groups as one for each; None where none differ by group.

    So are they read of a single strategy; of a search they are a choice.
    """
    pins, count = parse_pins(resolved.request.pins), len(mixed.scenarios)
    for axis in set(PER_GROUP) & set(pins):
        parts = [parse_pins({axis: part})[axis].values for part in _parts(resolved.request.pins[axis])]
        if len(parts) == count and all(len(values) == 1 for values in parts):
            pins[axis] = replace(pins[axis], each=tuple(values[0] for values in parts))
    dp, micro = pins.get("dp"), pins.get("micro_batch_size")
    if dp and dp.each and micro and len(micro.values) == 1:
        pins["micro_batch_size"] = replace(micro, each=_dealt(micro.values[0], dp.each))
    return pins if any(len(set(pin.each)) > 1 for pin in pins.values()) else None


def _parts(given: Any) -> Sequence[Any]:
    return given.split(",") if isinstance(given, str) else given if isinstance(given, list | tuple) else [given]


def _for_groups(resolved: Resolved, axis: str, count: int) -> tuple[int, ...] | None:
    """Values of a pin by group: one value for all, or one for each in the cluster's order."""
    given = resolved.request.pins.get(axis)
    if given is None or given == "":
        return None
    values = [single_value(parse_pins({axis: part})[axis]) for part in _parts(given)]
    if len(values) not in {1, count}:
        raise BadRequest(f"{axis}: {len(values)} values for {count} node groups; give one value, or one for each group")
    return tuple(values * count if len(values) == 1 else values)


def _replicas(mixed: Mixed, tp: Sequence[int], cp: int, pp: int | None) -> tuple[int, ...]:
    """Replicas that use up every group: on stages of one width where pp is given, else on one stage a group."""
    gpus = [one.gpus for one in mixed.scenarios]
    if pp is None:
        return tuple(max(count // (t * cp), 1) for count, t in zip(gpus, tp, strict=True))
    common = divisors(math.gcd(*gpus))
    able = sorted(mixed.gpus // width for width in common)
    if mixed.gpus % pp or mixed.gpus // pp not in common:
        what = " + ".join(map(str, gpus))
        raise BadRequest(f"pp {pp} stages of equal width cannot be made of {what} GPUs; {around(able, pp)}")
    width = mixed.gpus // pp
    if uneven := [t for t in tp if width % (t * cp)]:
        near = around(divisors(width), uneven[0] * cp)
        raise BadRequest(f"tp {uneven[0]} x cp {cp} does not divide the {width} ranks of a stage; {near}")
    return tuple(width // (t * cp) for t in tp)


def _stages(gpus: int, name: str, ranks: int) -> int:
    if gpus % ranks:
        near = around(divisors(gpus), ranks)
        raise BadRequest(f"tp x cp x dp = {ranks} ranks do not divide the {gpus} GPUs of {name}; {near}")
    return gpus // ranks


def _micro_batches(resolved: Resolved, mixed: Mixed, dp: Sequence[int]) -> tuple[int, ...]:
    """Sequences of every group's micro-batch: as many over all its replicas; one value is that of the most replicas."""
    batch, given = mixed.lead.global_batch_size, _for_groups(resolved, "micro_batch_size", len(dp))
    if given is None or len(set(given)) == 1:
        given = _dealt(given[0] if given else 1, dp)
    widths = {b * d for b, d in zip(given, dp, strict=True)}
    if len(widths) > 1:
        said = ", ".join(f"{b} x {d}" for b, d in zip(given, dp, strict=True))
        raise BadRequest(f"micro-batch x dp must be the same on every node group, got {said}")
    if batch % (width := widths.pop()):
        raise BadRequest(f"the {width} sequences of a micro-batch on all replicas do not divide the batch of {batch}")
    return given


def _dealt(micro: int, dp: Sequence[int]) -> tuple[int, ...]:
    """Sequences of every group's micro-batch where ``micro`` is that of the most replicas."""
    width = math.lcm(*dp) * micro
    return tuple(width // d for d in dp)


def broken_rules(row: MixedStrategies, mixed: Mixed, rules: Iterable[Rule] | None = None) -> tuple[Rejection, ...]:
    """The rules that the strategy breaks on any of its groups, of the binding ones unless some are given.

    Stages of different widths are priced all the same.
    """
    asked = binding(mixed) if rules is None else tuple(rules)
    found: dict[str, str] = {}
    shared = {"batch_width": (row.micro_batch_size * row.dp).astype(np.int64)}
    shared |= {f"most_{axis}": np.max([getattr(one, axis) for one in row.groups], axis=0) for axis in ("tp", "dp")}
    for group, scenario in zip(row.groups, mixed.scenarios, strict=True):
        columns = {name: getattr(group, name) for name in AXES} | shared
        alone = {"sharding"} if group.dp[0] * group.cp[0] == 1 else set()
        left = [rule for rule in asked if rule.name not in {WIDTH, *alone, *found}]
        found |= refused_by(left, columns, scenario)
    return tuple(Rejection(rule=name, count=1, example=words) for name, words in found.items())
