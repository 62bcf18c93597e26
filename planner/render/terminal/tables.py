"""Tables, sections and lines that the screens are made of; rows of a catalogue, fitted to the width."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.render.terminal.bars import plain

Document = TypeVar("Document", bound=BaseModel)
_WIDEST = 400
"""Characters of a line."""


def print_rows(rows: Sequence[Mapping[str, str]], console: Console, *, named: bool = True) -> None:
    """Rows of one shape, a column per field; long texts fold, figures do not, nor the first column where it names.

    Where nothing may fold, a narrow terminal folds the lines; where columns have no room, every field has a line.
    """
    columns = {name.replace("_", " "): [row[name] for row in rows] for name in (rows[0] if rows else ())}
    whole = _whole(columns, console.width, named=named)
    gap, sizes = _fitting(columns, whole, console.width)
    if None in sizes and not all(whole):
        _print_fields(columns, console, named=named)
        return
    table = unlined(gap)
    for column, kept, wide in zip(columns, whole, sizes, strict=True):
        table.add_column(_folded(column, None if kept else wide), overflow="fold", no_wrap=kept, width=wide)
    for row in rows:
        cells = zip(row.values(), whole, sizes, strict=True)
        table.add_row(*(printable_text(_folded(value, None if kept else wide), console) for value, kept, wide in cells))
    if all(whole):
        print_wide(table, console)
    else:
        console.print(table)


def _fitting(columns: Mapping[str, Sequence[str]], whole: Sequence[bool], width: int) -> tuple[int, list[int | None]]:
    """The gap between columns and their widths: it narrows before a word breaks, and words break before room is out."""
    for gap, word in ((2, width), (1, width), (1, _NARROWEST)):
        sizes = widths(columns, whole, width, gap=gap, word=word)
        if None not in sizes:
            return gap, sizes
    return 2, sizes


def _print_fields(columns: Mapping[str, Sequence[str]], console: Console, *, named: bool) -> None:
    """A line a field, the first of a row above the others; where it names the row, without its own name."""
    first, *others = columns.items()
    for place, heading in enumerate(first[1]):
        text = heading if named else f"{first[0]}: {heading}"
        console.print(printable_text(text, console, style="bold"), overflow="fold")
        for name, cells in others:
            if cells[place]:
                console.print(indented(printable_text(f"{name}: {cells[place]}", console)), overflow="fold")


def _folded(text: str, width: int | None) -> str:
    """Text in lines of so many characters, which may end at a hyphen; as it is without a width."""
    return text if width is None else "\n".join(wrap(text, width))


def _whole(columns: Mapping[str, Sequence[str]], width: int, *, named: bool) -> list[bool]:
    """Which columns stay in one piece: figures too where there is room, since what cannot fold would be cut off."""
    first = [named and place == 0 for place in range(len(columns))]
    both = [one or all(map(_FIGURE.fullmatch, cells)) for one, cells in zip(first, columns.values(), strict=True)]
    widths = [max(map(len, (name, *cells))) for name, cells in columns.items()]
    needed = sum(2 + (wide if whole else _NARROWEST) for wide, whole in zip(widths, both, strict=True))
    return both if needed <= width or all(both) else first


def widths(
    columns: Mapping[str, Sequence[str]], whole: Sequence[bool], width: int, *, gap: int = 2, word: int = _WIDEST
) -> list[int | None]:
    """Characters of every column: the widest fold first, and no word breaks; None where words have to.

    Args:
        columns: their cells, by heading.
        whole: which of them do not fold.
        width: of the screen.
        gap: between two of them.
        word: characters from which on one may break.
    """
    texts = [(name, *cells) for name, cells in columns.items()]
    wide = [max(map(len, text)) for text in texts]
    least = [
        size if kept else min(word, max(map(len, " ".join(text).split())))
        for size, kept, text in zip(wide, whole, texts, strict=True)
    ]
    room = width - gap * len(wide)
    if sum(least) > room:
        return [None] * len(wide)
    while sum(wide) > room:
        place = max((place for place in range(len(wide)) if wide[place] > least[place]), key=wide.__getitem__)
        wide[place] -= 1
    return [*wide]


_NARROWEST: Final = 12
"""Characters that a column of texts can be read in."""
_FIGURE: Final = re.compile(r"(± )?[+-]?[0-9,]*(\.[0-9]+)?(e[+-]?[0-9]+)?( ?(%|[A-Za-z/]{1,5}))?|as before")
"""A number with its unit, or nothing."""


def unlined(gap: int = 2, **more: Any) -> Table:
    """A table without lines and without columns."""
    return Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold", **more)


def grid(*headings: str, left: Iterable[int] = (0,), whole: bool = False) -> Table:
    """A table of these headings without lines; cells stand right but in the columns ``left``.

    All may wrap, or where figures are to stay ``whole`` only those on the left.
    """
    table = unlined()
    for place, heading in enumerate(headings):
        side: Literal["left", "right"] = "left" if place in left else "right"
        table.add_column(heading, justify=side, no_wrap=whole and side == "right", overflow="fold")
    return table


def columns(rows: Iterable[Sequence[Text]], *how: Mapping[str, Any]) -> Table:
    """Rows without headings, folded within their columns; ``how`` the first columns are, as rich has it."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for more in how:
        table.add_column(**{"overflow": "fold", **more})
    for cells in rows:
        while len(table.columns) < len(cells):
            table.add_column(overflow="fold")
        table.add_row(*cells)
    return table


def pairs(rows: Iterable[tuple[str, str]], style: str = "") -> Table:
    """Names on the left, explanations on the right."""
    return columns(([Text(name, style=style), Text(said)] for name, said in rows), {"max_width": 24})


def indented(part: RenderableType) -> Padding:
    """Something under a heading."""
    return Padding(part, (0, 0, 0, 2))


def headed(heading: str, *parts: RenderableType) -> tuple[RenderableType, ...]:
    """An empty line, a heading, and what stands indented under it."""
    return "", Text(heading, style="bold"), *map(indented, parts)


def section(heading: str, part: RenderableType, console: Console) -> None:
    """Something indented under a heading, behind an empty line."""
    console.print(*headed(heading, part), sep="\n")


def print_assumed(assumed: Sequence[str], console: Console) -> None:
    """What nobody said and was filled in, at the end of the screen."""
    if assumed:
        console.print("", pairs([("Assumed", "; ".join(assumed))], style="bold"), sep="\n")


def warned(text: str) -> Text:
    """A warning: its first word stands out; colours that read well on every background there are none."""
    return Text.assemble(("warning: ", "bold"), text)


def line(console: Console, text: str, style: str = "") -> None:
    """A line of plain text, folded where it is too long."""
    console.print(Text(text, style=style), overflow="fold")


def print_lines(text: str, console: Console) -> None:
    """Lines that stand as they are, folded where they are too long."""
    for one in text.splitlines():
        line(console, one)


def printable(document: Document, console: Console) -> Document:
    """The document in signs that the console can print."""
    if speaks_utf(console):
        return document
    return type(document).model_validate_json(plain(document.model_dump_json(by_alias=True)))


def printable_text(text: str, console: Console, style: str = "") -> Text:
    """Text as it is, never as markup, in signs that the console can print."""
    return Text(text if speaks_utf(console) else plain(text), style=style)


def speaks_utf(console: Console) -> bool:
    """Whether it can print every sign."""
    return console.encoding.lower().startswith("utf")


def height(console: Console, draw: Callable[..., None], *drawn: Any) -> int:
    """Lines that a drawing function prints on this console, which stands last among its arguments."""
    with console.capture() as text:
        draw(*drawn, console)
    return text.get().count("\n")


def print_wide(table: Table, console: Console) -> None:
    """A table in its own width: a narrow terminal folds lines, not columns."""
    usual = console.width
    natural = Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum
    console.width = max(natural, usual)  # rich never prints wider than the console
    console.print(table)
    console.width = usual
