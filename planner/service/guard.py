"""What a worker may not do, whatever it is asked: read or write files, start programs, open connections."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import costmodels
import hardware
import planner
from costmodels.model.catalogue import entry_on_hub
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

_HUB: Final = re.compile(r"[A-Za-z0-9][\w-]*/[A-Za-z0-9][\w.-]*(?<!\.json)(?<!\.toml)", re.IGNORECASE)
_PROC: Final = ("self/stat", "self/statm", "self/status", "cpuinfo", "meminfo", "stat")
"""Load and size of this machine; nothing about the variables and open files of processes."""
_LIBRARIES: Final = frozenset({"site-packages", "dist-packages"})
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def names_only(body: Mapping[str, Any]) -> None:
    """Refuse what would be read as a path: models, clusters and stacks are catalogue names, or tables.

    Raises:
        BadRequest: one looks like a file.
    """
    for field in NAMED:
        value = body.get(field)
        inner = value.get("name") if isinstance(value, Mapping) and field == "cluster" else value
        if isinstance(inner, str) and _like_a_path(inner) and not (field == "model" and _on_hub(inner)):
            raise BadRequest(
                f"{field}: {inner!r:.60} looks like a file; the service reads none: give a name or a table"
            )
    changes = body.get("changes")
    for path, value in flat(changes) if isinstance(changes, Mapping) else ():
        if isinstance(value, str) and _like_a_path(value):
            raise BadRequest(f"changes: {path} {value!r:.60} looks like a file; the service reads none: give a name")


def _on_hub(name: str) -> bool:
    """Whether a model is called as on a hub, such as Qwen/Qwen3-8B, and the catalogue has it."""
    return _HUB.fullmatch(name) is not None and entry_on_hub(name) is not None


def _like_a_path(text: str) -> bool:
    lowered = text.strip().lower()
    return lowered.endswith((".toml", ".json")) or any(mark in lowered for mark in ("/", "\\", "~", "\0"))


def confine() -> None:
    """From now on this process reads nothing but the packages' data and Python, writes nothing and starts nothing.

    A second fence behind ``names_only``: should a path get through, it is refused where it is opened.
    """
    allowed = _installation()

    def check(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            _check_open(args, allowed)
        elif event in {"os.listdir", "os.scandir"}:
            _check_open((args[0], "r", 0), allowed)
        elif event.startswith(_FORBIDDEN):
            raise PermissionError(f"the service does not do that: {event}")

    sys.addaudithook(check)


def _installation() -> tuple[Path, ...]:
    """Folders and files that may be read: the project's packages, Python's own and where other packages lie.

    Not where the service was started, nor the folder of the project's packages unless it holds packages alone.
    """
    own = [Path(package.__file__ or "").resolve().parent for package in (hardware, costmodels, planner)]
    python = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    libraries = {Path(entry).resolve() for entry in sys.path if entry} - {Path.cwd()}
    libraries -= {own[0].parent} if own[0].parent.name not in _LIBRARIES else set()
    kernel = [*(f"/proc/{name}" for name in _PROC), "/sys/devices/system/cpu", os.devnull]
    return (*own, *(Path(path).resolve() for path in python), *libraries, *map(Path, kernel))


def _check_open(args: tuple[Any, ...], allowed: tuple[Path, ...]) -> None:
    path, mode, flags = args[:3]
    if isinstance(path, int) or path is None:
        return
    real = Path(os.path.realpath(os.fsdecode(path)))
    writes = flags & _WRITING or (isinstance(mode, str) and any(letter in mode for letter in "wax+"))
    if writes or not any(real.is_relative_to(place) for place in allowed):
        raise PermissionError(f"the service opens no files: {os.fsdecode(path)!r:.60}")
