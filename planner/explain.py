"""Reasons in words and numbers: runners-up, why not, what would help, the nearest request that works."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from costmodels.memory import memory_limit
from costmodels.parameters import parameters
from costmodels.pricing import Quote, quote, row_assignment
from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Recompute, Strategies
from hardware.records import BadNodeCount, NodeGroup, Tier
from hardware.units import format_quantity
from planner.assemble import strategy_record
from planner.document import Advice, Alternative, Plan, Strategy
from planner.landmarks import LANDMARKS
from planner.request import Resolved
from planner.search import Incumbent, Outcome, Priced, best_where, core_bound, search
from planner.space import Space, around, build, divisors

NEAREST_SECONDS = 10.0
"""How long the nearest request that works is looked for."""
NOTABLE = 0.0005
"""Relative change of the iteration below which something helps nothing."""

_KINDS = ("tp", "cp", "pp", "ep", "zero_stage", "recompute", "sequence_parallel", "schedule")


def alternatives(outcome: Outcome, resolved: Resolved, chosen: Strategy, top: int) -> tuple[Alternative, ...]:
    """The best rows seen that differ from the chosen one, and from each other, in kind."""
    scenario, found = resolved.scenario, list[Alternative]()
    seen = {_kind(chosen)}
    for priced, i in _by_time(outcome):
        row = priced.rows.take(np.array([i]))
        split = row_assignment(row, scenario.model.num_layers)
        record = strategy_record(row, split, scenario)
        if len(found) >= top or _kind(record) in seen:
            if len(found) >= top:
                break
            continue
        seen.add(_kind(record))
        found.append(_alternative(record, priced, i, scenario, chosen))
    return tuple(found)


def _alternative(record: Strategy, priced: Priced, i: int, scenario: Scenario, chosen: Strategy) -> Alternative:
    from costmodels.flops import flops_per_token, utilization

    seconds = float(priced.even[i])
    flops = flops_per_token(scenario.model, seq_length=scenario.seq_length) * scenario.tokens
    peak = scenario.group.accelerator.peak_rate(scenario.precision)
    differs = [name for name in (*_KINDS, "vpp", "micro_batch_size") if getattr(record, name) != getattr(chosen, name)]
    return Alternative(
        strategy=record,
        iteration_seconds=seconds,
        mfu=utilization(flops=flops, seconds=seconds, gpus=scenario.gpus, peak=peak),
        peak_memory_bytes=float(priced.peak[i]) * (1 + scenario.stack.slack) + scenario.stack.reserved,
        differs=", ".join(f"{name} {getattr(record, name)}" for name in differs),
    )


def _kind(record: Strategy) -> tuple[object, ...]:
    return (record.tp, record.cp, record.pp, record.ep, record.recompute == "none", record.zero_stage >= 2)


def _by_time(outcome: Outcome) -> Iterator[tuple[Priced, int]]:
    """Fitting rows of the pool, fastest first."""
    places = [(part, i) for part in outcome.pool for i in _fastest_fitting(part)]
    places.sort(key=lambda place: float(place[0].even[place[1]]))
    return iter(places)


def _fastest_fitting(part: Priced, count: int = 512) -> list[int]:
    index = np.flatnonzero(part.fits)
    order = index[np.argsort(part.even[index], kind="stable")]
    return [int(i) for i in order[:count]]


@dataclass(frozen=True, slots=True)
class _Challenge:
    """Another choice that people would try, and which cores it stands for."""

    subject: str
    keep: Callable[[Strategies], Bools]


def _challenges(best: Incumbent) -> list[_Challenge]:
    at = best.row.row(0)
    tp, pp = at["tp"], at["pp"]
    asked = [
        _Challenge(f"TP {2 * tp}", lambda c: c.tp == 2 * tp),
        _Challenge(f"TP {max(tp // 2, 1)}", lambda c: c.tp == tp // 2),
        _Challenge("PP 1", lambda c: (c.pp == 1) if pp > 1 else c.pp < 0),
        _Challenge(f"PP {2 * pp}", lambda c: c.pp == 2 * pp),
        _Challenge("no interleaving", lambda c: (c.vpp == 1) & (c.pp > 1) if at["vpp"] > 1 else c.pp < 0),
        _Challenge("full recompute", lambda c: c.recompute == Recompute.FULL),
        _Challenge("CP 2", lambda c: (c.cp == 2) if at["cp"] == 1 else c.pp < 0),
        _Challenge("pure data parallel", lambda c: (c.tp == 1) & (c.pp == 1) & (c.cp == 1)),
    ]
    if at["recompute"] == Recompute.FULL and best.assignment.recomputed.any():
        asked[5] = _Challenge("no recompute", lambda c: c.recompute != Recompute.FULL)
    return asked


def why_not_lines(space: Space, scenario: Scenario, best: Incumbent, priced: Quote) -> tuple[Advice, ...]:
    """What the obvious other choices would cost, each with its number; the best of each kind, evenly split."""
    lines, bounds = [], core_bound(space.cores, scenario)
    for challenge in _challenges(best):
        fitting, leanest = best_where(space, scenario, challenge.keep, bounds)
        if fitting is not None:
            lines.append(_slower(challenge.subject, fitting, scenario, priced))
        elif leanest is not None:
            lines.append(Advice(subject=challenge.subject, text=_too_big(leanest, scenario)))
        elif refused := _refused(space, challenge.subject, scenario):
            lines.append(Advice(subject=challenge.subject, text=refused))
    return tuple(lines)


def _slower(subject: str, other: Priced, scenario: Scenario, best: Quote) -> Advice:
    row = other.rows
    split = row_assignment(row, scenario.model.num_layers)
    theirs = quote(row, scenario, split)
    growth = theirs.iteration / best.iteration - 1
    worse = sorted(((theirs.breakdown[name] - best.breakdown[name], name) for name in best.breakdown), reverse=True)
    terms = ", ".join(
        f"{name} {_seconds(best.breakdown[name])} -> {_seconds(theirs.breakdown[name])}"
        for gain, name in worse[:2]
        if gain > NOTABLE * best.iteration
    )
    text = f"{_seconds(theirs.iteration)} ({growth:+.1%}): {terms or 'a tie within the model'}"
    return Advice(subject=subject, text=text, iteration_seconds=theirs.iteration)


def _too_big(leanest: Priced, scenario: Scenario) -> str:
    needed = float(leanest.peak[0]) * (1 + scenario.stack.slack) + scenario.stack.reserved
    limit = scenario.group.accelerator.usable_memory
    return f"needs at least {_gib(needed)} per GPU, evenly split; {_gib(limit)} available"


def _refused(space: Space, subject: str, scenario: Scenario) -> str:
    """The rule behind a choice that never reached pricing, for the two that matter most."""
    if subject == "pure data parallel" and scenario.gpus > scenario.global_batch_size:
        return f"{scenario.gpus} replicas, but only {scenario.global_batch_size} sequences per batch"
    if subject.startswith("TP "):
        heads = next((r for r in space.refusals if r.rule == "heads"), None)
        size = int(subject.split()[1])
        if heads and scenario.model.num_heads % size:
            return f"does not divide {scenario.model.num_heads} attention heads"
    return ""


def memory_example(outcome: Outcome, scenario: Scenario) -> str:
    """One strategy that memory refused, in words: the one that came nearest to fitting."""
    parts = [
        (part, int(np.argmin(np.where(part.fits, np.inf, part.peak)))) for part in outcome.pool if not part.fits.all()
    ]
    if not parts:
        return f"more than {_gib(scenario.group.accelerator.usable_memory)} per GPU"
    part, i = min(parts, key=lambda place: float(place[0].peak[place[1]]))
    at = part.rows.row(i)
    needed = float(part.peak[i]) * (1 + scenario.stack.slack) + scenario.stack.reserved
    limit = scenario.group.accelerator.usable_memory
    name = f"tp {at['tp']} cp {at['cp']} pp {at['pp']} dp {at['dp']} ZeRO-{at['zero_stage']}"
    return f"{name} needs {_gib(needed)} per GPU, {_gib(limit)} available"


def what_helps(outcome: Outcome, scenario: Scenario, best: Incumbent, priced: Quote) -> tuple[Advice, ...]:
    """What the same strategy would gain from better machines or a larger batch, most useful first."""
    changes = {
        "network 2x": _faster_links(scenario, inner=False),
        "node links 2x": _faster_links(scenario, inner=True),
        "memory bandwidth 2x": _device(scenario, memory_bandwidth=2.0),
        "arithmetic 1.25x": _faster_arithmetic(scenario, 1.25),
    }
    lines = []
    for subject, changed in changes.items():
        seconds = quote(best.row, changed, best.assignment).iteration
        lines.append(_gain(subject, seconds, priced.iteration))
    lines.append(_more_memory(outcome, scenario, priced.iteration))
    lines.append(_larger_batch(scenario, best, priced.iteration))
    return tuple(sorted(lines, key=lambda line: line.iteration_seconds or math.inf))


def _gain(subject: str, seconds: float, now: float) -> Advice:
    share = seconds / now - 1
    text = "nothing" if share > -NOTABLE else f"{_seconds(seconds - now)} ({share:+.1%})"
    return Advice(subject=subject, text=text, iteration_seconds=min(seconds, now))


def _faster_links(scenario: Scenario, *, inner: bool) -> Scenario:
    def faster(tier: Tier) -> Tier:
        return tier.model_copy(update={"link": tier.link.model_copy(update={"bandwidth": 2 * tier.link.bandwidth})})

    tiers = scenario.group.tiers
    changed = (faster(tiers[0]), *tiers[1:]) if inner else (tiers[0], *map(faster, tiers[1:]))
    return replace(scenario, group=scenario.group.model_copy(update={"tiers": changed}))


def _device(scenario: Scenario, **factors: float) -> Scenario:
    device = scenario.group.accelerator
    update = {name: getattr(device, name) * factor for name, factor in factors.items()}
    return _with_device(scenario, scenario.group, update)


def _faster_arithmetic(scenario: Scenario, factor: float) -> Scenario:
    peak = {name: rate * factor for name, rate in scenario.group.accelerator.peak.items()}
    return _with_device(scenario, scenario.group, {"peak": peak})


def _with_device(scenario: Scenario, group: NodeGroup, update: dict[str, object]) -> Scenario:
    device = group.accelerator.model_copy(update=update)
    return replace(scenario, group=group.model_copy(update={"accelerator": device}))


def _more_memory(outcome: Outcome, scenario: Scenario, now: float) -> Advice:
    """The fastest even row that twice the memory would let in, among those that were priced."""
    limit = 2 * scenario.group.accelerator.usable_memory - scenario.stack.reserved
    limit = limit / (1 + scenario.stack.slack)
    best = min((float(part.even[part.peak <= limit].min(initial=math.inf)) for part in outcome.pool), default=now)
    return _gain("memory 2x", min(best, now), now)


def _larger_batch(scenario: Scenario, best: Incumbent, now: float) -> Advice:
    """Twice the batch through the same strategy, per sequence."""
    double = replace(scenario, global_batch_size=2 * scenario.global_batch_size)
    rows = replace(best.row, num_microbatches=2 * best.row.num_microbatches)
    return _gain("batch 2x", quote(rows, double, best.assignment).iteration / 2, now)


def closest_run(scenario: Scenario) -> str | None:
    """The published run nearest in size, scale and machine."""
    size, device = parameters(scenario.model), scenario.group.accelerator.name

    def distance(run: tuple[str, float, int, str, str]) -> float:
        _, billions, gpus, accelerator, _ = run
        apart = abs(math.log(size / 1e9 / billions)) + 0.5 * abs(math.log(scenario.gpus / gpus))
        return apart + (0.0 if accelerator == device else 1.0 if accelerator[:4] == device[:4] else 2.0)

    name, billions, gpus, accelerator, result = min(LANDMARKS, key=distance)
    return f"{billions:g}B on {gpus:,} {accelerator}: {result} ({name})"


def nearest(resolved: Resolved) -> Advice | None:
    """The nearest request that works: the same without its pins, else on more GPUs."""
    scenario = resolved.scenario
    deadline = time.perf_counter() + NEAREST_SECONDS
    if resolved.request.pins:
        outcome = search(build(scenario, {}), scenario, deadline=deadline)
        if outcome.best:
            at = outcome.best.row.row(0)
            words = " ".join(f"{name} {at[name]}" for name in ("tp", "cp", "pp", "dp"))
            return Advice(subject="without the pins", text=words, iteration_seconds=outcome.best.iteration)
    for larger in _larger(resolved):
        outcome = search(build(larger, {}), larger, deadline=deadline)
        if outcome.best:
            seconds = outcome.best.iteration
            return Advice(subject=f"{larger.gpus} GPUs", text="the same request fits", iteration_seconds=seconds)
    return None


def _larger(resolved: Resolved) -> Iterator[Scenario]:
    """The same question on 2, 4, ... 64 times the GPUs, in whole nodes."""
    for times in (2, 4, 8, 16, 32, 64):
        gpus = resolved.scenario.gpus * times
        try:
            group = resolved.machines.with_gpus(gpus).groups[0]
        except BadNodeCount:
            continue
        yield replace(resolved.scenario, gpus=gpus, group=group)


def nearest_divisor(number: int, wanted: int) -> str:
    """The divisors of ``number`` on either side of ``wanted``, as the end of a sentence."""
    return around(divisors(number), wanted)


def nearest_multiple(number: int, step: int) -> int:
    """The multiple of ``step`` nearest to ``number``, at least one step."""
    return max(round(number / step), 1) * step


def verdict(pinned: Plan, best: Plan, terms: dict[str, tuple[float, float]]) -> str:
    """One sentence that answers "why not"."""
    if pinned.prediction is None:
        reasons = "; ".join(r.example for r in pinned.rejected[:2])
        return f"it cannot run: {reasons}"
    if best.prediction is None:
        return "nothing else runs either"
    mine, theirs = pinned.prediction.iteration_seconds, best.prediction.iteration_seconds
    if mine <= theirs * (1 + NOTABLE):
        return f"nothing speaks against it: {_seconds(mine)}, the best takes {_seconds(theirs)}"
    name = max(terms, key=lambda term: terms[term][0] - terms[term][1])
    this, other = terms[name]
    return (
        f"it takes {_seconds(mine)}, {mine / theirs - 1:.1%} longer than {_seconds(theirs)}; "
        f"most of it is {name}: {_seconds(this)} against {_seconds(other)}"
    )


def _seconds(value: float) -> str:
    if value == 0:
        return "0 s"
    return format_quantity(value, "time") if value > 0 else f"-{format_quantity(-value, 'time')}"


def _gib(value: float) -> str:
    return f"{value / 2**30:.1f} GiB"


__all__ = [
    "alternatives",
    "closest_run",
    "memory_example",
    "memory_limit",
    "nearest",
    "verdict",
    "what_helps",
    "why_not_lines",
]
