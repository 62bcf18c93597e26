"""Words of a script, expanded: quoting, braces, variables, commands, splitting. Globs are left as they are."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from planner.errors import BadRequest
from planner.jobs.shell.parsing import Node, as_written
from planner.jobs.shell.state import Exit, Shell, is_known
from planner.jobs.shell.variables import calculated


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a word.

    Attributes:
        texts: one text; of a list such as ``"$@"``, its elements.
        quoted: it is not split, and its characters match themselves only.
        literal: the script has it as it stands.
        listed: it is a list, each element a word of its own.
    """

    texts: tuple[str, ...]
    quoted: bool
    literal: bool = False
    listed: bool = False

    @property
    def text(self) -> str:
        """All of it as one text."""
        return " ".join(self.texts)


_SIGN: Final = re.compile(rb"[$`<>]")
PLAIN, DOUBLE, HERE = "plain", "double", "here"
_ESCAPES: Final = {
    PLAIN: re.compile(r"\\(\n|.|$)", re.DOTALL),
    DOUBLE: re.compile(r"\\([$`\"\\\n])"),
    HERE: re.compile(r"\\([$`\\\n])"),
}


def source(node: Node, start: int | None = None, end: int | None = None) -> str:
    """The text of a node, or of a stretch of it in bytes of the whole script."""
    text = node.text or b""
    at = node.start_byte
    return text[(start or at) - at : len(text) if end is None else end - at].decode(errors="replace")


def start_of(node: Node) -> int:
    """Where an expansion begins: in a string, the grammar counts the space in front of one to it."""
    text = node.text or b""
    found = _SIGN.search(text)
    return node.start_byte + (found.start() if found and text[:1] in b" \t\n\\" else 0)


def fields(shell: Shell, *nodes: Node) -> list[str]:
    """The words that one word of a command becomes; the grammar may have cut it in two."""
    whole = [part for node in nodes for part in parts_of(shell, node)]
    found = [word for parts in _braced(whole) for word in _split(shell, parts)]
    shell.affordable(sum(len(word) + 1 for word in found))
    return found


def touching(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """Nodes with nothing between them, as one word each."""
    word: list[Node] = []
    for node in nodes:
        if word and start_of(node) != word[-1].end_byte:
            yield word
            word = []
        word.append(node)
    if word:
        yield word


def joined(shell: Shell, node: Node) -> str:
    """A word where it is not split, as in an assignment."""
    return text_of(parts_of(shell, node))


def text_of(parts: Sequence[Part]) -> str:
    """Parts as one text."""
    return "".join(part.text for part in parts)


def pattern_of(parts: Sequence[Part]) -> str:
    """Parts as a pattern, its quoted characters escaped."""
    return "".join(re.sub(r"([\\*?\[\]()|+@!])", r"\\\1", one.text) if one.quoted else one.text for one in parts)


def parts_of(shell: Shell, node: Node, *, quoted: bool = False) -> list[Part]:
    """The parts of a word."""
    if node.type in _ACTIVE:
        return _read(shell, node, quoted)
    return ranged(shell, node, node.start_byte, node.end_byte, DOUBLE if quoted else PLAIN)


def ranged(shell: Shell, node: Node, start: int, end: int, mode: str) -> list[Part]:
    """The parts of a stretch of a node: what is expanded in it, and the text between."""
    found: list[Part] = []
    place = start
    for inner in _active(node, start, end, mode):
        found += _text_parts(source(node, place, start_of(inner)), mode)
        found += _read(shell, inner, mode != PLAIN)
        place = inner.end_byte
    return [*found, *_text_parts(source(node, place, end), mode)]


def _active(node: Node, start: int, end: int, mode: str) -> Iterator[Node]:
    """The outermost nodes in a stretch that are expanded or quoted."""
    for child in node.children:
        if child.end_byte <= start or child.start_byte >= end or child.start_byte == child.end_byte:
            continue
        inside = child.start_byte >= start and child.end_byte <= end
        if inside and child.type in _ACTIVE and not (mode != PLAIN and child.type in _LITERAL):
            yield child
        else:
            yield from _active(child, start, end, mode)


def _text_parts(text: str, mode: str) -> Iterator[Part]:
    """Literal text with its escapes undone; an escaped character is a quoted one."""
    text = as_written(text)
    if not text:
        return
    if mode != PLAIN:
        yield Part((_ESCAPES[mode].sub(lambda found: found[1].strip("\n"), text),), quoted=True, literal=True)
        return
    place = 0
    for found in _ESCAPES[PLAIN].finditer(text):
        if before := text[place : found.start()]:
            yield Part((before,), quoted=False, literal=True)
        if found[1] != "\n":
            yield Part((found[1],), quoted=True, literal=True)
        place = found.end()
    if rest := text[place:]:
        yield Part((rest,), quoted=False, literal=True)


def _string(shell: Shell, node: Node) -> list[Part]:
    opening = 2 if node.type == "translated_string" and node.children[0].type == '$"' else 1
    inner = node if node.type == "string" else next((one for one in node.children if one.type == "string"), node)
    found = ranged(shell, inner, inner.start_byte + opening, inner.end_byte - 1, DOUBLE)
    return found or [Part(("",), quoted=True)]


def _ansi(shell: Shell, node: Node) -> str:
    text = source(node)[2:-1].replace("\\'", "'").replace('\\"', '"').replace("\\e", "\\x1b")
    return codecs.decode(text.encode("latin-1", "backslashreplace"), "unicode_escape")


def _arithmetic(shell: Shell, node: Node) -> str:
    text = arithmetic_text(shell, node, node.children[0].end_byte, node.children[-1].start_byte)
    return calculated(shell, text, source(node))


def arithmetic_text(shell: Shell, node: Node, start: int, end: int) -> str:
    """What is to be calculated, its variables with a dollar replaced by their values."""
    return text_of(ranged(shell, node, start, end, DOUBLE)).replace('"', "")


def _substituted(shell: Shell, node: Node) -> str:
    """What the commands of ``$( )`` print, run in a shell of their own."""
    statements = [one for one in node.named_children if one.type != "comment"]
    if (redirected := _file_read(shell, statements)) is not None:
        return redirected
    outer, shell.output, before = shell.output, [], shell.state
    shell.state = before.copied()
    try:
        for one in statements:
            shell.state.status = shell.run(shell, one)
    except Exit:
        pass
    finally:
        printed, shell.output = "".join(shell.output), outer
        before.launches, before.files, before.status = shell.state.launches, shell.state.files, shell.state.status
        shell.state = before
    if not is_known(printed) and len(shell.unknowns.of(printed)) == 1 == len(printed.rstrip("\n")):
        only = shell.unknowns.of(printed)[0]
        if only.text.startswith("$("):  # what one command prints is what all of them do
            return shell.unknown(" ".join(source(node).split()), *only.names)
    return printed.rstrip("\n")


def _file_read(shell: Shell, statements: Sequence[Node]) -> str | None:
    """What ``$(< FILE)`` is."""
    if len(statements) == 1 and statements[0].type == "file_redirect" and source(statements[0]).startswith("<"):
        name = joined(shell, statements[0].named_children[-1])
        text = shell.file(name)
        return shell.derived(f"$(<{name})", name) if text is None else text.rstrip("\n")
    return None


_QUOTED: Final[dict[str, Callable[[Shell, Node], str]]] = {
    "raw_string": lambda shell, node: as_written(source(node))[1:-1], "ansi_c_string": _ansi,
    "process_substitution": lambda shell, node: " ".join(source(node).split()),
}  # fmt: skip
"""What stands for one quoted text."""
_EXPANDED: Final = {"arithmetic_expansion": _arithmetic, "command_substitution": _substituted}
"""What becomes one text, which is split unless it stands in quotes."""
_LITERAL: Final = frozenset({"raw_string", "ansi_c_string"})
_ACTIVE: Final = frozenset({"string", "translated_string", "simple_expansion", "expansion", *_QUOTED, *_EXPANDED})
"""What is expanded or quoted."""


def _read(shell: Shell, node: Node, quoted: bool) -> list[Part]:
    """The parts of what is expanded or quoted."""
    if node.type in {"string", "translated_string"}:
        return _string(shell, node)
    if one := _QUOTED.get(node.type):
        return [Part((one(shell, node),), quoted=True)]
    if one := _EXPANDED.get(node.type):
        return [Part((one(shell, node),), quoted)]
    return list(shell.parameter(shell, node, quoted))


def _split(shell: Shell, parts: Sequence[Part]) -> list[str]:
    """The words that parts make: an unquoted expansion is cut at the separators, and an empty one is no word."""
    separators = shell.state.variables.get("IFS", " \t\n")
    found: list[str] = []
    current: str | None = None
    for part in parts:
        for place, text in enumerate(part.texts):
            if place and part.listed and current is not None:
                found.append(current)
                current = None
            pieces = [text] if part.quoted or part.literal else _cut(text, str(separators))
            if part.quoted or text:
                for piece in pieces:
                    if piece is None:
                        found += [current] if current is not None else []
                        current = None
                    else:
                        current = (current or "") + piece
    return [*found, current] if current is not None else found


def _cut(text: str, separators: str) -> list[str | None]:
    """Text cut at separators, None where one word ends."""
    if not separators:
        return [text]
    return [None if cut else "".join(run) for cut, run in groupby(text, key=lambda one: one in separators)]


_MOST: Final = 10_000
"""Words that braces make of one."""
_BRACES: Final = 100
"""Braces that open in one word, in each other or side by side."""
Token = str | Part
"""A character that may be a brace, or what is never one."""


def _braced(parts: Sequence[Part]) -> list[list[Part]]:
    """The words that braces make of one."""
    if not any(one.literal and not one.quoted and "{" in one.text for one in parts):
        return [list(parts)]
    tokens: list[Token] = []
    for part in parts:
        tokens += part.text if part.literal and not part.quoted else [part]
    if (opened := tokens.count("{")) > _BRACES:
        raise BadRequest(f"a word with {opened:,} open braces; at most {_BRACES} can be read")
    return [_rejoined(one) for one in _expanded(tokens)]


def _expanded(tokens: list[Token]) -> list[list[Token]]:
    for start, one in enumerate(tokens):
        if one == "{" and (found := _alternatives(tokens, start)):
            end, options = found
            rest = _expanded(tokens[end + 1 :])
            if (count := len(options) * len(rest)) > _MOST:
                raise BadRequest(f"braces that expand to {count:,} words; at most {_MOST:,} can be read")
            return [[*tokens[:start], *option, *after] for option in options for after in rest]
    return [tokens]


def _alternatives(tokens: list[Token], start: int) -> tuple[int, list[list[Token]]] | None:
    """Where a brace closes, and what stands between its commas or in its range; None where it is no such brace."""
    depth, commas = 0, [start]
    for place in range(start, len(tokens)):
        one = tokens[place]
        depth += (one == "{") - (one == "}")
        if one == "," and depth == 1:
            commas.append(place)
        if depth == 0:
            inner = tokens[start + 1 : place]
            if len(commas) > 1:
                spans = zip(commas, [*commas[1:], place], strict=True)
                return place, [one for left, right in spans for one in _expanded(tokens[left + 1 : right])]
            steps = _range("".join(one for one in inner if isinstance(one, str))) if inner else None
            return (place, steps) if steps and all(isinstance(one, str) for one in inner) else None
    return None


def _range(text: str) -> list[list[Token]] | None:
    """The elements of ``{1..8}``, ``{01..16..2}`` or ``{a..e}``."""
    found = re.fullmatch(r"(-?\d+|[a-zA-Z])\.\.(-?\d+|[a-zA-Z])(?:\.\.(-?\d+))?", text)
    if not found or found[1].isalpha() != found[2].isalpha():
        return None
    letters = found[1].isalpha()
    first, last = (ord(one) if letters else int(one) for one in (found[1], found[2]))
    step = abs(int(found[3] or 1)) or 1
    numbers = range(first, last + 1, step) if last >= first else range(first, last - 1, -step)
    width = max(len(found[1]), len(found[2])) if re.match(r"-?0\d", found[1]) or re.match(r"-?0\d", found[2]) else 0
    return [[chr(one) if letters else str(one).zfill(width)] for one in numbers[:_MOST]]


def _rejoined(tokens: list[Token]) -> list[Part]:
    found: list[Part] = []
    for kind, run in groupby(tokens, key=lambda one: isinstance(one, str)):
        if kind:
            found.append(Part(("".join(str(one) for one in run),), quoted=False, literal=True))
        else:
            found += [one for one in run if isinstance(one, Part)]
    return found
