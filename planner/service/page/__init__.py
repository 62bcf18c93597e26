"""The pages of the service: the form with its answer, and the description of the endpoints.

Each is one file of HTML with its own style and script. The policy that goes with it lets run and style what stands in
it, and lets a browser ask nobody but this service.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Final

from planner.render.page import digest, filled, script_with, style
from planner.service.page.docs import docs_body

_SCRIPTS: Final = (
    *("words.js", "state.js", "ask.js", "form.js", "machines.js", "summary.js", "others.js"),
    *("otherwise.js", "launch.js", "upload.js", "out.js", "main.js"),
)
_POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "


@dataclass(frozen=True)
class Page:
    """A page and the headers that a browser gets with it."""

    text: str
    headers: Mapping[str, str]

    @property
    def tag(self) -> str:
        """What names this text."""
        return self.headers["etag"]

    @cached_property
    def packed(self) -> bytes:
        """The text as most browsers take it, a third as long."""
        return gzip.compress(self.text.encode(), mtime=0)


@cache
def page() -> Page:
    """The form and the answer."""
    look, script = _look(), script_with("".join(map(_part, _SCRIPTS)))
    allowed = f"script-src 'sha256-{digest(script)}'; style-src 'sha256-{digest(look)}'; connect-src 'self'"
    return _page(filled(_part("page.html"), {"STYLE": look, "SCRIPT": script}), f"{allowed}; img-src data: blob:")


def docs(description: Mapping[str, Any]) -> Page:
    """The endpoints, of their description in the words of OpenAPI."""
    look = _look()
    text = filled(_part("docs.html"), {"STYLE": look, "BODY": docs_body(description)})
    return _page(text, f"style-src 'sha256-{digest(look)}'; img-src data:")


def _page(text: str, allowed: str) -> Page:
    headers = {
        "content-security-policy": _POLICY + allowed,
        "cache-control": "no-cache",
        "vary": "accept-encoding",
        "etag": f'"{hashlib.sha256(text.encode()).hexdigest()[:16]}"',
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    return Page(text, headers)


def _look() -> str:
    return style() + _part("page.css")


def _part(name: str) -> str:
    return files("planner.service.page").joinpath(name).read_text(encoding="utf-8")
