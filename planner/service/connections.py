"""Connections that cannot be held for nothing: the head of a request has to come in time."""

from __future__ import annotations

import asyncio
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from planner.service.answers import failure

HEAD_SECONDS: Final = 10.0
"""In which a client has to send the head of a request, from its first byte or from the connection on."""
BACKLOG: Final = 128
"""Connections that wait to be accepted; asyncio tries as many at once, also where no descriptor is left."""


class Connection(H11Protocol):
    """A connection that is closed with 408 where a head does not come in time; uvicorn would wait for ever."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Go on waiting until a whole head is there, whatever came of it."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        body = failure("too-slow", f"the head of the request did not come within {HEAD_SECONDS:g} s", 2)
        head = f"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(f"{head}content-type: application/json\r\n\r\n".encode() + body)
        self.transport.close()
