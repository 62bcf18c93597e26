"""What the free text of a measured run says of number formats, recomputed modules and offloading."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from costmodels.layer.recompute_modules import module_mask, modules_of
from costmodels.model.model import Model
from costmodels.names import MODULES, Recompute
from costmodels.stack.choices import GRADIENT_WORD
from costmodels.stack.precision import RECIPES, known_precision
from costmodels.stack.stack import Stack
from costmodels.step.offload import ACTIVATIONS, EVERYTHING, OPTIMIZER
from costmodels.strategy import Strategies
from hardware.catalogue import cluster
from hardware.records import NodeGroup
from planner.errors import BadRequest
from run_words import heard as re
from run_words.recompute_words import modules_named

Row = Mapping[str, Any]

SCALINGS: tuple[tuple[str, str], ...] = (
    (r"delayed", "fp8"),
    (r"current|tensorwise", "fp8-current"),
    (r"row-?wise", "fp8-rowwise"),
    (r"block", "fp8-block"),
)
"""First match of a run's words on its precision, where it is fp8, names the recipe; delayed scaling otherwise."""

DYNAMIC = frozenset({"torchtitan", "fsdp"})
"""Stacks whose fp8 scales by the largest value of the tensor at hand unless said otherwise [TorchAO]."""

_AND_STATES = r"(weights|parameters)(, gradients)? and (adamw? )?(states|moments)"
NARROW = (
    rf"(bf|fp)16 {_AND_STATES}|{_AND_STATES} in (bf|fp)16"
    r"|\b((bf|fp)?16-true|pure[ -](bf|fp|bfloat|float)16)\b"
    r"|dtype[ =:]*(torch\.)?(bf|bfloat)16\b[^;]*\b((no|without) autocast|mixed[_ ]precision[ =:(\"]*no\b)"
)
"""Words for weights, gradients and moments that are all of 16 bits: also a model loaded in them that nothing casts."""

STATES: tuple[tuple[str, dict[str, Any]], ...] = (
    (NARROW, {"weight_bytes": 2, "optimizer": "adam-bf16", "optimizer_bytes": 8, "gradient_bytes": 2}),
    (r"fp32 (parameters|weights)|(parameters|weights) in fp32", {"weight_bytes": 4}),
    (r"\bmuon\b", {"optimizer": "muon"}),
    (r"optimizer[ _-](step[ _-])?in[ _-](the[ _-])?(backward|bwd)|fused into (the )?backward", {"gradient_bytes": 0}),
    (r"\b8[ -]?bit[ -](paged[ -])?(adam|optimizer)|adamw?[ _-]?8[ _-]?bit", {"optimizer": "adam-8bit"}),
    (r"16-bit gradient accumulation", {"gradient_bytes": 2, "passed_gradient_bytes": 0}),
    (r"fp32 gradient all-reduce", {"reduce_bytes": 4}),
    (r"fsdp mixed-precision mode pure", {"weight_bytes": 4, "reduce_bytes": 2}),
    (r"fsdp mixed-precision mode default", {"weight_bytes": 4, "reduce_bytes": 4}),
)
"""Words on precision, or notes on the stack, to the formats of states and the optimizer; Composer's PURE reduces in 16
bits, DEFAULT in fp32, and both shard the fp32 weights."""

OFFLOADED: tuple[tuple[str, int], ...] = (
    (r"param|infinity|(?<!master )weights|model states|gemini|fsdp cpu|all states|everything", EVERYTHING),
    (r"optimizer|zero-?offload|cpu-?adam|^cpu$", OPTIMIZER),
    (r"activation|layers?\b|remat|checkpoint", ACTIVATIONS),
    (r"cpu[ _-]?offload(ing)?[ _]all\b", EVERYTHING),
    (r"cpu[ _-]?offload(ing)?(?![a-z])|nvme|ssd|disk", OPTIMIZER),
    (r"offloaded|checkpoints kept on cpu|checkpoint-in-cpu y", ACTIVATIONS),
)
"""First match of the words on offloading, on recomputation or of the notes."""
CHECKPOINTS_OUT = r"(?<!no )(?<!without )\boffload|\bunsloth\b"
"""Words on recomputation whose checkpoints go to the host, as Unsloth's always do [Unsloth]."""
NOWHERE = r"none|no|off|false|disabled|n/?a|gpu|device|cuda"
"""What a table says of what stays where it is."""
DISKS = r"nvme|ssd|disk"

FORMATS: tuple[tuple[str, str], ...] = (
    (r"mx-?fp8", "mxfp8"),
    (r"nv-?fp4|^fp4", "nvfp4"),
    (r"fp8|float8|e4m3|hfp8", "fp8"),
    (r"nf4|int4|4[ -]?bit|qlora|bf16|bfloat16", "bf16"),
    (r"fp16|float16|half", "fp16"),
    (r"tf32|fp32|float32|single", "fp32"),
)
"""First match of words on precision that are no name; frozen weights of 4 bits are multiplied in 16."""
UNSAID = r"mixed([ _-]precision)?|amp|auto(cast)?|unknown"
"""Words that leave a precision open."""


HOSTS = "dgx-a100-80gb"
"""Cluster whose hosts stand for those of whom the catalogue knows too little: two sockets and PCI Express 4."""


def as_spelled(row: Row) -> Row:
    """The run with its precision and ZeRO stage under their own names; what has none is refused where it is priced."""
    plan = row["strategy"]
    if isinstance(plan.get("zero_stage"), str):
        plan = {**plan, "zero_stage": _stage(plan["zero_stage"].lower().strip())}
    if plan.get("zero_stage") is None and _whole_on_every_device(row):
        plan = {**plan, "zero_stage": 0}
    said = plan.get("precision")
    if not isinstance(said, str) or not said:
        return {**row, "strategy": plan}
    try:
        return {**row, "strategy": {**plan, "precision": known_precision(said)}}
    except ValueError:
        noted = f"{plan.get('precision_note') or ''} {said}".strip()
        return {**row, "strategy": {**plan, "precision": _format(said.lower()), "precision_note": noted}}


STAGES: Final = (
    (r"^(no|none|off|ddp|no_shard|unsharded)\b", 0),
    (r"(zero|stage|^z)[\s_-]*(stage)?[\s_:-]*0|^0\b", 0),
    (r"(zero|stage|^z)[\s_-]*(stage)?[\s_:-]*1|^1\b", 1),
    (r"(zero|stage|^z)[\s_-]*(stage)?[\s_:-]*2|^2\b|shard_grad_op|\bp?os ?\+ ?g$|zero-?offload", 2),
    (r"(zero|stage|^z)[\s_-]*(stage)?[\s_:-]*3|^3\b|full_?shard|hybrid_?shard|\b[fh]sdp|fully[ -]sharded", 3),
    (r"\bp?os ?\+ ?g ?\+ ?p$|zero(\+\+|-?infinity)", 3),
    (r"distributed[ _-]optimizer|dist_?opt|^p?os$|^(true|yes|on)$", 1),
)
"""First match of words on sharding gives a stage: ZeRO's by number or by what is shared [Rajbhandari20], PyTorch's
strategies."""


WHOLE_REPLICAS = (
    r"^(?!.*(fsdp|zero|deepspeed|shard|distributed[ _]?optim|distopt|megatron))"
    r".*\b(ddp|distributed ?data ?parallel)\b"
)
"""Words on a framework that keeps all states on every device."""


def _whole_on_every_device(row: Row) -> bool:
    words = f"{row['stack'].get('framework')} {row['strategy'].get('sharding_note')}".lower()
    return re.search(WHOLE_REPLICAS, words) is not None


def _stage(said: str) -> int | None:
    """The stage that some words mean, None where they leave it open."""
    if re.fullmatch(r"\W*|n/?a|unknown|not (stated|said)|null", said):
        return None
    found = next((stage for words, stage in STAGES if re.search(words, said)), None)
    if found is None:
        raise BadRequest(f"strategy.zero_stage: there is no stage {said!r:.40}; 0, 1, 2 and 3 are")
    return found


def _format(said: str) -> str | None:
    """What the words on a precision name; as they are where nothing is known of them, None where they leave it open."""
    if re.fullmatch(UNSAID, said):
        return None
    return next((name for words, name in FORMATS if re.search(words, said)), said)


def precision(plan: Row, chosen: Stack, usual: str = "bf16") -> str:
    """The recipe that a run's precision and its note name; ``usual`` where it says none.

    Raises:
        BadRequest: there is no such precision.
    """
    try:
        name = known_precision(str(plan.get("precision") or usual))
    except ValueError as error:
        raise BadRequest(f"strategy.precision: {error}") from None
    said = str(plan.get("precision_note") or "").lower()
    if name != "fp8":
        return name
    scaled = "fp8-current" if chosen.name in DYNAMIC else "fp8"
    return next((recipe for words, recipe in SCALINGS if re.search(words, said)), scaled)


def states(row: Row, chosen: Stack) -> dict[str, Any]:
    """Fields of the stack that the run's words change."""
    said = f"{row['strategy'].get('precision_note')} {row['stack'].get('notes')}".lower()
    changes: dict[str, Any] = dict(reduction(row))
    for words, fields in STATES:
        changes |= fields if re.search(words, said) else {}
    if some := re.search(r"activations of (\d+) layers", str(row["strategy"].get("offload"))):
        changes["offloaded_layers"] = min(int(some[1]) / int(row["model"]["num_layers"]), 1.0)
    recipe = RECIPES.get(precision(row["strategy"], chosen))
    if recipe and recipe.reduced and chosen.name in DYNAMIC:
        changes["fp8_param_gather"] = "bf16 all-gather" not in said and recipe.gather_word < 2.0
        changes["fp8_tensor_gather"] = recipe is RECIPES["fp8-current"]
    return changes


def reduction(row: Row) -> dict[str, Any]:
    """Formats of gradients where the run's flags name one: Megatron's --grad-reduce-in-bf16 keeps them in it too."""
    flags = row["stack"].get("flags")
    said = flags.get("grad_reduce_dtype") if isinstance(flags, Mapping) else None
    if said not in GRADIENT_WORD:
        return {}
    formats = dict.fromkeys(("gradient_bytes", "reduce_bytes"), GRADIENT_WORD[said])
    return formats if said == "fp32" else formats | {"passed_gradient_bytes": 0}


def recomputed_layers(plan: Row, layers: list[int]) -> list[int] | None:
    """How many layers of each stage are recomputed whole, where the run says that some are; None where it does not."""
    said = str(plan.get("recompute_detail") or "").lower()
    if found := re.search(r"full recompute of layers per stage \[([\d, ]+)\]", said):
        each = [int(number) for number in found[1].split(",")]
        return [min(pair) for pair in zip(each, layers, strict=True)] if len(each) == len(layers) else None
    if found := next((one for words in OF_EVERY_STAGE if (one := re.search(words, said))), None):
        return [min(int(found[1]), count) for count in layers]
    if found := re.search(r"\b(first|last) (\d+) layers\b", said):
        return _at_one_end(layers, int(found[2]), last=found[1] == "last")
    share = _share(said)
    return None if share is None else [math.ceil(share * count - 0.5) for count in layers]  # halves are left out


OF_EVERY_STAGE = (
    r"full recompute of (\d+) layers per stage",
    r"\b(?:block|partial)\W+(\d+)(?: layers|$)",
    r"num[_-]layers\W+(\d+)\W+block\b",
)
"""Words for so many layers of every stage: Megatron's --recompute-method block counts by stages."""


def _at_one_end(layers: list[int], some: int, *, last: bool) -> list[int]:
    """So many of the model's first or last layers, by the stages that hold them."""
    ends = list(itertools.accumulate(reversed(layers) if last else layers))
    taken = [min(end, some) for end in ends]
    each = [high - low for low, high in itertools.pairwise([0, *taken])]
    return each[::-1] if last else each


def _share(said: str) -> float | None:
    """Share of all layers that the words have recomputed; None where they speak of none."""
    if re.search(r"every (second|other|2nd) layer", said):
        return 0.5
    some = re.search(r"\b(\d+)(?: of |/)(\d+) layers\b", said)
    return min(int(some[1]) / max(int(some[2]), 1), 1.0) if some else None


def with_savers(rows: Strategies, row: Row, model: Model, notes: list[str]) -> Strategies:
    """The row with the modules that it recomputes and with what it offloads."""
    modules = _modules(row["strategy"], model) if rows.recompute[0] == Recompute.SELECTIVE else 0
    return replace(rows, recompute_modules=np.array([modules]), offload=np.array([_offload(row, notes)]))


def _modules(plan: Row, model: Model) -> int:
    """The modules named, as far as the model has them; 0 where other things are said."""
    said = str(plan.get("recompute_detail") or "").lower().removeprefix("modules:")
    names = {name for name in re.split(r"[,+\s]+", said) if name}
    if names - set(MODULES):
        names = modules_named(said)
    return module_mask(names & set(modules_of(model))) if names else 0


def _offload(row: Row, notes: list[str]) -> int:
    plan = row["strategy"]
    said = _offloading(plan.get("offload"))
    said = "none" if re.match(r"(no|none|off|false|disabled|n/?a|0)\b(?!.*\bbut\b)", said) else said
    more = f"{plan.get('recompute_detail')} {row['stack'].get('notes')}".lower()
    if said == "none":
        kept_there = re.search(CHECKPOINTS_OUT, str(plan.get("recompute_detail") or "").lower())
        return ACTIVATIONS if re.search(OFFLOADED[-1][0], more) or kept_there else 0
    found = next((code for words, code in OFFLOADED if re.search(words, said)), None)
    if re.search(DISKS, said):
        notes.append("offloading to disks is priced as to the host's memory, which is faster")
    if found is None:
        raise BadRequest(f"strategy.offload: {said!r:.40}; none, activations, optimizer and optimizer+params are known")
    return found


def _offloading(said: object) -> str:
    """The words on offloading in lower case; of a table what is switched on. False counts as none."""
    if isinstance(said, Mapping):
        said = ", ".join(str(name) for name, how in said.items() if how and not re.fullmatch(NOWHERE, str(how).lower()))
    return str(said or "none").lower()


def with_hosts(group: NodeGroup, notes: list[str]) -> NodeGroup:
    """The nodes with what the catalogue does not know of their hosts as of ``HOSTS``."""
    missing = [field for field in ("host_link", "host_bandwidth") if getattr(group, field) is None]
    if missing:
        notes.append(f"hosts of {HOSTS} assumed: {' and '.join(field.replace('_', ' ') for field in missing)}")
    usual = cluster(HOSTS).groups[0]
    return group.model_copy(update={field: getattr(usual, field) for field in missing})
