"""The service: one endpoint per question, health and catalogue, limits in front of everything."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

from fastapi import Depends, FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from planner.service.answers import failure
from planner.service.describe import CATALOGUES, ENDPOINTS, responses, with_questions
from planner.service.metrics import METRICS, Counts
from planner.service.page import Page, docs, page
from planner.service.pool import Answer, Busy, Pool, Settings
from planner.version import VERSION

BODY_SECONDS: Final = 10.0
"""In which a client has to send its body."""
AGAIN: Final = 60.0
"""Seconds until it is said again that connections cannot be accepted."""
_log: Final = logging.getLogger("uvicorn.error")
_JSON: Final = "application/json"
_PORT: Final = re.compile(r":\d+$")
_STOPPED: Final = "_start_serving"
"""What asyncio calls with a closed socket where a service stops that could accept no connection."""
_UNREAD: Final = (408, 413, 415)
"""Answers that are given before the body was read."""


class ClientGone(Exception):
    """The client closed its connection."""

    status = 499


class Refused(Exception):
    """A request that is not even looked at."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        self.status = status
        self.document = failure(kind, message, 2)
        super().__init__(message)


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application, for ``plan serve`` or any ASGI server."""
    allowed = settings or Settings()
    pool, known, counts = Pool(allowed), OrderedDict[bytes, Answer](), Counts()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        log_exhaustion_once(asyncio.get_running_loop())
        await pool.start()
        yield
        await pool.stop()

    app = FastAPI(
        title="meshwright",
        version=VERSION,
        license_info={"name": "Apache-2.0"},
        lifespan=lifespan,
        dependencies=[_for_hosts(allowed.hosts)],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    for one in ENDPOINTS:
        content = {"application/json": {"schema": one.body}}
        app.add_api_route(
            f"/v1/{one.name}",
            _asking(pool, known, one.name, counts),
            methods=["POST"],
            operation_id=one.name,
            summary=one.summary,
            responses=responses(one.answer),
            openapi_extra={"requestBody": {"required": True, "content": content}},
        )
    for kind in CATALOGUES:
        listed = _asking(pool, known, "list", counts, json.dumps({"kind": kind}).encode())
        _add_get(app, kind, listed, f"The catalogue's {kind}.", list[dict[str, Any]])
    offered = _asking(pool, known, "choices", counts, b"{}")
    _add_get(app, "choices", offered, "What the form of the page offers.", dict[str, Any])
    _add_get(app, "health", _health(pool), "Whether it answers, and how busy it is.", dict[str, Any])
    app.add_exception_handler(HTTPException, _no_such)
    app.add_exception_handler(Refused, _turned_away)
    app.add_exception_handler(ClientGone, _nobody_reads)

    _add_pages(app, pool, counts)
    return app


def _add_pages(app: FastAPI, pool: Pool, counts: Counts) -> None:
    """What browsers and operators read: the page, the description of the API, and figures."""
    described = cache(lambda: with_questions(app.openapi()))

    async def describe() -> dict[str, Any]:
        return described()

    async def measure() -> Response:
        return Response(counts.text(pool), media_type=METRICS)

    plain: dict[str, Callable[..., Any]] = {
        "/openapi.json": describe,
        "/metrics": measure,
        "/": _page(page),
        "/docs": _page(cache(lambda: docs(described()))),
    }
    for path, handler in plain.items():
        app.add_api_route(path, handler, methods=["GET"], include_in_schema=False)


def _page(made: Callable[[], Page]) -> Callable[[Request], Awaitable[Response]]:
    """What answers with a page, or with the word that the browser has it already."""

    async def show(request: Request) -> Response:
        found = made()
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers={"etag": found.tag})
        packs = "gzip" in request.headers.get("accept-encoding", "")
        headers = {**found.headers, **({"content-encoding": "gzip"} if packs else {})}
        content = found.packed if packs else found.text
        return Response(content, media_type="text/html; charset=utf-8", headers=headers)

    return show


def _add_get(app: FastAPI, name: str, handler: Callable[..., Any], summary: str, answer: Any) -> None:
    said = responses(answer, "400", "429")
    app.add_api_route(f"/v1/{name}", handler, methods=["GET"], operation_id=name, summary=summary, responses=said)


def _for_hosts(allowed: tuple[str, ...]) -> Any:
    """Turns away what is asked of other hosts: a page of somebody else's can name this service in its own domain.

    ``allowed`` are names, "*.example.org" for all below one, "*" for any.
    """

    async def check(request: Request) -> None:
        asked = _PORT.sub("", request.headers.get("host", "")).strip("[]")  # of IPv6
        if not any(name in {"*", asked} or (name.startswith("*.") and asked.endswith(name[1:])) for name in allowed):
            said = f"host {asked!r:.60} is not served here; `plan serve --allow-host` names more"
            raise Refused(400, "bad-request", said)

    return Depends(check)


def _asking(
    pool: Pool, known: OrderedDict[bytes, Answer], kind: str, counts: Counts, body: bytes | None = None
) -> Callable[[Request], Awaitable[Response]]:
    """What answers a kind of question: the body of the request, or the same for all of them."""

    async def ask(request: Request) -> Response:
        with counts.counting(kind) as counted:
            asked = await _body(request, pool.settings.body_bytes) if body is None else body
            answered = await _answered(pool, known, kind, asked, request)
            counted.status = answered[0]
        return _response(answered)

    return ask


async def _answered(pool: Pool, known: OrderedDict[bytes, Answer], kind: str, body: bytes, request: Request) -> Answer:
    """The remembered answer, or a worker's, unless the client leaves first; the last answers are remembered."""
    key = hashlib.sha256(kind.encode() + b"\n" + body).digest()
    if key in known:
        known.move_to_end(key)
        return known[key]
    asked = asyncio.ensure_future(pool.ask(kind, body))
    left = asyncio.ensure_future(_leaving(request))
    try:
        await asyncio.wait({asked, left}, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            raise ClientGone
        found = asked.result()
    except Busy:
        raise Refused(429, "busy", f"{pool.settings.waiting} questions wait already; try again later") from None
    finally:
        for task in (asked, left):
            task.cancel()
        await asyncio.gather(asked, left, return_exceptions=True)
    if found[0] == 200:
        known[key] = found
        while len(known) > pool.settings.remembered:
            known.popitem(last=False)
    return found


async def _leaving(request: Request) -> None:
    """Until the client closes its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request, most: int) -> bytes:
    """The body, if it says that it is JSON, is not too long, and comes in time."""
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said != _JSON:
        raise Refused(415, "bad-request", f"expected content-type {_JSON}, got {said!r:.60}")
    packed = request.headers.get("content-encoding", "").strip().lower()
    if packed not in {"", "identity"}:
        raise Refused(415, "bad-request", f"expected a body as it is, got content-encoding {packed!r:.60}")
    too_long = Refused(413, "too-large", f"the body is longer than {most:,} bytes; a question takes a few kB")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > most:
        raise too_long
    parts = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                parts += part
                if len(parts) > most:
                    raise too_long
    except ClientDisconnect:
        raise ClientGone from None
    except TimeoutError:
        raise Refused(408, "too-slow", f"the body did not come within {BODY_SECONDS:g} s") from None
    return bytes(parts)


def _health(pool: Pool) -> Callable[[], Awaitable[dict[str, Any]]]:
    async def health() -> dict[str, Any]:
        return {
            "status": "ok",
            "version": VERSION,
            "workers": pool.settings.workers,
            "busy": pool.busy,
            "waiting": pool.waiting,
        }

    return health


def _response(answer: Answer) -> Response:
    status, document = answer
    headers = {"retry-after": "1"} if status == 429 else {}
    if status in _UNREAD:
        headers["connection"] = "close"  # else the server would go on reading
    return Response(document, status_code=status, media_type=_JSON, headers=headers)


async def _turned_away(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return _response((error.status, error.document))


async def _nobody_reads(_request: Request, _error: Exception) -> Response:
    return Response(status_code=ClientGone.status)  # nobody reads it; nginx's code for this in logs


async def _no_such(_request: Request, error: Exception) -> Response:
    """No such path or method, in the form of all errors."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    document = failure("bad-request", f"{error.detail}; /openapi.json lists what there is", 2)
    return Response(document, status_code=error.status_code, media_type=_JSON, headers=headers)


def log_exhaustion_once(loop: asyncio.AbstractEventLoop) -> None:
    """Log that no connection can be accepted in one line a minute, where asyncio logs every attempt with its frames.

    An attempt is repeated a second later, whether or not the service has stopped since: that is not logged.
    """
    said = -AGAIN

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal said
        if _STOPPED in context["message"] and isinstance(context.get("exception"), ValueError):
            return
        if "out of system resource" not in context["message"]:
            loop.default_exception_handler(context)
        elif time.monotonic() - said >= AGAIN:
            said = time.monotonic()
            _log.error("no connection can be accepted: %s (ulimit -n gives more)", context["exception"])

    loop.set_exception_handler(handle)


__all__ = ["create_app"]
