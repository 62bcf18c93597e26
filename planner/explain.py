"""Reasons in words and numbers: runners-up, why not, what would help, the nearest request that works."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from costmodels.flops import utilization
from costmodels.memory import memory_limit
from costmodels.offload import described
from costmodels.parameters import parameters
from costmodels.pricing import Quote, iteration_seconds, quote, stage_bytes
from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Recompute, Strategies
from hardware.records import Accelerator
from hardware.units import format_quantity
from planner.assemble import counted_flops, strategy_record
from planner.document import Advice, Alternative, Plan, Strategy
from planner.landmarks import Landmark, landmarks
from planner.levers import arithmetic_times, device_times, links_times
from planner.measured import figures
from planner.pins import Pin
from planner.priced import Priced
from planner.request import Resolved
from planner.search import Outcome, promising, search
from planner.space import LARGEST_MICRO_BATCH, Space, build, divisors
from planner.splits import Incumbent, best_split

ALTERNATIVES_SECONDS = 1.0
"""How long runners-up are looked for."""
MOST_BATCHES = 512
"""Batch sizes on either side that are looked at for one with more divisors."""
NOTABLE = 0.0005
"""Relative change of the iteration below which something helps nothing."""

FULL_RECOMPUTE = "full recompute"
_KINDS = ("tp", "cp", "pp", "ep", "zero_stage", "recompute", "sequence_parallel", "schedule")


def alternatives(
    outcome: Outcome, tried: Sequence[Challenged], resolved: Resolved, chosen: Strategy, top: int
) -> tuple[Alternative, ...]:
    """The best that differ from the chosen strategy, and from each other, in kind; each under its best split.

    They come from the challenges that were searched and from the most promising rows that the search saw.
    """
    scenario, seen = resolved.scenario, {_kind(chosen)}
    assert outcome.best is not None
    fastest = iteration_seconds(outcome.best.row, scenario, outcome.best.assignment)
    found: list[Alternative] = []

    def add(solved: Incumbent) -> None:
        record = strategy_record(solved.row, solved.assignment, scenario)
        if _kind(record) not in seen:
            found.append(_alternative(record, solved, scenario, chosen, fastest))
        seen.update((_kind(record), _row_kind(solved.row)))

    searched = (outcome.best, *(c.outcome.best for c in tried))
    for known in sorted((best for best in searched if best), key=lambda best: best.iteration):
        add(known)
    deadline = time.perf_counter() + ALTERNATIVES_SECONDS
    for bound, row in promising(outcome, scenario):
        if time.perf_counter() > deadline or _settled(found, top, bound):
            break
        if _row_kind(row) not in seen and (solved := best_split(row, scenario, deadline=deadline)):
            add(solved)
    return tuple(sorted(found, key=lambda other: other.iteration_seconds)[:top])


def _settled(found: list[Alternative], top: int, bound: float) -> bool:
    """Whether no later row, none of them faster than ``bound``, can be among the best ``top``."""
    times = sorted(other.iteration_seconds for other in found)
    return len(times) >= top and (top == 0 or bound >= times[top - 1])


def _alternative(
    record: Strategy, solved: Incumbent, scenario: Scenario, chosen: Strategy, fastest: float
) -> Alternative:
    flops, seconds = counted_flops(scenario) * scenario.tokens, solved.iteration
    peak = scenario.peak_rate
    differs = [
        name
        for name in (*_KINDS, "cp_kind", "vpp", "micro_batch_size")
        if getattr(record, name) != getattr(chosen, name)
    ]
    return Alternative(
        strategy=record,
        iteration_seconds=seconds,
        mfu=utilization(flops=flops, seconds=seconds, gpus=scenario.gpus, peak=peak),
        peak_memory_bytes=float(np.max(stage_bytes(solved.row, scenario, solved.assignment).total)),
        differs=", ".join(f"{name} {getattr(record, name)}" for name in differs),
        tied=seconds <= fastest * (1.0 + figures().tie),
    )


def _kind(record: Strategy) -> tuple[object, ...]:
    return (record.tp, record.cp, record.pp, record.ep, record.recompute == "none", record.zero_stage >= 2)


def _row_kind(row: Strategies) -> tuple[object, ...]:
    """The kind of a row before its recomputed layers are known: "partial" stands apart from none and all."""
    at = row.row(0)
    return (at["tp"], at["cp"], at["pp"], at["ep"], Recompute(at["recompute"]).name, at["zero_stage"] >= 2)


@dataclass(frozen=True, slots=True)
class _Challenge:
    """Another choice that people would try, and which cores it stands for."""

    subject: str
    keep: Callable[[Strategies], Bools]


def _challenges(best: Incumbent) -> list[_Challenge]:
    at = best.row.row(0)
    tp, pp = at["tp"], at["pp"]
    recompute = _Challenge(FULL_RECOMPUTE, lambda c: c.recompute == Recompute.FULL)
    if best.assignment.recomputed.any():
        recompute = _Challenge("no recompute", lambda c: c.recompute == Recompute.NONE)
    choices = (
        _Challenge(f"TP {2 * tp}", lambda c: c.tp == 2 * tp),
        _Challenge(f"TP {max(tp // 2, 1)}", lambda c: c.tp == tp // 2),
        _Challenge("PP 1", lambda c: (c.pp == 1) if pp > 1 else c.pp < 0),
        _Challenge(f"PP {2 * pp}", lambda c: c.pp == 2 * pp),
        _Challenge("no interleaving", lambda c: (c.vpp == 1) & (c.pp > 1) if at["vpp"] > 1 else c.pp < 0),
        recompute,
        _Challenge("CP 2", lambda c: (c.cp == 2) if at["cp"] == 1 else c.pp < 0),
        _Challenge("pure data parallel", lambda c: (c.tp == 1) & (c.pp == 1) & (c.cp == 1)),
    )
    return [choice for choice in choices if not choice.keep(best.row).all()]


class Challenged(NamedTuple):
    """Another choice, and what the search for the best strategy of its kind found."""

    subject: str
    outcome: Outcome


def challenges(
    space: Space, scenario: Scenario, best: Incumbent, seen: Sequence[Priced], *, deadline: float
) -> list[Challenged]:
    """The obvious other choices, each searched as the best one was, by what that search has seen of it."""
    whole = _whole_layers(space)
    found = []
    for challenge in _challenges(best):
        tried = whole if challenge.subject == FULL_RECOMPUTE else space
        among = np.flatnonzero(challenge.keep(tried.cores))
        before = [part.take(challenge.keep(part.rows)) for part in seen]
        outcome = search(tried, scenario, deadline=deadline, among=among, beside=1.0, seen=before, confirm=False)
        found.append(Challenged(challenge.subject, outcome))
    return found


def why_not_lines(tried: Sequence[Challenged], space: Space, scenario: Scenario, priced: Quote) -> tuple[Advice, ...]:
    """What the other choices would cost, each with its number, or what refuses them."""
    lines = []
    for subject, outcome in tried:
        if outcome.best is not None:
            text, seconds = _slower(outcome.best, scenario, priced), outcome.best.iteration
            lines.append(Advice(subject=subject, text=text, iteration_seconds=seconds))
        elif outcome.nearest and outcome.proved:
            lines.append(Advice(subject=subject, text=_too_big(outcome.nearest[0], scenario)))
        elif refused := _refused(space, subject, scenario):
            lines.append(Advice(subject=subject, text=refused))
    return tuple(lines)


def _whole_layers(space: Space) -> Space:
    """The cores that recompute whole layers, where what may recompute some recomputes all of them; made once."""
    return space.cores.once("whole layers", lambda: _all_recomputed(space))


def _all_recomputed(space: Space) -> Space:
    kept = np.flatnonzero(space.cores.recompute >= Recompute.FULL)
    cores = space.cores.take(kept)
    cores = replace(cores, recompute=np.full(len(kept), int(Recompute.FULL), dtype=np.int64))
    return replace(space, cores=cores, layout=space.layout[kept], allowed=space.allowed[kept])


def _slower(other: Incumbent, scenario: Scenario, best: Quote) -> str:
    theirs = quote(other.row, scenario, other.assignment)
    growth = theirs.iteration / best.iteration - 1
    worse = sorted(((theirs.breakdown[name] - best.breakdown[name], name) for name in best.breakdown), reverse=True)
    terms = ", ".join(
        f"{name} {told_seconds(best.breakdown[name])} -> {told_seconds(theirs.breakdown[name])}"
        for gain, name in worse[:2]
        if gain > NOTABLE * best.iteration
    )
    return f"{told_seconds(theirs.iteration)} ({growth:+.1%}): {terms or 'a tie within the model'}"


def _too_big(needed: float, scenario: Scenario) -> str:
    limit = scenario.group.accelerator.usable_memory
    return f"needs at least {_gib(needed)} per GPU, evenly split; {_gib(limit)} available"


def _refused(space: Space, subject: str, scenario: Scenario) -> str:
    """The rule behind a choice that never reached pricing, for the two that matter most."""
    if subject == "pure data parallel" and scenario.gpus > scenario.global_batch_size:
        batch = scenario.global_batch_size
        return f"{scenario.gpus} replicas, but only {batch} sequence{'s' if batch > 1 else ''} per batch"
    if subject.startswith("TP "):
        heads = next((r for r in space.refusals if r.rule == "heads"), None)
        size = int(subject.split()[1])
        if heads and scenario.model.num_heads % size:
            return f"does not divide {scenario.model.num_heads} attention heads"
    return ""


def memory_example(outcome: Outcome, scenario: Scenario) -> str:
    """One strategy that memory refused, in words: the one that came nearest to fitting."""
    if outcome.nearest is None:
        return f"more than {_gib(scenario.group.accelerator.usable_memory)} per GPU"
    needed, row = outcome.nearest
    at = row.row(0)
    limit = scenario.group.accelerator.usable_memory
    name = f"tp {at['tp']} cp {at['cp']} pp {at['pp']} dp {at['dp']} ZeRO-{at['zero_stage']}"
    told = f"{name} needs {_gib(needed)} per GPU, {_gib(limit)} available"
    if scenario.stack.offloads and not described(scenario):
        told += "; nothing can be offloaded: the cluster says no host_memory, host_link or host_bandwidth"
    return told


def what_helps(
    space: Space, scenario: Scenario, best: Incumbent, priced: Quote, *, pins: Mapping[str, Pin], deadline: float
) -> tuple[Advice, ...]:
    """What the same strategy would gain from better machines or a larger batch, most useful first.

    Memory, and a batch with more divisors, help by letting in another strategy, so that one is searched.
    """
    changes = {
        "network 2x": links_times(scenario, 2.0, inner=False),
        "node links 2x": links_times(scenario, 2.0, inner=True),
        "memory bandwidth 2x": device_times(scenario, memory_bandwidth=2.0),
        "arithmetic 1.25x": arithmetic_times(scenario, 1.25),
    }
    lines = []
    for subject, changed in changes.items():
        seconds = iteration_seconds(best.row, changed, best.assignment)
        lines.append(gained(subject, seconds, priced.iteration))
    lines.append(_more_memory(space, scenario, priced.iteration, deadline))
    lines.append(_larger_batch(scenario, best, priced.iteration))
    lines.extend(_rounder_batch(scenario, priced.iteration, pins, deadline))
    return tuple(sorted(lines, key=lambda line: line.iteration_seconds or math.inf))


def gained(subject: str, seconds: float, now: float) -> Advice:
    """What a change saves of an iteration of ``now`` seconds; nothing where it makes it longer."""
    share = seconds / now - 1
    text = "nothing" if share > -NOTABLE else f"{told_seconds(seconds - now)} ({share:+.1%})"
    return Advice(subject=subject, text=text, iteration_seconds=min(seconds, now))


def _more_memory(space: Space, scenario: Scenario, now: float, deadline: float) -> Advice:
    """The best strategy that twice the memory would let in."""
    found = search(space, device_times(scenario, usable_memory=2.0), deadline=deadline, beside=1.0, confirm=False).best
    return gained("memory 2x", min(found.iteration, now) if found else now, now)


def _larger_batch(scenario: Scenario, best: Incumbent, now: float) -> Advice:
    """Twice the batch through the same strategy, per sequence."""
    double = replace(scenario, global_batch_size=2 * scenario.global_batch_size)
    rows = replace(best.row, num_microbatches=2 * best.row.num_microbatches)
    return gained("batch 2x", iteration_seconds(rows, double, best.assignment) / 2, now)


def _rounder_batch(scenario: Scenario, now: float, pins: Mapping[str, Pin], deadline: float) -> list[Advice]:
    """A batch within 1 % that has far more divisors, hence more ways to split it, per sequence."""
    batch = scenario.global_batch_size
    reach = min(batch // 100, MOST_BATCHES)
    near = range(max(batch - reach, 1), batch + reach + 1)
    useful = scenario.gpus * LARGEST_MICRO_BATCH
    ways = {size: len(divisors(math.gcd(size, useful))) for size in near}
    rounder = max(near, key=lambda size: (ways[size], -abs(size - batch)))
    if ways[rounder] < 2 * ways[batch]:
        return []
    other = replace(scenario, global_batch_size=rounder)
    found = search(build(other, pins), other, deadline=deadline).best
    gain = gained(f"batch {rounder}", found.iteration * batch / rounder if found else now, now)
    return [] if gain.text == "nothing" else [gain]


def closest_run(scenario: Scenario) -> str | None:
    """The published run nearest in machine, size and scale."""
    billions, device = parameters(scenario.model) / 1e9, scenario.group.accelerator

    def distance(run: Landmark) -> float:
        apart = abs(math.log(billions / run.billions)) + 0.5 * abs(math.log(scenario.gpus / run.gpus))
        return apart + _other_machine(device, run) + (0.2 if run.precision not in {"", scenario.precision} else 0.0)

    run = min(landmarks(), key=distance)
    precision = f", {run.precision}" if run.precision else ""
    where = f"{run.gpus:,} {run.accelerator}{precision}"
    return f"{run.model} ({run.size}) on {where}: {run.result} ({run.source})"


def _other_machine(device: Accelerator, run: Landmark) -> float:
    """How far the run's accelerator is from the asked one, in factors of e of the model size."""
    if run.accelerator == device.name:
        return 0.0
    if run.family == f"{device.vendor} {device.architecture}":
        return 1.5
    return 3.0 if run.family.startswith(f"{device.vendor} ") else 5.0


WITHOUT = " (nothing fits without)"
"""End of the remark that something that saves memory was not asked for."""


def verdict(pinned: Plan, best: Plan, terms: dict[str, tuple[float, float]]) -> str:
    """One sentence that answers "why not"."""
    if pinned.prediction is None or not pinned.fits:
        reasons = "; ".join(r.example for r in pinned.rejected[:2])
        return f"it cannot run: {reasons}"
    if best.prediction is None:
        return "nothing else runs either"
    spared = next((said.removesuffix(WITHOUT) for said in pinned.defaults if said.endswith(WITHOUT)), "")
    return (f"it fits only with {spared}: " if spared else "") + _compared(pinned, best, terms)


def _compared(pinned: Plan, best: Plan, terms: dict[str, tuple[float, float]]) -> str:
    assert pinned.prediction is not None
    assert best.prediction is not None
    mine, theirs = pinned.prediction.iteration_seconds, best.prediction.iteration_seconds
    if mine <= theirs * (1 + NOTABLE):
        return f"nothing speaks against it: {told_seconds(mine)}, the best takes {told_seconds(theirs)}"
    name = max(terms, key=lambda term: terms[term][0] - terms[term][1])
    this, other = terms[name]
    return (
        f"it takes {told_seconds(mine)}, {mine / theirs - 1:.1%} longer than {told_seconds(theirs)}; "
        f"most of it is {name}: {told_seconds(this)} against {told_seconds(other)}"
    )


def told_seconds(value: float) -> str:
    """Seconds as a sentence says them."""
    if value == 0:
        return "0 s"
    if 1.0 <= abs(value) < 1000.0:  # beside other seconds, minutes are hard to compare
        return f"{value:.3g} s"
    return format_quantity(value, "time") if value > 0 else f"-{format_quantity(-value, 'time')}"


def _gib(value: float) -> str:
    return f"{value / 2**30:.1f} GiB"


__all__ = [
    "alternatives",
    "challenges",
    "closest_run",
    "memory_example",
    "memory_limit",
    "verdict",
    "what_helps",
    "why_not_lines",
]
