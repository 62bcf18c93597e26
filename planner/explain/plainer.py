"""The same request without one of its options, where nothing fits what is asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from hardware.errors import MeshwrightError
from planner.request.fields import FIELDS, optional_fields
from planner.request.request import PlanRequest
from planner.request.resolve import Resolved, resolve


def plainer(resolved: Resolved, deadline: float, *, same_job: bool = False) -> Iterator[tuple[str, Resolved]]:
    """Every request with one option less that can be asked, and how it is said: "without --optimizer adafactor"."""
    request = resolved.request
    for name in given(request, same_job=same_job):
        if time.perf_counter() > deadline:
            return
        try:
            there = resolve(request.model_copy(update={name: _usual(name)}))
        except MeshwrightError:  # options that need this one
            continue
        yield f"without {option_of(request, name)}{_in_its_place(resolved, there)}", there


def given(request: PlanRequest, *, same_job: bool = False) -> list[str]:
    """The options that a request gives and need not, those about what is trained left out with ``same_job``."""
    return [name for name in optional_fields(same_job=same_job) if getattr(request, name) != _usual(name)]


def _usual(name: str) -> Any:
    return PlanRequest.model_fields[name].get_default(call_default_factory=True)


def option_of(request: PlanRequest, name: str) -> str:
    """An option as it is given: "--optimizer adafactor"."""
    value = getattr(request, name)
    shown = value if isinstance(value, str | float) or type(value) is int else getattr(value, "name", "")
    return f"--{FIELDS[name].words[0]} {shown}".rstrip()


def _in_its_place(asked: Resolved, there: Resolved) -> str:
    """What is taken where the option is left out, if that changes more than the option."""
    before, after = asked.scenario, there.scenario
    pairs = (
        ("stack", before.stack.name, after.stack.name),
        ("batch", before.global_batch_size, after.global_batch_size),
        ("sequence length", before.seq_length, after.seq_length),
    )
    said = [f"{name} {new}" for name, old, new in pairs if old != new]
    return f" ({', '.join(said)})" if said else ""
