"""One iteration of a plan as Chrome trace events, for Perfetto: a process per stage, a thread per stream.

The passes are those of the event simulation, with the seconds that the price has for them. What overlaps is not
drawn twice: a communication stream shows the part that lengthens the iteration, where its pass pays for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from costmodels.iteration import RowSeconds
from costmodels.layout.split import Assignment
from costmodels.node_groups import AnyScenario, Mixed, MixedStrategies, mixed_seconds, parts_of, price, steps_of_groups
from costmodels.pipeline.schedules import SCHEDULES, Schedule
from costmodels.pipeline.slots import Path
from costmodels.pricing import Price
from costmodels.step.traffic import StepTraffic, step_traffic
from costmodels.strategy import Floats, Strategies
from planner.answer.load import stages_from_plan
from planner.answer.plan import Plan
from planner.answer.plan import Strategy as StrategyRecord
from planner.answer.text import plural, why_infeasible
from planner.errors import BadRequest
from planner.render.by_group import strategy_on
from planner.render.pass_seconds import KINDS, Pieces, pieces_of
from planner.request.request import PlanRequest
from planner.request.resolve import resolve
from planner.verify.simulate import Event, Simulation, simulate

LARGEST_TRACE: Final = 20_000
"""Passes that are drawn unless more are asked for."""
MOST_PASSES: Final = 400_000
"""Passes that are drawn at most: about 200 MB of JSON."""
AGREEMENT: Final = 1e-6
"""Relative difference up to which an answer's iteration time is this version's."""
STREAMS: Final = ("compute", "tp", "cp", "ep", "p2p", "dp", "offload", "host")
"""Threads of a stage, in the order in which they are drawn."""
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


def trace(plan: Plan, micro_batches: int | None = None, largest: int = LARGEST_TRACE, *, arrows: bool = True) -> Trace:
    """The timeline of a plan's strategy, from its own document.

    Args:
        plan: an answer with a strategy.
        micro_batches: how many to draw; unless given all, or as many as make ``largest`` passes.
        largest: passes to draw unless more micro-batches are asked for.
        arrows: whether to draw what goes from a pass to the next stage.

    Raises:
        BadRequest: the answer has no strategy, was priced otherwise, or cannot run so many micro-batches.
    """
    if plan.strategy is None or plan.prediction is None:
        raise BadRequest(f"the answer is {plan.status} and has no strategy to trace: {why_infeasible(plan)}")
    question, split = resolve(PlanRequest(**plan.request)).question, stages_from_plan(plan.strategy)
    record, row = plan.strategy, strategy_on(plan.strategy, question)
    _check_same(price(row, question, split).iteration, plan)
    drawn = _drawn(SCHEDULES[record.schedule], record, micro_batches, largest)
    some = strategy_on(record.model_copy(update={"num_microbatches": drawn}), question)
    return _trace(record, some, split, question, arrows=arrows)


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


def _trace(record: StrategyRecord, row: Strategies, split: Assignment, question: AnyScenario, *, arrows: bool) -> Trace:
    priced, schedule = price(row, question, split), SCHEDULES[record.schedule]
    pieces = pieces_of(row, split, question, schedule)
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
    early = parts_of(question)[0].stack.pipeline.post_validation
    ends = [max(e.end for e in run.events if e.stage == s) if early else run.makespan for s in range(record.pp)]
    events = [
        *_passes(run, pieces, schedule, record),
        *(event for s, once in enumerate(_once(row, priced, question)) for event in _tail(s, ends[s], *once)),
    ]
    flows = _flows(run, pieces, schedule, record) if arrows and len(run.events) <= LARGEST_TRACE else ()
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
                name = f"{event.kind}{event.micro_batch}" + (f".{event.chunk}" if event.chunk else "")
                args = {"micro-batch": event.micro_batch, "chunk": event.chunk, "pass": _WORDS[event.kind]}
                yield _complete(event.stage, stream, start, length, name=name, args=args)
            start += length


def _places(schedule: Schedule, record: StrategyRecord) -> list[dict[tuple[int, int], tuple[int, int]]]:
    """For every path, whose piece (its place on the first path) runs at a stage and chunk."""
    paths: tuple[Path, ...] = schedule.paths(record.pp, record.vpp)
    return [dict(zip(path, paths[0], strict=True)) for path in paths]


def _once(row: Strategies, priced: Price, question: AnyScenario) -> list[tuple[RowSeconds, StepTraffic, Floats]]:
    """What happens once, of every stage: seconds of its node group, its traffic and its optimizer."""
    if isinstance(row, MixedStrategies) and isinstance(question, Mixed):
        groups = mixed_seconds(row, question).groups
        steps = steps_of_groups(row, question, groups)
        return [(groups[at], *steps[at]) for at in row.group_at()[0].tolist()]
    seconds = priced.seconds
    windows = (seconds.window, seconds.kinds, seconds.paired, seconds.repeated_window)
    return [(seconds, step_traffic(row, parts_of(question)[0], *windows), seconds.optimizer)] * int(row.pp[0])


def _tail(
    stage: int, start: float, seconds: RowSeconds, traffic: StepTraffic, optimizer: Floats
) -> Iterator[dict[str, Any]]:
    """What happens once, behind the pipeline: the slowest node, gradients, the optimizer, parameters, the host."""
    steps: tuple[tuple[str, str, Floats], ...] = (
        ("host", "wait for the slowest node", start * seconds.straggler),
        ("dp", "reduce gradients", traffic.gradients + traffic.tied),
        ("compute", "optimizer", optimizer),
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
    several = len({held.group for held in record.stages}) > 1
    for stage, held in enumerate(record.stages):
        where = f" on {held.group}" if several else ""
        label = {"name": f"stage {stage}: {plural(held.layers, 'layer')}{where}"}
        yield {"ph": "M", "name": "process_name", "pid": stage, "tid": 0, "args": label}
        yield {"ph": "M", "name": "process_sort_index", "pid": stage, "tid": 0, "args": {"sort_index": stage}}
        for tid, stream in enumerate(STREAMS):
            yield {"ph": "M", "name": "thread_name", "pid": stage, "tid": tid, "args": {"name": stream}}
            yield {"ph": "M", "name": "thread_sort_index", "pid": stage, "tid": tid, "args": {"sort_index": tid}}
