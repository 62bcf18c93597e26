"""Scripts, read without running them: the command lines that start a training, and what is not known of them.

Or expanded by bash itself, which runs the script's own code with a recorder in the place of every other program. It is
for scripts whose values only bash can find, and never done unless it is asked for: assignments, redirections and loops
are run on this machine, in a folder of their own. Programs are not, but for a few that only print what they are given.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.reader import Launch
from planner.jobs.shell.branches import Need, Route, asked, assumption, launches_of, needs_of, that_matter, usual_routes
from planner.jobs.shell.commands import dispatched
from planner.jobs.shell.launches import starts_training
from planner.jobs.shell.parameters import parameter
from planner.jobs.shell.parsing import not_understood, parsed
from planner.jobs.shell.processes import directives, slurm_variables
from planner.jobs.shell.state import Branch, Exit, Leave, Return, Shell, Started, State, Unknowns, without_private
from planner.jobs.shell.statements import piped, run
from planner.jobs.values import template

_PATHS = 40
"""Ways through a script that are read: each is one choice of arms of the branches that are not known."""


@dataclass(frozen=True)
class Script:
    """What a script starts.

    Attributes:
        launches: those that start a training, in their order. Where a branch that is not known decides about them, all
            that there may be, each with the arm in which it is (``Launch.when``).
        needs: what must be given before it is known which launch is meant.
        assumed: what was taken for granted, a line each.
        wanted: files that it runs or takes in and that were not given, a line each.
        unread: what is no shell that is understood, a line each.
    """

    launches: tuple[Launch, ...]
    needs: tuple[Need, ...] = ()
    assumed: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def missing(self) -> str:
        """All that must be given, in one line; empty where nothing is missing."""
        return asked(self.needs)


def read_script(
    text: str,
    *,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    name: str = "script.sh",
    starts: Callable[[tuple[str, ...]], bool] = starts_training,
) -> Script:
    """What a shell script starts. It is read, never run.

    Args:
        text: of the script.
        environment: variables of the user's shell, by name.
        arguments: of the script.
        files: other files of the job, by path: scripts that this one takes in or runs, and files that it reads.
        name: of the script.
        starts: whether a command line is one of those that are wanted, by its words.
    """
    plain = without_private(text.replace("\r\n", "\n"))
    reader = _Reader(plain, dict(environment or {}), tuple(arguments), dict(files or {}), name, starts)
    try:
        return reader.script()
    except RecursionError:
        raise BadRequest("its commands are nested too deeply to be read") from None


Command = tuple[tuple[str, ...], int, Mapping[str, str]]
"""Words of a command, the line of the script, and variables."""


def read_commands(
    commands: Sequence[Command], written: Mapping[str, str], text: str, given: Mapping[str, str]
) -> Script:
    """The launches among commands that a shell has expanded, those inside others such as ``bash -c`` among them."""
    launches: list[Launch] = []
    batch = directives(text)
    for words, line, environment in commands:
        own = {name: value for name, value in environment.items() if name not in _SHELLS_OWN}
        state = State(files=dict(written), exported=set(own), variables=dict(own), complete=True)
        first = lambda branch, arms: arms[0]  # noqa: E731
        shell = _shell(state, {}, given, first, starts_training, batch, line=line, depth=1)
        with suppress(Exit, Return, Leave):
            dispatched(shell, words, {})
        launches += [_launch(shell.unknowns, one) for one in shell.state.launches]
    return Script(tuple(launches))


def _shell(
    state: State,
    files: Mapping[str, str],
    environment: Mapping[str, str],
    decide: Callable[[Branch, tuple[int, ...]], int],
    starts: Callable[[tuple[str, ...]], bool],
    batch: Sequence[str],
    **more: Any,
) -> Shell:
    outer = (("sbatch", *batch),) if batch else ()
    return Shell(
        state, dict(files), dict(environment), Unknowns(), run, piped, dispatched, parameter, decide, starts,
        outer=outer, **more,
    )  # fmt: skip


_SHELLS_OWN: Final = frozenset(
    {"PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "_", "BASH_ENV", "__RECORDS", "__PROGRAMS", "__WORK"}
)
"""Variables that are the shell's, not the script's."""


@dataclass
class _Reader:
    text: str
    environment: dict[str, str]
    arguments: tuple[str, ...]
    files: dict[str, str]
    name: str
    starts: Callable[[tuple[str, ...]], bool]
    effort: int = 0
    wanted: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def script(self) -> Script:
        """All ways through it, and what they have in common."""
        paths = self.paths()
        first = paths[0]
        different = [one for one in paths if one.outcome != first.outcome]
        found = Script(first.launches, wanted=tuple(self.wanted), unread=tuple(self.unread))
        if not different:
            return found
        matter = that_matter(paths)
        assumed = tuple(assumption(one) for one in matter if one.usual is not None)
        open_ones = [one for one in matter if one.usual is None]
        if not open_ones:
            return replace(found, assumed=assumed)
        usual = usual_routes(paths, matter)
        needs = needs_of(open_ones, paths)
        return replace(found, launches=launches_of(usual, open_ones), needs=needs, assumed=assumed)

    def paths(self) -> list[Route]:
        """Every way through the script, a fresh shell's first."""
        waiting, found = [Route()], list[Route]()
        while waiting and len(found) < _PATHS:
            path = waiting.pop(0)
            self.walk(path)
            found.append(path)
            for place in range(len(path.chosen), len(path.taken)):
                _, arms, arm = path.taken[place]
                waiting += [Route((*path.arms[:place], other)) for other in arms if other != arm]
        return found

    def walk(self, path: Route) -> None:
        """Read the script one way."""
        batch = directives(self.text)
        given = {name: value for name, value in slurm_variables(batch).items() if name not in self.environment}
        state = State(arguments=list(self.arguments), given=given)
        more = {"name": self.name, "effort": self.effort}
        shell = _shell(state, self.files, self.environment, path.decide, self.starts, batch, **more)
        shell.unread += not_understood(parsed(self.text))
        try:
            run(shell, parsed(self.text))
        except (Exit, Return, Leave):
            if not shell.state.launches:
                said = "ends the script before it starts a training; give what it asks for with --arg and --env"
                shell.want(f"line {shell.line} {said}")
        self.effort = shell.effort
        self.wanted += [one for one in shell.wanted if one not in self.wanted]
        self.unread += [one for one in shell.unread if one not in self.unread]
        path.end(tuple(_launch(shell.unknowns, one) for one in shell.state.launches), shell.met)


def _launch(unknowns: Unknowns, started: Started) -> Launch:
    """A launch as others see it, its unknown parts as the script writes them."""
    around = [word for words in started.outer for word in words]
    said = [*(value for _, value in started.environment), *(text for _, text in started.written)]
    texts = [*started.words, *around, *said]
    unknown = {
        one.text: ", ".join(dict.fromkeys(Need(name, one.line).option for name in sorted(one.names)))
        for text in texts
        for one in unknowns.of(text)
    }
    show = unknowns.shown
    return Launch(
        tuple(show(word) for word in started.words),
        started.line,
        {show(path): show(text) for path, text in started.written},
        {name: show(value) for name, value in started.environment},
        unknown=unknown,
        outer=tuple(tuple(show(word) for word in words) for words in started.outer),
    )


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


def expand(
    text: str,
    *,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    name: str = "script.sh",
) -> Script:
    """What a script starts, by running it in bash with recorders for programs; arguments as of ``read_script``."""
    bash = shutil.which("bash")
    if bash is None:
        other = "leave it out to read the script without running it"
        raise BadRequest(f"--expand needs bash, which is not installed; {other}")
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
    return read_commands(recorded, written, text, given)


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


def _read(path: Path) -> Iterator[Command]:
    """The commands of a file of records, in their order."""
    cells = iter(path.read_text(encoding="utf-8", errors="replace").split("\0"))
    for line in cells:
        count = next(cells, "")
        if not count.isdecimal():
            return
        words = tuple(next(cells, "") for _ in range(int(count)))
        said = (cell.partition("=") for cell in iter(lambda: next(cells, ""), ""))
        yield words, int(line or 0), {name: value for name, _, value in said}


def _content(path: Path) -> str:
    """What a file holds, empty where it is large or no text."""
    with suppress(UnicodeDecodeError):
        return path.read_text(encoding="utf-8") if path.is_file() and path.stat().st_size <= _LARGEST else ""
    return ""
