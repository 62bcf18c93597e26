"""The price of strategies: seconds and bytes, of many under an even split or of one under any split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from costmodels.iteration import (
    Breakdown,
    RowSeconds,
    at_stage,
    breakdown,
    compose,
    even_split,
    row_seconds,
    sends_at,
    stage_extras,
    stragglers,
)
from costmodels.layout.layers_by_kind import stage_layers
from costmodels.layout.split import Assignment, even_stages
from costmodels.layout.stage_contents import copies, joined, of_both_ways
from costmodels.memory.footprint import Footprint, footprint, footprints
from costmodels.memory.host import host_fits
from costmodels.memory.limits import device_limit
from costmodels.memory.rows import RowBytes, row_bytes
from costmodels.model.layer_kinds import Depth
from costmodels.names import Recompute
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Ints, Strategies, concatenate

Terms = TypeVar("Terms", RowSeconds, RowBytes)


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds of one iteration for N strategies under the best even split, and what they are composed of."""

    seconds: RowSeconds
    slowest: Floats
    total: Floats
    iteration: Floats


def price(strategies: Strategies, scenario: Scenario) -> Prices:
    """Price N strategies at full fidelity; layers are split evenly, recompute FULL and PARTIAL repeat every layer."""
    seconds = row_seconds(strategies, scenario)
    again = (strategies.recompute >= Recompute.FULL).astype(np.float64)
    slowest, total = even_split(strategies, seconds, scenario.model.num_layers, again)
    return Prices(seconds, slowest, total, compose(strategies, seconds, slowest, total))


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one strategy under one assignment of layers to stages."""

    iteration: float
    stage_seconds: Floats
    breakdown: dict[str, float]
    footprint: Footprint
    seconds: RowSeconds
    memory: RowBytes


def price_strategy(strategies: Strategies, scenario: Scenario, assignment: Assignment, *, row: int = 0) -> Price:
    """Price one of the strategies, the ``row``-th, under an explicit assignment."""
    one = strategies if len(strategies) == 1 else strategies.take(np.array([row]))
    return price_of_terms(one, seconds_of(one, scenario), bytes_of(one, scenario), scenario, assignment)


def seconds_of(one: Strategies, scenario: Scenario) -> RowSeconds:
    """``row_seconds`` of a single strategy, worked out once for each scenario that it is priced in."""
    return _once(one, scenario, row_seconds)


def bytes_of(one: Strategies, scenario: Scenario) -> RowBytes:
    """``row_bytes`` of a single strategy, worked out once for each scenario that it is priced in."""
    return _once(one, scenario, row_bytes)


def know(one: Strategies, scenario: Scenario, seconds: RowSeconds, memory: RowBytes) -> Strategies:
    """A single strategy that knows its ``seconds_of`` and its ``bytes_of``, which were worked out with others."""
    _once(one, scenario, row_seconds, seconds)
    _once(one, scenario, row_bytes, memory)
    return one


def price_together(rows: Sequence[Strategies], scenario: Scenario) -> None:
    """Have single strategies of one scenario ``know`` their terms, which cost little more than those of one of them."""
    every = concatenate(list(rows))
    seconds, memory = row_seconds(every, scenario), row_bytes(every, scenario)
    for place, one in enumerate(rows):
        at = np.array([place])
        know(one, scenario, seconds.take(at), memory.take(at))


def price_each(cases: Sequence[tuple[Strategies, Scenario, Assignment]]) -> list[Price]:
    """``price_strategy`` of single strategies, which costs little more than that of one of them.

    Their scenarios are one ``of_any_size``, and count no interruptions.
    """
    rows, scenarios, splits = zip(*cases, strict=True)
    every, alike = concatenate(list(rows)), scenarios[0]
    seconds = row_seconds(every, alike).changed(straggler=np.array(list(map(stragglers, scenarios))))
    return _prices(every, seconds, row_bytes(every, alike), alike, splits)


def _once(
    one: Strategies, scenario: Scenario, terms: Callable[[Strategies, Scenario], Terms], given: Terms | None = None
) -> Terms:
    known: list[tuple[Scenario, Terms]] = one.once(terms, list)
    for other, found in known:
        if other == scenario:
            return found
    known.append((scenario, terms(one, scenario) if given is None else given))
    return known[-1][1]


def seconds_if_it_fits(strategy: Strategies, scenario: Scenario, assignment: Assignment) -> float | None:
    """Seconds per iteration of one strategy; None where its devices or its hosts have too little memory."""
    priced = price_strategy(strategy, scenario, assignment)
    fits = host_fits(strategy, scenario)[0] and priced.footprint.handed_out.max() <= device_limit(scenario, strategy)[0]
    return priced.iteration if fits else None


def price_of_terms(
    strategy: Strategies, seconds: RowSeconds, memory: RowBytes, scenario: Scenario, assignment: Assignment
) -> Price:
    """The ``Price`` of one strategy whose terms are known, for many assignments of it."""
    return _prices(strategy, seconds, memory, scenario, [assignment])[0]


def _prices(
    strategies: Strategies, seconds: RowSeconds, memory: RowBytes, scenario: Scenario, splits: Sequence[Assignment]
) -> list[Price]:
    """The prices of N strategies whose terms are known, each under its own split."""
    stages = stage_seconds(strategies, seconds, splits)
    slowest, total = _slowest_and_total(stages)
    slow = np.array([np.argmax(each) for each in stages])
    held, again = _at_stages(strategies, scenario.depth, splits, slow)
    there = at_stage(seconds, held, again, sends_at(strategies, seconds, slow[:, None])[:, 0])
    terms: Breakdown = breakdown(
        strategies, there, slowest=slowest, total=total, layers=held.sum(axis=1), recomputed=again.sum(axis=1)
    )
    each_one = [np.array([place]) for place in range(len(splits))]
    columns = (
        compose(strategies, seconds, slowest, total).tolist(),
        stages,
        terms.rows(),
        footprints(strategies, memory, scenario, splits),
        map(seconds.take, each_one),
        map(memory.take, each_one),
    )
    return [Price(*price) for price in zip(*columns, strict=True)]


def _slowest_and_total(stages: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Seconds of the slowest stage and of all stages of N strategies, each (N,)."""
    return np.array([each.max() for each in stages]), np.array([each.sum() for each in stages])


def _at_stages(
    strategies: Strategies, depth: Depth, splits: Sequence[Assignment], stages: Ints
) -> tuple[Floats, Floats]:
    """``stage_layers`` of one stage of each strategy, each (N, K)."""
    each = [
        [part[stage] for part in stage_layers(strategies, depth, split.layers, split.recomputed, row=row)]
        for row, (split, stage) in enumerate(zip(splits, stages.tolist(), strict=True))
    ]
    held, again = (np.array(part) for part in zip(*each, strict=True))
    return held, again


def iteration_seconds(strategies: Strategies, scenario: Scenario, assignment: Assignment) -> float:
    """Seconds of an iteration of the first strategy, the ``iteration`` of its ``Price``, without bytes and terms."""
    one = strategies if len(strategies) == 1 else strategies.take(np.array([0]))
    return float(_iterations(one, seconds_of(one, scenario), [assignment])[0])


def iterations_together(rows: Sequence[Strategies], scenario: Scenario, splits: Sequence[Assignment]) -> Floats:
    """``iteration_seconds`` of single strategies of one scenario, (N,), which cost little more than one of them."""
    every = concatenate(list(rows))
    return _iterations(every, row_seconds(every, scenario), splits)


def _iterations(strategies: Strategies, seconds: RowSeconds, splits: Sequence[Assignment]) -> Floats:
    return compose(strategies, seconds, *_slowest_and_total(stage_seconds(strategies, seconds, splits)))


def stage_bytes(strategies: Strategies, scenario: Scenario, assignment: Assignment) -> Footprint:
    """Bytes of every stage of the first strategy, the ``footprint`` of its ``Price``, without its seconds."""
    one = strategies if len(strategies) == 1 else strategies.take(np.array([0]))
    return _footprint(one, bytes_of(one, scenario), scenario, assignment)


def _footprint(strategy: Strategies, memory: RowBytes, scenario: Scenario, split: Assignment) -> Footprint:
    return footprint(strategy, memory, scenario, row=0, layers=split.layers, recomputed=split.recomputed)


def stage_seconds(strategies: Strategies, seconds: RowSeconds, splits: Sequence[Assignment]) -> list[Floats]:
    """Forward and backward seconds of every stage for one micro-batch, (pp,) of each of N strategies."""
    places = np.broadcast_to(np.arange(strategies.pp.max()), (len(splits), strategies.pp.max()))
    extras = stage_extras(strategies, seconds, places)
    layers = _layer_seconds(strategies, seconds, splits)
    return [own + extra[: len(own)] for own, extra in zip(layers, extras, strict=True)]


def _layer_seconds(strategies: Strategies, seconds: RowSeconds, splits: Sequence[Assignment]) -> Iterator[Floats]:
    """What layers add to ``stage_seconds``."""
    if seconds.kinds is None:
        columns = seconds.layer.tolist(), seconds.recompute.tolist(), copies(strategies).tolist()
        for split, layer, recompute, both in zip(splits, *columns, strict=True):
            yield of_both_ways(split.layers * layer + split.recomputed * recompute, both)
        return
    kinds = seconds.kinds
    each = zip(splits, *(np.ascontiguousarray(kinds.each(name).T) for name in ("layer", "recompute")), strict=True)
    for row, (split, layer, recompute) in enumerate(each):
        held, again = stage_layers(strategies, kinds.depth, split.layers, split.recomputed, row=row)
        yield held @ layer + again @ recompute


def row_assignment(strategy: Strategies, num_layers: int, layers: Sequence[int] | None = None) -> Assignment:
    """The even split of one strategy, or the given layers; FULL recomputes all of them.

    Shorter stages come last, then first; where the ends are joined the first stage is the first to be spared. With two
    copies the layers of the pieces s and pp - 1 - s are evened out together.
    """
    held = np.asarray([] if layers is None else layers, dtype=np.int64)
    if layers is None:
        both, chunks = int(copies(strategy)[0]), int(strategy.vpp[0] * strategy.recompute_num_layers[0])
        held = even_stages(num_layers, int(strategy.pp[0]) // both, chunks, joined_ends=bool(joined(strategy)[0]))
        held = halved(held) if both > 1 else held
    return Assignment(held, held.copy() if strategy.recompute[0] >= Recompute.FULL else np.zeros_like(held))


def halved(pairs: Ints) -> Ints:
    """Layers of every piece where two mirrored pieces hold so many together, the earlier one more if odd."""
    return np.concatenate([pairs - pairs // 2, (pairs // 2)[::-1]])


def effective_recompute(strategy: Strategies, split: Assignment) -> Strategies:
    """One strategy with its recomputation as it comes out: none, or full, where PARTIAL repeats no layer or all.

    One that may recompute is priced in what does not depend on how many layers do (the bubble of schedules that fill
    it) as if all did, which is what bounds take; a plan is priced as what it is.
    """
    if strategy.recompute[0] != Recompute.PARTIAL:
        return strategy
    for kind, layers in ((Recompute.NONE, 0), (Recompute.FULL, split.layers)):
        if (split.recomputed == layers).all():
            return replace(strategy, recompute=np.array([int(kind)]))
    return strategy
