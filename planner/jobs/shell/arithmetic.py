"""Arithmetic of the shell: ``$(( ))``, ``(( ))``, ``let`` and indices."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from planner.errors import BadRequest
from planner.jobs.shell.parsing import parsed
from planner.jobs.shell.state import DEPTH, Shell
from planner.jobs.shell.values import is_known
from planner.jobs.shell.variables import assign, value_of

if TYPE_CHECKING:
    from tree_sitter import Node


class _Missing(Exception):
    """A number hangs on what is not known."""

    def __init__(self, value: str) -> None:
        super().__init__()
        self.value = value


def _quotient(left: int, right: int) -> int:
    if not right:
        raise ValueError
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


def _power(left: int, right: int) -> int:
    if not 0 <= right <= 1000:
        raise ValueError
    return left**right


_BINARY: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _quotient, "**": _power,
    "%": lambda left, right: left - right * _quotient(left, right),
    "<<": lambda left, right: left << min(max(right, 0), 64), ">>": lambda left, right: left >> min(max(right, 0), 64),
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_UNARY: Final[dict[str, Callable[[int], int]]] = {
    "-": operator.neg, "+": operator.pos, "!": operator.not_, "~": operator.invert,
}  # fmt: skip


def calculated(shell: Shell, text: str, shown: str = "") -> str:
    """The number of an expression as text; what is not known stays so, by the expression as the script writes it."""
    number, value = _number_of(shell, text)
    return str(number) if number is not None else shell.derived(shown or f"$(({text}))", value)


def number_of(shell: Shell, text: str) -> int | None:
    """The number of an expression, None where it is not known."""
    return _number_of(shell, text)[0]


def _number_of(shell: Shell, text: str) -> tuple[int | None, str]:
    if not is_known(text):
        return None, text
    try:
        return _wrapped(_evaluated(shell, text, 0)), ""
    except _Missing as missing:
        return None, missing.value
    except ValueError:
        return None, text


def _wrapped(number: int) -> int:
    """As a signed number of 64 bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _evaluated(shell: Shell, text: str, depth: int) -> int:
    shell.spend()
    plain = text.strip()
    if not plain:
        return 0
    if plain.isascii() and plain.isdecimal() and (plain[0] != "0" or plain == "0") and len(plain) < 19:
        return int(plain)
    if depth > DEPTH:
        raise BadRequest(f"line {shell.line}: this expression refers to itself: {text}")
    root = parsed(f"(({plain.replace(chr(10), ' ')}))")
    statement = root.named_children[0] if root.named_children else root
    if root.has_error or statement.type != "compound_statement":
        raise ValueError
    results = [_node(shell, one, depth) for one in statement.named_children]
    return results[-1] if results else 0


def _node(shell: Shell, node: Node, depth: int) -> int:
    kind = node.type
    if kind in {"number", "variable_name", "word", "subscript"}:
        return _atom(shell, (node.text or b"").decode(), depth)
    if kind == "parenthesized_expression":
        return [_node(shell, one, depth) for one in node.named_children][-1]
    if kind == "unary_expression":
        return _prefixed(shell, node, depth)
    if kind == "postfix_expression":
        target = node.children[0]
        old = _node(shell, target, depth)
        _set(shell, target, old + (1 if node.children[-1].type == "++" else -1))
        return old
    if kind == "ternary_expression":
        condition, first, second = (
            node.child_by_field_name(one) for one in ("condition", "consequence", "alternative")
        )
        assert condition is not None
        assert first is not None
        assert second is not None
        return _node(shell, first if _node(shell, condition, depth) else second, depth)
    if kind in {"binary_expression", "variable_assignment"}:
        return _binary(shell, node, depth)
    raise ValueError


def _prefixed(shell: Shell, node: Node, depth: int) -> int:
    sign, target = node.children[0].type, node.children[-1]
    value = _node(shell, target, depth)
    if sign in {"++", "--"}:
        value += 1 if sign == "++" else -1
        _set(shell, target, value)
        return value
    return int(_UNARY[sign](value))


def _binary(shell: Shell, node: Node, depth: int) -> int:
    left, sign, right = node.children[0], node.children[1].type, node.children[-1]
    if sign == "=":
        value = _node(shell, right, depth)
        _set(shell, left, value)
        return value
    if sign.endswith("=") and sign[:-1] in _BINARY and sign not in _BINARY:
        value = int(_BINARY[sign[:-1]](_node(shell, left, depth), _node(shell, right, depth)))
        _set(shell, left, value)
        return value
    first = _node(shell, left, depth)
    if sign in {"&&", "||"}:
        return int(bool(_node(shell, right, depth) if bool(first) == (sign == "&&") else first))
    if sign not in _BINARY:
        raise ValueError
    return int(_BINARY[sign](first, _node(shell, right, depth)))


def _set(shell: Shell, target: Node, value: int) -> None:
    name, _, index = (target.text or b"").decode().partition("[")
    assign(shell, name, str(_wrapped(value)), index=_key(shell, name, index.removesuffix("]")) if index else None)


def _key(shell: Shell, name: str, index: str) -> str | int:
    return index if name in shell.state.associative else (number_of(shell, index) or 0)


def _atom(shell: Shell, text: str, depth: int) -> int:
    if text[:1].isdigit():
        base, _, digits = text.partition("#")
        if digits:
            return int(digits, int(base))
        return int(text, 16) if text[:2] in {"0x", "0X"} else int(text, 8 if text[0] == "0" else 10)
    name, _, index = text.partition("[")
    value = value_of(shell, name, _key(shell, name, index.removesuffix("]")) if index else None)
    if value is None and name not in shell.state.variables:
        raise _Missing(shell.unknown(f"${{{name}}}", name, fresh=True)) if not shell.supposing else ValueError
    if value is not None and not is_known(value):
        raise _Missing(value)
    return _evaluated(shell, value or "", depth + 1)
