"""One run in free text as a ``run/1`` document: the request that its words make, and what was measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from hardware.errors import MeshwrightError
from run_words.dated import month
from run_words.figures import (
    derived_from,
    memory_bytes,
    memory_remarks,
    rounding,
    seconds_of,
    time_remarks,
)
from run_words.heard import listening
from run_words.landmark_words import printed
from run_words.mapping import Case, case
from run_words.memory_words import memory_kind, stage_read
from run_words.question import request_of
from run_words.row_fields import unknown_fields
from run_words.row_values import wrong_value
from run_words.unread import unread_clauses

Row = Mapping[str, Any]
Document = dict[str, Any]

SCHEMA: Final = "run/1"
UNREADABLE: Final = "a value is missing or is not of its kind"
"""What is said of a row that no rule refused and nothing could be made of."""
CHANGED: Final = "by the run's words or its date"


def converted(row: Row, among: list[Row]) -> Document:
    """The document of one run; with the reason under ``unpriced`` where its words make no request.

    Args:
        row: the run.
        among: the runs of its group, the digits of whose figures tell how far each is rounded.
    """
    with listening() as heard:
        found, reason = _mapped(row)
        measured = {} if wrong_value(row) else _measured(row, found, among)
    unread = [] if found is None else unread_clauses(row, heard)
    if found is not None and not measured:
        reason = _unmeasured(row)
    asked = {} if found is None else request_of(found)
    assumed = _assumed(row, found) | ({"request.changes": CHANGED} if "changes" in asked else {})
    document: Document = {
        "schema": SCHEMA,
        "id": str(row.get("id", "?")),
        "group": str(row.get("group", "?")),
        "source": _source(row),
        "request": asked or None,
        "unpriced": reason,
        "measured": measured,
        "said": _said(row, asked, assumed),
        "assumed": assumed,
        "unread": [*unknown_fields(row), *unread],
        "complete": row.get("complete") is not False,
        "suspect": bool(row.get("suspect")),
        "derived_from": "" if wrong_value(row) else derived_from(row, found),
        "configuration": row.get("config_key"),
    }
    return {name: value for name, value in document.items() if value != USUAL.get(name)}


USUAL: Final[Mapping[str, Any]] = {
    "request": None,
    "unpriced": "",
    "measured": {},
    "said": [],
    "assumed": {},
    "unread": [],
    "complete": True,
    "suspect": False,
    "derived_from": "",
    "configuration": None,
}
"""What stands in no document: what a reader takes where it is left out."""


def _mapped(row: Row) -> tuple[Case | None, str]:
    """The case that a run's words make, or why they make none."""
    if wrong := wrong_value(row):
        return None, wrong
    try:
        found = case(row)
        dict(_measured(row, found, [row]))
    except (MeshwrightError, ValueError, TypeError, KeyError, ArithmeticError) as error:
        return None, str(error) if isinstance(error, MeshwrightError) else f"{UNREADABLE} ({error!r:.120})"
    return found, ""


def _measured(row: Row, found: Case | None, among: list[Row]) -> Document:
    said, measured = row["measured"], Document()
    if seconds := seconds_of(row, found):
        measured["iteration_seconds"] = seconds
        if digits := rounding(row, among, "time", seconds):
            measured["rounding"] = digits
    if (size := memory_bytes(row)) is not None:
        peak = {"bytes": size, "kind": memory_kind(row)[1], "stage": stage_read(row)}
        if digits := rounding(row, among, "memory", None):
            peak["rounding"] = digits
        measured["peak_memory"] = {name: value for name, value in peak.items() if value is not None}
    if said.get("oom") is not None or seconds:
        measured["out_of_memory"] = bool(said.get("oom"))
    return measured


def _unmeasured(row: Row) -> str:
    """Why nothing of a run is compared: days of a whole training hold stops and restarts."""
    days = row["measured"].get("training_days") is not None
    return "nothing measured but the days of a whole training, which hold its stops" if days else "nothing measured"


def _source(row: Row) -> Document:
    model = row["model"]
    when = month(row)
    source: Document = {"title": str(row.get("source") or row.get("group") or "?")}
    if when:
        source["date"] = when
    if model.get("name"):
        source["model"] = str(model["name"])
    if isinstance(model.get("params_b"), int | float):
        source["billions"] = float(model["params_b"])
    if told := printed(row):
        source["printed"] = told
    return source


# What was assumed -------------------------------------------------------------------------------------------------

PATHS: Final[tuple[tuple[str, str], ...]] = (
    (r"^(network|nodes|NVLink domains|devices|the \d+ said|\S+ held to|\S+ with \S+ of its peak|hosts) ", "cluster"),
    (r"of a node are one domain", "cluster"),
    (r"^stack .* framework|no framework being stated", "stack"),
    (r"^attention .* names no kernel", "changes"),
    (r"^layers per stage|^layers_per_stage", "layers_per_stage"),
    (r"layers recomputed", "recomputed_per_stage"),
    (r"^sequence parallelism|^no sequence parallelism", "pins.sequence_parallel"),
    (r"^recomput", "pins.recompute"),
    (r"^context parallelism", "pins.cp_kind"),
    (r"^micro.?batch|^micro_batch_size", "pins.micro_batch_size"),
    (r"^ZeRO stage", "pins.zero_stage"),
    (r"^states sharded", "pins.sharding_degree"),
    (r"^experts split over", "pins.etp"),
    (r"chunks a stage", "pins.vpp"),
    (r"^(tp|pp) \d", "pins"),
    (r"^(a batch of|global_batch_size)", "global_batch_size"),
    (r"^adapters|^frozen weights", "adapters"),
    (r"^(precision|products) ", "precision"),
    (r"offload", "pins.offload"),
)
"""First match of a remark's words gives the path of the request that it is about; the model for all others."""


def _assumed(row: Row, found: Case | None) -> dict[str, str]:
    """Why something was assumed, by the path of the document that it is about; several remarks of one path joined."""
    told: dict[str, list[str]] = {}
    for remark in found.notes if found else ():
        path = next((path for pattern, path in PATHS if re.search(pattern, remark)), "model")
        told.setdefault(f"request.{path}", []).append(remark)
    if not wrong_value(row):
        for remark in memory_remarks(row):
            told.setdefault("measured.peak_memory", []).append(remark)
        for remark in time_remarks(row, found) if found else ():
            told.setdefault("measured.iteration_seconds", []).append(remark)
    return {path: "; ".join(dict.fromkeys(remarks)) for path, remarks in told.items()}


SAID: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "model": ("model", ("num_layers", "hidden_size")),
    "gpus": ("strategy", ("gpus",)),
    "cluster": ("cluster", ("accelerator",)),
    "stack": ("stack", ("framework",)),
    "global_batch_size": ("strategy", ("global_batch_size",)),
    "seq_length": ("model", ("seq_length",)),
    "precision": ("strategy", ("precision",)),
    "adapters": ("strategy", ("adapters",)),
    "layers_per_stage": ("strategy", ("layers_per_stage",)),
    "recomputed_per_stage": ("strategy", ("recompute_detail",)),
}
"""Paths of a request, and the fields of a row that say them; pins are said by the field of their name."""


def _said(row: Row, asked: Document, assumed: Iterable[str]) -> list[str]:
    """Paths of the request that the source itself says: neither assumed here nor filled in by who gathered the runs."""
    filled = " ".join(map(str, row.get("filled") or ()))
    pins = {f"pins.{axis}": ("strategy", (axis,)) for axis in asked.get("pins", {})}
    fields = {path: where for path, where in SAID.items() if path in asked} | pins
    return [
        f"request.{path}"
        for path, (section, names) in fields.items()
        if f"request.{path}" not in assumed
        and all(row[section].get(name) not in (None, "") for name in names)
        and not any(name in filled for name in names)
    ]
