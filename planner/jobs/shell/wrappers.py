"""Commands that run another command: what they are given, and where the other one begins."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from planner.jobs.data import data
from planner.jobs.shell.values import is_known


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How a command that runs another one takes its words.

    Attributes:
        flags: options without a value; all others have one in the same word or the next.
        valued: options with a value, where all others have none.
        pairs: options with two values.
        words: of its own in front of the other command, such as an image.
        under: what must come first, such as "run".
        environment: options whose value sets a variable.
    """

    flags: frozenset[str] | None = None
    valued: frozenset[str] = frozenset()
    pairs: frozenset[str] = frozenset()
    words: int = 0
    under: tuple[str, ...] = ()
    environment: frozenset[str] = frozenset()


def _wrapper(row: Mapping[str, Any], under: str) -> Wrapper:
    named = {one: frozenset(row[one].split()) for one in ("flags", "valued", "pairs", "environment") if one in row}
    return Wrapper(**named, words=row.get("words", 0), under=tuple(under.split()))


WRAPPERS: Final = {
    program: tuple(_wrapper(row, under) for under in row.get("under", "").split("|"))
    for row in data("shell/words")["wrappers"]
    for program in row["programs"].split()
}
"""Commands that run another one, each in the forms that do."""
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_ASSIGNING: Final = frozenset({"env", "sudo"})


def unwrapped(words: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]] | None:
    """The command inside another one and the variables that are set for it; None where there is none."""
    for wrapper in WRAPPERS.get(PurePath(words[0]).name, ()):
        under = len(wrapper.under)
        if tuple(words[1 : 1 + under]) == wrapper.under:
            return _inside(wrapper, list(words[1 + under :]), assigning=PurePath(words[0]).name in _ASSIGNING)
    return None


def _inside(wrapper: Wrapper, rest: list[str], *, assigning: bool) -> tuple[tuple[str, ...], dict[str, str]]:
    """What follows a wrapper's options, assignments and own words, and the variables that these set."""
    environment: dict[str, str] = {}
    while rest and rest[0] != "--":
        word = rest[0]
        if word.startswith("-") and len(word) > 1:
            name, equals, value = word.partition("=")
            if name in wrapper.environment:
                _note(environment, value if equals else "".join(rest[1:2]))
            rest = rest[1 + _values(wrapper, word) :]
        elif len(word) == 1 and not is_known(word):
            rest.pop(0)  # options that are not known
        elif assigning and _ASSIGNMENT.fullmatch(word):
            _note(environment, rest.pop(0))
        else:
            break
    rest = rest[(rest[:1] == ["--"]) + wrapper.words :]
    return tuple(rest[int(bool(wrapper.words) and rest[:1] == ["--"]) :]), environment


def _values(wrapper: Wrapper, word: str) -> int:
    """Words that an option has for values."""
    if "=" in word:
        return 0
    if word in wrapper.pairs:
        return 2
    if wrapper.flags is not None:
        attached = re.fullmatch(r"-[A-Za-z][\d.]+\w*", word) is not None
        return 0 if word in wrapper.flags or attached else 1
    return 1 if word in wrapper.valued else 0


def _note(environment: dict[str, str], text: str) -> None:
    name, equals, value = text.partition("=")
    if equals and name.isidentifier():
        environment[name] = value
