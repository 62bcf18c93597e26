"""Python as files of jobs have it, by its syntax and never run: programs, constants and dotted names."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip
_LARGEST: Final = 2**53


def program_of(text: str) -> ast.Module:
    """A program by its syntax; an empty one where a text is none."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def value_of(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """A constant, or what known names, ``dict(...)`` and sums make of some; an ellipsis where it is more than these."""
    match node:
        case ast.Name(id=name):
            return known.get(name, ...)
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            return {one.arg: value_of(one.value, known) for one in keywords if one.arg}
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key)):
            table = known.get(name)
            return table.get(key, ...) if isinstance(table, dict) else ...
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _calculated(op, value_of(left, known), value_of(right, known))
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ...


def _calculated(op: ast.operator, left: Any, right: Any) -> Any:
    """A sum or product of numbers; an ellipsis of anything else, or where it divides by nothing."""
    if not all(isinstance(side, int | float) and abs(side) < _LARGEST for side in (left, right)):
        return ...
    return ... if isinstance(op, ast.Div | ast.FloorDiv) and not right else _OPERATORS[type(op)](left, right)


def dotted(value: ast.expr) -> str:
    """A name with the names of its attributes; empty where it is none."""
    names: list[str] = []
    while isinstance(value, ast.Attribute):
        names.append(value.attr)
        value = value.value
    return ".".join([value.id, *reversed(names)]) if isinstance(value, ast.Name) else ""
