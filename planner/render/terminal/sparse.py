"""The plan of a sparse model on the screen: what is rented, where everything runs, and what else would do."""

from __future__ import annotations

from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hardware.servers import ServerGroup
from hardware.units import format_quantity
from planner.render.terminal.tables import grid, indented, section
from planner.sparse.document import Alternative, Placed, Rented, SparsePlan

_MACHINES = {"all": "all machines", "cpu": "CPU nodes", "accelerators": "accelerators"}
_LEAST = 0.005
_FULL = 0.995


def print_sparse(plan: SparsePlan, console: Console) -> None:
    """The whole answer, within the width of the console."""
    _print_question(plan, console)
    if plan.status == "infeasible":
        console.print("", Text(f"infeasible: {plan.reason}"), sep="\n")
        if plan.nearest is not None:
            console.print(Text(f"nearest that works: {plan.nearest.text}"))
        return
    _print_verdict(plan, console)
    for heading, table in (
        ("Nodes", _nodes(plan)),
        ("Parts", _parts(plan)),
        ("Alternatives", _alternatives(plan)),
    ):
        section(heading, table, console)


def _print_question(plan: SparsePlan, console: Console) -> None:
    model, cluster = plan.request.model, plan.request.cluster
    count = format_quantity(plan.parameters, "count")
    size = format_quantity(plan.table_bytes, "bytes")
    width = max(len(model.name), len(cluster.name))
    head = Text(f"\n{model.name:<{width}}  ", style="bold")
    console.print(head + Text(f"{count} parameters  tables of {size} with {model.optimizer} states", style=""))
    groups = ", ".join(map(_stock, cluster.groups))
    console.print(Text(f"{cluster.name:<{width}}  ", style="bold") + Text(groups, style=""), overflow="fold")


def _stock(group: ServerGroup) -> str:
    devices = f" of {group.gpus_per_node} {group.accelerator.name}" if group.accelerator else ""
    return f"{group.nodes} {group.name}{devices}"


def _print_verdict(plan: SparsePlan, console: Console) -> None:
    assert plan.examples_per_second is not None
    assert plan.cost_per_hour is not None
    console.print(f"{_proved(plan)} ({plan.proof.solve_seconds:.1f} s)", "", sep="\n")
    rate = format_quantity(plan.examples_per_second, "count")
    million = f"{plan.cost_per_million_examples:.3g}"
    costs = f"${plan.cost_per_hour:,.2f} an hour   ${million} a million examples"
    for said in (f"{plan.mode}   {rate} examples/s   {costs}", _binding(plan), _lateness(plan)):
        console.print(indented(Text(said)))


def _proved(plan: SparsePlan) -> str:
    proof = plan.proof
    if plan.status == "optimal":
        what = "cheaper" if proof.objective == "cost" else f"more than {proof.gap:.3%} faster"
        return f"optimum proved: no plan is {what}"
    return "time ran out " + ("with nothing ruled out" if proof.bound is None else f"{proof.gap:.1%} off the bound")


def _binding(plan: SparsePlan) -> str:
    """The group that sets the pace, and on what."""
    paced = [one for one in plan.rented if one.examples_per_second is not None]
    slowest = min(paced, key=lambda one: one.examples_per_second or 0.0)
    scarce = slowest.binds.replace("_", " ")
    share = slowest.usage[slowest.binds]
    busy = "" if share > _FULL else f", busy {share:.0%}; the rest of a step waits for others"
    return f"{slowest.group} sets the pace: {scarce}{busy}"


def _lateness(plan: SparsePlan) -> str:
    if not plan.staleness:
        return "gradients are never late"
    return f"gradients are up to {plan.staleness:,} steps of other workers late, whatever that does to accuracy"


def _nodes(plan: SparsePlan) -> Table:
    table = grid("group", "nodes", "of", "$/h", "keeps up with", "busy ", left=(0, 5))
    for one in plan.rented:
        pace = "" if one.examples_per_second is None else format_quantity(one.examples_per_second, "count")
        table.add_row(one.group, f"{one.nodes:,}", f"{one.of:,}", f"{one.cost_per_hour:,.2f}", pace, _busy(one))
    return table


def _busy(one: Rented) -> str:
    """Resources in use, the scarcest first."""
    ranked = sorted(one.usage.items(), key=lambda item: -item[1])
    return ", ".join(f"{name.replace('_', ' ')} {part:.0%}" for name, part in ranked if part >= _LEAST)


def _parts(plan: SparsePlan) -> Table:
    table = grid("part", "runs on ", "rows on ", "", left=(0, 1, 2))
    for _, run in groupby(plan.places, key=_kept_together):
        places = list(run)
        name = places[0].name if len(places) == 1 else f"{places[0].name} to {places[-1].name}"
        table.add_row(name, places[0].group, places[0].home or "", _stored(places[0]))
    return table


def _kept_together(place: Placed) -> tuple[str, str, str]:
    """Dense layers in a row on one group share a line; tables have one each."""
    return place.kind, place.group, place.name if place.home else ""


def _stored(place: Placed) -> str:
    if place.bytes_by_tier is None or place.bytes_per_node is None:
        return ""
    tiers = ", ".join(f"{tier} {format_quantity(size, 'bytes')}" for tier, size in place.bytes_by_tier.items())
    return f"{tiers}; {format_quantity(place.bytes_per_node, 'bytes')} a node"


def _alternatives(plan: SparsePlan) -> Table:
    table = grid("machines", "mode ", "$/h", "examples/s", "$ a million", "nodes ", "", left=(0, 1, 5))
    for one in plan.alternatives:
        table.add_row(_MACHINES[one.machines], one.mode, *_figures(one), _against(plan, one))
    return table


def _against(plan: SparsePlan, one: Alternative) -> str:
    """How much dearer, or slower, than the plan."""
    if not (one.cost_per_hour and one.examples_per_second and plan.cost_per_hour and plan.examples_per_second):
        return ""
    dearer = one.cost_per_hour / plan.cost_per_hour - 1.0
    faster = one.examples_per_second / plan.examples_per_second - 1.0
    return f"{dearer:+.0%}" if plan.proof.objective == "cost" else f"{faster:+.0%}"


def _figures(one: Alternative) -> tuple[str, str, str, str]:
    if one.cost_per_hour is None or one.examples_per_second is None:
        return ("", "", "", "not possible" if one.status == "infeasible" else "time ran out")
    million = 1e6 * one.cost_per_hour / 3600.0 / one.examples_per_second
    nodes = ", ".join(f"{count} {name}" for name, count in one.nodes.items())
    rate = format_quantity(one.examples_per_second, "count")
    return f"{one.cost_per_hour:,.2f}", rate, f"{million:.3g}", nodes
