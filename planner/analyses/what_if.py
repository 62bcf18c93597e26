"""What would help: every lever turned both ways, with the strategy kept and planned again.

Times are those of training, given as seconds for the tokens of one iteration of the plan, so that a larger batch
compares. An elasticity is the change of the logarithm of time over that of the lever, between the lever over and times
``FACTOR``: -0.8 says that 1 % more of it saves 0.8 % of the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from pydantic import Field

from costmodels.pricing import seconds_if_it_fits
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies, strategies
from planner.answer.build import provenance_record, strategy_record
from planner.answer.plan import Answer, Provenance, Record, Strategy
from planner.errors import BadRequest, NothingFits, OutOfTime, UnfilledPins
from planner.explain.levers import machine_levers
from planner.explain.nearest import with_gpus
from planner.explain.warnings import not_startable
from planner.request.budget import Budget
from planner.request.pins import Pin, parse_pins
from planner.request.progress import Tell
from planner.request.request import PlanRequest
from planner.request.resolve import Resolved
from planner.search.best_first import Outcome, search
from planner.search.given import broken_rules
from planner.search.objective import Search, objective_of
from planner.search.question import resolve_search
from planner.search.split import Incumbent
from planner.space.cache import cached_space
from planner.space.lattice import Space

FACTOR: Final = 1.25
"""How far a lever is turned, over and times."""


Answered = Literal["planned", "does not fit", "not known", "not possible"]
"""What came of it: a proved plan, proof that nothing fits, no proof within the budget, or no such question (a
cluster that has no such number of GPUs, pins that leave nothing)."""


class Turned(Record):
    """One lever at one factor; ``seconds`` and ``strategy`` are None unless it is planned."""

    factor: float
    outcome: Answered
    seconds: float | None
    """Planned again."""
    kept_seconds: float | None
    """With the strategy and its layers kept; None too where it cannot be kept."""
    strategy: Strategy | None
    """The new one."""


class Leverage(Record):
    """One lever: what it does to the time of training."""

    lever: str
    less: Turned
    more: Turned
    elasticity: float | None
    elasticity_kept: float | None


class Sensitivity(Answer):
    """The answer to "what would help", schema ``what-if/1``; the strongest lever first."""

    schema_: Literal["what-if/1"] = Field("what-if/1", alias="schema")
    model: str
    cluster: str
    gpus: int
    strategy: Strategy
    iteration_seconds: float
    proved: bool
    """Whether the plan is proved fastest; where it is not, a lever may seem to help that only was searched further."""
    levers: tuple[Leverage, ...]
    warnings: tuple[str, ...] = ()
    """That the stack's framework does not start the plan."""
    defaults: tuple[str, ...]
    provenance: Provenance


def best_of(request: PlanRequest, budget: Budget) -> tuple[Resolved, Space, Incumbent, bool]:
    """The fastest strategy of a question over one kind of nodes, and whether that is proved.

    Raises:
        BadRequest: several kinds of nodes, another objective than time, or nothing fits.
        OutOfTime: no strategy was found in time.
    """
    resolved = resolve_search(request)
    if resolved.mixed:
        names = " and ".join(scenario.group.name for scenario in resolved.mixed.scenarios)
        said = f"--what-if works on one node group, not on {names} together; a cluster of one of them works"
        raise BadRequest(said)
    if request.objective == "memory":
        raise BadRequest("--what-if is about training time; leave --objective memory out")
    space = cached_space(resolved.scenario, parse_pins(request.pins), budget)
    found = search(space, objective_of(resolved).scenario, budget=budget)
    if found.best is None:
        raise nothing_found(budget, proved=found.proved)
    return resolved, space, found.best, found.proved


def nothing_found(budget: Budget, *, proved: bool) -> Exception:
    """What a search without a strategy comes to."""
    if proved:
        return NothingFits("nothing fits; `plan` says why and what comes nearest")
    return OutOfTime(f"no plan {budget.limit}")


def what_if(request: PlanRequest, *, progress: Tell | None = None) -> Sensitivity:
    """Turn every lever of a question both ways.

    Args:
        request: the question.
        progress: called with how far the answer has come, as a `Progress`.

    Raises:
        BadRequest, OutOfTime: as `best_of`.
    """
    budget = Budget(request.time_limit, progress=progress)
    resolved, space, best, proved = best_of(request, budget)
    budget.settle("turning levers")
    scenario = objective_of(resolved).scenario
    asked = _Asked(scenario, parse_pins(request.pins), best, budget)
    levers = {
        name: [asked.turned(factor, lever(scenario, factor), best.row, space) for factor in (1.0 / FACTOR, FACTOR)]
        for name, lever in machine_levers(scenario).items()
    }
    levers["batch"] = [asked.with_batch(factor) for factor in (0.5, 2.0)]
    levers["GPUs"] = [
        asked.with_gpus(factor, with_gpus(resolved, int(scenario.gpus * factor))) for factor in (0.5, 2.0)
    ]
    turned = [_leverage(name, *both) for name, both in levers.items()]
    return Sensitivity(
        model=scenario.model.name,
        cluster=resolved.cluster.name,
        gpus=scenario.gpus,
        strategy=strategy_record(best.row, best.assignment, scenario),
        iteration_seconds=best.iteration,
        proved=proved,
        levers=tuple(sorted(turned, key=lambda one: -_largest_change(one, best.iteration))),
        defaults=resolved.defaults,
        warnings=not_startable(Search(resolved, asked.pins, space, Outcome(best=best))),
        provenance=provenance_record(resolved),
    )


def _largest_change(one: Leverage, now: float) -> float:
    """The largest change of time that a lever makes, as a logarithm."""
    times = [turned.seconds for turned in (one.less, one.more) if turned.seconds]
    return max((abs(math.log(seconds / now)) for seconds in times), default=0.0)


@dataclass(frozen=True)
class _Asked:
    """The question whose levers are turned, its best strategy, and the budget of all turns."""

    scenario: Scenario
    pins: dict[str, Pin]
    best: Incumbent
    budget: Budget

    def turned(self, factor: float, changed: Scenario, kept: Strategies | None, space: Space | None = None) -> Turned:
        """One lever: the lattice of the changed scenario, or a given one, searched, and one strategy kept.

        What a search had found when its time was up is no answer.
        """
        try:
            found = search(space or cached_space(changed, self.pins), changed, budget=self.budget)
        except UnfilledPins:
            return _impossible(factor)
        scale, known = self.scenario.tokens / changed.tokens, found.best if found.proved else None
        seconds = None if kept is None else seconds_if_kept(kept, changed, self.best)
        return Turned(
            factor=factor,
            outcome="planned" if known else "does not fit" if found.proved else "not known",
            seconds=known.iteration * scale if known else None,
            kept_seconds=None if seconds is None else seconds * scale,
            strategy=strategy_record(known.row, known.assignment, changed) if known else None,
        )

    def with_batch(self, factor: float) -> Turned:
        """So many times the batch; kept, the strategy takes so many times the micro-batches."""
        batch, micro = self.scenario.global_batch_size * factor, self.best.row.num_microbatches * factor
        changed = replace(self.scenario, global_batch_size=max(int(batch), 1))
        rows = replace(self.best.row, num_microbatches=micro.astype(np.int64))
        whole = batch.is_integer() and bool(np.all(micro == rows.num_microbatches))
        return self.turned(factor, changed, rows if whole else None)

    def with_gpus(self, factor: float, changed: Scenario | None) -> Turned:
        """So many times the GPUs under the same batch; kept, the strategy has so many times the replicas."""
        if changed is None:
            return _impossible(factor)
        changed = replace(changed, stability=self.scenario.stability)
        return self.turned(factor, changed, _with_replicas(self.best.row, factor))


def _impossible(factor: float) -> Turned:
    return Turned(factor=factor, outcome="not possible", seconds=None, kept_seconds=None, strategy=None)


def _leverage(name: str, less: Turned, more: Turned) -> Leverage:
    ratio = more.factor / less.factor
    return Leverage(
        lever=name,
        less=less,
        more=more,
        elasticity=_elasticity(less.seconds, more.seconds, ratio),
        elasticity_kept=_elasticity(less.kept_seconds, more.kept_seconds, ratio),
    )


def _elasticity(less: float | None, more: float | None, ratio: float) -> float | None:
    return math.log(more / less) / math.log(ratio) if less and more else None


def _with_replicas(row: Strategies, factor: float) -> Strategies | None:
    """The strategy with so many times the replicas and as many fewer micro-batches; None where they are not whole."""
    at = row.row(0)
    dp, micro = at["dp"] * factor, at["num_microbatches"] / factor
    sharded = at["sharding_degree"] * (factor if at["sharding_degree"] == at["dp"] * at["cp"] else 1.0)
    if not all(value.is_integer() for value in (dp, micro, sharded)):
        return None
    return strategies(**at | {"dp": int(dp), "num_microbatches": int(micro), "sharding_degree": int(sharded)})


def seconds_if_kept(rows: Strategies, changed: Scenario, best: Incumbent) -> float | None:
    """Seconds of a strategy with its layers, None where it breaks a rule or does not fit."""
    if broken_rules(rows, changed):
        return None
    return seconds_if_it_fits(rows, changed, best.assignment)
