"""Single fields of the stack and the model, changed by path: ``stack.dispatcher``, ``model.sliding_window``.

A stack's switches stand right below it (``stack.dispatcher``, or ``dispatcher`` alone), its costs in their groups
(``stack.overlap.pp``). It also takes whole features of another one, by the names that ``plan compare`` gives them:
``stack.pipeline-overlap = "megascale"``. Values are written as in a stack's or a model's file, or as a multiple of what
is there: "2x". Several are made in the order in which they are given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from costmodels.model.model import Model, checked
from costmodels.stack.combined import COMBINED, SWITCHES
from costmodels.stack.renamed import new_path
from costmodels.stack.stack import GROUPS, PATHS, Stack
from costmodels.stack.stack import stack as find_stack
from hardware.errors import meant, no_such
from planner.errors import BadRequest
from planner.request.features import FEATURES, turned
from planner.request.values import changed_value

ROOTS: Final = ("stack", "model")
_TABLES: Final = frozenset({*ROOTS, *(f"stack.{group}" for group in GROUPS)})
FIXED: Final = frozenset(
    f"calibrated.{name}" for name in ("basis", "own_runs", "uncorrected", "covariance", "memory_runs")
)
"""What a stack's constants rest on."""
_SWITCHES: Final = "switches."
NOTES_OF_MODEL: Final = frozenset(
    {"name", "title", "family", "source", "reach", "tokens", "batch_tokens", "published_parameters"}
)
"""Fields of a model that the time of an iteration does not depend on."""
_WORDS: Final = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False, "none": None}


_FEATURES: Final = {re.sub(r"[ ,]+", "-", feature): fields for feature, fields in FEATURES.items()}


def flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Paths and values of nested tables, of which one that holds nothing is a value too."""
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def known_changes(table: Mapping[str, Any]) -> dict[str, Any]:
    """Paths in full and values of nested tables of changes.

    Raises:
        BadRequest: a path leads nowhere, or to a value in whose place a table stands.
    """
    found = {}
    for path, value in flat(table):
        if not isinstance(value, Mapping):
            found[known_path(path)] = value
        elif path not in _TABLES:
            known_path(path)
            raise BadRequest(f"{path}: expected a value, got an empty table")
    return found


def known_path(path: str) -> str:
    """The path, in full, where it leads to a field of the stack or the model, or to a feature of the stack.

    Raises:
        BadRequest: it does not, with the name that it has now, or the nearest one that does.
    """
    if path in SWITCHES:
        return f"stack.{path}"
    root, _, name = path.partition(".")
    if root == "cluster":
        raise BadRequest(f"{path}: this option does not change machines; a cluster file or a study (`plan sweep`) does")
    if root not in ROOTS or not name:
        near = no_such(path, SWITCHES) if path.isidentifier() and root not in ROOTS else ""
        hint = near if "did you mean" in near else "expected stack. or model. and a field, such as stack.overlap.pp"
        raise BadRequest(f"{path!r:.60}: {hint}")
    known = _SETTABLE if root == "stack" else set(Model.model_fields) - NOTES_OF_MODEL
    if name not in known:
        now = None
        if root == "stack":
            now = name if name.startswith(_SWITCHES) and name in PATHS else new_path(name, PATHS)
        if now is None or now in FIXED:
            listed = "`plan show STACK -v` lists the fields" if root == "stack" else None
            raise BadRequest(f"{path}: there is no field {name!r:.60}; {meant(name, known, otherwise=listed)}")
        raise BadRequest(f"{path} is now stack.{written_path(now)}")
    return path


def written_path(path: str) -> str:
    """The path of a field below "stack." as people write it: that of a switch is its name."""
    return path.removeprefix(_SWITCHES)


_SETTABLE: Final = {written_path(path) for path in PATHS - FIXED} | set(COMBINED) | set(_FEATURES)
"""Fields and features of a stack that can be set."""


def changed_stack(stack: Stack, changes: Mapping[str, Any]) -> Stack:
    """The stack with those of the changes that are its own; it keeps its name.

    Raises:
        BadRequest: a value that does not belong there, a feature of a stack that does not exist.
    """
    for path, value in changes.items():
        root, _, name = known_path(path).partition(".")
        if root == "stack":
            change = _with_feature if name in _FEATURES else _combined if name in COMBINED else _with_field
            stack = change(stack, name, value)
    return stack


def _with_feature(stack: Stack, name: str, value: Any) -> Stack:
    """The stack with one feature as another stack has it."""
    if not isinstance(value, str):
        raise BadRequest(
            f"stack.{name}: expected the name of a stack to take it from, such as megascale, got {value!r:.40}"
        )
    return turned(stack, find_stack(value), list(_FEATURES[name]))


def _combined(stack: Stack, name: str, value: Any) -> Stack:
    """The stack with the fields that a value of a switch stands for."""
    known = COMBINED[name].fields
    said = value.strip().lower() if isinstance(value, str) else value
    wanted = _WORDS.get(said, said) if isinstance(said, str) else said
    if not isinstance(wanted, str | bool) or wanted not in known:
        expected = " or ".join(str(one).lower() for one in known)
        raise BadRequest(f"stack.{name}: expected {expected}, got {value!r:.40}")
    return stack.changed(known[wanted])


def _with_field(stack: Stack, name: str, value: Any) -> Stack:
    inside = name if "." in name else f"{_SWITCHES}{name}"
    group, _, field = inside.partition(".")
    return stack.changed({inside: changed_value(GROUPS[group], field, stack.value(inside), value, f"stack.{name}")})


def changed_model(model: Model, changes: Mapping[str, Any]) -> Model:
    """The model with those of the changes that are its own, checked as a whole; it keeps its name.

    Raises:
        BadModel: sizes and switches that contradict each other.
    """
    fields = {
        name: changed_value(Model, name, getattr(model, name), value, path)
        for path, value in changes.items()
        if (name := path.removeprefix("model.")) != path
    }
    return checked(model.model_dump() | fields, label=model.name) if fields else model


def written(value: Any) -> str:
    """A value as it is given on a command line."""
    if isinstance(value, bool) or value is None:
        return "none" if value is None else str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
