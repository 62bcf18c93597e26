"""The same request without one of its options, where nothing fits what is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from hardware.errors import MeshwrightError
from planner.request.budget import Budget
from planner.request.defaults import DEFAULT_STACK
from planner.request.request import CHOICES, PlanRequest, Resolved, resolve

_USUAL: Final[dict[str, Any]] = {
    **dict.fromkeys(CHOICES),
    "precision": "bf16",
    "expert_capacity": None,
    "expert_imbalance": None,
    "memory_margin": 0.0,
    "changes": {},
    "framework": None,
    "stack": DEFAULT_STACK,
}
"""Fields of how a job is run that a request may leave out, with what they are then; the least change comes first."""
_OF_THE_JOB: Final[dict[str, Any]] = {"global_batch_size": None, "seq_length": None}
"""The same of what is trained."""
_OPTIONS: Final = {"framework": "for", "changes": "set", "global_batch_size": "global-batch", "seq_length": "seq-len"}
"""Where an option is not called as its field."""


def plainer(resolved: Resolved, budget: Budget, *, same_job: bool = False) -> Iterator[tuple[str, Resolved]]:
    """Every request with one option less that can be asked, and how it is said: "without --optimizer adafactor"."""
    request = resolved.request
    for name in given(request, same_job=same_job):
        if budget.spent():
            return
        try:
            there = resolve(request.model_copy(update={name: (_USUAL | _OF_THE_JOB)[name]}))
        except MeshwrightError:  # options that need this one
            continue
        yield f"without {option_of(request, name)}{_in_its_place(resolved, there)}", there


def given(request: PlanRequest, *, same_job: bool = False) -> list[str]:
    """The options that a request gives and need not, those about what is trained left out with ``same_job``."""
    usual = _USUAL if same_job else _USUAL | _OF_THE_JOB
    return [name for name, value in usual.items() if getattr(request, name) != value]


def option_of(request: PlanRequest, name: str) -> str:
    """An option as it is given: "--optimizer adafactor"."""
    value = getattr(request, name)
    shown = value if isinstance(value, str | float) or type(value) is int else getattr(value, "name", "")
    return f"--{_OPTIONS.get(name, name.replace('_', '-'))} {shown}".rstrip()


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
