"""Ways to save memory at a price: allowed where the request does not speak of them and nothing fits without."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from costmodels.arrays import distinct_values
from costmodels.memory.limits import needed_bytes
from costmodels.names import OFFLOADS
from costmodels.node_groups import AnyScenario, Mixed
from costmodels.scenario import Scenario
from costmodels.step.offload import described
from costmodels.strategy import Bools, Ints, Strategies
from planner.answer.plan import Advice, Plan
from planner.answer.text import WITHOUT, format_seconds
from planner.errors import BadRequest, OutOfTime
from planner.frameworks.registry import ANY, FRAMEWORKS
from planner.request.budget import Budget
from planner.request.pins import Pin, parse_pins
from planner.request.request import PlanRequest
from planner.request.resolve import Resolved
from planner.search.best_first import MARGIN, Outcome, search
from planner.search.core_bounds import known_bound, with_memory
from planner.search.fitting import may_fit
from planner.search.least_memory import ROUNDING, search_least_memory
from planner.search.objective import Objective, Searched, build_below, objective_of
from planner.search.question import resolve_search
from planner.search.split import Incumbent
from planner.space.lattice import Space
from planner.space.mixed import lay_out

FAR: Final = 0.1
"""Share of the time from which a plan saves memory at a price though one fits without."""
EFFORT: Final = 1e6
"""Of the search for one."""
ROOMY: Final = 1e3
"""Times the memory with which everything fits."""
DEGREES: Final = ("tp", "cp", "pp", "dp", "vpp", "ep", "etp", "micro_batch_size")
"""Axes that a bound depends on and no rule of dominance ends with: fewer of their values leave the best in."""
NO_FRAMEWORK: Final = "framework any (nothing fits that the stack's framework can start)"
"""The remark that a plan cannot be started as it is."""
NO_MARGIN: Final = "(nothing fits with the usual one)"
"""The remark that a plan goes nearer to the edge of the memory though nobody asked for it."""
_PLAIN: Final = {"recompute_num_layers": 1, "offload": OFFLOADS.index("none")}
_ALL: Final = {"recompute_num_layers": "1..", "offload": "any"}
_FLAGS: Final = {"recomputed together": "--recompute-num-layers 2..", "offload": "--offload any"}
"""By what their description has, the options that allow them."""


def saver_options(pins: Mapping[str, object], question: AnyScenario) -> Iterator[tuple[str, str]]:
    """The axes that save memory, with the values to allow on them, where the pins leave them alone.

    Layers that are recomputed together first, which costs no time beyond full recomputation, then offloading. Neither
    is priced on several node groups.
    """
    if isinstance(question, Mixed):
        return
    supports = question.stack.supports
    if supports.recompute_groups and not pins.get("recompute_num_layers"):
        yield "recompute_num_layers", "2.."
    if supports.offloads and described(question) and not pins.get("offload"):
        yield "offload", "any"


class Instead(NamedTuple):
    """A request that is answered in place of another, and why: nothing fits without, or it is far faster."""

    request: PlanRequest
    without: float = math.inf
    """Seconds of an iteration of the best as asked; infinite where nothing fits."""
    searched: Searched | None = None
    """What was searched to find it, with all that saves memory, where that was the whole lattice."""
    any_framework: bool = False
    """Whether nothing fits that the stack's framework starts."""


def answered_instead(
    request: PlanRequest, resolved: Resolved, space: Space, outcome: Outcome, budget: Budget
) -> Instead | None:
    """What is answered in place of a request that was searched; None where that is the request itself.

    Where nothing fits, what lets it fit. Where something does, what saves memory at a price if that is faster by far,
    so that more memory does not make a plan slower that fitted by such ways with less.

    Raises:
        OutOfTime: nothing fits as asked, and a time limit passed before all that saves memory was looked at.
    """
    if outcome.best is not None:
        return _far_faster(request, resolved, space, outcome.best, budget)
    # What is found is searched again, with its reasons, which takes its part of a time limit.
    some = budget.part(0.0, share=1 / 2) if budget.timed else budget
    found = with_savers(request, resolved, some) if outcome.proved else None
    if found is None and outcome.proved and budget.timed and some.spent():
        raise OutOfTime(f"nothing fits as asked, and what saves memory was not all looked at {budget.enough}")
    return found


def _far_faster(
    request: PlanRequest, resolved: Resolved, space: Space, best: Incumbent, budget: Budget
) -> Instead | None:
    free, question, objective = _savers(resolved), resolved.question, objective_of(resolved)
    if not (objective.by_time and free):
        return None
    assert isinstance(question, Scenario)
    below, pins, some = best.iteration * (1.0 - FAR), parse_pins(request.pins), budget.part(EFFORT, share=1 / 4)
    roomy = objective.on(with_memory(question, ROOMY * question.group.accelerator.usable_memory))
    near = saved_below(space.cores, question, free, below)
    if _below(roomy, space, near, below, some) is None:  # not even with memory to spare
        return None
    try:
        wider = build_below(
            objective, {**pins, **values_of(space.cores.take(near), DEGREES), **free}, below, budget=some
        )
    except OutOfTime:
        return None
    found = _below(objective, wider, np.flatnonzero(_saves(wider.cores)), below, some)
    return Instead(_with_used(request, resolved, found.row), best.iteration) if found else None


def _below(objective: Objective, space: Space, among: Ints, below: float, budget: Budget) -> Incumbent | None:
    """The fastest of some cores that takes less than so many seconds; None where none does that was looked at."""
    known = objective.search(space, budget=budget, among=among, margin=1.0, confirm=False, below=below).best
    return known if known and known.iteration <= below else None


def _saves(rows: Strategies) -> Bools:
    """Whether rows save memory at a price, (N,)."""
    return np.any([getattr(rows, axis) != plain for axis, plain in _PLAIN.items()], axis=0)


def saved_below(cores: Strategies, scenario: Scenario, free: Mapping[str, Pin], below: float) -> Ints:
    """Cores, indices, that may take less than so many seconds and may fit once the ``free`` axes save memory.

    What saves memory takes time, so that the bounds of the cores as they are stand; the least bytes are those of one
    layer's activations, however many are recomputed together.
    """
    near = np.flatnonzero(known_bound(cores, scenario) < below)
    some, kinds = cores.take(near), scenario.stack.supports.offloads if "offload" in free else ("none",)
    away = [replace(some, offload=np.full_like(some.tp, OFFLOADS.index(kind))) for kind in kinds]
    return near[np.any([may_fit(one, scenario) for one in away], axis=0)]


def with_savers(request: PlanRequest, resolved: Resolved, budget: Budget) -> Instead | None:
    """The request with what lets it fit; nothing fits without it.

    Whatever saves memory is weighed together, and the fastest is taken: more memory never makes it slower. Where all of
    it leaves less than the margin that a search keeps unless it is told otherwise, the margin is what the leanest
    strategy leaves, not nothing. That its stack's framework starts the plan goes last, after what it starts only with
    code of the user's.
    """
    for asked in _wider(request, resolved):
        found = _freest(resolve_search(asked), budget) if asked is not request or _savers(resolved) else None
        if found is None:
            continue
        lean = _leanest(resolve_search(asked), budget) if asked.memory_margin != request.memory_margin else 0.0
        leaner = asked.model_copy(update={"memory_margin": lean})
        again = _freest(resolve_search(leaner), budget) if lean else None
        taken, whole = (leaner, again) if again else (asked, found)
        assert whole.outcome.best is not None
        used = _with_used(taken, resolved, whole.outcome.best.row)
        return Instead(used, searched=whole, any_framework=taken.framework != request.framework)
    return None


def _with_used(request: PlanRequest, resolved: Resolved, row: Strategies) -> PlanRequest:
    """The request with those ways to save memory, and that code of the user's, that a strategy uses."""
    used = {axis: few for axis, few in saver_options(request.pins, resolved.question) if _uses(row, axis)}
    pins = {axis: pin for axis, pin in request.pins.items() if axis in resolved.request.pins or _uses(row, axis)}
    return request.model_copy(update={"pins": {**pins, **used}})


def _wider(request: PlanRequest, resolved: Resolved) -> Iterator[PlanRequest]:
    """The request with ever more of what it leaves open given up: the margin of memory, the framework.

    Before the framework goes what it starts only with a user's code is allowed.
    """
    starts: list[dict[str, object]] = [{}]
    if coded := _axes_of_own_code(resolved):
        starts.append({"pins": {**request.pins, **dict.fromkeys(coded, "1..")}})
    if request.framework is None and resolved.scenario.framework:
        starts.append({"framework": ANY})
    margins: list[dict[str, object]] = [{}, {"memory_margin": 0.0}] if resolved.margin_is_usual else [{}]
    for start, margin in product(starts, margins):
        yield request.model_copy(update={**start, **margin}) if start or margin else request


def _axes_of_own_code(resolved: Resolved) -> tuple[str, ...]:
    """Axes that a search leaves at 1 because its framework starts them only with a user's code."""
    framework = FRAMEWORKS.get(resolved.scenario.framework)
    rules = framework.own_code if framework else ()
    return tuple(axis for rule in rules for axis in rule.reads if axis not in resolved.request.pins)


def _savers(resolved: Resolved) -> dict[str, Pin]:
    return saver_pins(parse_pins(resolved.request.pins), resolved.question)


def saver_pins(pins: Mapping[str, Pin], question: AnyScenario) -> dict[str, Pin]:
    """All values of the axes that save memory, where the pins leave them alone, plain ones among them."""
    return parse_pins({axis: _ALL[axis] for axis, _ in saver_options(pins, question)})


def _freest(resolved: Resolved, budget: Budget) -> Searched | None:
    """The search for the fastest with or without any of the ways to save memory; None where none fits."""
    pins = parse_pins(resolved.request.pins)
    found = _searched(resolved.question, {**pins, **saver_pins(pins, resolved.question)}, budget)
    return found if found and found.outcome.best else None


def _leanest(resolved: Resolved, budget: Budget) -> float:
    """The share of the memory that the strategy of least memory leaves, 0 where that is not known."""
    question, pins = resolved.question, parse_pins(resolved.request.pins)
    if isinstance(question, Mixed):
        return 0.0
    try:
        space = lay_out(question, {**pins, **saver_pins(pins, question)}, one_width=False, budget=budget)
    except OutOfTime:
        return 0.0
    best = search_least_memory(space, question, budget=budget).best
    if best is None:
        return 0.0
    needed = needed_bytes(best.row, question, np.array([best.even_split_peak_bytes]))[0]
    return max(1.0 - float(needed) * (1.0 + ROUNDING) / question.group.accelerator.usable_memory, 0.0)


def _uses(row: Strategies, axis: str) -> bool:
    return bool(getattr(row, axis)[0] != _PLAIN.get(axis, 1))


def best_of(question: AnyScenario, pins: Mapping[str, Pin], budget: Budget) -> Incumbent | None:
    """The fastest that fits, by any of these ways where nothing fits without."""
    best, free = plain_best(question, pins, budget), saver_pins(pins, question)
    return best or (plain_best(question, {**pins, **free}, budget) if free else None)


def plain_best(
    question: AnyScenario, pins: Mapping[str, Pin], budget: Budget, *, margin: float = MARGIN
) -> Incumbent | None:
    """The fastest that fits as asked; None also where the pins make up no strategy, or the budget is spent."""
    found = _searched(question, pins, budget, margin=margin)
    return found.outcome.best if found else None


def _searched(
    question: AnyScenario, pins: Mapping[str, Pin], budget: Budget, *, margin: float = MARGIN
) -> Searched | None:
    """The search for the fastest; None where the pins make up no strategy, or the budget is spent."""
    if budget.spent():
        return None
    try:
        space = lay_out(question, dict(pins), one_width=False, budget=budget)
    except (BadRequest, OutOfTime):  # pins that make up no strategy, layers of a prime number, an empty range
        return None
    return Searched(question, space, search(space, question, budget=budget, margin=margin))


def note_savers(found: Plan, request: PlanRequest, there: Instead) -> Plan:
    """The plan of a moved request with the remark that its ways to fit were not asked for in ``request``."""
    if found.strategy is None or found.prediction is None:
        return found
    words = _words(found.strategy.recompute_num_layers, found.strategy.offload)
    added = there.request.pins.keys() - request.pins.keys()
    said = [_remark(words, found.prediction.iteration_seconds, there)] if added & _PLAIN.keys() else []
    coded = _own_code(found, there.request, added - _PLAIN.keys())
    margin = there.request.memory_margin
    said += [f"memory margin {margin:.1%} {NO_MARGIN}"] if margin != request.memory_margin else []
    said += [NO_FRAMEWORK] if there.any_framework else []
    said += coded
    warnings = (*found.warnings, *coded.values())
    changes: dict[str, object] = {"defaults": (*found.defaults, *said), "warnings": warnings}
    if math.isfinite(there.without):
        seconds = found.prediction.iteration_seconds
        text = f"{words}: {_faster(seconds, there)}"
        changes["saving_memory"] = Advice(subject=words, text=text, iteration_seconds=seconds)
    return found.model_copy(update=changes)


def _own_code(found: Plan, request: PlanRequest, axes: Collection[str]) -> dict[str, str]:
    """Of the axes that were allowed, what of a plan takes a user's code, with the code that it takes."""
    if not axes:
        return {}
    name, degrees = resolve_search(request).scenario.framework, vars(found.strategy)
    coded = [(axis, rule) for rule in FRAMEWORKS[name].own_code for axis in rule.reads if axis in axes]
    return {
        f"{axis} {degrees[axis]}{WITHOUT}": f"{name} takes {rule.sentence.format(**degrees)}" for axis, rule in coded
    }


def _remark(words: str, seconds: float, there: Instead) -> str:
    return f"{words} ({_faster(seconds, there)})" if math.isfinite(there.without) else f"{words}{WITHOUT}"


def _faster(seconds: float, there: Instead) -> str:
    return f"{1.0 - seconds / there.without:.1%} faster than {format_seconds(there.without)}, the best without"


def describe_savers(row: Strategies) -> str:
    """The memory savers of a strategy, N = 1, in words: "offload optimizer"; empty where it has none."""
    together, offload = int(row.recompute_num_layers[0]), OFFLOADS[int(row.offload[0])]
    return _words(together, offload)


def _words(together: int, offload: str) -> str:
    said = [f"{together} layers recomputed together"] * (together > 1) + [f"offload {offload}"] * (offload != "none")
    return " and ".join(said)


def saver_flags(description: str) -> str:
    """The options that ask for the memory savers that a description names; empty where it names none."""
    return " ".join(flag for name, flag in _FLAGS.items() if name in description)


def values_of(some: Strategies, axes: Iterable[str]) -> dict[str, Pin]:
    """The values that strategies have of some axes, as pins; empty where there are no strategies."""
    values = {axis: distinct_values(getattr(some, axis)).astype(int).tolist() for axis in axes}
    return {axis: Pin(axis, tuple(found)) for axis, found in values.items() if found}
