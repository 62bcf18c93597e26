"""Scripts as trees, by the grammar of tree-sitter-bash, and mended where the grammar gives up on what shells take."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_PROTECTED: Final = {ord(sign): 0xE000 + ord(sign) for sign in "|()#[]<>&; "}
_PLAIN: Final = {new: old for old, new in _PROTECTED.items()}
"""Characters in the default of a parameter that the grammar stumbles over, and what stands for them in the tree."""
_FILL_IN: Final = re.compile(r"(?<==)<[^<>\n'\"`$]+>")
_NAMED: Final = re.compile(rb"\$([A-Za-z_]\w*)")
_BRACKETS: Final = 40
_ROUNDS: Final = 4


@cache
def _parser() -> Parser:
    """Loaded when the first script is read."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


@cache
def parsed(text: str) -> Node:
    """The tree of a script.

    Where the grammar gives up, some texts of the same meaning are tried: what is right for a shell, such as ``[`` with
    parentheses or a bar in a default, and places that are to be filled in (``PATH=<your path>``).
    """
    text, root = _braced_names(text)
    for mend in (_bracket_commands, _quoted_places, _braced_places, _protected_defaults):
        if not root.has_error:
            break
        mended, other = _braced_names(mend(text, root))
        if len(list(errors(other))) < len(list(errors(root))):
            text, root = mended, other
    return root


def _braced_names(text: str) -> tuple[str, Node]:
    """A text and its tree, where variables that the grammar takes for a sign and a word have braces."""
    from tree_sitter import Query, QueryCursor

    parser = _parser()
    assert parser.language is not None
    signs = Query(parser.language, '(concatenation "$" @sign)')
    data = text.encode()
    root = parser.parse(data).root_node
    for _ in range(_ROUNDS):
        places = [one.start_byte for one in QueryCursor(signs).captures(root).get("sign", [])]
        found = [named for place in places if (named := _NAMED.match(data, place))]
        if not found:
            break
        for named in sorted(found, key=lambda one: -one.start()):
            data = data[: named.start()] + b"${" + named[1] + b"}" + data[named.end() :]
        root = parser.parse(data).root_node
    return data.decode(), root


def as_written(text: str) -> str:
    """A text of the tree as the script has it."""
    return text.translate(_PLAIN)


def errors(node: Node) -> Iterator[Node]:
    """The smallest nodes that hold what the grammar does not take, with the tests around them."""
    if not node.has_error and not node.is_missing:
        return
    inner = [one for child in node.children for one in errors(child)]
    if node.type == "test_command" or node.is_missing or node.is_error or not inner:
        yield node
    yield from inner


def _bracket_commands(text: str, root: Node) -> str:
    """Single brackets as the command of that name: the grammar takes them for brackets around an expression."""
    data = text.encode()
    for _ in range(_BRACKETS):
        failed = (one.start_byte for one in errors(root) if one.type == "test_command")
        place = next((one for one in failed if data[one : one + 2] == b"[ "), None)
        if place is None:
            break
        data = data[:place] + b"\\" + data[place:]
        root = _parser().parse(data).root_node
    return data.decode()


def _quoted_places(text: str, root: Node) -> str:
    return _FILL_IN.sub(lambda found: f"'{found[0]}'", text)


def _braced_places(text: str, root: Node) -> str:
    return _BARE.sub(r"\1${\2}", text)


def _protected_defaults(text: str, root: Node) -> str:
    """What follows the name of a parameter, with other characters for those that the grammar stumbles over."""
    return _within(text, lambda inner: inner.translate(_PROTECTED))


_BARE: Final = re.compile(r"(\$\{\w+(?:\[@\])?:)\$(\w+)(?=[^{}]*\})")
"""A place in a text or a list that is a variable without braces, after which the grammar expects the end."""
_OPENING: Final = re.compile(
    r"(?<!\\)\$\{[!#]?\w+(?:\[[^\]]*\])?(?::[-+=?]|##?|%%?|//?#?|[-+=?:^,@])?",
)


def _within(text: str, change: Callable[[str], str]) -> str:
    found, place = "", 0
    for opening in _OPENING.finditer(text):
        if opening.start() < place:
            continue
        end = _closing(text, opening.end())
        inner = text[opening.end() : end]
        if end < 0 or "$(" in inner or "`" in inner or "\n" in inner:
            continue
        inner = _within(inner, change) if "${" in inner else inner
        found += text[place : opening.end()] + change(inner)
        place = end
    return found + text[place:]


def _closing(text: str, place: int) -> int:
    """Where the brace of a parameter closes, -1 where it does not."""
    depth = 1
    while place < len(text):
        depth += text.startswith("${", place) - (text[place] == "}")
        if not depth:
            return place
        place += 2 if text[place] == "\\" or text.startswith("${", place) else 1
    return -1
