"""The question that a job's files and the user's options ask, and what they leave open."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from planner.frameworks.registry import goes_with
from planner.jobs.imported import ImportedJob, complete


def question_of(job: ImportedJob, given: Mapping[str, Any], *, strategy: bool = True) -> dict[str, Any]:
    """Fields of a question, and its pins as ``pins.tp``: what the files say, completed by what is given.

    Args:
        job: what the files say.
        given: fields and pins that are said apart from them, by the same names; they win.
        strategy: the strategy of the files is asked about; without it, what is trained alone.

    Raises:
        BadRequest: the sizes of batches contradict each other.
    """
    fields = dict(job.fields) | {
        name: value for name, value in given.items() if name != "changes" and not name.startswith("pins.")
    }
    pins = dict(job.pins) | {
        name.removeprefix("pins."): value for name, value in given.items() if name.startswith("pins.")
    }
    if "gpus" in fields or "dp" in pins:
        fields, pins = complete(fields, pins, asked=given, length=job.length)
    if not strategy:
        own = job.framework
        named = isinstance(stack := fields.get("stack"), str) and own is not None and goes_with(own, stack)
        return fields | ({"framework": own} if named else {})
    split = {"layers_per_stage": job.layers, "recomputed_per_stage": job.recomputed}
    if pins.get("recompute") != "partial":
        del split["recomputed_per_stage"]
    fields |= {name: value for name, value in split.items() if value is not None}
    return fields | {f"pins.{axis}": pin for axis, pin in pins.items()}


def still_missing(job: ImportedJob, given: Collection[str]) -> list[str]:
    """What must be said before there is a price, all of it; ``given`` are the names of all that is known."""
    needs = {"model": job.lacks or "no model is named; give --model", "gpus": "how many GPUs is not known; give --gpus"}
    needs |= job.unsaid
    return [*job.missing, *(said for name, said in needs.items() if name not in given and not job.asks_for(name))]
