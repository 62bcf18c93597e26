"""The answer to how many machines a deadline or a budget asks for, as a document."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from planner.answer.plan import Provenance, Strategy


class Option(BaseModel):
    """A size and the best plan on it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpus: int
    nodes: int
    days: float
    """Of training; of wall time with interruptions and checkpoints where goodput is asked about."""
    cost_dollars: float | None
    """Of these days; of the spare nodes too where goodput is asked about."""
    mfu: float
    iteration_seconds: float
    """Undisturbed, as ``mfu`` is."""
    global_batch_size: int
    strategy: Strategy
    proved: bool
    """Whether the search proved that nothing on this size is faster."""
    effective: float | None = None
    """Share of the wall time in which iterations run; None where interruptions are not counted."""
    spare_nodes: int | None = None
    """Beside the job's nodes, likewise."""
    careful: tuple[str, ...] = ()
    """What `plan` warns of on this size, memory that is all but full among it."""


class Neighbour(BaseModel):
    """The smallest size found for another deadline, and what it costs beside the answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    deadline_days: float
    option: Option
    extra_dollars: float | None
    """Its cost less the answer's."""
    over_dollars: float | None = None
    """What it costs beyond the budget; None where that pays it, or there is none."""


class Size(BaseModel):
    """The answer to "how many GPUs", schema ``size/1``."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: Literal["size/1"] = Field("size/1", alias="schema")
    status: Literal["met", "infeasible"]
    model: str
    cluster: str
    tokens: int
    deadline_days: float | None
    budget_dollars: float | None
    defaults: tuple[str, ...]
    answer: Option | None = None
    """The smallest for a deadline; the fastest where there is only a budget."""
    smallest: Option | None = None
    """The fewest nodes that meet the limits."""
    cheapest: Option | None = None
    """The least cost among the sizes that were searched and meet the limits."""
    fastest: Option | None = None
    """The least days among the sizes that were searched and meet the limits."""
    neighbours: tuple[Option, ...] = ()
    """One node fewer and one more than the answer, where they run."""
    day_later: Neighbour | None = None
    day_sooner: Neighbour | None = None
    nearest: Option | None = None
    """Where nothing meets the limits: what comes nearest."""
    proved: bool = False
    """Whether every size below the smallest was searched to its end, or would need more than the peak rate."""
    searched: int = 0
    statement: str = ""
    provenance: Provenance
