"""Filters: which points of a product a study keeps, as small expressions over its fields.

``gpus * 8 >= global_batch_size``, ``model != '175b' or gpus >= 512``, ``cluster.fabric.bandwidth > '100 GB/s'``.
Comparisons, ``and``, ``or``, ``not``, ``in``, arithmetic with ``+ - * / // %``; nothing is ever executed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from hardware.units import Dimension, parse_quantity
from planner.errors import BadQuantity, BadRequest
from planner.request.fields import field_of, unknown_field

_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_ORDER: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_EQUAL: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}


@dataclass(frozen=True)
class Filter:
    """One expression, already read."""

    text: str
    tree: ast.expr

    def keeps(self, fields: Mapping[str, Any]) -> bool:
        """Whether a point with those fields stays.

        Raises:
            BadRequest: the expression makes no sense of them.
        """
        try:
            return bool(_value(self.tree, fields))
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            raise BadRequest(f"where: {self.text}: {error}") from None


def read_filter(text: object, known: set[str]) -> Filter:
    """A filter from its text.

    ``known`` are the fields that the study sets.

    Raises:
        BadRequest: not an expression, or one about something that the study does not set.
    """
    if not isinstance(text, str):
        raise BadRequest(f'where: expected expressions such as "gpus >= 512", got {text!r:.40}')
    try:
        tree = _Names().visit(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadRequest(f'where: {text!r:.60} is not an expression such as "gpus * 8 >= global_batch_size"') from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            raise BadRequest(f"where: {text}: only fields have dots, as in cluster.fabric.bandwidth")
        if not isinstance(node, _ALLOWED):
            what = f"{type(node).__name__.lower()} is not understood"
            raise BadRequest(f"where: {text}: {what}; comparisons, and, or, not, in and arithmetic are")
        if isinstance(node, ast.Name):
            field = node.id if node.id == "scenario" else field_of(node.id)
            if field not in known:
                every = {name.removeprefix("pins.") for name in known}
                why = f"the study does not set {node.id}" if field else unknown_field(node.id, every)
                raise BadRequest(f"where: {text}: {why}")
            node.id = field
    return Filter(text, tree)


class _Names(ast.NodeTransformer):
    """Makes one name of one with dots."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        node.value = self.visit(node.value)
        return ast.Name(f"{node.value.id}.{node.attr}", ast.Load()) if isinstance(node.value, ast.Name) else node


_ALLOWED: Final = (
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Compare, ast.Constant),
    *(ast.Name, ast.Load, ast.List, ast.Tuple, *_ARITHMETIC, *_ORDER, *_EQUAL),
)


def _value(node: ast.expr, fields: Mapping[str, Any]) -> Any:
    value: Any = None
    match node:
        case ast.Constant():
            value = node.value
        case ast.Name():
            value = fields.get(node.id)
        case ast.List() | ast.Tuple():
            value = [_value(item, fields) for item in node.elts]
        case ast.BoolOp():
            found = (_value(item, fields) for item in node.values)
            value = all(found) if isinstance(node.op, ast.And) else any(found)
        case ast.UnaryOp():
            inner = _value(node.operand, fields)
            value = not inner if isinstance(node.op, ast.Not) else -inner
        case ast.BinOp():
            value = _reckoned(node, fields)
        case ast.Compare():
            value = _compared(node, fields)
    return value


def _reckoned(node: ast.BinOp, fields: Mapping[str, Any]) -> Any:
    one, other = _value(node.left, fields), _value(node.right, fields)
    for side in (one, other):
        if not isinstance(side, int | float):
            raise TypeError(f"arithmetic needs numbers, got {side!r:.40}")
    return _ARITHMETIC[type(node.op)](one, other)


def _compared(node: ast.Compare, fields: Mapping[str, Any]) -> bool:
    left = _value(node.left, fields)
    for sign, side in zip(node.ops, node.comparators, strict=True):
        right = _value(side, fields)
        kind = type(sign)
        if kind in _ORDER:
            if not _ORDER[kind](_number(left), _number(right)):
                return False
        elif not _EQUAL[kind](left, right):
            return False
        left = right
    return True


def _number(value: Any) -> Any:
    """Text that is a quantity of any kind as its number in base units."""
    if not isinstance(value, str):
        return value
    for dimension in get_args(Dimension):
        try:
            return parse_quantity(value, dimension)
        except BadQuantity:
            continue
    raise TypeError(f"{value!r} has no order")
