"""Recipes in Python, read by their syntax and never run: NeMo 2's, also on its command line, and Megatron-Bridge's.

NeMo 2 has ``llama3_8b.pretrain_recipe(num_nodes=2)`` and overrides; what a recipe sets itself is a row of
``recipes.toml``. Megatron-Bridge has a function or a script that sets ``cfg.model``, ``cfg.train`` and the like.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.megatron.configurations import TYPES
from planner.jobs.python_text import dotted, program_of, value_of
from planner.jobs.values import data, literal

_CALLS: Final = frozenset({"pretrain_recipe", "finetune_recipe"})
_ARGUMENTS: Final[Mapping[str, str]] = data("nemo/words")["arguments"]
"""Options by the arguments of a recipe."""
_ROWS: Final[Mapping[str, str]] = data("nemo/words")["rows"]
"""Options by the columns of the table."""
_PATHS: Final[Mapping[str, str]] = data("nemo/words")["paths"]
_PREFIXES: Final = ("trainer.strategy.ddp.", "trainer.strategy.", "model.config.", "optim.config.")
_WHOLE: Final = frozenset({"data.global_batch_size", "data.micro_batch_size", "data.seq_length"})
FORMATS: Final = re.compile(r"(?:\w+\.)*((?:bf16|fp16|nemotron_h)_\w*mixed)")


DECIDE: Final[Mapping[str, tuple[str, str]]] = {
    word: (field, option) for word, (field, option) in data("nemo/words")["decide"].items()
}
"""Options without which there is no price: the field of the request, and the option of ours that says it."""


_MOST: Final = 64
"""Ways through the branches of a function that are read."""


@dataclass
class Recipe:
    """A call of a recipe with what the script sets of it.

    Attributes:
        name: of the module, such as ``llama3_8b``.
        call: ``pretrain_recipe`` or ``finetune_recipe``.
        values: by argument or path of an attribute; None where it is no constant.
    """

    name: str
    call: str
    values: dict[str, Any] = field(default_factory=dict)


def known_recipes() -> Mapping[str, Mapping[str, Any]]:
    """What recipes set, by the names of their modules."""
    found: Mapping[str, Mapping[str, Any]] = data("nemo/recipes")["recipes"]
    return found


def words_of(recipe: Recipe) -> tuple[dict[str, list[str]], set[str]]:
    """The options that a recipe stands for, and those that neither the script nor the table says.

    A model that the script puts in the recipe's place has no name here.
    """
    row = known_recipes().get(recipe.name, {})
    own = recipe.call == "pretrain_recipe" and bool(row)
    usual = {"nnodes": 1, "nproc-per-node": 8}
    usual |= {"overlap-grad-reduce": bool(row.get("overlap")), "overlap-param-gather": bool(row.get("overlap"))}
    found: dict[str, Any] = {**usual, "grad-reduce-in-fp32": True, "mixed-precision": "bf16_mixed"}
    found |= {_ROWS[name]: value for name, value in row.items() if name in _ROWS and (own or name == "model")}
    if recipe.values.get("performance_mode"):
        found |= {"grad-reduce-in-fp32": False, "tp-comm-overlap": True}
    if recipe.call == "finetune_recipe":
        found |= {"seq-length": 2048, "global-batch-size": 128, "micro-batch-size": 1}
    open_ = set() if own else set(DECIDE) - {"nnodes", "nproc-per-node"} - set(found)
    for path, value in recipe.values.items():
        front = next((one for one in _PREFIXES if path.startswith(one)), path)
        word = _ARGUMENTS.get(path) or _PATHS.get(path) or path.removeprefix(front).replace("_", "-")
        if path in {"model", "model.config"}:
            found.pop("recipe", None)
        elif word and value is ...:
            found.pop(word, None)
            open_.add(word)
        elif word and value is None:
            found.pop(word, None)
        elif word:
            found[word] = value
            open_.discard(word)
    return {name: said(value) for name, value in found.items()}, open_


def said(value: Any) -> list[str]:
    """A value as the words of an option."""
    several = value if isinstance(value, list | tuple) else [value]
    return [str(one).lower() if isinstance(one, bool) else str(one) for one in several]


def recipes_in(text: str) -> list[Recipe]:
    """The recipes that a script calls, in its order, each with what its own function or module sets of it."""
    if not any(name in text for name in _CALLS):
        return []
    module = program_of(text)
    scopes: list[ast.Module | ast.FunctionDef] = [module]
    scopes += [one for one in ast.walk(module) if isinstance(one, ast.FunctionDef)]
    outer = constants_of(module.body)
    return [
        recipe
        for scope in scopes
        for body in islice(_ways(scope.body), _MOST)
        for recipe in _of_body(body, {**outer, **_defaults(scope), **constants_of(body)})
    ]


def _ways(body: Sequence[ast.stmt]) -> Iterator[Sequence[ast.stmt]]:
    """A body once for every arm of the branches that call a recipe."""
    for place, statement in enumerate(body):
        if isinstance(statement, ast.If) and any(getattr(one, "attr", "") in _CALLS for one in ast.walk(statement)):
            for arm in (statement.body, statement.orelse):
                yield from _ways([*body[:place], *arm, *body[place + 1 :]])
            return
    yield body


def _of_body(body: Sequence[ast.stmt], known: Mapping[str, Any]) -> Iterator[Recipe]:
    found: dict[str, Recipe] = {}
    for target, value in assigned(body):
        called = dotted(value.func) if isinstance(value, ast.Call) else ""
        module, _, call = called.rpartition(".")
        if call in _CALLS and isinstance(value, ast.Call) and module:
            given = {one.arg: value_of(one.value, known) for one in value.keywords if one.arg}
            found[target] = Recipe(module.rpartition(".")[2], call, given)
            continue
        front, _, path = target.partition(".")
        if front in found and path:
            found[front].values |= _set(path, value, known)
    yield from found.values()


def assigned(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """What a body's own statements set, and return, in their order; branches are passed over."""
    for statement in body:
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield dotted(statement.target), statement.value
        elif isinstance(statement, ast.Assign):
            yield from ((dotted(target), statement.value) for target in statement.targets)
        elif isinstance(statement, ast.Return) and statement.value is not None:
            yield "", statement.value
        elif isinstance(statement, ast.If | ast.With):
            body = [*statement.body, *getattr(statement, "orelse", ())]
            yield from ((target, ast.Name("?")) for target, _ in assigned(body))


def _set(path: str, value: ast.expr, known: Mapping[str, Any]) -> dict[str, Any]:
    """What an attribute is set to; of a configuration in its place, the arguments that it is given."""
    if isinstance(value, ast.Call) and path == "data":
        given = {f"data.{one.arg}": value_of(one.value, known) for one in value.keywords}
        return {name: one for name, one in given.items() if name in _WHOLE}
    if isinstance(value, ast.Call) and (format_ := FORMATS.fullmatch(dotted(value.func))):
        return {path: format_[1]}
    return {path: value_of(value, known)}


def constants_of(body: Sequence[ast.stmt]) -> dict[str, Any]:
    """The names that a body sets to constants."""
    found = {target: value_of(value, {}) for target, value in assigned(body) if target and "." not in target}
    return {name: value for name, value in found.items() if value is not ...}


def _defaults(scope: ast.Module | ast.FunctionDef) -> dict[str, Any]:
    """The constants that the arguments of a function have unless they are given."""
    if isinstance(scope, ast.Module):
        return {}
    last = scope.args.args[len(scope.args.args) - len(scope.args.defaults) :]
    return {one.arg: value_of(value, {}) for one, value in zip(last, scope.args.defaults, strict=True)}


_FACTORY: Final = re.compile(r"(\w+)(?:\((.*)\))?", re.DOTALL)


def recipe_of_command(words: Sequence[str]) -> Recipe:
    """The recipe of ``nemo llm pretrain --factory llama3_8b trainer.num_nodes=2``."""
    named = next((one for word, one in pairwise(words) if word in {"--factory", "-f"}), "")
    factory = _FACTORY.fullmatch(named)
    if factory is None:
        raise BadRequest("nemo llm: no recipe is named; --factory llama3_8b says one")
    called = ast.parse(f"recipe({factory[2] or ''})", mode="eval").body
    assert isinstance(called, ast.Call)
    given = {one.arg: value_of(one.value, {}) for one in called.keywords if one.arg}
    for path, sign, value in (word.partition("=") for word in words if "=" in word and not word.startswith("-")):
        given |= {path: literal(value)} if sign else {}
    return Recipe(factory[1], f"{'finetune' if 'finetune' in words else 'pretrain'}_recipe", given)


_BEGINS: Final = re.compile(r"_?(?:\w+_)?(?:pretrain|sft|peft|finetune)_(?:\w*config|common)")
"""Functions that make a configuration: a recipe, or what recipes begin with."""
_PARTS: Final = ("model", "train", "ddp", "optimizer")
_OF_BRIDGE: Final = {"mixed_precision": "mixed-precision", "dataset.seq_length": "seq-length", "peft.dim": "peft.dim"}
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
    found = [one for name, body in scopes for one in _configured(name, body, known)]
    return [one for one in found if any("parallel_size" in path for path in one.values)]


def _configured(name: str, body: Sequence[ast.stmt], known: Mapping[str, Any]) -> Iterator[Recipe]:
    found: dict[str, Recipe] = {}
    for target, value in assigned(body):
        called = dotted(value.func) if isinstance(value, ast.Call) else ""
        begins = called.rpartition(".")[2]
        front, _, path = target.partition(".")
        if _BEGINS.fullmatch(begins) and not path:
            found[target] = Recipe(begins if _TAIL.search(begins) and not begins.endswith("_common") else name, begins)
        elif front in found and path:
            found[front].values[path] = _set_to(value, known)
    yield from found.values()


def _set_to(value: ast.expr, known: Mapping[str, Any]) -> Any:
    if isinstance(value, ast.Attribute):
        return TYPES.get(dotted(value), ...)
    if isinstance(value, ast.Call) and (format_ := FORMATS.fullmatch(dotted(value.func))):
        return format_[1]
    if isinstance(value, ast.Call):
        constants = (one.value for one in ast.walk(value) if isinstance(one, ast.Constant))
        return next((one for one in constants if "/" in str(one)), ...)
    return value_of(value, known)


def words_of_configuration(made: Recipe) -> tuple[dict[str, list[str]], set[str], int | None]:
    """The options that a configuration stands for, those that are no constants, and the devices that its name says."""
    words: dict[str, list[str]] = {}
    open_ = set()
    model = made.values.get("model", ...)
    name = _TAIL.sub("", made.name).replace("_", "-") if model is ... else model
    for path, value in made.values.items():
        part, _, rest = path.partition(".")
        word = _OF_BRIDGE.get(path) or (rest.replace("_", "-") if part in _PARTS else "")
        if word and value is ...:
            open_.add(word)
        elif word and value is not None:
            words[word] = said(value)
    gpus = _GPUS.search(made.name)
    return {"recipe": [str(name)], "mixed-precision": ["bf16_mixed"], **words}, open_, int(gpus[1]) if gpus else None
