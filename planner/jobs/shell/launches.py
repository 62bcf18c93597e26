"""Which commands start a training, and which run another command: where that one begins."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from planner.jobs.data import data
from planner.jobs.shell.state import is_known


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


_ANY: Final = frozenset({""})


_PROGRAMS: Final = {name: frozenset(under.split(" ")) for name, under in data("shell/words")["programs"].items()}
"""Programs that start a training, with the words of theirs that do; any word where it is empty."""
_PYTHON: Final = re.compile(r"(?:pypy|python|ipython)[\d.]*")
_LAUNCHERS: Final = ("torch.distributed", "accelerate.commands", "paddle.distributed", "deepspeed")
"""Modules of Python that start processes of a training."""
_OTHER: Final = re.compile(rf"(?i)(^|[/._-])({'|'.join(data('shell/words')['other_programs'].split())})")
"""Programs of Python that do something else: data, checkpoints, inference."""
_TRAINING: Final = re.compile(r"(?i)(run_)?(pre_?)?train|fine_?tune|sft|dpo|grpo")
"""Names of programs that train, whatever else is in them."""
_FILES: Final = (".yaml", ".yml", ".json", ".toml", ".py")


def starts_training(words: Sequence[str]) -> bool:
    """Whether a command line starts a training, by its program and its words."""
    name, rest = PurePath(words[0]).name, list(words[1:])
    if name in _PROGRAMS:
        under = _PROGRAMS[name]
        return bool(rest) if under == _ANY else not under.isdisjoint(rest[:2])
    return _python(rest) if _PYTHON.fullmatch(name) else _trains(words[0], rest)


def _python(rest: list[str]) -> bool:
    """Whether Python is given a program that trains, as a file or as a module."""
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        option = rest.pop(0)
        if option in {"-c", "-V", "--version"}:
            return False
        if option in {"-X", "-W"} and rest:
            rest.pop(0)
    if rest[:1] == ["-m"]:
        return len(rest) > 1 and _module(rest[1], rest[2:])
    return bool(rest) and _trains(rest[0], rest[1:])


def _module(name: str, rest: list[str]) -> bool:
    if name.startswith(_LAUNCHERS):
        return name.rpartition(".")[2] in {"launch", "run", "deepspeed", "launcher"}
    if name in _PROGRAMS:
        return starts_training([name, *rest])
    first, _, last = name.partition(".")
    return bool(rest) and not (_OTHER.search(first) or _OTHER.search(last.rpartition(".")[2]))


def _trains(path: str, rest: list[str]) -> bool:
    """Whether a program of Python has options, and is not one for something else."""
    name = PurePath(path).name
    if not name.endswith(".py") or (_OTHER.search(name) and not _TRAINING.match(name)):
        return False
    return "train" in name or any(one.startswith("-") or "=" in one or one.endswith(_FILES) for one in rest)
