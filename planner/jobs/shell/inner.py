"""Scripts inside a script: ``bash -c``, other files, another host's shell, what is read from a here-document."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

from planner.jobs.data import data
from planner.jobs.shell.parsing import not_understood, parsed
from planner.jobs.shell.processes import directives, slurm_variables
from planner.jobs.shell.state import Doubt, Exit, Shell, State, Status, is_known
from planner.jobs.shell.variables import exported

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
        return _terminal(shell, words)
    if name in _REMOTE:
        return _remote(shell, words, _REMOTE[name])
    if is_known(words[0]) and (_SCRIPT.fullmatch(words[0]) or (shell.outer and script_text(shell, words[0]))):
        return _file(shell, words)
    return None


def _terminal(shell: Shell, words: tuple[str, ...]) -> Status:
    """What tmux types into a window, or starts one with."""
    typed = [word for word in words[2:] if " " in word] if words[1:2] in _TYPING else []
    for text in typed:
        _apart(shell, text, ())
    return True


_TYPING: Final = tuple((one,) for one in ("send-keys", "send", "new-session", "new", "new-window", "split-window"))


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
