"""Why not something else: other choices that people would try, each searched as the plan was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodels.names import Recompute
from costmodels.pricing import price_strategy
from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Strategies
from planner.answer.plan import Advice
from planner.answer.text import NOT_KNOWN, NOTABLE, told_bytes, told_seconds
from planner.errors import BadRequest
from planner.request.pins import Pin
from planner.search.best_first import Outcome
from planner.search.objective import Aim
from planner.search.priced import Priced
from planner.search.split import Incumbent
from planner.space.lattice import Space, build

FULL_RECOMPUTE = "full recompute"

MEMORY = ("weights", "gradients", "optimizer", "activations", "logits")
"""What the fullest device holds, as a comparison of memory names it."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """Another choice that people would try, and which strategies it stands for."""

    subject: str
    keep: Callable[[Strategies], Bools]


@dataclass(frozen=True, slots=True)
class Challenged:
    """Another choice, and what the search for the best strategy of its kind found."""

    challenge: Challenge
    outcome: Outcome


def _challenges(best: Incumbent) -> list[Challenge]:
    at = best.row.row(0)
    tp, pp = at["tp"], at["pp"]
    recompute = Challenge(FULL_RECOMPUTE, lambda c: c.recompute == Recompute.FULL)
    if best.assignment.recomputed.any():
        recompute = Challenge("no recompute", lambda c: c.recompute == Recompute.NONE)
    choices = (
        Challenge(f"TP {2 * tp}", lambda c: c.tp == 2 * tp),
        Challenge(f"TP {max(tp // 2, 1)}", lambda c: c.tp == tp // 2),
        Challenge("PP 1", lambda c: (c.pp == 1) if pp > 1 else c.pp < 0),
        Challenge(f"PP {2 * pp}", lambda c: c.pp == 2 * pp),
        Challenge("no interleaving", lambda c: (c.vpp == 1) if at["vpp"] > 1 else c.pp < 0),
        recompute,
        Challenge("CP 2", lambda c: (c.cp == 2) if at["cp"] == 1 else c.pp < 0),
        Challenge("pure data parallel", lambda c: (c.tp == 1) & (c.pp == 1) & (c.cp == 1)),
    )
    return [choice for choice in choices if not choice.keep(best.row).all()]


def challenges(
    space: Space, aim: Aim, best: Incumbent, seen: Sequence[Priced], *, pins: Mapping[str, Pin], deadline: float
) -> list[Challenged]:
    """The obvious other choices, each searched as the best one was, by what that search has seen of it."""
    whole = _whole_layers(space, aim.scenario, pins)
    found = []
    for challenge in _challenges(best):
        tried = whole if challenge.subject == FULL_RECOMPUTE else space
        among = np.flatnonzero(challenge.keep(tried.cores))
        before = [part.take(challenge.keep(part.rows)) for part in seen]
        outcome = aim.search(tried, deadline=deadline, among=among, beside=1.0, seen=before, confirm=False)
        found.append(Challenged(challenge, outcome))
    return found


def _whole_layers(space: Space, scenario: Scenario, pins: Mapping[str, Pin]) -> Space:
    """The lattice of a request that asks for recomputation of every layer; made once.

    In the plain one the rules leave such strategies out, where those that recompute some layers are as fast.
    """
    return space.cores.once("whole layers", lambda: _all_recomputed(space, scenario, pins))


def _all_recomputed(space: Space, scenario: Scenario, pins: Mapping[str, Pin]) -> Space:
    full = int(Recompute.FULL)
    asked = pins.get("recompute")
    if asked is None or full in asked.values:
        try:
            return build(scenario, {**pins, "recompute": Pin("recompute", (full,))})
        except BadRequest:  # pins that leave nothing beside it
            pass
    nothing = np.zeros(0, dtype=np.int64)
    return replace(space, cores=space.cores.take(nothing), layout=nothing, allowed=space.allowed[nothing])


def why_not_lines(tried: Sequence[Challenged], space: Space, aim: Aim, best: Incumbent) -> tuple[Advice, ...]:
    """What the other choices would cost, each with its number, or what refuses them.

    A search that ended before its proof has found something that its kind's best is no worse than, or nothing.
    """
    lines, parts = [], _parts(best, aim)
    for one in tried:
        subject, outcome, proved = one.challenge.subject, one.outcome, one.outcome.proved
        if one.challenge.keep(best.row).all():  # of a plan that was found among the challenges
            continue
        if outcome.best is not None:
            text = ("" if proved else "at most ") + _worse(outcome.best, aim, aim.value(best), parts)
            known = {"iteration_seconds": aim.seconds(outcome.best), "peak_memory_bytes": _peak(outcome.best, aim)}
            lines.append(Advice(subject=subject, text=text, proved=proved, **known))
        elif not proved:
            lines.append(Advice(subject=subject, text=NOT_KNOWN, proved=False))
        elif outcome.nearest:
            lines.append(Advice(subject=subject, text=_too_big(outcome.nearest[0], aim.scenario)))
        elif refused := _refused(space, subject, aim.scenario):
            lines.append(Advice(subject=subject, text=refused))
    return tuple(lines)


def _peak(found: Incumbent, aim: Aim) -> float | None:
    return aim.value(found) if aim.lean else None


def _worse(other: Incumbent, aim: Aim, least: float, ours: dict[str, float]) -> str:
    """What another strategy needs, by how much more than the plan, and mostly for what."""
    value, theirs = aim.value(other), _parts(other, aim)
    told = told_bytes if aim.lean else told_seconds
    worse = sorted(((theirs[name] - ours[name], name) for name in ours), reverse=True)
    terms = ", ".join(
        f"{name} {told(ours[name])} -> {told(theirs[name])}" for gain, name in worse[:2] if gain > NOTABLE * least
    )
    return f"{aim.told(value)} ({value / least - 1:+.1%}): {terms or 'a tie within the model'}"


def _parts(found: Incumbent, aim: Aim) -> dict[str, float]:
    """What adds up to a strategy's value: bytes on the fullest device, or seconds by cause."""
    priced = price_strategy(found.row, replace(aim.scenario, stability=None), found.assignment)
    if aim.lean:
        fullest = int(np.argmax(priced.footprint.allocated))
        return {name: float(getattr(priced.footprint, name)[fullest]) for name in MEMORY}
    lost = aim.value(found) - priced.iteration
    return priced.breakdown | ({"interruptions and checkpoints": lost} if aim.scenario.stability else {})


def _too_big(needed: float, scenario: Scenario) -> str:
    limit = scenario.group.accelerator.usable_memory
    return f"needs at least {told_bytes(needed)} per GPU, evenly split; {told_bytes(limit)} available"


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
