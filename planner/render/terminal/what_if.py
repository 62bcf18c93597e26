"""What would help, as a tornado of bars; and the least worst-case regret."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from planner.analyses.robust import Candidate, Robust
from planner.analyses.what_if import FACTOR, Leverage, Sensitivity, Turned
from planner.answer.plan import Strategy
from planner.answer.text import degrees_above_one, format_percent, plural, short_seconds
from planner.render.terminal.strategy import recomputation
from planner.render.terminal.tables import grid, line, print_head, print_wide

_HALF = 16
"""Characters of a bar on either side of no change."""


def print_sensitivity(found: Sensitivity, console: Console) -> None:
    """Every lever with its bar, strongest first: left of the middle is less time."""
    asked = f"{found.model} on {plural(found.gpus, 'GPU')} of {found.cluster}"
    planned = f"{short_seconds(found.iteration_seconds)}, {words(found.strategy)}"
    print_head(f"{asked}: {planned}", found.defaults, console)
    columns = ("lever", "less", "less time | more time", "more", "elasticity", "kept", "with more of it")
    table = grid(*columns, left=(0, 2, 6), wrap=False)
    now = found.iteration_seconds
    widest = max((abs(_change(t, now) or 0.0) for one in found.levers for t in (one.less, one.more)), default=0.0)
    for one in found.levers:
        table.add_row(*_row(one, found, widest or 1.0))
    print_wide(table, console)
    console.print()
    note = (
        f"Change of the training time with {1 / FACTOR:g} and {FACTOR:g} times the lever (batch and GPUs: half and "
        "twice), planned again. Elasticity: per cent of time for a per cent of the lever; kept: with today's strategy."
    )
    line(console, note)
    if not found.proved:
        line(
            console, "The plan is not proved fastest in that time: what seems to help may be more of it (--time-limit)."
        )


def _row(one: Leverage, found: Sensitivity, widest: float) -> tuple[str, ...]:
    now = found.iteration_seconds
    less, more = _change(one.less, now), _change(one.more, now)
    same = one.more.strategy is None or words(one.more.strategy) == words(found.strategy)
    new = "" if same or one.more.strategy is None else words(one.more.strategy)
    figures = (_figure(one.elasticity), _figure(one.elasticity_kept))
    return one.lever, _outcome(one.less, less), _bar(less, more, widest), _outcome(one.more, more), *figures, new


def _change(turned: Turned, now: float) -> float | None:
    return None if turned.seconds is None else turned.seconds / now - 1.0


def _outcome(turned: Turned, change: float | None) -> str:
    return turned.outcome if change is None else f"{'+' if change > 0 else ''}{format_percent(change)}"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:+.2f}"


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
    over = [] if s.sharding_degree in {1, s.dp * s.cp} else [f"ZeRO-{s.zero_stage} over {s.sharding_degree}"]
    said = recomputation(s)
    again = [] if said == "none" else [f"recompute {said}"]
    moved = [] if s.offload == "none" else [f"offload {s.offload}"]
    return " ".join([*words, f"DP {s.dp}", f"mb {s.micro_batch_size}", *over, *again, *moved, f"ranks {s.rank_order}"])


def print_robust(found: Robust, console: Console) -> None:
    """The choice beside the best, the next candidates, and how far the best stays best."""
    spread = f"{', '.join(found.uncertain)} each within {format_percent(found.within)}"
    asked = f"{found.model} on {plural(found.gpus, 'GPU')} of {found.cluster}; {spread}"
    print_head(asked, found.defaults, console)
    print_wide(_candidates(found), console)
    console.print()
    whole = found.radius >= found.within
    share = format_percent(found.within) if whole else f"{100 * found.radius:.2g} %"
    line(console, f"The nominal best stays best, to 0.1 %, at every corner {'of' if whole else 'up to'} {share}.")
    line(console, f"{found.statement[0].upper()}{found.statement[1:]}.")
    console.print()
    worst = format_percent(found.chosen.worst_regret)
    line(console, f"{words(found.chosen.strategy)}: at worst {worst} over the best.", "bold")


def _candidates(found: Robust) -> Table:
    columns = ("", "nominal", "regret", "worst", "best in", "strategy", "worst where")
    table = grid(*columns, left=(0, 5, 6), wrap=False)
    same = found.chosen == found.best
    table.add_row("robust, best at nominal" if same else "robust", *_cells(found.chosen, found))
    if not same:
        table.add_row("best at nominal", *_cells(found.best, found))
    for other in found.others:
        if other != found.best:
            table.add_row("", *_cells(other, found))
    return table


def _cells(one: Candidate, found: Robust) -> tuple[str, ...]:
    where = ", ".join(f"{name} {'+' if factor > 1 else '-'}" for name, factor in one.worst_where.items() if factor != 1)
    figures = (short_seconds(one.seconds), format_percent(one.regret), format_percent(one.worst_regret))
    return *figures, f"{one.best_in} of {found.scenarios}", words(one.strategy), where or "nominal"
