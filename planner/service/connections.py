"""Connections that cannot be held for nothing, and that answer also a client which has said all that it has to say."""

from __future__ import annotations

import asyncio
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from planner.service.answers import failure

HEAD_SECONDS: Final = 10.0
"""In which a client has to send the head of a request, from its first byte or from the connection on."""
PROBES: Final = 2
"""Interim answers to a client that sends no more: the first has a closed connection refused, the second shows it."""
PROBE_SECONDS: Final = 0.5
"""Between them."""
_INTERIM: Final = b"HTTP/1.1 102 Processing\r\n\r\n"
BACKLOG: Final = 128
"""Connections that wait to be accepted; asyncio tries as many at once, also where no descriptor is left."""


class Connection(H11Protocol):
    """A connection that is closed with 408 where a head does not come in time; uvicorn would wait for ever.

    A client may close its side once its request is sent, and is answered; uvicorn would close the connection. Only a
    write tells whether it has left altogether, when the work for it ends.
    """

    _timer: asyncio.TimerHandle | None = None
    _all_said: bool = False

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

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio keeps the connection open where it is true
        """Keep the connection while a whole request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        self._all_said = cycle is not None and not cycle.response_complete and not cycle.more_body
        if self._all_said:
            self._probe(PROBES)
        return self._all_said

    def _probe(self, left: int) -> None:
        begun = self.cycle.response_started or self.cycle.scope["http_version"] == "1.0"
        if left and not begun and not self.transport.is_closing():
            self.transport.write(_INTERIM)
            self.loop.call_later(PROBE_SECONDS, self._probe, left - 1)

    def on_response_complete(self) -> None:
        """Close a connection on which nothing more can be asked."""
        super().on_response_complete()
        if self._all_said:
            self.transport.close()

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

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, in the form of all errors."""
        self._turn_away("400 Bad Request", "bad-request", msg.rstrip("."))

    def _too_slow(self) -> None:
        said = f"the head of the request did not come within {HEAD_SECONDS:g} s"
        self._turn_away("408 Request Timeout", "too-slow", said)

    def _turn_away(self, status: str, kind: str, message: str) -> None:
        body = failure(kind, message, 2)
        head = f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(f"{head}content-type: application/json\r\n\r\n".encode() + body)
        self.transport.close()
