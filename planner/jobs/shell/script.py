"""Scripts, read without running them: the command lines that start a training, and what is not known of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from planner.jobs.reader import Launch
from planner.jobs.shell.commands import dispatched
from planner.jobs.shell.launches import starts_training
from planner.jobs.shell.parameters import parameter
from planner.jobs.shell.parsing import errors, parsed
from planner.jobs.shell.slurm import directives, slurm_variables
from planner.jobs.shell.state import Branch, Exit, Leave, Return, Shell, Started, State
from planner.jobs.shell.statements import piped, run
from planner.jobs.shell.values import Unknowns, without_private

_PATHS = 64
"""Ways through a script that are read: each is one choice of arms of the branches that are not known."""


@dataclass(frozen=True)
class Need:
    """What a script does not say.

    Attributes:
        name: of the variable, the number of the argument, or "" of a command whose output is not known.
        line: where it is first used.
        values: those that the script compares it with.
        told: what depends on it.
    """

    name: str
    line: int
    values: tuple[str, ...] = ()
    told: str = ""

    @property
    def option(self) -> str:
        """How the user says it."""
        if self.name == "#" or self.name.isdecimal():
            return "--arg " + (" or ".join(self.values) or "VALUE")
        return f"--env {self.name}=" + (" or ".join(self.values) or "VALUE") if self.name else ""


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


def asked(needs: Sequence[Need]) -> str:
    """What must be given, in one line."""
    said = [f"{one.option} ({one.told})" if one.option else one.told for one in needs]
    return "not known from the script: " + ", ".join(said) if said else ""


@dataclass
class _Path:
    """One way through a script: the arms that it takes, beginning with those that were chosen for it."""

    chosen: tuple[int, ...] = ()
    taken: list[tuple[Branch, tuple[int, ...], int]] = field(default_factory=list)
    launches: tuple[Launch, ...] = ()

    def decide(self, branch: Branch, open_arms: tuple[int, ...]) -> int:
        """The arm that this way takes: the next chosen one, else a fresh shell's."""
        place = len(self.taken)
        fresh = branch.fresh if branch.fresh in open_arms else open_arms[0]
        arm = self.chosen[place] if place < len(self.chosen) else fresh
        assert arm is not None
        self.taken.append((branch, open_arms, arm))
        return arm

    @property
    def arms(self) -> tuple[int, ...]:
        return tuple(arm for _, _, arm in self.taken)


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

    Raises:
        BadRequest: it takes too many steps to read.
    """
    reader = _Reader(without_private(text), dict(environment or {}), tuple(arguments), dict(files or {}), name, starts)
    return reader.script()


def read_commands(
    commands: Sequence[tuple[tuple[str, ...], int, Mapping[str, str]]],
    written: Mapping[str, str],
    text: str,
    given: Mapping[str, str],
) -> Script:
    """The launches among commands that a shell has expanded, those inside others such as ``bash -c`` among them.

    Args:
        commands: words of each, the line of the script, and its variables.
        written: files that the script wrote.
        text: of the script, for its head.
        given: variables that the user gave, which every launch has.
    """
    launches: list[Launch] = []
    batch = directives(text)
    for words, line, environment in commands:
        own = {name: value for name, value in environment.items() if name not in _SHELLS_OWN}
        shell = Shell(
            State(files=dict(written), exported=set(own), variables=dict(own), complete=True), {}, dict(given),
            Unknowns(), run, piped, dispatched, parameter, lambda branch, arms: arms[0], starts_training,
            line=line, depth=1, outer=(("sbatch", *batch),) if batch else (),
        )  # fmt: skip
        with suppress(Exit, Return, Leave):
            dispatched(shell, words, {})
        launches += [_launch(shell.unknowns, one) for one in shell.state.launches]
    return Script(tuple(launches))


_SHELLS_OWN: Final = frozenset(
    {"PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "_", "BASH_ENV", "__RECORDS", "__PROGRAMS", "__WORK"}
)
"""Variables that are the shell's, not the script's."""


_UNDERSTOOD: Final = re.compile(rb"&|\d+#|")
"""What the grammar does not take, and its readers do: a command in the background after a here-document, a base."""


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
        different = [one for one in paths if one.launches != first.launches]
        found = Script(first.launches, wanted=tuple(self.wanted), unread=(*self.errors(), *self.unread))
        if not different:
            return found
        matter = _that_matter(paths)
        if all(branch.usual is not None for branch in matter):
            return replace(found, assumed=tuple(_assumption(one) for one in matter))
        return replace(found, launches=_all_launches(paths), needs=tuple(_needs(matter)))

    def errors(self) -> list[str]:
        """What the grammar does not take."""
        root = parsed(self.text)
        found = [one for one in errors(root) if not _UNDERSTOOD.fullmatch((one.text or b"").strip())]
        places = sorted({one.start_point[0] + 1 for one in found if one.is_error})
        return [f"line {line} is not understood" for line in places[:3]]

    def paths(self) -> list[_Path]:
        """Every way through the script, a fresh shell's first."""
        waiting, found = [_Path()], list[_Path]()
        while waiting and len(found) < _PATHS:
            path = waiting.pop(0)
            self.walk(path)
            found.append(path)
            for place in range(len(path.chosen), len(path.taken)):
                _, arms, arm = path.taken[place]
                waiting += [_Path((*path.arms[:place], other)) for other in arms if other != arm]
        return found

    def walk(self, path: _Path) -> None:
        """Read the script one way."""
        batch = directives(self.text)
        given = {name: value for name, value in slurm_variables(batch).items() if name not in self.environment}
        state = State(arguments=list(self.arguments), given=given)
        shell = Shell(
            state, self.files, self.environment, Unknowns(),
            run, piped, dispatched, parameter, path.decide, self.starts,
            name=self.name, effort=self.effort, outer=(("sbatch", *batch),) if batch else (),
        )  # fmt: skip
        with suppress(Exit, Return, Leave):
            run(shell, parsed(self.text))
        self.effort = shell.effort
        self.wanted += [one for one in shell.wanted if one not in self.wanted]
        self.unread += [one for one in shell.unread if one not in self.unread]
        path.launches = tuple(_launch(shell.unknowns, one) for one in shell.state.launches)


def _launch(unknowns: Unknowns, started: Started) -> Launch:
    """A launch as others see it, its unknown parts as the script writes them."""
    around = [word for words in started.outer for word in words]
    said = [*(value for _, value in started.environment), *(text for _, text in started.written)]
    texts = [*started.words, *around, *said]
    unknown = {
        one.text: ", ".join(_option(name) for name in sorted(one.names)) for text in texts for one in unknowns.of(text)
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


def _option(name: str) -> str:
    return "--arg VALUE" if name.isdecimal() or name == "#" else f"--env {name}=VALUE"


def _that_matter(paths: Sequence[_Path]) -> list[Branch]:
    """Branches whose arms lead to different launches."""
    found: dict[tuple[str, int], Branch] = {}
    for path in paths:
        for place, (branch, _, _) in enumerate(path.taken):
            within = [one for one in paths if one.arms[:place] == path.arms[:place] and len(one.taken) > place]
            by_arm: dict[int, list[tuple[Launch, ...]]] = {}
            for one in within:
                by_arm.setdefault(one.arms[place], []).append(one.launches)
            outcomes = list(by_arm.values())
            if any(one != outcomes[0] for one in outcomes) and any(
                one != outcomes[0][0] for each in outcomes for one in each
            ):
                found.setdefault((branch.text, branch.line), branch)
    return sorted(found.values(), key=lambda one: one.line)


def _all_launches(paths: Sequence[_Path]) -> tuple[Launch, ...]:
    """The launches of all ways, each once, with the arms of the first way that has it."""
    found: dict[str, Launch] = {}
    for path in paths:
        arms = tuple(f"{branch.arms[arm]} (line {branch.line})" for branch, _, arm in path.taken)
        for launch in path.launches:
            found.setdefault(repr(launch), replace(launch, when=arms))
    everywhere = [key for key in found if all(any(repr(one) == key for one in path.launches) for path in paths)]
    return tuple(replace(one, when=()) if key in everywhere else one for key, one in found.items())


def _assumption(branch: Branch) -> str:
    assert branch.usual is not None
    others = [arm for place, arm in enumerate(branch.arms) if place != branch.usual]
    return f"line {branch.line}: taken as {branch.arms[branch.usual]}, not {' or '.join(others)}"


def _needs(branches: Sequence[Branch]) -> list[Need]:
    """What would settle branches, by name."""
    found: dict[str, Need] = {}
    for branch in branches:
        told = f"line {branch.line}: {branch.text}"
        for name in sorted(branch.names) or [""]:
            values = tuple(value for one, value in branch.values if one == name and value)
            old = found.get(name or told)
            known = old.values if old else ()
            merged = (*known, *(one for one in values if one not in known))
            found[name or told] = Need(name, old.line if old else branch.line, merged, old.told if old else told)
    return list(found.values())
