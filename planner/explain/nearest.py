"""The nearest question, and the nearest strategy, that works where the one asked for does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, NamedTuple

from costmodels.names import VALUE_NAMES
from costmodels.node_groups import AnyScenario
from costmodels.pricing import seconds_if_it_fits
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies
from hardware.errors import MeshwrightError
from hardware.records import BadNodeCount
from planner.answer.build import degrees_in_words
from planner.answer.plan import Advice
from planner.answer.text import plural
from planner.errors import BadRequest
from planner.explain.combination import flags, nearest_given, saver_flags
from planner.request.budget import Budget
from planner.request.fields import FIELDS, optional_fields
from planner.request.pins import Pin, parse_pins
from planner.request.request import PlanRequest
from planner.request.resolve import Resolved, with_margin
from planner.rules.divisors import divisors
from planner.search.given import broken_rules, checked_layers, single_strategy, split_or_given
from planner.search.memory_savers import best_of, describe_savers
from planner.search.question import resolve_search
from planner.search.split import Incumbent
from planner.space.lattice import MESH_AXES
from planner.trust.memory import usual_margin


def without_one_option(resolved: Resolved, budget: Budget, *, same_job: bool = False) -> Iterator[tuple[str, Resolved]]:
    """Every request with one option less that can be asked, and how it is said: "without --optimizer adafactor"."""
    request = resolved.request
    for name in given_options(request, same_job=same_job):
        if budget.spent():
            return
        try:
            there = resolve_search(request.model_copy(update={name: _usual(name)}))
        except MeshwrightError:  # options that need this one
            continue
        yield f"without {cli_flag(request, name)}{_in_its_place(resolved, there)}", there


def given_options(request: PlanRequest, *, same_job: bool = False) -> list[str]:
    """The options that a request gives and need not, those about what is trained left out with ``same_job``."""
    return [name for name in optional_fields(same_job=same_job) if getattr(request, name) != _usual(name)]


def _usual(name: str) -> Any:
    return PlanRequest.model_fields[name].get_default(call_default_factory=True)


def cli_flag(request: PlanRequest, name: str) -> str:
    """An option as it is given: "--optimizer adafactor"."""
    value = getattr(request, name)
    shown = value if isinstance(value, str | float) or type(value) is int else getattr(value, "name", "")
    return f"--{FIELDS[name].words[0]} {shown}".rstrip()


def _in_its_place(asked: Resolved, there: Resolved) -> str:
    """The defaults that take the option's place, if more changes than the option."""
    before, after = asked.scenario, there.scenario
    pairs = (
        ("stack", before.stack.name, after.stack.name),
        ("batch", before.global_batch_size, after.global_batch_size),
        ("sequence length", before.seq_length, after.seq_length),
    )
    said = [f"{name} {new}" for name, old, new in pairs if old != new]
    return f" ({', '.join(said)})" if said else ""


NEAREST = 5e6
"""Effort in which it is looked for, and no longer than a time limit leaves."""
HALVINGS = 4
"""Times that the gap between too few GPUs and enough of them is halved."""
MOST_TIMES = 64
"""Times the GPUs at which no more are tried."""


class Near(NamedTuple):
    """The nearest request that works, None where none was found, and in words what was tried then."""

    advice: Advice | None
    tried: str


def nearest_request(resolved: Resolved, budget: Budget, *, short: bool = True) -> Near:
    """The same request with fewer pins, narrower weights, more or fewer GPUs, or an option less: the first that works.

    As in a plan itself, what saves memory at a price is allowed where nothing fits without it.

    Args:
        resolved: the request.
        budget: of the whole answer, which ends this with its time limit.
        short: whether memory is what lacks, so that GPUs are tried before options; the other way round where not.
    """
    budget = budget.part(NEAREST)
    pins = parse_pins(resolved.request.pins)
    ways: list[Callable[[], Advice | None]] = [lambda: _fewer_pins(resolved.question, pins, budget)]
    if not resolved.mixed:
        ways.append(lambda: _narrow_weights(resolved, pins, budget) if short else None)
        if not short:
            ways.append(lambda: _fewer_options(resolved, pins, budget, same_job=True))
        ways.append(lambda: _more_gpus(resolved, pins, budget))
        ways.append(lambda: _more_gpus(resolved, {}, budget) if pins else None)
        ways.append(lambda: _fewer_gpus(resolved, pins, budget))
    ways.append(lambda: _fewer_options(resolved, pins, budget))
    if not resolved.mixed:
        ways.append(lambda: _several_changes(resolved, pins, budget))
    found = next((advice for way in ways if (advice := way())), None)
    return Near(found, "" if found else _tried(resolved, late=budget.spent()))


def _tried(resolved: Resolved, *, late: bool) -> str:
    """The requests that were tried and do not work either; no other number of GPUs with several node groups."""
    options = ", ".join(cli_flag(resolved.request, name) for name in given_options(resolved.request))
    said = ["fewer pins"] if resolved.request.pins else []
    if not resolved.mixed:
        said.append(f"up to {MOST_TIMES} times as many GPUs, and fewer than {resolved.scenario.gpus:,}")
    said += [f"without one of {options}"] if options else []
    said += ["the search ended before everything was looked at"] if late else []
    return "; ".join(said) or "no option could be left out"


def _fewer_options(
    resolved: Resolved, pins: Mapping[str, Pin], budget: Budget, *, same_job: bool = False
) -> Advice | None:
    """The request without the first option that stands in its way, on as many node groups."""
    for subject, there in without_one_option(resolved, budget, same_job=same_job):
        if bool(there.mixed) == bool(resolved.mixed) and (best := best_of(there.question, pins, budget)):
            return _described(subject, best, there.question)
    return None


_NARROW: Final = "nf4"
"""The usual format of frozen weights under adapters that do not fit in 16 bits."""


def _narrow_weights(resolved: Resolved, pins: Mapping[str, Pin], budget: Budget) -> Advice | None:
    """The request with frozen weights in 4 bits, where adapters train and nobody says their format."""
    request = resolved.request
    if request.adapters is None or request.base_precision is not None or budget.spent():
        return None
    try:
        there = resolve_search(request.model_copy(update={"base_precision": _NARROW}))
    except MeshwrightError:  # a stack that knows no such weights
        return None
    best = best_of(there.question, pins, budget)
    return _described(f"--base-precision {_NARROW}", best, there.question) if best else None


def _several_changes(resolved: Resolved, pins: Mapping[str, Pin], budget: Budget) -> Advice | None:
    """Without an option and all pins, or on more GPUs too: two obstacles are removed by two changes."""
    for subject, there in without_one_option(resolved, budget):
        if there.mixed:
            continue
        if pins and (best := best_of(there.scenario, {}, budget)):
            return _described(f"{subject}, and {without(pins)}", best, there.question)
        more = _more_gpus(there, pins, budget)
        if more := more or (_more_gpus(there, {}, budget) if pins else None):
            return more.model_copy(update={"subject": f"{subject}, on {more.subject}"})
    return None


def _fewer_pins(question: AnyScenario, pins: Mapping[str, Pin], budget: Budget) -> Advice | None:
    """The request without the pin that stands in its way, or without all of them."""
    if len(pins) > 1:
        freed = {name: {other: pins[other] for other in pins if other != name} for name in pins}
        works = {name: best for name, rest in freed.items() if (best := best_of(question, rest, budget))}
        if works:
            name = min(works, key=lambda pin: works[pin].iteration)
            return _described(without([name]), works[name], question)
    best = best_of(question, {}, budget) if pins else None
    return _described(without(pins), best, question) if best else None


def without(pins: Iterable[str]) -> str:
    """The pins that the nearest request leaves out, as options: "without --tp, --cp and --pp"."""
    *others, last = (f"--{FIELDS[axis].words[0]}" for axis in pins)
    return f"without {', '.join(others)} and {last}" if others else f"without {last}"


def _described(subject: str, best: Incumbent, question: AnyScenario) -> Advice:
    text = ", ".join(filter(None, (degrees_in_words(best.row, question), describe_savers(best.row))))
    return Advice(subject=subject, text=text, iteration_seconds=best.iteration)


def _batch_and_savers(scenario: Scenario, best: Incumbent) -> str:
    """What keeps the batch on other GPUs, as options, and what the plan there saves memory by."""
    return f"--global-batch {scenario.global_batch_size} {saver_flags(best.row)}".rstrip()


def _more_gpus(resolved: Resolved, pins: Mapping[str, Pin], budget: Budget) -> Advice | None:
    """The least number of GPUs found that fits under the pins: doubling first, then halving what lies between."""
    few, asked = resolved.scenario.gpus, parse_pins(resolved.request.pins)
    for larger in _doubled(resolved):
        if best := best_of(larger, pins, budget):
            gpus, best = _between(resolved, (few, larger.gpus), best, lambda at: best_of(at, pins, budget))
            freed = "" if len(pins) == len(asked) else f" {without(asked)}"
            text = f"the same request{freed} with {_batch_and_savers(larger, best)}"
            return Advice(subject=plural(gpus, "GPU"), text=text, iteration_seconds=best.iteration)
        few = larger.gpus
    return None


def _fewer_gpus(resolved: Resolved, pins: Mapping[str, Pin], budget: Budget) -> Advice | None:
    """The most GPUs below, of rounder counts, that the batch can be divided among."""
    for count in _below(resolved.scenario.gpus):
        scenario = None if budget.spent() else with_gpus(resolved, count)
        if scenario and (found := best_of(scenario, pins, budget)):
            text = f"the same request with {_batch_and_savers(scenario, found)}"
            return Advice(subject=plural(count, "GPU"), text=text, iteration_seconds=found.iteration)
    return None


def _below(count: int) -> Iterator[int]:
    """Rounder counts and halves, the most first."""
    while count > 1:
        yield from reversed(rounder_counts(count))
        count //= 2
        yield count


def _doubled(resolved: Resolved) -> Iterator[Scenario]:
    """The same question on 2, 4, ... 64 times the GPUs, in whole nodes."""
    for doublings in range(1, MOST_TIMES.bit_length()):
        times = 2**doublings
        if larger := with_gpus(resolved, resolved.scenario.gpus * times):
            yield larger


def _between(
    resolved: Resolved, ends: tuple[int, int], best: Incumbent, find: Callable[[Scenario], Incumbent | None]
) -> tuple[int, Incumbent]:
    few, enough = ends
    step = max(resolved.scenario.group.gpus_per_node, 1)
    for _ in range(HALVINGS):
        middle = (few + enough) // 2 // step * step
        if not few < middle < enough:
            break
        scenario = with_gpus(resolved, middle)
        if scenario and (found := find(scenario)):
            enough, best = middle, found
        else:
            few = middle
    return enough, best


def rounder_counts(count: int) -> list[int]:
    """Smaller counts that one, two and three more powers of two divide, above half of it."""
    lowest = count & -count
    return sorted({below for more in (2, 4, 8) if (below := count // (lowest * more) * lowest * more) > count // 2})


def with_gpus(resolved: Resolved, gpus: int) -> Scenario | None:
    """The question on so many GPUs with the same batch; None where such a cluster cannot be had."""
    try:
        cluster = resolved.machines.with_gpus(gpus)
    except BadNodeCount:
        return None
    there = replace(resolved.scenario, gpus=gpus, group=cluster.groups[0])
    margin = usual_margin(there) if resolved.margin_is_usual else resolved.margin
    return replace(there, group=with_margin(cluster, margin).groups[0])


TRIED: Final = 400
"""Values that are tried, the nearest first: by their number, so that a busy machine names the same as an idle one."""
PRICED: Final = 40
"""Of these, what keeps to the rules and is split and priced."""
_BATCH: Final = "global_batch_size"


def nearest_strategy(scenario: Scenario, pins: Mapping[str, Pin], layers: Sequence[int] | None) -> Advice | None:
    """The strategy with one pin otherwise, or else with several, that breaks no rule and fits; None where none is.

    Degrees and sizes a few times off come before other names. Data parallelism takes what other degrees leave.
    """
    for axis, value, there, row in islice(_allowed(scenario, pins, layers), PRICED):
        if (seconds := _seconds(there, row, layers)) is not None:
            return Advice(subject=flags({axis: value}), text=degrees_in_words(row, there), iteration_seconds=seconds)
    if (found := nearest_given(scenario, pins, layers)) is None:
        return None
    changed, row = found
    return Advice(
        subject=flags(changed), text=degrees_in_words(row, scenario), iteration_seconds=_seconds(scenario, row, layers)
    )


def _allowed(
    scenario: Scenario, pins: Mapping[str, Pin], layers: Sequence[int] | None
) -> Iterator[tuple[str, int, Scenario, Strategies]]:
    """The strategies with one pin or the batch otherwise that break no rule, the nearest first, TP over nodes last."""
    for axis, value in sorted(_others(scenario, pins), key=lambda other: _apart(scenario, pins, *other))[:TRIED]:
        changed = {name: pin for name, pin in pins.items() if not (axis in MESH_AXES and name == "dp")}
        there = replace(scenario, global_batch_size=value) if axis == _BATCH else scenario
        try:
            row = single_strategy(there, changed if axis == _BATCH else changed | {axis: Pin(axis, (value,))}, layers)
            if broken_rules(row, there, layers):
                continue
            if layers is not None:
                checked_layers(layers, row, there)
        except BadRequest:  # degrees, a batch or layers that do not go together
            continue
        yield axis, value, there, row


def _others(scenario: Scenario, pins: Mapping[str, Pin]) -> Iterator[tuple[str, int]]:
    """Every other value of one pinned axis, and of those that save memory; and batches that whole replicas divide."""
    for axis, pin in {**_plain(), **pins}.items():
        others = (value for value in _values(scenario, axis) if value != pin.values[0])
        yield from ((axis, value) for value in others if axis != "tp" or _whole_nodes(value, scenario))
    degrees = {axis: pins[axis].values[0] for axis in ("tp", "cp", "pp", "micro_batch_size") if axis in pins}
    tp, cp, pp, micro = (degrees.get(axis, 1) for axis in ("tp", "cp", "pp", "micro_batch_size"))
    for whole in (replicas := max(scenario.gpus // (tp * cp * pp), 1) * micro, replicas * pp):
        below = scenario.global_batch_size // whole * whole
        yield from ((_BATCH, batch) for batch in (below, below + whole) if batch not in (0, scenario.global_batch_size))


def _whole_nodes(tp: int, scenario: Scenario) -> bool:
    """Whether tensor ranks lie within nodes, or fill several."""
    node = max(scenario.group.gpus_per_node, 1)
    return tp <= node or tp % node == 0


def _plain() -> dict[str, Pin]:
    """What saves memory or not without another layout, as it is where nobody pins it."""
    return {"zero_stage": Pin("zero_stage", (0,)), "recompute": Pin("recompute", (0,))}


def _apart(scenario: Scenario, pins: Mapping[str, Pin], axis: str, value: int) -> tuple[bool, float]:
    """How far another value is from what was asked for; TP that begins to leave the node is farther than all else."""
    if axis == _BATCH:
        return False, abs(math.log(value / scenario.global_batch_size))
    pin, node = {**_plain(), **pins}[axis], scenario.group.gpus_per_node
    return axis == "tp" and value > max(node, pin.values[0]), _times_off(pin, value)


def _values(scenario: Scenario, axis: str) -> Iterable[int]:
    if axis in VALUE_NAMES:
        return range(len(VALUE_NAMES[axis]))
    if axis in ("vpp", "recompute_num_layers"):
        return divisors(scenario.model.num_layers)
    if axis == "micro_batch_size":
        return divisors(scenario.global_batch_size)
    return range(4) if axis == "zero_stage" else () if axis == "recompute_modules" else divisors(scenario.gpus)


def _times_off(pin: Pin, value: int) -> float:
    if pin.axis in VALUE_NAMES:
        return 100.0 + abs(pin.values[0] - value)
    return abs(math.log(max(value, 0.5) / max(pin.values[0], 0.5)))


def _seconds(scenario: Scenario, row: Strategies, layers: Sequence[int] | None) -> float | None:
    """Per iteration; None where it does not fit."""
    return seconds_if_it_fits(row, scenario, split_or_given(scenario, row, layers))
