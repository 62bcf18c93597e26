"""A study as a file: axes over the fields of a request and of the machines, and which combinations of them to ask.

::

    name = "networks"
    models = ["22b", "175b"]                    # a list is an axis, one value holds for all
    gpus = { from = 64, to = 1024, times = 2 }  # a range: from, to, and step or times
    clusters = ["dgx-a100-80gb", "dgx-h100"]
    cluster.fabric.bandwidth = ["25 GB/s", "50 GB/s", "2x"]
    zip = [["models", "gpus"]]                  # axes that go in step instead of being crossed
    where = ["model != '175b' or gpus >= 512"]  # what is kept

    [pins]
    tp = ["..8", 8]                             # a value each; several allowed at once are text, "4,8"

    [scenarios.cheap]                           # a named set of values, one more axis
    cluster.price = "0.5x"

    [baseline]                                  # what every point is compared with
    cluster = "dgx-a100-80gb"

``mode = "predict"`` prices the strategies that the pins give instead of searching.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from costmodels.stack.stack import stack as find_stack
from hardware.files import expanded, read, read_text
from planner.errors import BadFile, BadRequest, MeshwrightError
from planner.jobs.yaml_text import yaml_table
from planner.request.fields import DEFAULT_CLUSTER, DEFAULT_STACK, GIVEN_SPLIT, field_of, unknown_field
from planner.request.files import with_profile, with_relative_files
from planner.request.overrides import changed_model, changed_stack
from planner.request.pins import parse_pins
from planner.studies.filters import read_filter
from planner.studies.machines import changed_cluster
from planner.studies.question import request_of
from planner.studies.ranges import axis_values, is_range, read_value
from planner.studies.study import SCENARIO, Axis, Mode, Study, points_of

LARGEST_STUDY: Final = 2_000_000
"""Points of a product, before filters."""
_WHOLE: Final[Mapping[str, set[str]]] = {
    "cluster": {"name", "nodes"},
    "stack": {"name", "title"},
    "model": {"num_layers", "hidden_size", "vocab_size"},
}
"""What a table has that is such a thing itself; any other changes fields of the one that is named."""
_OWN: Final = ("name", "mode", "zip", "where", "scenarios", "baseline")


def read_study(path: str | Path) -> Study:
    """A study from a TOML, JSON or YAML file, checked to the last value.

    Raises:
        BadFile: the file cannot be read.
        BadRequest: an unknown field, an empty axis, an impossible range or value, too many points.
    """
    place = expanded(path)
    document = yaml_table(read_text(place), place) if place.suffix.lower() in {".yaml", ".yml"} else _read(place)
    try:
        return study_of(with_profile(with_relative_files(document, place)), name=place.stem)
    except BadRequest as error:
        raise BadRequest(f"{path}: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    """A file of TOML or JSON; of a machine that is named and changed in one, how TOML lets both be said."""
    try:
        return read(path)
    except BadFile as error:
        if "Cannot overwrite" not in error.reason:
            raise
        text = read_text(path)
        for name in _WHOLE:
            named = re.search(rf"^\s*{name}\s*=\s*([^{{#\n]+)", text, re.MULTILINE)
            if named and re.search(rf"^\s*(\[\s*)?{name}\s*[.\]]", text, re.MULTILINE):
                way = f"together with its fields write its name as {name}s = {named[1].strip()}"
                raise BadFile(path, f"{name}: TOML takes a value or fields under one name; {way}") from None
        raise


def study_of(document: Mapping[str, Any], *, name: str = "study") -> Study:
    """The study that a parsed file describes.

    Raises:
        BadRequest: what is wrong with it, in one line.
    """
    given = _fields({key: value for key, value in document.items() if key not in _OWN}, "")
    axes = {
        field: Axis(field, tuple(read_value(field, value) for value in axis_values(field, values)))
        for field, values in given.items()
    }
    for field in ("model", "gpus"):
        if field not in axes:
            raise BadRequest(f"{field} is missing; give one value or a list of them")
    scenarios = _scenarios(_table(document, "scenarios"), axes)
    if scenarios:
        axes[SCENARIO] = Axis(SCENARIO, tuple(scenarios))
    factors = _zipped(axes, document.get("zip", []))
    product = math.prod(len(factor[0].values) for factor in factors)
    if product > LARGEST_STUDY:
        sizes = " x ".join(str(len(factor[0].values)) for factor in factors if len(factor[0].values) > 1)
        raise BadRequest(f"{sizes} = {product:,} points, at most {LARGEST_STUDY:,}; shorten an axis or zip two")
    known = {*axes, *(field for scenario in scenarios.values() for field in scenario)}
    where = document.get("where", [])
    study = Study(
        name=str(document.get("name", name)),
        mode=_mode(document.get("mode", "search")),
        factors=factors,
        scenarios=scenarios,
        where=tuple(read_filter(text, known) for text in _conditions(where)),
        baseline=_baseline(_table(document, "baseline"), factors),
    )
    _check(study)
    return study


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, Mapping):
        raise BadRequest(f"{name}: expected a table, [{name}], got {table!r:.40}")
    return table


def _mode(value: object) -> Mode:
    if value == "search" or value == "predict":  # noqa: PLR1714 - which of the two, for the type checker
        return value
    raise BadRequest(f"mode: expected search or predict, got {value!r:.40}")


def _conditions(where: object) -> list[str]:
    """One condition or several."""
    texts = [where] if isinstance(where, str) else where
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise BadRequest(f'where: expected conditions such as "gpus >= 32", got {where!r:.40}')
    return texts


def _fields(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Values by field, of a table in which fields go by any of their names and machines by nested paths."""
    pins = {f"pins.{axis}": value for axis, value in _table(table, "pins").items()}
    found: dict[str, Any] = {}
    for name, value in _flat({name: value for name, value in table.items() if name != "pins"} | pins):
        field = field_of(name)
        if field is None:
            raise BadRequest(f"{where}{unknown_field(name, (*_OWN, 'pins'))}")
        if field in found:
            raise BadRequest(f"{where}{field} is given twice, as {name} too")
        found[field] = value
    return found


def _flat(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values, tables of changes under ``cluster``, ``stack`` and ``model`` as dotted paths."""
    for name, value in table.items():
        root = name.partition(".")[0]
        if root in _WHOLE and isinstance(value, dict) and not is_range(value) and not _WHOLE[root] <= value.keys():
            yield from _flat({f"{name}.{inner}": deeper for inner, deeper in value.items()})
        else:
            yield str(name), value


def _scenarios(table: Mapping[str, Any], axes: Mapping[str, Axis]) -> dict[str, dict[str, Any]]:
    scenarios = {}
    for name, content in table.items():
        if not isinstance(content, Mapping):
            raise BadRequest(f"scenarios.{name}: expected a table of values, got {content!r:.40}")
        fields = _fields(content, f"scenarios.{name}: ")
        for field, value in fields.items():
            if isinstance(value, list):
                raise BadRequest(f"scenarios.{name}: {field} has one value in a scenario; lists are axes of the study")
            if field in axes and len(axes[field].values) > 1:
                raise BadRequest(f"scenarios.{name}: {field} is an axis of the study already")
        scenarios[name] = {field: read_value(field, value) for field, value in fields.items()}
    return scenarios


def _zipped(axes: Mapping[str, Axis], given: Any) -> tuple[tuple[Axis, ...], ...]:
    """Axes as factors: those that go in step together, every other alone."""
    home = _steps(axes, given)
    factors: dict[object, list[Axis]] = {}
    for field, axis in axes.items():
        factors.setdefault(home.get(field, field), []).append(axis)
    for factor in factors.values():
        if len({len(axis.values) for axis in factor}) > 1:
            sizes = ", ".join(f"{axis.field} has {len(axis.values)}" for axis in factor)
            raise BadRequest(f"zip: zipped axes need the same number of values: {sizes}")
    return tuple(map(tuple, factors.values()))


def _steps(axes: Mapping[str, Axis], given: Any) -> dict[str, int]:
    """Fields that go in step to the number of their group."""
    groups = given if isinstance(given, list) else None
    if groups is None or not all(isinstance(group, list) and len(group) > 1 for group in groups):
        raise BadRequest('zip: expected lists of axes, such as zip = [["gpus", "global_batch"]]')
    home: dict[str, int] = {}
    for number, group in enumerate(groups):
        for name in group:
            field = name if name == SCENARIO else field_of(str(name))
            if field is None or field not in axes:
                raise BadRequest(f"zip: {name} is not an axis of the study; there are {', '.join(axes)}")
            if field in home:
                raise BadRequest(f"zip: {name} is zipped twice")
            home[field] = number
    return home


def _baseline(table: Mapping[str, Any], factors: tuple[tuple[Axis, ...], ...]) -> dict[int, int]:
    """Factor to place, of the values that the baseline has."""
    home = {axis.field: (number, axis) for number, factor in enumerate(factors) for axis in factor}
    plain = {key: value for key, value in table.items() if key != SCENARIO}
    fields = {field: read_value(field, value) for field, value in _fields(plain, "baseline: ").items()}
    fields |= {SCENARIO: table[SCENARIO]} if SCENARIO in table else {}
    chosen: dict[int, int] = {}
    for field, value in fields.items():
        if field not in home:
            raise BadRequest(f"baseline: {field} is not an axis of the study")
        number, axis = home[field]
        shown = [json.dumps(one, sort_keys=True, default=str) for one in axis.values]
        wanted = json.dumps(value, sort_keys=True, default=str)
        if wanted not in shown:
            raise BadRequest(
                f"baseline: {field} {value!r:.40} is not a value of that axis; there are {', '.join(shown[:8])}"
            )
        place = shown.index(wanted)
        if chosen.setdefault(number, place) != place:
            raise BadRequest(f"baseline: {field} {value!r:.40} is zipped with another axis, whose value does not match")
    return chosen


_NEEDED = ("model", "gpus", "seq_length")
"""What every request says, or its model may need, so that the reason for refusing any value may be theirs."""
_TRIED = 1000
"""Points on which filters are tried."""


def _check(study: Study) -> None:
    """Refuse a study with a value that no request takes, or without a point."""
    said = list(_said(study))
    first = {field: value for where, field, value in reversed(said) if not where}
    for where, field, value in said:
        _check_value(study, first, field, value, where)
    for root, changed in _CHANGED.items():
        _check_changes(root, changed, said, first)
    if not list(islice(points_of(study), _TRIED)):
        raise BadRequest("where: the filters leave no point; drop one")


def _said(study: Study) -> Iterator[tuple[str, str, Any]]:
    """Every value of the study: where it stands, its field and itself."""
    for axis in chain.from_iterable(study.factors):
        if axis.field != SCENARIO:
            yield from (("", axis.field, value) for value in axis.values)
    for name, scenario in study.scenarios.items():
        yield from ((f"scenarios.{name}: ", field, value) for field, value in scenario.items())


def _check_value(study: Study, first: dict[str, Any], field: str, value: Any, where: str) -> None:
    """One value with the first of every other axis, as far as it can be judged alone."""
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
