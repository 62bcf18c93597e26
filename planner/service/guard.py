"""What a worker may not do, whatever it is asked: read or write files, start programs, open connections."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import costmodels
import hardware
import planner
from planner.errors import BadRequest
from planner.request.overrides import flat

NAMED: Final = ("model", "cluster", "stack")
_FORBIDDEN: Final = (
    "subprocess.",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "socket.connect",
    "socket.bind",
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "shutil."),
)


def names_only(body: Mapping[str, Any]) -> None:
    """Refuse what would be read as a path: models, clusters and stacks are catalogue names, or tables.

    Raises:
        BadRequest: one looks like a file.
    """
    for field in NAMED:
        value = body.get(field)
        inner = value.get("name") if isinstance(value, Mapping) and field == "cluster" else value
        if isinstance(inner, str) and _like_a_path(inner):
            raise BadRequest(
                f"{field}: {inner!r:.60} looks like a file; the service reads none: give a name or a table"
            )
    changes = body.get("changes")
    for path, value in flat(changes) if isinstance(changes, Mapping) else ():
        if isinstance(value, str) and _like_a_path(value):
            raise BadRequest(f"changes: {path} {value!r:.60} looks like a file; the service reads none: give a name")


def _like_a_path(text: str) -> bool:
    lowered = text.strip().lower()
    return lowered.endswith((".toml", ".json")) or any(mark in lowered for mark in ("/", "\\", "~", "\0"))


def confine() -> None:
    """From now on this process reads nothing but its own installation, writes nothing and starts nothing.

    A second fence behind ``names_only``: should a path get through, it is refused where it is opened.
    """
    allowed = _installation()

    def check(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            _check_open(args, allowed)
        elif event.startswith(_FORBIDDEN):
            raise PermissionError(f"the service does not do that: {event}")

    sys.addaudithook(check)


def _installation() -> tuple[str, ...]:
    packages = [str(Path(package.__file__ or "").resolve().parent) for package in (hardware, costmodels, planner)]
    interpreter = [sys.prefix, sys.base_prefix, *[entry for entry in sys.path if entry]]
    kernel = ["/proc/", "/sys/devices/system/cpu", os.devnull]
    return tuple({os.path.realpath(path) for path in (*packages, *interpreter)} | set(kernel))


def _check_open(args: tuple[Any, ...], allowed: tuple[str, ...]) -> None:
    path, mode = args[0], args[1]
    if isinstance(path, int) or path is None:
        return
    real = os.path.realpath(os.fsdecode(path))
    writes = isinstance(mode, str) and any(letter in mode for letter in "wax+")
    if writes or not real.startswith(allowed):
        raise PermissionError(f"the service opens no files: {real}")
