"""Parameters: ``$NAME``, ``${NAME:-default}``, ``${#LIST[@]}`` and the other forms."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.jobs.shell.parsing import Node
from planner.jobs.shell.patterns import matches, replaced, without_end, without_front
from planner.jobs.shell.state import RANKS, Doubt, Shell, is_known
from planner.jobs.shell.variables import assign, element, elements, number_of, value_of
from planner.jobs.shell.words import DOUBLE, PLAIN, Part, arithmetic_text, pattern_of, ranged, source, start_of, text_of

_HEAD: Final = re.compile(r"\$\{(?P<sign>[!#](?=[\w@*#?$!-]))?(?P<name>[A-Za-z_]\w*|\d+|[@*#?$!-])(?P<index>\[)?")
_OPERATORS: Final = (
    ":-", ":=", ":+", ":?", "##", "%%", "//", "/#", "/%", "^^", ",,",
    "-", "=", "+", "?", "#", "%", "/", "^", ",", "@", ":",
)  # fmt: skip


@dataclass(frozen=True)
class _Asked:
    """A parameter and what is to be done with it.

    Attributes:
        name: of the variable, or the sign of a special one.
        index: of an element: None, "@" or "*" for all, else a key.
        operator: the sign after it.
        start: where what follows the sign begins, in bytes.
    """

    node: Node
    name: str
    index: str | int | None
    operator: str
    start: int
    quoted: bool

    @property
    def all_of(self) -> bool:
        return self.index in {"@", "*"} or self.name in {"@", "*"}

    @property
    def starred(self) -> bool:
        return "*" in {self.index, self.name}


def parameter(shell: Shell, node: Node, quoted: bool) -> list[Part]:
    """The parts that a parameter becomes."""
    text = source(node, start_of(node))
    if node.type == "simple_expansion":
        name = text[1:2] if text[1:2].isdecimal() else text[1:]  # the grammar takes $1_x for one name
        after = [Part((text[1 + len(name) :],), quoted, literal=True)] if len(name) + 1 < len(text) else []
        return [*_parts(shell, _Asked(node, name, None, "", node.end_byte, quoted)), *after]
    found = _HEAD.match(text)
    if not found:
        return [Part((shell.derived(text),), quoted)]
    index, ended = _index(shell, node, found)
    rest = text[ended:-1]
    operator = next((one for one in _OPERATORS if rest.startswith(one)), "")
    start = start_of(node) + len(text[: ended + len(operator)].encode())
    asked = _Asked(node, found["name"], index, operator, start, quoted)
    if found["sign"] == "#":
        return [Part((_length(shell, asked),), quoted)]
    if found["sign"] == "!":
        return _indirect(shell, asked, rest)
    return _parts(shell, asked)


def _index(shell: Shell, node: Node, found: re.Match[str]) -> tuple[str | int | None, int]:
    """The index of an element, and where it ends."""
    if not found["index"]:
        return None, found.end()
    text, depth, place = found.string, 1, found.end()
    while place < len(text) and depth:
        depth += (text[place] == "[") - (text[place] == "]")
        place += 1
    inner = text[found.end() : place - 1]
    if inner in {"@", "*"}:
        return inner, place
    start = start_of(node) + len(text[: found.end()].encode())
    end = start_of(node) + len(text[: place - 1].encode())
    return key_of(shell, found["name"], node, start, end), place


def key_of(shell: Shell, name: str, node: Node, start: int, end: int) -> str | int:
    """The key that an index says: a word of an associative array, else a number."""
    if name in shell.state.associative:
        return text_of(ranged(shell, node, start, end, PLAIN))
    text = arithmetic_text(shell, node, start, end)
    number = number_of(shell, text)
    return text if number is None else number


def _texts(shell: Shell, asked: _Asked) -> list[str] | None:
    """What a parameter holds; None where it is not set."""
    if asked.all_of:
        whole = asked.name in {"@", "*"}
        return list(shell.state.arguments if whole else elements(shell, asked.name).values())
    if asked.name.isdecimal():
        return _positional(shell, int(asked.name))
    if asked.name in _SPECIAL:
        return [_SPECIAL[asked.name](shell)]
    if isinstance(asked.index, str) and (asked.name not in shell.state.associative or not is_known(asked.index)):
        return [shell.derived(source(asked.node), asked.index)]
    value = value_of(shell, asked.name, asked.index)
    if value is None:
        return None if asked.index is None else []
    return [shell.unknowns.emptied(value) if shell.supposing else value]


def _positional(shell: Shell, place: int) -> list[str] | None:
    if place == 0:
        return [shell.name]
    if place <= len(shell.state.arguments):
        value = shell.state.arguments[place - 1]
        return [shell.unknowns.emptied(value) if shell.supposing else value]
    given = shell.state.given.get(str(place + shell.state.shifted))
    if given is not None and not shell.state.complete:
        return [given]
    return [] if shell.state.complete else None


def _count(shell: Shell) -> str:
    if shell.state.arguments or shell.state.complete or shell.supposing:
        return str(len(shell.state.arguments))
    return shell.unknown("$#", "#", fresh=True)


def _last_status(shell: Shell) -> str:
    status = shell.state.status
    return shell.unknown("$?", *status.names) if isinstance(status, Doubt) and not status.status else "01"[not status]


_SPECIAL: Final[dict[str, Callable[[Shell], str]]] = {
    "#": _count,
    "?": _last_status,
    "$": lambda shell: shell.unknown("$$"),
    "!": lambda shell: shell.unknown("$!"),
    "-": lambda shell: "hB",
}


def _parts(shell: Shell, asked: _Asked) -> list[Part]:
    texts = _texts(shell, asked)
    if asked.operator in _DEFAULTS:
        return _defaulted(shell, asked, texts)
    if texts is None:
        texts = [_unset(shell, asked)]
    if asked.name in {"@", "*"} and asked.operator == ":":
        texts = [shell.name, *texts]
    return _shaped(shell, asked, _applied(shell, asked, texts))


def _unset(shell: Shell, asked: _Asked) -> str:
    if shell.supposing:
        return "0" if asked.name in RANKS else ""
    if asked.name.isdecimal():
        place = int(asked.name) + shell.state.shifted
        return shell.unknown(f"${place}" if place < 10 else f"${{{place}}}", str(place), fresh=True)
    return shell.unknown(f"${{{asked.name}}}", asked.name, fresh=True)


def _shaped(shell: Shell, asked: _Asked, texts: Sequence[str]) -> list[Part]:
    """Texts as one part: a list of words where the parameter is one."""
    if not asked.all_of:
        return [Part(("".join(texts),), asked.quoted)]
    if asked.quoted and asked.starred:
        separator = str(shell.state.variables.get("IFS", " "))[:1]
        return [Part((separator.join(texts),), quoted=True)]
    return [Part(tuple(texts), asked.quoted, listed=True)]


_DEFAULTS: Final = frozenset({":-", ":=", ":+", ":?", "-", "=", "+", "?"})


def _defaulted(shell: Shell, asked: _Asked, texts: list[str] | None) -> list[Part]:
    """What stands where a parameter is not set, or empty."""
    joined = None if texts is None or (not texts and not asked.all_of) else " ".join(texts)
    absent = joined is None or (asked.all_of and not texts)
    if asked.operator.startswith(":"):
        absent = absent or not joined or shell.unknowns.unset(joined)
    if asked.operator.endswith("+"):
        return [] if absent else _operand(shell, asked)
    if not absent:
        return _shaped(shell, asked, texts or [])
    if asked.operator.endswith("?"):
        return [Part((_unset(shell, asked),), asked.quoted)]
    instead = _operand(shell, asked)
    if asked.operator.endswith("="):
        assign(shell, asked.name, text_of(instead))
    return instead


def _operand(shell: Shell, asked: _Asked) -> list[Part]:
    """What follows the sign, as parts: words of it that are not quoted are split."""
    parts = ranged(shell, asked.node, asked.start, asked.node.end_byte - 1, DOUBLE if asked.quoted else PLAIN)
    if asked.quoted:
        return parts or [Part(("",), quoted=True)]
    return [Part(one.texts, one.quoted, listed=one.listed) for one in parts]


def _applied(shell: Shell, asked: _Asked, texts: list[str]) -> list[str]:
    """What the sign makes of each text."""
    sign = asked.operator
    if not sign:
        return texts
    if sign == ":":
        return _sliced(shell, asked, texts)
    if sign in {"/", "//", "/#", "/%"}:
        old, new = _replacement(shell, asked)
        return [_each(shell, asked, one, old + new, lambda text: replaced(text, old, new, where=sign)) for one in texts]
    operand = pattern_of(ranged(shell, asked.node, asked.start, asked.node.end_byte - 1, PLAIN))
    change = _CHANGES[sign]
    return [_each(shell, asked, one, operand, lambda text: change(text, operand)) for one in texts]


def _each(shell: Shell, asked: _Asked, text: str, operand: str, change: Callable[[str], str]) -> str:
    if is_known(text + operand):
        return change(text)
    return shell.derived(source(asked.node), text, operand)


def _replacement(shell: Shell, asked: _Asked) -> tuple[str, str]:
    """What is looked for, and what comes in its place."""
    text = source(asked.node, asked.start, asked.node.end_byte - 1)
    cut = _cut(asked, text, "/")
    middle = asked.start + len(text[:cut].encode())
    old = pattern_of(ranged(shell, asked.node, asked.start, middle, PLAIN))
    new = ranged(shell, asked.node, min(middle + 1, asked.node.end_byte - 1), asked.node.end_byte - 1, PLAIN)
    return old, text_of(new)


def _cut(asked: _Asked, text: str, sign: str) -> int:
    """Where an operand is divided: at the first sign that is neither escaped, quoted nor inside an expansion."""
    depth, quote = 0, ""
    for place, one in enumerate(text):
        if quote:
            quote = "" if one == quote else quote
        elif one in "\"'" and text[place - 1 : place] != "\\":
            quote = one
        elif one in "{(":
            depth += text[place - 1 : place] in {"$", "("}
        elif one in "})":
            depth = max(depth - 1, 0)
        elif one == sign and not depth and text[place - 1 : place] != "\\" and (place or asked.operator != "/"):
            return place
    return len(text)


def _sliced(shell: Shell, asked: _Asked, texts: list[str]) -> list[str]:
    text = source(asked.node, asked.start, asked.node.end_byte - 1)
    cut = _cut(asked, text, ":")
    middle, end = asked.start + len(text[:cut].encode()), asked.node.end_byte - 1
    spans = [(asked.start, middle), *([(middle + 1, end)] if cut < len(text) else [])]
    written = [arithmetic_text(shell, asked.node, *span) for span in spans]
    bounds = [number_of(shell, one) for one in written]
    if any(one is None for one in bounds) or not (asked.all_of or is_known("".join(texts))):
        return [shell.derived(source(asked.node), *texts, *written)]
    whole: Sequence[str] = texts if asked.all_of else "".join(texts)
    start, length = bounds[0] or 0, bounds[1] if len(bounds) > 1 else None
    if start < 0 and start + len(whole) < 0:
        return [] if asked.all_of else [""]
    start += len(whole) if start < 0 else 0
    stop = None if length is None else length if length < 0 else start + length
    return list(whole[start:stop]) if asked.all_of else ["".join(whole[start:stop])]


_CHANGES: Final[dict[str, Callable[[str, str], str]]] = {
    "#": lambda text, operand: without_front(text, operand, longest=False),
    "##": lambda text, operand: without_front(text, operand, longest=True),
    "%": lambda text, operand: without_end(text, operand, longest=False),
    "%%": lambda text, operand: without_end(text, operand, longest=True),
    "^": lambda text, operand: _recased(text[:1], operand, str.upper) + text[1:],
    ",": lambda text, operand: _recased(text[:1], operand, str.lower) + text[1:],
    "^^": lambda text, operand: _recased(text, operand, str.upper),
    ",,": lambda text, operand: _recased(text, operand, str.lower),
    "@": lambda text, operand: {"Q": shlex.quote, "U": str.upper, "L": str.lower}.get(operand, str)(text),
}


def _recased(text: str, operand: str, change: Callable[[str], str]) -> str:
    """The characters of a text that are of a pattern, in the other case."""
    return "".join(change(one) if matches(one, operand or "?") else one for one in text)


def _length(shell: Shell, asked: _Asked) -> str:
    texts = _texts(shell, asked)
    if asked.all_of:
        return str(len(texts or ()))
    text = _unset(shell, asked) if texts is None else "".join(texts)
    return str(len(text)) if is_known(text) else shell.derived(source(asked.node), text)


def _indirect(shell: Shell, asked: _Asked, rest: str) -> list[Part]:
    """The variable that a variable names, the keys of an array, or the names that begin so."""
    if asked.all_of and asked.name not in {"@", "*"}:
        keys = [str(key) for key in elements(shell, asked.name)]
        return _shaped(shell, asked, keys)
    if rest in {"*", "@"}:
        names = sorted(name for name in shell.state.variables if name.startswith(asked.name))
        return [Part(tuple(names), asked.quoted, listed=True)]
    texts = _texts(shell, asked)
    target = "".join(texts or [])
    if not is_known(target) or not target:
        return [Part((shell.derived(source(asked.node), target or _unset(shell, asked)),), asked.quoted)]
    name, key = (target[:-3], target[-2]) if target.endswith(("[@]", "[*]")) else element(shell, target)
    return _parts(shell, replace(asked, name=name, index=key))
