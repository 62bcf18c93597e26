"""The page itself: one file of HTML that asks nobody for anything.

User text is escaped where it stands in HTML, and the data stands in a block that cannot end early; the script writes
text only as text. The policy in the head lets run and style what stands in this file, and lets nothing be loaded.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from planner.render.page.answers import ShownAnswer
from planner.render.page.source import Shown

_COMPONENTS: Final = (
    "base.js",
    "axes.js",
    "cards.js",
    "layout.js",
    "roofline.js",
    "bars.js",
    "timeline.js",
    "parallel.js",
    "measured.js",
    "drawings.js",
)
_REPORT: Final = ("report.js", "charts.js", "table.js")
_ANSWER: Final = ("answer.js",)


@cache
def _part(name: str) -> str:
    return files("planner.render.page").joinpath(name).read_text(encoding="utf-8")


def page_of(shown: Shown | ShownAnswer) -> str:
    """The page as text."""
    own = _REPORT if isinstance(shown, Shown) else _ANSWER
    look, script = style(), script_with("".join(map(_part, own)))
    values = {
        "TITLE": html.escape(shown.title),
        "NAME": "" if shown.headline.startswith(shown.title) else html.escape(shown.title),
        "HEADLINE": html.escape(shown.headline),
        "REMARK": html.escape(shown.remark),
        "ASSUMPTIONS": "\n".join(f"<li>{html.escape(line)}</li>" for line in shown.assumptions),
        "STYLE_HASH": digest(look),
        "SCRIPT_HASH": digest(script),
        "STYLE": look,
        "SCRIPT": script,
        "DATA": embedded(shown.data()),
    }
    return filled(_part("page.html"), values)


def style() -> str:
    """The style of all components."""
    return _part("page.css")


def script_with(own: str) -> str:
    """One script of all components and what a page does ``own`` with them; nothing of it is global."""
    return '(() => {\n"use strict";\n' + "".join(map(_part, _COMPONENTS)) + own + "})();\n"


def filled(template: str, values: Mapping[str, str]) -> str:
    """A template with a value in place of each @@NAME@@."""
    pieces = template.split("@@")  # text and names of values, by turns
    return "".join(values[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def embedded(data: object) -> str:
    """JSON that can stand inside a script element: no text in it can close the element or open a comment."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def digest(text: str) -> str:
    """The hash of a script or a style by which a content security policy lets it run."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
