"""Which commands start a training, and which run another command or a script: that one is looked into."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from planner.jobs.shell.parsing import not_understood, parsed
from planner.jobs.shell.processes import directives, slurm_variables
from planner.jobs.shell.state import Doubt, Exit, Shell, State, Status, is_known
from planner.jobs.shell.variables import exported
from planner.jobs.values import data


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
_TRAINING: Final = re.compile(
    r"(?i)((run_)?(pre_?)?train|fine_?tune|sft|dpo|grpo)|.+(train|tune|sft|[a-z]po)(_\w+)?\.py$"
)
"""Names of programs that train: they begin so, whatever else is in them, or have it behind other words."""
_FILES: Final = (".yaml", ".yml", ".json", ".toml", ".py")


def starts_training(words: Sequence[str]) -> bool:
    """Whether a command line starts a training, by its program and its words."""
    name, rest = PurePath(words[0]).name, list(words[1:])
    if name in _PROGRAMS:
        under = _PROGRAMS[name]
        started = bool(rest) if under == _ANY else not under.isdisjoint(rest[:2])
        return started and not _is_other(rest)
    return _python(rest) if _PYTHON.fullmatch(name) else _trains(words[0], rest)


def _is_other(words: Sequence[str]) -> bool:
    """Whether the first program of Python among some words does something other than training, by its name."""
    name = next((PurePath(word).name for word in words if word.endswith(".py")), "")
    found, trains = _OTHER.search(name), _TRAINING.match(name)
    return found is not None and not (trains and (trains[1] or found.start()))


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
        return name.rpartition(".")[2] in {"launch", "run", "deepspeed", "launcher"} and not _is_other(rest)
    if name in _PROGRAMS:
        return starts_training([name, *rest])
    first, _, last = name.partition(".")
    return bool(rest) and not (_OTHER.search(first) or _OTHER.search(last.rpartition(".")[2]))


def _trains(path: str, rest: list[str]) -> bool:
    """Whether a program of Python has options, and is not one for something else."""
    name = PurePath(path).name
    if not name.endswith(".py") or _is_other([path]):
        return False
    return "train" in name or any(one.startswith("-") or "=" in one or one.endswith(_FILES) for one in rest)


_SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
_SCRIPT: Final = re.compile(r".*\.(sh|bash|slurm|sbatch|zsh)")
_REMOTE: Final[Mapping[str, str]] = data("shell/words")["remote"]
"""Programs that run a command line on other hosts, with the options of theirs that have a value."""


def run_text(shell: Shell, text: str) -> Status:
    """Run the commands of a text in the shell itself."""
    if not_understood(parsed(text)):
        shell.unread.append(f"line {shell.line}: {shell.unknowns.shown(text)[:60]!r} is not understood")
    with shell.having(depth=shell.depth + 1):
        return shell.run(shell, parsed(text))


def script_text(shell: Shell, name: str) -> str | None:
    """A script that this one wrote or that the user gave, by its path or its last part."""
    plain = posixpath.normpath(name)
    for path, text in shell.state.files.items():
        if posixpath.normpath(path) == plain or PurePath(path).name == name.removeprefix("./"):
            return text
    return next((text for path, text in shell.files.items() if PurePath(path).name == PurePath(name).name), None)


def inner_script(shell: Shell, words: tuple[str, ...]) -> Status | None:
    """Run the script that a command runs; None where it runs none."""
    name = PurePath(words[0]).name
    if name in _SHELLS:
        return _shell(shell, words)
    if name == "sbatch" and (batch := _batch(shell, words)) is not None:
        return batch
    if name == "tmux":
        for text in (word for word in words[2:] if " " in word and words[1] in _TYPING):
            _apart(shell, text, ())
        return True
    if name in _REMOTE:
        return _remote(shell, words, _REMOTE[name])
    if is_known(words[0]) and (_SCRIPT.fullmatch(words[0]) or (shell.outer and script_text(shell, words[0]))):
        return _file(shell, words)
    return None


_TYPING: Final = frozenset({"send-keys", "send", "new-session", "new", "new-window", "split-window"})
"""Words of tmux that type into a window, or start one with a command."""


def _batch(shell: Shell, words: tuple[str, ...]) -> Status | None:
    """A batch script that Slurm reads from its input or has as a word; None where it is a file."""
    wrapped = next((one.partition("=")[2] for one in words if one.startswith("--wrap=")), "")
    if "--wrap" in words[:-1]:
        wrapped = words[words.index("--wrap") + 1]
    text = wrapped or "".join(shell.input or ())
    if not text:
        return None
    batch = directives(text)
    with shell.having(outer=(*shell.outer, ("sbatch", *batch, *words[1:]))):
        return _apart(shell, text, (), slurm_variables((*batch, *words[1:])))


def _shell(shell: Shell, words: tuple[str, ...]) -> Status | None:
    rest = list(words[1:])
    while rest and rest[0].startswith(("-", "+")):
        option = rest.pop(0)
        if re.fullmatch(r"-[a-z]*c[a-z]*", option):
            while rest and rest[0].startswith("-"):
                rest.pop(0)
            return _apart(shell, rest[0], rest[2:]) if rest else True
        if option in {"-o", "--rcfile", "--init-file"} and rest:
            rest.pop(0)
        if option == "-s":
            break
    if rest:
        return _file(shell, tuple(rest))
    text = "".join(shell.input or ())
    return _apart(shell, text, ()) if text else None


def _file(shell: Shell, words: tuple[str, ...]) -> Status:
    text = script_text(shell, words[0])
    if text is None:
        shell.want(f"line {shell.line} runs {shell.unknowns.shown(words[0])}, which is not known")
        return Doubt(shell.unknowns.shown(" ".join(words)), shell.line, unset=True, status=True)
    batch = directives(text)
    around = (("sbatch", *batch),) if batch else ()
    with shell.having(name=words[0], outer=(*shell.outer, *around)):
        return _apart(shell, text, words[1:], slurm_variables(batch))


def _apart(shell: Shell, text: str, arguments: Sequence[str], more: dict[str, str] | None = None) -> Status:
    """Run a text in a shell of its own, which has what is exported."""
    outer = shell.state
    seen = exported(shell)
    shell.state = State(
        variables=dict(seen), exported=set(seen), files=dict(outer.files), arguments=list(arguments),
        given={**outer.given, **(more or {})}, decided=outer.decided, launches=outer.launches, complete=True,
    )  # fmt: skip
    try:
        run_text(shell, text)
    except Exit:
        pass
    finally:
        outer.launches, outer.files = shell.state.launches, shell.state.files
        status, shell.state = shell.state.status, outer
    return status


def _remote(shell: Shell, words: tuple[str, ...], valued: str) -> Status | None:
    """The command line that another host runs; its shell has none of this one's variables."""
    rest = list(words[1:])
    hosts = [] if words[0].endswith("ssh") and valued.startswith("b") else [""]
    while rest:
        word = rest[0]
        if word.startswith("-"):
            rest = rest[2:] if len(word) == 2 and word[1] in valued else rest[1:]
        elif not hosts:
            hosts.append(rest.pop(0))
        else:
            break
    if not rest:
        return True
    before = shell.state.exported
    shell.state.exported = set()
    try:
        return _apart(shell, " ".join(rest), ())
    finally:
        shell.state.exported = before
