"""From a point to its request, and to the key that its answer is kept under."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from costmodels.model.catalogue import model as find_model
from costmodels.model.model import Model
from costmodels.stack.stack import stack as find_stack
from hardware.records import Cluster
from planner.answer.build import catalogue_hashes
from planner.errors import MeshwrightError
from planner.request.batches import usual_batch
from planner.request.defaults import default_tokens
from planner.request.fields import VARIED, apart
from planner.request.fine_tune import fine_tunes, usual_length
from planner.request.pins import parse_pins
from planner.request.request import PlanRequest, request_from
from planner.studies.machines import changed_cluster
from planner.studies.study import SCENARIO, Mode
from planner.version import VERSION

_ROOMS: Final = ("hardware", "costmodels", "planner")
_SAY_NOTHING: Final = {"cli", "jobs", "render", "runs", "service"}
"""Packages of the planner that no answer of a study comes from."""


def request_of(fields: Mapping[str, Any]) -> PlanRequest:
    """The request of a point; names of models become records, changes of the machines are made.

    Raises:
        MeshwrightError: a name that does not exist, a value that does not belong.
    """
    others, pins = apart(fields)
    plain = {name: value for name, value in others.items() if "." not in name and name != SCENARIO}
    changes = tuple((name, value) for name, value in others.items() if name.startswith("cluster."))
    if several := {name: value for name, value in others.items() if name.startswith(("stack.", "model."))}:
        plain["changes"] = dict(plain.get("changes", {})) | several
    if isinstance(plain["model"], str):
        length = plain.get("seq_length")
        plain["model"] = _model(plain["model"], length if isinstance(length, int) else None)
    request = request_from(plain | {"pins": pins})
    if not changes:
        return request
    return request.model_copy(update={"cluster": changed_cluster(request.cluster, changes)})


@lru_cache(maxsize=256)
def _model(name: str, seq_length: int | None) -> Model:
    return find_model(name, seq_length)


def key_of(fields: Mapping[str, Any], mode: Mode) -> str:
    """SHA-256 of the resolved question, the catalogue and the version: one key, one answer.

    A request that cannot be resolved is known by what was written.
    """
    try:
        asked: dict[str, Any] = _resolved(request_of(fields))
    except MeshwrightError:
        asked = {"unresolved": dict(fields)}
    stated = {"mode": mode, "request": asked, "release": release(), "catalogue": catalogue_hashes()}
    return hashlib.sha256(json.dumps(stated, sort_keys=True, default=str).encode()).hexdigest()


def _resolved(request: PlanRequest) -> dict[str, Any]:
    """What `planner.request.resolve.resolve` would fill in, without the work of it; records by what they hold."""
    assert isinstance(request.model, Model)
    model = request.model
    seq_length = request.seq_length or usual_length(request, model)
    cluster = request.cluster if isinstance(request.cluster, Cluster) else changed_cluster(request.cluster, ())
    stack = find_stack(request.stack) if isinstance(request.stack, str) else request.stack
    tuned = fine_tunes(request)
    pins = {axis: (pin.values, pin.low, pin.high) for axis, pin in parse_pins(request.pins).items()}
    plain = {name: getattr(request, name) for name in VARIED}
    known = {name: _digest(value) if isinstance(value, BaseModel) else value for name, value in plain.items()}
    return known | {
        "model": _digest(model),
        "cluster": _digest(cluster),
        "stack": _digest(stack),
        "global_batch_size": request.global_batch_size
        or usual_batch(request, model, cluster, stack.supports, seq_length),
        "seq_length": seq_length,
        "tokens": request.tokens or default_tokens(model, tuned=tuned),
        "pins": pins,
    }


_known: dict[int, tuple[BaseModel, str]] = {}
_MOST_KNOWN: Final = 4096


def _digest(record: BaseModel) -> str:
    """SHA-256 of a record's content, worked out once as long as the record is the same object."""
    found = _known.get(id(record))
    if found is None or found[0] is not record:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = record, hashlib.sha256(record.model_dump_json().encode()).hexdigest()
        _known[id(record)] = found
    return found[1]


@cache
def release() -> str:
    """The version, and twelve digits over the code that answers: a store outlives neither."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            inside = path.relative_to(root)
            if inside.parts[1] not in _SAY_NOTHING:
                digest.update(inside.as_posix().encode() + path.read_bytes())
    return f"{VERSION}+{digest.hexdigest()[:12]}"
