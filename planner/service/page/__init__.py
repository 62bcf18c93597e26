"""The pages of the service: the form with its answer, and the description of the endpoints.

Each is one file of HTML with its own style and script. The policy that goes with it lets run and style what stands in
it, and lets a browser ask nobody but this service.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from planner.service.page.docs import docs_body

_SHARED: Final = ()
"""Scripts of ``planner.render.page`` that draw."""
_SCRIPTS: Final = (
    *("dom.js", "words.js", "state.js", "ask.js", "form.js", "headline.js", "others.js"),
    *("otherwise.js", "launch.js", "upload.js", "out.js", "main.js"),
)
_POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "


@dataclass(frozen=True)
class Page:
    """A page and what a browser is told with it."""

    text: str
    headers: Mapping[str, str]

    @property
    def tag(self) -> str:
        """What names this text."""
        return self.headers["etag"]


@cache
def page() -> Page:
    """The form and the answer."""
    style, script = _style(), _script()
    allowed = f"script-src '{_source(script)}'; style-src '{_source(style)}'; connect-src 'self'; img-src data: blob:"
    return _page(_filled("page.html", {"STYLE": style, "SCRIPT": script}), allowed)


def docs(description: Mapping[str, Any]) -> Page:
    """The endpoints, of their description in the words of OpenAPI."""
    style = _style()
    text = _filled("docs.html", {"STYLE": style, "BODY": docs_body(description)})
    return _page(text, f"style-src '{_source(style)}'; img-src data:")


def _page(text: str, allowed: str) -> Page:
    headers = {
        "content-security-policy": _POLICY + allowed,
        "cache-control": "no-cache",
        "etag": f'"{hashlib.sha256(text.encode()).hexdigest()[:16]}"',
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    return Page(text, headers)


def _filled(name: str, values: Mapping[str, str]) -> str:
    pieces = _part(name).split("@@")  # text and names of values, by turns
    return "".join(values[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def _style() -> str:
    return _drawing("page.css") + _part("page.css")


def _script() -> str:
    return '(() => {\n"use strict";\n' + "".join([*map(_drawing, _SHARED), *map(_part, _SCRIPTS)]) + "})();\n"


def _part(name: str) -> str:
    return files("planner.service.page").joinpath(name).read_text(encoding="utf-8")


def _drawing(name: str) -> str:
    return files("planner.render.page").joinpath(name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """How a policy names a style or a script by what it holds."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
