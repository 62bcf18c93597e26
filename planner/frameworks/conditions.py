"""The conditions of the frameworks' rules: each answers which rows of the lattice a framework starts.

As in ``planner.rules.conditions``, ``Columns`` are arrays that broadcast against each other, or one row's scalars.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from costmodels.layer.recompute_modules import module_mask
from costmodels.model.model import Model
from costmodels.names import SHARDED_PARAMETERS, VALUE_NAMES, Recompute
from costmodels.scenario import Scenario
from planner.rules.conditions import FOLDED, Columns, Mask

SHARD = ("cp", "dp", "zero_stage", "sharding_degree")
"""The axes that say over which ranks states are sharded."""
FSDP2 = "torch.distributed.fsdp.fully_shard"
"""What shards the states of the frameworks on PyTorch."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What frameworks ask of a job beside its strategy."""

    model: Model
    seq_length: int
    global_batch_size: int
    precision: str
    optimizer: str = "adam"
    main_params: str = "fp32"
    offload_fraction: float = 1.0
    loss: str = "plain"
    loss_block: int = 0
    adapters: str = ""
    """Beside frozen weights; none where all weights train."""
    gpus_per_node: int = 8
    accelerator: str = ""
    vendor: str = ""
    """Who made the accelerators; none where it is not known, and then every framework may run there."""


def facts_of(scenario: Scenario) -> Facts:
    """The facts of a scenario."""
    stack = scenario.stack
    return Facts(
        model=scenario.model,
        seq_length=scenario.seq_length,
        global_batch_size=scenario.global_batch_size,
        precision=scenario.precision,
        optimizer=stack.switches.optimizer,
        main_params=stack.switches.main_params,
        offload_fraction=stack.switches.offload_fraction,
        loss=stack.switches.loss,
        loss_block=stack.switches.loss_block,
        adapters=str(stack.switches.adapters or ""),
        gpus_per_node=scenario.group.gpus_per_node,
        accelerator=scenario.group.accelerator.name,
        vendor=scenario.group.accelerator.vendor,
    )


Condition = Callable[[Columns, Facts], Mask]
"""Which rows a framework starts."""


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
    codes = [VALUE_NAMES[axis].index(name) for name in names]
    return lambda c, _x: np.isin(c[axis], codes)


def one(axis: str) -> Condition:
    """No ranks along that axis."""
    return lambda c, _x: c[axis] == 1


def apart(first: str, second: str) -> Condition:
    """Not ranks along both axes."""
    return lambda c, _x: (c[first] == 1) | (c[second] == 1)


def known(field: str, *values: str) -> Condition:
    """A fact of the job that is one of these; it reads the tensor axis only to have rows to answer for."""
    return lambda c, x: (c["tp"] > 0) & (getattr(x, field) in values)


def not_made_by(*vendors: str) -> Condition:
    """Accelerators of any other maker."""
    return lambda c, x: (c["tp"] > 0) & (x.vendor not in vendors)


def gathered(*names: str) -> Condition:
    """Context ranks of one of these kinds, where there are any."""
    kinds = only("cp_kind", *names)
    return lambda c, x: (c["cp"] == 1) | kinds(c, x)


def scheduled(*names: str) -> Condition:
    """One of these schedules; a single stage has none."""
    return only("schedule", "none", *names)


def not_offloaded_in_part(c: Columns, x: Facts) -> Mask:
    return (c["offload"] == 0) | (x.offload_fraction >= 1)


def whole_loss(c: Columns, x: Facts) -> Mask:
    return (c["tp"] > 0) & (x.loss_block == 0)


def all_weights(c: Columns, x: Facts) -> Mask:
    return (c["tp"] > 0) & (not x.adapters)


def muon_shares_all(c: Columns, x: Facts) -> Mask:
    """States of Muon go over all data ranks, gradients and parameters stay whole."""
    ranks = c["dp"] * c["cp"]
    return (x.optimizer != "muon") | (ranks == 1) | ((c["zero_stage"] == 1) & (c["sharding_degree"] == ranks))


def narrow_states_sharded(c: Columns, x: Facts) -> Mask:
    """Narrow master weights or moments, and states on the host, are of a sharded Adam."""
    narrow = x.main_params != "fp32" or x.optimizer in {"adam-bf16", "adam-8bit"}
    hosted = c["offload"] == VALUE_NAMES["offload"].index("optimizer")
    return ~(hosted | narrow) | ((c["zero_stage"] > 0) & x.optimizer.startswith("adam"))


def mapped_experts_alike(c: Columns, x: Facts) -> Mask:
    """With the pipeline inside the data ranks, experts have as many replicas as the rest; dense models count as one."""
    expert_ranks = c["ep"] * (c["etp"] if x.model.moe else c["tp"])
    return (c["rank_order"] == 0) | (c["pp"] == 1) | (expert_ranks == c["tp"] * c["cp"])


def delayed_modules(c: Columns, x: Facts) -> Mask:
    return (x.precision != "fp8") | (c["recompute_modules"] & module_mask(("moe_act", "layernorm")) == 0)


def expert_biases(c: Columns, x: Facts) -> Mask:
    return (c["etp"] == 1) | (x.model.moe is None) | (not x.model.ffn_bias)


def expert_copies(c: Columns, x: Facts) -> Mask:
    """Copies of the sharded states divide the replicas of the experts too."""
    ranks = c["dp"] * c["cp"]
    copies = ranks // np.maximum(c["sharding_degree"], 1)
    replicas = ranks * c["tp"] // (c["ep"] * (c["etp"] if x.model.moe else c["tp"]))
    return (c["zero_stage"] == 0) | (replicas % np.maximum(copies, 1) == 0)


def untied_in_pipeline(c: Columns, x: Facts) -> Mask:
    return (c["pp"] == 1) | (not x.model.tied_embeddings)


def fills(*names: str) -> Condition:
    """As many micro-batches as stages under these schedules."""
    codes = [VALUE_NAMES["schedule"].index(name) for name in names]

    def filled(c: Columns, x: Facts) -> Mask:
        batches = x.global_batch_size // (c["micro_batch_size"] * c["dp"])
        return ~np.isin(c["schedule"], codes) | (batches >= c["pp"])

    return filled


def experts_fill_shards(c: Columns, _x: Facts) -> Mask:
    """Expert ranks beside no copies, and tensor ranks that divide them."""
    whole = (c["zero_stage"] > 0) & (c["sharding_degree"] == c["dp"] * c["cp"])
    return (c["ep"] == 1) | (whole & (c["ep"] % c["tp"] == 0))


def copies_outermost(c: Columns, _x: Facts) -> Mask:
    """Ranks that share states may lie inside or outside the pipeline, their copies only outside of everything."""
    ranks = c["dp"] * c["cp"]
    shared = np.where(c["zero_stage"] == 0, 1, c["sharding_degree"])
    return (c["pp"] == 1) | (shared == ranks) | (c["rank_order"] > 0)


def classic_layers(c: Columns, x: Facts) -> Mask:
    return (c["tp"] > 0) & (not x.model.layer_pattern)


def offloads_shards(c: Columns, x: Facts) -> Mask:
    whole = c["offload"] == VALUE_NAMES["offload"].index("optimizer+parameters")
    return (c["offload"] == 0) | (whole & (c["zero_stage"] > 0) & (x.offload_fraction >= 1))


def no_split_sequence(c: Columns, _x: Facts) -> Mask:
    return c["sequence_parallel"] == 0


def whole_layers(c: Columns, _x: Facts) -> Mask:
    return (c["recompute"] != Recompute.PARTIAL) & (c["recompute_modules"] == 0)


def nothing_repeated_in_pairs(c: Columns, _x: Facts) -> Mask:
    """A pass beside another one's exchanges of tokens with experts repeats nothing."""
    pairs = (c["schedule"] == VALUE_NAMES["schedule"].index("dualpipe-v")) & (c["ep"] > 1)
    return ~pairs | (c["recompute"] == Recompute.NONE)


def all_or_nothing(c: Columns, _x: Facts) -> Mask:
    none, full = Recompute.NONE, Recompute.FULL
    return ((c["recompute"] == none) | (c["recompute"] == full)) & (c["recompute_modules"] == 0)


def groups_in_a_pipeline(c: Columns, _x: Facts) -> Mask:
    return (c["recompute_num_layers"] == 1) | (c["pp"] > 1)


def even_layers(c: Columns, x: Facts) -> Mask:
    return x.model.num_layers % (c["pp"] * c["vpp"]) == 0


def query_groups_split(c: Columns, x: Facts) -> Mask:
    return (x.model.mla is not None) | (x.model.num_query_groups % c["tp"] == 0)


def shards_everywhere(c: Columns, _x: Facts) -> Mask:
    return (c["zero_stage"] == 0) | (c["sharding_degree"] == c["dp"] * c["cp"])


def shards_gradients_too(c: Columns, _x: Facts) -> Mask:
    return c["zero_stage"] != 1


def shards_context(c: Columns, _x: Facts) -> Mask:
    """The ranks of a copy are the context ranks and some of the data ranks, a whole number of times."""
    degree, cp = np.maximum(c["sharding_degree"], 1), c["cp"]
    inner = np.maximum(degree // cp, 1)
    return (c["zero_stage"] == 0) | ((degree % cp == 0) & (c["dp"] % inner == 0))


def shards_beside_context(c: Columns, _x: Facts) -> Mask:
    return (c["cp"] == 1) | (c["zero_stage"] > 0)


def at_most_stage(stage: int, axis: str = "pp") -> Condition:
    """ZeRO up to that stage where there are ranks along an axis."""
    return lambda c, _x: (c[axis] == 1) | (c["zero_stage"] <= stage)


def up_to_stage(stage: int) -> Condition:
    """ZeRO up to that stage."""
    return lambda c, _x: c["zero_stage"] <= stage


def parameters_with_experts_whole(c: Columns, _x: Facts) -> Mask:
    return (c["ep"] == 1) | (c["zero_stage"] < SHARDED_PARAMETERS)


def host_needs_shards(c: Columns, _x: Facts) -> Mask:
    host = np.isin(c["offload"], [VALUE_NAMES["offload"].index(name) for name in ("optimizer", "optimizer+parameters")])
    return ~host | (c["zero_stage"] > 0)


def share_needs_parameters(c: Columns, x: Facts) -> Mask:
    return (c["offload"] == 0) | (x.offload_fraction >= 1) | (c["zero_stage"] == SHARDED_PARAMETERS)


def experts_within_copy(c: Columns, _x: Facts) -> Mask:
    """Expert ranks divide the data, context and tensor ranks of one copy."""
    copy = np.where(c["zero_stage"] == 0, c["cp"], np.maximum(c["sharding_degree"], c["cp"]))
    return (copy * c["tp"]) % c["ep"] == 0


def folded_twice(c: Columns, _x: Facts) -> Mask:
    folds = np.isin(c["schedule"], [VALUE_NAMES["schedule"].index(name) for name in FOLDED])
    return ~folds | (c["vpp"] == 2)


def replicas_share(c: Columns, _x: Facts) -> Mask:
    """Replicas beside tensor or context ranks have data ranks that share a copy."""
    copies = np.where(c["zero_stage"] == 0, 1, np.maximum(c["sharding_degree"] // c["cp"], 1))
    return (c["tp"] * c["cp"] == 1) | (copies > 1) | (c["dp"] == 1)


def something_sharded(c: Columns, _x: Facts) -> Mask:
    """FSDP2 has ranks to shard over."""
    return (c["zero_stage"] == 0) | (c["dp"] * c["cp"] > 1)


def plain(model: Model) -> bool:
    """A dense decoder of Llama's kind: gated, root-mean-square norms, rotated, no biases in its matrices."""
    other = any((model.moe, model.mla, model.mamba, model.sliding_window, model.embedding_size, model.mtp_layers))
    biased = model.qkv_bias or model.output_bias or model.ffn_bias or model.norm_bias or model.head_bias
    own = model.parallel_block or model.layer_pattern or model.localized_filtering or model.embedding_norm
    usual = (model.norm, model.position, model.qk_norm, model.num_norms) == ("rmsnorm", "rotary", "none", 2)
    return usual and model.gated_ffn and model.norm_weight and not (other or biased or own)


def scatters(c: Columns, x: Facts) -> Mask:
    """Every tensor rank has heads of keys of its own, as many as the others."""
    return x.model.num_query_groups % c["tp"] == 0


def norms_split(c: Columns, _x: Facts) -> Mask:
    return (c["tp"] == 1) | (c["sequence_parallel"] == 1)


def experts_whole_or_alike(c: Columns, _x: Facts) -> Mask:
    return (c["etp"] == 1) | (c["etp"] == c["tp"])
