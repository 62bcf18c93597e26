"""Variables of a shell: what they hold, and what assigning changes."""

from __future__ import annotations

from typing import Final

from planner.jobs.shell.state import Array, Shell
from planner.jobs.shell.values import is_known

_ALWAYS: Final = {"HOME": "~", "PWD": ".", "OLDPWD": ".", "IFS": " \t\n", "OPTIND": "1", "UID": "1000", "EUID": "1000"}
"""What every shell has; paths stay as short as they can be said."""
_CHANGING: Final = frozenset({
    "RANDOM", "SECONDS", "HOSTNAME", "PPID", "BASHPID", "USER", "LOGNAME", "LINENO", "EPOCHSECONDS", "PATH", "SHELL",
})  # fmt: skip
"""What every shell has, and nobody knows beforehand."""


def is_set(shell: Shell, name: str) -> bool:
    """Whether somebody has set a variable."""
    return value_of(shell, name) is not None


def value_of(shell: Shell, name: str, key: int | str | None = None) -> str | None:
    """What a variable holds, or an element of one; None where it is not set."""
    state = shell.state
    if name in state.variables:
        held = state.variables[name]
        if not isinstance(held, dict):
            return held if key in {None, 0, -1} else None
        if isinstance(key, int) and key < 0 and held:
            key += max(held) + 1
        return held.get(0 if key is None else key)
    if key not in {None, 0}:
        return None
    if name in state.given or name in shell.environment:
        return state.given.get(name, shell.environment.get(name))
    if name in _CHANGING:
        return shell.unknown(f"${name}")
    return shell.name if name == "BASH_SOURCE" else _ALWAYS.get(name)


def elements(shell: Shell, name: str) -> Array:
    """The elements of a variable, of one that is no list the one that it holds."""
    held = shell.state.variables.get(name, value_of(shell, name))
    if isinstance(held, dict):
        return held if name in shell.state.associative else dict(sorted(held.items()))
    return {} if held is None else {0: held}


def assign(
    shell: Shell, name: str, value: str | Array, *, index: int | str | None = None, append: bool = False
) -> None:
    """Set a variable or an element of one; what the script cannot know of it is what the user gave under its name."""
    variables = shell.state.variables
    if isinstance(value, dict):
        whole = variables[name] = _appended(elements(shell, name), value) if append else value
        shell.affordable(sum(len(one) + 1 for one in whole.values()))
        return
    old = value_of(shell, name, index) or "" if append else ""
    settled = _settled(shell, name, old + value) if index is None else old + value
    shell.affordable(len(settled))
    held = variables.get(name)
    if index is None and not isinstance(held, dict):
        variables[name] = settled
        return
    if not isinstance(held, dict):
        held = variables[name] = {} if held is None else {0: held}
    place = 0 if index is None else index
    if isinstance(place, int) and place < 0 and held:
        place += max(held) + 1
    held[place] = settled


def _appended(old: Array, new: Array) -> Array:
    if any(isinstance(key, str) for key in (*old, *new)):
        return old | new
    start = max(old, default=-1) + 1
    return old | {start + place: value for place, value in enumerate(new.values())}


def _settled(shell: Shell, name: str, value: str) -> str:
    """A value, where its unknown parts are called by the variable: that is how a user can give them."""
    if is_known(value):
        return value
    if name in shell.environment:
        return shell.environment[name]
    for mark in set(value):
        for one in shell.unknowns.of(mark):
            if not one.names:
                text = f"${{{name}}}" if value == mark else one.text
                value = value.replace(mark, shell.unknowns.mark(text, one.line, (name,)))
    return value


def unset(shell: Shell, name: str) -> None:
    """Forget a variable or an element, or a function of that name."""
    plain, _, index = name.partition("[")
    held = shell.state.variables.get(plain)
    if index and isinstance(held, dict):
        key = index.removesuffix("]")
        held.pop(key if plain in shell.state.associative or not key.isdecimal() else int(key), None)
        return
    shell.state.variables.pop(name, None)
    shell.state.functions.pop(name, None)
    shell.state.exported.discard(name)


def exported(shell: Shell) -> dict[str, str]:
    """Variables that commands see, by name."""
    given = {**shell.environment, **shell.state.given}
    found = {name: value for name, value in given.items() if name.isidentifier() and name not in shell.state.variables}
    for name in sorted(shell.state.exported | set(given)):
        held = shell.state.variables.get(name)
        if isinstance(held, str):
            found[name] = held
    return found
