"""What a service allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOCAL: Final = ("localhost", "127.0.0.1", "::1", "[::1]")
"""Names of this machine to itself; a browser that was led here under another name is refused."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of a service; more than they allow is refused with a reason, never queued without end."""

    workers: int = 2
    """Questions answered at once, each in a process of its own."""
    waiting: int = 16
    """Further questions that may wait; beyond them the answer is 429."""
    seconds: float = 30.0
    """Longest search, whatever a request asks for; the process is ended some seconds later."""
    body_bytes: int = 2**20
    memory_bytes: int = 4 * 2**30
    """Address space of one process; 0: as much as there is."""
    remembered: int = 256
    """Answers that are given again to equal questions."""
    hosts: tuple[str, ...] = LOCAL
    """Names under which requests may ask for this service."""
    grace: float = 5.0
    """Seconds beyond a search's limit after which its process is ended, and that a shutdown waits."""
    tasks: int = 500
    """Questions after which a process is replaced by a fresh one."""
