"""The answer to "how many GPUs" on the screen."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.table import Table

from planner.analyses.size_search import Neighbour, Option, Size, within_limits
from planner.answer.text import (
    WORTH_SHOWING,
    degrees_above_one,
    format_count,
    format_days,
    format_dollars,
    format_percent,
    memory_savings,
    plural,
    probability_words,
)
from planner.render.terminal.tables import grid, line, print_assumed, warned

_UNDISTURBED: Final = ("fits", "MFU")
_WITH_INTERRUPTIONS: Final = ("spares", "goodput")
"""What breaks is in the wall time and the cost; an iteration and its MFU are undisturbed."""
_LITTLE: Final = 0.6
"""Probability below which there is next to no slack, and errors that are no mirror images of each other count."""
_NO_SLACK: Final = " Take that as the most: runs come out slower than predicted more often than faster."
_SURE: Final = ("in budget", "in time", "in limits")
_BATCHES: Final = "batches differ between sizes, and with them the iterations' efficiency; --global-batch compares one"
"""Of sizes that train with other batches, which their times and costs depend on."""


def print_size(found: Size, console: Console) -> None:
    """The size, what surrounds it and what a day costs."""
    limits = [f"within {format_days(found.deadline_days)}" if found.deadline_days is not None else ""]
    limits += [f"for at most {format_dollars(found.budget_dollars)}" if found.budget_dollars is not None else ""]
    line(console, _answer(found), "bold")
    line(console, _probably(found))
    recommended = {option.gpus: option for option in (found.smallest, found.cheapest, found.fastest) if option}
    for gpus, option in sorted(recommended.items()):
        for warning in option.careful:
            console.print(warned(f"on {plural(gpus, 'GPU')} {warning}"), overflow="fold")
    asked = f"{found.model}, {format_count(found.tokens)} tokens, on {found.cluster} {' '.join(filter(None, limits))}"
    console.print()
    line(console, asked.strip())
    console.print()
    rows = _rows(found)
    shown = rows or [("nearest", option) for option in (found.nearest,) if option]
    console.print(_table(shown, found))
    console.print()
    batches = {option.global_batch_size for _, option in rows}
    for text in (
        *_days(found),
        f"{_SURE[_limits(found)]}: with what probability, by how far measured runs were off",
        *(_BATCHES,) * (len(batches) > 1),
        found.statement,
    ):
        line(console, text)
    print_assumed(found.defaults, console)


def _answer(found: Size) -> str:
    """The size, or that there is none, in one sentence."""
    answer = found.answer
    if answer is None:
        near = found.nearest
        nearest = (
            f" Nearest: {plural(near.gpus, 'GPU')}, {_took(near, found.deadline_days)}{_cost(near)}." if near else ""
        )
        return f"No size that was searched meets the limits.{nearest}"
    machines = f"Rent {plural(answer.gpus, 'GPU')} ({plural(answer.nodes, 'node')})"
    took = f"{_took(answer, found.deadline_days)}{_cost(answer)}, {format_percent(answer.mfu)} MFU"
    return f"{machines}: {took}, with {_words(answer)}."


def _probably(found: Size) -> str:
    """How sure the answer is, and which size is surer."""
    near = found.answer or found.nearest
    if near is None or (chance := within_limits(near)) is None:
        return ""
    asked = ("the budget", "the deadline", "both limits")[_limits(found)]
    surer = found.surer and within_limits(found.surer)
    other = f"; {plural(found.surer.gpus, 'GPU')} with {probability_words(surer)}" if found.surer and surer else ""
    memory = "" if near.fit_probability is None else f" Memory fits with {probability_words(near.fit_probability)}."
    who = f"{plural(near.gpus, 'GPU')} meet{'s' if near.gpus == 1 else ''}"
    slack = _NO_SLACK if chance < _LITTLE else ""
    return f"{who} {asked} with a probability of {probability_words(chance)}{other}.{slack}{memory}"


def _limits(found: Size) -> int:
    """0 for a budget, 1 for a deadline, 2 for both."""
    return (found.deadline_days is not None) * (1 + (found.budget_dollars is not None))


def _rows(found: Size) -> list[tuple[str, Option]]:
    """Every size that has a name, smallest first, each once."""
    rows: dict[int, tuple[list[str], Option]] = {}
    for name in ("smallest", "cheapest", "fastest"):
        if option := getattr(found, name):
            rows.setdefault(option.gpus, ([], option))[0].append(name)
    for option in found.neighbours:
        fewer = found.answer is not None and option.nodes < found.answer.nodes
        rows.setdefault(option.gpus, ([], option))[0].append("1 node less" if fewer else "1 node more")
    if found.surer:
        rows.setdefault(found.surer.gpus, ([], found.surer))[0].append("surer")
    return [(", ".join(names), option) for _, (names, option) in sorted(rows.items())]


def _table(rows: list[tuple[str, Option]], found: Size) -> Table:
    wall = any(option.effective is not None for _, option in rows)
    middle = _WITH_INTERRUPTIONS if wall else _UNDISTURBED
    names = ("GPUs", "wall time" if wall else "time", "cost", _SURE[_limits(found)], *middle, "batch")
    table = grid("searched", *names, "strategy", left=(0, len(names) + 1), whole=True)
    for name, option in rows:
        table.add_row(name, *_cells(option, found.deadline_days), f"{option.global_batch_size:,}", _words(option))
    return table


def _cells(option: Option, deadline: float | None) -> tuple[str, ...]:
    cost = "" if option.cost_dollars is None else format_dollars(option.cost_dollars)
    sure, fits = map(_short_probability, (within_limits(option), option.fit_probability))
    lost = () if option.effective is None else (str(option.spare_nodes), format_percent(option.effective))
    days = format_days(option.days, deadline)
    return f"{option.gpus:,}", days, cost, sure, *(lost or (fits, format_percent(option.mfu)))


def _short_probability(chance: float | None) -> str:
    words = "" if chance is None else probability_words(chance)
    return words.replace("more than ", ">").replace("less than ", "<")


def _took(option: Option, deadline: float | None) -> str:
    return f"{format_days(option.days, deadline)}{'' if option.effective is None else ' of wall time'}"


def _cost(option: Option) -> str:
    return "" if option.cost_dollars is None else f", {format_dollars(option.cost_dollars)}"


def _words(option: Option) -> str:
    s = option.strategy
    return " ".join([*degrees_above_one(s, "tp", "cp", "pp", "ep"), f"DP {s.dp}", *memory_savings(s)])


def _days(found: Size) -> list[str]:
    """What a day more and a day less cost, or why they cost nothing or cannot be had."""
    answer = found.answer
    if answer is None:
        return []
    now = answer.days if found.deadline_days is None else found.deadline_days
    more = _day(found.day_later, "more", now) or f"with a day more ({now + 1:.3g} days): no smaller cluster was found"
    return [more, _day(found.day_sooner, "less", now) or _no_day_less(answer, now)]


def _no_day_less(answer: Option, now: float) -> str:
    if now <= 1.0:
        return "a day less would leave no time"
    if answer.days <= now - 1.0:
        return f"with a day less ({now - 1:.3g} days): the same {plural(answer.gpus, 'GPU')}"
    return f"with a day less ({now - 1:.3g} days): none that was searched is fast enough; a larger --gpus may be"


def _day(other: Neighbour | None, word: str, now: float) -> str:
    if other is None:
        return ""
    option, extra = other.option, other.extra_dollars
    alike = extra is not None and abs(extra) < WORTH_SHOWING * ((option.cost_dollars or 0.0) - extra)
    more = "" if extra is None else f", {format_dollars(abs(extra))} {'more' if extra >= 0 else 'less'}"
    money = ", for as much money" if alike else more
    over = "" if other.over_dollars is None else f", {format_dollars(other.over_dollars)} beyond the budget"
    took = _took(option, now)
    return f"with a day {word} ({other.deadline_days:.3g} days): {plural(option.gpus, 'GPU')}, {took}{money}{over}"
