"""The result document of ``plan sparse``, schema ``sparse/1``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import Field

from costmodels.sparse.load import Mode
from costmodels.sparse.model import SparseModel
from hardware.servers import SparseCluster
from planner.answer.plan import Answer, Record

Status = Literal["optimal", "feasible", "infeasible"]
Machines = Literal["cpu", "accelerators", "all"]
MACHINES: Final[Mapping[Machines, str]] = {
    "all": "all machines",
    "cpu": "CPU nodes",
    "accelerators": "accelerators",
}
"""Which of the machines a plan may use, in words."""


class SparseRequest(Record):
    """What is asked: a model, machines, and a throughput to reach or a rent to keep to."""

    model: SparseModel
    cluster: SparseCluster
    min_throughput: float | None = Field(default=None, gt=0.0, le=1e12)
    """Examples per second."""
    max_cost_per_hour: float | None = Field(default=None, gt=0.0, le=1e9)
    """Dollars per hour."""
    mode: Mode | None = None
    """None: whichever is cheapest (or fastest)."""
    max_staleness: int | None = Field(default=None, ge=0, le=10**12, strict=True)
    """Steps of other workers between a worker's pull and its push, at most."""
    time_limit: float | None = Field(default=None, gt=0.0, le=1e9)
    """Seconds."""


class Rented(Record):
    """Nodes of one group and how busy they are."""

    group: str
    nodes: int
    of: int
    """How many there are."""
    cost_per_hour: float
    examples_per_second: float | None
    """What the group keeps up with; absent where it has nothing to do."""
    usage: dict[str, float]
    """Share of each resource in use at the plan's throughput."""
    binds: str
    """The scarcest resource."""


class Placed(Record):
    """A part of the model and the group that it runs on."""

    name: str
    kind: Literal["read", "table", "dense"]
    group: str
    home: str | None = None
    """Of a table: the group whose nodes share its rows out among them."""
    bytes_by_tier: dict[str, float] | None = None
    """Of a table: bytes in device memory (hbm), host memory (dram) and on drives (ssd)."""
    bytes_per_node: float | None = None
    """Of a table: bytes on each node of ``home``."""


class Stage(Record):
    """Parts in a row on one group: a stage of the pipeline."""

    group: str
    places: tuple[str, ...]


class Alternative(Record):
    """The best plan on some of the machines and in one mode."""

    machines: Machines
    mode: Mode
    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    cost_per_hour: float | None = None
    examples_per_second: float | None = None
    nodes: dict[str, int] = Field(default_factory=dict)


class Nearest(Record):
    """The nearest request that works."""

    text: str
    min_throughput: float | None = None
    max_cost_per_hour: float | None = None


class SparseProof(Record):
    """How far from the best the plan can be, within the model."""

    objective: Literal["cost", "throughput"]
    bound: float | None = None
    """No plan costs less (dollars per hour), or none is faster (examples per second); absent where the budget ran out
    before anything was ruled out, and where nothing works."""
    gap: float
    """Relative distance to it; 1 without one."""
    solve_seconds: float


class SparsePlan(Answer):
    """An answer to a ``SparseRequest``."""

    schema_: Literal["sparse/1"] = Field(default="sparse/1", alias="schema")
    status: Status
    request: SparseRequest
    mode: Mode | None = None
    examples_per_second: float | None = None
    cost_per_hour: float | None = None
    cost_per_million_examples: float | None = None
    staleness: int | None = None
    """Steps of other workers between a worker's pull and its push."""
    parameters: float
    table_bytes: float
    rented: tuple[Rented, ...] = ()
    places: tuple[Placed, ...] = ()
    stages: tuple[Stage, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    proof: SparseProof
    reason: str | None = None
    """Why nothing works."""
    nearest: Nearest | None = None
    assumed: tuple[str, ...] = ()
    """What nobody said and was filled in, with the option that changes it."""
    version: str
    catalogue_hash: str
