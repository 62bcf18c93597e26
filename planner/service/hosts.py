"""Requests for other hosts are turned away: a page of somebody else's can name this service in its own domain."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from planner.service.answers import failure


class KnownHosts:
    """Passes on what is asked of an allowed host; all else gets the document of every error, and 400.

    Args:
        app: what to pass it on to.
        allowed: names, "*.example.org" for all below one, "*" for any.
    """

    def __init__(self, app: ASGIApp, allowed: tuple[str, ...]) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As every ASGI application."""
        asked = Headers(scope=scope).get("host", "").partition(":")[0] if scope["type"] == "http" else None
        if asked is None or any(_is(asked, name) for name in self._allowed):
            await self._app(scope, receive, send)
            return
        document = failure(
            "bad-request", f"host {asked!r:.60} is not served here; `plan serve --allow-host` names more", 2
        )
        await Response(document, status_code=400, media_type="application/json")(scope, receive, send)


def _is(asked: str, name: str) -> bool:
    return name in {"*", asked} or (name.startswith("*.") and asked.endswith(name[1:]))
