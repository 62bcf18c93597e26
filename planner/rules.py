"""Feasibility rules as data: one list prunes the space, explains refusals, documents itself and is tested.

A rule reads columns of the lattice (arrays that broadcast against each other, or one row's scalars) and
answers which rows pass. Its sentence is filled with a row's numbers when a person asks why not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from costmodels.context import BOTH, RING, ULYSSES, near_ranks
from costmodels.iteration import FILLING
from costmodels.modules import allowed_mask, module_names, modules_of
from costmodels.offload import ACTIVATIONS, EVERYTHING, OPTIMIZER, described
from costmodels.scenario import Scenario
from costmodels.schedules import SCHEDULES
from costmodels.strategy import (
    CP_KINDS,
    OFFLOADS,
    RANK_ORDERS,
    SCHEDULE_NAMES,
    SHARDING_INSIDE,
    VOCABULARIES,
    Recompute,
)

Columns = Mapping[str, NDArray[np.int64]]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rule:
    """One reason why a strategy may be refused."""

    name: str
    kind: Literal["must", "stack", "dominated"]
    """``must`` is arithmetic, ``stack`` what the software lacks, ``dominated`` never better than another row."""
    reads: tuple[str, ...]
    sentence: str
    """Why a row fails, with ``{tp}``-like places for its numbers and the scenario's."""
    source: str
    passes: Callable[[Columns, Scenario], Mask]


def _divides_heads(c: Columns, x: Scenario) -> Mask:
    return x.model.num_heads % c["tp"] == 0


def _divides_groups(c: Columns, x: Scenario) -> Mask:
    groups = x.model.num_query_groups
    return (groups % c["tp"] == 0) | (c["tp"] % groups == 0)


def _divides_ffn(c: Columns, x: Scenario) -> Mask:
    return (x.model.ffn_hidden_size % c["tp"] == 0) & (x.model.hidden_size % c["tp"] == 0)


def _enough_layers(c: Columns, x: Scenario) -> Mask:
    return c["pp"] <= x.model.num_layers


def _experts_divide(c: Columns, x: Scenario) -> Mask:
    return (x.model.moe.num_experts % c["ep"] == 0) if x.model.moe else c["ep"] > 0


def _experts_exist(c: Columns, x: Scenario) -> Mask:
    return (c["ep"] * c["etp"] == 1) | (x.model.moe is not None)


def _experts_fold(c: Columns, _x: Scenario) -> Mask:
    return (c["tp"] * c["cp"] * c["dp"]) % (c["ep"] * c["etp"]) == 0


def _experts_in_order(c: Columns, x: Scenario) -> Mask:
    together = c["ep"] * c["etp"] == c["tp"] * c["cp"]
    return (x.model.moe is None) | (c["rank_order"] == 0) | (c["pp"] == 1) | together


def _expert_width(c: Columns, x: Scenario) -> Mask:
    width = x.model.moe.expert_ffn_hidden_size if x.model.moe else 1
    return (c["etp"] == 1) | ((width % c["etp"] == 0) & (c["etp"] <= c["tp"]))


def _experts_need_split(c: Columns, x: Scenario) -> Mask:
    return (c["sequence_parallel"] == 1) | (c["tp"] == 1) | (x.model.moe is None)


def _context_splits(c: Columns, x: Scenario) -> Mask:
    return (c["cp"] == 1) | (x.seq_length % (2 * c["cp"]) == 0)


def _mixers_divide(c: Columns, x: Scenario) -> Mask:
    mamba = x.model.mamba
    return (c["tp"] > 0) if mamba is None else mamba.num_groups % c["tp"] == 0


def _mixers_exchange(c: Columns, x: Scenario) -> Mask:
    mamba = x.model.mamba
    if mamba is None:
        return c["cp"] > 0
    heads, groups = mamba.num_heads // c["tp"], np.maximum(mamba.num_groups // c["tp"], 1)
    return (heads % c["cp"] == 0) & ((groups % c["cp"] == 0) | (c["cp"] % groups == 0))


def _context_needs_fused(c: Columns, x: Scenario) -> Mask:
    return (c["cp"] == 1) | (c["cp_kind"] == ULYSSES) | (x.rates.attention is not None)


def _context_exchanges(c: Columns, _x: Scenario) -> Mask:
    return (c["cp"] > 1) | (c["cp_kind"] == RING)


def _stack_context(c: Columns, x: Scenario) -> Mask:
    return (c["cp"] == 1) | np.isin(c["cp_kind"], [CP_KINDS.index(kind) for kind in x.stack.cp_kinds])


def _context_heads(c: Columns, x: Scenario) -> Mask:
    ranks, groups = c["tp"] * c["cp"], x.model.num_query_groups
    repeats = x.stack.repeats_key_values & (ranks % groups == 0)
    whole = (x.model.num_heads % ranks == 0) & ((groups % ranks == 0) | repeats)
    return (c["cp"] == 1) | (c["cp_kind"] != ULYSSES) | whole


def _context_mixes(c: Columns, x: Scenario) -> Mask:
    near = near_ranks(c["cp"], c["tp"], x)
    return (c["cp_kind"] != BOTH) | ((near > 1) & (near < c["cp"]))


def _context_windows(c: Columns, x: Scenario) -> Mask:
    rings = (c["cp_kind"] == RING) | (c["cp_kind"] == BOTH)
    return (c["cp"] == 1) | ~rings | (x.model.sliding_window is None)


def _stack_orders(c: Columns, x: Scenario) -> Mask:
    return np.isin(c["rank_order"], [RANK_ORDERS.index(order) for order in x.stack.rank_orders])


def _order_shards(c: Columns, _x: Scenario) -> Mask:
    shards = np.maximum(c["sharding_degree"], 1)
    inner = np.gcd(shards // np.gcd(shards, c["cp"]), c["dp"])
    return (c["rank_order"] != SHARDING_INSIDE) | ((inner > 1) & (inner < c["dp"]))


def _batch_covers(c: Columns, x: Scenario) -> Mask:
    return c["dp"] <= x.global_batch_size


def _batch_divides(c: Columns, x: Scenario) -> Mask:
    return x.global_batch_size % (c["micro_batch_size"] * c["dp"]) == 0


def _chunks_interleave(c: Columns, _x: Scenario) -> Mask:
    return (c["vpp"] == 1) | (c["pp"] > 1)


def _chunks_fit(c: Columns, x: Scenario) -> Mask:
    return (c["vpp"] == 1) | (c["pp"] * c["vpp"] <= x.model.num_layers)


def _chunks_equal(c: Columns, x: Scenario) -> Mask:
    return x.model.num_layers % c["vpp"] == 0


def _even_stages(c: Columns, x: Scenario) -> Mask:
    return x.stack.uneven_stages | (x.model.num_layers % (c["pp"] * c["vpp"]) == 0)


def _whole_groups(c: Columns, x: Scenario) -> Mask:
    batches = x.global_batch_size // (c["micro_batch_size"] * c["dp"])
    return (c["schedule"] != _code("interleaved-1f1b")) | (batches % c["pp"] == 0)


def _split_needs_tensor(c: Columns, _x: Scenario) -> Mask:
    return (c["sequence_parallel"] == 0) | (c["tp"] > 1)


def _split_divides(c: Columns, x: Scenario) -> Mask:
    return (c["sequence_parallel"] == 0) | (x.seq_length % (c["cp"] * c["tp"]) == 0)


def _stack_splits(c: Columns, x: Scenario) -> Mask:
    return (c["sequence_parallel"] == 0) | x.stack.sequence_parallel


def _schedule_runs(c: Columns, _x: Scenario) -> Mask:
    pipelined, chunked = c["pp"] > 1, c["vpp"] > 1
    plain, chunks, fold = (np.isin(c["schedule"], [_code(name) for name in kind]) for kind in (PLAIN, LOOPED, FOLDED))
    alone = (c["schedule"] == _code("none")) & ~chunked & ~pipelined
    return alone | (pipelined & ((plain & ~chunked) | (chunks & chunked) | (fold & (c["vpp"] == 2))))


def _enough_batches(c: Columns, x: Scenario) -> Mask:
    batches = x.global_batch_size // (c["micro_batch_size"] * c["dp"])
    passes = np.ones(np.broadcast_shapes(batches.shape, c["pp"].shape, c["schedule"].shape), dtype=bool)
    for name in SCHEDULE_NAMES[1:]:
        if not (c["schedule"] == _code(name)).any():
            continue
        runs = SCHEDULES[name].allowed(c["pp"], batches, c["vpp"])
        passes = passes & ((c["schedule"] != _code(name)) | runs)
    return passes


def _stack_schedules(c: Columns, x: Scenario) -> Mask:
    known = [_code(name) for name in x.stack.schedules if name in SCHEDULES]
    return np.isin(c["schedule"], known)


def _first_in_first_out(c: Columns, x: Scenario) -> Mask:
    return (c["schedule"] != _code("gpipe")) | ("1f1b" not in x.stack.schedules)


def _vocabulary_spreads(c: Columns, _x: Scenario) -> Mask:
    return (c["vocabulary"] == 0) | (c["pp"] > 1)


def _stack_spreads(c: Columns, x: Scenario) -> Mask:
    return np.isin(c["vocabulary"], [VOCABULARIES.index(place) for place in x.stack.vocabulary])


def _groups_differ(c: Columns, x: Scenario) -> Mask:
    batches = x.global_batch_size // (c["micro_batch_size"] * c["dp"])
    same = (c["schedule"] == _code("interleaved-groups")) & (batches % c["pp"] == 0)
    return ~same | ("interleaved-1f1b" not in x.stack.schedules)


def _selective_saves(c: Columns, x: Scenario) -> Mask:
    saves = x.rates.attention is None or x.stack.selective != "attention"
    return (c["recompute"] != Recompute.SELECTIVE) | (c["recompute_modules"] > 0) | saves


def _recomputes_no_more(c: Columns, _x: Scenario) -> Mask:
    return (c["recompute"] != Recompute.FULL) | (c["offload"] == ACTIVATIONS)


def _modules_selective(c: Columns, _x: Scenario) -> Mask:
    return (c["recompute_modules"] == 0) | (c["recompute"] == Recompute.SELECTIVE)


def _modules_exist(c: Columns, x: Scenario) -> Mask:
    return (c["recompute_modules"] & ~allowed_mask(modules_of(x.model))) == 0


def _stack_modules(c: Columns, x: Scenario) -> Mask:
    return (c["recompute_modules"] & ~allowed_mask(x.stack.recompute_modules)) == 0


def _stack_offloads(c: Columns, x: Scenario) -> Mask:
    known = [0, *(OFFLOADS.index(name) for name in x.stack.offloads)]
    return np.isin(c["offload"], known)


def _host_known(c: Columns, x: Scenario) -> Mask:
    return (c["offload"] == 0) | described(x)


def _host_steps(c: Columns, x: Scenario) -> Mask:
    return (c["offload"] < OPTIMIZER) | (x.stack.optimizer in HOST_OPTIMIZERS)


def _parameters_sharded(c: Columns, _x: Scenario) -> Mask:
    return (c["offload"] != EVERYTHING) | (c["zero_stage"] == 3)


def _offloads_alike(c: Columns, _x: Scenario) -> Mask:
    return (c["offload"] != ACTIVATIONS) | (c["recompute"] != Recompute.PARTIAL)


def _order_matters(c: Columns, _x: Scenario) -> Mask:
    return (c["rank_order"] == 0) | ((c["pp"] > 1) & (c["dp"] > 1))


def _shards_anew(c: Columns, _x: Scenario) -> Mask:
    return c["sharding_degree"] != REPEATS


def _shards_something(c: Columns, _x: Scenario) -> Mask:
    return (c["zero_stage"] == 0) == (c["sharding_degree"] == 1)


def _shard_divides(c: Columns, _x: Scenario) -> Mask:
    return (c["dp"] * c["cp"]) % np.maximum(c["sharding_degree"], 1) == 0


def _stack_shards(c: Columns, x: Scenario) -> Mask:
    return np.isin(c["zero_stage"], x.stack.zero_stages)


def _gradients_accumulate(c: Columns, _x: Scenario) -> Mask:
    return (c["zero_stage"] < SHARDED_GRADIENTS) | (c["pp"] == 1) | (c["schedule"] == _code("breadth-first"))


def _code(name: str) -> int:
    return SCHEDULE_NAMES.index(name)


HOST_OPTIMIZERS = ("adam", "adam-bf16", "lamb", "sgd")
"""Optimizers that step on CPUs; 8-bit states and orthogonalisation are of the device."""
PLAIN = ("gpipe", "1f1b", "zb-1p", "zb-2p", "dualpipe")
"""Schedules of one chunk per stage."""
LOOPED = ("interleaved-1f1b", "breadth-first", "interleaved-groups", "interleaved-zb")
"""Schedules of two chunks per stage or more, which a micro-batch passes in a loop."""
FOLDED = ("zb-v", "v-half", "v-min", "dualpipe-v")
"""Schedules that place two chunks of a stage in a V."""

_LAYOUT = ("tp", "cp", "pp", "dp")
SHARDED_GRADIENTS = 2
"""The least ZeRO stage that shards gradients."""
REPEATS = 0
"""Sharding degree that stands for a group which another row already covers."""

RULES: tuple[Rule, ...] = (
    Rule("heads", "must", ("tp",), "tensor parallel size {tp} does not divide {num_heads} attention heads",
         "Megatron-LM tensor parallelism", _divides_heads),
    Rule("query-groups", "must", ("tp",),
         "tensor parallel size {tp} neither divides nor is a multiple of {num_query_groups} query groups",
         "Megatron-Core attention", _divides_groups),
    Rule("ffn", "must", ("tp",),
         "tensor parallel size {tp} does not divide hidden size {hidden_size} and feed-forward size {ffn_hidden_size}",
         "Megatron-LM tensor parallelism", _divides_ffn),
    Rule("layers", "must", ("pp",), "{pp} pipeline stages for {num_layers} layers leave stages empty",
         "arithmetic", _enough_layers),
    Rule("experts", "must", ("ep", "etp"), "expert ranks {ep} x {etp} need a model with experts; {model} has none",
         "arithmetic", _experts_exist),
    Rule("experts-divide", "must", ("ep",), "expert parallel size {ep} does not divide {num_experts} experts",
         "Megatron-Core mixture of experts", _experts_divide),
    Rule("experts-fold", "must", ("tp", "cp", "dp", "ep", "etp"),
         "expert ranks {ep} x {etp} do not fold into {tp} x {cp} x {dp} tensor, context and data ranks",
         "Megatron-Core parallel folding", _experts_fold),
    Rule("experts-order", "must", ("tp", "cp", "pp", "ep", "etp", "rank_order"),
         "rank order {rank_order} spreads expert ranks {ep} x {etp} unless they are a stage's {tp} x {cp} ranks",
         "Megatron-Core parallel state", _experts_in_order),
    Rule("expert-width", "must", ("tp", "etp"),
         "expert tensor size {etp} does not split experts of width {expert_ffn_hidden_size} within tensor size {tp}",
         "Megatron-Core mixture of experts", _expert_width),
    Rule("experts-sequence", "must", ("tp", "sequence_parallel"),
         "experts with tensor parallel size {tp} need sequence parallelism", "Megatron-Core mixture of experts",
         _experts_need_split),
    Rule("mamba-groups", "must", ("tp",),
         "tensor parallel size {tp} does not divide {mamba_groups} groups of Mamba-2 heads", "Megatron-Core MambaMixer",
         _mixers_divide),
    Rule("mamba-context", "must", ("tp", "cp"),
         "context parallel size {cp} does not share out {mamba_heads} Mamba-2 heads in {mamba_groups} groups over "
         "tensor parallel size {tp}", "Megatron-Core MambaContextParallel", _mixers_exchange),
    Rule("context-split", "must", ("cp",),
         "sequence length {seq_length} does not split into 2 x {cp} chunks of context parallelism",
         "Megatron-Core context parallelism, causal load balance", _context_splits),
    Rule("context-kind", "dominated", ("cp", "cp_kind"),
         "with context parallel size {cp} every kind is p2p; {cp_kind} repeats it", "arithmetic", _context_exchanges),
    Rule("stack-context", "stack", ("cp", "cp_kind"), "stack {stack} has no context parallelism of kind {cp_kind}",
         "the stack", _stack_context),
    Rule("context-heads", "must", ("tp", "cp", "cp_kind"),
         "context parallelism by {cp_kind} splits heads: {num_heads} heads and {num_query_groups} query groups do not "
         "split over {tp} tensor x {cp} context ranks", "Jacobs et al. 2023; Transformer Engine attention",
         _context_heads),
    Rule("context-hierarchy", "dominated", ("tp", "cp", "cp_kind"),
         "a2a+p2p over {cp} context ranks beside {tp} tensor ranks is a2a or p2p alone: as many as share a fast domain "
         "and divide the heads exchange, the others form the ring", "Fang and Zhao 2024", _context_mixes),
    Rule("context-window", "must", ("cp", "cp_kind"),
         "{cp_kind} over {cp} context ranks passes all keys around; a sliding window needs a2a or all-gather",
         "Transformer Engine attention", _context_windows),
    Rule("context-kernel", "must", ("cp", "cp_kind"), "context parallel size {cp} needs a fused attention kernel; "
         "stack {stack} runs {attention} attention", "Megatron-Core context parallelism", _context_needs_fused),
    Rule("batch-covers", "must", ("dp",), "{dp} data-parallel replicas for {global_batch_size} sequences per batch",
         "arithmetic", _batch_covers),
    Rule("batch-divides", "must", ("dp", "micro_batch_size"),
         "micro-batch {micro_batch_size} x {dp} replicas do not divide the batch of {global_batch_size}",
         "arithmetic", _batch_divides),
    Rule("interleaving", "must", ("pp", "vpp"), "{vpp} chunks per stage interleave a pipeline; pp is {pp}",
         "Narayanan et al. 2021", _chunks_interleave),
    Rule("equal-chunks", "must", ("vpp",), "{num_layers} layers do not make equal chunks, {vpp} on every stage",
         "interleaved schedules assume equal chunks", _chunks_equal),
    Rule("chunks", "must", ("pp", "vpp"), "{vpp} chunks on each of {pp} stages need more than the {num_layers} layers",
         "Narayanan et al. 2021", _chunks_fit),
    Rule("even-stages", "stack", ("pp", "vpp"),
         "{num_layers} layers do not split evenly over {pp} stages x {vpp} chunks, as stack {stack} needs",
         "the stack's pipeline layout", _even_stages),
    Rule("interleave-groups", "must", ("pp", "dp", "micro_batch_size", "schedule"),
         "interleaving needs micro-batches in a multiple of {pp} stages", "Megatron-LM interleaved schedule",
         _whole_groups),
    Rule("sequence-needs-tensor", "must", ("tp", "sequence_parallel"),
         "sequence parallelism splits over tensor ranks; tensor parallel size is {tp}", "Korthikanti et al. 2022",
         _split_needs_tensor),
    Rule("sequence-split", "must", ("tp", "cp", "sequence_parallel"),
         "sequence length {seq_length} does not split over {cp} context x {tp} tensor ranks", "Korthikanti et al. 2022",
         _split_divides),
    Rule("stack-sequence", "stack", ("sequence_parallel",), "stack {stack} has no sequence parallelism",
         "the stack", _stack_splits),
    Rule("schedule", "must", ("pp", "vpp", "schedule"),
         "schedule {schedule} does not run {pp} stages with {vpp} chunks each", "Narayanan et al. 2021",
         _schedule_runs),
    Rule("schedule-fills", "must", ("pp", "vpp", "dp", "micro_batch_size", "schedule"),
         "schedule {schedule} cannot run {num_microbatches} micro-batches on {pp} stages: it needs {requires}",
         "the schedules' publications", _enough_batches),
    Rule("stack-schedule", "stack", ("schedule",), "stack {stack} has no schedule {schedule}", "the stack",
         _stack_schedules),
    Rule("vocabulary", "must", ("pp", "vocabulary"), "a vocabulary is spread over pipeline stages; pp is {pp}",
         "Yeung et al. 2024", _vocabulary_spreads),
    Rule("stack-vocabulary", "stack", ("vocabulary",),
         "stack {stack} cannot keep the vocabulary {vocabulary}; {vocabularies} it can", "the stack", _stack_spreads),
    Rule("micro-batch-groups", "dominated", ("pp", "dp", "micro_batch_size", "schedule"),
         "groups of {pp} micro-batches are interleaved-1f1b", "Megatron-Core", _groups_differ),
    Rule("gpipe", "dominated", ("schedule",), "gpipe holds more activations than 1f1b and is not faster",
         "Narayanan et al. 2021", _first_in_first_out),
    Rule("selective", "dominated", ("recompute_modules", "recompute"),
         "selective recomputation stores as much as none under {attention} attention, and is slower",
         "Dao et al. 2022", _selective_saves),
    Rule("full-recompute", "dominated", ("offload", "recompute"),
         "recomputing every layer of every stage is never faster than as many as memory asks for", "arithmetic",
         _recomputes_no_more),
    Rule("rank-order", "dominated", ("pp", "dp", "rank_order"),
         "rank order {rank_order} places ranks as the default does when pp {pp} or dp {dp} is 1", "arithmetic",
         _order_matters),
    Rule("stack-order", "stack", ("rank_order",), "stack {stack} cannot be told rank order {rank_order}", "the stack",
         _stack_orders),
    Rule("rank-order-sharding", "dominated", ("cp", "dp", "sharding_degree", "rank_order"),
         "rank order {rank_order} is another one unless sharding over {sharding_degree} ranks takes part of dp {dp}",
         "arithmetic", _order_shards),
    Rule("sharding-repeats", "dominated", ("sharding_degree",),
         "sharding within a node, or a few, is sharding over all {dp} x {cp} data and context ranks, or another row's",
         "arithmetic", _shards_anew),
    Rule("sharding", "must", ("zero_stage", "sharding_degree"),
         "ZeRO stage {zero_stage} over {sharding_degree} ranks: stage 0 shards over 1 rank, the others over more",
         "Rajbhandari et al. 2020", _shards_something),
    Rule("sharding-divides", "must", ("dp", "cp", "sharding_degree"),
         "sharding degree {sharding_degree} does not divide the {dp} x {cp} data and context ranks", "arithmetic",
         _shard_divides),
    Rule("stack-zero", "stack", ("zero_stage",), "stack {stack} has no ZeRO stage {zero_stage}", "the stack",
         _stack_shards),
    Rule("zero-pipeline", "must", ("zero_stage", "pp", "schedule"),
         "ZeRO stage {zero_stage} re-shards gradients every micro-batch and does not combine with {pp} pipeline stages "
         "under {schedule}; breadth-first does", "DeepSpeed, PaddlePaddle fleet; Lamy-Poirier 2022",
         _gradients_accumulate),
    Rule("modules-selective", "must", ("recompute", "recompute_modules"),
         "modules {recompute_modules} are named, but recomputation is {recompute}; only selective has modules",
         "Megatron-Core recomputation", _modules_selective),
    Rule("modules-exist", "must", ("recompute_modules",),
         "model {model} does not have all of the modules {recompute_modules}; it has {model_modules}",
         "Megatron-Core recomputation", _modules_exist),
    Rule("stack-modules", "stack", ("recompute_modules",),
         "stack {stack} cannot recompute modules {recompute_modules}; it knows {stack_modules}", "the stack",
         _stack_modules),
    Rule("stack-offload", "stack", ("offload",), "stack {stack} has no offload {offload}; it has {stack_offloads}",
         "the stack", _stack_offloads),
    Rule("offload-host", "must", ("offload",),
         "offload {offload} needs the host's memory, link and bandwidth, which the cluster does not say", "arithmetic",
         _host_known),
    Rule("offload-step", "must", ("offload",), "offload {offload}: optimizer {optimizer} has no step on the host",
         "DeepSpeed CPU-Adam, Megatron-Core hybrid optimizer", _host_steps),
    Rule("offload-parameters", "must", ("zero_stage", "offload"),
         "offload {offload} needs ZeRO stage 3; it is {zero_stage}", "DeepSpeed ZeRO-Infinity", _parameters_sharded),
    Rule("offload-layers", "must", ("recompute", "offload"),
         "offload {offload} goes with recompute none, selective or full, not {recompute}",
         "all layers of a stage are offloaded alike", _offloads_alike),
)  # fmt: skip
"""Every rule but memory, in the order in which they are tried."""


def _one_width(c: Columns, _x: Scenario) -> Mask:
    return c["ranks"] == c["widest"]


def _batch_reaches(c: Columns, _x: Scenario) -> Mask:
    return c["batch_width"] % c["dp"] == 0


def _groups_in_order(c: Columns, _x: Scenario) -> Mask:
    return c["rank_order"] == 0


def _groups_in_turn(c: Columns, _x: Scenario) -> Mask:
    return ~np.isin(c["schedule"], [_code(name) for name in (*FILLING, "breadth-first")])


def _groups_keep_ends(c: Columns, _x: Scenario) -> Mask:
    return c["vocabulary"] == 0


def _groups_keep_states(c: Columns, _x: Scenario) -> Mask:
    return c["offload"] == 0


GROUP_RULES: tuple[Rule, ...] = (
    Rule("group-width", "stack", ("ranks", "widest"),
         "stages of {ranks} ranks on one node group and of {widest} on another; launchers give every stage the same",
         "Megatron-Core parallel state", _one_width),
    Rule("group-batch", "must", ("dp", "batch_width"),
         "the {batch_width} sequences that the replicas take at a time do not split over the {dp} of one node group",
         "arithmetic", _batch_reaches),
    Rule("group-order", "must", ("rank_order",),
         "rank order {rank_order} spreads a node group's ranks over the pipeline; tp-cp-ep-dp-pp keeps them together",
         "arithmetic", _groups_in_order),
    Rule("group-schedule", "must", ("schedule",),
         "schedule {schedule} is priced for stages that are alike; stages on several node groups are not",
         "Qi et al. 2023, 2024; Lamy-Poirier 2022", _groups_in_turn),
    Rule("group-vocabulary", "must", ("vocabulary",),
         "vocabulary {vocabulary} gives every stage the same share; stages on several node groups are not alike",
         "Yeung et al. 2024", _groups_keep_ends),
    Rule("group-offload", "must", ("offload",),
         "offload {offload} is priced for one kind of host; several node groups have several", "arithmetic",
         _groups_keep_states),
)  # fmt: skip
"""Rules beyond ``RULES`` where a pipeline goes over several node groups.

They read a stage's ``ranks``, those of the ``widest`` stage, and ``batch_width``, the sequences of one micro-batch over
all replicas, which every group deals out to its own.
"""


def active(scenario: Scenario, pinned: frozenset[str]) -> tuple[Rule, ...]:
    """The rules of a search: what is dominated is kept where the request pins that very axis."""
    del scenario
    return tuple(r for r in RULES if r.kind != "dominated" or not set(r.reads[-1:]) & pinned)


def sentence(rule: Rule, row: Mapping[str, Any], scenario: Scenario) -> str:
    """The rule's sentence with one row's numbers."""
    model, words = scenario.model, dict(row)
    kinds = tuple(kind.name.lower() for kind in Recompute)
    if "recompute_modules" in words:
        words["recompute_modules"] = ",".join(module_names(int(words["recompute_modules"]))) or "none"
    for name, names in (
        ("schedule", SCHEDULE_NAMES),
        ("rank_order", RANK_ORDERS),
        ("cp_kind", CP_KINDS),
        ("recompute", kinds),
        ("offload", OFFLOADS),
        ("vocabulary", VOCABULARIES),
    ):
        if name in words:
            words[name] = names[int(words[name])]
    words["requires"] = SCHEDULES[words["schedule"]].requires if "schedule" in words else ""
    if words.get("dp") and words.get("micro_batch_size"):
        words["num_microbatches"] = int(scenario.global_batch_size // (words["dp"] * words["micro_batch_size"]))
    if isinstance(words.get("micro_batch_size"), float):
        words["micro_batch_size"] = f"{words['micro_batch_size']:g}"
    return rule.sentence.format(
        **words,
        num_heads=model.num_heads,
        num_query_groups=model.num_query_groups,
        hidden_size=model.hidden_size,
        ffn_hidden_size=model.ffn_hidden_size,
        num_layers=model.num_layers,
        seq_length=scenario.seq_length,
        global_batch_size=scenario.global_batch_size,
        stack=scenario.stack.name,
        vocabularies=" or ".join(scenario.stack.vocabulary),
        model=model.name,
        num_experts=model.moe.num_experts if model.moe else 0,
        expert_ffn_hidden_size=model.moe.expert_ffn_hidden_size if model.moe else 0,
        mamba_heads=model.mamba.num_heads if model.mamba else 0,
        mamba_groups=model.mamba.num_groups if model.mamba else 0,
        attention=scenario.rates.attention_name,
        model_modules=",".join(modules_of(model)),
        stack_modules=",".join(scenario.stack.recompute_modules) or "none",
        stack_offloads=", ".join(scenario.stack.offloads) or "none",
        optimizer=scenario.stack.optimizer,
    )
