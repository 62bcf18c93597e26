"""Redirections: here-documents, files that are written and read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from planner.jobs.shell.state import Shell, Status
from planner.jobs.shell.words import HERE, joined, ranged, source

if TYPE_CHECKING:
    from tree_sitter import Node


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
    if streams.after:
        return _streamed(shell, streams, lambda: shell.piped(shell, stages))
    return _streamed(shell, streams, lambda: shell.run(shell, stages[0]))


def _streamed(shell: Shell, streams: _Streams, action: Callable[[], Status]) -> Status:
    outer, given = shell.output, shell.input
    if streams.given is not None:
        shell.input = streams.given.splitlines(keepends=True)
    if streams.target or streams.dropped:
        shell.output = []
    try:
        status = action()
    finally:
        printed, shell.output, shell.input = shell.output, outer, given
    if streams.target:
        _into(shell, streams, "".join(printed or ()))
    return status


def _into(shell: Shell, streams: _Streams, text: str) -> None:
    files = shell.state.files
    before = files.get(streams.target, shell.files.get(streams.target, "")) if streams.append else ""
    shell.affordable(len(before) + len(text))
    files[streams.target] = before + text


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
        text = "".join(part.text for part in ranged(shell, body, body.start_byte, body.end_byte, HERE))
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
        text = shell.state.files.get(name, shell.files.get(name))
        streams.given = shell.derived(f"$(<{name})", name) if text is None else text
    elif descriptor is None or source(descriptor) == "1":
        streams.target, streams.dropped = ("", True) if name.startswith("/dev/") else (name, False)
        streams.append = sign.endswith(">>")
