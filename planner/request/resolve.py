"""The resolution of a question: records in place of names, every default made explicit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from costmodels.model.catalogue import entry_on_hub
from costmodels.model.catalogue import model as find_model
from costmodels.model.model import Model
from costmodels.node_groups import AnyScenario, Mixed
from costmodels.scenario import REDUCED, Scenario
from costmodels.stability import Stability
from costmodels.stack.adapters import OF_ATTENTION, says_kernels
from costmodels.stack.choices import chosen
from costmodels.stack.finetune import TASKS
from costmodels.stack.stack import Stack
from costmodels.stack.stack import stack as find_stack
from costmodels.stack.switches import Switches
from hardware.catalogue import cluster as find_cluster
from hardware.records import Cluster
from planner.errors import BadRequest
from planner.frameworks.registry import (
    ANY,
    FRAMEWORKS,
    check_goes_with,
    check_programs,
    usual_stack,
)
from planner.request.batches import usual_batch
from planner.request.defaults import (
    OF_TRANSFORMERS,
    assumed_prices,
    default_tokens,
    describe_defaults,
    describe_hosts,
    describe_spares,
)
from planner.request.fields import DEFAULT_STACK, STACK_CHOICES
from planner.request.fine_tune import fine_tune_stack, usual_length
from planner.request.overrides import changed_model, changed_stack
from planner.request.request import PlanRequest

GRADIENTS: Final = frozenset({"stack.gradients.gradient_bytes", "stack.gradients.reduce_bytes"})
"""What main_grads says too."""


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
    margin: float = 0.0
    """Share of the devices' usable memory that is left alone: ``scenario`` has the rest."""
    stability: Stability | None = None
    """Interruptions and checkpoints, where they are asked about."""
    main_grads: str | None = None
    """The format of gradients that is asked for, or that the files of the framework have."""
    mixed: Mixed | None = None
    """All node groups, where there are several; ``scenario`` then has the first one's machines and all the GPUs."""

    @property
    def margin_is_usual(self) -> bool:
        """Whether memory is left alone that the request does not speak of, as a search leaves it."""
        return self.request.memory_margin is None and self.margin > 0.0

    @property
    def question(self) -> AnyScenario:
        """What is priced: the scenario on its one node group, or on all of several."""
        return self.mixed or self.scenario


def resolve(request: PlanRequest, *, margin_of: Callable[[Scenario], float] | None = None) -> Resolved:
    """Look up every name, fill every default.

    ``margin_of`` gives the margin of memory in place of the request's.

    Raises:
        BadRequest: values that contradict each other.
        UnknownName, BadFile: names or files that do not exist.
    """
    model = request.model if isinstance(request.model, Model) else find_model(request.model, request.seq_length)
    model = changed_model(model, request.changes)
    base = request.cluster if isinstance(request.cluster, Cluster) else find_cluster(request.cluster)
    request, lacking = _in_a_format_of(request, base)
    grads = written_gradients(request, request.framework)
    request = request.model_copy(update={"main_grads": grads}) if grads else request
    software = _stack(request, base)
    choices = choices_of(request)
    stack = chosen(changed_stack(software.at(request.precision), request.changes), **choices)
    cluster = base if base.gpus == request.gpus else base.with_gpus(request.gpus)
    stack = _with_task(_with_adapters(_with_experts(stack, model, request), model, request), model, request)
    seq_length = request.seq_length or usual_length(request, model)
    _check_positions(model, seq_length)
    batch = request.global_batch_size or usual_batch(request, model, cluster, stack.supports, seq_length)
    cluster = _with_price(cluster, request.price)
    tokens = request.tokens or default_tokens(model, tuned=stack.switches.task != "pretrain")
    asked = "" if request.framework in {None, ANY} else str(request.framework)
    sizes = (request.gpus, seq_length, batch, request.precision)
    scenario = Scenario(model, cluster.groups[0], stack, *sizes, framework=asked)
    margin = margin_of(scenario) if margin_of else request.memory_margin or 0.0
    cluster = with_margin(cluster, margin)
    scenario = replace(scenario, group=cluster.groups[0])
    _ = scenario.rates
    _check_images(scenario)
    defaults = describe_defaults(request, scenario, cluster, tokens) + assumed_prices(base)
    if isinstance(request.model, str) and entry_on_hub(request.model):
        defaults += (f"model {model.name} (from the catalogue, for {request.model})",)
    defaults += describe_hosts(request, base)
    defaults += (f"precision {request.precision} ({lacking} has no bf16)",) if lacking else ()
    defaults += describe_gradients(grads, asked)
    mixed = _mixed(request, scenario, cluster) if len(base.groups) > 1 else None
    if len(base.groups) > 1 and cluster.gpus != base.gpus:
        defaults += (describe_subset(cluster, base),)
    stability = request.stability or (Stability() if request.objective == "goodput" else None)
    defaults += describe_spares(scenario, stability, base) if stability else ()
    shown = (request, scenario, cluster, base, software, tokens, defaults, margin, stability)
    return Resolved(*shown, main_grads=request.main_grads, mixed=mixed)


def _in_a_format_of(request: PlanRequest, cluster: Cluster) -> tuple[PlanRequest, str]:
    """The question in 16 bits that all devices compute in, where no format is asked for; which of them has no bf16."""
    lacking = [group.accelerator for group in cluster.groups if "bf16" not in group.accelerator.peak]
    if "precision" in request.model_fields_set or not lacking:
        return request, ""
    shared = (name for name in ("fp16", "fp32") if all(name in group.accelerator.peak for group in cluster.groups))
    found = next(shared, None)
    return (request.model_copy(update={"precision": found}), lacking[0].name) if found else (request, "")


_OF_IMAGES: Final = ("images_per_sample", "image_tokens", "train_tower")


def written_gradients(request: PlanRequest, framework: str | None) -> str | None:
    """The format of gradients that the files of a framework have, where nothing is said of gradients."""
    said = request.main_grads or isinstance(request.stack, Stack) or GRADIENTS & set(request.changes)
    known = FRAMEWORKS.get(framework or "")
    return None if said or known is None or request.precision not in known.wide_gradients else "fp32"


def describe_gradients(grads: str | None, framework: str) -> tuple[str, ...]:
    """The remark that gradients have the format of a framework's files; none where that is not taken."""
    return (f"main gradients {grads} (as in the files for {framework})",) if grads else ()


def _stack(request: PlanRequest, cluster: Cluster) -> Stack:
    """The stack asked for, or the usual one."""
    framework = None if request.framework == ANY else request.framework
    if isinstance(request.stack, Stack):
        if request.as_of:
            raise BadRequest(f"as_of {request.as_of}: your own stack has no releases; leave it out")
        found = request.stack
    else:
        said = "stack" in request.model_fields_set
        usual = usual_stack(framework, cluster) or fine_tune_stack(request) or DEFAULT_STACK
        name = request.stack if said else usual
        check_programs(name.partition("@")[0], framework, cluster)
        if request.as_of and "@" in name:
            raise BadRequest(f"stack {name} and as_of {request.as_of} both say a release; give one of them")
        found = find_stack(f"{name}@{request.as_of}" if request.as_of else name)
    check_goes_with(framework, found.name)
    return found


def describe_subset(cluster: Cluster, base: Cluster) -> str:
    """Which GPUs of a mixed cluster a request for fewer gets."""
    names = " + ".join(f"{group.gpus} {group.name}" for group in cluster.groups)
    return f"the fastest {cluster.gpus} of {base.gpus} GPUs in whole nodes: {names}"


def _mixed(request: PlanRequest, lead: Scenario, cluster: Cluster) -> Mixed | None:
    """The question on every node group, None where one is left."""
    if len(cluster.groups) == 1:
        return None
    names = ", ".join(group.name for group in cluster.groups)
    if request.stability:
        raise BadRequest(f"stability is priced for one node group, not for {names} together; leave it out")
    if request.objective in ("memory", "goodput"):
        said = (
            f"objective {request.objective} is searched for one node group, not for {names} together; objective "
            "time works"
        )
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
            f"expert_imbalance {request.expert_imbalance:g} has no effect with expert_capacity "
            f"{request.expert_capacity:g}, which gives every expert the same number of tokens; leave out one of them"
        )
    fields = {names[name]: value for name, value in said.items()}
    return stack.changed(fields | ({"switches.expert_capacity": None} if "expert_imbalance" in said else {}))


def _with_adapters(stack: Stack, model: Model, request: PlanRequest) -> Stack:
    """The stack with the adapters that a model of experts has where no module is named: those of attention."""
    asked = stack.switches.adapters
    if asked is not None and stack.name in OF_TRANSFORMERS and not says_kernels(str(request.adapters)):
        asked = asked.model_copy(update={"kernels": "autocast"})
        stored = "bf16" if request.precision == "bf16" and not stack.states.frozen_bytes else None
        base = stack.switches.base_precision or stored
        stack = stack.changed({"switches.adapters": asked, "switches.base_precision": base})
    if asked is None or model.moe is None or set(asked.modules) <= {*OF_ATTENTION, "experts"}:
        return stack
    if ":" in str(request.adapters):
        usual = asked.model_copy(update={"modules": (*OF_ATTENTION, "experts")})
        raise BadRequest(
            f"adapters {request.adapters}: these are modules of dense layers, and {model.name} has experts; {usual} "
            "works"
        )
    return stack.changed({"switches.adapters": asked.model_copy(update={"modules": OF_ATTENTION})})


def _freezes(switches: Switches) -> bool:
    """Whether some weights are frozen and the others train."""
    return switches.frozen_embeddings or switches.frozen_layers > 0


def _check_images(scenario: Scenario) -> None:
    """Raises BadRequest where images are asked of a model without a tower, or do not fit into a sequence."""
    switches, model = scenario.stack.switches, scenario.model
    count = switches.images_per_sample
    asked = [name for name in _OF_IMAGES if getattr(switches, name)]
    if asked and model.tower is None:
        raise BadRequest(f"{asked[0]}: {model.name} has no vision tower whose sizes are known; leave it out")
    if asked and not count:
        raise BadRequest(f"{asked[0]} without images changes nothing; images_per_sample 1 gives one")
    if count * scenario.image_tokens > scenario.seq_length:
        fewer = f"image_tokens {fits}" if (fits := scenario.seq_length // count) else "fewer images"
        raise BadRequest(
            f"images_per_sample {count} of {scenario.image_tokens} tokens are more than the sequence of "
            f"{scenario.seq_length}; a longer one, or {fewer}, would do"
        )


def _with_task(stack: Stack, model: Model, request: PlanRequest) -> Stack:
    """The stack with the reference that the task takes where none is named, and with a fine-tune's task.

    Raises:
        BadRequest: a format of frozen weights where all train, or a reference that there is not.
    """
    switches = stack.switches
    if switches.adapters and _freezes(switches):
        raise BadRequest(f"adapters {switches.adapters} freeze all weights; leave out frozen_layers, frozen_embeddings")
    if switches.frozen_layers >= model.num_layers:
        said = f"frozen_layers {switches.frozen_layers}: {model.name} has {model.num_layers} layers"
        raise BadRequest(f"{said}; {model.num_layers - 1} or fewer work")
    if switches.base_precision and switches.adapters is None:
        raise BadRequest(
            f"base_precision {switches.base_precision} is for frozen weights, and all weights train; adapters 16 "
            "freezes them"
        )
    if (switches.adapters or _freezes(switches)) and request.task is None and switches.task == "pretrain":
        stack = stack.changed({"switches.task": "finetune"})
    task = TASKS[stack.switches.task]
    if request.reference_model in {"copy", "adapters-off"} and not task.referenced:
        raise BadRequest(
            f"reference_model {request.reference_model}: task {stack.switches.task} has no reference model; dpo and "
            "kto have one"
        )
    if request.reference_model == "adapters-off" and switches.adapters is None:
        raise BadRequest("reference_model adapters-off needs adapters to switch off; copy works")
    if task.referenced and request.reference_model is None and switches.reference_model == "none":
        stack = stack.changed({"switches.reference_model": "adapters-off" if switches.adapters else "copy"})
    return stack


def choices_of(request: PlanRequest) -> dict[str, Any]:
    """What the request changes about its stack.

    Raises:
        BadRequest: 8-bit weights without a recipe of 8 bits.
    """
    if request.fp8_param_gather and request.precision not in REDUCED:
        raise BadRequest(f"fp8_param_gather needs 8-bit matrix products; precision is {request.precision}; fp8 works")
    said = {name: value for name in STACK_CHOICES if (value := getattr(request, name)) is not None}
    if "main_grads" in said and GRADIENTS & set(request.changes):
        raise BadRequest(
            "main_grads also sets stack.gradients.gradient_bytes and stack.gradients.reduce_bytes; give one of them"
        )
    if any(path.startswith("stack.adapters") for path in request.changes):
        raise BadRequest("stack.adapters is set by adapters, such as --adapters 16:linear_qkv")
    if twice := [name for name in said if f"stack.{name}" in request.changes]:
        raise BadRequest(f"{twice[0]} and stack.{twice[0]} are the same option; give one of them")
    return said


def with_margin(cluster: Cluster, margin: float) -> Cluster:
    """The cluster with that share of its devices' usable memory left alone."""
    if not margin:
        return cluster
    groups = []
    for group in cluster.groups:
        usable = group.accelerator.usable_memory * (1.0 - margin)
        device = group.accelerator.model_copy(update={"usable_memory": usable})
        groups.append(group.model_copy(update={"accelerator": device}))
    return cluster.model_copy(update={"groups": tuple(groups)})


def _with_price(cluster: Cluster, price: float | None) -> Cluster:
    """The cluster at so many dollars a device and hour."""
    if price is None:
        return cluster
    groups = tuple(group.model_copy(update={"price": price / 3600.0}) for group in cluster.groups)
    return cluster.model_copy(update={"groups": groups})


def _check_positions(model: Model, seq_length: int) -> None:
    if model.position == "learned" and seq_length > max(model.max_positions, model.seq_length):
        raise BadRequest(
            f"sequence length {seq_length} exceeds the {model.max_positions} learned positions of {model.name}; "
            f"at most {model.max_positions} works"
        )
