"""The lines of the screen about interruptions and checkpoints."""

from __future__ import annotations

from typing import Final

from planner.answer.plan import Goodput
from planner.answer.text import (
    format_days,
    format_dollars,
    format_percent,
    format_prefixed,
    plural,
    short_seconds,
    three_digits,
)
from planner.render.terminal.bars import flow

_LOSSES: Final = ("checkpoints", "failures", "repairs", "stragglers")
_LEAST: Final = 5e-4


def goodput_lines(found: Goodput, width: int) -> str:
    """What is left of the wall time and why; how often, how long, how much."""
    often, every = found.mean_hours_between_failures, found.checkpoint_interval_seconds
    losses = [(name, getattr(found, name)) for name in _LOSSES]
    shares = [
        f"goodput     {format_percent(found.effective)}",
        *(f"{name} {format_percent(share)}" for name, share in losses if share >= _LEAST),
        f"{format_days(found.wall_days)} in all",
        format_dollars(found.wall_cost_dollars) if found.wall_cost_dollars is not None else "",
        f"{three_digits(energy)} MWh" if (energy := found.wall_energy_megawatt_hours) is not None else "",
    ]
    why = [
        "never interrupted" if often is None else f"interrupted every {short_seconds(often * 3600.0)}",
        f"back after {short_seconds(found.downtime_seconds)}" if often is not None else "",
        f"checkpoint of {format_prefixed(found.checkpoint_bytes)}B",
        "never written"
        if every is None
        else f"every {_interval(found)}, stall {short_seconds(found.checkpoint_stall_seconds)}",
        _spares(found) if often is not None or found.spare_nodes else "",
    ]
    return flow(shares, width=width) + "\n" + flow(why, width=width, indent=14)


def _spares(found: Goodput) -> str:
    paid = f" for {format_dollars(found.spare_cost_dollars)}" if found.spare_cost_dollars else ""
    return plural(found.spare_nodes, "spare node") + paid


def _interval(found: Goodput) -> str:
    count = found.checkpoint_interval_iterations
    return f"{short_seconds(found.checkpoint_interval_seconds or 0.0)} ({count:,} iteration{'s' if count != 1 else ''})"
