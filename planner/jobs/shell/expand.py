"""Scripts expanded by bash itself: it runs the script's own code, with every other program replaced by a recorder.

This is for scripts whose values only bash can find, and for comparison with what is read. It is never done unless it is
asked for: assignments, redirections and loops of the script are run on this machine, in a folder of their own. Programs
are not: neither those on the search path nor those called by a path, but for a few that only print what they are given.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from planner.errors import BadRequest
from planner.jobs.data import template
from planner.jobs.shell.processes import directives, slurm_variables
from planner.jobs.shell.script import Script, read_commands

WARNING: Final = "bash ran the script's own code; every program that it calls was replaced by a recorder"
_HARMLESS: Final = (
    *("basename", "dirname", "seq", "wc", "cut", "tr", "head", "tail", "expr", "cat", "grep", "realpath"),
)
"""Programs that only print what follows from their words and from what they read; the others are recorded."""
_CPU_SECONDS: Final = 5
_WALL_SECONDS: Final = 60
_BLOCKS: Final = 16_384
"""The largest file that it may write, in blocks of 1,024 bytes."""
_FILES: Final = 1_000
"""Files and folders of its own that are looked at."""
_LARGEST: Final = 1 << 20
"""Bytes of a file that is kept with the launches."""
_PRELUDE: Final = "shell/prelude.sh"
"""What bash runs first. What looks like a path in a command becomes a function of that name, in case it is run."""


@dataclass(frozen=True)
class _Recorded:
    """A command that bash would have run."""

    line: int
    words: tuple[str, ...]
    environment: dict[str, str]


def expand(
    text: str,
    *,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    name: str = "script.sh",
) -> Script:
    """What a script starts, by running it in bash with recorders for programs; arguments as of ``read_script``.

    Raises:
        BadRequest: there is no bash, or the script does not end.
    """
    bash = shutil.which("bash")
    if bash is None:
        raise BadRequest(
            "--expand needs bash, which is not installed; leave it out to read the script without running it"
        )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        work, script = root / "work", PurePath(name).name
        for path, content in {**(files or {}), script: text}.items():
            place = work / PurePath(path).name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content, encoding="utf-8")
        given = {**slurm_variables(directives(text)), **(environment or {})}
        _run([bash, script, *arguments], work, _prepared(root, given))
        recorded = [one for path in sorted((root / "records").iterdir()) for one in _read(path)]
        found = [(str(path.relative_to(work)), _content(path)) for path in sorted(work.rglob("*"))[:_FILES]]
        written = {path: content for path, content in found if content and path != script}
    return read_commands([(one.words, one.line, one.environment) for one in recorded], written, text, given)


def _prepared(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that bash starts with; the folder of programs has only the harmless ones."""
    programs = root / "programs"
    programs.mkdir()
    for name, link in [*((name, name) for name in _HARMLESS), ("mkdir", "__mkdir")]:
        if found := shutil.which(name):
            (programs / link).symlink_to(found)
    prelude = root / "prelude"
    limits = template(_PRELUDE).replace("CPU", str(_CPU_SECONDS)).replace("BLOCKS", str(_BLOCKS))
    prelude.write_text(limits, encoding="utf-8")
    records = root / "records"
    records.mkdir()
    own = {"PATH": str(programs), "HOME": "~", "BASH_ENV": str(prelude), "__RECORDS": str(records)}
    own |= {"__PROGRAMS": own["PATH"], "__WORK": str(root / "work")}
    return {**environment, **own}


def _run(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    try:
        subprocess.run(  # noqa: S603 - what is run is what the user asked to be run
            words, cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, timeout=_WALL_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BadRequest(f"the script did not end within {_WALL_SECONDS} s when bash ran it") from None


def _read(path: Path) -> Iterator[_Recorded]:
    """The commands of a file of records, in their order."""
    cells = iter(path.read_text(encoding="utf-8", errors="replace").split("\0"))
    for line in cells:
        count = next(cells, "")
        if not count.isdecimal():
            return
        words = tuple(next(cells, "") for _ in range(int(count)))
        environment: dict[str, str] = {}
        while cell := next(cells, ""):
            name, _, value = cell.partition("=")
            environment[name] = value
        yield _Recorded(int(line or 0), words, environment)


def _content(path: Path) -> str:
    """What a file holds, empty where it is large or no text."""
    if not path.is_file() or path.stat().st_size > _LARGEST:
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""
