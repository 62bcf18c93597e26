"""Megatron-Bridge's recipes in Python: a function or a script that sets ``cfg.model``, ``cfg.train`` and the like.

It is read by its syntax, never run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from planner.jobs.megatron.configurations import TYPES
from planner.jobs.nemo.python import FORMATS, Recipe, assigned, constants_of, dotted, said, value_of
from planner.jobs.values import program_of

_BEGINS: Final = re.compile(r"_?(?:\w+_)?(?:pretrain|sft|peft|finetune)_(?:\w*config|common)")
"""Functions that make a configuration: a recipe, or what recipes begin with."""
_PARTS: Final = ("model", "train", "ddp", "optimizer")
_PATHS: Final = {"mixed_precision": "mixed-precision", "dataset.seq_length": "seq-length", "peft.dim": "peft.dim"}
_GPUS: Final = re.compile(r"_(\d+)gpus?_")
_TAIL: Final = re.compile(r"_(?:pretrain|sft|peft|finetune)_.*")


def configurations_in(text: str) -> list[Recipe]:
    """The configurations that a script makes, in its order; the name of each is the function that makes it."""
    if "cfg." not in text and "config." not in text:
        return []
    module = program_of(text)
    scopes: list[tuple[str, Sequence[ast.stmt]]] = [("", module.body)]
    scopes += [(one.name, one.body) for one in ast.walk(module) if isinstance(one, ast.FunctionDef)]
    known = constants_of(module.body)
    found = [one for name, body in scopes for one in _of_body(name, body, known)]
    return [one for one in found if any("parallel_size" in path for path in one.values)]


def _of_body(name: str, body: Sequence[ast.stmt], known: Mapping[str, Any]) -> Iterator[Recipe]:
    found: dict[str, Recipe] = {}
    for target, value in assigned(body):
        called = dotted(value.func) if isinstance(value, ast.Call) else ""
        begins = called.rpartition(".")[2]
        front, _, path = target.partition(".")
        if _BEGINS.fullmatch(begins) and not path:
            found[target] = Recipe(begins if _TAIL.search(begins) and not begins.endswith("_common") else name, begins)
        elif front in found and path:
            found[front].values[path] = _value(value, known)
    yield from found.values()


def _value(value: ast.expr, known: Mapping[str, Any]) -> Any:
    if isinstance(value, ast.Attribute):
        return TYPES.get(dotted(value), ...)
    if isinstance(value, ast.Call) and (format_ := FORMATS.fullmatch(dotted(value.func))):
        return format_[1]
    if isinstance(value, ast.Call):
        return next(
            (one.value for one in ast.walk(value) if isinstance(one, ast.Constant) and "/" in str(one.value)), ...
        )
    return value_of(value, known)


def words_of_configuration(made: Recipe) -> tuple[dict[str, list[str]], set[str], int | None]:
    """The options that a configuration stands for, those that are no constants, and the devices that its name says."""
    words: dict[str, list[str]] = {}
    open_ = set()
    model = made.values.get("model", ...)
    name = _TAIL.sub("", made.name).replace("_", "-") if model is ... else model
    for path, value in made.values.items():
        part, _, rest = path.partition(".")
        word = _PATHS.get(path) or (rest.replace("_", "-") if part in _PARTS else "")
        if word and value is ...:
            open_.add(word)
        elif word and value is not None:
            words[word] = said(value)
    gpus = _GPUS.search(made.name)
    return {"recipe": [str(name)], "mixed-precision": ["bf16_mixed"], **words}, open_, int(gpus[1]) if gpus else None
