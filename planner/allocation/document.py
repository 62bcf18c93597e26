"""The division of a cluster among jobs, schema ``allocation/1``."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from planner.answer.plan import Answer, Record, Strategy
from planner.answer.text import format_prefixed

_DAY: Final = 86400.0


def in_words(objective: str, value: float) -> str:
    """What a division is worth under an objective."""
    match objective:
        case "throughput":
            large = value >= 1e15
            rate = f"{value / 1e15:,.1f} PFLOP/s" if large else f"{value / 1e12:,.1f} TFLOP/s"
            return f"{rate}, each job's times its priority"
        case "weighted-finish":
            return f"{value / _DAY:,.1f} days until jobs are done, each job's times its priority"
        case "cost":
            return f"${format_prefixed(value)}"
        case _:
            logarithms = round(value, 3) + 0.0  # a sum may be nothing below nothing
            return f"{logarithms:.3f}, the logarithms of jobs' shares of their best pace, each times its priority"


class Placed(Record):
    """What a job gets, and what it does with it."""

    group: str
    gpus: int
    nodes: int
    iteration_seconds: float
    tokens_per_second: float
    model_flops_per_second: float
    """Useful FLOP/s, without recomputation."""
    finish_seconds: float
    """From now until its tokens are trained, the move included."""
    cost_dollars: float | None
    """Rent until then; None where the group has no price."""
    strategy: Strategy


class CurvePoint(Record):
    """One placement that the job could have had."""

    group: str
    gpus: int
    iteration_seconds: float
    tokens_per_second: float
    strategy: str
    """Its degrees in words."""


class JobAnswer(Record):
    """One job: what it gets and why."""

    name: str
    priority: float
    placed: Placed | None
    """None: it waits."""
    change: Literal["starts", "stays", "moves", "stops", "waits"]
    move_seconds: float
    """Lost by moving; 0 where it stays, starts or waits."""
    late: bool
    """It has a deadline and misses it."""
    because: str
    with_more: str | None
    """What the next larger placement would bring it and cost the others."""
    curve: tuple[CurvePoint, ...]


class GroupUse(Record):
    """Devices of one node group."""

    name: str
    gpus: int
    used: int


class Allocation(Answer):
    """Schema ``allocation/1``: who gets what, proved or with the gap that is left."""

    schema_: Literal["allocation/1"] = Field("allocation/1", alias="schema")
    status: Literal["optimal", "feasible", "infeasible"]
    objective: str
    value: float | None
    """throughput: useful FLOP/s times priority; weighted-finish: seconds times priority; cost: dollars;
    fairness: sum of priority times the logarithm of the share of its best pace."""
    bound: float | None
    """Nothing is better than this among the placements that were looked at."""
    gap: float | None
    """The distance of value and bound over the value; for fairness the distance itself."""
    statement: str
    jobs: tuple[JobAnswer, ...]
    groups: tuple[GroupUse, ...]
    assumed: tuple[str, ...]
    searches: int
    unpriced: int
    """Placements that the time limit left out."""
    curve_seconds: float
    solve_seconds: float
    version: str
    catalogue_hash: str
