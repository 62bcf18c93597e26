"""The best plan on another number of devices, and the best of those that move least."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Unpack

import numpy as np

from costmodels.layout.split import Assignment
from costmodels.pricing import price_strategy, row_assignment
from costmodels.scenario import Scenario
from costmodels.stability import Stability
from costmodels.strategy import AXES, Strategies
from costmodels.training.moving import Layout, Move, move
from hardware.units import format_quantity
from planner.analyses.near_batches import near_batches
from planner.analyses.replan_document import Choice, Moved, OtherBatch, Replan
from planner.answer.build import priced_record
from planner.answer.load import stages_from_plan, strategy_from_plan
from planner.answer.plan import Plan
from planner.answer.text import WORTH_SHOWING, plural, why_infeasible
from planner.errors import BadRequest, OutOfTime, UnfilledPins
from planner.explain.infeasible import nearest_in_words, refusal_summary
from planner.request.budget import Budget
from planner.request.changes import RequestChanges
from planner.request.pins import parse_pins, shown_value
from planner.request.progress import Tell
from planner.request.request import LARGEST_GPUS, PlanRequest, request_from
from planner.request.resolve import Resolved, resolve
from planner.request.values import expect_type, share, whole_number
from planner.rules.divisors import divisors
from planner.search.best_first import Outcome
from planner.search.memory_savers import Instead, answered_instead, describe_savers, note_savers
from planner.search.objective import Objective, objective_of
from planner.search.question import resolve_search
from planner.search.split import Incumbent
from planner.space.divisors import good_counts
from planner.space.lattice import Space, build
from planner.trust.interval import TRUSTED
from planner.verify.check import verify

COUNTS: Final = 6
"""Numbers of devices that are tried, the one asked for and further ones below it."""
SHAPES: Final = ("tp", "cp", "pp", "vpp", "ep", "etp", "zero_stage", "schedule")
"""Axes that stay, first all of them, then the first ones only, when a plan near the old one is looked for."""
NEAR: Final = (SHAPES, SHAPES[:6], ("tp", "pp"), ("tp",))
DROPPED_PINS: Final = ("dp", "sharding_degree")
"""Axes whose pins do not outlive the number of devices."""
RUNNERS_UP: Final = 32
"""Runners-up of each search that are weighed."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A strategy on one number of devices, and what it is worth by the request's objective: less is better."""

    found: _Search
    row: Strategies
    split: Assignment
    iteration: float
    value: float

    @property
    def scenario(self) -> Scenario:
        """What it trains on what."""
        return self.found.resolved.scenario

    @property
    def layout(self) -> Layout:
        """Where its ranks and layers lie."""
        return Layout(self.row, self.split)


@dataclass(frozen=True, slots=True)
class _Search:
    """What `plan` searches on one number of devices; ``asked``: the request, where another is answered in its place."""

    resolved: Resolved
    objective: Objective
    space: Space
    outcome: Outcome
    asked: PlanRequest | None = None
    there: Instead | None = None

    @property
    def taken(self) -> Incumbent:
        """The strategy that `plan` would take: the best, or what is tied with it and better validated."""
        return self.objective.choice(self.outcome).taken

    @property
    def value(self) -> float:
        """Of the best by the request's objective; infinite where there is none."""
        return self.objective.value(self.outcome.best) if self.outcome.best else math.inf


def replan(
    old: Plan,
    gpus: int,
    *,
    tolerance: float | str = 0.05,
    progress: Tell | None = None,
    **changes: Unpack[RequestChanges],
) -> Replan:
    """Plan the same job again for more or fewer devices, with the same global batch.

    Where that many devices divide the batch badly, the largest numbers below them that do not are searched too, and
    the devices left over stay idle.

    Args:
        old: the answer that runs now.
        gpus: devices that there are now.
        tolerance: how much slower than the fastest the plan that moves least may be, a share such as 0.05 or "5%"; how
            much more it may need where the old answer was asked for the least memory.
        progress: called with how far the answer has come, as a `Progress`.
        changes: fields of the question that are to differ, such as ``cluster`` or ``global_batch_size``.

    Raises:
        BadRequest: the answer has no strategy, or runs on several node groups; or an argument is not what it should be.
        OutOfTime: no plan was found in time.
    """
    old = expect_type("the answer", old, Plan, example="what plan returns")
    gpus, tolerance = whole_number("gpus", gpus, LARGEST_GPUS), share("tolerance", tolerance)
    before, layout, was = _old(old, changes)
    asked = request_from({name: getattr(before.request, name) for name in before.request.model_fields_set} | changes)
    kept = {axis: value for axis, value in asked.pins.items() if axis not in DROPPED_PINS}
    request = asked.model_copy(update={"gpus": gpus, "pins": kept, "top": 0})
    batch = request.global_batch_size or before.scenario.global_batch_size
    request = request.model_copy(update={"global_batch_size": batch})
    budget = Budget(request.time_limit, progress=progress)
    searches, complete = _searches(_questions(request, before, layout), budget)
    best = min((s for s in searches if s.outcome.best), key=lambda found: found.value, default=None)
    frame: dict[str, Any] = {
        "old_gpus": before.scenario.gpus,
        "old_iteration_seconds": was,
        "gpus": gpus,
        "global_batch_size": batch,
        "tolerance": tolerance,
        "counts": tuple(s.resolved.scenario.gpus for s in searches),
    }
    if best is None:
        if not complete or not all(found.outcome.proved for found in searches):
            raise OutOfTime(f"no plan {budget.limit}")
        statement = _why_infeasible(searches, frame["counts"], budget)
        return Replan(status="infeasible", fastest=None, nearest=None, statement=statement, **frame)
    ceiling = best.value * (1.0 + tolerance)
    lost = max(before.scenario.gpus - gpus, 0)
    choices = [(c, _move(layout, c, before, lost)) for c in _candidates(searches, layout, ceiling, budget)]
    fastest = _candidate(best)
    quick = (fastest, _move(layout, fastest, before, lost))
    near = min([quick, *choices], key=lambda pair: (pair[1].weight_bytes + pair[1].state_bytes, pair[0].value))
    keeps = changes.get("global_batch_size") is None and best.objective.by_time
    nearby = near_batches(request, layout, before.machines.groups[0].gpus_per_node, frame["counts"]) if keeps else ()
    other = _other_batch(nearby, request, best, budget)
    proved, same = complete and all(s.outcome.proved for s in searches), near[0] is fastest
    return Replan(
        status="optimal" if proved else "feasible",
        **frame,
        fastest=_choice(quick, layout, gpus, fastest, best),
        nearest=_choice(near, layout, gpus, fastest, best),
        other_batch=other,
        statement=_statement(fastest, proved=proved, same=same, tolerance=tolerance, number=len(choices)),
    )


def _old(old: Plan, changes: Mapping[str, Any]) -> tuple[Resolved, Layout, float]:
    if old.strategy is None or old.prediction is None:
        raise BadRequest(f"the answer is {old.status} and has no strategy to start from: {why_infeasible(old)}")
    machines = {name: changes[name] for name in ("cluster", "stack") if name in changes}
    before = resolve(request_from(old.request | machines))
    if before.mixed:
        names = " and ".join(scenario.group.name for scenario in before.mixed.scenarios)
        said = (
            f"plans over several node groups ({names}) cannot be replanned; `plan` with the new --gpus answers from "
            "scratch"
        )
        raise BadRequest(said)
    layout = Layout(strategy_from_plan(old.strategy), stages_from_plan(old.strategy))
    return before, layout, old.prediction.iteration_seconds


def _questions(request: PlanRequest, before: Resolved, layout: Layout) -> Iterator[PlanRequest]:
    """The question on as many devices as asked for, on numbers below that divide the batch well, on whole replicas."""
    node, batch = before.machines.groups[0].gpus_per_node, request.global_batch_size or 1
    row = layout.row
    width = int(row.tp[0] * row.cp[0] * row.pp[0])
    fitting = [width * dp for dp in divisors(batch) if width * dp <= request.gpus and width * dp % node == 0]
    counts = [request.gpus, *good_counts(request.gpus, batch, node)[: COUNTS - 1], *fitting[-1:]]
    for count in dict.fromkeys(counts):
        yield request.model_copy(update={"gpus": count})


def _other_batch(
    asked: Iterable[PlanRequest], request: PlanRequest, best: _Search, budget: Budget
) -> OtherBatch | None:
    """The one that gains most of some questions with other batches; None where none gains enough."""
    found = [one for question in asked if (one := _gains(question, request, best, budget))]
    most = max(found, key=lambda one: one.faster, default=None)
    return most if most and most.faster >= WORTH_SHOWING else None


def _gains(asked: PlanRequest, request: PlanRequest, best: _Search, budget: Budget) -> OtherBatch | None:
    """What a question gains in tokens per second; None where nothing fits."""
    try:
        found = _searched(asked, budget)
    except (BadRequest, OutOfTime):
        return None
    if found.outcome.best is None:
        return None
    near, batch = asked.global_batch_size or 1, request.global_batch_size or 1
    seconds = found.objective.seconds(found.taken)
    return OtherBatch(
        global_batch_size=near,
        copies=int(found.taken.row.dp[0]),
        gpus=found.resolved.scenario.gpus,
        iteration_seconds=seconds,
        faster=near / seconds / (batch / best.objective.seconds(best.taken)) - 1.0,
    )


def _searches(questions: Iterable[PlanRequest], budget: Budget) -> tuple[list[_Search], bool]:
    """The search of every number of devices that the pins can make up, and whether there was time for all of them.

    Raises:
        UnfilledPins: they make up none of them, in the words of the first.
        OutOfTime: the time limit passed before the first was searched.
    """
    found: list[_Search] = []
    refused: list[UnfilledPins] = []
    for one in questions:
        try:
            found.append(_searched(one, budget))
        except UnfilledPins as error:
            refused.append(error)
        except OutOfTime:
            if not found:
                raise
            return found, False
    if not found:
        raise refused[0]
    return found, True


def _searched(request: PlanRequest, budget: Budget, *, moved: bool = False) -> _Search:
    """As `plan` searches: where nothing fits, with what saves memory at a price, unless the request was moved to it."""
    resolved = resolve_search(request)
    objective = objective_of(resolved)
    space = build(resolved.scenario, parse_pins(request.pins), budget=budget)
    found = _Search(resolved, objective, space, objective.search(space, budget=budget))
    wider = None if moved else answered_instead(request, resolved, space, found.outcome, budget)
    if wider:
        return replace(_searched(wider.request, budget, moved=True), asked=request, there=wider)
    return found


def _candidate(found: _Search, best: Incumbent | None = None) -> Candidate:
    chosen = best or found.taken
    return Candidate(
        found, chosen.row, chosen.assignment, found.objective.seconds(chosen), found.objective.value(chosen)
    )


def _candidates(searches: list[_Search], layout: Layout, ceiling: float, budget: Budget) -> Iterator[Candidate]:
    """What is within the tolerance: the old shape under fewer and fewer constraints, and runners-up of the searches."""
    for found in searches:
        for pinned in _near(found, layout, budget):
            if pinned.value <= ceiling:
                yield pinned
        yield from _runners_up(found, ceiling)


def _near(found: _Search, layout: Layout, budget: Budget) -> Iterator[Candidate]:
    scenario, old = found.resolved.scenario, layout.row.row(0)
    for axes in NEAR:
        if scenario.gpus % math.prod(old[axis] for axis in axes if axis in ("tp", "cp", "pp")):
            continue
        kept = parse_pins({axis: shown_value(axis, int(old[axis])) for axis in axes})
        pins = parse_pins(found.resolved.request.pins) | kept
        try:
            outcome = found.objective.search(build(scenario, pins, budget=budget), budget=budget)
        except (UnfilledPins, OutOfTime):
            continue
        if outcome.best is None:
            continue
        yield _candidate(found, outcome.best)
        if (same := _with_split(outcome.best.row, layout, scenario)) is not None:
            yield _candidate(found, same)


def _with_split(row: Strategies, layout: Layout, scenario: Scenario) -> Incumbent | None:
    """The row with the old layers on every stage, where they fit in memory as they are recomputed now."""
    if any(getattr(row, axis)[0] != getattr(layout.row, axis)[0] for axis in ("pp", "vpp", "schedule")):
        return None
    priced = price_strategy(row, scenario, layout.split)
    fits = bool((priced.footprint.total <= scenario.group.accelerator.usable_memory).all())
    return Incumbent(row, layout.split, priced.iteration) if fits else None


def _runners_up(found: _Search, ceiling: float) -> Iterator[Candidate]:
    """Even rows that a search has seen, fit and are good enough."""
    by_memory, layers = found.objective.by_memory, found.resolved.scenario.model.num_layers
    for part in found.outcome.pool:
        ranked = part.even_split_peak_bytes if by_memory else part.even_split_seconds
        order = np.flatnonzero(part.fits & np.isfinite(part.even_split_seconds))
        for i in order[np.argsort(ranked[order], kind="stable")][:RUNNERS_UP]:
            row = part.rows.take(np.array([i]))
            figures = float(part.even_split_seconds[i]), float(part.even_split_peak_bytes[i])
            even = Incumbent(row, row_assignment(row, layers), *figures)
            if (one := _candidate(found, even)).value <= ceiling:
                yield one


def _move(layout: Layout, there: Candidate, before: Resolved, lost: int) -> Move:
    stability = before.stability or Stability()
    return move(layout, there.layout, before.scenario, there.scenario, lost=lost, stability=stability)


def _choice(pair: tuple[Candidate, Move], layout: Layout, gpus: int, fastest: Candidate, best: _Search) -> Choice:
    there, moving = pair
    used = there.scenario.gpus
    return Choice(
        gpus=used,
        idle_gpus=gpus - used,
        iteration_seconds=there.iteration,
        slower=there.value / fastest.value - 1.0,
        moved=_moved(moving, layout, there),
        plan=_plan(there, best if there is fastest else None),
    )


def _moved(found: Move, layout: Layout, there: Candidate) -> Moved:
    stays = _alike(layout, there, ("tp", "pp", "vpp", "ep", "etp"))
    stays &= layout.split.layers.tolist() == there.split.layers.tolist()
    numbers = {name: getattr(found, name) for name in Moved.model_fields if name not in {"only_regroups", "statement"}}
    if stays and _alike(layout, there, AXES) and layout.split.recomputed.tolist() == there.split.recomputed.tolist():
        stopped = dict.fromkeys(("restart_seconds", "seconds"), 0.0)
        return Moved(only_regroups=True, statement="nothing changes: the job can go on as it runs", **numbers | stopped)
    return Moved(only_regroups=stays, statement=_in_words(found, stays=stays), **numbers)


def _alike(layout: Layout, there: Candidate, axes: Iterable[str]) -> bool:
    return all(int(getattr(layout.row, axis)[0]) == int(getattr(there.row, axis)[0]) for axis in axes)


def _in_words(found: Move, *, stays: bool) -> str:
    what = "only data-parallel groups change" if stays else "stages or tensor slices change"
    lost, weights, states = (
        format_quantity(count, "bytes") for count in (found.lost_bytes, found.weight_bytes, found.state_bytes)
    )
    if found.lost_bytes:
        why = "so all is read from the checkpoint"
        return f"{what}; {lost} of optimizer states had their only copy on the lost devices, {why}"
    return f"{what}; {weights} of weights and {states} of states change devices"


def _plan(there: Candidate, found: _Search | None) -> Plan:
    """The choice as an answer of its own, to launch or to plan again from."""
    resolved, scenario = there.found.resolved, there.scenario
    priced = price_strategy(there.row, scenario, there.split)
    verify(there.row, there.split, priced, scenario)
    proved = found is not None and found.outcome.proved
    record = priced_record(resolved, there.row, there.split, priced, TRUSTED)
    answer = Plan(status="optimal" if proved else "feasible", **record)
    asked, instead = there.found.asked, there.found.there
    return note_savers(answer, asked, instead) if asked and instead else answer


_BEST: Final = {"memory": "to need the least memory", "goodput": "to train most per wall time"}
"""What is proved of the best choice; "fastest" where time is what counts."""


def _statement(fastest: Candidate, *, proved: bool, same: bool, tolerance: float, number: int) -> str:
    best = _BEST.get(fastest.found.objective.name, "fastest")
    said = f"proved {best} on the numbers of devices searched" if proved else "the search ended before its proof"
    if there := fastest.found.there:
        why = "as nothing fits without" if math.isinf(there.without) else "which is far faster"
        said += f", with {describe_savers(fastest.row) or 'less memory margin'}, {why}"
    if same:
        return f"{said}; none of {plural(number, 'plan')} at most {tolerance:.0%} slower moves less data"
    return (
        f"{said}; nearest: of {plural(number, 'plan')} at most {tolerance:.0%} slower the one that moves the least data"
    )


def _why_infeasible(searches: list[_Search], counts: Sequence[int], budget: Budget) -> str:
    most, (*others, last) = searches[0], counts
    on = "".join(f"{count:,}, " for count in others) + plural(last, "GPU")
    why = refusal_summary(most.resolved, most.space, most.outcome) + nearest_in_words(most.resolved, budget)
    return f"nothing fits on {on} with a global batch of {most.resolved.scenario.global_batch_size}: {why}"
