"""One iteration of a plan as Chrome trace events, for Perfetto: a process per stage, a thread per stream.

The passes are those of the event simulation, with the seconds that the price has for them. What overlaps is not
drawn twice: a communication stream shows the part that lengthens the iteration, where its pass pays for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from costmodels.iteration import RowSeconds, row_seconds
from costmodels.layer.blocks import LayerSeconds, kind_seconds, layer_seconds
from costmodels.layer.forward_backward import Passes
from costmodels.layer.terms import LayerTerms
from costmodels.layer.tower import tower_seconds
from costmodels.layer.vocabulary import embedding_seconds, head_seconds
from costmodels.layout.layers_by_kind import stage_layers
from costmodels.layout.split import Assignment, end_places
from costmodels.layout.stage_contents import copies
from costmodels.pipeline.schedules import SCHEDULES, Schedule
from costmodels.pipeline.slots import Path
from costmodels.pricing import Price, price_strategy
from costmodels.scenario import Scenario
from costmodels.step.traffic import step_traffic
from costmodels.strategy import Floats, Ints, Strategies, strategies
from planner.answer.load import stages_from_plan, strategy_from_plan
from planner.answer.plan import Plan
from planner.answer.plan import Strategy as StrategyRecord
from planner.answer.text import plural, why_infeasible
from planner.errors import BadRequest
from planner.request.request import PlanRequest
from planner.request.resolve import resolve
from planner.verify.simulate import Event, Simulation, simulate

LARGEST_TRACE: Final = 20_000
"""Passes that are drawn unless more are asked for."""
MOST_PASSES: Final = 400_000
"""Passes that are drawn at most: about 200 MB of JSON."""
AGREEMENT: Final = 1e-6
"""Relative difference up to which an answer's iteration time is this version's."""
_MICRO: Final = 1e6
_WORDS: Final = {"F": "forward", "B": "backward", "W": "weight gradients"}


@dataclass(frozen=True, slots=True)
class Trace:
    """What is drawn, and how it compares with the price.

    Attributes:
        document: the JSON object, ``traceEvents`` sorted by time, microseconds.
        span: seconds from the first event to the last.
        predicted: seconds of the iteration by the closed form, for the micro-batches that are drawn.
        drawn: micro-batches that are drawn.
        planned: micro-batches of the plan.
    """

    document: dict[str, Any]
    span: float
    predicted: float
    drawn: int
    planned: int


def trace(plan: Plan, micro_batches: int | None = None, largest: int = LARGEST_TRACE) -> Trace:
    """The timeline of a plan's strategy, from its own document.

    Args:
        plan: an answer with a strategy.
        micro_batches: how many to draw; unless given all, or as many as make ``largest`` passes.
        largest: passes to draw unless more micro-batches are asked for.

    Raises:
        BadRequest: the answer has no strategy, was priced otherwise, or cannot run so many micro-batches.
    """
    if plan.strategy is None or plan.prediction is None:
        raise BadRequest(f"the answer is {plan.status} and has no strategy to trace: {why_infeasible(plan)}")
    resolved = resolve(PlanRequest(**plan.request))
    if resolved.mixed:
        raise BadRequest("a plan over several node groups cannot be traced; one over a single group can")
    scenario = resolved.scenario
    row, split = strategy_from_plan(plan.strategy), stages_from_plan(plan.strategy)
    _check_same(price_strategy(row, scenario, split).iteration, plan)
    schedule = SCHEDULES[plan.strategy.schedule]
    drawn = _drawn(schedule, plan.strategy, micro_batches, largest)
    return _trace(strategies(**row.row(0) | {"num_microbatches": drawn}), split, scenario, plan.strategy)


def _check_same(now: float, plan: Plan) -> None:
    assert plan.prediction is not None
    then = plan.prediction.iteration_seconds
    if abs(now - then) > AGREEMENT * then:
        made = f"it was made by version {plan.provenance.version} or with a stack file"
        both = f"the answer says {then:.4g} s per iteration, this version {now:.4g} s"
        raise BadRequest(f"{both} ({made}); ask again with --config")


def _drawn(schedule: Schedule, strategy: StrategyRecord, wanted: int | None, largest: int) -> int:
    """Micro-batches to draw: those wanted, all, or the most that keep the trace small."""
    p, v, m = strategy.pp, strategy.vpp, strategy.num_microbatches
    each, counts = p * v * (3 if schedule.splits_backward else 2), np.arange(1, m + 1)
    runs = counts[schedule.allowed(p, counts, v)]
    if wanted is None:
        small = runs[runs * each <= largest]
        return int(small[-1] if len(small) else runs[0])
    if wanted > m:
        raise BadRequest(f"--micro-batches {wanted}: the plan has {m} in an iteration")
    if wanted not in runs:
        needs = f"{schedule.name} on {p} stages with {v} chunks needs {schedule.requires}"
        near = int(runs[np.argmin(abs(runs - wanted))])
        raise BadRequest(f"--micro-batches {wanted}: {needs}; {near} works")
    if wanted * each > MOST_PASSES:
        raise BadRequest(f"--micro-batches {wanted}: {wanted * each:,} passes; at most {MOST_PASSES:,} are drawn")
    return wanted


def _trace(row: Strategies, split: Assignment, scenario: Scenario, record: StrategyRecord) -> Trace:
    priced, schedule = price_strategy(row, scenario, split), SCHEDULES[record.schedule]
    pieces = pieces_of(row, split, scenario, schedule)
    m = int(row.num_microbatches[0])
    times = {kind: sum(pieces[kind].values(), np.zeros((record.pp, record.vpp))) for kind in KINDS}
    run = simulate(
        schedule,
        p=record.pp,
        m=m,
        v=record.vpp,
        forward=times["F"],
        backward=times["B"],
        weight=times["W"] if schedule.splits_backward else None,
    )
    early = scenario.stack.pipeline.post_validation
    ends = [max(e.end for e in run.events if e.stage == s) if early else run.makespan for s in range(record.pp)]
    events = [
        *_passes(run, pieces, schedule, record),
        *(event for s, end in enumerate(ends) for event in _tail(s, end, row, priced, scenario)),
    ]
    flows = _flows(run, pieces, schedule, record) if len(run.events) <= LARGEST_TRACE else ()
    timed = sorted([*events, *flows], key=lambda event: event["ts"])
    span = max(event["ts"] + event["dur"] for event in events) / _MICRO
    if early:
        span -= run.makespan - run.period
    other = {"iteration_seconds": span, "predicted_seconds": priced.iteration, "micro_batches": m}
    document = {"traceEvents": [*_names(record), *timed], "displayTimeUnit": "ms", "otherData": other}
    return Trace(document, span, priced.iteration, m, record.num_microbatches)


def _passes(run: Simulation, pieces: Pieces, schedule: Schedule, record: StrategyRecord) -> Iterator[dict[str, Any]]:
    """Every pass: first what is computed, then the communication that it pays for, stream by stream."""
    whose = _places(schedule, record)
    for event in run.events:
        piece, start = whose[event.micro_batch % len(whose)][event.stage, event.chunk], event.start
        for stream, seconds in pieces[event.kind].items():
            length = float(seconds[piece])
            if length > 0.0:
                yield _complete(event.stage, stream, start, length, name=_name(event), args=_args(event))
            start += length


def _places(schedule: Schedule, record: StrategyRecord) -> list[dict[tuple[int, int], tuple[int, int]]]:
    """For every path, whose piece (its place on the first path) runs at a stage and chunk."""
    paths: tuple[Path, ...] = schedule.paths(record.pp, record.vpp)
    return [dict(zip(path, paths[0], strict=True)) for path in paths]


def _name(event: Event) -> str:
    return f"{event.kind}{event.micro_batch}" + (f".{event.chunk}" if event.chunk else "")


def _args(event: Event) -> dict[str, Any]:
    return {"micro-batch": event.micro_batch, "chunk": event.chunk, "pass": _WORDS[event.kind]}


def _tail(stage: int, start: float, row: Strategies, priced: Price, scenario: Scenario) -> Iterator[dict[str, Any]]:
    """What happens once, behind the pipeline: the slowest node, gradients, the optimizer, parameters, the host."""
    seconds = priced.seconds
    traffic = step_traffic(row, scenario, seconds.window, seconds.kinds, seconds.paired, seconds.repeated_window)
    steps: tuple[tuple[str, str, Floats], ...] = (
        ("host", "wait for the slowest node", start * seconds.straggler),
        ("dp", "reduce gradients", traffic.gradients + traffic.tied),
        ("compute", "optimizer", seconds.optimizer),
        ("offload", "step and states on the host", seconds.offload),
        ("dp", "gather parameters", traffic.parameters),
        ("host", "data and bookkeeping", seconds.overhead),
    )
    for stream, name, length in steps:
        if length[0] > 0.0:
            yield _complete(stage, stream, start, float(length[0]), name=name, args={"pass": "once"})
        start += float(length[0])


def _flows(run: Simulation, pieces: Pieces, schedule: Schedule, record: StrategyRecord) -> Iterator[dict[str, Any]]:
    """Arrows from a pass to the one on another stage that takes its output, from computation to computation."""
    at = {(e.kind, e.micro_batch, e.stage, e.chunk): e for e in run.events}
    paths, whose = schedule.paths(record.pp, record.vpp), _places(schedule, record)

    def end(event: Event, phase: str) -> dict[str, Any]:
        piece = whose[event.micro_batch % len(whose)][event.stage, event.chunk]
        middle = event.start + float(pieces[event.kind]["compute"][piece]) / 2
        where = {"pid": event.stage, "tid": STREAMS.index("compute"), "ts": middle * _MICRO}
        return {"name": "send", "cat": "p2p", "ph": phase, **where}

    for number, event in enumerate(run.events):
        path = paths[event.micro_batch % len(paths)]
        k = path.index((event.stage, event.chunk)) + {"F": 1, "B": -1, "W": len(path)}[event.kind]
        if 0 <= k < len(path) and path[k][0] != event.stage:
            after = at[event.kind, event.micro_batch, *path[k]]
            yield end(event, "s") | {"id": number}
            yield end(after, "f") | {"id": number, "bp": "e"}


def _complete(
    stage: int, stream: str, start: float, length: float, *, name: str, args: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "cat": stream,
        "ph": "X",
        "ts": start * _MICRO,
        "dur": length * _MICRO,
        "pid": stage,
        "tid": STREAMS.index(stream),
        "args": dict(args),
    }


def _names(record: StrategyRecord) -> Iterator[dict[str, Any]]:
    for stage, held in enumerate(record.stages):
        label = {"name": f"stage {stage}: {plural(held.layers, 'layer')}"}
        yield {"ph": "M", "name": "process_name", "pid": stage, "tid": 0, "args": label}
        yield {"ph": "M", "name": "process_sort_index", "pid": stage, "tid": 0, "args": {"sort_index": stage}}
        for tid, stream in enumerate(STREAMS):
            yield {"ph": "M", "name": "thread_name", "pid": stage, "tid": tid, "args": {"name": stream}}
            yield {"ph": "M", "name": "thread_sort_index", "pid": stage, "tid": tid, "args": {"sort_index": tid}}


# What every piece of a model costs in every pass, stream by stream: the price of a plan, taken apart for drawing.

STREAMS: Final = ("compute", "tp", "cp", "ep", "p2p", "dp", "offload", "host")
"""Threads of a stage, in the order in which they are drawn."""
KINDS: Final = ("F", "B", "W")

Pieces = Mapping[str, Mapping[str, Floats]]
"""Seconds by kind of pass and by stream, arrays (p, v): pieces by their place on the schedule's first path."""


class _Part(NamedTuple):
    """The layers of one kind: their passes, what an iteration reads of them, and how many are where, (p, v)."""

    passes: LayerSeconds
    terms: LayerTerms | RowSeconds
    held: Floats
    again: Floats


def pieces_of(one: Strategies, split: Assignment, scenario: Scenario, schedule: Schedule) -> Pieces:
    """Seconds of every pass of every piece of one row's model; together they are the stages' seconds.

    A stage's layers, of each kind, are spread evenly over its chunks, but for those whose places the ends take. The
    embedding is part of the first piece, the head and layers that predict further tokens of the last, both as
    computation.
    """
    p, v = int(one.pp[0]), int(one.vpp[0])
    seconds, apart = row_seconds(one, scenario), schedule.splits_backward
    parts = _parts(one, split, scenario, seconds)
    pieces = {
        "F": _summed(_forward(part) for part in parts),
        "B": _summed(_backward(part, apart=apart) for part in parts),
        "W": {"compute": sum((part.held * part.terms.weight[0] for part in parts if apart), np.zeros((p, v)))},
    }
    first, last = schedule.paths(p, v)[0][0], schedule.paths(p, v)[0][-1]
    ends = (
        (first, embedding_seconds(one, scenario) + tower_seconds(one, scenario), seconds.embedding),
        (last, head_seconds(one, scenario), seconds.head),
    )
    for kind in ("F", "B"):
        for place, passes, whole in ends:
            share = _share(passes, kind)
            pieces[kind]["compute"][place] += share * whole[0]
            pieces[kind]["compute"] += share * _spread_part(passes, ends, seconds) / v
        pieces[kind]["p2p"] = seconds.send[0] / (2 * v) * _neighbours(schedule.paths(p, v)[0], (p, v))
        pieces[kind]["host"] += seconds.host[0] / (2 * v)
    return pieces


def _parts(one: Strategies, split: Assignment, scenario: Scenario, seconds: RowSeconds) -> list[_Part]:
    """The layers kind by kind, average ones where stages mirror each other, as they are priced."""
    held, again = (_chunks(layers, one, scenario) for layers in (split.layers, split.recomputed))
    if seconds.kinds is None or copies(one)[0] > 1:
        return [_Part(layer_seconds(one, scenario), seconds, held, again)]
    shares = held / np.maximum(held.sum(axis=1, keepdims=True), 1.0)
    by_kind = (
        layers.T[:, :, None] * shares
        for layers in stage_layers(one, seconds.kinds.depth, split.layers, split.recomputed)
    )
    each = zip(seconds.kinds.depth.kinds, seconds.kinds.parts, *by_kind, strict=True)
    return [_Part(kind_seconds(one, scenario, kind), terms, *counts) for kind, terms, *counts in each]


def _summed(parts: Iterable[Mapping[str, Floats]]) -> dict[str, Floats]:
    """Stream by stream."""
    total: dict[str, Floats] = {}
    for stream, seconds in chain.from_iterable(part.items() for part in parts):
        total[stream] = total[stream] + seconds if stream in total else seconds
    return total


def _neighbours(path: Sequence[tuple[int, int]], shape: tuple[int, int]) -> Floats:
    """Of the two messages of a pass, the share that goes to or comes from another stage, by piece."""
    share = np.zeros(shape)
    for one, other in pairwise(path):
        if one[0] != other[0]:
            share[one] += 0.5
            share[other] += 0.5
    return share


def _chunks(held: Ints, one: Strategies, scenario: Scenario) -> Floats:
    """Layers of every chunk, (p, v)."""
    v, (embedding, head) = int(one.vpp[0]), end_places(scenario.model.num_layers, one)
    places = held.astype(np.float64)
    places[0] += embedding[0] * (held[0] > 0)
    places[-1] += head[0] * (held[-1] > 0)
    chunks = np.repeat(places[:, None] / v, v, axis=1)
    chunks[0, 0] -= embedding[0] * (held[0] > 0)
    chunks[-1, -1] -= head[0] * (held[-1] > 0)
    return chunks


def _forward(part: _Part) -> dict[str, Floats]:
    layer, terms, held = part.passes, part.terms, part.held
    return {
        "compute": held * (layer.compute.forward[0] - layer.launch.forward[0]),
        "tp": held * layer.tp.forward[0],
        "cp": held * layer.cp.forward[0],
        "ep": held * terms.layer_ep[0] / 2,
        "offload": held * terms.layer_offload[0] / 2,
        "host": held * layer.launch.forward[0],
    }


def _backward(part: _Part, *, apart: bool) -> dict[str, Floats]:
    """A recomputed layer's second forward pass comes on top; ``apart`` takes the weight gradients out."""
    layer, terms, held, again = part
    own = layer.compute.backward[0] - layer.launch.backward[0] + terms.selective[0]
    own -= terms.weight[0] if apart else 0.0
    return {
        "compute": held * own + again * (terms.recompute[0] - layer.alone.forward[0]),
        "tp": held * layer.tp.backward[0] + again * layer.tp.forward[0],
        "cp": held * layer.cp.backward[0] + again * layer.cp.forward[0],
        "ep": held * terms.layer_ep[0] / 2 + again * layer.ep_alone.forward[0],
        "offload": held * terms.layer_offload[0] / 2,
        "host": held * layer.launch.backward[0],
    }


def _share(passes: Passes, kind: str) -> float:
    """The part of an end's seconds that its forward or its backward pass takes."""
    whole = float(passes.forward[0] + passes.backward[0])
    return float(passes.forward[0] if kind == "F" else passes.backward[0]) / whole


def _spread_part(
    passes: Passes, ends: tuple[tuple[tuple[int, int], Passes, Floats], ...], seconds: RowSeconds
) -> float:
    """What an end adds to every stage where the vocabulary is split over them."""
    both = sum(float(end.forward[0] + end.backward[0]) for _, end, _ in ends)
    return float(seconds.vocabulary_spread[0] * (passes.forward[0] + passes.backward[0])) / both
