"""What a person asks for, and its resolution into records with every default made explicit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from costmodels.groups import Mixed
from costmodels.model.catalogue import model as find_model
from costmodels.model.model import Model
from costmodels.scenario import REDUCED, Scenario
from costmodels.stack.adapters import OF_ATTENTION, Adapters
from costmodels.stack.choices import chosen
from costmodels.stack.optimizers import OptimizerName
from costmodels.stack.precision import known_precision
from costmodels.stack.stack import Stack
from costmodels.stack.stack import stack as find_stack
from costmodels.stack.switches import LARGEST_CAPACITY
from costmodels.training.stability import Stability
from hardware.catalogue import cluster as find_cluster
from hardware.errors import meant
from hardware.records import Cluster
from hardware.units import counted
from planner.errors import BadRequest
from planner.request import tables
from planner.request.axes import PIN_AXES
from planner.request.defaults import (
    DEFAULT_CLUSTER,
    DEFAULT_STACK,
    filled,
    standing_by,
    unsaid,
    usual_batch,
    usual_tokens,
)
from planner.request.overrides import bare, changed_model, changed_stack, flat, known_path, known_table
from planner.request.pins import plainly
from planner.request.written import plain_number, plain_switch

Objective = Literal["time", "mfu", "cost", "tokens-per-gpu-hour", "memory", "goodput"]

LARGEST_GPUS = 2**24
LARGEST_BATCH = 2**28
LARGEST_SEQUENCE = 2**24


_NUMBERS: Final = {
    **dict.fromkeys(("gpus", "global_batch_size", "seq_length", "top", "loss_block"), "a whole number"),
    **dict.fromkeys(("expert_capacity", "expert_imbalance"), "a number"),
    **dict.fromkeys(("tokens", "time_limit", "offload_fraction"), ""),
}
"""Fields that are numbers, of which Python would take True for 1, and of what kind; "" where they are also written as
people do: "2T", "30s", "50%"."""
_TIME: Final = tables.also({"type": "string", "examples": ["30s"]})
_PAIRS: Final = tables.also({"type": "string", "examples": ["detect=5 min,spare_nodes=8"]})
_PERCENT: Final = tables.also({"type": "string", "pattern": r"^\s*[0-9.]+%?\s*$"})


class PlanRequest(BaseModel):
    """A planning question. Unset fields are filled by `resolve`, which says what it filled.

    ``pins`` restricts axes: a value, a list of values, or a range as text ("8", "4,8", "..8", "2..16").
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Annotated[str | Model, tables.table_of("model")]
    gpus: Annotated[int, Field(gt=0, le=LARGEST_GPUS)]
    cluster: Annotated[str | Cluster, tables.table_of("cluster")] = DEFAULT_CLUSTER
    stack: Annotated[str | Stack, tables.table_of("stack")] = DEFAULT_STACK
    as_of: Annotated[str, Field(pattern=r"^20\d\d-(0[1-9]|1[0-2])$")] | None = None
    """Month, such as 2024-12, whose release of the stack is meant; None: today's, or the one in ``stack@release``."""
    global_batch_size: Annotated[int, Field(gt=0, le=LARGEST_BATCH)] | None = None
    seq_length: Annotated[int, Field(gt=0, le=LARGEST_SEQUENCE)] | None = None
    tokens: Annotated[int, Field(gt=0, lt=10**18), tables.WRITTEN] | None = None
    precision: str = "bf16"
    objective: Objective = "time"
    framework: str | None = None
    """Only what this framework accepts is proposed; the name of its exporter."""
    pins: Mapping[str, Any] = Field(default_factory=dict)
    memory_margin: Annotated[float, Field(ge=0, le=0.9), _PERCENT] = 0.0
    """Share of the usable memory that is left alone."""
    expert_capacity: Annotated[float, Field(gt=0, le=LARGEST_CAPACITY)] | None = None
    """Tokens that every expert computes over the mean, more dropped and fewer padded; None as the stack does."""
    expert_imbalance: Annotated[float, Field(ge=1, le=1000)] | None = None
    """Tokens of the busiest expert rank over the mean; None as the stack does."""
    optimizer: OptimizerName | None = None
    main_grads: Literal["fp32", "bf16"] | None = None
    """Format that gradients are added up and reduced in."""
    main_params: Literal["fp32", "fp16"] | None = None
    """Format of the master weights."""
    fp8_param_gather: bool | None = None
    """Keep and gather weights in 8 bits, under a recipe of 8 bits."""
    loss: Literal["plain", "fused"] | None = None
    loss_block: Annotated[int, Field(gt=0, le=2**31)] | None = None
    """Tokens whose logits exist at once."""
    offload_fraction: Annotated[float, Field(gt=0, le=1), _PERCENT] | None = None
    """Share of the optimizer states that is offloaded where they are."""
    adapters: str | None = None
    """Rank of low-rank adapters that train beside frozen weights, and the modules that have them: "16" or
    "16:linear_qkv,linear_proj"; with kernels of PEFT's "16/autocast+dropout"."""
    changes: Mapping[str, Any] = Field(default_factory=dict)
    """Single fields of the stack and the model by path, such as ``stack.overlap.pp``; also whole features of a stack,
    as another one has them. Tables may be nested."""
    stability: Annotated[Stability | None, _PAIRS] = None
    """Interruptions and checkpoints; with it, or with the objective goodput, the plan says what they cost."""
    reasons: bool = True
    """Whether the answer says what else would nearly do, why not something else and what would help; without them it
    comes several times as fast, and is as much proved."""
    ties: Literal["fastest", "close", "validated"] = "close"
    """How far from the fastest strategy a better-validated one may be to be taken: not at all, 0.1 %, or as far as
    measured sweeps cannot tell them apart."""
    top: Annotated[int, Field(ge=0, le=1000)] = 5
    time_limit: Annotated[float, Field(gt=0, lt=tables.LONGEST), _TIME] = 60.0

    @field_validator("model", mode="before")
    @classmethod
    def _model(cls, value: object) -> object:
        return tables.named_or(Model, value, tables.model_of)

    @field_validator("cluster", mode="before")
    @classmethod
    def _cluster(cls, value: object) -> object:
        return tables.named_or(Cluster, value, tables.cluster_of)

    @field_validator("stack", mode="before")
    @classmethod
    def _stack(cls, value: object) -> object:
        return tables.named_or(Stack, value, tables.stack_of)

    @field_validator(*_NUMBERS, mode="before")
    @classmethod
    def _number(cls, value: object, field: ValidationInfo) -> object:
        return plain_number(value, expected=_NUMBERS[str(field.field_name)])

    _switch = field_validator("fp8_param_gather", "reasons", mode="before")(plain_switch)

    _tokens = field_validator("tokens", mode="before")(counted)
    _seconds = field_validator("time_limit", mode="before")(tables.seconds_written)
    _share = field_validator("memory_margin", "offload_fraction", mode="before")(tables.share_written)
    _interruptions = field_validator("stability", mode="before")(tables.stability_written)

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

    @field_validator("framework")
    @classmethod
    def _known_framework(cls, value: str | None) -> str | None:
        from planner.frameworks.registry import FRAMEWORKS

        if value is not None and value not in FRAMEWORKS:
            raise ValueError(f"{value!r} reads no plan; {', '.join(FRAMEWORKS)} do")
        return value

    @field_validator("changes", mode="before")
    @classmethod
    def _known_paths(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            raise ValueError('expected paths and values, such as {"stack.overlap.pp": 0.1}')  # noqa: TRY004 - pydantic's
        try:
            for path in bare(value):
                known_table(path)
            found = {known_path(path): new for path, new in flat(value)}
        except BadRequest as error:
            raise ValueError(str(error)) from None
        for path, new in found.items():
            _no_bytes(path, new)
        return found

    @field_validator("pins")
    @classmethod
    def _known_axes(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        if unknown := sorted(set(value) - set(PIN_AXES), key=str):
            raise ValueError(_no_axis(str(unknown[0])))
        return {axis: plainly(axis, given) for axis, given in value.items()}

    @model_validator(mode="before")
    @classmethod
    def _text(cls, fields: object) -> object:
        """Bytes are no text, though pydantic reads "8" and b"8" alike."""
        for name, value in fields.items() if isinstance(fields, Mapping) else ():
            _no_bytes(name, value)
        return fields


def _no_axis(name: str) -> str:
    from planner.request.fields import field_of  # knows what else axes are called; it reads this file

    axis = field_of(f"pins.{name}")
    every = f"the axes are {', '.join(PIN_AXES)}"
    near = meant(name, PIN_AXES, otherwise=every) if axis is None else f"did you mean {axis.removeprefix('pins.')}?"
    return f"cannot pin {name!r:.40}; {near}"


def _no_bytes(name: str, value: object) -> None:
    if isinstance(value, bytes | bytearray | memoryview):
        raise ValueError(f"{name}: expected text or a number, got {bytes(value)!r:.40}")  # noqa: TRY004 - pydantic's


@dataclass(frozen=True)
class Resolved:
    """A request with records in place of names, and where each filled value came from."""

    request: PlanRequest
    scenario: Scenario
    cluster: Cluster
    machines: Cluster
    """The cluster as it was named, before the number of GPUs."""
    software: Stack
    """The stack as it was named, before the precision, the changes and the choices."""
    tokens: int
    defaults: tuple[str, ...]
    stability: Stability | None = None
    """Interruptions and checkpoints, where they are asked about."""
    mixed: Mixed | None = None
    """All node groups, where there are several; ``scenario`` then has the first one's machines and all the GPUs."""


def resolve(request: PlanRequest) -> Resolved:
    """Look up every name, fill every default.

    Raises:
        BadRequest: values that contradict each other.
        UnknownName, BadFile: names or files that do not exist.
    """
    model = request.model if isinstance(request.model, Model) else find_model(request.model, request.seq_length)
    model = changed_model(model, request.changes)
    grads = _written_gradients(request)
    request = request.model_copy(update={"main_grads": grads}) if grads else request
    base = request.cluster if isinstance(request.cluster, Cluster) else find_cluster(request.cluster)
    software = _stack(request, base)
    choices = choices_of(request)
    stack = chosen(changed_stack(software.at(request.precision), request.changes), **choices)
    cluster = base if base.gpus == request.gpus else base.with_gpus(request.gpus)
    stack = _with_adapters(_with_experts(stack, model, request), model, request)
    seq_length = request.seq_length or model.seq_length
    _check_positions(model, seq_length)
    batch = request.global_batch_size or usual_batch(request.gpus, seq_length)
    cluster = _with_margin(cluster, request.memory_margin)
    tokens = request.tokens or usual_tokens(model, frozen=stack.switches.adapters is not None)
    asked = request.framework or ""
    sizes = (request.gpus, seq_length, batch, request.precision)
    scenario = Scenario(model, cluster.groups[0], stack, *sizes, framework=asked)
    _ = scenario.rates
    defaults = filled(request, scenario, cluster, tokens) + unsaid(base)
    defaults += (f"main gradients {grads} (as the files for {asked} have them)",) if grads else ()
    mixed = _mixed(request, scenario, cluster) if len(base.groups) > 1 else None
    if len(base.groups) > 1 and cluster.gpus != base.gpus:
        defaults += (taken_of(cluster, base),)
    stability = _stability(request)
    defaults += standing_by(scenario, stability, base) if stability else ()
    return Resolved(request, scenario, cluster, base, software, tokens, defaults, stability, mixed)


def _stability(request: PlanRequest) -> Stability | None:
    """What is said about interruptions, the usual where only goodput is asked for."""
    return request.stability or (Stability() if request.objective == "goodput" else None)


def _written_gradients(request: PlanRequest) -> str | None:
    """The format of gradients that the files of the framework asked for have, where nothing else is said of them."""
    from planner.frameworks.registry import FRAMEWORKS

    framework = FRAMEWORKS.get(request.framework or "")
    said = request.main_grads or "stack" in request.model_fields_set or GRADIENTS & set(request.changes)
    return None if framework is None or said or request.precision == "fp16" else framework.main_grads


def _stack(request: PlanRequest, cluster: Cluster) -> Stack:
    """The stack asked for, or the usual one.

    Raises:
        BadRequest: it makes no programs for these devices, or is of another framework than the one asked for.
    """
    from planner.frameworks.stacks import check_goes_with
    from planner.frameworks.vendors import check_programs, usual_stack

    if isinstance(request.stack, Stack):
        if request.as_of:
            raise BadRequest(f"as_of {request.as_of}: a stack of your own has no releases here; leave it out")
        found = request.stack
    else:
        said = "stack" in request.model_fields_set
        name = request.stack if said else usual_stack(request.framework, cluster) or DEFAULT_STACK
        check_programs(name.partition("@")[0], request.framework, cluster)
        if request.as_of and "@" in name:
            raise BadRequest(f"stack {name} and as_of {request.as_of} both say a release; give one of them")
        found = find_stack(f"{name}@{request.as_of}" if request.as_of else name)
    check_goes_with(request.framework, found.name)
    return found


def taken_of(cluster: Cluster, base: Cluster) -> str:
    """Which GPUs of a mixed cluster a request for fewer gets."""
    names = " + ".join(f"{group.gpus} {group.name}" for group in cluster.groups)
    return f"the fastest {cluster.gpus} of {base.gpus} GPUs in whole nodes: {names}"


def _mixed(request: PlanRequest, lead: Scenario, cluster: Cluster) -> Mixed | None:
    """The question on every node group, None where one is left.

    Raises:
        BadRequest: an objective that is searched on one node group only.
    """
    if len(cluster.groups) == 1:
        return None
    names = ", ".join(group.name for group in cluster.groups)
    if request.framework:
        raise BadRequest(f"framework {request.framework} is planned for on one node group, not on {names} together")
    if request.stability:
        raise BadRequest(f"stability is reckoned on one node group, not on {names} together; leave it out")
    if request.objective in ("memory", "goodput"):
        said = f"objective {request.objective} is searched on one node group, not on {names} together; time works"
        raise BadRequest(said)
    parts = tuple(replace(lead, group=group, gpus=group.gpus or 0) for group in cluster.groups)
    for part in parts:
        _ = part.rates
    return Mixed(cluster, parts)


def _with_experts(stack: Stack, model: Model, request: PlanRequest) -> Stack:
    """The stack with the load of experts that is asked for."""
    names = {"expert_capacity": "switches.expert_capacity", "expert_imbalance": "experts.expert_imbalance"}
    said = {name: value for name in names if (value := getattr(request, name)) is not None}
    if said and model.moe is None:
        raise BadRequest(f"{next(iter(said))}: model {model.name} has no experts; leave it out")
    if len(said) == len(names):
        raise BadRequest(
            f"expert_imbalance {request.expert_imbalance:g} says nothing beside expert_capacity "
            f"{request.expert_capacity:g}, which has every expert compute as many tokens; leave out one of them"
        )
    fields = {names[name]: value for name, value in said.items()}
    return stack.changed(fields | ({"switches.expert_capacity": None} if "expert_imbalance" in said else {}))


def _with_adapters(stack: Stack, model: Model, request: PlanRequest) -> Stack:
    """The stack with the adapters that the model has where no module is named: none are priced on routed experts.

    Raises:
        BadRequest: adapters on the network of a model whose networks are experts.
    """
    asked = stack.switches.adapters
    if asked is None or model.moe is None or set(asked.modules) <= set(OF_ATTENTION):
        return stack
    if ":" in str(request.adapters):
        usual = asked.model_copy(update={"modules": OF_ATTENTION})
        raise BadRequest(
            f"adapters {request.adapters}: none are priced on experts, which {model.name} has; {usual} works"
        )
    return stack.changed({"switches.adapters": asked.model_copy(update={"modules": OF_ATTENTION})})


GRADIENTS: Final = frozenset({"stack.gradients.gradient_bytes", "stack.gradients.reduce_bytes"})
"""What main_grads says too."""
CHOICES: tuple[str, ...] = (
    "optimizer",
    "main_grads",
    "main_params",
    "fp8_param_gather",
    "loss",
    "loss_block",
    "offload_fraction",
    "adapters",
)
"""Fields that change the stack; unset ones leave it alone."""


def choices_of(request: PlanRequest) -> dict[str, Any]:
    """What the request changes about its stack.

    Raises:
        BadRequest: 8-bit weights without a recipe of 8 bits.
    """
    if request.fp8_param_gather and request.precision not in REDUCED:
        raise BadRequest(f"fp8_param_gather needs 8-bit products, precision is {request.precision}; fp8 works")
    said = {name: value for name in CHOICES if (value := getattr(request, name)) is not None}
    if "main_grads" in said and GRADIENTS & set(request.changes):
        raise BadRequest(
            "main_grads says stack.gradients.gradient_bytes and stack.gradients.reduce_bytes too; give one of them"
        )
    if any(path.startswith("stack.adapters") for path in request.changes):
        raise BadRequest("stack.adapters is asked for as adapters, such as --adapters 16:linear_qkv")
    if twice := [name for name in said if f"stack.{name}" in request.changes]:
        raise BadRequest(f"{twice[0]} and stack.{twice[0]} say the same thing twice; give one of them")
    return said


def _with_margin(cluster: Cluster, margin: float) -> Cluster:
    """The cluster with that share of its devices' usable memory left alone."""
    if not margin:
        return cluster
    groups = []
    for group in cluster.groups:
        usable = group.accelerator.usable_memory * (1.0 - margin)
        device = group.accelerator.model_copy(update={"usable_memory": usable})
        groups.append(group.model_copy(update={"accelerator": device}))
    return cluster.model_copy(update={"groups": tuple(groups)})


def _check_positions(model: Model, seq_length: int) -> None:
    if model.position == "learned" and seq_length > max(model.max_positions, model.seq_length):
        raise BadRequest(
            f"sequence length {seq_length} exceeds the {model.max_positions} learned positions of {model.name}; "
            f"at most {model.max_positions} works"
        )
