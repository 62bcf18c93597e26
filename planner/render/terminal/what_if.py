"""What would help, as a tornado of bars; and the least worst-case regret."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from planner.analyses.robust import Candidate, Robust
from planner.analyses.what_if import FACTOR, Leverage, Sensitivity, Turned
from planner.answer.plan import Strategy
from planner.answer.text import degrees_above_one, format_percent, plural, short_seconds
from planner.render.terminal.strategy import recomputation
from planner.render.terminal.tables import grid, line, pairs, print_assumed, section, warned

_HALF = 8
"""Characters of a bar on either side of no change."""
_TOLD = 3
"""Levers of the answer."""
_WORTH = 0.001
"""Share of the time from which the answer names a lever."""


def print_sensitivity(found: Sensitivity, console: Console) -> None:
    """What helps most, then every lever with its bar, strongest first: left of the middle is less time."""
    line(console, _helps(found), "bold")
    console.print()
    asked = f"{found.model} on {plural(found.gpus, 'GPU')} of {found.cluster}"
    line(console, f"{asked}: {short_seconds(found.iteration_seconds)} per iteration, {words(found.strategy)}")
    console.print()
    table = grid("lever", "with less", "less time | more", "with more", "elasticity", "kept", left=(0, 2), whole=True)
    now = found.iteration_seconds
    widest = max((abs(_change(t, now) or 0.0) for one in found.levers for t in (one.less, one.more)), default=0.0)
    for one in found.levers:
        table.add_row(*_row(one, found, widest or 1.0))
    console.print(table)
    if others := [(one.lever, new) for one in found.levers if (new := _other_plan(one, found))]:
        section("Other plans with more of it", pairs(others), console)
    console.print()
    line(console, f"with less, more: change of the training time with {1 / FACTOR:g} and {FACTOR:g} times the lever")
    line(console, "(batch and GPUs: half and twice), planned again; bars: - less of it, # more")
    line(console, "elasticity: per cent of time for a per cent of the lever; kept: with today's strategy")
    if not found.proved:
        line(
            console, "The plan is not proved fastest in that time: what seems to help may be more of it (--time-limit)."
        )
    _print_notes(found, console)


def _helps(found: Sensitivity) -> str:
    """The levers that save most, in one sentence."""
    now = found.iteration_seconds
    saved = [(change, one) for one in found.levers if (change := _change(one.more, now)) and change < -_WORTH]
    best = sorted(saved, key=lambda pair: pair[0])[:_TOLD]
    levers = [f"{one.more.factor:g} x {one.lever} ({format_percent(change)})" for change, one in best]
    return (
        f"What shortens the training most: {', '.join(levers)}."
        if levers
        else "More of no lever shortens the training."
    )


def _row(one: Leverage, found: Sensitivity, widest: float) -> tuple[str, ...]:
    now = found.iteration_seconds
    less, more = _change(one.less, now), _change(one.more, now)
    figures = (_figure(one.elasticity), _figure(one.elasticity_kept))
    return one.lever, _outcome(one.less, less), _bar(less, more, widest), _outcome(one.more, more), *figures


def _other_plan(one: Leverage, found: Sensitivity) -> str:
    """The strategy that is best with more of a lever, where it is another one."""
    new = "" if one.more.strategy is None else words(one.more.strategy)
    return "" if new == words(found.strategy) else new


def _change(turned: Turned, now: float) -> float | None:
    return None if turned.seconds is None else turned.seconds / now - 1.0


def _outcome(turned: Turned, change: float | None) -> str:
    if change is None:
        return turned.outcome
    seen = round(change, 3) + 0.0  # which leaves no minus zero
    return f"{'+' if seen > 0 else ''}{format_percent(seen)}"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{round(value, 2) + 0.0:+.2f}"  # which leaves no minus zero


def _bar(less: float | None, more: float | None, widest: float) -> str:
    """Both changes around a middle line, ``#`` with more of the lever, ``-`` with less; one may lie over the other."""
    cells = [" "] * (2 * _HALF + 1)
    for change, sign in ((less, "-"), (more, "#")):
        length = round(_HALF * abs(change or 0.0) / widest)
        start = _HALF + 1 if (change or 0.0) > 0 else _HALF - length
        cells[start : start + length] = [sign] * length
    cells[_HALF] = "|"
    return "".join(cells)


def words(s: Strategy) -> str:
    """A strategy in a few words: degrees above 1, replicas, micro-batch, sharding, what saves memory, rank order."""
    words = degrees_above_one(s, "tp", "cp", "pp", "vpp", "ep")
    words = [f"{word} ({s.cp_kind})" if word.startswith("CP") else word for word in words]
    over = [] if s.sharding_degree in {1, s.dp * s.cp} else [f"ZeRO-{s.zero_stage} over {s.sharding_degree}"]
    said = recomputation(s)
    again = [] if said == "none" else [f"recompute {said}"]
    moved = [] if s.offload == "none" else [f"offload {s.offload}"]
    batch = [f"DP {s.dp}", f"micro-batch {s.micro_batch_size}"]
    return " ".join([*words, *batch, *over, *again, *moved, f"ranks {s.rank_order}"])


def print_robust(found: Robust, console: Console) -> None:
    """The choice, a table of it, the best and the next candidates, and how far the best stays best."""
    worst = format_percent(found.chosen.worst_regret)
    spread = f"{', '.join(found.uncertain)} are each within {format_percent(found.within)} of what is stated"
    line(console, f"Use {words(found.chosen.strategy)}: at worst {worst} slower than the best, where {spread}.", "bold")
    console.print()
    line(console, f"{found.model} on {plural(found.gpus, 'GPU')} of {found.cluster}; regret: over the best there")
    console.print()
    console.print(_candidates(found))
    console.print()
    line(console, f"The choice is worst where: {_where(found.chosen)}.")
    share = format_percent(found.within) if found.radius >= found.within else f"{100 * found.radius:.2g} %"
    line(console, f"The best plan for the stated rates stays best, to 0.1 %, where all of them are up to {share} off.")
    line(console, f"{found.statement[0].upper()}{found.statement[1:]}.")
    _print_notes(found, console)


def _print_notes(found: Sensitivity | Robust, console: Console) -> None:
    """What to know of the plan, and what was filled in."""
    for warning in found.warnings:
        console.print(warned(warning), overflow="fold")
    print_assumed(found.defaults, console)


def _candidates(found: Robust) -> Table:
    columns = ("", "as stated", "regret", "at worst", "best in", "strategy")
    table = grid(*columns, left=(0, 5), whole=True)
    table.add_row("the choice", *_cells(found.chosen, found))
    if found.chosen != found.best:
        table.add_row("best as stated", *_cells(found.best, found))
    for other in found.others:
        if other != found.best:
            table.add_row("", *_cells(other, found))
    return table


def _cells(one: Candidate, found: Robust) -> tuple[str, ...]:
    figures = (short_seconds(one.seconds), format_percent(one.regret), format_percent(one.worst_regret))
    return *figures, f"{one.best_in} of {found.scenarios}", words(one.strategy)


def _where(one: Candidate) -> str:
    """At which corner a candidate is worst."""
    turned = [f"{'more' if f > 1 else 'less'} {name}" for name, f in one.worst_where.items() if f != 1]
    return ", ".join(turned) or "all is as stated"
