"""torchtitan's Python configurations as tables: the functions of a registry are read by their syntax, never run.

A function makes a ``Trainer.Config(training=TrainingConfig(...), ...)``, or takes another one's, sets some of its
fields and returns it. What is no constant stays unknown and is named.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from planner.jobs.data import data
from planner.jobs.values import program_of

_TABLES: Final = ("training", "parallelism", "compile", "optimizer", "activation_checkpoint")
_POLICIES, _CONVERTERS = (data("torchtitan/words")[name] for name in ("policies", "converters"))
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
}  # fmt: skip
_DEPTH: Final = 8
"""Functions that take one another's configuration."""


@dataclass
class Configuration:
    """What a function makes.

    Attributes:
        tables: of the configuration.
        model: name of the function that began it, and the flavor that it asks the registry of models for.
        dispatch: what exchanges tokens with experts, which the registry of models is asked for.
        unknown: fields whose value is no constant.
    """

    tables: dict[str, Any] = field(default_factory=dict)
    model: tuple[str, str] = ("", "")
    dispatch: str = ""
    unknown: list[str] = field(default_factory=list)


def functions(text: str) -> dict[str, ast.FunctionDef]:
    """The functions of a file that make a configuration, by name.

    Those that only take one, as ``apply(config)`` does, are none.
    """
    found = {one.name: one for one in program_of(text).body if isinstance(one, ast.FunctionDef)}
    return {name: one for name, one in found.items() if _makes(one, found)}


def _makes(function: ast.FunctionDef, others: Mapping[str, ast.FunctionDef], depth: int = 0) -> bool:
    """Whether a function returns a Trainer.Config, of its own or another one's."""
    if function.args.args or depth > _DEPTH:
        return False
    called = [_name(one.func) for one in ast.walk(function) if isinstance(one, ast.Call)]
    if any(name.endswith("Trainer.Config") for name in called):
        return True
    return any(name in others and name != function.name and _makes(others[name], others, depth + 1) for name in called)


def configuration(text: str, name: str) -> Configuration:
    """What a function of a file makes, by name."""
    made = _made(functions(text), name, 0)
    made.tables.setdefault("model", {}).update(_family(made.model))
    if made.dispatch:
        made.tables.setdefault("parallelism", {})["expert_parallel_comm_backend"] = made.dispatch
    return made


def _made(known: Mapping[str, ast.FunctionDef], name: str, depth: int) -> Configuration:
    found, variables = Configuration(), dict[str, Any]()
    for statement in known[name].body:
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Return) and statement.value is not None:
            target = _target(statement)
            began = _beginning(statement.value, known, name, depth)
            if began is not None:
                found = began
            elif target.startswith("config."):
                _set(found, target.removeprefix("config."), statement.value, variables)
            elif target and "." not in target:
                variables[target] = statement.value
    for variable in variables.values():
        _flavor(found, variable)
    return found


def _target(statement: ast.Assign | ast.AnnAssign | ast.Return) -> str:
    if isinstance(statement, ast.Return):
        return ""
    return _name(statement.targets[0] if isinstance(statement, ast.Assign) else statement.target)


def _beginning(value: ast.expr, known: Mapping[str, ast.FunctionDef], own: str, depth: int) -> Configuration | None:
    """A configuration that begins here: one that is made, or another function's."""
    if not isinstance(value, ast.Call):
        return None
    called = _name(value.func)
    if called in known and called != own and depth < _DEPTH:
        return _made(known, called, depth + 1)
    if not called.endswith("Trainer.Config"):
        return None
    found = Configuration(model=(own, ""))
    for one in value.keywords:
        _set(found, one.arg or "", one.value, {})
        _flavor(found, one.value)
    return found


def _flavor(found: Configuration, value: ast.expr) -> None:
    """The size that the registry of models is asked for, and the products that it makes narrow."""
    for call in ast.walk(value):
        if isinstance(call, ast.Call) and _name(call.func).endswith("model_registry"):
            if call.args and isinstance(call.args[0], ast.Constant):
                found.model = (found.model[0], str(call.args[0].value))
            used = [_name(one.func).partition(".")[0] for one in ast.walk(call) if isinstance(one, ast.Call)]
            converters = [_CONVERTERS.get(one, one) for one in used if one.endswith("Converter")]
            backend = next((one.value for one in call.keywords if one.arg == "moe_comm_backend"), None)
            if isinstance(backend, ast.Constant):
                found.dispatch = str(backend.value)
            if converters:
                found.tables.setdefault("model", {})["converters"] = converters


def _set(found: Configuration, path: str, value: ast.expr, variables: Mapping[str, ast.expr]) -> None:
    """A field, or a whole table, of a configuration."""
    table, _, key = path.partition(".")
    if table == "activation_checkpoint" and not key:
        found.tables[table] = {"mode": _policy(value)} | _arguments(found, table, value, variables)
    elif table == "model_spec":
        _flavor(found, value)
    elif table in _TABLES and not key:
        found.tables[table] = _arguments(found, table, value, variables)
    elif table in _TABLES and "." not in key:
        _put(found, table, key, value, variables)


def _policy(value: ast.expr) -> str:
    """How activations are kept: None, FullAC.Config(), SelectiveAC.Config()."""
    if isinstance(value, ast.Constant) and value.value is None:
        return "none"
    name = _name(value.func) if isinstance(value, ast.Call) else ""
    return next((mode for policy, mode in _POLICIES.items() if policy in name), "selective")


def _arguments(found: Configuration, table: str, value: ast.expr, variables: Mapping[str, ast.expr]) -> dict[str, Any]:
    held: dict[str, Any] = {}
    for one in value.keywords if isinstance(value, ast.Call) else ():
        known, constant = _constant(one.value, variables)
        if known and constant is not None:
            held[one.arg or ""] = constant
        elif not known and table in {"training", "parallelism", "compile"}:
            found.unknown.append(f"{table}.{one.arg}")
    return held


def _put(found: Configuration, table: str, key: str, value: ast.expr, variables: Mapping[str, ast.expr]) -> None:
    known, constant = _constant(value, variables)
    held = found.tables.setdefault(table, {})
    if known and constant is not None:
        held[key] = constant
    else:
        held.pop(key, None)
        found.unknown += [] if known else [f"{table}.{key}"]


def _constant(value: ast.expr, variables: Mapping[str, ast.expr]) -> tuple[bool, Any]:
    """Whether an expression is a constant, and which."""
    if isinstance(value, ast.Name) and value.id in variables:
        return _constant(variables[value.id], {})
    if isinstance(value, ast.BinOp) and type(value.op) in _OPERATORS:
        (one, left), (other, right) = _constant(value.left, variables), _constant(value.right, variables)
        numbers = one and other and isinstance(left, int) and isinstance(right, int) and right != 0
        return (True, _OPERATORS[type(value.op)](left, right)) if numbers else (False, None)
    try:
        return True, ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False, None


def _name(value: ast.expr) -> str:
    """A dotted name, empty where an expression is none."""
    if isinstance(value, ast.Attribute):
        inner = _name(value.value)
        return f"{inner}.{value.attr}" if inner else value.attr
    return value.id if isinstance(value, ast.Name) else ""


def _family(model: tuple[str, str]) -> dict[str, str]:
    """Name and flavor of a model by the function that makes it, such as ``llama3_8b``."""
    function, flavor = model
    name = re.match(r"(?:[a-z]+_)?[a-z]+_?\d*?(?=_|$)", function)
    family = next((one for one in _FAMILIES if re.search(rf"(?:^|_){one}_", function)), name[0] if name else function)
    return {"name": family, "flavor": flavor} if flavor else {}


_FAMILIES: Final = ("llama3", "llama4", "deepseek_v3", "qwen3", "gpt_oss", "llama2")
