"""The plan of a sparse model on the screen: what is rented, where everything runs, and what else would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hardware.servers import ServerGroup
from hardware.units import format_quantity
from planner.answer.text import short_seconds
from planner.render.terminal.tables import grid, indented, line, pairs, print_assumed, section
from planner.sparse.document import MACHINES, Alternative, Placed, Rented, SparsePlan
from planner.sparse.headline import headline, rate

_MODES: Final = {
    "sync": "every step waits for all workers",
    "async": "workers push and pull on their own, without waiting",
    "geo": "workers train on copies and send what changed every few steps",
}
_TIERS: Final = {"hbm": "GPU memory", "dram": "host memory", "ssd": "SSD"}
_RESOURCES: Final = {
    "cores": "CPU cores",
    "memory": "memory bandwidth",
    "ssd": "SSD",
    "nic_in": "network in",
    "nic_out": "network out",
    "devices": "GPUs",
    "device_link": "GPU links",
    "host_link": "PCIe",
}
"""What a node may have too little of, as people call it."""
_LEAST = 0.005
_FULL = 0.995


def print_sparse(plan: SparsePlan, console: Console) -> None:
    """The whole answer, within the width of the console."""
    works = plan.status != "infeasible"
    line(console, headline(plan), "bold")
    _print_question(plan, console)
    if works:
        section("Strategy", pairs([(f"{plan.mode} mode", _MODES[plan.mode or "sync"])]), console)
        console.print(indented(_parts(plan)))
        section("Nodes (busy: share of each resource in use)", _nodes(plan), console)
        console.print("", pairs(_figures(plan), style="bold"), sep="\n")
        section("Alternatives", _alternatives(plan), console)
    print_assumed(plan.assumed, console)


def _print_question(plan: SparsePlan, console: Console) -> None:
    model, cluster = plan.request.model, plan.request.cluster
    count = format_quantity(plan.parameters, "count")
    size = format_quantity(plan.table_bytes, "bytes")
    width = max(len(model.name), len(cluster.name))
    facts = f"{count} parameters  tables of {size} with {model.optimizer} states"
    groups = ", ".join(map(_stock, cluster.groups))
    console.print()
    for name, said in ((model.name, facts), (cluster.name, groups)):
        console.print(Text.assemble((f"{name:<{width}}  ", "bold"), said), overflow="fold")


def _stock(group: ServerGroup) -> str:
    devices = f" of {group.gpus_per_node} {group.accelerator.name}" if group.accelerator else ""
    return f"{group.nodes} {group.name}{devices}"


def _figures(plan: SparsePlan) -> Iterator[tuple[str, str]]:
    """Time, money, memory and risk of a plan."""
    assert plan.examples_per_second is not None
    assert plan.cost_per_hour is not None
    yield "Time", f"{rate(plan.examples_per_second)}; {_pace(plan)}"
    per_million = f"${plan.cost_per_million_examples:.3g} per million examples"
    yield "Money", f"${plan.cost_per_hour:,.2f} an hour, {per_million}"
    yield "Memory", "; ".join(_stored(plan))
    yield "Risk", f"accuracy: {_lateness(plan)}\nsearch: {_proved(plan)}"


def _proved(plan: SparsePlan) -> str:
    proof = plan.proof
    took = f"in {short_seconds(proof.solve_seconds)}"
    if plan.status == "optimal":
        return f"proved {took}"
    return f"not proved, {'nothing was ruled out' if proof.bound is None else f'{proof.gap:.1%} off the bound'} {took}"


def _pace(plan: SparsePlan) -> str:
    """The group that sets the pace, and on what."""
    paced = [one for one in plan.rented if one.examples_per_second is not None]
    slowest = min(paced, key=lambda one: one.examples_per_second or 0.0)
    share = slowest.usage[slowest.binds]
    rest = "" if share > _FULL else "; the rest of a step waits for other nodes"
    return f"{slowest.group} nodes are the bottleneck: {_RESOURCES[slowest.binds]} {share:.0%} busy{rest}"


def _lateness(plan: SparsePlan) -> str:
    if not plan.staleness:
        return "every update uses current parameters"
    late = f"an update may miss up to {plan.staleness:,} steps of other workers"
    return f"{late}; what that does to accuracy is not predicted"


def _stored(plan: SparsePlan) -> Iterator[str]:
    """Bytes of all tables in each tier of each group's nodes."""
    tables = sorted((one for one in plan.places if one.home), key=lambda one: str(one.home))
    for home, run in groupby(tables, key=lambda one: one.home):
        sizes, each = Counter[str](), 0.0
        for one in run:
            sizes.update(one.bytes_by_tier or {})
            each += one.bytes_per_node or 0.0
        tiers = ", ".join(f"{format_quantity(size, 'bytes')} in {_TIERS[tier]}" for tier, size in sizes.items())
        yield f"tables take {tiers} of {home} nodes, {format_quantity(each, 'bytes')} a node"


def _nodes(plan: SparsePlan) -> Table:
    table = grid("group", "nodes", "of", "$/h", "examples/s", "busy ", left=(0, 5))
    for one in plan.rented:
        pace = "" if one.examples_per_second is None else format_quantity(one.examples_per_second, "count")
        table.add_row(one.group, f"{one.nodes:,}", f"{one.of:,}", f"{one.cost_per_hour:,.2f}", pace, _busy(one))
    return table


def _busy(one: Rented) -> str:
    """Resources in use, the scarcest first."""
    ranked = sorted(one.usage.items(), key=lambda item: -item[1])
    return ", ".join(f"{_RESOURCES[name]} {part:.0%}" for name, part in ranked if part >= _LEAST)


def _parts(plan: SparsePlan) -> Table:
    table = grid("part", "runs on ", "rows stored on ", left=(0, 1, 2))
    for _, run in groupby(plan.places, key=_kept_together):
        places = list(run)
        name = places[0].name if len(places) == 1 else f"{places[0].name} to {places[-1].name}"
        table.add_row(name, places[0].group, _where(places[0]))
    return table


def _kept_together(place: Placed) -> tuple[str, str, str]:
    """Dense layers in a row on one group share a line; tables have one each."""
    return place.kind, place.group, place.name if place.home else ""


def _where(place: Placed) -> str:
    """The nodes that hold a table's rows, and in what."""
    if place.bytes_by_tier is None or place.bytes_per_node is None:
        return ""
    tiers = ", ".join(f"{_TIERS[tier]} {format_quantity(size, 'bytes')}" for tier, size in place.bytes_by_tier.items())
    return f"{place.home}: {tiers}; {format_quantity(place.bytes_per_node, 'bytes')} a node"


def _alternatives(plan: SparsePlan) -> Table:
    against = "cost" if plan.proof.objective == "cost" else "speed"
    table = grid("machines", "mode ", "$/h", "examples/s", "$/million", "nodes ", against, left=(0, 1, 5))
    for one in plan.alternatives:
        table.add_row(MACHINES[one.machines], one.mode, *_worth(one), _against(plan, one))
    return table


def _against(plan: SparsePlan, one: Alternative) -> str:
    """How much dearer, or slower, than the plan."""
    if not (one.cost_per_hour and one.examples_per_second and plan.cost_per_hour and plan.examples_per_second):
        return ""
    dearer = one.cost_per_hour / plan.cost_per_hour - 1.0
    faster = one.examples_per_second / plan.examples_per_second - 1.0
    return f"{dearer:+.0%}" if plan.proof.objective == "cost" else f"{faster:+.0%}"


def _worth(one: Alternative) -> tuple[str, str, str, str]:
    if one.cost_per_hour is None or one.examples_per_second is None:
        return ("", "", "", "not possible" if one.status == "infeasible" else "time ran out")
    million = 1e6 * one.cost_per_hour / 3600.0 / one.examples_per_second
    nodes = ", ".join(f"{count} {name}" for name, count in one.nodes.items())
    pace = format_quantity(one.examples_per_second, "count")
    return f"{one.cost_per_hour:,.2f}", pace, f"{million:.3g}", nodes
