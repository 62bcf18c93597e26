"""Two plans, or a plan and a measured run, term by term; and the way from one to the other, change by change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Literal

from pydantic import Field

from costmodels.layout.split import Assignment
from costmodels.model.flops import utilization
from costmodels.names import VALUE_NAMES
from costmodels.pricing import Price, price_strategy
from costmodels.scenario import Scenario
from costmodels.stack.precision import RECIPES
from costmodels.strategy import Strategies
from costmodels.useful_flops import counted_flops
from hardware.errors import meant
from hardware.records import NodeGroup
from planner.analyses.layout_steps import FIRST, Layout, layout_steps
from planner.answer.load import stages_from_plan, strategy_from_plan
from planner.answer.plan import Answer, Plan, Record
from planner.answer.text import why_infeasible
from planner.errors import BadRequest
from planner.request.features import features, turned
from planner.request.overrides import NOTES_OF_MODEL
from planner.request.pins import shown_value
from planner.request.request import PlanRequest
from planner.request.resolve import resolve
from planner.request.values import expect_type
from planner.runs.case import case_of
from planner.runs.files import read_runs
from planner.runs.judge import HOME
from planner.runs.schema import Run


class Term(Record):
    """Exposed seconds of one cause on both sides."""

    name: str
    a: float
    b: float


class Step(Record):
    """One change on the way from A to B, and what it does to the prediction."""

    change: str
    detail: str
    iteration_seconds: float
    """After this change."""
    mfu: float
    saved_seconds: float
    """Against the step before, both for as many tokens as A's iteration has."""


class Compared(Record):
    """One side: prediction, measurement where there is one."""

    name: str
    iteration_seconds: float
    measured_seconds: float | None
    mfu: float
    measured_mfu: float | None
    tokens_per_second: float
    peak_memory_bytes: float
    fits: bool = True
    """Whether every stage is predicted to fit its device."""
    gpus: int


class Comparison(Answer):
    """Schema ``comparison/1``: sides, terms that add up to their iterations, steps that lead from one to the other.

    What the steps save, less ``more_tokens_seconds``, is A's iteration less B's.
    """

    schema_: Literal["comparison/1"] = Field("comparison/1", alias="schema")
    a: Compared
    b: Compared
    terms: tuple[Term, ...]
    differences: dict[str, tuple[Any, Any]]
    """Axes of the strategy, and names, that are not the same."""
    steps: tuple[Step, ...]
    more_tokens_seconds: float = 0.0
    """What B's iteration takes for its tokens beyond A's, as a share of it; negative where it has fewer."""


@dataclass(frozen=True)
class Side:
    """A strategy with everything that its price depends on."""

    name: str
    scenario: Scenario
    row: Strategies
    split: Assignment
    measured: float | None = None

    def price(self) -> Price:
        """Its price."""
        return price_strategy(self.row, self.scenario, self.split)

    def mfu(self, seconds: float) -> float:
        """Useful FLOP over those of the peak in that time; sliding windows counted as they are."""
        s = self.scenario
        flops = counted_flops(s) * s.tokens
        return utilization(flops=flops, seconds=seconds, gpus=s.gpus, peak=s.peak_rate)


def side_of_plan(plan: Plan, name: str) -> Side:
    """An answer as a side.

    Raises:
        BadRequest: it has no strategy, or runs on several node groups.
    """
    if plan.strategy is None:
        raise BadRequest(f"{name}: the answer is {plan.status} and has no strategy to compare: {why_infeasible(plan)}")
    resolved = resolve(PlanRequest(**plan.request))
    if resolved.mixed:
        raise BadRequest(f"{name}: plans over several node groups cannot be compared; those over a single group can")
    return Side(name, resolved.scenario, strategy_from_plan(plan.strategy), stages_from_plan(plan.strategy))


def side_of_run(asked: Run | str) -> Side:
    """A measured run as a side, or the published one of that id.

    Raises:
        BadRequest: no run has that id.
        Unpriceable: the run leaves out what pricing needs.
    """
    run = _runs().get(asked) if isinstance(asked, str) else asked
    if run is None:
        hint = meant(str(asked), _runs(), most=2, otherwise="megascale-175b-megascale-12288g-gbs6144 is one")
        raise BadRequest(f"{asked}: no such file and no such published run; {hint}")
    found = case_of(run)
    return Side(run.id, found.scenario, found.strategy, found.assignment, run.measured.iteration_seconds)


def _side(given: Side | Plan | Run | str, name: str) -> Side:
    if isinstance(given, Side):
        return given
    if isinstance(given, Run | str):
        return side_of_run(given)
    return side_of_plan(expect_type(name, given, Plan, example="plan(request)"), name)


@cache
def _runs() -> dict[str, Run]:
    return {run.id: run for path in sorted(HOME.glob("*.jsonl.gz")) for run in read_runs(path)}


def compare(a: Side | Plan | Run | str, b: Side | Plan | Run | str) -> Comparison:
    """Terms, differences and the steps between two sides: answers, measured runs, or ids of published ones.

    Raises:
        BadRequest: a side has no strategy, is over several node groups, or is no published run.
        Unpriceable: a run leaves out what pricing needs.
    """
    a, b = _side(a, "plan A"), _side(b, "plan B")
    ours, theirs = a.price(), b.price()
    names = dict.fromkeys([*ours.breakdown, *theirs.breakdown])
    terms = (Term(name=name, a=ours.breakdown.get(name, 0.0), b=theirs.breakdown.get(name, 0.0)) for name in names)
    return Comparison(
        a=_compared(a, ours),
        b=_compared(b, theirs),
        terms=tuple(term for term in terms if term.a or term.b),
        differences=_differences(a, b),
        steps=tuple(_steps(a, b)),
        more_tokens_seconds=theirs.iteration * (1.0 - a.scenario.tokens / b.scenario.tokens),
    )


def _compared(side: Side, priced: Price) -> Compared:
    return Compared(
        name=side.name,
        iteration_seconds=priced.iteration,
        measured_seconds=side.measured,
        mfu=side.mfu(priced.iteration),
        measured_mfu=None if side.measured is None else side.mfu(side.measured),
        tokens_per_second=side.scenario.tokens / priced.iteration,
        peak_memory_bytes=float(priced.footprint.total.max()),
        fits=_fits(side, priced),
        gpus=side.scenario.gpus,
    )


def _fits(side: Side, priced: Price) -> bool:
    return bool((priced.footprint.total <= side.scenario.group.accelerator.usable_memory).all())


def _differences(a: Side, b: Side) -> dict[str, tuple[Any, Any]]:
    first, second = _facts(a), _facts(b)
    return {name: (first[name], second[name]) for name in first if first[name] != second[name]}


def _facts(side: Side) -> dict[str, Any]:
    s = side.scenario
    named: dict[str, Any] = {
        "model": s.model.name,
        "machines": f"{s.group.name} ({s.group.accelerator.name})",
        "stack": s.stack.name,
        "precision": s.precision,
        "gpus": s.gpus,
        "seq_length": s.seq_length,
        "global_batch_size": s.global_batch_size,
    }
    stages = {"layers": side.split.layers, "recompute_layers": side.split.recomputed}
    return named | _axes(side.row) | {name: ",".join(map(str, counts)) for name, counts in stages.items()}


def _axes(row: Strategies) -> dict[str, Any]:
    words = {"recompute_modules", *VALUE_NAMES} - {"sequence_parallel"}
    plain = row.row(0)
    plain["sequence_parallel"] = bool(plain["sequence_parallel"])
    return {name: shown_value(name, int(value)) if name in words else value for name, value in plain.items()}


def _steps(a: Side, b: Side) -> Iterator[Step]:
    """A turned into B one change at a time; what a change saves depends on those before it."""
    before = a.price().iteration
    for change, detail, after in _stations(a, b):
        priced = after.price()
        seconds = priced.iteration
        alike = seconds * a.scenario.tokens / after.scenario.tokens
        yield Step(
            change=change,
            detail=detail if _fits(after, priced) else f"{detail}; does not fit in memory",
            iteration_seconds=seconds,
            mfu=after.mfu(seconds),
            saved_seconds=before - alike,
        )
        before = alike


def _stations(a: Side, b: Side) -> Iterator[tuple[str, str, Side]]:
    here = a
    for changes in (_machines, _models, _stacks, _precision):
        for change, detail, scenario in changes(here.scenario, b.scenario):
            here = replace(here, scenario=scenario)
            yield change, detail, here
    yield from _strategies(here, b)


Changes = Iterator[tuple[str, str, Scenario]]
"""What changes, in words, and the scenario after it."""


def _computes(there: Scenario, precision: str) -> bool:
    return there.group.accelerator.multiplies(RECIPES[precision].arithmetic)


def _alike(one: NodeGroup, other: NodeGroup) -> bool:
    """Whether two groups are the same machines, whatever memory a margin leaves alone."""
    same = {"usable_memory": one.accelerator.usable_memory}
    device = other.accelerator.model_copy(update=same)
    return one == other.model_copy(update={"accelerator": device})


def _machines(here: Scenario, goal: Scenario) -> Changes:
    """The other machines; before them the other format, or with them, where they do not compute in this one."""
    if _alike(here.group, goal.group) or here.gpus != goal.gpus:
        return
    formats, names = f"{here.precision} -> {goal.precision}", f"{here.group.name} -> {goal.group.name}"
    if _computes(goal, here.precision):
        yield "machines", names, replace(here, group=goal.group)
    elif _computes(here, goal.precision):
        yield "precision", formats, (here := replace(here, precision=goal.precision))
        yield "machines", names, replace(here, group=goal.group)
    else:
        there = replace(here, group=goal.group, precision=goal.precision)
        yield "machines and precision", f"{names}, {formats}", there


def _precision(here: Scenario, goal: Scenario) -> Changes:
    if here.precision != goal.precision and _computes(here, goal.precision):
        yield "precision", f"{here.precision} -> {goal.precision}", replace(here, precision=goal.precision)


def _models(here: Scenario, goal: Scenario) -> Changes:
    """One architectural feature after the other, names and notes aside."""
    if here.model.num_layers != goal.model.num_layers:
        return
    for name in type(goal.model).model_fields:
        old, new = getattr(here.model, name), getattr(goal.model, name)
        if old != new and name not in NOTES_OF_MODEL:
            here = replace(here, model=here.model.model_copy(update={name: new}))
            yield f"model: {name.replace('_', ' ')}", f"{_said(old)} -> {_said(new)}", here
    if here.seq_length != goal.seq_length:
        detail = f"{here.seq_length} -> {goal.seq_length}"
        yield "sequence length", detail, replace(here, model=goal.model, seq_length=goal.seq_length)


def _stacks(here: Scenario, goal: Scenario) -> Changes:
    """One feature of the software after the other."""
    for feature, changed in features(here.stack, goal.stack).items():
        if changed:
            text = ", ".join(
                f"{n.rpartition('.')[2]} {_said(here.stack.value(n))} -> {_said(goal.stack.value(n))}" for n in changed
            )
            here = replace(here, stack=turned(here.stack, goal.stack, changed))
            yield feature, text, here
    if here.stack != goal.stack:
        yield "rest of the software", f"{here.stack.name} -> {goal.stack.name}", replace(here, stack=goal.stack)


def _strategies(here: Side, b: Side) -> Iterator[tuple[str, str, Side]]:
    """The layout, GPUs and batch option by option; all else at once where that is not the same yet."""
    goal = b.scenario
    if _facts(here) == _facts(b):
        return
    batch, group, precision = goal.global_batch_size, goal.group, goal.precision
    alike = replace(here.scenario, gpus=goal.gpus, global_batch_size=batch, group=group, precision=precision)
    alike = replace(alike, framework=goal.framework)
    if alike != goal:
        yield "all that is left", _moved(here, b), b
        return
    start, end = (Layout(side.scenario, side.row, side.split) for side in (here, b))
    for options, together, reached in layout_steps(start, end):
        there = Side(b.name, reached.scenario, reached.row, reached.split)
        why = f" (together, for {together})" if together else ""
        moved = options[0] == FIRST and here.scenario.group.accelerator.name != goal.group.accelerator.name
        yield " and ".join(["machines"] * moved + [*options]), f"{_moved(here, there)}{why}", there
        here = there


_WORDS: Final = {
    "gpus": "GPUs",
    "global_batch_size": "batch",
    "seq_length": "sequence length",
    "cp_kind": "CP exchange",
    "zero_stage": "ZeRO",
    "sharding_degree": "sharding ranks",
    "micro_batch_size": "micro-batch",
    "num_microbatches": "micro-batches",
    "recompute": "recomputation",
    "recompute_modules": "recomputed modules",
    "recompute_num_layers": "layers recomputed together",
    "layers": "layers per stage",
    "recompute_layers": "recomputed layers per stage",
}
"""Names of ``_facts`` as screens have them, where they are neither degrees nor such words already."""


def _moved(here: Side, there: Side) -> str:
    found = _differences(here, there)
    if not (here.split.recomputed.any() or there.split.recomputed.any()):
        found.pop("recompute_layers", None)
    return ", ".join(f"{_named(name)} {_said(old)} -> {_said(new)}" for name, (old, new) in found.items())


def _named(name: str) -> str:
    return _WORDS.get(name) or (name.upper() if len(name) <= 3 else name.replace("_", " "))


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple):
        return "/".join(map(str, value)) or "none"
    text = "none" if value is None else str(value).replace("1f1b", "1F1B")
    return text if len(text) <= 40 else text[:37] + "..."
