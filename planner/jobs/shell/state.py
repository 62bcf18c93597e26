"""What a shell knows while it reads a script: values that may be known in part, variables, files, launches so far.

A value is text, where each unknown part is one character of a private plane. Text with an unknown part is cut and
joined as any other; what cannot be done with it (a product, a pattern) makes a new unknown part of the same names.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.shell.parsing import Node, as_written
from planner.jobs.values import data, words

_FIRST: Final = 0xF0000
RANKS: Final = frozenset(words(data("shell/words")["ranks"]))
"""Variables that number nodes or processes: a script is read as the first of them runs it."""
_PRIVATE: Final = re.compile("[\U000f0000-\U000ffffd]")


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that a script does not say.

    Attributes:
        text: as the script writes it, such as ``${NNODES}`` or ``$(hostname)``.
        line: of the script, counted from 1, where it is first used.
        names: what would settle it: variables, and positions of arguments as "1".
        fresh: it is a variable that nobody has set, which a fresh shell has as an empty word.
    """

    text: str
    line: int
    names: frozenset[str]
    fresh: bool = False


@dataclass
class Unknowns:
    """Every unknown part of a script, and the character that stands for it.

    Attributes:
        marks: the character of each text with its names.
        known: what each character stands for.
    """

    marks: dict[tuple[str, frozenset[str]], str] = field(default_factory=dict)
    known: dict[str, Unknown] = field(default_factory=dict)

    def mark(self, text: str, line: int, names: Iterable[str] = (), *, fresh: bool = False) -> str:
        """The character that stands for an unknown part."""
        key = (text, frozenset(names))
        if key not in self.marks:
            made = chr(_FIRST + len(self.marks))
            self.marks[key] = made
            self.known[made] = Unknown(text, line, key[1], fresh)
        return self.marks[key]

    def derived(self, source: str, line: int, *values: str) -> str:
        """What follows from values of which a part is unknown, as the script writes it."""
        names = {name for value in values for one in self.of(value) for name in one.names}
        return self.mark(self.shown(source), line, names)

    def of(self, text: str) -> list[Unknown]:
        """The unknown parts of a text, in their order."""
        return [self.known[one] for one in _PRIVATE.findall(text)]

    def shown(self, text: str) -> str:
        """A text as a person reads it, its unknown parts as the script writes them."""
        return _PRIVATE.sub(lambda found: self.known[found[0]].text, text)

    def emptied(self, text: str) -> str:
        """A text where the variables that nobody has set are empty, and ranks 0."""

        def usual(found: re.Match[str]) -> str:
            one = self.known[found[0]]
            return ("0" if one.names <= RANKS else "") if one.fresh else found[0]

        return _PRIVATE.sub(usual, text)

    def unset(self, text: str) -> bool:
        """Whether a text is nothing but variables that nobody has set."""
        return bool(text) and not self.emptied(text)


def is_known(text: str) -> bool:
    """Whether no part of a text is unknown."""
    return _PRIVATE.search(text) is None


def without_private(text: str) -> str:
    """A text of which no character can be taken for an unknown part."""
    return _PRIVATE.sub("\ufffd", text)


Array = dict[Any, str]
"""Elements of an array by index, or by key where it is associative."""

EFFORT: Final = 200_000
"""Commands, and turns of loops, that are read of one script before it is given up."""
DEPTH: Final = 60
"""Functions, files and strings within each other."""
LONGEST: Final = 1 << 20
"""Characters of a text that a script makes before it is given up."""


@dataclass(frozen=True)
class Doubt:
    """Whether a command succeeds, where that is not known.

    Attributes:
        text: of the condition.
        line: of the script.
        names: what would settle it.
        unset: whether it holds in a fresh shell, where nobody has set the variables; None where that is an error or
            hangs on more than variables.
        absent: it asks whether a variable is there at all, so that a variable that is not there is an answer.
        values: values of names in the case that it holds.
        options: values of names that it asks for.
        status: it is about the end of a command, which as a rule succeeds.
    """

    text: str
    line: int
    names: frozenset[str] = frozenset()
    unset: bool | None = None
    absent: bool = False
    values: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    status: bool = False
    negated: bool = False

    @property
    def said(self) -> str:
        """The condition in words."""
        return f"! {self.text}" if self.negated else self.text

    def flipped(self) -> Doubt:
        """Whether it fails."""
        return replace(self, unset=None if self.unset is None else not self.unset, negated=not self.negated)


Status = bool | Doubt
"""Whether a command succeeds."""


@dataclass(frozen=True)
class Branch:
    """A branch of a script that hangs on what is not known.

    Attributes:
        text: of the condition.
        line: of the script.
        names: what would settle it.
        arms: each arm in words.
        values: those that the script compares a name with, by name.
        usual: the arm of a fresh shell, where that may be assumed; None where it may not.
        fresh: the arm of a fresh shell, whether it may be assumed or not.
        other: the arm of all values but one, where it compares a name with that one.
    """

    text: str
    line: int
    names: frozenset[str]
    arms: tuple[str, ...]
    values: tuple[tuple[str, str], ...] = ()
    usual: int | None = None
    fresh: int | None = None
    other: int | None = None


@dataclass(frozen=True)
class Started:
    """A command line that starts a training, as the shell met it; unknown parts are marked."""

    words: tuple[str, ...]
    line: int
    environment: tuple[tuple[str, str], ...]
    written: tuple[tuple[str, str], ...]
    outer: tuple[tuple[str, ...], ...] = ()


@dataclass
class State:
    """All that a command can change."""

    variables: dict[str, str | Array] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    associative: set[str] = field(default_factory=set)
    functions: dict[str, Node] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    given: dict[str, str] = field(default_factory=dict)
    decided: dict[tuple[str, int], int] = field(default_factory=dict)
    launches: list[Started] = field(default_factory=list)
    complete: bool = False
    shifted: int = 0
    status: Status = True

    def copied(self) -> State:
        """One of its own."""
        made = copy.copy(self)
        for name in ("exported", "associative", "functions", "files", "arguments", "given", "decided", "launches"):
            setattr(made, name, getattr(self, name).copy())
        made.variables = {
            name: dict(value) if isinstance(value, dict) else value for name, value in self.variables.items()
        }
        return made

    def same(self, other: State) -> bool:
        """Whether all but the last command's end is equal."""
        return replace(self, status=True) == replace(other, status=True)


class Exit(Exception):
    """The script ends."""


class Return(Exception):
    """A function ends."""


class Leave(Exception):
    """A loop ends, or goes on with its next turn."""

    def __init__(self, loops: int, *, again: bool) -> None:
        super().__init__()
        self.loops, self.again = loops, again


class Undecided(Exception):
    """What was only tried meets a branch of which somebody must say which arm is meant."""


LEAVING: Final = (Exit, Return, Leave, Undecided)
"""How a statement can end but by its last command."""


@dataclass
class Shell:
    """A shell that reads.

    Attributes:
        state: what commands change.
        files: those that the user gave, by name.
        environment: variables that the user gave.
        run: runs a statement.
        piped: runs statements of which each reads what the one before prints.
        dispatch: runs a command by its words, with variables that are set for it.
        parameter: what a parameter becomes, as parts of a word.
        decide: the arm of a branch that is not known.
        line: of the command that is read.
        output: what commands print, where somebody listens.
        met: branches that were not known.
    """

    state: State
    files: dict[str, str]
    environment: dict[str, str]
    unknowns: Unknowns
    run: Callable[[Shell, Node], Status]
    piped: Callable[[Shell, Sequence[Node]], Status]
    dispatch: Callable[[Shell, Sequence[str], dict[str, str]], Status]
    parameter: Callable[[Shell, Node, bool], Sequence[Any]]
    decide: Callable[[Branch, tuple[int, ...]], int]
    starts: Callable[[tuple[str, ...]], bool]
    name: str = "script.sh"
    line: int = 1
    supposing: bool = False
    output: list[str] | None = None
    input: list[str] | None = None
    effort: int = 0
    depth: int = 0
    trying: int = 0
    doubts: int = 0
    outer: tuple[tuple[str, ...], ...] = ()
    unread: list[str] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)
    met: list[Branch] = field(default_factory=list)
    locals: list[dict[str, str | Array | None]] = field(default_factory=list)

    @contextmanager
    def having(self, **values: Any) -> Iterator[None]:
        """With some fields set otherwise for a while."""
        before = {name: getattr(self, name) for name in values}
        for name, value in values.items():
            setattr(self, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    @contextmanager
    def given_arguments(self, arguments: list[str]) -> Iterator[None]:
        """With arguments of a function or of a file that is taken in, all of which are known."""
        state = self.state
        before = (state.arguments, state.complete, state.shifted)
        state.arguments, state.complete, state.shifted = arguments, True, 0
        try:
            yield
        finally:
            self.state.arguments, self.state.complete, self.state.shifted = before

    def spend(self) -> None:
        """Count one step."""
        self.effort += 1
        if self.effort > EFFORT:
            raise BadRequest(f"line {self.line}: the script takes more than {EFFORT:,} steps to read; does it end?")

    def affordable(self, size: int) -> None:
        """Whether a text or a list is small enough to be kept."""
        if size > LONGEST:
            raise BadRequest(f"line {self.line}: the script makes a text of more than {LONGEST:,} characters")

    def file(self, name: str) -> str | None:
        """A file that the script wrote or the user gave, by its name as it stands there."""
        return self.state.files.get(name, self.files.get(name))

    def want(self, text: str) -> None:
        """Note a file that is not given."""
        if text not in self.wanted:
            self.wanted.append(text)

    def write(self, text: str) -> None:
        """Print."""
        self.affordable(len(text))
        if self.output is not None:
            self.output.append(text)

    def unknown(self, text: str, *names: str, fresh: bool = False) -> str:
        """A value that is not known."""
        return self.unknowns.mark(text, self.line, names, fresh=fresh)

    def derived(self, source: str, *values: str) -> str:
        """A value that follows from others of which a part is unknown."""
        return self.unknowns.derived(as_written(" ".join(source.split())), self.line, *values)
