"""The page itself: one file of HTML that asks nobody for anything.

User text is escaped where it stands in HTML, and the data stands in a block that cannot end early; the script writes
text only as text. The policy in the head lets run and style what stands in this file, and lets nothing be loaded.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from functools import cache
from importlib.resources import files
from typing import Final

from planner.render.page.source import Shown

_SCRIPTS: Final = ("base.js", "charts.js", "bars.js", "table.js")


@cache
def _part(name: str) -> str:
    return files("planner.render.page").joinpath(name).read_text(encoding="utf-8")


def page_of(shown: Shown) -> str:
    """The page as text."""
    style = _part("page.css")
    script = '(() => {\n"use strict";\n' + "".join(map(_part, _SCRIPTS)) + "})();\n"
    values = {
        "TITLE": html.escape(shown.title),
        "REMARK": html.escape(shown.remark),
        "ASSUMPTIONS": "\n".join(f"<li>{html.escape(line)}</li>" for line in shown.assumptions),
        "STYLE_HASH": _hash(style),
        "SCRIPT_HASH": _hash(script),
        "STYLE": style,
        "SCRIPT": script,
        "DATA": embedded(shown.data()),
    }
    pieces = _part("page.html").split("@@")  # text and names of values, by turns
    return "".join(values[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def embedded(data: object) -> str:
    """JSON that can stand inside a script element: no text in it can close the element or open a comment."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
