"""Lists and entries of the catalogue: at most a screen of some sixty lines, and where the rest is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from textwrap import wrap
from typing import Any, Final

from rich.console import Console

from planner.render.catalogue import KINDS, Figure, Switch, families, lines
from planner.render.terminal.tables import columns, height, indented, line, print_rows, printable_text

MOST: Final = 60
"""Lines of an answer that is not asked for in full."""
_ONE_LINE: Final[Any] = {"no_wrap": True, "overflow": "ellipsis"}


def print_list(kind: str, word: str, console: Console, *, whole: bool) -> None:
    """The entries of a kind that say a word: all that is listed of them, a line each, or a line a family.

    The first of these that takes no more than a screen; all of it where the ``whole`` is asked for.
    """
    rows = lines(kind, word)
    if whole or height(console, print_rows, rows) <= MOST:
        print_rows(rows, console)
        return
    named = list(rows[0])[: KINDS[kind].brief]
    again = " ".join(["plan list", kind, *word.split()])
    if len(rows) <= MOST - 3:
        wide = {name: max(len(name), *(len(row[name]) for row in rows)) for name in named[:-1]}
        for row in ({name: name.replace("_", " ") for name in named}, *rows):
            start = "".join(f"{row[name]:<{wide[name] + 2}}" for name in named[:-1])
            console.print(printable_text(start + row[named[-1]], console), **_ONE_LINE)
        line(console, f"\nIn full: {again} -v; an entry: plan show NAME")
        return
    grouped = families(kind, word)
    first = max(map(len, grouped))
    each = [f"{family:<{first}}  {len(names):>3}  {', '.join(names)}" for family, names in grouped.items()]
    folded = [wrap(text, console.width, subsequent_indent=" " * (first + 7)) for text in each]
    if sum(map(len, folded)) <= MOST - 3:
        each = [text for lines_of_one in folded for text in lines_of_one]
    for text in each:
        console.print(printable_text(text, console), **_ONE_LINE)
    some = "WORD" if word else max(grouped, key=lambda family: len(grouped[family])).lower()
    line(console, f"\n{len(rows)} {kind}. Those with a word: plan list {kind} {some}; all, a line each: -v")


def print_figures(heading: str, facts: Sequence[Figure], console: Console, *, whole: bool = True) -> None:
    """Every figure of an entry; a source is said once for figures in a row that share it.

    Where that takes more than a screen and the ``whole`` is not asked for, the largest tables of the entry are counted.
    """
    left: Counter[str] = Counter()
    shown = [*facts]
    while not whole and height(console, _print_figures, heading, shown) > MOST - 2 - bool(left):
        sizes = Counter(_table(fact) for fact in shown)
        table, size = sizes.most_common(1)[0]
        if size == 1:
            break
        left[table] = size
        shown = [fact for fact in shown if _table(fact) != table]
    _print_figures(heading, shown, console)
    if left:
        counted = ", ".join(f"{size} figures of {table}" for table, size in left.items())
        line(console, f"\nNot shown: {counted}; -v shows all")


def _table(fact: Figure) -> str:
    """The table of the file that a figure stands in: "kernels", "groups[1]"."""
    return fact.field.partition(".")[0]


def _print_figures(heading: str, facts: Iterable[Figure], console: Console) -> None:
    console.print(printable_text(heading, console, style="bold"), overflow="fold")
    for source, group in groupby(facts, key=lambda fact: fact.source):
        text = source or "what it is, as the catalogue names it"
        console.print("", printable_text(text, console), sep="\n", overflow="fold")
        rows = [[printable_text(said, console) for said in (fact.field, fact.text)] for fact in group]
        console.print(indented(columns(rows, {"min_width": 28})))


def print_switches(
    heading: str, switches: Iterable[Switch], releases: Iterable[str], console: Console, *, words: bool
) -> None:
    """A stack's switches and releases: name, value, what each does in a line, cut where the console ends.

    With ``words`` the whole of it, and what frameworks call it.
    """
    console.print(printable_text(heading, console, style="bold"), "", sep="\n", overflow="fold")
    rows = []
    cut: Any = {} if words else _ONE_LINE
    for one in switches:
        if not words:
            value, sentence = one.short
            head = printable_text(f"  {one.name:<21}  {value:<9}  ", console)
            console.print(head + printable_text(sentence, console), **cut)
        else:
            meaning = printable_text(f"{one.sentence} ({'; '.join(one.words)})", console)
            rows.append([printable_text(one.name, console), printable_text(one.text, console), meaning])
    if words:
        console.print(indented(columns(rows, {"no_wrap": True}, {"max_width": 20})))
    if found := [printable_text(f"  {one}", console) for one in releases]:
        console.print("", *found, sep="\n", **cut)
