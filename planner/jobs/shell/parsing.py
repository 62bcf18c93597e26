"""Scripts as trees, by the grammar of tree-sitter-bash."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_REPAIRS = 40


@cache
def _parser() -> Parser:
    """Loaded when the first script is read."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


@cache
def parsed(text: str) -> Node:
    """The tree of a script.

    The grammar takes ``[`` for a bracket around an expression, and gives up on some that are words for the command of
    that name; these are read as the command.
    """
    data = text.encode()
    root = _parser().parse(data).root_node
    for _ in range(_REPAIRS):
        bracket = next(
            (one for one in errors(root) if one.type == "test_command" and data[one.start_byte :][:2] == b"[ "), None
        )
        if bracket is None:
            break
        data = data[: bracket.start_byte] + b"\\" + data[bracket.start_byte :]
        root = _parser().parse(data).root_node
    return root


def errors(node: Node) -> Iterator[Node]:
    """The smallest nodes that hold what the grammar does not take, with the tests around them."""
    if not node.has_error and not node.is_missing:
        return
    inner = [one for child in node.children for one in errors(child)]
    if node.type == "test_command" or node.is_missing or node.is_error or not inner:
        yield node
    yield from inner
