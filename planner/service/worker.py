"""A process that answers one question after the other: frames of JSON on stdin, frames of JSON on stdout.

A frame is its length as eight bytes, then as many bytes: of a question ``kind``, a space, seconds, a line break and the
body; of an answer the status, a line break and the body. Nothing is pickled, so that nothing can be unpickled. What
nobody expected ends the process with its traceback in the log; the client hears that there was one.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import BinaryIO

from planner.service.answers import answer
from planner.service.guard import confine

LENGTH = 8
_WARM_SECONDS = 60.0


def main() -> None:
    """Answer until stdin ends."""
    with suppress(BrokenPipeError):  # the service ended first
        _answer_all()


def _answer_all() -> None:
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints goes to the log, not between frames
    _limit_memory(int(sys.argv[1]))
    _warm()
    confine()
    _send(stream, b"ready")
    while (frame := _receive(sys.stdin.buffer)) is not None:
        head, _, body = frame.partition(b"\n")
        kind, seconds = head.decode().split(" ")
        status, document = answer(kind, body, float(seconds))
        _send(stream, str(status).encode() + b"\n" + document)


def _limit_memory(most: int) -> None:
    if most:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _warm() -> None:
    """Load what first questions would wait for, within their time limits: the search, a page's parts, the solver."""
    asked = {"model": "gpt3-125m", "gpus": 8}
    found = json.loads(answer("plan", json.dumps(asked).encode(), _WARM_SECONDS)[1])
    queue = {"cluster": "dgx-h100", "gpus": 8, "jobs": [{"name": "one", "model": "gpt3-125m"}]}
    for kind, body in (("drawn", {"plan": found}), ("export", {"plan": found}), ("allocate", queue)):
        answer(kind, json.dumps(body).encode(), _WARM_SECONDS)


def _receive(stream: BinaryIO) -> bytes | None:
    length = stream.read(LENGTH)
    return stream.read(int.from_bytes(length, "big")) if len(length) == LENGTH else None


def _send(stream: BinaryIO, frame: bytes) -> None:
    stream.write(len(frame).to_bytes(LENGTH, "big") + frame)
    stream.flush()


if __name__ == "__main__":
    main()
