"""Scripts as trees, by the grammar of tree-sitter-bash, and mended where the grammar gives up on what shells take."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import tree_sitter
    from tree_sitter import Parser, Query

    Node = tree_sitter.Node
else:
    Node = object  # for annotations alone: the parser is loaded when the first script is read

_PROTECTED: Final = {ord(sign): 0xE000 + ord(sign) for sign in "|()#[]<>&; "}
_PLAIN: Final = {new: old for old, new in _PROTECTED.items()}
"""Characters in the default of a parameter that the grammar stumbles over, and what stands for them in the tree."""
_FILL_IN: Final = re.compile(r"(?<==)<[^<>\n'\"`$]+>|(?<= )<[A-Za-z][\w /.-]*>(?=[\s/])")
_PLACE: Final = re.compile(rb"<[A-Za-z](?:[\w /.-]*[\w/.-])?>(?=\s|$)")
_NAMED: Final = re.compile(rb"\$([A-Za-z_]\w*|\d)")
_NOTE: Final = re.compile(rb"`\s*#[^`\n]*`")
_BRACKETS: Final = 40
_ROUNDS: Final = 4


@cache
def _parser() -> Parser:
    """Loaded when the first script is read."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


@cache
def _mistaken() -> Query:
    """What the grammar may join or cut wrongly."""
    from tree_sitter import Query

    language = _parser().language
    assert language is not None
    return Query(
        language,
        '(concatenation "$" @sign) (command (variable_assignment) name: (_) @name) '
        "(file_redirect) @place (redirected_statement body: (command)) @redirected "
        '(command_substitution . "`" . (comment) @note) (heredoc_redirect) @document',
    )


@lru_cache(maxsize=4096)
def parsed(text: str) -> Node:
    """The tree of a script.

    Where the grammar gives up, some texts of the same meaning are tried: what is right for a shell, such as ``[`` with
    parentheses or a bar in a default, and places that are to be filled in (``PATH=<your path>``).
    """
    text, root = _taken_apart(text)
    mends: tuple[Callable[[str, Node], str], ...] = (
        _bracket_commands,
        lambda text, _: _FILL_IN.sub(lambda found: f"'{found[0]}'", text),
        lambda text, _: _BARE.sub(r"\1${\2}", text),
        lambda text, _: _protected(text),
    )
    for mend in mends:
        if not root.has_error:
            break
        mended, other = _taken_apart(mend(text, root))
        if len(list(errors(other))) < len(list(errors(root))):
            text, root = mended, other
    return root


def _taken_apart(text: str) -> tuple[str, Node]:
    """A text and its tree, where what the grammar joins or cuts wrongly is written so that it does not.

    It takes some variables for a sign and a word (``$A/$B.txt``), a line of assignments for the beginning of a command
    on the next line, places that are to be filled in (``--data <path to data> --fp16``) for redirections, words
    behind a redirection for more of its files, those behind a here-document's sign for its own, and what follows a
    comment between backticks for the comment.
    """
    from tree_sitter import QueryCursor

    parser, query = _parser(), _mistaken()
    data = text.encode()
    root = parser.parse(data).root_node
    for _ in range(_ROUNDS):
        found = QueryCursor(query).captures(root)
        named = [one for node in found.get("sign", []) if (one := _NAMED.match(data, node.start_byte))]
        edits = {one.start(): (one.end(), b"${" + one[1] + b"}") for one in named}
        edits |= {place: (place, b";") for node in found.get("name", []) if (place := _line_end(node))}
        places = [one for node in found.get("place", []) if (one := _PLACE.match(data, node.start_byte))]
        edits |= {one.start(): (one.end(), b"'" + one[0] + b"'") for one in places}
        opened = [node.parent.start_byte for node in found.get("note", []) if node.parent]
        notes = [one for start in opened if (one := _NOTE.match(data, start))]
        edits |= {one.start(): (one.end(), b"") for one in notes}
        for node in found.get("document", []) if not edits else ():
            edits |= _words_before_document(data, node)
        for node in found.get("redirected", []) if not edits else ():
            edits |= _words_first(data, node)
        if not edits:
            break
        for start, (end, new) in sorted(edits.items(), reverse=True):
            data = data[:start] + new + data[end:]
        root = parser.parse(data).root_node
    return data.decode(), root


def part(node: Node, name: str) -> Node:
    """What a node has of a name that the grammar demands."""
    found = node.child_by_field_name(name)
    assert found is not None
    return found


def _words_first(data: bytes, statement: Node) -> dict[int, tuple[int, bytes]]:
    """What a command's redirections are replaced by, so that words behind a file stand in front of them all."""
    redirects = statement.children_by_field_name("redirect")
    redirects = list(takewhile(lambda one: one.type == "file_redirect", redirects))  # a here-document has its lines
    files = [one.children_by_field_name("destination") for one in redirects]
    if not any(len(one) > 1 for one in files):
        return {}
    behind = b"".join(data[one[0].end_byte : one[-1].end_byte] for one in files if len(one) > 1)
    kept = (data[node.start_byte : one[0].end_byte] for node, one in zip(redirects, files, strict=True))
    return {redirects[0].start_byte: (redirects[-1].end_byte, behind.lstrip() + b" " + b" ".join(kept))}


def _words_before_document(data: bytes, redirect: Node) -> dict[int, tuple[int, bytes]]:
    """What the words behind the sign of a here-document are replaced by, so that they stand in front of it."""
    files = (one.children_by_field_name("destination")[1:] for one in redirect.children if one.type == "file_redirect")
    behind = [one for one in (redirect.children_by_field_name("argument"), *files) if one]
    cut = {one[0].start_byte: (one[-1].end_byte, b"") for one in behind}
    line = b" ".join(data[start:end] for start, (end, _) in cut.items())
    return {redirect.start_byte: (redirect.start_byte, line + b" "), **cut} if cut else {}


def _line_end(name: Node) -> int:
    """Where the assignments in front of a command end, if their line ends there; 0 if not."""
    command, before = name.parent, name.prev_sibling
    assert command is not None
    assert before is not None
    between = (command.text or b"")[before.end_byte - command.start_byte : name.start_byte - command.start_byte]
    ended = before.type == "variable_assignment" and b";" not in between
    return before.end_byte if ended and b"\n" in between.replace(b"\\\n", b"") else 0


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


_UNDERSTOOD: Final = re.compile(rb"&|\d+#|")
"""What the grammar does not take, and its readers do: a command in the background after a here-document, a base."""


_CLOSING: Final = (")", "`", "}")
"""Without which what follows is no longer the command's, as in a script that was cut short."""


def not_understood(root: Node) -> list[str]:
    """What the grammar does not take, a line each; of what is not closed, the line where it opens."""
    failed = [one for one in errors(root) if one.is_error and not _UNDERSTOOD.fullmatch((one.text or b"").strip())]
    failed += [one.parent for one in errors(root) if one.is_missing and one.type in _CLOSING and one.parent]
    return [f"line {line} is not understood" for line in sorted({one.start_point[0] + 1 for one in failed})[:3]]


def _bracket_commands(text: str, root: Node) -> str:
    """Single brackets as the command of that name: the grammar takes them for brackets around an expression."""
    data = text.encode()
    for _ in range(_BRACKETS):
        failed = (one.start_byte for one in errors(root) if one.type == "test_command" or one.is_error)
        place = next((one for one in failed if data[one : one + 2] == b"[ "), None)
        if place is None:
            break
        data = data[:place] + b"\\" + data[place:]
        root = _parser().parse(data).root_node
    return data.decode()


_BARE: Final = re.compile(r"(\$\{\w+(?:\[@\])?:)\$(\w+)(?=[^{}]*\})")
"""A place in a text or a list that is a variable without braces, after which the grammar expects the end."""
_OPENING: Final = re.compile(r"(?<!\\)\$\{[!#]?\w+(?:\[[^\]]*\])?(?::[-+=?]|##?|%%?|//?#?|[-+=?:^,@])?")


def _protected(text: str) -> str:
    """What follows the name of a parameter, with other characters for those that the grammar stumbles over."""
    found, place = "", 0
    for opening in _OPENING.finditer(text):
        if opening.start() < place:
            continue
        end = _closing(text, opening.end())
        inner = text[opening.end() : end]
        if end < 0 or "$(" in inner or "`" in inner or "\n" in inner:
            continue
        inner = _protected(inner) if "${" in inner else inner
        found += text[place : opening.end()] + inner.translate(_PROTECTED)
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
