"""The result document, schema ``plan/1``."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, field_validator, model_serializer

Status = Literal["optimal", "feasible", "infeasible"]
Count = Annotated[int, Field(ge=1)]
Number = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Amount = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
ROUNDING: Final = 1e-6
"""Seconds that a term which is a difference of others may be below nothing."""


class Record(BaseModel):
    """A part of an answer: it never changes, and holds nothing that its schema does not say."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Answer(Record):
    """The answer to a question, which shows itself at a prompt, in a notebook, as a table and as a picture.

    What draws it stands above it, in ``planner.render.notebook``, and is loaded when it is first asked for.
    """

    def __repr__(self) -> str:
        """Three lines: what was asked, what came of it, and how sure that is."""
        return str(_drawn("headlines").three_lines(self))

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """A card for a notebook, which needs nothing else and takes the colours of what is around it."""
        return str(_drawn("card").card(self))

    def to_json(self, *, indent: int | None = 2) -> str:
        """The document as JSON, as ``--format json`` prints it."""
        return self.model_dump_json(by_alias=True, indent=indent)

    def summary(self, width: int = 80) -> str:
        """The screen that the command shows, without colours, so many columns wide."""
        return str(_drawn("summary").summary(self, width))

    def to_frame(self, table: str | None = None, *, library: Literal["pandas", "polars"] | None = None) -> Any:
        """A table of the answer as a data frame; a name that there is none of lists those that there are.

        Args:
            table: such as "alternatives" or "stages" of a plan; the first of its kind unless given.
            library: whose frame; pandas where it is installed, else polars, unless given.

        Raises:
            BadRequest: no such table, or neither library is installed.
        """
        return _drawn("frames").frame(self, table, library)

    def plot(self, *, library: Literal["matplotlib", "plotly"] | None = None) -> Any:
        """A figure of the answer: where time and memory go, or what it compares.

        Args:
            library: whose figure; matplotlib where it is installed, else plotly, unless given.

        Raises:
            BadRequest: such an answer has no figure, or neither library is installed.
        """
        return _drawn("charts").plot(self, library)


def _drawn(module: str) -> Any:
    return import_module(f"planner.render.notebook.{module}")


class Stage(Record):
    """Layers of one pipeline stage, how many of them are recomputed, and the node group it runs on.

    Degrees stand here where they differ between node groups; elsewhere those of the strategy hold.
    """

    layers: Number
    recompute_layers: Number
    group: str
    tp: int | None = None
    dp: int | None = None
    micro_batch_size: int | None = None
    sharding_degree: int | None = None

    @model_serializer(mode="wrap")
    def _what_is_said(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in usual(self).items() if value is not None}


class Strategy(Record):
    """A full set of degrees and switches."""

    @property
    def by_group(self) -> bool:
        """Whether the degrees differ between node groups, and stand at the stages."""
        return any(stage.tp or stage.dp for stage in self.stages)

    tp: int
    cp: int
    cp_kind: str
    """How context ranks exchange, one of ``costmodels.names.CP_KINDS``."""
    cp_near: int
    """Context ranks that exchange tokens for heads; the others form a ring, or gather."""
    pp: int
    vpp: int
    dp: int
    ep: int
    etp: int
    zero_stage: int
    sharding_degree: int
    micro_batch_size: int
    num_microbatches: int
    global_batch_size: int
    schedule: str
    sequence_parallel: bool
    recompute: str
    rank_order: str
    recompute_modules: tuple[str, ...] = ()
    """What selective recomputation repeats, where modules are named."""
    offload: str = "none"
    """What lives in the memory of the host."""
    vocabulary: str = "ends"
    recompute_num_layers: int = 1
    """Layers that are recomputed together from one stored input, where all are recomputed."""
    stages: tuple[Stage, ...]


class Interval(Record):
    """Where the measured iteration time should lie, seconds."""

    low: Amount
    high: Positive
    coverage: Share


class Prediction(Record):
    """What the strategy is predicted to do.

    MFU counts model FLOPs with full attention (within a sliding window where there is one), HFU recomputation too.
    """

    iteration_seconds: Positive
    mfu: Amount
    hfu: Amount
    model_tflops_per_gpu: Amount
    tokens_per_second: Amount
    tokens_per_second_per_gpu: Amount
    iterations: Count
    training_days: Amount
    gpu_hours: Amount
    cost_dollars: Amount | None
    energy_megawatt_hours: Amount
    interval: Interval
    fit_probability: Share | None = None
    """Probability that its fullest device has the memory that it needs; None in answers of earlier versions."""


class Goodput(Record):
    """What interruptions and checkpoints leave of the wall time; the five shares add up to 1."""

    mean_hours_between_failures: Amount | None
    """None where nothing fails."""
    checkpoint_bytes: Amount
    checkpoint_stall_seconds: Amount
    checkpoint_interval_seconds: Amount | None
    """Of training between checkpoints; None: never."""
    checkpoint_interval_iterations: Number | None
    downtime_seconds: Amount
    """From an interruption to the next iteration."""
    startup_seconds: Amount
    """Of those, until the process groups exist."""
    spare_nodes: Number
    effective: Positive
    """Share of the wall time in which iterations run at their predicted pace."""
    checkpoints: Amount
    failures: Amount
    repairs: Amount
    stragglers: Amount
    wall_days: Amount
    """Training days over ``effective``."""
    wall_cost_dollars: Amount | None
    """Of the job's nodes and its spare ones over the wall time."""
    spare_cost_dollars: Amount | None = None
    """Of that, for the spare nodes."""
    wall_energy_megawatt_hours: Amount | None = None
    """Of the same nodes at rated power; None in answers of earlier versions."""


class StageMemory(Record):
    """Bytes on the busiest rank of one stage."""

    stage: Number
    weights: Amount
    gradients: Amount
    optimizer: Amount
    activations: Amount
    logits: Amount
    slack: Amount
    reserved: Amount
    total: Amount
    limit: Positive


class Alternative(Record):
    """A runner-up that differs in kind, with what it differs in."""

    strategy: Strategy
    iteration_seconds: Positive
    mfu: Amount
    peak_memory_bytes: Amount
    differs: str
    effective: Positive | None = None
    """Share of the wall time in which iterations run, where goodput is wanted."""
    tied: bool = False
    """It has more than one chance in three to be faster than the plan, by what measured runs show."""


class Rejection(Record):
    """A rule that rejected part of the space: how many strategies, and one of them in words."""

    rule: str
    count: Number
    example: str


class Advice(Record):
    """One line of explanation with its numbers: why not another choice, or what would help."""

    subject: str
    text: str
    iteration_seconds: Amount | None = None
    """Of what would help where goodput is wanted: of wall time for an iteration."""
    peak_memory_bytes: Amount | None = None
    """That the fullest device allocates, where the least memory is wanted."""
    proved: bool = True
    """False where time ran out: the figure is of the best found, what there is may be better."""


class Comparable(Record):
    """A measured run, how far it is from the plan, and how well it is predicted."""

    group: str
    """The group of runs it belongs to, as in the README's table of errors."""
    model: str
    accelerator: str
    gpus: Count
    stack: str
    layout: str
    """Its degrees of parallelism above 1."""
    distance: Amount
    """0 is the same; 1 is another vendor, another family of frameworks, experts in place of dense layers."""
    measured_seconds: Amount
    measured_mfu: Amount
    error: float
    """Predicted over measured, minus one."""


class Trust(Record):
    """Where the plan stands among the runs that predictions were compared with."""

    nearest: tuple[Comparable, ...]
    """The nearest measured run of each of the nearest groups."""
    region: Amount
    """The distance from runs of other sources that nine of ten measured runs keep within."""
    inside: bool
    """Whether the nearest run is within it, and no degree beyond what was measured."""
    differs: tuple[str, ...]
    """In what the nearest run differs most."""
    beyond: tuple[str, ...] = ()
    """Degrees of more than twice the largest that measured runs of such models have."""


class Proof(Record):
    """Why no other strategy in the space is better within the model."""

    candidates: Number
    feasible: Number
    """Of those that were priced, how many can run; what cannot be better is not priced."""
    priced: Number
    solves: Number
    lower_bound_seconds: Amount
    gap: Share
    wall_seconds: Amount
    simulated_pipeline_seconds: Amount | None = None
    """The pipeline's seconds by event simulation; None where it is too long to simulate."""
    closed_form_pipeline_seconds: Amount | None = None
    statement: str
    scope: tuple[str, ...] = ()
    """Among which strategies it is proved, one phrase for whatever restricts them, such as "without offloading"."""
    fastest_seconds: Positive | None = None
    """The proved optimum, where the plan is another one that is tied with it."""

    @field_validator("scope", mode="before")
    @classmethod
    def _phrases(cls, value: object) -> object:
        """One sentence, as earlier answers have it, is one phrase, or none."""
        return ((value,) if value else ()) if isinstance(value, str) else value


class Provenance(Record):
    """What produced the plan."""

    version: str
    catalogue_hash: str
    sources: tuple[str, ...]


class Plan(Answer):
    """The answer to a request."""

    schema_: Literal["plan/1"] = Field("plan/1", alias="schema")
    status: Status
    request: dict[str, Any]
    defaults: tuple[str, ...] = ()
    strategy: Strategy | None = None
    prediction: Prediction | None = None
    fits: bool = True
    """Whether every stage fits its device; only a predicted strategy can be false here."""
    goodput: Goodput | None = None
    breakdown_seconds: dict[str, Annotated[float, Field(ge=-ROUNDING)]] = Field(default_factory=dict)
    memory_bytes: tuple[StageMemory, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    alternatives_complete: bool = True
    """Whether all promising runners-up were looked at; False where time ran out, and others may be better."""
    better_validated: Advice | None = None
    """A strategy that is tied with the plan and that less speaks against; ``ties`` "validated" takes it."""
    saving_memory: Advice | None = None
    """Where the plan is faster by 5 % or more with what saves memory at a price, such as offloading: by how much, and
    the option that asks for it."""
    warnings: tuple[str, ...] = ()
    """What may go wrong with this plan, and what to do about it."""
    choices: tuple[Advice, ...] = ()
    """Other plans that there would be with another option, by the option."""
    startable: bool = True
    """False where the framework of the stack refuses the plan, which a warning says."""
    why_not: tuple[Advice, ...] = ()
    what_helps: tuple[Advice, ...] = ()
    closest_run: str | None = None
    trust: Trust | None = None
    rejected: tuple[Rejection, ...] = ()
    nearest: Advice | None = None
    """For an infeasible request: the nearest one that works."""
    nothing_near: str = ""
    """For an infeasible request near which none was found that works: what was tried."""
    proof: Proof | None = None
    provenance: Provenance

    @property
    def value(self) -> float:
        """What the request wants least of: seconds of an iteration or of wall time, or bytes on the fullest device.

        Infinite where nothing fits.
        """
        if self.prediction is None:
            return math.inf
        if self.request.get("objective") == "memory":
            return max(stage.total - stage.slack - stage.reserved for stage in self.memory_bytes)
        wall = self.goodput if self.request.get("objective") == "goodput" else None
        return self.prediction.iteration_seconds / (wall.effective if wall else 1.0)

    @property
    def proved(self) -> bool:
        """Whether its proof says that nothing is better; true of a strategy that was only priced."""
        return self.proof is None or self.status == "optimal" or self.proof.fastest_seconds is not None

    def to_json(self, *, indent: int | None = 2) -> str:
        """The document as JSON; unset optional parts of a prediction are null, absent sections are left out."""
        optional = ("strategy", "prediction", "goodput", "proof", "nearest", "trust")
        absent = {name for name in (*optional, "better_validated", "saving_memory") if getattr(self, name) is None}
        return self.model_dump_json(by_alias=True, indent=indent, exclude=absent)
