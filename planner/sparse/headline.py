"""The answer for a sparse model in plain sentences, as the screen and a notebook say it first."""

from __future__ import annotations

from hardware.units import format_quantity
from planner.sparse.document import SparsePlan


def headline(plan: SparsePlan) -> str:
    """What to rent, what it does and costs, and how sure it is that nothing is better; or why nothing works."""
    return f"{result(plan)} {standing(plan)}".strip()


def result(plan: SparsePlan) -> str:
    """The first sentence: what to rent and what it does and costs, or why there is nothing to rent."""
    if plan.cost_per_hour is None or plan.examples_per_second is None:
        works = f" What works: {plan.nearest.text}." if plan.nearest else ""
        return f"No plan does what was asked: {plan.reason}.{works}"
    nodes = " and ".join(f"{one.nodes:,} {one.group}" for one in plan.rented)
    things = "node" if sum(one.nodes for one in plan.rented) == 1 else "nodes"
    figures = f"{rate(plan.examples_per_second)} for ${plan.cost_per_hour:,.2f} an hour"
    return f"Rent {nodes} {things} and train in {plan.mode} mode: {figures}."


def standing(plan: SparsePlan) -> str:
    """Whether another plan can be better, in the model; "" where nothing works."""
    proof, cheapest = plan.proof, plan.proof.objective == "cost"
    if plan.status == "infeasible":
        return ""
    if plan.status == "optimal":
        better = "cheaper" if cheapest else f"more than {max(proof.gap, 1e-5):.3%} faster"
        return f"No other plan within the limits is {better} in the model."
    if proof.bound is None:
        return "It is the best found, not proved: how much better another may be is not known."
    better = f"{proof.gap:.1%} cheaper" if cheapest else f"{proof.gap / (1.0 - proof.gap):.1%} faster"
    return f"It is the best found, not proved: another plan may be up to {better}."


def rate(examples_per_second: float) -> str:
    """A throughput: "3.17M examples/s"."""
    return f"{format_quantity(examples_per_second, 'count')} examples/s"
