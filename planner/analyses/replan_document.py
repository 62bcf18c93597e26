"""The result document of ``plan replan``, schema ``replan/1``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from planner.answer.plan import Answer, Plan, Record


class Moved(Record):
    """What a plan moves against the old one."""

    only_regroups: bool
    """Tensor slices, stages and their layers stay: replicas leave or join."""
    weight_bytes: float
    state_bytes: float
    most_bytes: float
    """That one device receives."""
    lost_bytes: float
    """Optimizer states whose only copy was on lost devices; where there are any, all is read from the checkpoint."""
    fabric_seconds: float
    checkpoint_seconds: float
    restart_seconds: float
    seconds: float
    """From the end of training under the old plan to its begin under the new one."""
    statement: str


class Choice(Record):
    """A plan for the new number of devices."""

    gpus: int
    idle_gpus: int
    iteration_seconds: float
    slower: float
    """Share over the fastest choice; of bytes or of wall time, where the request wants the least of those."""
    moved: Moved
    plan: Plan


class OtherBatch(Record):
    """A batch near the old one that divides among the devices left, and what it would gain."""

    global_batch_size: int
    copies: int
    gpus: int
    iteration_seconds: float
    faster: float
    """Tokens per second over those of the fastest choice, less 1."""


class Replan(Answer):
    """Schema ``replan/1``: the fastest plan, and the one of those nearly as fast that moves least."""

    schema_: Literal["replan/1"] = Field("replan/1", alias="schema")
    status: Literal["optimal", "feasible", "infeasible"]
    old_gpus: int
    old_iteration_seconds: float
    gpus: int
    global_batch_size: int
    tolerance: float
    counts: tuple[int, ...]
    """Numbers of devices that were searched."""
    fastest: Choice | None
    nearest: Choice | None
    other_batch: OtherBatch | None = None
    """Never taken by itself; None where it gains nothing, or a batch was asked for."""
    picked: Literal["nearest", "fastest"] = "nearest"
    """Which of them `plan export` and others that read an answer take."""
    statement: str
