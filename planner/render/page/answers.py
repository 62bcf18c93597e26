"""Every answer other than plans and studies as a page: its headline, figures and tables, as notebooks have them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from hardware.errors import flatten
from planner.answer.plan import Strategy
from planner.answer.text import format_bytes, format_seconds, plural
from planner.errors import BadRequest
from planner.render.notebook.charts import pictures_of
from planner.render.notebook.frames import TABLES
from planner.render.notebook.headlines import headline
from planner.render.page.source import strategy_words

if TYPE_CHECKING:
    from planner.answer.plan import Answer

Row = dict[str, Any]
_VALIDATION: Final = "validation/1"
_RECORDS: Final[Mapping[str, tuple[str, str]]] = {
    "comparison/1": ("planner.analyses.compare", "Comparison"),
    "why-not/1": ("planner.explain.why_not", "WhyNot"),
    "size/1": ("planner.analyses.size_search", "Size"),
    "what-if/1": ("planner.analyses.what_if", "Sensitivity"),
    "robust/1": ("planner.analyses.robust", "Robust"),
    "examined-run/1": ("planner.analyses.examine_run", "Examined"),
    "allocation/1": ("planner.allocation.document", "Allocation"),
    "sparse/1": ("planner.sparse.document", "SparsePlan"),
    "calibration/1": ("planner.runs.calibrate.document", "Calibration"),
}
"""Where the record of each kind of answer is."""
MOST_ROWS: Final = 20_000
"""Rows of one table that a page holds."""
_SUFFIXES: Final = {
    "_seconds": "seconds", "_bytes": "bytes", "_dollars": "dollars", "_per_hour": "dollars", "_per_second": "rate",
}  # fmt: skip
"""How figures are written, by the end of their names."""
_UNITS: Final = {"_seconds": "", "_bytes": "", "_dollars": "", "_per_hour": " an hour", "_per_second": "/s"}
"""What is left of these ends in the head of a column."""
_SHARES: Final = frozenset({"mfu", "measured_mfu", "share", "median", "worst", "gap"})
_CHANGES: Final = frozenset({"error", "saved", "bias", "before", "after"})
"""Shares that are written with their sign."""
_HEADS: Final = {"gpus": "GPUs", "mfu": "MFU", "a": "A", "b": "B", "id": "run"}
_SIDES: Final = {"terms": "seconds", "memory": "bytes", "breakdown": "seconds"}
"""What the two sides of a table are in."""
_AXES: Final = frozenset(Strategy.model_fields)
_HIDDEN: Final = frozenset(
    {"scored", "assumed", "interval", "within_interval", "tied", "placed.model_flops_per_second"}
)
_NOTHING: Final = (None, "", 0)
_WAYS: Final = ("", "placed.", "less.", "more.")


@dataclass(frozen=True)
class ShownAnswer:
    """The content of a page over one answer, as plain values.

    Attributes:
        title: of the document.
        headline: the answer in a sentence.
        remark: how sure it is.
        facts: leading figures, name and value.
        figures: bars: title, unit, labels, series by name, whether stacked, limit.
        tables: each with name, columns (key, head, how its values are written) and rows.
        runs: measured seconds with predicted over measured, of a validation.
        assumptions: what to be careful of, and what was assumed.
    """

    title: str
    headline: str
    remark: str
    facts: tuple[tuple[str, str], ...]
    figures: tuple[dict[str, Any], ...]
    tables: tuple[dict[str, Any], ...]
    runs: dict[str, Any] | None
    assumptions: tuple[str, ...]

    def data(self) -> dict[str, Any]:
        """Everything that the script draws."""
        return {"facts": self.facts, "figures": self.figures, "tables": self.tables, "runs": self.runs}


def answer_of(document: Mapping[str, Any], name: str) -> Answer | None:
    """The record of what a command wrote with ``--format json``; None where it is none of these.

    Raises:
        BadRequest: it was changed to what no such answer says.
    """
    schema = _VALIDATION if {"rows", "groups", "summary"} <= document.keys() else str(document.get("schema"))
    try:
        if schema == _VALIDATION:
            found: Answer = _record("planner.analyses.validation", "Validation")(
                files=(Path(name).name,), rows=document["rows"], report=""
            )
            return found
        return _record(*_RECORDS[schema]).model_validate(dict(document)) if schema in _RECORDS else None
    except ValidationError as error:
        raise BadRequest(f"{name}: {flatten(error)}") from None


def _record(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def shown_answer(answer: Any) -> ShownAnswer:
    """A page over an answer that is no plan and no study."""
    found, validated = headline(answer), answer.schema_ == _VALIDATION
    tables = [*_errors(answer.rows)] if validated else []
    for name, rows in TABLES[answer.schema_].items():
        told = sorted(map(_measured, answer.rows), key=_off, reverse=True) if validated else map(_row, rows(answer))
        tables.append(_table(name, list(told)))
    sure = found.sure.partition("; .to_frame()")[0].removesuffix("see .summary()")
    assumed = tuple(f"assumed: {line}" for line in getattr(answer, "assumed", ()))
    return ShownAnswer(
        title=found.title,
        headline=_divided(answer)
        if answer.schema_ == "allocation/1"
        else f"{found.answer[:1].upper()}{found.answer[1:]}",
        remark=sure.replace(" -> ", " → ").strip("; "),
        facts=found.facts,
        figures=() if validated else tuple(_pictures(answer)),
        tables=tuple(one for one in tables if one["rows"]),
        runs=_runs(answer.rows) if validated else None,
        assumptions=(*found.notes, *assumed),
    )


def _divided(answer: Any) -> str:
    """What each job of a queue gets."""
    placed = ((job.name, job.placed) for job in answer.jobs if job.placed)
    return ", ".join(f"{name} gets {plural(one.gpus, 'GPU')} of {one.group}" for name, one in placed) or "no job runs"


def _measured(row: Row) -> Row:
    """A figure of a validation, with what it is in words."""
    write = {"iteration_time": format_seconds, "memory": format_bytes}.get(row["metric"], _yes)
    both = {name: None if row.get(name) is None else write(row[name]) for name in ("measured", "predicted")}
    return {name: _cell(value) for name, value in row.items()} | both | {"metric": row["metric"].replace("_", " ")}


def _yes(value: object) -> str:
    return "yes" if value else "no"


def _off(row: Row) -> float:
    """By how much a prediction misses; of what has no error, less than nothing."""
    return -1.0 if row["error"] is None else abs(row["error"])


def _pictures(answer: Any) -> list[dict[str, Any]]:
    try:
        return [picture._asdict() for picture in pictures_of(answer)]
    except BadRequest:  # nothing to draw
        return []


def _row(row: Row) -> Row:
    """A row with its strategies in words, and what a cell cannot hold as text."""
    for way in _WAYS:
        own = {name.removeprefix(way): value for name, value in row.items() if name.startswith(way)}
        if {"tp", "dp", "micro_batch_size", "schedule"} <= own.keys() and own["tp"] is not None:
            rest = {name: value for name, value in row.items() if name.removeprefix(way) not in _AXES}
            row = rest | {f"{way}strategy": strategy_words(own)}
    return {name: _cell(value) for name, value in row.items()}


def _cell(value: Any) -> Any:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_cell(one)}" for name, one in value.items()).replace("_", " ")
    if isinstance(value, list | tuple):
        return ", ".join(str(_cell(one)) for one in value)
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _table(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    names = list(dict.fromkeys(key for row in rows for key in row if key not in _HIDDEN))
    kept = [key for key in names if any(row.get(key) not in _NOTHING for row in rows)]
    columns = [[_head(key), _written(name, key, rows)] for key in kept]
    values = [[row.get(key) for key in kept] for row in rows[:MOST_ROWS]]
    return {"name": name.replace("_", " "), "columns": columns, "rows": values, "all": len(rows)}


def _head(key: str) -> str:
    key = key.removeprefix("placed.")
    for end, unit in _UNITS.items():
        key = f"{key.removesuffix(end)}{unit}" if key.endswith(end) else key
    return _HEADS.get(key, key.replace("_", " ").replace(".", " "))


def _written(table: str, key: str, rows: Sequence[Row]) -> str:
    """How the values of a column are written: text, number, seconds, bytes, dollars, rate, share or change."""
    values = [row[key] for row in rows if row.get(key) is not None]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return "text"
    if key in {"a", "b", "this", "best"}:
        return _SIDES.get(table, "number")
    if key in _CHANGES or key.endswith("_error"):
        return "change"
    if key in _SHARES or key.endswith("_regret"):
        return "share"
    return next((kind for end, kind in _SUFFIXES.items() if key.endswith(end) or key == end[1:]), "number")


def _runs(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Measured seconds and predicted over measured, of every run that has both."""
    timed = [row for row in rows if row["metric"] == "iteration_time" and row["error"] is not None]
    groups = sorted({row["group"] for row in timed})
    pairs = [[float(f"{row['measured']:.4g}"), round(1 + row["error"], 3), groups.index(row["group"])] for row in timed]
    return {"groups": groups, "runs": pairs} if pairs else None


def _errors(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Errors of every group, of time and of memory."""
    found: list[Row] = []
    for group, metric in dict.fromkeys((row["group"], row["metric"]) for row in rows):
        errors = [row["error"] for row in rows if (row["group"], row["metric"]) == (group, metric)]
        known = sorted(abs(error) for error in errors if error is not None)
        if known:
            bias = sum(error for error in errors if error is not None) / len(known)
            told = {"median": known[len(known) // 2], "worst": known[-1], "bias": bias}
            found.append({"group": group, "metric": metric.replace("_", " "), "figures": len(known), **told})
    return [_table("errors by group", found)] if found else []


def read_document(text: str) -> Mapping[str, Any]:
    """The JSON table of a text; an empty one where it is none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, Mapping) else {}
