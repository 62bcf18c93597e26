"""A study is checked before any work: every value of every axis, every filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

from costmodels.stack.stack import stack as find_stack
from planner.errors import BadRequest, MeshwrightError
from planner.request.fields import DEFAULT_CLUSTER, DEFAULT_STACK, GIVEN_SPLIT
from planner.request.overrides import changed_model, changed_stack
from planner.request.pins import parse_pins
from planner.studies.machines import changed_cluster
from planner.studies.question import request_of
from planner.studies.study import SCENARIO, Study, points_of

_NEEDED = ("model", "gpus", "seq_length")
"""What every request says, or its model may need, so that the reason for refusing any value may be theirs."""
_TRIED = 1000
"""Points on which filters are tried."""


def check(study: Study) -> None:
    """Refuse a study with a value that no request takes, or without a point.

    Raises:
        BadRequest: the first such value, or filters that leave nothing.
    """
    said = list(_said(study))
    first = {field: value for where, field, value in reversed(said) if not where}
    for where, field, value in said:
        _check_value(study, first, field, value, where)
    for root, changed in _CHANGED.items():
        _check_changes(root, changed, said, first)
    if not list(islice(points_of(study), _TRIED)):
        raise BadRequest("where: the filters leave no point; loosen one")


def _said(study: Study) -> Iterator[tuple[str, str, Any]]:
    """Every value of the study: where it stands, its field and itself."""
    for axis in chain.from_iterable(study.factors):
        if axis.field != SCENARIO:
            yield from (("", axis.field, value) for value in axis.values)
    for name, scenario in study.scenarios.items():
        yield from ((f"scenarios.{name}: ", field, value) for field, value in scenario.items())


def _check_value(study: Study, first: dict[str, Any], field: str, value: Any, where: str) -> None:
    """One value beside the first ones of the other axes, as far as it can be judged alone."""
    if "." in field and not field.startswith("pins."):
        return
    needed = {name: first[name] for name in _NEEDED if name in first}
    try:
        request = request_of(needed | {field: value})
        pins = parse_pins(request.pins)
        if field == "cluster" and isinstance(request.cluster, str):
            changed_cluster(request.cluster, ())
        if field == "stack" and isinstance(request.stack, str):
            find_stack(request.stack)
    except MeshwrightError as error:
        raise BadRequest(f"{where}{_placed(field, str(error))}") from None
    if study.mode == "predict" and any(len(pin.values) != 1 for pin in pins.values()):
        raise BadRequest(f"{where}{field}: mode predict prices one strategy at a time; {value!r} allows several")
    if study.mode == "search" and field in GIVEN_SPLIT:
        raise BadRequest(f'{where}{field}: a search chooses the layers; mode = "predict" takes them as given')


def _placed(field: str, reason: str) -> str:
    short = field.removeprefix("pins.")
    said = (f"{short}:", f"{short} ", *(f"{name}:" for name in _NEEDED), "unknown")
    return reason if reason.startswith(said) else f"{short}: {reason}"


def _check_changes(root: str, changed: Changed, said: Sequence[tuple[str, str, Any]], first: dict[str, Any]) -> None:
    """Every change of the machines, the stack or the model on every one of them in the study."""
    changes = [(field, value) for _, field, value in said if field.startswith(f"{root}.")]
    named = [value for _, field, value in said if field == root]
    if changes and root in DEFAULTS and root not in first:
        named.append(DEFAULTS[root])
    needed = {name: first[name] for name in _NEEDED if name in first}
    for name in named if changes else ():
        record = getattr(request_of(needed | {root: name}), root)
        for path, value in changes:
            changed(record, path, value)


DEFAULTS: Final = {"cluster": DEFAULT_CLUSTER, "stack": DEFAULT_STACK}
Changed = Callable[[Any, str, Any], object]
_CHANGED: Final[Mapping[str, Changed]] = {
    "cluster": lambda cluster, path, value: changed_cluster(cluster, ((path, value),)),
    "stack": lambda named, path, value: changed_stack(
        find_stack(named) if isinstance(named, str) else named, {path: value}
    ),
    "model": lambda model, path, value: changed_model(model, {path: value}),
}
"""What changes one field of a record by its path, by the field of the request that has the record."""
