"""Why no plan for a sparse model keeps to its limits, and the nearest request that does."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hardware.units import format_quantity
from planner.request.budget import Budget
from planner.sparse.document import Nearest, SparseRequest
from planner.sparse.layout import Layout
from planner.sparse.search import Best, cheapest, fastest
from planner.sparse.solver import Limits
from planner.sparse.standing import HOUR


def refusal(
    request: SparseRequest, limits: Limits, layouts: Sequence[Layout], budget: Budget
) -> tuple[str, Nearest | None]:
    """The reason in one line, and the nearest request that works, if one does.

    Args:
        request: what was asked.
        limits: the same for the search.
        layouts: one for every mode that may be taken, on all machines.
        budget: what the answer may take.
    """
    free = limits._replace(budget=math.inf)
    most = _most(layouts, free, budget)
    if most is None:
        return _no_room(request, layouts), None
    if request.min_throughput is not None and most.rate < request.min_throughput:
        fresh = "" if limits.staleness is None else f" with updates at most {limits.staleness:,} steps late"
        reason = f"all nodes together reach {_rate(most.rate)}{fresh}, not {_rate(request.min_throughput)}"
        if math.isinf(limits.budget):
            return reason, _lower(most)
    else:
        cheap = _least(layouts, free if request.min_throughput else free._replace(rate=1.0), budget)
        cost = math.inf if cheap is None else cheap.cost
        reason = f"the cheapest plan costs {_price(cost)}, more than {_price(limits.budget)}"
        if request.min_throughput is None:
            return reason, _raised(cost)
    within = _most(layouts, limits, budget)
    if within is not None:
        return reason, _lower(within)
    cheap = _least(layouts, free._replace(rate=1.0), budget)
    return reason, None if cheap is None else _raised(cheap.cost, cheap.rate)


def _most(layouts: Sequence[Layout], limits: Limits, budget: Budget) -> Best | None:
    found = [fastest(layout, limits._replace(rate=0.0), budget=budget) for layout in layouts]
    return max((one for one in found if one.chosen), key=lambda one: one.rate, default=None)


def _least(layouts: Sequence[Layout], limits: Limits, budget: Budget) -> Best | None:
    found = [cheapest(layout, limits, budget=budget) for layout in layouts]
    return min((one for one in found if one.chosen), key=lambda one: one.cost, default=None)


def _lower(best: Best) -> Nearest:
    """A throughput that is reached, to three digits, rounded down."""
    digits = 10.0 ** (math.floor(math.log10(best.rate)) - 2)
    rate = math.floor(best.rate / digits) * digits
    return Nearest(
        text=f"--min-throughput {format_quantity(rate, 'count')}, which costs {_price(best.cost)}",
        min_throughput=rate,
        max_cost_per_hour=best.cost * HOUR,
    )


def _raised(cost: float, rate: float | None = None) -> Nearest:
    """A rent that suffices, to the cent, rounded up."""
    dollars = math.ceil(cost * HOUR * 100.0 - 1e-6) / 100.0
    slower = "" if rate is None else f", which reaches {_rate(rate)}"
    return Nearest(text=f"--max-cost '{dollars:g} $/h'{slower}", min_throughput=rate, max_cost_per_hour=dollars)


def _no_room(request: SparseRequest, layouts: Sequence[Layout]) -> str:
    """Nothing works at any speed: for want of room, or of a way to work in the mode."""
    model = request.model
    if request.mode == "geo" and all(group.accelerator for group in request.cluster.groups):
        return "geo mode needs nodes without accelerators: its workers train on copies in host memory"
    size = sum(map(model.table_bytes, model.tables))
    room = max(float((one.capacity * one.stock[:, None]).sum()) for one in layouts)
    copy = max(float(one.own[:, 0].max()) for one in layouts)
    if request.mode == "geo" and size > copy:
        return f"geo mode needs a copy of all tables on every worker: {_bytes(size)}, and a node has {_bytes(copy)}"
    if request.max_staleness is not None and size <= room:
        return f"updates in this mode are more than {request.max_staleness} steps late; with --mode sync none is late"
    near = _enough(request, layouts[0], size)
    return f"tables take {_bytes(size)} with their optimizer states, and all nodes together have {_bytes(room)}; {near}"


def _enough(request: SparseRequest, layout: Layout, size: float) -> str:
    """Nodes of the group with the most memory that would hold the tables."""
    room = layout.capacity.sum(axis=1)
    best = int(room.argmax())
    return f"{math.ceil(size / room[best]):,} nodes of {request.cluster.groups[best].name} would hold them"


def _rate(value: float) -> str:
    return f"{format_quantity(value, 'count')} examples/s"


def _price(value: float) -> str:
    return format_quantity(value, "price")


def _bytes(value: float) -> str:
    return format_quantity(value, "bytes")
