"""Why not something else: other choices that people would try, and one that somebody asks about."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from pydantic import Field

from costmodels.names import Recompute
from costmodels.node_groups import AnyScenario, MixedStrategies, parts_of
from costmodels.pricing import price_strategy
from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Ints, Strategies
from planner.answer.build import order_in_words
from planner.answer.plan import Advice, Answer, Plan, Rejection, Strategy
from planner.answer.text import (
    NOT_KNOWN,
    NOTABLE,
    SHORT_TERMS,
    format_bytes,
    format_seconds,
    otherwise,
    strategy_in_words,
)
from planner.errors import BadRequest, OutOfTime
from planner.explain import verdict as explain
from planner.request.budget import Budget
from planner.request.pins import Pin, shown_value
from planner.request.request import PlanRequest
from planner.rules.core import GROUP_RULES
from planner.search.best_first import Outcome
from planner.search.core_bounds import known_bound
from planner.search.objective import Objective, Search, build_below
from planner.search.split import Incumbent
from planner.space.lattice import Space, build
from planner.space.mixed import WIDTH, MixedSpace

FULL_RECOMPUTE = "full recompute"
REPEATED = 1.5
"""Times the fastest strategy that the best takes which recomputes every layer, about: forward is a third of a pass."""
MEMORY = ("weights", "gradients", "optimizer", "activations", "logits")
"""Parts of the memory of the fullest device, as a comparison names them."""


Keep = Callable[[Strategies], Bools]


@dataclass(frozen=True, slots=True)
class Challenged:
    """Another choice that people would try, and what the search for the best strategy of its kind found."""

    subject: str
    keep: Keep
    """Which strategies it stands for."""
    outcome: Outcome
    question: AnyScenario
    """What it was searched for."""


def _challenges(best: Incumbent) -> list[tuple[str, Keep]]:
    at = best.row.row(0)
    tp, pp = at["tp"], at["pp"]
    recomputes = best.assignment.recomputed.any()
    choices: list[tuple[str, Keep]] = [
        (f"TP {2 * tp}", lambda c: c.tp == 2 * tp),
        (f"TP {max(tp // 2, 1)}", lambda c: c.tp == tp // 2),
        ("PP 1", lambda c: (c.pp == 1) if pp > 1 else c.pp < 0),
        (f"PP {2 * pp}", lambda c: c.pp == 2 * pp),
        ("no interleaving", lambda c: (c.vpp == 1) if at["vpp"] > 1 else c.pp < 0),
        ("no recompute", lambda c: c.recompute == Recompute.NONE)
        if recomputes
        else (FULL_RECOMPUTE, lambda c: c.recompute == Recompute.FULL),
        ("CP 2", lambda c: (c.cp == 2) if at["cp"] == 1 else c.pp < 0),
        ("pure data parallel", lambda c: (c.tp == 1) & (c.pp == 1) & (c.cp == 1)),
    ]
    return [(subject, keep) for subject, keep in choices if not keep(best.row).all()]


def challenges(search: Search, budget: Budget) -> list[Challenged]:
    """The obvious other choices, each searched as the best one was, by what that search has seen of it."""
    space, objective, best = search.space, search.objective, search.taken
    if isinstance(space, MixedSpace):
        return _group_challenges(space, objective, best, budget)
    found = []
    for subject, keep in _challenges(best):
        outcome = Outcome(proved=False, lower_bound=0.0)
        if not budget.late:
            with suppress(OutOfTime):
                outcome = _challenged(search, subject == FULL_RECOMPUTE, keep, budget)
        found.append(Challenged(subject, keep, outcome, objective.question))
    return found


def _challenged(search: Search, all_recomputed: bool, keep: Keep, budget: Budget) -> Outcome:
    """The search of one choice, first among what is not far slower than the best."""
    near = REPEATED * search.objective.sought(search.fastest)
    tried = _all_recomputed(search, near, budget) if all_recomputed else search.space
    outcome = _challenge(search, tried, keep, budget)
    found_near = outcome.best and search.objective.sought(outcome.best) < tried.below
    left_out = tried.below < math.inf and (tried.outline is None or keep(tried.outline).any())
    if left_out and not found_near:
        whole = _all_recomputed(search, math.inf, budget) if all_recomputed else search.whole(budget, keep)
        outcome = _challenge(search, whole, keep, budget)
    return outcome


def _challenge(search: Search, space: Space, keep: Keep, budget: Budget) -> Outcome:
    among, before = np.flatnonzero(keep(space.cores)), [part.take(keep(part.rows)) for part in search.outcome.pool]
    return search.objective.search(space, budget=budget, among=among, margin=1.0, seen=before, confirm=False)


def _group_challenges(space: MixedSpace, objective: Objective, best: Incumbent, budget: Budget) -> list[Challenged]:
    """Other choices over several node groups.

    One layout for all, which is all that most launchers can say; other orders; each group alone, with the others idle.
    """

    def searched(subject: str, keep: Keep, space: Space, on: Objective, among: Ints | None = None) -> Challenged:
        outcome = on.search(space, budget=budget, among=among, margin=1.0, confirm=False)
        return Challenged(subject, keep, outcome, on.question)

    alone, orders, alike = [], [], []
    for one in parts_of(objective.question):
        subject = f"{one.gpus} {one.group.name} alone"
        alone.append(searched(subject, lambda c: c.pp < 0, build(one, {}), objective.on(one)))
    assert isinstance(best.row, MixedStrategies)
    for order in space.orders[(space.orders != best.row.order).any(axis=1)]:
        subject, only = order_in_words(order, objective.question), replace(space, orders=order[None, :])
        orders.append(searched(subject, partial(_in_order, order), only, objective))
    if not _alike(best.row).all():
        among = np.flatnonzero(_alike(space.cores))
        alike.append(searched("same degrees everywhere", _alike, space, objective, among))
    return [*alike, *orders, *alone]


def _in_order(order: Ints, rows: Strategies) -> Bools:
    assert isinstance(rows, MixedStrategies)
    return (rows.order == order).all(axis=1)


def _alike(rows: Strategies) -> Bools:
    """Which rows give all groups the same degrees, (N,)."""
    assert isinstance(rows, MixedStrategies)
    return np.all([(group.tp == rows.tp) & (group.dp == rows.dp) for group in rows.groups], axis=0)


def _all_recomputed(search: Search, below: float, budget: Budget) -> Space:
    """The lattice of a request that asks for recomputation of every layer, of what may take less than so many seconds.

    In the plain one the rules leave such strategies out, where those that recompute some layers are as fast.
    """
    full, objective = int(Recompute.FULL), search.objective
    asked = search.pins.get("recompute")
    if asked is not None and full not in asked.values:
        return search.space.among(np.zeros(0, dtype=np.int64))
    if asked is None and objective.by_time and below <= search.space.below and not search.kept:
        return _near(
            _repeated(search.space, known_bound(search.space.cores, objective.scenario) < below), objective, below
        )
    reach = below if objective.bounds(search.pins) else math.inf
    try:
        pins = {**search.pins, "recompute": Pin("recompute", (full,))}
        space = build_below(objective, pins, reach, budget=budget)
    except BadRequest:  # pins that leave nothing else
        return search.space.among(np.zeros(0, dtype=np.int64))
    return space if reach == math.inf else _near(space, objective, below)


def _repeated(space: Space, near: Bools) -> Space:
    """The lattice of what recomputes every layer, from the ``near`` cores, (C,), that recompute some or all."""
    again = np.isin(space.cores.recompute, (int(Recompute.PARTIAL), int(Recompute.FULL)))
    some = space.among(np.flatnonzero(near & again))
    full = np.full(len(some.cores), int(Recompute.FULL))
    return replace(some, cores=replace(some.cores, recompute=full), outline=None)


def _near(space: Space, objective: Objective, below: float) -> Space:
    """The lattice without what cannot need less than so many seconds or bytes."""
    return replace(space.among(np.flatnonzero(objective.core_bound(space.cores) < below)), below=below)


def why_not_lines(search: Search, tried: Sequence[Challenged]) -> tuple[Advice, ...]:
    """The price of each other choice, or what refuses it.

    A search that ended before its proof has found something that its kind's best is no worse than, or nothing.
    """
    space, objective, best = search.space, search.objective, search.taken
    lines, parts = [], {} if isinstance(space, MixedSpace) else _parts(best, objective)
    for one in tried:
        subject, outcome, proved = one.subject, one.outcome, one.outcome.proved
        if one.keep(best.row).all():  # of a plan that was found among the challenges
            continue
        if outcome.best is not None:
            if isinstance(space, MixedSpace):
                worse = _longer(one, objective, objective.value(best))
            else:
                worse = _worse(outcome.best, objective, objective.value(best), parts)
            text = ("" if proved else "at most ") + worse
            known = {
                "iteration_seconds": objective.seconds(outcome.best),
                "peak_memory_bytes": _peak(outcome.best, objective),
            }
            lines.append(Advice(subject=subject, text=text, proved=proved, **known))
        elif not proved:
            lines.append(Advice(subject=subject, text=NOT_KNOWN, proved=False))
        elif isinstance(space, MixedSpace):
            lines.append(Advice(subject=subject, text="nothing fits"))
        elif outcome.nearest:
            lines.append(Advice(subject=subject, text=_too_big(outcome.nearest[0], objective.scenario)))
        elif refused := _refused(space, subject, objective.scenario):
            lines.append(Advice(subject=subject, text=refused))
    return tuple(lines)


def _peak(found: Incumbent, objective: Objective) -> float | None:
    return objective.value(found) if objective.by_memory else None


def _worse(other: Incumbent, objective: Objective, least: float, ours: dict[str, float]) -> str:
    """How much more than the plan another strategy needs, and mostly for what."""
    value, theirs = objective.value(other), _parts(other, objective)
    formatted = format_bytes if objective.by_memory else format_seconds
    worse = sorted(((theirs[name] - ours[name], name) for name in ours), reverse=True)
    terms = ", ".join(
        f"{SHORT_TERMS.get(name, name)} {formatted(ours[name])} -> {formatted(theirs[name])}"
        for gain, name in worse[:2]
        if gain > NOTABLE * least
    )
    return f"{objective.format(value)} ({value / least - 1:+.1%}): {terms or 'a tie within the model'}"


def _longer(one: Challenged, objective: Objective, least: float) -> str:
    """How much longer than the plan another choice takes over several node groups, or one of them alone shorter."""
    assert one.outcome.best is not None
    seconds = one.outcome.best.iteration
    share = seconds / least - 1.0
    if share <= -NOTABLE and one.question is not objective.question:
        at_least = "" if one.outcome.proved else "at least "
        return f"{format_seconds(seconds)}, {at_least}{-share:.1%} shorter: leave the others idle"
    return f"{format_seconds(seconds)}, " + ("as fast" if share < NOTABLE else f"{share:.1%} longer")


def _parts(found: Incumbent, objective: Objective) -> dict[str, float]:
    """The parts of a strategy's value: bytes on the fullest device, or seconds by cause."""
    priced = price_strategy(found.row, replace(objective.scenario, stability=None), found.assignment)
    if objective.by_memory:
        fullest = int(np.argmax(priced.footprint.allocated))
        return {name: float(getattr(priced.footprint, name)[fullest]) for name in MEMORY}
    lost = objective.value(found) - priced.iteration
    return priced.breakdown | ({"interruptions and checkpoints": lost} if objective.scenario.stability else {})


def _too_big(needed: float, scenario: Scenario) -> str:
    limit = scenario.group.accelerator.usable_memory
    return f"needs at least {format_bytes(needed)} per GPU, evenly split; {format_bytes(limit)} available"


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


class WhyNot(Answer):
    """The answer to "why not this", schema ``why-not/1``: broken rules, or the price and the best plan's.

    Both where launchers start no such plan.
    """

    schema_: Literal["why-not/1"] = Field("why-not/1", alias="schema")
    strategy: Strategy | None
    pins: dict[str, str]
    rules: tuple[Rejection, ...]
    iteration_seconds: float | None
    best_iteration_seconds: float | None
    terms: dict[str, tuple[float, float]]
    """Seconds of each term: this strategy's, the best plan's."""
    objective: str = "time"
    """What the best plan is best by."""
    memory_terms: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """Bytes on the fullest device, this strategy's and the best plan's, where the least memory is wanted."""
    verdict: str
    nearest: Advice | None = None
    """For what cannot run: the nearest request that works."""
    nothing_near: str = ""
    """What was tried where none was found."""
    best: str = ""
    """The best plan in a few words: "TP 4, PP 8, DP 16"; if that does not tell, "DP 64, zero_stage 2 instead of 3"."""


def compared(request: PlanRequest, pins: Mapping[str, Pin], pinned: Plan, best: Plan) -> WhyNot:
    """The best plan under a request's pins, and the best of all."""
    mine = pinned.prediction.iteration_seconds if pinned.prediction else None
    theirs = best.prediction.iteration_seconds if best.prediction else None
    both = bool(pinned.prediction and best.prediction)
    terms = _pairs(pinned.breakdown_seconds, best.breakdown_seconds) if both else {}
    by_objective = objective_terms(pinned, best) if both else {}
    return WhyNot(
        strategy=pinned.strategy,
        pins={name: _shown(name, value) for name, value in pins.items()},
        rules=pinned.rejected if pinned.status == "infeasible" else _width_rule(pinned),
        iteration_seconds=mine,
        best_iteration_seconds=theirs,
        terms=terms,
        objective=request.objective,
        memory_terms=by_objective if request.objective == "memory" else {},
        verdict=explain.verdict(pinned, best, by_objective),
        nearest=pinned.nearest,
        nothing_near=pinned.nothing_near,
        best=_best_in_words(pinned.strategy, best.strategy),
    )


def _best_in_words(pinned: Strategy | None, best: Strategy | None) -> str:
    """The best strategy in a few words, and where these are those of the other too, in what it is otherwise."""
    if best is None:
        return ""
    words = strategy_in_words(best)
    changed = otherwise(pinned, best) if pinned is not None and strategy_in_words(pinned) == words else ""
    return ", ".join(filter(None, (words, changed)))


def _width_rule(pinned: Plan) -> tuple[Rejection, ...]:
    """The rule of launchers that a plan breaks which has stages of several widths."""
    found = explain.widths(pinned.strategy)
    if len(found) < 2:
        return ()
    words = {rule.name: rule.sentence for rule in GROUP_RULES}[WIDTH].format(ranks=found[0], widest=found[-1])
    return (Rejection(rule=WIDTH, count=1, example=words),)


def objective_terms(this: Plan, best: Plan) -> dict[str, tuple[float, float]]:
    """The parts of the objective, this strategy's and the best plan's: bytes or seconds."""
    parts = _memory_parts if best.request.get("objective") == "memory" else _time_parts
    return _pairs(parts(this), parts(best))


def _pairs(this: Mapping[str, float], best: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    return {name: (this[name], best[name]) for name in best}


def _memory_parts(found: Plan) -> dict[str, float]:
    """Bytes that the device which allocates most needs, by what they are for."""
    fullest = max(found.memory_bytes, key=lambda stage: stage.total - stage.slack - stage.reserved)
    return {name: getattr(fullest, name) for name in MEMORY}


def _time_parts(found: Plan) -> dict[str, float]:
    """Seconds of an iteration by cause, and with goodput what of the wall time goes elsewhere."""
    lost = found.value - found.prediction.iteration_seconds if found.prediction else 0.0
    return found.breakdown_seconds | ({"interruptions and checkpoints": lost} if found.goodput else {})


def _shown(name: str, pin: Pin) -> str:
    if not pin.values:
        return pin.span()
    return ",".join(shown_value(name, v) for v in pin.each or pin.values)
