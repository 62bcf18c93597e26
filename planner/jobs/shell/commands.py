"""Commands of a script: assignments, redirections, builtins, functions, what starts a training, and everything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from planner.jobs.shell.builtins import BUILTINS
from planner.jobs.shell.launches import inner_script, unwrapped
from planner.jobs.shell.parameters import key_of
from planner.jobs.shell.parsing import Node
from planner.jobs.shell.programs import PROGRAMS
from planner.jobs.shell.state import Array, Doubt, Return, Shell, Started, Status, is_known
from planner.jobs.shell.variables import assign, exported
from planner.jobs.shell.words import HERE, PLAIN, fields, joined, ranged, source, start_of, text_of, touching
from planner.jobs.values import data, words


@dataclass
class _Streams:
    """Where a command reads and writes.

    Attributes:
        given: what it reads; None where nothing was said.
        target: the file that it prints into, "" where it is none.
        append: what it prints is added.
        dropped: what it prints goes nowhere.
        after: commands that the line of a here-document goes on with.
    """

    given: str | None = None
    target: str = ""
    append: bool = False
    dropped: bool = False
    after: list[Node] = field(default_factory=list)


def redirected(shell: Shell, node: Node) -> Status:
    """A statement with its redirections."""
    body = node.child_by_field_name("body")
    streams = _Streams()
    for one in node.children_by_field_name("redirect"):
        _read(shell, one, streams)
    stages = [body, *streams.after] if body else streams.after
    if not stages:
        return True
    outer, given = shell.output, shell.input
    if streams.given is not None:
        shell.input = streams.given.splitlines(keepends=True)
    if streams.target or streams.dropped:
        shell.output = []
    try:
        status = shell.piped(shell, stages) if streams.after else shell.run(shell, stages[0])
    finally:
        printed, shell.output, shell.input = shell.output, outer, given
    if streams.target:
        whole = (shell.file(streams.target) or "" if streams.append else "") + "".join(printed or ())
        shell.affordable(len(whole))
        shell.state.files[streams.target] = whole
    return status


def _read(shell: Shell, node: Node, streams: _Streams) -> None:
    if node.type == "heredoc_redirect":
        streams.given = _here_document(shell, node)
        for one in node.named_children:
            if one.type == "file_redirect":
                _file(shell, one, streams)
            elif one.type == "pipeline":
                streams.after += one.named_children
            elif one.type == "herestring_redirect":
                _read(shell, one, streams)
    elif node.type == "herestring_redirect":
        streams.given = joined(shell, node.named_children[-1]) + "\n"
    elif node.type == "file_redirect":
        _file(shell, node, streams)


def _here_document(shell: Shell, node: Node) -> str:
    start = next((one for one in node.children if one.type == "heredoc_start"), None)
    body = next((one for one in node.children if one.type == "heredoc_body"), None)
    if start is None or body is None:
        return ""
    word = source(start)
    text = source(body)
    if not set(word) & set("'\"\\"):
        text = text_of(ranged(shell, body, body.start_byte, body.end_byte, HERE))
    if node.children[0].type == "<<-":
        text = "".join(line.lstrip("\t") for line in text.splitlines(keepends=True))
    return text


def _file(shell: Shell, node: Node, streams: _Streams) -> None:
    descriptor = node.child_by_field_name("descriptor")
    targets: Sequence[Node] = node.children_by_field_name("destination")
    sign = next(one.type for one in node.children if not one.is_named)
    if not targets or sign in {">&", "<&", "<&-", ">&-"} or targets[0].type == "process_substitution":
        return
    name = joined(shell, targets[0])
    if sign == "<":
        text = shell.file(name)
        streams.given = shell.derived(f"$(<{name})", name) if text is None else text
    elif descriptor is None or source(descriptor) == "1":
        streams.target, streams.dropped = ("", True) if name.startswith("/dev/") else (name, False)
        streams.append = sign.endswith(">>")


QUESTIONS: Final = frozenset(words(data("shell/words")["questions"]))
"""Programs that are run for how they end."""


def command(shell: Shell, node: Node) -> Status:
    """A simple command: assignments, words, redirections of here-strings."""
    name = node.child_by_field_name("name")
    before = [one for one in node.children if one.type == "variable_assignment"]
    if name is None:
        set_variables(shell, before)
        return True
    own = [one for at, one in enumerate(node.children) if node.field_name_for_child(at) in {"name", "argument"}]
    words = [word for one in touching(own) for word in fields(shell, *one)]
    for_it = {source(one.named_children[0]): _value(shell, one) for one in before}
    if before and not source(node, before[-1].end_byte, start_of(name)).strip("\\\n") and len(words) > 0:
        for_it[source(before[-1].named_children[0])] += words.pop(0)  # the grammar cuts some values in two
    if not words:
        for variable, value in for_it.items():
            assign(shell, variable, value)
        return True
    given = [one for one in node.children if one.type == "herestring_redirect"]
    if not given:
        return dispatched(shell, words, for_it)
    with shell.having(input=[joined(shell, given[-1].named_children[-1]) + "\n"]):
        return dispatched(shell, words, for_it)


def dispatched(shell: Shell, words: Sequence[str], for_it: dict[str, str]) -> Status:
    """Run a command by its words, with the variables that are set for it alone."""
    shell.spend()
    saved = {one: (shell.state.variables.get(one), one in shell.state.exported) for one in for_it}
    for variable, text in for_it.items():
        assign(shell, variable, text)
        shell.state.exported.add(variable)
    try:
        if words[0] in shell.state.functions:
            return _called(shell, words)
        builtin = BUILTINS.get(words[0])
        return builtin(shell, list(words)) if builtin else _program(shell, tuple(words))
    finally:
        for variable, (value, was_exported) in saved.items():
            _restore(shell, variable, value, was_exported=was_exported)


def _restore(shell: Shell, name: str, value: str | Array | None, *, was_exported: bool = False) -> None:
    if value is None:
        shell.state.variables.pop(name, None)
    else:
        shell.state.variables[name] = value
    if not was_exported:
        shell.state.exported.discard(name)


def _program(shell: Shell, words: tuple[str, ...]) -> Status:
    """A program: one whose output follows from its words, one around another command, a launch, or any other."""
    if not words or not words[0]:
        return True
    if not is_known(words[0]) and len(words) > 1 and (len(words[0]) == 1 or words[1].endswith(".py")):
        return _after_unknown(shell, words)
    if (inside := inner_script(shell, words)) is not None:
        return inside
    if inner := unwrapped(words):
        return _wrapped(shell, words, inner)
    if shell.starts(words):
        return _launched(shell, words)
    place = _launch_inside(shell, words)
    return _wrapped(shell, words, (words[place:], {})) if place else _printed(shell, words)


def _launch_inside(shell: Shell, words: tuple[str, ...]) -> int:
    """Where a launch begins among the words of a program that is not known to run others; 0 where there is none."""
    name = PurePath(words[0]).name
    if name in PROGRAMS or name in QUESTIONS or name in _ABOUT:
        return 0
    found = (place for place, word in enumerate(words) if place and PurePath(word).name in _LAUNCHERS)
    return next((place for place in found if shell.starts(words[place:])), 0)


_LAUNCHERS: Final = frozenset({"torchrun", "accelerate", "deepspeed", "python", "python3"})
_ABOUT: Final = frozenset(words(data("shell/words")["about"]))
"""Programs that speak of others without running them."""


def _printed(shell: Shell, words: tuple[str, ...]) -> Status:
    """A program that starts nothing: what it prints, where that follows from its words and what it reads."""
    program = PROGRAMS.get(PurePath(words[0]).name)
    printed = program(shell, list(words[1:])) if program else None
    if printed is None:
        return _ended(shell, words)
    shell.write(printed)
    return True


def _after_unknown(shell: Shell, words: tuple[str, ...]) -> Status:
    """A command behind a word that is not known: an interpreter, or something around the command that follows."""
    if words[1].endswith(".py") or words[1].startswith("-"):
        return _launched(shell, words) if shell.starts(("python", *words[1:])) else _ended(shell, words)
    return _wrapped(shell, words, (words[1:], {}))


def _launched(shell: Shell, words: tuple[str, ...]) -> Status:
    written = tuple(sorted(shell.state.files.items()))
    environment = tuple(sorted(exported(shell).items()))
    shell.state.launches.append(Started(words, shell.line, environment, written, shell.outer))
    return _ended(shell, words)


def _wrapped(shell: Shell, words: tuple[str, ...], inner: tuple[tuple[str, ...], dict[str, str]]) -> Status:
    """The command inside another one, with what the outer one says of processes."""
    rest, more = inner
    with shell.having(outer=(*shell.outer, words[: len(words) - len(rest)])):
        return dispatched(shell, rest, more) if rest else True


def _ended(shell: Shell, words: Sequence[str]) -> Status:
    """A program that only its machine can run: what it prints is not known; as a rule it succeeds."""
    shown = " ".join(words)
    if shell.output is not None:
        shell.write(shell.derived(f"$({shown})", *words) + "\n")
    names = frozenset(name for word in words for one in shell.unknowns.of(word) for name in one.names)
    asks = PurePath(words[0]).name in QUESTIONS
    return Doubt(shell.unknowns.shown(shown), shell.line, names, None if asks else True, status=not asks)


def _called(shell: Shell, words: Sequence[str]) -> Status:
    """A function of the script."""
    body = shell.state.functions[words[0]]
    shell.locals.append({})
    try:
        with shell.given_arguments(list(words[1:])), shell.having(depth=shell.depth + 1):
            return shell.run(shell, body)
    except Return:
        return shell.state.status
    finally:
        for name, value in shell.locals.pop().items():
            _restore(shell, name, value, was_exported=True)


def set_variables(shell: Shell, nodes: Sequence[Node]) -> None:
    """Assignments, one after another."""
    for node in nodes:
        if node.type == "variable_assignment":
            _set_variable(shell, node)


def _set_variable(shell: Shell, node: Node) -> None:
    target, value = node.named_children[0], node.child_by_field_name("value")
    append = any(one.type == "+=" for one in node.children)
    name = source(target).partition("[")[0]
    index: str | int | None = None
    if target.type == "subscript":
        start = target.start_byte + len(name.encode()) + 1
        index = key_of(shell, name, target, start, target.end_byte - 1)
    if value is not None and value.type == "array":
        assign(shell, name, _array(shell, name, value), append=append)
    else:
        assign(shell, name, _value(shell, node), index=index, append=append)


def _value(shell: Shell, node: Node) -> str:
    """What an assignment sets; the grammar leaves out a value that it takes for none, and splits some."""
    value = node.child_by_field_name("value")
    return "" if value is None else joined(shell, value)


def _array(shell: Shell, name: str, node: Node) -> Array:
    made: Array = {}
    place = 0
    for nodes in touching([one for one in node.named_children if one.type != "comment"]):
        one, text = nodes[0], source(nodes[0])
        end = text.find("]=") if text.startswith("[") else -1
        if end <= 0:  # an element without a key
            for word in fields(shell, *nodes):
                made[place] = word
                place += 1
            continue
        closing = one.start_byte + len(text[:end].encode())
        key = key_of(shell, name, one, one.start_byte + 1, closing)
        made[key] = text_of(ranged(shell, one, closing + 2, one.end_byte, PLAIN))
        place = key + 1 if isinstance(key, int) else place
    return made


def declaration(shell: Shell, node: Node) -> Status:
    """``export``, ``declare``, ``local`` and ``readonly`` with names or assignments."""
    word = source(node.children[0])
    options = "".join(source(one) for one in node.named_children if source(one).startswith("-"))
    for one in node.named_children:
        if one.type == "variable_assignment":
            _note(shell, word, options, source(one.named_children[0]).partition("[")[0])
            _set_variable(shell, one)
        elif one.type in {"variable_name", "simple_expansion", "expansion", "concatenation", "string", "word"}:
            for name, equals, value in (text.partition("=") for text in fields(shell, one) if text[:1] != "-"):
                _note(shell, word, options, name)
                if equals:
                    assign(shell, name, value)
                elif word == "local" and shell.locals:
                    shell.state.variables[name] = {} if set(options) & {"a", "A"} else ""
    return True


def _note(shell: Shell, word: str, options: str, name: str) -> None:
    """Note what a declaration says of a name."""
    if not is_known(name):
        return
    if word == "export" or "x" in options:
        shell.state.exported.add(name)
        return
    if word != "readonly" and shell.locals and "g" not in options and name not in shell.locals[-1]:
        shell.locals[-1][name] = shell.state.variables.get(name)
    if "A" in options:
        shell.state.associative.add(name)
        if not isinstance(shell.state.variables.get(name), dict):
            shell.state.variables[name] = {}
