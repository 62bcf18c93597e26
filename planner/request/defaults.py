"""What a request leaves open: what is taken then, and how the answer says so."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from costmodels.model.model import Model
from costmodels.scenario import Scenario
from costmodels.stability import Stability
from costmodels.stack.adapters import says_kernels
from costmodels.stack.releases import chosen
from costmodels.stack.stack import Stack, releases
from costmodels.training.goodput import spare_nodes
from hardware.catalogue import in_catalogue, names, source_texts
from hardware.records import Cluster, NodeGroup
from hardware.units import format_quantity
from planner.errors import BadRequest

if TYPE_CHECKING:
    from planner.request.request import PlanRequest

DEFAULT_TOKENS = 300_000_000_000
FINE_TUNE_TOKENS = 100_000_000
"""Of a fine-tune: a hundred thousand examples of a thousand tokens; what a pretraining took says nothing of it."""
FINE_TUNE_BATCH = 64
"""Samples, as the fine-tuning recipes of TRL, LLaMA-Factory and axolotl take 16 to 128."""
FINE_TUNE_STACK = "fsdp"
"""What Transformers' trainers shard with unless DeepSpeed is asked for."""
UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (1, ""))
SMALLEST_BATCH_TOKENS = 4 * 2**20
BATCH_TOKENS_PER_GPU = 1024
NEAR_BATCH = 1.0 / 8.0
"""Share of the batch that a model was trained with by which a batch that the GPUs divide may differ from it."""
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


def default_batch(gpus: int, seq_length: int) -> int:
    """Sequences per iteration where none are asked for: 1024 tokens per GPU, at least 4 Mi tokens.

    Always gpus times a power of two (halves included while they stay whole), so that every data-parallel
    degree that divides the GPUs divides the batch, or all but a small power of two of it.
    """
    wanted = max(SMALLEST_BATCH_TOKENS, BATCH_TOKENS_PER_GPU * gpus) / seq_length
    batch = gpus
    while batch < wanted:
        batch *= 2
    while batch % 2 == 0 and batch // 2 >= wanted:
        batch //= 2
    return batch


def trained_batch(model: Model, gpus: int, seq_length: int) -> int | None:
    """Sequences per iteration as the model was trained, so that data-parallel degrees divide them.

    None where nobody published it, where so many GPUs are given less than 1024 tokens each, who take a larger batch
    then, and where no multiple of the GPUs, or of a part of them that is smaller by a power of two, is near to it.
    """
    if model.batch_tokens is None or model.batch_tokens < BATCH_TOKENS_PER_GPU * gpus:
        return None
    wanted, unit = model.batch_tokens / seq_length, gpus
    while unit % 2 == 0 and unit > NEAR_BATCH * wanted:
        unit //= 2
    batch = unit * round(wanted / unit)
    return batch if abs(batch - wanted) <= NEAR_BATCH * wanted else None


def usual_batch(request: PlanRequest, model: Model, gpus: int, seq_length: int) -> int:
    """Sequences per iteration where none are asked for: a fine-tune's, the model's own, or by a rule of tokens."""
    if fine_tunes(request):
        return fine_tune_batch(gpus)
    return trained_batch(model, gpus, seq_length) or default_batch(gpus, seq_length)


def fine_tunes(request: PlanRequest) -> bool:
    """Whether a request asks for a fine-tune: by its task, or because it freezes weights."""
    if request.task is not None:
        return request.task != "pretrain"
    return bool(request.adapters or request.base_precision or request.frozen_layers or request.frozen_embeddings)


def fine_tune_stack(request: PlanRequest) -> str | None:
    """The stack of a fine-tune where none is named; None where it is none, or has a pipeline, which that has not."""
    pipelined = {str(request.pins.get(axis) or 1) for axis in ("pp", "vpp")} != {"1"}
    return FINE_TUNE_STACK if fine_tunes(request) and not pipelined else None


def fine_tune_batch(gpus: int) -> int:
    """Samples per iteration of a fine-tune where none are asked for: 64 or more, gpus times a power of two."""
    batch = gpus
    while batch < FINE_TUNE_BATCH:
        batch *= 2
    return batch


def _batch_rule(scenario: Scenario) -> str:
    """Where the batch of a pretraining is from, with the rounding where it made a difference."""
    model, batch = scenario.model, scenario.global_batch_size
    if model.batch_tokens and batch == trained_batch(model, scenario.gpus, scenario.seq_length):
        exact = batch * scenario.seq_length == model.batch_tokens
        plain = exact and scenario.seq_length == model.seq_length
        said = "" if plain else f", {model.batch_tokens / 1e6:.3g} M tokens"
        return f"the batch it was trained with{said}{'' if exact else ', as near as the GPUs divide'}"
    wanted = max(SMALLEST_BATCH_TOKENS, BATCH_TOKENS_PER_GPU * scenario.gpus) / scenario.seq_length
    rule = "1024 tokens per GPU, at least 4 Mi"
    if scenario.global_batch_size < wanted + 1.0:
        return rule
    return f"{rule}: {math.ceil(wanted)}, up to a power of two times the {scenario.gpus:,} GPUs or a part of them"


def default_tokens(model: Model, *, tuned: bool) -> int:
    """Tokens of the whole run where none are asked for: the model's, or few in a fine-tune."""
    return FINE_TUNE_TOKENS if tuned else model.tokens or DEFAULT_TOKENS


def tokens_source(model: Model, *, tuned: bool) -> str:
    """Who says the tokens where nobody asks for them."""
    if tuned:
        return "assumed for a fine-tune; --tokens changes it"
    return "the model's" if model.tokens else "assumed"


def length_source(model: Model) -> str:
    """Who says the sequence length where nobody asks for one."""
    return (
        f"the model reaches {model.reach}; --seq-len asks for more"
        if (model.reach or 0) > model.seq_length
        else "the model's"
    )


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


def _describe_fine_tune(request: PlanRequest, scenario: Scenario) -> list[str]:
    """What is taken of a fine-tune's samples, reference, frozen weights and documents."""
    switches, task, lines = scenario.stack.switches, scenario.task, []
    if task.sequences > 1:
        lines.append(f"a sample of {switches.task} is {task.sequences} sequences of {scenario.seq_length} tokens each")
    if task.referenced and request.reference_model is None:
        lines.append(f"reference model: {switches.reference_model}")
    if scenario.tuned and not switches.document_length:
        lines.append(
            "every sequence is full; if yours are shorter, give their mean length after padding with --seq-len"
        )
    if switches.document_length:
        lines.append(
            f"packed documents of {scenario.attended_length} tokens each; if lengths differ, give the sum of their "
            "squares over their sum"
        )
    if switches.frozen_layers:
        lines.append(
            "the layers that train are spread evenly over the model; the first pipeline stages have fewer of them"
        )
    if switches.task == "reward":
        lines.append("the head of a reward model is priced like the model's own head, which is larger")
    if switches.adapters and request.adapters and not says_kernels(request.adapters):
        lines.append(f"adapters run with {switches.adapters.kernels} kernels")
    if switches.adapters and switches.base_precision and request.base_precision is None:
        lines.append(f"frozen weights in {switches.base_precision} (--base-precision)")
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
        rule = f"a fine-tune: {FINE_TUNE_BATCH} or more" if fine_tunes(request) else _batch_rule(scenario)
        what = "sequences" if scenario.task.sequences == 1 else "pairs"
        lines.append(f"global batch {scenario.global_batch_size} {what} ({rule})")
    lines += _describe_fine_tune(request, scenario)
    lines += _left_out_of_the_model(scenario) + _describe_tower(request, scenario) + _without_measured_runs(scenario)
    if request.seq_length is None:
        lines.append(f"sequence length {scenario.seq_length} ({length_source(scenario.model)})")
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
