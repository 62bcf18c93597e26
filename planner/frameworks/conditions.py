"""The rules of the frameworks as records, the conditions of several of them, and the rules that several have.

As in ``planner.rules.conditions``, ``Columns`` are arrays that broadcast against each other, or the scalars of one
strategy; a condition answers which of them a framework starts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from costmodels.model.model import Model
from costmodels.scenario import Scenario
from costmodels.stack.switches import Switches
from planner.rules.conditions import FOLDED, Columns, Mask, among, micro_batches

SHARD: Final = ("cp", "dp", "zero_stage", "sharding_degree")
"""The axes that say over which ranks states are sharded."""
FSDP2: Final = "torch.distributed.fsdp.fully_shard"
"""What shards the states of the frameworks on PyTorch."""
HOST_STATES: Final = ("optimizer", "optimizer+parameters")
"""Offloads of what an optimizer keeps."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What frameworks ask of a job but its strategy."""

    model: Model
    seq_length: int
    global_batch_size: int
    precision: str
    switches: Switches
    accelerator: str = ""
    vendor: str = ""
    """Who made the accelerators; none where it is not known, and then every framework may run there."""
    architecture: str = ""
    """Of the accelerators, in the words of the catalogue; none where it is not known."""


def facts_of(scenario: Scenario) -> Facts:
    """The facts of a scenario."""
    return Facts(
        model=scenario.model,
        seq_length=scenario.seq_length,
        global_batch_size=scenario.global_batch_size,
        precision=scenario.precision,
        switches=scenario.stack.switches,
        accelerator=scenario.group.accelerator.name,
        vendor=scenario.group.accelerator.vendor,
        architecture=scenario.group.accelerator.architecture,
    )


Condition = Callable[[Columns, Facts], Mask]
"""Which strategies a framework starts."""


@dataclass(frozen=True, slots=True)
class FrameworkRule:
    """One constraint of a framework; its condition reads less than a scenario, so that a saved plan answers it."""

    name: str
    reads: tuple[str, ...]
    sentence: str
    source: str
    holds: Condition
    since: str = ""
    until: str = ""
    """The first and the last version that refuse it, where several are written; the search is for the newest."""

    def holds_in(self, version: str) -> bool:
        """Whether a version has it; "" is the newest."""
        return self.since <= version <= (self.until or version) if version else not self.until


def only(axis: str, *names: str) -> Condition:
    """One of these values of a named axis."""
    return lambda c, _x: among(c, axis, names)


def one(axis: str) -> Condition:
    """No ranks along that axis."""
    return lambda c, _x: c[axis] == 1


def apart(first: str, second: str) -> Condition:
    """Not ranks along both axes."""
    return lambda c, _x: (c[first] == 1) | (c[second] == 1)


def fact(holds: Callable[[Facts], bool]) -> Condition:
    """A fact of the job, whatever the strategy; the tensor axis is read only to have strategies to answer for."""
    return lambda c, x: (c["tp"] > 0) & holds(x)


def shards_everywhere(c: Columns, _x: Facts) -> Mask:
    return (c["zero_stage"] == 0) | (c["sharding_degree"] == c["dp"] * c["cp"])


def _shards_context(c: Columns, _x: Facts) -> Mask:
    """The ranks of a copy are the context ranks and some of the data ranks, a whole number of times."""
    degree, cp = np.maximum(c["sharding_degree"], 1), c["cp"]
    inner = np.maximum(degree // cp, 1)
    return (c["zero_stage"] == 0) | ((degree % cp == 0) & (c["dp"] % inner == 0))


def not_made_by(*vendors: str) -> Condition:
    """Accelerators of any other maker."""
    return fact(lambda x: x.vendor not in vendors)


def further_mechanisms(model: Model) -> dict[str, bool]:
    """Mechanisms of newer families, by name, which no exporter writes, and whether a model has them."""
    return {
        "mixers that differ from layer to layer": bool(model.mixer_pattern),
        "experts in irregular layers": bool(model.ffn_pattern),
        "layers of different sizes": bool(model.variants),
        "gate on attention's output": model.attention_gate != "none",
        "values or keys without projections of their own": model.shared_keys != "none",
        "values of another width than keys": model.value_head_dim not in (None, model.head_dim),
        "embedding of every layer": model.per_layer_embedding > 0,
        "attention to compressed keys": model.compressed is not None,
        "experts of attention": model.attention_experts > 0,
        "weights that several layers share": model.shared_blocks is not None,
        "several residual streams": model.streams is not None,
        "narrow branches": model.narrow_branch > 0,
        "further learned vectors": bool(model.layer_vectors or model.model_vectors),
        "experts that return the token as it is": model.moe is not None and model.moe.zero_experts > 0,
        "learned scale of every expert's score": model.moe is not None and model.moe.router_gain,
    }


def mechanisms(model: Model) -> frozenset[str]:
    """What a model has beyond a dense decoder of Llama's kind, by name.

    That is gated, rotated, with a root-mean-square norm before each half of a layer and no biases in its matrices.
    """
    other_biases = model.output_bias or model.ffn_bias or model.norm_bias or model.head_bias
    has = {
        "experts": model.moe is not None,
        "latent attention": model.mla is not None,
        "state-space layers": model.mamba is not None,
        "layers by pattern": bool(model.layer_pattern),
        "attention within a window": model.sliding_window is not None,
        "factorised embedding": model.embedding_size is not None,
        "prediction of further tokens": model.mtp_layers > 0,
        "biases of queries, keys and values": model.qkv_bias,
        "biases of other layers": other_biases,
        "halves of a layer in parallel": model.parallel_block,
        "localized filtering": model.localized_filtering,
        "norm behind the embedding": model.embedding_norm,
        f"norms of kind {model.norm}": model.norm != "rmsnorm",
        "norms without weights": not model.norm_weight,
        "other norms than before each half of a layer": model.num_norms != 2,
        "norms of queries and keys": model.qk_norm != "none",
        f"positions of kind {model.position}": model.position != "rotary",
        "feed-forward layers without a gate": not model.gated_ffn,
    }
    return frozenset(name for name, there in (has | further_mechanisms(model)).items() if there)


def plain(model: Model) -> bool:
    """A dense decoder of Llama's kind."""
    return not mechanisms(model)


def lacking(has: Collection[str], whole: Collection[str]) -> Callable[[Model], list[str]]:
    """What of a model a framework lacks that ``has`` some mechanisms, under SwiGLU, and some models as a ``whole``."""

    def lacks(model: Model) -> list[str]:
        other = {f"activation {model.activation}"} if model.gated_ffn and model.activation != "swiglu" else set()
        return [] if model.name in whole else sorted((mechanisms(model) | other) - set(has))

    return lacks


BEFORE_AMPERE: Final = ("Pascal", "Volta", "Turing")
"""Architectures without flash attention of today, which context ranks go with under most frameworks.

Nor do they have the kernels of grouped products.
"""
_COMMON: Final[Mapping[str, tuple[tuple[str, ...], str, Condition]]] = {
    "v": (("vpp", "schedule"), "no schedule {schedule} with {vpp} chunks a stage; 2 work",
        lambda c, _x: ~among(c, "schedule", FOLDED) | (c["vpp"] == 2)),
    "fills": (("pp", "dp", "micro_batch_size", "schedule"),
        "no schedule {schedule} with fewer micro-batches than {pp} stages",
        lambda c, x: ~among(c, "schedule", ["1f1b"]) | (micro_batches(c, x.global_batch_size) >= c["pp"])),
    "layers": (("pp", "vpp"), "no uneven pipeline: {num_layers} layers over {pp} stages of {vpp} chunks",
        lambda c, x: x.model.num_layers % (c["pp"] * c["vpp"]) == 0),
    "context-kernel": (("cp",),
        "no context ranks {cp} on {accelerator}: the attention kernels that take them run from Ampere on; 1 works",
        lambda c, x: (c["cp"] == 1) | (x.architecture not in BEFORE_AMPERE)),
    "context-shards": (("cp", "zero_stage"),
        "no ZeRO stage {zero_stage} with {cp} context ranks, which are among the ranks that share states",
        lambda c, _x: (c["cp"] == 1) | (c["zero_stage"] > 0)),
    "gradients": (("pp", "schedule", "zero_stage"),
        "no ZeRO stage 1 except in a pipeline that accumulates: FSDP2 shards gradients with the optimizer; 2 works",
        lambda c, _x: (c["zero_stage"] != 1) | ((c["pp"] > 1) & ~among(c, "schedule", ["breadth-first"]))),
    "zero-pipeline": (("pp", "zero_stage"), "no ZeRO stage {zero_stage} with {pp} pipeline stages; 1 works",
        lambda c, _x: (c["pp"] == 1) | (c["zero_stage"] <= 1)),
    "sharding": (SHARD, "no sharding over {sharding_degree} of {dp} x {cp} ranks: context ranks come first",
        _shards_context),
    "experts": (("ep",), "no expert ranks {ep}; 1 works", one("ep")),
    "expert-tensor": (("etp",), "no expert tensor size {etp}; 1 works", one("etp")),
    "query-groups": (("tp",), "no tensor parallel size {tp} for {num_query_groups} query groups: it repeats none",
        lambda c, x: (x.model.mla is not None) | (x.model.num_query_groups % c["tp"] == 0)),
    "recompute-groups": (("recompute_num_layers",),
        "no recomputation of {recompute_num_layers} layers from one stored input; 1 works",
        one("recompute_num_layers")),
    "vocabulary": (("vocabulary",), "no vocabulary {vocabulary}: embedding and head are at the ends of the pipeline",
        lambda c, _x: c["vocabulary"] == 0),
    "offload-share": (("offload",), "no offload of a share of {offload_fraction:g}",
        lambda c, x: (c["offload"] == 0) | (x.switches.offload_fraction >= 1)),
    "offload-shards": (("zero_stage", "offload"), "no offload {offload} under ZeRO stage 0",
        lambda c, _x: ~among(c, "offload", HOST_STATES) | (c["zero_stage"] > 0)),
    "fused-loss": (("tp",), "no loss fused with the head's product; plain works",
        fact(lambda x: x.switches.loss == "plain")),
    "loss": (("tp",), "no loss in blocks of {loss_block} tokens", fact(lambda x: x.switches.loss_block == 0)),
    "frozen": (("tp",),
        "no tensor ranks {tp} over frozen weights in {base_precision}: bitsandbytes cannot split them; 1 works",
        lambda c, x: (c["tp"] == 1) | (x.switches.base_precision in {None, "bf16", "fp32"})),
    "adapters": (("tp",), "no adapters {adapters}; megatron-bridge trains them",
        fact(lambda x: x.switches.adapters is None)),
}  # fmt: skip
"""Rules of several frameworks by the end of their names: the axes that they read, sentence, and condition."""
_COMMON_OF_VALUES: Final[Mapping[str, tuple[tuple[str, ...], str, Callable[..., Condition]]]] = {
    "schedule": (("schedule",), "no schedule {schedule}; {works}", lambda *names: only("schedule", "none", *names)),
    "context-kind": (("cp", "cp_kind"), "no context ranks of kind {cp_kind}; {works}",
        lambda *names: lambda c, _x: (c["cp"] == 1) | among(c, "cp_kind", names)),
    "recompute": (("recompute", "recompute_modules"),
        "no recomputation of some layers or some modules alone; {works}",
        lambda *names: lambda c, _x: among(c, "recompute", names) & (c["recompute_modules"] == 0)),
    "order": (("rank_order",), "no rank order {rank_order}; {works}", lambda *names: only("rank_order", *names)),
    "offload": (("offload",), "no offload {offload}; {works}", lambda *names: only("offload", *names)),
    "precision": (("tp",), "no precision {precision}; {works}", lambda *names: fact(lambda x: x.precision in names)),
    "optimizer": (("tp",), "no optimizer {optimizer}; {works}",
        lambda *names: fact(lambda x: x.switches.optimizer in names)),
}  # fmt: skip
"""The same of rules about one of several values, with what makes a condition of those that work."""


def usual(name: str, source: str, *works: str, sentence: str = "", since: str = "", until: str = "") -> FrameworkRule:
    """A rule of a framework that others have too.

    Args:
        name: the framework's, then a dash and what the rule is about.
        source: the place in the framework's code that enforces it.
        works: the values that work, where the rule is about one of several.
        sentence: in place of the usual one.
        since: first version that has it.
        until: last version that has it.
    """
    about = name.partition("-")[2]
    if works:
        reads, words, make = _COMMON_OF_VALUES[about]
        holds = make(*works)
    else:
        reads, words, holds = _COMMON[about]
    several = " and ".join(filter(None, (", ".join(works[:-1]), *works[-1:])))
    shown = (sentence or words).replace("{works}", f"{several} work{'' if len(works) > 1 else 's'}")
    return FrameworkRule(name, reads, shown, source, holds, since, until)
