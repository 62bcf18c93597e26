"""Variables of a shell, and arithmetic on them: ``$(( ))``, ``(( ))``, ``let`` and indices."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final

from planner.errors import BadRequest
from planner.jobs.shell.parsing import Node, parsed, part
from planner.jobs.shell.state import DEPTH, Array, Shell, is_known

_ALWAYS: Final = {"HOME": "~", "PWD": ".", "OLDPWD": ".", "IFS": " \t\n", "OPTIND": "1", "UID": "1000", "EUID": "1000"}
"""What every shell has; paths stay as short as they can be said."""
_CHANGING: Final = frozenset({
    "RANDOM", "SECONDS", "HOSTNAME", "PPID", "BASHPID", "USER", "LOGNAME", "LINENO", "EPOCHSECONDS", "PATH", "SHELL",
})  # fmt: skip
"""What every shell has, and nobody knows beforehand."""


def value_of(shell: Shell, name: str, key: int | str | None = None) -> str | None:
    """What a variable holds, or an element of one; None where it is not set."""
    state = shell.state
    if name in state.variables:
        held = state.variables[name]
        if not isinstance(held, dict):
            return held if key in {None, 0, -1} else None
        if isinstance(key, int) and key < 0 and held:
            key += max(held) + 1
        return held.get(0 if key is None else key)
    if key not in {None, 0}:
        return None
    if name in state.given or name in shell.environment:
        return state.given.get(name, shell.environment.get(name))
    if name in _CHANGING:
        return shell.unknown(f"${name}")
    return shell.name if name == "BASH_SOURCE" else _ALWAYS.get(name)


def elements(shell: Shell, name: str) -> Array:
    """The elements of a variable, of one that is no list the one that it holds."""
    held = shell.state.variables.get(name, value_of(shell, name))
    if isinstance(held, dict):
        return held if name in shell.state.associative else dict(sorted(held.items()))
    return {} if held is None else {0: held}


def assign(
    shell: Shell, name: str, value: str | Array, *, index: int | str | None = None, append: bool = False
) -> None:
    """Set a variable or an element of one; what the script cannot know of it is what the user gave under its name."""
    variables = shell.state.variables
    if isinstance(value, dict):
        whole = variables[name] = _appended(elements(shell, name), value) if append else value
        shell.affordable(sum(len(one) + 1 for one in whole.values()))
        return
    old = value_of(shell, name, index) or "" if append else ""
    settled = _settled(shell, name, old + value) if index is None else old + value
    shell.affordable(len(settled))
    held = variables.get(name)
    if index is None and not isinstance(held, dict):
        variables[name] = settled
        return
    if not isinstance(held, dict):
        held = variables[name] = {} if held is None else {0: held}
    place = 0 if index is None else index
    if isinstance(place, int) and place < 0 and held:
        place += max(held) + 1
    held[place] = settled


def _appended(old: Array, new: Array) -> Array:
    if any(isinstance(key, str) for key in (*old, *new)):
        return old | new
    start = max(old, default=-1) + 1
    return old | {start + place: value for place, value in enumerate(new.values())}


def _settled(shell: Shell, name: str, value: str) -> str:
    """A value, where its unknown parts are called by the variable: that is how a user can give them."""
    if is_known(value):
        return value
    if name in shell.environment:
        return shell.environment[name]
    for mark in set(value):
        for one in shell.unknowns.of(mark):
            if not one.names:
                text = f"${{{name}}}" if value == mark else one.text
                value = value.replace(mark, shell.unknowns.mark(text, one.line, (name,)))
    return value


def unset(shell: Shell, name: str) -> None:
    """Forget a variable or an element, or a function of that name."""
    plain, _, index = name.partition("[")
    held = shell.state.variables.get(plain)
    if index and isinstance(held, dict):
        key = index.removesuffix("]")
        held.pop(key if plain in shell.state.associative or not key.isdecimal() else int(key), None)
        return
    shell.state.variables.pop(name, None)
    shell.state.functions.pop(name, None)
    shell.state.exported.discard(name)


def exported(shell: Shell) -> dict[str, str]:
    """Variables that commands see, by name."""
    given = {**shell.environment, **shell.state.given}
    found = {name: value for name, value in given.items() if name.isidentifier() and name not in shell.state.variables}
    for name in sorted(shell.state.exported | set(given)):
        held = shell.state.variables.get(name)
        if isinstance(held, str):
            found[name] = held
    return found


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
        holds = _node(shell, part(node, "condition"), depth)
        return _node(shell, part(node, "consequence" if holds else "alternative"), depth)
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
    name, key = element(shell, (target.text or b"").decode())
    assign(shell, name, str(_wrapped(value)), index=key)


def element(shell: Shell, text: str) -> tuple[str, str | int | None]:
    """A variable and the key of its element, None where the text has no index."""
    name, _, index = text.partition("[")
    inner = index.removesuffix("]")
    return name, (inner if name in shell.state.associative else number_of(shell, inner) or 0) if inner else None


def _atom(shell: Shell, text: str, depth: int) -> int:
    if text[:1].isdigit():
        base, _, digits = text.partition("#")
        if digits:
            return int(digits, int(base))
        return int(text, 16) if text[:2] in {"0x", "0X"} else int(text, 8 if text[0] == "0" else 10)
    name, key = element(shell, text)
    value = value_of(shell, name, key)
    if value is None and name not in shell.state.variables:
        raise _Missing(shell.unknown(f"${{{name}}}", name, fresh=True)) if not shell.supposing else ValueError
    if value is not None and not is_known(value):
        raise _Missing(value)
    return _evaluated(shell, value or "", depth + 1)
