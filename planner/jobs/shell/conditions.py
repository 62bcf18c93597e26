"""Conditions: ``[ ]``, ``test`` and ``[[ ]]``, each true, false or in doubt."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Final

from planner.jobs.shell.parsing import Node
from planner.jobs.shell.patterns import affordable, matches
from planner.jobs.shell.state import Doubt, Shell, Status, is_known
from planner.jobs.shell.variables import elements, number_of
from planner.jobs.shell.words import (
    PLAIN,
    Part,
    fields,
    joined,
    pattern_of,
    ranged,
    source,
    start_of,
    text_of,
    touching,
)


class _Wrong(Exception):
    """No condition that the shell takes."""


def judged(shell: Shell, evaluate: Callable[[], Status]) -> Status:
    """A condition, and what it is in a shell where nobody has set the variables that it is in doubt about."""
    try:
        found = evaluate()
    except _Wrong:
        return False
    if isinstance(found, bool) or shell.supposing:
        return found
    try:
        with shell.having(state=shell.state.copied(), supposing=True):
            fresh = evaluate()
    except _Wrong:
        fresh = found
    return replace(found, unset=fresh if isinstance(fresh, bool) else None)


def both(first: Status, second: Status) -> Status:
    """Whether two conditions hold."""
    if isinstance(first, bool):
        return second if first else False
    if isinstance(second, bool):
        return first if second else False
    holding = () if first.negated or second.negated else (*first.values, *second.values)
    unset = None if first.unset is None or second.unset is None else first.unset and second.unset
    return Doubt(
        f"{first.said} && {second.said}", first.line, first.names | second.names, unset,
        absent=first.absent and second.absent, values=holding, options=(*first.options, *second.options),
        status=first.status and second.status,
    )  # fmt: skip


def negation(status: Status) -> Status:
    """Whether a condition fails."""
    return not status if isinstance(status, bool) else status.flipped()


def either(first: Status, second: Status) -> Status:
    """Whether one of two conditions holds."""
    found = negation(both(negation(first), negation(second)))
    if isinstance(found, Doubt) and isinstance(first, Doubt) and isinstance(second, Doubt):
        return replace(found, text=f"{first.said} || {second.said}", negated=False, values=())
    return found


def doubt(shell: Shell, text: str, *values: str, absent: bool = False) -> Doubt:
    """A condition on values of which a part is not known."""
    names = frozenset(name for value in values for one in shell.unknowns.of(value) for name in one.names)
    return Doubt(shell.unknowns.shown(text), shell.line, names, absent=absent)


def test_words(shell: Shell, words: Sequence[str]) -> Status:
    """What the command ``test`` makes of its words."""
    found, rest = _any_of(shell, list(words))
    if rest:
        raise _Wrong
    return found


def _any_of(shell: Shell, words: list[str], sign: str = "-o") -> tuple[Status, list[str]]:
    """Conditions between signs, of which "-a" binds more than "-o", and the words behind them."""
    term, joint = (partial(_any_of, sign="-a"), either) if sign == "-o" else (_one_of, both)
    found, rest = term(shell, words)
    while rest[:1] == [sign]:
        second, rest = term(shell, rest[1:])
        found = joint(found, second)
    return found, rest


def _one_of(shell: Shell, words: list[str]) -> tuple[Status, list[str]]:
    if not words:
        return False, []
    first = words[0]
    if len(words) >= 3 and words[1] in _BINARY:
        return compared(shell, first, words[1], words[2]), words[3:]
    if first == "!" and len(words) > 1:
        found, rest = _one_of(shell, words[1:])
        return negation(found), rest
    if first == "(" and len(words) > 2:
        found, rest = _any_of(shell, words[1:])
        if rest[:1] != [")"]:
            raise _Wrong
        return found, rest[1:]
    if len(words) > 1 and re.fullmatch(r"-[a-zA-Z]", first) and (len(words) == 2 or words[2] in {"-a", "-o", ")"}):
        return asked_of(shell, first, words[1]), words[2:]
    if len(words) > 1 and words[1] not in {"-a", "-o", ")"}:
        raise _Wrong
    return negation(_empty(shell, first)), words[1:]


_NUMERIC: Final[dict[str, Callable[[int, int], bool]]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-lt": operator.lt, "-le": operator.le, "-gt": operator.gt,
    "-ge": operator.ge,
}  # fmt: skip
_BINARY: Final = {"=", "==", "!=", "<", ">", "-nt", "-ot", "-ef", *_NUMERIC}


def compared(shell: Shell, left: str, sign: str, right: str, *, shown: str = "") -> Status:
    """Two texts compared; the right one is a pattern where ``shown`` has the text that it stands for."""
    if sign in {"!=", "-ne"}:
        return negation(compared(shell, left, "=" if sign == "!=" else "-eq", right, shown=shown))
    plain = shown or right
    if not is_known(left + right):
        found = doubt(shell, f"{left} {sign} {plain}", left, right)
        literal = sign in {"=", "==", "-eq"} and not (shown and plain != right.replace("\\", ""))
        pairs = _pairs(shell, left, plain) if literal and is_known(plain) else _pairs(shell, plain, left)
        return replace(found, values=pairs if literal else (), options=pairs)
    if sign in _NUMERIC:
        try:
            return _NUMERIC[sign](int(left), int(right))
        except ValueError:
            raise _Wrong from None
    if sign in {"<", ">"}:
        return left < right if sign == "<" else left > right
    if sign in {"-nt", "-ot", "-ef"}:
        return doubt(shell, f"{left} {sign} {plain}")
    return matches(left, right) if shown else left == right


def _pairs(shell: Shell, mark: str, literal: str) -> tuple[tuple[str, str], ...]:
    """The name and the value where a text is one unknown variable and the other is known."""
    found = shell.unknowns.of(mark)
    if len(found) != 1 or len(mark) != 1 or len(found[0].names) != 1 or not is_known(literal):
        return ()
    (name,) = found[0].names
    return ((name, literal),) if found[0].text in {f"${{{name}}}", f"${name}"} else ()


def _empty(shell: Shell, text: str) -> Status:
    if not text:
        return True
    if any(is_known(one) for one in text):
        return False
    return doubt(shell, f'-z "{text}"', text, absent=shell.unknowns.unset(text))


def asked_of(shell: Shell, sign: str, text: str) -> Status:
    """A test of one word: whether it is empty, a variable that is set, or a file."""
    if sign in {"-z", "-n"}:
        found = _empty(shell, text)
        return found if sign == "-z" else negation(found)
    if sign == "-v":
        name, _, index = text.partition("[")
        keys = {str(one) for one in elements(shell, name)}
        if keys or shell.supposing:
            return index.removesuffix("]") in keys if index else bool(keys)
        return Doubt(f"-v {text}", shell.line, frozenset({name}), absent=True)
    there = sign in {"-f", "-e", "-s", "-r"} and has_file(shell, text)
    return there if there or not text else doubt(shell, f"{sign} {text}", text)


def has_file(shell: Shell, name: str) -> bool:
    """Whether the script wrote a file or the user gave it."""
    return name in shell.state.files or any(PurePath(one).name == PurePath(name).name for one in shell.files)


def bracketed(shell: Shell, node: Node) -> Status:
    """A condition in brackets."""
    if node.children[0].type == "[":
        return judged(shell, lambda: test_words(shell, _operands(shell, node)))
    inner = [one for one in node.named_children if one.type != "comment"]
    if node.children[0].type == "((" or not inner:
        return doubt(shell, source(node))
    return judged(shell, lambda: _expression(shell, inner[0]))


_WORDS: Final = frozenset({"binary_expression", "unary_expression", "parenthesized_expression"})


def _operands(shell: Shell, node: Node) -> list[str]:
    """The words between single brackets, as the command ``test`` gets them."""
    found: list[str] = []
    for cut in touching(node.children[1:-1] if node.type == "test_command" else node.children):
        if len(cut) > 1 and all(one.is_named and one.type not in _WORDS for one in cut):
            found += fields(shell, *cut)  # one word, which the grammar has cut
        else:
            found += [word for one in cut for word in _operand(shell, one)]
    return found


def _operand(shell: Shell, node: Node) -> list[str]:
    if node.type in _WORDS:
        return _operands(shell, node)
    if node.type == "test_operator" or not node.is_named:
        return [source(node).replace("\\", "")] if node.type != ";" else []
    return fields(shell, node)


def _expression(shell: Shell, node: Node) -> Status:  # noqa: PLR0911 - a kind of node each
    if node.type == "parenthesized_expression":
        return _expression(shell, node.named_children[0])
    if node.type == "unary_expression":
        sign = source(node.children[0])
        operand = node.children[-1]
        if sign == "!":
            return negation(_expression(shell, operand))
        return asked_of(shell, sign, joined(shell, operand))
    if node.type != "binary_expression":
        return negation(_empty(shell, joined(shell, node)))
    left, sign, right = node.children[0], source(node.children[1]), node.children[-1]
    if sign in {"&&", "||", "-a", "-o"}:
        first = _expression(shell, left)
        if isinstance(first, bool) and first == (sign in {"||", "-o"}):
            return first
        second = _expression(shell, right)
        return both(first, second) if sign in {"&&", "-a"} else either(first, second)
    return _relation(shell, node)


def _relation(shell: Shell, node: Node) -> Status:
    """A comparison. The grammar cuts a pattern with quotes in it: all that follows the sign is the right side."""
    core = node
    while source(core.children[1]) not in _RELATIONS and core.children[0].type == "binary_expression":
        core = core.children[0]
    left, sign = joined(shell, core.children[0]), source(core.children[1])
    parts = ranged(shell, node, start_of(core.children[2]), node.end_byte, PLAIN)
    text = text_of(parts)
    if sign == "=~":
        return _matched(shell, left, parts)
    if sign in {"=", "==", "!="}:
        if text:
            return compared(shell, left, sign, pattern_of(parts), shown=text)
        return _empty(shell, left) if sign != "!=" else negation(_empty(shell, left))
    if sign in _NUMERIC and is_known(left + text):
        numbers = [number_of(shell, one) for one in (left, text)]
        if None in numbers:
            return doubt(shell, f"{left} {sign} {text}", left, text)
        left, text = (str(one) for one in numbers)
    return compared(shell, left, sign, text)


def _matched(shell: Shell, left: str, parts: Sequence[Part]) -> Status:
    """A regular expression of POSIX, which Python's takes but for its classes."""
    expression = ""
    for one in parts:  # an escaped character is a literal part of its own
        escaped = one.quoted and one.literal and len(one.text) == 1
        expression += f"\\{one.text}" if escaped else one.text if not one.quoted or one.literal else re.escape(one.text)
    for name, meant in {"digit": "0-9", "alpha": "a-zA-Z", "alnum": "a-zA-Z0-9", "space": r"\s"}.items():
        expression = expression.replace(f"[:{name}:]", meant)
    if not is_known(left + expression):
        return doubt(shell, f"{left} =~ {expression}", left, expression)
    affordable(left, expression, anywhere=int(not expression.startswith("^")))
    try:
        found = re.search(expression, left)
    except re.error:
        raise _Wrong from None
    if found:
        texts = [found[0], *(one or "" for one in found.groups())]
        shell.state.variables["BASH_REMATCH"] = dict(enumerate(texts))
    return found is not None


_RELATIONS: Final = frozenset({*_BINARY, "=~"})
