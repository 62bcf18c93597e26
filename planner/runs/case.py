"""A measured run as the cost model takes it: its request resolved as ``predict`` resolves it, priced as it ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from costmodels.layout.split import Assignment
from costmodels.pricing import Price, price_each, price_strategy
from costmodels.scenario import Scenario
from costmodels.stack.stack import Stack
from costmodels.strategy import Strategies
from hardware.errors import MeshwrightError
from hardware.records import Cluster
from planner.answer.plan import Rejection
from planner.request.pins import parse_pins
from planner.request.resolve import Resolved, resolve
from planner.runs.schema import Run
from planner.search.given import Given, given_strategy


class Unpriceable(MeshwrightError):
    """A measured run that cannot be priced; the message says why."""


@dataclass(frozen=True)
class Case:
    """What was trained on what, and how."""

    scenario: Scenario
    strategy: Strategies
    assignment: Assignment
    broken: tuple[Rejection, ...] = ()
    """Rules that would refuse it as a plan."""
    known: list[Price] = field(default_factory=list, init=False, compare=False, repr=False)
    """Its price, where that was worked out with others' (`price_cases`); never copied to other cases."""

    def price(self) -> Price:
        """Its price."""
        return self.known[0] if self.known else price_strategy(self.strategy, self.scenario, self.assignment)


def price_cases(cases: Sequence[Case]) -> None:
    """Have cases know their prices, which cost little more than that of one of them; sizes alone tell them apart."""
    prices = price_each([(case.strategy, case.scenario, case.assignment) for case in cases])
    for case, price in zip(cases, prices, strict=True):
        case.known.append(price)


def case_of(run: Run, *, cluster: Cluster | None = None, stack: Stack | None = None) -> Case:
    """The run as ``predict`` prices its request.

    Args:
        run: the run.
        cluster: what it was on, in place of the request's.
        stack: what it ran under, likewise; what the run changes of a stack it changes of this one too.

    Raises:
        Unpriceable: the run makes no request, or was on other devices than the cluster given has.
        MeshwrightError: the request contradicts itself.
    """
    return case_in(run, resolved_run(run, cluster=cluster, stack=stack))


def resolved_run(run: Run, *, cluster: Cluster | None = None, stack: Stack | None = None) -> Resolved:
    """The run's request with records in place of names; arguments and errors as of ``case_of``."""
    request = run.request
    if request is None:
        raise Unpriceable(run.unpriced)
    resolved = resolve(request)
    if cluster is not None:
        said, has = resolved.scenario.group.accelerator.name, cluster.accelerator.name
        if said != has:
            raise Unpriceable(f"the run was on {said}, the cluster given is of {has}")
    given = {"cluster": cluster, "stack": stack}
    if update := {name: record for name, record in given.items() if record is not None}:
        resolved = resolve(request.model_copy(update=update))
    if resolved.mixed:
        raise Unpriceable("runs over several node groups are not judged; those on one group are")
    return resolved


def case_in(run: Run, resolved: Resolved) -> Case:
    """The run, whose strategy alone is its own, in what its request or another's of the same job resolves to."""
    request = run.request
    assert request is not None  # else nothing was resolved
    layers, recomputed = request.layers_per_stage, request.recomputed_per_stage
    found = given_strategy(resolved, parse_pins(request.pins), layers, recomputed, as_ran=True)
    assert isinstance(found, Given)  # a run may break rules
    return Case(resolved.scenario, found.running, found.split, found.broken)
