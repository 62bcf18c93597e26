"""Answers as tables: rows of plain values under names, and data frames of whichever library is there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from hardware.errors import meant
from planner.errors import BadRequest

if TYPE_CHECKING:
    from planner.answer.plan import Answer

Row = dict[str, Any]
Tables = Mapping[str, Callable[[Any], list[Row]]]
LIBRARIES: Final = ("pandas", "polars")


def frame(answer: Answer, table: str | None, library: str | None) -> Any:
    """A table of an answer as a frame of a library; see `planner.answer.plan.Answer.to_frame`."""
    rows = rows_of(answer, table)
    name = installed(LIBRARIES, library, "to_frame")
    how = {"infer_schema_length": None} if name == "polars" else {}
    return import_module(name).DataFrame(rows, **how)


def rows_of(answer: Any, table: str | None = None) -> list[Row]:
    """The rows of a table of an answer, of its first one unless it is named.

    Raises:
        BadRequest: the answer has no such table; with those that it has.
    """
    tables = TABLES[answer.schema_]
    name = next(iter(tables)) if table is None else table
    if name not in tables:
        raise BadRequest(f"{answer.schema_} has no table {name!r:.40}: {meant(str(name), tables)}")
    return [{name: cell(value) for name, value in row.items()} for row in tables[name](answer)]


def installed(libraries: tuple[str, ...], library: str | None, method: str) -> str:
    """The library that is asked for, or the first of some that is there.

    Raises:
        BadRequest: it is none of them, or not installed.
    """
    if library is not None and library not in libraries:
        raise BadRequest(f"library: expected {' or '.join(libraries)}, got {library!r:.40}")
    names = libraries if library is None else (library,)
    found = next((name for name in names if find_spec(name)), None)
    if found is None:
        raise BadRequest(f"{method} needs {' or '.join(names)}, which is not installed: pip install {names[0]}")
    return found


def cell(value: Any) -> Any:
    """A value that fits one cell: a table by its name or as JSON, a list joined."""
    if isinstance(value, Mapping):
        return value.get("name") or json.dumps(value, sort_keys=True)
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value


def _strategy(found: Any) -> Row:
    return {} if found is None else {k: v for k, v in found.model_dump(mode="json").items() if k != "stages"}


def _records(*path: str) -> Callable[[Any], list[Row]]:
    """The records of a field, a row each; nested ones are named ``outer.inner``."""

    def rows(found: Any) -> list[Row]:
        for name in path:
            found = getattr(found, name)
        return [_flat(one.model_dump(mode="json") if hasattr(one, "model_dump") else one) for one in found]

    return rows


def _flat(row: Mapping[str, Any]) -> Row:
    found: Row = {}
    for name, value in row.items():
        if name == "strategy" and isinstance(value, Mapping):
            found |= {axis: degree for axis, degree in value.items() if axis != "stages"}
        elif isinstance(value, Mapping) and name in {"less", "more", "placed", "moved"}:
            found |= {f"{name}.{inner}": deeper for inner, deeper in _flat(value).items()}
        else:
            found[name] = value
    return found


def _alternatives(found: Any) -> list[Row]:
    """The plan, then its runners-up."""
    if found.prediction is None:
        return []
    peak = max((stage.total for stage in found.memory_bytes), default=None)
    first = {
        "rank": 0,
        "differs": "the plan",
        "iteration_seconds": found.prediction.iteration_seconds,
        "mfu": found.prediction.mfu,
        "peak_memory_bytes": peak,
        "tied": False,
    }
    others = [
        {name: getattr(one, name) for name in ("differs", "iteration_seconds", "mfu", "peak_memory_bytes", "tied")}
        for one in found.alternatives
    ]
    ranked = [first, *({"rank": rank} | one for rank, one in enumerate(others, start=1))]
    strategies = [found.strategy, *(one.strategy for one in found.alternatives)]
    return [row | _strategy(strategy) for row, strategy in zip(ranked, strategies, strict=True)]


def _stages(found: Any) -> list[Row]:
    """Layers and bytes of every pipeline stage."""
    stages = found.strategy.stages if found.strategy else ()
    memory = {one.stage: one.model_dump() for one in found.memory_bytes}
    layers = (
        {"stage": n, "layers": one.layers, "recompute_layers": one.recompute_layers, "group": one.group}
        for n, one in enumerate(stages)
    )
    return [row | memory.get(row["stage"], {}) for row in layers]


def _breakdown(found: Any) -> list[Row]:
    total = sum(found.breakdown_seconds.values())
    return [
        {"term": name, "seconds": seconds, "share": seconds / total}
        for name, seconds in found.breakdown_seconds.items()
    ]


def _pairs(terms: Mapping[str, Sequence[float]]) -> list[Row]:
    return [{"term": name, "this": this, "best": best} for name, (this, best) in terms.items()]


def _sizes(found: Any) -> list[Row]:
    """Every size that the answer names, each once, with what it is."""
    named = {
        **{name: getattr(found, name) for name in ("answer", "smallest", "cheapest", "fastest", "surer", "nearest")},
        **{f"neighbour {n}": one for n, one in enumerate(found.neighbours, start=1)},
    }
    by_size: dict[int, Row] = {}
    for what, one in named.items():
        if one is not None:
            row = by_size.setdefault(one.gpus, {"what": what} | _flat(one.model_dump(mode="json")))
            row["what"] = what if row["what"] == what else f"{row['what']}, {what}"
    return [by_size[gpus] for gpus in sorted(by_size)]


def _replanned(found: Any) -> list[Row]:
    rows = []
    for what in ("fastest", "nearest"):
        if (one := getattr(found, what)) is not None:
            plain = one.model_dump(mode="json", exclude={"plan"})
            rows.append({"what": what} | _flat(plain) | _strategy(one.plan.strategy))
    return rows


def _candidates(found: Any) -> list[Row]:
    ranked = {"chosen": found.chosen, "best": found.best} | {f"other {n}": o for n, o in enumerate(found.others, 1)}
    return [{"what": what} | _flat(one.model_dump(mode="json")) for what, one in ranked.items()]


def _curves(found: Any) -> list[Row]:
    return [{"job": job.name} | point.model_dump(mode="json") for job in found.jobs for point in job.curve]


def _jobs(found: Any) -> list[Row]:
    return [_flat(job.model_dump(mode="json", exclude={"curve"})) for job in found.jobs]


def _points(found: Any) -> list[Row]:
    from planner.studies.table import row

    return [row(one, found.asked) for one in found.found]


def _notes(found: Any) -> list[Row]:
    kinds = ("missing", "assumed", "unpriced", "remarks")
    return [{"kind": kind, "text": text} for kind in kinds for text in getattr(found, kind)]


def _values(found: Any) -> list[Row]:
    """The question that was read, a field a row."""
    if found.request is None:
        return []
    fields = found.request.model_dump(mode="json", exclude_unset=True)
    pins = fields.pop("pins", {})
    both: Iterable[tuple[str, Any]] = (*fields.items(), *((f"pins.{axis}", value) for axis, value in pins.items()))
    return [{"field": name, "value": str(cell(value))} for name, value in both]


TABLES: Final[Mapping[str, Tables]] = {
    "plan/1": {
        "alternatives": _alternatives,
        "stages": _stages,
        "breakdown": _breakdown,
        "rejected": _records("rejected"),
        "why_not": _records("why_not"),
        "what_helps": _records("what_helps"),
    },
    "why-not/1": {
        "terms": lambda found: _pairs(found.terms),
        "rules": _records("rules"),
        "memory": lambda found: _pairs(found.memory_terms),
    },
    "comparison/1": {"terms": _records("terms"), "steps": _records("steps")},
    "size/1": {"sizes": _sizes},
    "what-if/1": {"levers": _records("levers")},
    "robust/1": {"candidates": _candidates},
    "replan/1": {"choices": _replanned},
    "allocation/1": {"jobs": _jobs, "curves": _curves, "groups": _records("groups")},
    "sparse/1": {
        "rented": _records("rented"),
        "places": _records("places"),
        "alternatives": _records("alternatives"),
    },
    "calibration/1": {"constants": _records("constants"), "runs": _records("runs"), "errors": _records("errors")},
    "examined-run/1": {"changes": _records("changes"), "breakdown": _breakdown},
    "sweep/1": {"points": _points},
    "validation/1": {"rows": _records("rows")},
    "job/1": {"question": _values, "notes": _notes},
}
"""Of each kind of answer the tables by name, the first the usual one."""
