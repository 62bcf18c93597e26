"""A study is checked before any work: every value of every axis, every filter."""

from __future__ import annotations

from itertools import islice
from typing import Any

from costmodels.model.catalogue import model as find_model
from costmodels.stack.stack import stack as find_stack
from planner.errors import BadRequest, MeshwrightError
from planner.request.fields import DEFAULT_CLUSTER, DEFAULT_STACK, GIVEN_SPLIT
from planner.request.overrides import ROOTS, changed_model, changed_stack, known_path
from planner.request.pins import parse_pins
from planner.request.tables import model_of, stack_of
from planner.studies.machines import changed_cluster
from planner.studies.question import request_of
from planner.studies.study import SCENARIO, Study, points_of

_CHANGED = tuple(f"{root}." for root in ROOTS)
_NEEDED = ("model", "gpus", "seq_length")
"""What every request says, or its model may need, so that the reason for refusing any value may be theirs."""
_TRIED = 1000
"""Points on which filters are tried."""


def check(study: Study) -> None:
    """Refuse a study with a value that no request takes, or without a point.

    Raises:
        BadRequest: the first such value, or filters that leave nothing.
    """
    first = {axis.field: axis.values[0] for factor in study.factors for axis in factor if axis.field != SCENARIO}
    for factor in study.factors:
        for axis in factor:
            if axis.field != SCENARIO:
                for value in axis.values:
                    _check_value(study, first, axis.field, value)
    for name, scenario in study.scenarios.items():
        for field, value in scenario.items():
            _check_value(study, first, field, value, f"scenarios.{name}: ")
    _check_machines(study)
    _check_records(study)
    if not list(islice(points_of(study), _TRIED)):
        raise BadRequest("where: the filters leave no point; loosen one")


def _check_value(study: Study, first: dict[str, Any], field: str, value: Any, where: str = "") -> None:
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


def _check_machines(study: Study) -> None:
    """Every change of the machines on every cluster of the study."""
    values = {axis.field: axis.values for factor in study.factors for axis in factor}
    changes = [(field, value) for field, many in values.items() if field.startswith("cluster.") for value in many]
    for scenario in study.scenarios.values():
        changes += [(field, value) for field, value in scenario.items() if field.startswith("cluster.")]
    clusters = list(values.get("cluster", (DEFAULT_CLUSTER,)))
    clusters += [scenario["cluster"] for scenario in study.scenarios.values() if "cluster" in scenario]
    for name in clusters if changes else ():
        needed = {field: values[field][0] for field in _NEEDED if field in values}
        base = request_of(needed | {"cluster": name}).cluster
        for change in changes:
            changed_cluster(base, (change,))


def _check_records(study: Study) -> None:
    """Every change of the stack and the model on every one of them in the study."""
    values = {axis.field: axis.values for factor in study.factors for axis in factor}
    said = [values, *({name: (value,) for name, value in one.items()} for one in study.scenarios.values())]
    changes = [(path, new) for one in said for path, many in one.items() if path.startswith(_CHANGED) for new in many]
    length = next(iter(values.get("seq_length", ())), None)
    for path, new in changes:
        known_path(path)
        for one in said:
            for name in one.get("stack", () if one is not values else (DEFAULT_STACK,)):
                changed_stack(find_stack(name) if isinstance(name, str) else stack_of(name), {path: new})
            for name in one.get("model", ()):
                changed_model(find_model(name, length) if isinstance(name, str) else model_of(name), {path: new})
