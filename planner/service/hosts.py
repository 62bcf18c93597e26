"""Requests for other hosts are turned away: a page of somebody else's can name this service in its own domain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from planner.service.answers import failure

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class KnownHosts:
    """Passes on what is asked of an allowed host; all else gets the document of every error, and 400.

    Args:
        app: what to pass it on to.
        allowed: names, "*.example.org" for all below one, "*" for any.
    """

    def __init__(self, app: Application, allowed: tuple[str, ...]) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """As every ASGI application."""
        asked = _host(scope) if scope["type"] == "http" else None
        if asked is None or any(_is(asked, name) for name in self._allowed):
            await self._app(scope, receive, send)
            return
        document = failure(
            "bad-request", f"host {asked!r:.60} is not served here; `plan serve --allow-host` names more", 2
        )
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(document)).encode())]
        await send({"type": "http.response.start", "status": 400, "headers": headers})
        await send({"type": "http.response.body", "body": document})


def _host(scope: Message) -> str:
    """The host that a request names, without its port."""
    named = dict(scope["headers"]).get(b"host", b"")
    return str(named.decode("latin-1").partition(":")[0])


def _is(asked: str, name: str) -> bool:
    return name in {"*", asked} or (name.startswith("*.") and asked.endswith(name[1:]))
