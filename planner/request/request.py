"""What a person asks for: the record of a question; the table ``fields`` says how its fields are called and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Unpack

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from costmodels.model.model import Model
from costmodels.stability import Stability
from costmodels.stack.adapters import Adapters
from costmodels.stack.finetune import BasePrecision, ReferenceModel, TaskName, task_named
from costmodels.stack.optimizers import named_optimizer
from costmodels.stack.precision import known_precision
from costmodels.stack.releases import Month
from costmodels.stack.stack import Stack
from costmodels.stack.switches import LARGEST_CAPACITY, OptimizerName
from hardware.errors import flatten, meant
from hardware.records import Cluster
from planner.errors import BadRequest
from planner.request import tables
from planner.request.fields import FIELDS, PIN_AXES, default_of, field_of, no_such_field
from planner.request.overrides import known_changes
from planner.request.pins import without_numpy
from planner.request.values import LONGEST, MOST_TOKENS, READERS

if TYPE_CHECKING:
    from pathlib import Path

    from planner.request.changes import RequestFields

Objective = Literal["time", "mfu", "cost", "tokens-per-gpu-hour", "memory", "goodput"]

LARGEST_GPUS = 2**24
LARGEST_BATCH = 2**28
LARGEST_SEQUENCE = 2**24
MOST_LAYERS = 2**20
DEAREST = 10_000
MOST_STAGES = 4096

_WRITTEN: Final = tables.also_accepts({"type": "string", "examples": ["300B"]})
_LENGTH: Final = tables.also_accepts({"type": "string", "examples": ["8k"]})
_TIME: Final = tables.also_accepts({"type": "string", "examples": ["30s"]})
_PAIRS: Final = tables.also_accepts({"type": "string", "examples": ["detect=5 min,spare_nodes=8"]})
_COUNTS: Final = tables.also_accepts({"type": "string", "examples": ["12,12,11,13"]})
_DOLLARS: Final = tables.also_accepts({"type": "string", "examples": ["$2.50"]})
_PERCENT: Final = tables.also_accepts({"type": "string", "pattern": r"^\s*[0-9.]+%?\s*$"})
_Layers = Annotated[int, Field(ge=0, le=MOST_LAYERS)]
_OF_STAGES: Final = Field(min_length=1, max_length=MOST_STAGES)


def _described(schema: dict[str, Any]) -> None:
    """Say in the JSON Schema what each field is."""
    for name, field in schema["properties"].items():
        if name in FIELDS:
            field["description"] = FIELDS[name].help


_SHARES: Final = [name for name, field in FIELDS.items() if field.kind == "share"]


class _OneLineErrors(type(BaseModel)):  # type: ignore[misc]  # the metaclass has no public name
    """What is wrong with a question that Python makes is one line, not a report of pydantic's."""

    if not TYPE_CHECKING:

        def __call__(cls, *values: Any, **fields: Any) -> Any:
            """The question; raises BadRequest with what is wrong, and the nearest field there is."""
            if values:
                raise BadRequest(f"{cls.__name__} takes its fields by name: {cls.__name__}(model='llama3-8b', gpus=64)")
            if unknown := sorted(fields.keys() - cls.model_fields.keys()):
                raise BadRequest(no_such_field(unknown[0], "pins"))
            try:
                return super().__call__(**fields)
            except ValidationError as error:
                raise BadRequest(flatten(error, _SHARES)) from None


class PlanRequest(BaseModel, metaclass=_OneLineErrors):
    """A planning question; the table says what its fields are. `resolve` fills unset ones, and says what it filled.

    ``pins`` restricts axes: a value, a list of values, or a range as text ("8", "4,8", "..8", "2..16").
    """

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=_described)

    model: Annotated[str | Model, tables.accepts_table("model")]
    gpus: Annotated[int, Field(gt=0, le=LARGEST_GPUS)]
    cluster: Annotated[str | Cluster, tables.accepts_table("cluster")] = default_of("cluster")
    stack: Annotated[str | Stack, tables.accepts_table("stack")] = default_of("stack")
    as_of: Month | None = None
    """Month, such as 2024-12, whose release of the stack is meant; None: today's, or the one in ``stack@release``."""
    global_batch_size: Annotated[int, Field(gt=0, le=LARGEST_BATCH)] | None = None
    seq_length: Annotated[int | None, Field(gt=0, le=LARGEST_SEQUENCE), _LENGTH] = None
    tokens: Annotated[int, Field(gt=0, lt=MOST_TOKENS), _WRITTEN] | None = None
    precision: str = default_of("precision")
    objective: Objective = default_of("objective")
    framework: str | None = None
    pins: Mapping[str, Any] = Field(default_factory=dict)
    layers_per_stage: Annotated[tuple[_Layers, ...] | None, _OF_STAGES, _COUNTS] = None
    """Layers of every pipeline stage, of a strategy that is priced and not searched."""
    recomputed_per_stage: Annotated[tuple[_Layers, ...] | None, _OF_STAGES, _COUNTS] = None
    """Layers that every stage recomputes, the first ones, where recompute is partial; likewise."""
    memory_margin: Annotated[float, Field(ge=0, le=0.9), _PERCENT] | None = None
    """Share of the usable memory that is left alone; None: the usual one in a search, none of a given strategy."""
    expert_capacity: Annotated[float, Field(gt=0, le=LARGEST_CAPACITY)] | None = None
    """Tokens that every expert computes over the mean, more dropped and fewer padded; None as the stack does."""
    expert_imbalance: Annotated[float, Field(ge=1, le=1000)] | None = None
    """Tokens of the busiest expert rank over the mean; None as the stack does."""
    optimizer: OptimizerName | None = None
    main_grads: Literal["fp32", "bf16"] | None = None
    main_params: Literal["fp32", "fp16"] | None = None
    fp8_param_gather: bool | None = None
    loss: Literal["plain", "fused"] | None = None
    loss_block: Annotated[int, Field(gt=0, le=2**31)] | None = None
    offload_fraction: Annotated[float, Field(gt=0, le=1), _PERCENT] | None = None
    adapters: str | None = None
    """Rank of low-rank adapters that train on frozen weights, and the modules that have them: "16" or
    "16:linear_qkv,linear_proj"; with kernels of PEFT's "16/autocast+dropout"."""
    base_precision: BasePrecision | None = None
    """Format that frozen weights are stored in; -double: constants of 4-bit blocks are quantised too."""
    frozen_layers: Annotated[int, Field(gt=0, le=MOST_LAYERS)] | None = None
    """First layers that do not train; neither does the embedding in front of them."""
    frozen_embeddings: bool | None = None
    task: TaskName | None = None
    """What is learnt; unset: pretraining, or a fine-tune where something is frozen."""
    reference_model: ReferenceModel | None = None
    """Unset: the same weights with adapters off where adapters train, else a copy, where the task has a reference."""
    document_length: Annotated[int, Field(gt=0, le=LARGEST_SEQUENCE)] | None = None
    """Mean tokens of the documents that are packed into a sequence; unset: attention spans the sequence."""
    images_per_sample: Annotated[int, Field(gt=0, le=2**20)] | None = None
    """Images of a sample, which a model with a vision tower encodes; unset: text alone."""
    image_tokens: Annotated[int, Field(gt=0, le=LARGEST_SEQUENCE)] | None = None
    """Tokens of the sequence that stand for an image; unset: as the tower has it, or 1,024."""
    train_tower: bool | None = None
    """Whether the vision tower trains; unset: it is frozen."""
    changes: Mapping[str, Any] = Field(default_factory=dict)
    """Single fields of the stack and the model by path, such as ``stack.overlap.pp``; also whole features of a stack,
    as another one has them. Tables may be nested."""
    stability: Annotated[Stability | None, _PAIRS] = None
    """Interruptions and checkpoints; with it, or with the objective goodput, the plan says what they cost."""
    reasons: bool = default_of("reasons")
    """Whether the answer says what else would nearly do, why not something else and what would help; without them it
    comes several times as fast, and is as much proved."""
    ties: Literal["fastest", "close", "validated"] = default_of("ties")
    """How far from the fastest strategy a better-validated one may be to be taken: not at all, 0.1 %, or as far as
    measured sweeps cannot tell them apart."""
    top: Annotated[int, Field(ge=0, le=1000)] = default_of("top")
    price: Annotated[float | None, Field(gt=0, le=DEAREST), _DOLLARS] = None
    """Dollars a device and hour; None as the catalogue has it."""
    time_limit: Annotated[float | None, Field(gt=0, lt=LONGEST), _TIME] = default_of("time_limit")
    """Seconds that the answer may take; without it effort is counted, so that every machine gives the same answer."""

    if TYPE_CHECKING:  # fields as people write them, which validators read: text for numbers, paths, tables

        def __init__(
            self, *, model: str | Path | Mapping[str, Any] | Model, gpus: int, **fields: Unpack[RequestFields]
        ) -> None:
            """Check the fields; raises BadRequest."""

    @field_validator("*", mode="before")
    @classmethod
    def _as_written(cls, value: object, field: ValidationInfo) -> object:
        """What was given, read by the kind of its field in the table."""
        name = str(field.field_name)
        _refuse_no_text(value)
        if name in tables.RECORDS:
            record, build = tables.RECORDS[name]
            return tables.name_or_record(record, value, build)
        return READERS[FIELDS[name].kind](value) if name in FIELDS and FIELDS[name].kind in READERS else value

    @field_validator("precision")
    @classmethod
    def _known_precision(cls, value: str) -> str:
        return known_precision(value)

    @field_validator("adapters", mode="before")
    @classmethod
    def _adapters(cls, value: object) -> object:
        if value is None or isinstance(value, bool):
            return value
        _ = Adapters.read(str(value))
        return str(value)

    @field_validator("task", mode="before")
    @classmethod
    def _task(cls, value: object) -> object:
        return task_named(value) if isinstance(value, str) else value

    @field_validator("optimizer", mode="before")
    @classmethod
    def _optimizer(cls, value: object) -> object:
        return named_optimizer(value) if isinstance(value, str) else value

    @field_validator("framework")
    @classmethod
    def _known_framework(cls, value: str | None) -> str | None:
        from planner.frameworks.registry import ANY, FRAMEWORKS, TRAINERS

        if under := TRAINERS.get(value or ""):
            raise ValueError(
                f"{value!r} trains on {under}: give {under} here; then `plan export --to {value}` writes its files"
            )
        if value not in {None, ANY, *FRAMEWORKS}:
            raise ValueError(f"unknown framework {value!r:.60}; {meant(str(value), FRAMEWORKS, most=2)}")
        return value

    @field_validator("changes", mode="before")
    @classmethod
    def _known_paths(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            raise ValueError('expected paths and values, such as {"stack.overlap.pp": 0.1}')  # noqa: TRY004 - pydantic's
        try:
            found = known_changes(value)
        except BadRequest as error:
            raise ValueError(str(error)) from None
        for path, new in found.items():
            _refuse_no_text(new, f"{path}: ")
        return found

    @field_validator("pins")
    @classmethod
    def _known_axes(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        if unknown := sorted(set(value) - set(PIN_AXES), key=str):
            raise ValueError(_no_axis(str(unknown[0])))
        return {axis: without_numpy(axis, given) for axis, given in value.items()}


def _no_axis(name: str) -> str:
    axis = field_of(f"pins.{name}")
    every = f"the axes are {', '.join(PIN_AXES)}"
    near = meant(name, PIN_AXES, otherwise=every) if axis is None else f"did you mean {axis.removeprefix('pins.')}?"
    return f"cannot pin {name!r:.40}; {near}"


def _refuse_no_text(value: object, where: str = "") -> None:
    """Bytes are no text, though pydantic reads "8" and b"8" alike; nor is what no path may hold."""
    if isinstance(value, bytes | bytearray | memoryview):
        raise ValueError(f"{where}expected text or a number, got {bytes(value)!r:.40}")  # noqa: TRY004 - pydantic's
    if isinstance(value, str) and "\0" in value:
        raise ValueError(f"{where}contains a NUL character")


def request_from(fields: Mapping[str, Any], where: str = "") -> PlanRequest:
    """The question of a table of its fields.

    Raises:
        BadRequest: what is wrong with it, in one line that begins with ``where``.
    """
    try:
        return PlanRequest(**fields)
    except BadRequest as error:
        raise BadRequest(f"{where}{error}") from None
    except TypeError:
        raise BadRequest(f"{where}its fields are not names") from None
