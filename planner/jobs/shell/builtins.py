"""Builtins of the shell: what changes the shell itself."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final

from planner.jobs.shell.conditions import doubt, judged, test_words
from planner.jobs.shell.launches import run_text, script_text
from planner.jobs.shell.programs import PROGRAMS
from planner.jobs.shell.state import Doubt, Exit, Leave, Return, Shell, Status, is_known
from planner.jobs.shell.variables import assign, number_of, unset, value_of


def _test(shell: Shell, words: list[str]) -> Status:
    inner = words[1:-1] if words[0] == "[" else words[1:]
    return judged(shell, lambda: test_words(shell, inner))


def _cd(shell: Shell, words: list[str]) -> Status:
    names = [one for one in words[1:] if one in {"-", ""} or not one.startswith("-")]
    here = value_of(shell, "PWD") or "."
    there = (value_of(shell, "OLDPWD") or ".") if names == ["-"] else (names or ["~"])[0]
    absolute = there.startswith(("/", "~")) or not is_known(there[:1])
    assign(shell, "OLDPWD", here)
    shell.state.variables["PWD"] = posixpath.normpath(there if absolute else posixpath.join(here, there))
    return True


def _set(shell: Shell, words: list[str]) -> Status:
    for place, word in enumerate(words[1:], 1):
        if word == "--" or not word.startswith(("-", "+")):
            if place > 1 and re.fullmatch(r"[-+][a-z]*o[a-z]*", words[place - 1]):
                continue
            state = shell.state
            state.arguments, state.complete, state.shifted = words[place + (word == "--") :], True, 0
            break
    return True


def _shift(shell: Shell, words: list[str]) -> Status:
    count = _count(words)
    enough = count <= len(shell.state.arguments) or not shell.state.complete
    if enough:
        del shell.state.arguments[:count]
        shell.state.shifted += count
    return enough


def _exit(shell: Shell, words: list[str]) -> Status:
    shell.state.status = words[1:2] in ([], ["0"])
    raise Exit


def _count(words: list[str]) -> int:
    """The number that a command is given, 1 where it is given none."""
    return int(words[1]) if len(words) > 1 and words[1].isdecimal() else 1


def _return(shell: Shell, words: list[str]) -> Status:
    if len(words) > 1:
        shell.state.status = words[1] == "0" if is_known(words[1]) else doubt(shell, f"return {words[1]}", words[1])
    raise Return


def _leave(shell: Shell, words: list[str]) -> Status:
    raise Leave(_count(words), again=words[0] == "continue")


def _eval(shell: Shell, words: list[str]) -> Status:
    text = " ".join(words[1:])
    if not is_known(text):  # what a command prints may set what its own text names
        for name in re.findall(r"\b([A-Za-z_]\w*)=", shell.unknowns.shown(text)):
            if value_of(shell, name) is not None:
                assign(shell, name, shell.unknown(f"${{{name}}}", name))
    return run_text(shell, text)


def _source(shell: Shell, words: list[str]) -> Status:
    name = words[1] if len(words) > 1 else ""
    text = script_text(shell, name)
    if text is None:
        shell.want(f"line {shell.line} sources {shell.unknowns.shown(name)}, which is not known")
        return True
    try:
        with shell.given_arguments(words[2:]) if len(words) > 2 else nullcontext():
            return run_text(shell, text)
    except Return:
        return shell.state.status


def _let(shell: Shell, words: list[str]) -> Status:
    numbers = [number_of(shell, one) for one in words[1:]]
    last = numbers[-1] if numbers else 0
    return doubt(shell, words[-1], words[-1]) if last is None else last != 0


def _read(shell: Shell, words: list[str]) -> Status:
    options, names = _options(words[1:], "adnNptu")
    if not names and "a" not in options:
        names = ["REPLY"]
    if shell.input is None:
        return _read_unknown(shell, names or [options["a"]], "read from the terminal")
    if not shell.input:
        for name in names:
            assign(shell, name, "")
        return False
    line = "".join(shell.input) if options.get("d") == "" else shell.input[0].rstrip("\n")
    shell.input = [] if options.get("d") == "" else shell.input[1:]
    if not is_known(line):
        return _read_unknown(shell, names or [options["a"]], f"read from {shell.unknowns.shown(line)}")
    separators = str(shell.state.variables.get("IFS", " \t\n"))
    cells = _cells(line, separators)
    if "a" in options:
        shell.state.variables[options["a"]] = dict(enumerate(cells))
        return True
    if len(names) == 1:
        assign(shell, names[0], line.strip() if " " in separators else line)
        return True
    for place, name in enumerate(names):
        last = place == len(names) - 1
        assign(shell, name, " ".join(cells[place:]) if last else "".join(cells[place : place + 1]))
    return True


def _cells(line: str, separators: str) -> list[str]:
    if not separators.strip():
        return line.split() if separators else [line]
    cells = re.split(f"[{re.escape(separators)}]", line.rstrip("\n"))
    return cells[:-1] if not cells[-1] else cells


def _read_unknown(shell: Shell, names: list[str], text: str) -> Status:
    for name in names:
        assign(shell, name, shell.unknown(f"${{{name}}}", name))
    return Doubt(text, shell.line, frozenset(names))


def _options(words: list[str], valued: str) -> tuple[dict[str, str], list[str]]:
    """Options of one letter, and what follows them."""
    found: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        word = rest.pop(0)
        for place, letter in enumerate(word[1:], 1):
            found[letter] = ""
            if letter in valued:
                found[letter] = word[place + 1 :] or (rest.pop(0) if rest else "")
                break
    return found, rest


def _lines(shell: Shell, words: list[str]) -> Status:
    options, names = _options(words[1:], "dnOsuCc")
    text = "".join(shell.input or ())
    name = (names or ["MAPFILE"])[0]
    if shell.input is None or not is_known(text):
        shell.state.variables[name] = {0: shell.unknown(f"${{{name}[@]}}", name)}
        return True
    shell.state.variables[name] = dict(enumerate(text.splitlines(keepends="t" not in options)))
    return True


def _exec(shell: Shell, words: list[str]) -> Status:
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] == "-a" else rest[1:]
    if not rest:
        return True
    shell.state.status = shell.dispatch(shell, rest, {})
    raise Exit


def _command(shell: Shell, words: list[str]) -> Status:
    if len(words) > 1 and words[1] in {"-v", "-V"}:
        known = words[2:3] and (words[2] in BUILTINS or words[2] in shell.state.functions)
        return True if known else Doubt(" ".join(words), shell.line)
    return shell.dispatch(shell, words[1:], {}) if len(words) > 1 else True


def _printf_into(shell: Shell, words: list[str]) -> Status:
    into = words[2] if words[1:2] == ["-v"] and len(words) > 2 else ""
    rest = words[3:] if into else words[1:]
    printed = PROGRAMS["printf"](shell, list(rest))
    text = printed if isinstance(printed, str) else shell.derived(f"$(printf {' '.join(rest)})", *rest)
    if into:
        assign(shell, into, text)
    else:
        shell.write(text)
    return True


def _getopts(shell: Shell, words: list[str]) -> Status:
    letters, name, arguments = words[1], words[2], words[3:] or shell.state.arguments
    place = int(value_of(shell, "OPTIND") or 1)
    word = arguments[place - 1] if place <= len(arguments) else ""
    if not re.fullmatch(r"-[^-].*", word):
        assign(shell, name, "?")
        return False
    letter, value = word[1], word[2:]
    known = letter in letters.replace(":", "")
    assign(shell, name, letter if known else "?")
    place += 1
    if f"{letter}:" in letters:
        if not value and place <= len(arguments):
            value = arguments[place - 1]
            place += 1
        assign(shell, "OPTARG", value)
    assign(shell, "OPTIND", str(place))
    return True


def _getopt(shell: Shell, words: list[str]) -> Status:
    given = words[words.index("--") + 1 :] if "--" in words else []
    shell.write(shell.derived(" ".join(words), *words) if given else " --\n")
    return True


def _unset(shell: Shell, words: list[str]) -> Status:
    for one in words[1:]:
        unset(shell, one)
    return True


def _assigned(shell: Shell, words: list[str]) -> Status:
    for one in words[1:]:
        name, equals, value = one.partition("=")
        if equals and name.isidentifier():
            assign(shell, name, value)
        if words[0] == "export":
            shell.state.exported.add(name)
    return True


BUILTINS: Final[dict[str, Callable[[Shell, list[str]], Status]]] = {
    "[": _test, "test": _test, **dict.fromkeys((":", "true"), lambda shell, words: True),
    "false": lambda shell, words: False, "cd": _cd, "pushd": _cd, "popd": lambda shell, words: _cd(shell, ["cd", "-"]),
    "set": _set, "shift": _shift, "exit": _exit, "return": _return, "break": _leave, "continue": _leave,
    "eval": _eval, "source": _source, ".": _source, "let": _let, "read": _read, "mapfile": _lines,
    "readarray": _lines, "exec": _exec, "command": _command, "builtin": _command, "printf": _printf_into,
    "getopts": _getopts, "getopt": _getopt, "unset": _unset, "local": _assigned, "export": _assigned,
    "declare": _assigned, "readonly": _assigned, "typeset": _assigned,
    **dict.fromkeys(("trap", "wait", "ulimit", "umask", "shopt", "alias", "disown", "hash"), lambda shell, words: True),
}  # fmt: skip
