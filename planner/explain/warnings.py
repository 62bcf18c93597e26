"""What to know of a plan that is right within the model: unused pins, full memory, a framework that refuses it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costmodels.names import Recompute
from costmodels.node_groups import AnyScenario, Mixed, MixedStrategies, parts_of
from costmodels.pricing import price_strategy
from costmodels.scenario import Scenario
from costmodels.strategy import Ints, Strategies
from planner.answer.build import degrees_in_words, peak_bytes, strategy_record
from planner.answer.plan import Advice, Strategy
from planner.answer.text import (
    BY_GROUP,
    WORTH_SHOWING,
    degrees_above_one,
    format_seconds,
    layers_per_stage,
    memory_savings,
    probability_words,
)
from planner.errors import BadRequest, OutOfTime
from planner.explain.infeasible import as_rejections, order_refusals
from planner.explain.levers import scale_device
from planner.frameworks.registry import FRAMEWORKS, framework_of
from planner.frameworks.vendors import BY_XLA, needs_cuda
from planner.request.budget import Budget
from planner.request.pins import Pin, shown_value
from planner.request.resolve import Resolved
from planner.rules.core import ALIKE, sentence
from planner.rules.rule import Rule
from planner.search.choice import NEARLY_FULL
from planner.search.core_bounds import known_bound
from planner.search.given_by_group import broken_rules
from planner.search.memory_savers import saver_options
from planner.search.objective import Objective, Search, build_below
from planner.search.question import for_framework
from planner.search.split import TOLERANCE
from planner.space.active_rules import active, binding, passing
from planner.space.lattice import Space
from planner.space.mixed import MixedSpace, lay_out
from planner.space.sharding import SHARDING
from planner.trust.memory import fit_probability

MOST_NAMED = 3
"""Values of one pin whose reasons are named."""


def unused_pin_values(search: Search) -> list[str]:
    """A line for every value of a list that no strategy takes, with the rule that stands against it."""
    lines, pins = [], search.pins
    for axis, pin in pins.items():
        if not pin.listed:
            continue
        taken = set(_values(search.space, axis).tolist())
        unused = [value for value in pin.values if value not in taken]
        for value in unused[:MOST_NAMED]:
            why = _why(search.resolved, {**pins, axis: Pin(axis, (value,))}, search.space)
            lines.append(f"no strategy has {axis} {shown_value(axis, value)}: {why}")
        if unused[MOST_NAMED:]:
            rest = ", ".join(shown_value(axis, value) for value in unused[MOST_NAMED:])
            lines.append(f"nor has any {axis} {rest}")
    return lines


def _values(space: Space, axis: str) -> NDArray[Any]:
    """The values of an axis among all strategies that pass every rule but memory."""
    if isinstance(space, MixedSpace):
        if axis in SHARDING:
            return np.unique((space.zero_stage if axis == "zero_stage" else space.degree)[space.allowed])
        return np.unique([getattr(group, axis) for group in space.cores.groups])
    if axis == "zero_stage":
        return space.zero_stage[space.allowed.any(axis=0)]
    if axis == "sharding_degree":
        core, option = np.nonzero(space.allowed)
        return np.unique(space.degree[space.layout[core], option])
    return np.unique(getattr(space.cores, axis))


def _why(resolved: Resolved, pins: Mapping[str, Pin], space: Space) -> str:
    one_width = isinstance(space, MixedSpace) and space.one_width
    try:
        refusals = lay_out(resolved.question, pins, one_width=one_width).refusals
    except BadRequest as error:
        return str(error)
    refused = order_refusals(as_rejections(refusals), resolved, binding(resolved.question))
    return refused[0].example if refused else "other pins leave none"


MARGIN: Final = 1.0 - NEARLY_FULL
"""Share of the usable memory that the better-safe plan leaves alone."""


def memory_edge(search: Search, budget: Budget) -> tuple[Advice, ...]:
    """What the margin costs that nobody asked for: the best without it, and its risk; none where that is no faster."""
    objective, margin = search.objective, search.resolved.margin
    if not search.resolved.margin_is_usual:
        return ()
    edge = replace(objective, margin=0.0).on(scale_device(objective.scenario, usable_memory=1.0 / (1.0 - margin)))
    there, tied = (1.0 - WORTH_SHOWING) * edge.compared(search.taken), 1.0 + edge.tie_width
    found = edge.search(search.space, budget=budget, margin=tied, confirm=False, below=there)
    if found.best is None or not found.proved:
        return ()
    taken = edge.choice(found).taken
    gain = 1.0 - edge.value(taken) / search.value
    if gain < WORTH_SHOWING:
        return ()
    filled = peak_bytes(price_strategy(taken.row, edge.scenario, taken.assignment))
    share = filled / edge.scenario.group.accelerator.usable_memory
    words = _words(strategy_record(taken.row, taken.assignment, edge.scenario), search)
    sure = probability_words(fit_probability(edge.scenario, share))
    risk = f"fills {share:.1%} of the memory and fits with a probability of {sure}"
    return (Advice(subject="--memory-margin 0", text=f"{gain:.1%} faster, {words}; it {risk}"),)


def memory_headroom(search: Search, budget: Budget) -> tuple[Advice, ...]:
    """The best that leaves a margin, for a plan that does not; none where it was not found."""
    objective, best = search.objective, search.taken
    if search.resolved.margin:
        return ()
    scenario = objective.scenario
    filled = peak_bytes(price_strategy(best.row, scenario, best.assignment)) / scenario.group.accelerator.usable_memory
    if objective.by_memory or filled <= NEARLY_FULL:
        return ()
    smaller = objective.on(scale_device(scenario, usable_memory=1.0 - MARGIN))
    near = 1.0 + objective.tie_width
    found = smaller.search(search.space, budget=budget, margin=near, confirm=False)
    if search.space.below < math.inf and not (found.best and found.best.iteration * near < search.space.below):
        try:
            found = smaller.search(search.whole(budget), budget=budget, margin=near, confirm=False)
        except OutOfTime:
            return ()
    if not found.proved:
        return ()
    asked = f"--memory-margin {MARGIN:.0%}"
    if found.best is None:
        without = " without offloading or recomputing layers together"
        lack = f"nothing fits{without if any(saver_options(search.pins, scenario)) else ''}"
        return (Advice(subject=asked, text=lack),)
    taken = smaller.choice(found).taken
    share = smaller.value(taken) / search.value - 1.0
    slower = f"{share:.1%} slower" if np.round(share, 3) > 0.0 else "as fast"
    words = _words(strategy_record(taken.row, taken.assignment, scenario), search)
    return (Advice(subject=asked, text=f"{slower}, {words}"),)


def _words(strategy: Strategy, search: Search) -> str:
    """Degrees and what is done for memory; what else is not as in the plan, more of it where the degrees are."""
    plan = strategy_record(search.taken.row, search.taken.assignment, search.objective.question)
    degrees, again = degrees_above_one(strategy), _recomputed(strategy)
    same = degrees == degrees_above_one(plan)
    named = (*_NAMED, *(_NAMED_ALONE if same else ()))
    changed = {said: getattr(strategy, name) for name, said in named if getattr(strategy, name) != getattr(plan, name)}
    said = [f"{name}{value}".replace("ZeRO-0", "no ZeRO") for name, value in changed.items()]
    if again != _recomputed(plan) or (again and not same):
        said.append(f"recompute {again}" if again else "no recomputation")
    if same and [stage.layers for stage in strategy.stages] != [stage.layers for stage in plan.stages]:
        said.append(layers_per_stage(strategy))
    begin = "the same degrees" if same else " ".join(degrees) or "one GPU"
    return ", ".join([begin, *said, *memory_savings(strategy)])


def _recomputed(strategy: Strategy) -> str:
    """What is recomputed; empty where nothing is."""
    layers, again = (sum(getattr(stage, name) for stage in strategy.stages) for name in ("layers", "recompute_layers"))
    if again:
        return f"{again}/{layers} layers"
    return "" if strategy.recompute == "none" else "+".join(strategy.recompute_modules) or strategy.recompute


_NAMED: Final = (("zero_stage", "ZeRO-"), ("micro_batch_size", "micro-batch "))
_NAMED_ALONE: Final = (
    ("sharding_degree", "states sharded over "),
    ("cp_kind", "CP by "),
    ("schedule", "schedule "),
    ("rank_order", "rank order "),
    ("vocabulary", "vocabulary at "),
)
_DEGREES: Final = ("tp", "cp", "pp", "ep", "dp")


def makes_no_programs(scenario: Scenario) -> bool:
    """Whether the stack runs on GPUs alone and these devices take programs by XLA, which every plan warns of."""
    return scenario.group.accelerator.vendor in BY_XLA and needs_cuda(scenario.stack.name)


def not_startable(search: Search, *, none_starts: bool = False) -> tuple[str, ...]:
    """The remark that a plan cannot be started, where no framework was asked for; none where it can, or nobody knows.

    Which framework a stack of somebody's own stands for is not known, but none has other degrees by node group. What it
    starts is looked for among the rows that the search has seen, under their even split, unless ``none_starts``.
    """
    objective, request, best = search.objective, search.resolved.request, search.taken
    framework = framework_of(objective.scenario.stack.name, adapters=request.adapters)
    if objective.scenario.framework:
        return ()
    if framework is None:
        record = strategy_record(best.row, best.assignment, objective.question)
        return (f"{BY_GROUP}; --format json has them by stage",) if record.by_group else ()
    question = for_framework(objective.question, framework)
    rules = tuple(rule for rule in binding(question) if rule.kind == "framework")
    broken = _broken(best.row, rules, question)
    if not broken or makes_no_programs(objective.scenario):
        return ()
    of_the_job = [lack for rule, lack in broken if _of_the_job(rule, question)]
    lack = of_the_job[0] if of_the_job else broken[0][1]
    could = "nor any other that fits" if none_starts else _startable(search, rules, question)
    other = "" if of_the_job else f"; {could}"
    return (f"{framework} cannot start this plan: {lack}{other}",)


def _of_the_job(rule: Rule, question: AnyScenario) -> bool:
    """Whether it refuses every strategy: of the one axis that it reads, a single rank too."""
    alone = {"tp": np.ones(1, dtype=np.int64)}
    return rule.reads == ("tp",) and not all(np.all(rule.passes(alone, part)) for part in parts_of(question))


def _broken(row: Strategies, rules: Sequence[Rule], question: AnyScenario) -> list[tuple[Rule, str]]:
    """The rules that a strategy breaks, N = 1, each in words with its numbers."""
    if isinstance(question, Mixed):
        assert isinstance(row, MixedStrategies)
        words = {one.rule: one.example for one in broken_rules(row, question, rules)}
        return [(rule, words[rule.name]) for rule in rules if rule.name in words]
    lacks = [rule for rule in rules if not passing(row, (rule,), question).all()]
    return [(rule, sentence(rule, row.row(0), question)) for rule in lacks]


def beyond_framework(search: Search, budget: Budget) -> tuple[Advice, ...]:
    """What is faster and the stack's framework does not start, where nobody asked for it; none where nothing is."""
    objective, request = search.objective, search.resolved.request
    framework = objective.scenario.framework
    if request.framework or not framework or not objective.by_time:
        return ()
    free = objective.on(for_framework(objective.question, ""))
    worth = (1.0 - WORTH_SHOWING) * free.compared(search.taken)
    try:
        near, space = _beyond(search, free, worth, budget)
    except OutOfTime:
        return ()
    found = free.search(space, budget=budget, among=near, margin=1.0, confirm=False, below=worth)
    if found.best is None or not found.proved or (gain := 1.0 - free.value(found.best) / search.value) < WORTH_SHOWING:
        return ()
    best, rules = found.best, _framework_rules(objective.scenario, frozenset(search.pins))
    alike = [ALIKE] if isinstance(objective.question, Mixed) else []
    lacks = _broken(best.row, [*alike, *rules], objective.question)
    lack = lacks[0][1] if lacks else "it recomputes other layers by stage"
    record = strategy_record(best.row, best.assignment, free.question)
    words = degrees_in_words(best.row, free.question) if record.by_group else _words(record, search)
    text = f"{gain:.1%} faster, {words}, but {framework} cannot start it: {lack}"
    return (Advice(subject="--for any", text=text),)


def _framework_rules(scenario: Scenario, pinned: frozenset[str]) -> list[Rule]:
    return [rule for rule in active(scenario, pinned) if rule.kind == "framework"]


def _beyond(search: Search, free: Objective, worth: float, budget: Budget) -> tuple[Ints | None, Space]:
    """Cores of a lattice that may take less than so many seconds, and it without what the search's framework starts.

    It may start what recomputes some layers, or cuts them into stages, in another way. Over several node groups the
    whole lattice, whose rows are bounded as they are searched.

    Raises:
        OutOfTime: the budget was spent before it was laid out.
    """
    if isinstance(free.question, Mixed):
        return None, lay_out(free.question, search.pins, budget=budget)
    space = build_below(free, search.pins, worth * (1.0 + TOLERANCE), budget=budget)
    scenario = search.objective.scenario
    likely = known_bound(space.cores, free.scenario) < worth
    near = np.flatnonzero(likely & search.kept(space.cores) if search.kept else likely)
    framework, allowed = FRAMEWORKS[scenario.framework], np.zeros_like(space.allowed)
    place, option = np.nonzero(space.allowed[near])
    rows = space.rows(near[place], option)
    asked = ~passing(rows, _framework_rules(scenario, frozenset(search.pins)), scenario)
    asked |= (rows.recompute == Recompute.PARTIAL) & (framework.recompute != "free") | (framework.cut is not None)
    allowed[near[place[asked]], option[asked]] = True
    return near, replace(space, allowed=allowed)


def _startable(search: Search, rules: Sequence[Rule], question: AnyScenario) -> str:
    """The fastest that the question's framework starts of the rows seen, which by group have no even split."""
    scenario = parts_of(question)[0]
    found: list[tuple[float, Strategies]] = []
    for part in () if isinstance(question, Mixed) else search.outcome.pool:
        able = part.take(part.fits & np.isfinite(part.even_split_seconds))
        able = able.take(passing(able.rows, rules, scenario)) if len(able.rows) else able
        if len(able.rows) and search.objective.by_time:
            i = int(np.argmin(able.even_split_seconds))
            found.append((float(able.even_split_seconds[i]), able.rows.take(np.array([i]))))
    if not found:
        return f"--for {scenario.framework} searches for one that it can"
    seconds, row = min(found, key=lambda one: one[0])
    slower = f"{format_seconds(seconds)} ({seconds / search.taken.iteration - 1:+.1%})"
    return f"it starts {_degrees(row)}, {slower}; --for {scenario.framework} searches for the best that it can"


def _degrees(row: Strategies) -> str:
    named = ((name, int(getattr(row, name)[0])) for name in _DEGREES)
    return " ".join(f"{name} {degree}" for name, degree in named if degree > 1 or name == "dp")
