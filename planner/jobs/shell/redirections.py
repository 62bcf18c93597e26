"""Redirections: here-documents, files that are written and read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from planner.jobs.shell.parsing import Node
from planner.jobs.shell.state import Shell, Status
from planner.jobs.shell.words import HERE, joined, ranged, source, text_of


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
