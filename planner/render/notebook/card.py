"""A card in HTML for a notebook: one element that needs nothing else.

Colours are those around it, thinned, so that it suits a light page and a dark one; all text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any, Final

from planner.answer.text import format_percent, short_seconds
from planner.render.notebook.headlines import headline

if TYPE_CHECKING:
    from planner.answer.plan import Answer

_LINE: Final = "rgba(128,128,128,.35)"
_GOOD, _BAD = "#2f81f7", "#d1242f"
_BOX: Final = (
    f"border:1px solid {_LINE};border-radius:8px;padding:12px 16px;max-width:46em;"
    "font-family:system-ui,sans-serif;font-size:14px;line-height:1.45"
)
_SMALL: Final = 0.01
"""Share of the time below which a part has no bar."""


def card(answer: Answer) -> str:
    """The card of an answer."""
    found = headline(answer)
    mark = _GOOD if found.good else _BAD
    inner = "".join(
        (
            f'<div style="opacity:.75;font-size:12px">{escape(found.title)}</div>',
            f'<div style="font-weight:600;font-size:15px;margin:2px 0 4px">{escape(found.answer)}</div>',
            f'<div style="opacity:.85">{escape(found.sure)}</div>',
            _facts(found.facts),
            _bars(getattr(answer, "breakdown_seconds", {})),
            _notes(found.notes),
        )
    )
    inner = inner.replace(" %", "\u00a0%")  # a figure and its sign stay on one line
    return f'<div class="meshwright-card" style="{_BOX};border-left:4px solid {mark}">{inner}</div>'


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    cells = "".join(
        f'<div><div style="opacity:.65;font-size:12px">{escape(name)}</div>'
        f'<div style="font-variant-numeric:tabular-nums">{escape(value)}</div></div>'
        for name, value in facts
    )
    return f'<div style="display:flex;flex-wrap:wrap;gap:6px 24px;margin-top:10px">{cells}</div>' if cells else ""


def _bars(seconds: Any) -> str:
    """Where the time goes, a bar a part."""
    total = sum(seconds.values())
    parts = sorted(((value, name) for name, value in seconds.items() if value > _SMALL * total), reverse=True)
    rows = "".join(_bar(name, value, value / total) for value, name in parts)
    return f'<div style="margin-top:10px" role="group" aria-label="where the time goes">{rows}</div>' if rows else ""


def _bar(name: str, seconds: float, share: float) -> str:
    filled = f"width:{100 * share:.1f}%;height:.7em;background:{_GOOD};border-radius:2px"
    return (
        '<div style="display:flex;align-items:center;gap:8px;font-size:12px">'
        f'<span style="width:7em">{escape(name)}</span>'
        f'<span style="flex:1;background:{_LINE};border-radius:2px"><span style="display:block;{filled}"></span></span>'
        f'<span style="width:10em;text-align:right">{escape(short_seconds(seconds))}, {format_percent(share)}</span>'
        "</div>"
    )


def _notes(notes: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(one)}</li>" for one in notes)
    said = f'<summary style="cursor:pointer;opacity:.75">what to know</summary><ul style="margin:4px 0 0">{items}</ul>'
    return f'<details style="margin-top:8px;font-size:12px">{said}</details>' if items else ""
