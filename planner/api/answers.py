"""What a search or a given strategy comes to, with its reasons: the same for one node group and for several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from costmodels.memory.host import host_fits, host_need, host_room
from costmodels.memory.limits import device_limit
from costmodels.node_groups import Mixed, MixedStrategies, first_in_pipeline, price, stage_limits
from costmodels.pricing import Price
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies
from costmodels.useful_flops import causal_excess
from planner.answer.build import frame_record, priced_record
from planner.answer.plan import Plan, Prediction, Proof, Rejection, Strategy
from planner.answer.text import LEAST_SHOWN, main_restriction, nearly_full_warning
from planner.errors import OutOfTime, UnfilledPins
from planner.explain import verdict as explain
from planner.explain.combination import contradiction, nearest_given, nearest_searched
from planner.explain.infeasible import refusal_reasons, rejections
from planner.explain.nearest import NEAREST, nearest_request, nearest_strategy
from planner.explain.runners_up import alternatives, runners_up
from planner.explain.warnings import (
    beyond_framework,
    makes_no_programs,
    memory_edge,
    memory_headroom,
    not_startable,
    unused_pin_values,
)
from planner.explain.what_helps import what_helps, wins_by_saving
from planner.explain.why_not import challenges, why_not_lines
from planner.frameworks.vendors import TPU, XLA
from planner.request.budget import Budget
from planner.request.pins import Pin, parse_pins
from planner.request.resolve import Resolved
from planner.search.best_first import Outcome
from planner.search.choice import CLOSE, NEARLY_FULL, Choice, better_validated
from planner.search.given import Given, drawn_chunks, given_strategy
from planner.search.given_by_group import given_on_groups
from planner.search.memory_savers import Instead, answered_instead, note_savers
from planner.search.objective import Search, search_question
from planner.search.question import resolve_search
from planner.search.within_measured import prefer_measured
from planner.space.mixed import MixedSpace
from planner.space.scope import scope_of
from planner.trust.extents import past_measured
from planner.trust.interval import TRUSTED, above_measured, outside, trust
from planner.verify.check import LARGEST_SIMULATION, Verdict, verify


class Efforts(NamedTuple):
    """What each kind of reasons may take on top of the plan; what is not proved by then is said not to be."""

    challenges: float
    """The obvious other choices, which are searched as the plan was."""
    runners_up: float
    """Runners-up are split."""
    faster: float
    """What is faster beyond the margin of memory or the framework, of each."""
    helps: float
    """What would help is searched anew on other machines; over several node groups each search has its own."""


ONE_GROUP = Efforts(challenges=7.5e5, runners_up=2.5e5, faster=1e6, helps=1.5e6)
SEVERAL_GROUPS = Efforts(challenges=1e6, runners_up=1e6, faster=1e6, helps=1e6)
HIGH = 0.85
"""Utilisation beyond which a device does less than is counted."""
DOUBTFUL = 0.15
"""Share of the memory by which a given strategy may be predicted too large, and is called doubtful, not refused."""
RAN = 0.4
"""Share of the shipped runs predicted so, 35 of 91, that ran; of those predicted larger 13 of 427."""
FLATTERED = 1.2
"""MFU over that of causal attention counted by half, from which on both are said."""


def best_plan(
    resolved: Resolved,
    budget: Budget,
    *,
    reasons: bool = True,
    pins: Mapping[str, Pin] | None = None,
    there: Instead | None = None,
) -> Plan:
    """The best strategy with its reasons; where nothing fits as asked, with what saves memory at a price.

    ``pins`` are the request's, unless they are given as they were read, one value for each node group; what refuses
    those is then looked for among stages of any widths. A request that is answered in place of another, ``there``, has
    all that saves memory already.

    Raises:
        BadRequest: pinned degrees that cannot make up the GPUs.
        OutOfTime: the search was stopped before it found a plan.
    """
    try:
        known = there.searched if there else None
        search = search_question(resolved, budget, pins, any_width=bool(pins), known=known)
    except UnfilledPins as error:
        if resolved.mixed:
            raise
        asked = parse_pins(resolved.request.pins)
        changed = nearest_searched(resolved.scenario, asked, budget.part(NEAREST))
        raise contradiction(error, asked, changed) from None
    _check_found(search.outcome, budget)
    moved = None if there else answered_instead(resolved.request, resolved, search.space, search.outcome, budget)
    if moved:
        found = best_plan(resolve_search(moved.request), budget, reasons=reasons, there=moved)
        return note_savers(found, resolved.request, moved)
    if search.outcome.best is not None:
        none_starts = there is not None and there.any_framework
        return found_plan(prefer_measured(search, budget), budget, reasons=reasons, none_starts=none_starts)
    near = nearest_request(resolved, budget, short=search.outcome.memory_refused > 0)
    refused = _infeasible(resolved, refusal_reasons(resolved, search.space, search.outcome))
    return refused.model_copy(update={"nearest": near.advice, "nothing_near": near.tried})


def conclude(search: Search, budget: Budget) -> Plan:
    """The plan that a search found, without reasons, runners-up, simulation or the nearest request that works.

    That is what a sweep keeps of a point; `plan` of the same request says the rest.

    Raises:
        OutOfTime: the search was stopped before it found a plan.
    """
    _check_found(search.outcome, budget)
    if search.outcome.best is None:
        return _infeasible(search.resolved, refusal_reasons(search.resolved, search.space, search.outcome))
    found = prefer_measured(search, budget)
    settled = _settled(found, budget, largest=0)
    return Plan(**settled | _start(found, settled))


def _check_found(outcome: Outcome, budget: Budget) -> None:
    if outcome.best is None and not outcome.proved:
        raise OutOfTime(f"no plan after {outcome.priced} strategies were priced {budget.enough}")


def _infeasible(resolved: Resolved, refused: tuple[Rejection, ...]) -> Plan:
    return Plan(status="infeasible", fits=False, rejected=refused, **frame_record(resolved))


def _settled(search: Search, budget: Budget, *, largest: int) -> dict[str, Any]:
    """Fields that need only the plan itself: prediction, warnings, proof. At most ``largest`` passes are simulated."""
    resolved, best, outcome = search.resolved, search.taken, search.outcome
    priced = price(best.row, resolved.question, best.assignment)
    verdict = verify(best.row, best.assignment, priced, resolved.question, largest=largest)
    found = priced_record(resolved, best.row, best.assignment, priced, TRUSTED)
    proof = _proof(search, verdict, budget, found["strategy"], value=priced.iteration)
    return {
        "status": "optimal" if outcome.proved and proof.gap <= CLOSE else "feasible",
        "warnings": _warnings(best.row, priced, resolved, found["prediction"]),
        "proof": proof,
        **found,
    }


def found_plan(search: Search, budget: Budget, *, reasons: bool = True, none_starts: bool = False) -> Plan:
    """The plan that a search found, with its reasons; ``none_starts`` where nothing fits that its framework starts.

    Where the budget ended the search, what the reasons come across may be better: that is the plan then.
    """
    several, resolved, outcome = isinstance(search.space, MixedSpace), search.resolved, search.outcome
    efforts = SEVERAL_GROUPS if several else ONE_GROUP
    settled = _with_trust(search, budget)
    if not (reasons and resolved.request.reasons):
        return Plan(**settled | _start(search, settled, none_starts=none_starts))
    budget.settle("comparing with other choices")
    tried = challenges(search, budget.part(efforts.challenges, share=1 / 3))
    others = runners_up(search, tried, budget.part(efforts.runners_up, share=1 / 2))
    assert outcome.best is not None
    if not outcome.proved and search.objective.better(others.best[0], outcome.best):
        outcome.best = others.best[0]  # the search had no effort left to see it, its runners-up did
        search.choice = Choice(outcome.best, "")
        settled = _with_trust(search, budget)
    memory, code = (budget.part(efforts.faster, share=1 / 4) for _ in range(2))
    full = () if several else (*memory_headroom(search, memory), *memory_edge(search, memory))
    settled["choices"] = (*full, *beyond_framework(search, code))
    if search.objective.by_time and not several:
        settled["better_validated"] = better_validated(
            outcome, search.taken, search.objective.scenario, resolved.margin
        )
    settled |= _start(search, settled, none_starts=none_starts)
    settled["alternatives"], settled["why_not"] = alternatives(search, others.best), why_not_lines(search, tried)
    budget.settle("looking for what would help")
    helps = what_helps(search, budget.part(efforts.helps, share=1.0))  # last, as it takes all the time that is left
    return Plan(
        alternatives_complete=others.complete,
        what_helps=helps,
        saving_memory=None if several else wins_by_saving(helps, search.value),
        closest_run=None if several else explain.closest_run(resolved.scenario),
        **settled,
    )


def _start(search: Search, settled: Mapping[str, Any], *, none_starts: bool = False) -> dict[str, Any]:
    """Fields that say whether the stack's framework starts a plan of these fields, behind other warnings."""
    refused = not_startable(search, none_starts=none_starts)
    startable = not (refused or makes_no_programs(search.resolved.scenario))
    return {"warnings": (*settled["warnings"], *refused), "startable": startable}


def _with_trust(search: Search, budget: Budget) -> dict[str, Any]:
    """Fields of `_settled` with the interval, the refusals and a warning of pins that do nothing."""
    settled, resolved = _settled(search, budget, largest=LARGEST_SIMULATION), search.resolved
    first, mixture = first_in_pipeline(search.taken.row), resolved.mixed is not None
    found = trust(resolved.scenario, first, mfu=settled["prediction"].mfu, mixture=mixture)
    high = () if mixture else above_measured(resolved.scenario, first, settled["prediction"].mfu)
    past = (search.beyond,) if search.beyond else past_measured(resolved.scenario, first)
    return settled | {
        "warnings": (*settled["warnings"], *outside(found), *past, *high, *unused_pin_values(search)),
        "trust": found,
        "rejected": rejections(search.space, search.outcome, resolved.question),
    }


def _proof(search: Search, verdict: Verdict, budget: Budget, taken: Strategy, *, value: float) -> Proof:
    """The proof of a plan that takes ``value`` seconds an iteration."""
    outcome, by_memory = search.outcome, search.objective.by_memory
    assert outcome.best is not None
    scope = scope_of(search.space, search.resolved.question, search.pins, by_memory=by_memory)
    scope = (search.within, *scope) if search.within else scope
    fastest = value * (outcome.best.iteration / search.taken.iteration)
    bound = fastest if outcome.proved else fastest * min(outcome.lower_bound / outcome.best.iteration, 1.0)
    gap = max((value - bound) / value, 0.0)
    return Proof(
        candidates=search.space.candidates,
        feasible=outcome.feasible,
        priced=outcome.priced,
        solves=outcome.solves,
        lower_bound_seconds=bound,
        gap=gap,
        wall_seconds=budget.elapsed,
        simulated_pipeline_seconds=verdict.simulated,
        closed_form_pipeline_seconds=verdict.closed_form,
        statement=_statement(search, value, fastest, gap, main_restriction(scope, taken)),
        scope=scope,
        fastest_seconds=fastest if search.choice.reason else None,
    )


def _statement(search: Search, value: float, fastest: float, gap: float, scope: str) -> str:
    """The proof as a sentence, with the restriction that matters; the plan takes ``value`` seconds."""
    outcome, space, reason = search.outcome, search.space, search.choice.reason
    assert outcome.best is not None
    if search.objective.by_memory:
        least = f"{outcome.best.even_split_peak_bytes / 2**30:.4g} GiB allocated"
        said = f"no strategy needs less memory than {least} {scope}".rstrip()
        return said if outcome.proved else f"{least}; others were not looked at"
    if search.objective.name == "goodput" and outcome.proved:
        return f"none trains more per wall time {scope}".rstrip()
    if isinstance(space, MixedSpace):
        among = " with as many ranks on every stage" if space.one_width else ""
        said = f"none{among} can beat {fastest:.4g} s"
    else:
        said = f"none can beat {fastest:.4g} s {scope}".rstrip()
    behind = value / fastest - 1.0
    takes = f"takes {value:.4g} s (+{behind:.2%}), a tie," if behind >= LEAST_SHOWN else "is as fast"
    tied = f"; this plan {takes} and {reason}" if reason else ""
    return (said if outcome.proved else f"proved within {gap:.1%}") + tied


def given_plan(
    resolved: Resolved,
    budget: Budget,
    layers: Sequence[int] | None,
    recomputed: Sequence[int] | None,
    *,
    chunked: bool,
    near: bool,
    as_ran: bool,
) -> Plan:
    """The price of the one strategy that the pins describe, or the rules that it breaks; arguments as of `predict`."""
    if resolved.mixed:
        found = given_on_groups(resolved, resolved.mixed, layers, recomputed, budget=budget, chunked=chunked)
        return _predicted(resolved, found) if isinstance(found, Given) else _infeasible(resolved, found)
    pins = parse_pins(resolved.request.pins)
    try:
        found = given_strategy(resolved, pins, layers, recomputed, budget=budget, chunked=chunked, as_ran=as_ran)
    except UnfilledPins as error:
        near_by = nearest_given(resolved.scenario, pins, layers) if near else None
        raise contradiction(error, pins, near_by[0] if near_by else None) from None
    answer = _predicted(resolved, found) if isinstance(found, Given) else _infeasible(resolved, found)
    if answer.strategy and not as_ran:
        answer = answer.model_copy(update={"defaults": (*answer.defaults, *_plainest(answer.strategy, pins))})
    if answer.status != "infeasible" or not near or as_ran:
        return answer
    return answer.model_copy(update={"nearest": nearest_strategy(resolved.scenario, pins, layers)})


def _plainest(strategy: Strategy, pins: Mapping[str, Pin]) -> Iterator[str]:
    """What a given strategy takes of its micro-batch and recomputation where nobody says it."""
    if "micro_batch_size" not in pins:
        yield f"micro-batch {strategy.micro_batch_size} (--micro-batch)"
    if not pins.keys() & {"recompute", "recompute_modules", "recompute_num_layers"}:
        yield f"recompute {strategy.recompute} (--recompute)"


def _predicted(resolved: Resolved, given: Given) -> Plan:
    """The price of one strategy, and whether it fits."""
    row, split, several = given.running, given.split, resolved.mixed is not None
    priced = price(row, resolved.question, split)
    found = priced_record(resolved, given.row, split, priced, TRUSTED)
    known = trust(resolved.scenario, first_in_pipeline(given.row), mfu=found["prediction"].mfu, mixture=several)
    refused = _too_large(given.row, priced, resolved)
    doubt = _doubts(refused, row, priced, resolved)
    unfit = () if doubt else refused
    drawn = drawn_chunks(split.layers.tolist(), given.row, resolved.scenario, counted=not several)
    past = past_measured(resolved.scenario, first_in_pipeline(given.row))
    warnings = (*_warnings(row, priced, resolved, found["prediction"]), *outside(known), *past, *drawn)
    meant = (given.meant,) if given.meant else ()
    broken = tuple(f"breaks the rule {one.rule}: {one.example}; priced as it ran" for one in given.broken)
    return Plan(
        status="infeasible" if unfit else "feasible",
        fits=not refused,
        warnings=broken if unfit else (*broken, *doubt, *meant, *warnings),
        rejected=(*given.broken, *unfit),
        closest_run=None if several else explain.closest_run(resolved.scenario),
        trust=known,
        **found,
    )


def _too_large(row: Strategies, priced: Price, resolved: Resolved) -> tuple[Rejection, ...]:
    """The memory that a strategy does not fit in, that of the hosts before that of the devices."""
    question, needed, limits = resolved.question, priced.footprint.total, stage_limits(row, resolved.question)
    if isinstance(question, Mixed):
        assert isinstance(row, MixedStrategies)
        fits, stage = (needed <= limits * (1 + 1e-9)).all(), int(np.argmax(needed / limits))
        where = f"stage {stage} on {question.scenarios[int(row.group_at()[0, stage])].group.name}"
    else:
        if not host_fits(row, question)[0]:
            return (_host_rejection(row, question),)
        fits = np.max(priced.footprint.handed_out) <= device_limit(question, row)[0]
        stage = int(np.argmax(needed))
        where = f"stage {stage}" if len(needed) > 1 else "every GPU"
    words = f"{where} needs {needed[stage] / 2**30:.1f} GiB, {limits[stage] / 2**30:.1f} GiB available"
    return () if fits else (Rejection(rule="memory", count=1, example=words),)


def _doubts(refused: tuple[Rejection, ...], row: Strategies, priced: Price, resolved: Resolved) -> tuple[str, ...]:
    """What is said in place of a refusal where so little memory lacks that measured runs with as little did run."""
    over = float((priced.footprint.total / stage_limits(row, resolved.question)).max())
    if not refused or refused[0].rule != "memory" or resolved.margin or over > 1.0 + DOUBTFUL:
        return ()
    known = f"{RAN:.0%} of the measured runs predicted up to {DOUBTFUL:.0%} above their memory ran"
    return (f"{refused[0].example}: likely to run out of memory. {known}, so try a few iterations, or save memory",)


def _host_rejection(row: Strategies, scenario: Scenario) -> Rejection:
    needed, room = host_need(row, scenario)[0], host_room(scenario)
    words = f"offload needs {needed / 2**30:.1f} GiB of the host per GPU, {room / 2**30:.1f} GiB available"
    return Rejection(rule="host-memory", count=1, example=words)


def _warnings(row: Strategies, priced: Price, resolved: Resolved, predicted: Prediction) -> tuple[str, ...]:
    """What to know of a strategy and its figures.

    Stages of several widths, full memory, a stack that makes no programs for the device, utilisation beyond the peak,
    tokens that experts drop, a cost that nobody knows.
    """
    device, found = resolved.scenario.group.accelerator, [*_widths(row)]
    share = priced.footprint.total / stage_limits(row, resolved.question)
    stage = int(np.argmax(share))
    if NEARLY_FULL < share[stage] <= 1.0 and not resolved.margin:
        found.append(nearly_full_warning(stage, float(share[stage])))
    stack = resolved.scenario.stack.name
    if makes_no_programs(resolved.scenario):
        other = f"--stack {XLA} {'does' if device.vendor == TPU else 'comes nearest'}, through XLA"
        found.append(f"{stack} does not run on {device.name}; {other}")
    halved = predicted.mfu / causal_excess(resolved.scenario)
    if predicted.mfu > FLATTERED * halved or max(predicted.mfu, predicted.hfu) > HIGH:
        whole = "MFU and HFU count all of attention, of which causal kernels compute half"
        found.append(f"{whole}; counting that half, MFU is {halved:.1%}")
    capacity = resolved.scenario.stack.switches.expert_capacity
    if resolved.scenario.model.moe and capacity is not None and capacity < 1.0:
        found.append(f"experts drop {1.0 - capacity:.0%} of their tokens or more, which MFU counts as if computed")
    if resolved.request.objective == "cost" and predicted.cost_dollars is None:
        name = resolved.cluster.name
        found.append(f"{name} has no price, so the cheapest plan is taken to be the fastest; give it price = '2 $/h'")
    return tuple(found)


def _widths(row: Strategies) -> tuple[str, ...]:
    """A word on stages of several widths, which node groups may give them."""
    groups = row.groups if isinstance(row, MixedStrategies) else (row,)
    ranks = {int(group.tp[0] * group.cp[0] * group.dp[0]) for group in groups}
    if len(ranks) == 1:
        return ()
    shown = " and ".join(map(str, sorted(ranks)))
    return (f"stages have {shown} ranks, so tp x cp x pp x dp is not the number of GPUs; few launchers can start that",)
