"""Results as rows of plain values, and as JSON, CSV or Parquet, written as they are read."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from io import StringIO
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from planner.answer.plan import Prediction, Strategy
from planner.errors import BadRequest
from planner.request.values import kinds
from planner.studies.result import Result
from planner.studies.study import Study

ROWS: Final = 5000
"""Rows of one group of a Parquet file."""
_STRATEGY: Final = tuple(name for name in Strategy.model_fields if name != "stages")
_PREDICTION: Final = tuple(name for name in Prediction.model_fields if name != "interval")


def columns(study: Study) -> list[str]:
    """Names of the columns of ``row``."""
    axes = [_column(axis.field) for axis in study.axes] + (["scenario"] if len(study.scenarios) == 1 else [])
    fixed = ["peak_memory_bytes", "lower_bound_seconds", "gap", "speedup", "rejected", "warnings", "error"]
    plan = [name if name not in axes else f"planned_{name}" for name in (*_STRATEGY, *_PREDICTION)]
    return ["index", *axes, "status", *plan, *fixed]


def row(result: Result, study: Study) -> dict[str, Any]:
    """One result as plain values by column; what it lacks is None."""
    axes = {_column(field): _plain(value) for field, value in result.axes.items()}
    strategy, said = result.document.get("strategy") or {}, result.document.get("prediction") or {}
    proof = result.document.get("proof") or {}
    plan = {name: _plain(strategy.get(name)) for name in _STRATEGY} | {name: said.get(name) for name in _PREDICTION}
    return dict.fromkeys(columns(study)) | {
        "index": result.index,
        **{name if name not in axes else f"planned_{name}": value for name, value in plan.items()},
        **axes,
        "status": result.status,
        "peak_memory_bytes": result.document.get("peak_memory_bytes"),
        "lower_bound_seconds": proof.get("lower_bound_seconds"),
        "gap": proof.get("gap"),
        "speedup": result.speedup,
        "rejected": next((one["example"] for one in result.document.get("rejected", ())), None),
        "warnings": "; ".join(result.document.get("warnings", ())) or None,
        "error": result.error,
    }


def _column(field: str) -> str:
    return field.removeprefix("pins.")


def _plain(value: Any) -> Any:
    """A value that fits one cell: tables by their name, lists joined."""
    if isinstance(value, dict):
        return value.get("name") or json.dumps(value, sort_keys=True)
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value


def as_json(found: Iterable[Result], study: Study) -> Iterator[str]:
    """One JSON object whose ``results`` are the records, in pieces."""
    head = {"schema": "sweep/1", "study": study.name, "mode": study.mode, "axes": [axis.field for axis in study.axes]}
    yield json.dumps(head)[:-1] + ', "results": ['
    for number, result in enumerate(found):
        yield (",\n" if number else "\n") + json.dumps(result.record())
    yield "\n]}\n"


def as_csv(found: Iterable[Result], study: Study) -> Iterator[str]:
    """One line per result, in pieces."""
    sheet = StringIO(newline="")
    writer = csv.DictWriter(sheet, columns(study), lineterminator="\n")
    writer.writeheader()
    for result in found:
        writer.writerow(row(result, study))
        yield sheet.getvalue()
        sheet.seek(0)
        sheet.truncate()
    yield sheet.getvalue()


def write_parquet(found: Iterable[Result], study: Study, path: Path) -> None:
    """A Parquet file, a group of rows at a time.

    Raises:
        BadRequest: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise BadRequest("--format parquet needs pyarrow: pip install pyarrow; csv works without") from None
    schema = pa.schema([(name, _type(name, study, pa)) for name in columns(study)])
    text = {field.name for field in schema if field.type == pa.string()}
    rows = (
        {name: str(value) if name in text and value is not None else value for name, value in row(one, study).items()}
        for one in found
    )
    with pq.ParquetWriter(path, schema) as writer:
        first = list(islice(rows, ROWS))
        for group in chain([first], iter(lambda: list(islice(rows, ROWS)), [])):
            writer.write_table(pa.Table.from_pylist(group, schema=schema))


_REAL: Final = frozenset(("peak_memory_bytes", "lower_bound_seconds", "gap", "speedup"))


def _type(name: str, study: Study, pa: Any) -> Any:
    """The type of a column: an axis has that of its values, text where they differ."""
    for axis in study.axes:
        if _column(axis.field) == name:
            found = {type(value) for value in axis.values}
            return pa.int64() if found == {int} else pa.float64() if found <= {int, float} else pa.string()
    bare = name.removeprefix("planned_")
    record = Strategy if bare in _STRATEGY else Prediction
    said = {one.get("type") for one in kinds(record, bare)} if bare in (*_STRATEGY, *_PREDICTION) else set()
    if bare == "index" or "integer" in said:
        return pa.int64()
    if bare in _REAL or "number" in said:
        return pa.float64()
    return pa.bool_() if "boolean" in said else pa.string()
