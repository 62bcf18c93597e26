"""What a request leaves open: what is taken then, and how the answer says so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from costmodels.model.model import Model
from costmodels.scenario import Scenario
from costmodels.stability import Stability
from costmodels.stack.releases import chosen
from costmodels.stack.stack import Stack, releases
from costmodels.training.goodput import spare_nodes
from hardware.catalogue import in_catalogue, names, source_texts
from hardware.records import Cluster, NodeGroup
from hardware.units import format_quantity
from planner.errors import BadRequest
from planner.request.batches import describe_batch
from planner.request.fine_tune import FINE_TUNE_TOKENS, describe_fine_tune, fine_tune_stack, usual_length

if TYPE_CHECKING:
    from planner.request.request import PlanRequest

DEFAULT_TOKENS = 300_000_000_000
UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (1, ""))
ATTENTION = frozenset({"stack.attention_backend", "stack.kernels.blackwell_attention"})
"""Paths of a stack's kernels of attention."""
FUSED = ("flash-2", "cudnn")
OF_TRANSFORMERS = frozenset({"deepspeed", "fsdp"})
"""Stacks of models that take another attention where it is set (``attn_implementation``)."""
UNCALIBRATED = "not calibrated"
HOST = ("host_memory", "host_bandwidth")
UNREAD = re.compile("recalled|assumed|illustrative|no figure of its own")
"""How sources say that no document was read."""
SPARES = "spare nodes are rented all the time and counted at rated power (no idle power is known)"
"""What is taken of nodes that stand by."""


def default_tokens(model: Model, *, tuned: bool) -> int:
    """Tokens of the whole run where none are asked for: the model's, or few in a fine-tune."""
    return FINE_TUNE_TOKENS if tuned else model.tokens or DEFAULT_TOKENS


def tokens_source(model: Model, *, tuned: bool) -> str:
    """Who says the tokens where nobody asks for them."""
    if tuned:
        return "assumed for a fine-tune; --tokens changes it"
    return "the model's" if model.tokens else "assumed"


def length_source(request: PlanRequest, model: Model) -> str:
    """Who says the sequence length where nobody asks for one."""
    if usual_length(request, model) < model.seq_length:
        return "a fine-tune's; --seq-len asks for more"
    further = (model.reach or 0) > model.seq_length
    return f"the model reaches {model.reach}; --seq-len asks for more" if further else "the model's"


def _left_out_of_the_model(scenario: Scenario) -> list[str]:
    """What the file of a model describes that is no part of it."""
    _, described, excluded = scenario.model.source.partition(" without its ")
    return [f"without the {excluded}"] if described and not scenario.model.mtp_layers else []


def _describe_tower(request: PlanRequest, scenario: Scenario) -> list[str]:
    """What of a vision tower is priced, and of which images."""
    tower, switches = scenario.model.tower, scenario.stack.switches
    if tower is None:
        return []
    size = f"vision tower of {tower.parameters / 1e6:,.0f} M parameters"
    if not switches.images_per_sample:
        return [f"text alone, without the {size} (--images-per-sample N prices it)"]
    state = "trains" if scenario.tower_trains else "is frozen and runs forward only (--train-tower)"
    if scenario.frozen:
        state = "is frozen and runs forward only"
    count = f"{switches.images_per_sample} image{'s' * (switches.images_per_sample > 1)} a sample"
    assumed = " (assumed; --image-tokens)" if not (request.image_tokens or tower.image_tokens) else ""
    tokens = f"{scenario.image_tokens:,} tokens each, within the sequence{assumed}"
    return [f"the {size} {state}, on the first stage: {count}, {tokens}; MFU counts the decoder alone"]


UNPROVEN = {
    "selective": "selective scans",
    "delta": "delta rules",
    "linear": "linear attention",
    "convolution": "short convolutions",
    "recurrent": "gated recurrences",
    "receptance": "recurrences by receptance",
    "sparse": "an indexer's selection",
    "compressed": "compressed keys",
    "compressed_sparse": "an indexer's selection of compressed keys",
}
"""Mechanisms that no measured run has, as the screen calls them."""


def _without_measured_runs(scenario: Scenario) -> list[str]:
    """What of the model is priced by formulas that no run could judge yet."""
    there = {name for kind in scenario.depth.kinds for name in (kind.other_mixer, kind.mixer)}
    said = [words for name, words in UNPROVEN.items() if name in there]
    return [f"{' and '.join(said)} are priced by formula; no measured run has them"] if said else []


def _describe_software(request: PlanRequest, scenario: Scenario) -> list[str]:
    """What is taken of a stack that decides what fits and how fast: its attention, and constants that no run taught."""
    stack, rates = scenario.stack, scenario.rates
    lines = []
    said = isinstance(request.stack, Stack) or ATTENTION & set(request.changes)
    if not said and rates.attention is None:
        known = [name for name in FUSED if name in scenario.group.accelerator.kernels.attention]
        way = f"; --set stack.attention_backend={known[0]} prices a fused kernel" if known else ""
        lines.append(f"attention unfused (stack {stack.name}{way})")
    elif not said and stack.name in OF_TRANSFORMERS:
        lines.append(f"attention kernel {rates.attention_name} (PyTorch's SDPA)")
    if stack.release:
        later = len(releases(stack.name)) - chosen(stack.name, stack.release, releases(stack.name))
        changes = "1 later change" if later == 1 else f"{later} later changes"
        lines.append(f"stack {stack.name} as of {stack.release}: {changes} taken back")
    if stack.calibrated.basis.startswith(UNCALIBRATED):
        lines.append(f"constants of stack {stack.name} are not calibrated on measured runs")
    return lines


def assumed_prices(machines: Cluster) -> tuple[str, ...]:
    """What rent and energy leave out, or take from the catalogue, on a cluster that a person describes."""
    if in_catalogue(machines):
        return ()
    lines = list(rents(machines))
    if dark := [group.name for group in machines.groups if group.node_power_overhead is None]:
        of = f" of {' and '.join(dark)}" if len(machines.groups) > 1 else ""
        lines.append(f"energy of the GPUs alone{of} (no node_power_overhead)")
    return tuple(dict.fromkeys(filter(None, lines)))


def describe_hosts(request: PlanRequest, machines: Cluster) -> tuple[str, ...]:
    """Memory and bandwidth of hosts, where something is to be kept there and nobody has read what they have."""
    if not in_catalogue(machines) or request.pins.get("offload") in (None, "", "none"):
        return ()
    lines = []
    for index, group in enumerate(machines.groups):
        keys = {machines.sources.get(name) for field in HOST for name in (field, f"groups[{index}].{field}")}
        unread = [text for key in keys if key and (text := source_texts()[key]) and UNREAD.search(text)]
        if unread and group.host_memory and group.host_bandwidth:
            size = format_quantity(group.host_memory, "bytes")
            speed = format_quantity(group.host_bandwidth, "bandwidth")
            whose = group.name if len(machines.groups) > 1 else machines.name
            lines.append(
                f"a host of {whose} has {size} at {speed} (assumed; give yours as host_memory and host_bandwidth)"
            )
    return tuple(dict.fromkeys(lines))


def rents(machines: Cluster) -> tuple[str, ...]:
    """What stands for the prices that a cluster does not say."""
    lines = [_rent(group) for group in machines.groups if group.price is None]
    return tuple(filter(None, dict.fromkeys(lines)))


def _rent(group: NodeGroup) -> str:
    """What stands for the price that a group does not say; nothing where its own accelerator says it."""
    device = group.accelerator
    if device.price is None:
        return f"no cost ({device.name} has no price; --price gives one)"
    whose = f"price {format_quantity(device.price, 'price')} per {device.name} (the catalogue's)"
    return whose if device.name in names("accelerator") else ""


def describe_spares(scenario: Scenario, stability: Stability, machines: Cluster) -> tuple[str, ...]:
    """What is taken of the nodes that stand by, on one node group.

    Raises:
        BadRequest: more are asked for than the cluster has besides the job's.
    """
    spares, group = spare_nodes(scenario, stability), machines.groups[0]
    if not spares:
        return ()
    taken = -(-scenario.gpus // group.gpus_per_node)
    left = spares if group.nodes is None else max(group.nodes - taken, 0)
    if spares <= left:
        return (SPARES,)
    nodes = group.nodes or 0
    whole = f"{machines.name} has {nodes:,} node{'s' * (nodes != 1)}, {left:,} more than the job's {taken:,}"
    if stability.spare_nodes is not None:
        raise BadRequest(f"spare_nodes {spares}: {whole}; {left} works")
    return (SPARES, f"{spares:,} spare node{'s' * (spares != 1)} counted, though {whole}")


def describe_defaults(request: PlanRequest, scenario: Scenario, cluster: Cluster, tokens: int) -> tuple[str, ...]:
    """What was taken without being asked for, a line each."""
    from planner.frameworks.vendors import taken_for

    said = request.model_fields_set
    lines = []
    if "cluster" not in said:
        lines.append(f"cluster {request.cluster}")
    if "stack" not in said:
        whose = " (a fine-tune)" if scenario.stack.name == fine_tune_stack(request) else ""
        lines.append(f"stack {scenario.stack.name}{taken_for(request.framework, cluster) or whose}")
    lines += _describe_software(request, scenario)
    if request.global_batch_size is None:
        lines.append(describe_batch(request, scenario))
    lines += describe_fine_tune(request, scenario)
    lines += _left_out_of_the_model(scenario) + _describe_tower(request, scenario) + _without_measured_runs(scenario)
    if request.seq_length is None:
        lines.append(f"sequence length {scenario.seq_length} ({length_source(request, scenario.model)})")
    if request.tokens is None:
        whose = tokens_source(scenario.model, tuned=scenario.tuned)
        count = next(f"{tokens / unit:g}{sign}" for unit, sign in UNITS if tokens >= unit)
        lines.append(f"{count} training tokens ({whose})")
    if "precision" not in said:
        lines.append(f"precision {request.precision}")
    if scenario.stack.switches.adapters and request.adapters and ":" not in request.adapters:
        lines.append(f"adapters on {', '.join(scenario.stack.switches.adapters.modules)}")
    if request.offload_fraction is not None and request.pins.get("offload") in (None, "", "none", "activations"):
        share = f"offload fraction {request.offload_fraction:g}"
        lines.append(f"{share} has no effect: the optimizer stays on the GPUs (--offload optimizer moves it)")
    capacity = scenario.stack.switches.expert_capacity
    if scenario.model.moe and capacity is not None and capacity < 1.0:
        lines.append(f"experts drop {1.0 - capacity:.0%} or more of their tokens, and MFU counts these too")
    return tuple(lines)
