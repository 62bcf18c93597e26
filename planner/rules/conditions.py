"""The conditions of the feasibility rules: each answers which rows of the lattice pass.

``Columns`` are arrays that broadcast against each other, or one row's scalars; a condition has the shape of what it
reads. Its name, sentence and source stand in ``planner.rules.core``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from costmodels.layer.context import BOTH, RING, ULYSSES, near_ranks
from costmodels.layer.recompute_modules import allowed_mask, modules_of
from costmodels.layout.split import places_of_ends
from costmodels.names import (
    CP_KINDS,
    OFFLOADS,
    RANK_ORDERS,
    SCHEDULE_NAMES,
    SHARDED_GRADIENTS,
    SHARDED_PARAMETERS,
    SHARDING_INSIDE,
    VOCABULARIES,
    Recompute,
)
from costmodels.pipeline.schedules import FILLING, SCHEDULES
from costmodels.scenario import Scenario
from costmodels.step.offload import ACTIVATIONS, EVERYTHING, OPTIMIZER, described
from costmodels.strategy import Ints

Columns = Mapping[str, NDArray[np.int64]]
Mask = NDArray[np.bool_]

HOST_OPTIMIZERS = ("adam", "adam-bf16", "lamb", "sgd")
"""Optimizers that step on CPUs; 8-bit states and orthogonalisation are of the device."""
PLAIN = ("gpipe", "1f1b", "zb-1p", "zb-2p", "dualpipe")
"""Schedules of one chunk per stage."""
LOOPED = ("interleaved-1f1b", "breadth-first", "interleaved-groups", "interleaved-zb")
"""Schedules of two chunks per stage or more, which a micro-batch passes in a loop."""
FOLDED = ("zb-v", "v-half", "v-min", "dualpipe-v")
"""Schedules that place two chunks of a stage in a V."""
SEVERAL_PIECES = tuple(SCHEDULE_NAMES.index(name) for name in (*FOLDED, "dualpipe"))
"""Schedules whose stages hold pieces of the model that lie apart and are not looped."""

REPEATS = 0
"""Sharding degree that stands for a group which another row already covers."""


def divides_heads(c: Columns, x: Scenario) -> Mask:
    return x.model.num_heads % c["tp"] == 0


def divides_groups(c: Columns, x: Scenario) -> Mask:
    groups = x.model.num_query_groups
    return (groups % c["tp"] == 0) | (c["tp"] % groups == 0)


def divides_ffn(c: Columns, x: Scenario) -> Mask:
    return (x.model.ffn_hidden_size % c["tp"] == 0) & (x.model.hidden_size % c["tp"] == 0)


def enough_layers(c: Columns, x: Scenario) -> Mask:
    return c["pp"] <= x.model.num_layers


def experts_divide(c: Columns, x: Scenario) -> Mask:
    return (x.model.moe.num_experts % c["ep"] == 0) if x.model.moe else c["ep"] > 0


def experts_exist(c: Columns, x: Scenario) -> Mask:
    return (c["ep"] * c["etp"] == 1) | (x.model.moe is not None)


def experts_fold(c: Columns, _x: Scenario) -> Mask:
    return (c["tp"] * c["cp"] * c["dp"]) % (c["ep"] * c["etp"]) == 0


def experts_in_order(c: Columns, x: Scenario) -> Mask:
    if x.model.moe is None:
        return np.ones(np.shape(c["rank_order"]), dtype=bool)
    together = c["ep"] * c["etp"] == c["tp"] * c["cp"]
    return (c["rank_order"] == 0) | (c["pp"] == 1) | together


def expert_width(c: Columns, x: Scenario) -> Mask:
    width = x.model.moe.expert_ffn_hidden_size if x.model.moe else 1
    return (c["etp"] == 1) | ((width % c["etp"] == 0) & (c["etp"] <= c["tp"]))


def experts_need_split(c: Columns, x: Scenario) -> Mask:
    return (c["sequence_parallel"] == 1) | (c["tp"] == 1) | (x.model.moe is None)


def context_splits(c: Columns, x: Scenario) -> Mask:
    return (c["cp"] == 1) | (x.seq_length % (2 * c["cp"]) == 0)


def mixers_divide(c: Columns, x: Scenario) -> Mask:
    mamba = x.model.mamba
    return (c["tp"] > 0) if mamba is None else mamba.num_groups % c["tp"] == 0


def mixers_exchange(c: Columns, x: Scenario) -> Mask:
    mamba = x.model.mamba
    if mamba is None:
        return c["cp"] > 0
    heads, groups = mamba.num_heads // c["tp"], np.maximum(mamba.num_groups // c["tp"], 1)
    return (heads % c["cp"] == 0) & ((groups % c["cp"] == 0) | (c["cp"] % groups == 0))


def context_needs_fused(c: Columns, x: Scenario) -> Mask:
    return (c["cp"] == 1) | (c["cp_kind"] == ULYSSES) | (x.rates.attention is not None)


def context_exchanges(c: Columns, _x: Scenario) -> Mask:
    return (c["cp"] > 1) | (c["cp_kind"] == RING)


def stack_context(c: Columns, x: Scenario) -> Mask:
    return (c["cp"] == 1) | np.isin(c["cp_kind"], [CP_KINDS.index(kind) for kind in x.stack.supports.cp_kinds])


def context_heads(c: Columns, x: Scenario) -> Mask:
    ranks, groups = c["tp"] * c["cp"], x.model.num_query_groups
    repeats = x.stack.exchange.repeats_key_values & (ranks % groups == 0)
    whole = (x.model.num_heads % ranks == 0) & ((groups % ranks == 0) | repeats)
    return (c["cp"] == 1) | (c["cp_kind"] != ULYSSES) | whole


def context_mixes(c: Columns, x: Scenario) -> Mask:
    near = near_ranks(c["cp"], c["tp"], x)
    return (c["cp_kind"] != BOTH) | ((near > 1) & (near < c["cp"]))


def context_windows(c: Columns, x: Scenario) -> Mask:
    rings = (c["cp_kind"] == RING) | (c["cp_kind"] == BOTH)
    return (c["cp"] == 1) | ~rings | (x.model.sliding_window is None)


def stack_orders(c: Columns, x: Scenario) -> Mask:
    return np.isin(c["rank_order"], [RANK_ORDERS.index(order) for order in x.stack.supports.rank_orders])


def order_shards(c: Columns, _x: Scenario) -> Mask:
    shards = np.maximum(c["sharding_degree"], 1)
    inner = np.gcd(shards // np.gcd(shards, c["cp"]), c["dp"])
    return (c["rank_order"] != SHARDING_INSIDE) | ((inner > 1) & (inner < c["dp"]))


def batch_covers(c: Columns, x: Scenario) -> Mask:
    return c["dp"] <= x.global_batch_size


def batch_divides(c: Columns, x: Scenario) -> Mask:
    return x.global_batch_size % (c["micro_batch_size"] * c["dp"]) == 0


def chunks_interleave(c: Columns, _x: Scenario) -> Mask:
    return (c["vpp"] == 1) | (c["pp"] > 1)


def chunks_fit(c: Columns, x: Scenario) -> Mask:
    return (c["vpp"] == 1) | (c["pp"] * c["vpp"] <= _places(c, x))


def chunks_equal(c: Columns, x: Scenario) -> Mask:
    return _places(c, x) % c["vpp"] == 0


def ends_take_places(c: Columns, x: Scenario) -> Mask:
    """One of the two ends on a stage of its own, and layers that are recomputed all alike."""
    plain = (c["vocabulary"] == 0) & (c["recompute"] != Recompute.PARTIAL)
    back = np.isin(c["schedule"], [SCHEDULE_NAMES.index(name) for name in FOLDED])
    return (x.model.num_layers % c["vpp"] == 0) | (plain & ~back)


def even_stages(c: Columns, x: Scenario) -> Mask:
    return x.stack.supports.uneven_stages | (_places(c, x) % (c["pp"] * c["vpp"]) == 0)


def _places(c: Columns, x: Scenario) -> Ints:
    """Layers, with the embedding and the head where the stack lets them take a layer's place."""
    if not x.stack.supports.ends_as_layers:
        return np.full(np.shape(c["vpp"]), x.model.num_layers)
    return np.asarray(x.model.num_layers + sum(places_of_ends(x.model.num_layers, np.asarray(c["vpp"]))))


def whole_groups(c: Columns, x: Scenario) -> Mask:
    batches = x.global_batch_size // (c["micro_batch_size"] * c["dp"])
    return (c["schedule"] != _code("interleaved-1f1b")) | (batches % c["pp"] == 0)


def split_needs_tensor(c: Columns, _x: Scenario) -> Mask:
    return (c["sequence_parallel"] == 0) | (c["tp"] > 1)


def split_divides(c: Columns, x: Scenario) -> Mask:
    return (c["sequence_parallel"] == 0) | (x.seq_length % (c["cp"] * c["tp"]) == 0)


def stack_splits(c: Columns, x: Scenario) -> Mask:
    return (c["sequence_parallel"] == 0) | x.stack.supports.sequence_parallel


def schedule_runs(c: Columns, _x: Scenario) -> Mask:
    pipelined, chunked = c["pp"] > 1, c["vpp"] > 1
    plain, chunks, fold = (np.isin(c["schedule"], [_code(name) for name in kind]) for kind in (PLAIN, LOOPED, FOLDED))
    alone = (c["schedule"] == _code("none")) & ~chunked & ~pipelined
    return alone | (pipelined & ((plain & ~chunked) | (chunks & chunked) | (fold & (c["vpp"] == 2))))


def enough_batches(c: Columns, x: Scenario) -> Mask:
    batches = x.global_batch_size // (c["micro_batch_size"] * c["dp"])
    passes = np.ones(np.broadcast_shapes(batches.shape, c["pp"].shape, c["schedule"].shape), dtype=bool)
    for name in SCHEDULE_NAMES[1:]:
        if not (c["schedule"] == _code(name)).any():
            continue
        runs = SCHEDULES[name].allowed(c["pp"], batches, c["vpp"])
        passes = passes & ((c["schedule"] != _code(name)) | runs)
    return passes


def stack_schedules(c: Columns, x: Scenario) -> Mask:
    known = [_code(name) for name in x.stack.supports.schedules if name in SCHEDULES]
    return np.isin(c["schedule"], known)


def first_in_first_out(c: Columns, x: Scenario) -> Mask:
    return (c["schedule"] != _code("gpipe")) | ("1f1b" not in x.stack.supports.schedules)


def vocabulary_spreads(c: Columns, _x: Scenario) -> Mask:
    return (c["vocabulary"] == 0) | (c["pp"] > 1)


def stack_spreads(c: Columns, x: Scenario) -> Mask:
    return np.isin(c["vocabulary"], [VOCABULARIES.index(place) for place in x.stack.supports.vocabulary])


def groups_differ(c: Columns, x: Scenario) -> Mask:
    batches = x.global_batch_size // (c["micro_batch_size"] * c["dp"])
    same = (c["schedule"] == _code("interleaved-groups")) & (batches % c["pp"] == 0)
    return ~same | ("interleaved-1f1b" not in x.stack.supports.schedules)


def selective_saves(c: Columns, x: Scenario) -> Mask:
    saves = x.rates.attention is None or x.stack.switches.recompute_policy != "attention"
    return (c["recompute"] != Recompute.SELECTIVE) | (c["recompute_modules"] > 0) | saves


def recomputes_no_more(c: Columns, x: Scenario) -> Mask:
    return _partly_as_well(c, x) | (max(x.stack.supports.zero_stages) >= SHARDED_GRADIENTS)


def recomputes_to_hide(c: Columns, x: Scenario) -> Mask:
    """Whether traffic in every micro-batch may hide behind what is computed again of every layer."""
    return _partly_as_well(c, x) | (c["zero_stage"] >= SHARDED_GRADIENTS)


def _partly_as_well(c: Columns, x: Scenario) -> Mask:
    """Not where layers could be recomputed one by one, and idle time does not depend on how many are."""
    alone = (c["offload"] == ACTIVATIONS) | (x.model.num_layers % c["vpp"] > 0)  # goes without PARTIAL
    return (c["recompute"] != Recompute.FULL) | alone | (c["recompute_num_layers"] > 1) | fills(c)


def fills(c: Columns) -> Mask:
    """Whether weight gradients fill the schedule's idle time, which then depends on what is recomputed."""
    return np.isin(c["schedule"], [_code(name) for name in FILLING])


def groups_are_full(c: Columns, _x: Scenario) -> Mask:
    whole = (c["recompute"] == Recompute.FULL) & (c["offload"] != ACTIVATIONS)
    return (c["recompute_num_layers"] == 1) | whole


def groups_divide(c: Columns, x: Scenario) -> Mask:
    stages = 1 if x.stack.supports.uneven_stages else c["pp"]
    each = c["vpp"] * c["recompute_num_layers"]
    divides = (x.model.num_layers % (stages * each) == 0) & (c["pp"] * each <= x.model.num_layers)
    return (c["recompute_num_layers"] == 1) | divides


def groups_are_alike(c: Columns, x: Scenario) -> Mask:
    return (c["recompute_num_layers"] == 1) | (x.depth.uniform & ~np.isin(c["schedule"], SEVERAL_PIECES))


def stack_recomputes_groups(c: Columns, x: Scenario) -> Mask:
    return (c["recompute_num_layers"] == 1) | x.stack.supports.recompute_groups


def groups_recompute_singly(c: Columns, _x: Scenario) -> Mask:
    return c["recompute_num_layers"] == 1


def modules_selective(c: Columns, _x: Scenario) -> Mask:
    return (c["recompute_modules"] == 0) | (c["recompute"] == Recompute.SELECTIVE)


def modules_exist(c: Columns, x: Scenario) -> Mask:
    return (c["recompute_modules"] & ~allowed_mask(modules_of(x.model))) == 0


def stack_modules(c: Columns, x: Scenario) -> Mask:
    return (c["recompute_modules"] & ~allowed_mask(x.stack.supports.recompute_modules)) == 0


def stack_offloads(c: Columns, x: Scenario) -> Mask:
    known = [0, *(OFFLOADS.index(name) for name in x.stack.supports.offloads)]
    return np.isin(c["offload"], known)


def host_known(c: Columns, x: Scenario) -> Mask:
    return (c["offload"] == 0) | described(x)


def host_steps(c: Columns, x: Scenario) -> Mask:
    return (c["offload"] < OPTIMIZER) | (x.stack.switches.optimizer in HOST_OPTIMIZERS)


def states_to_offload(c: Columns, x: Scenario) -> Mask:
    return (c["offload"] < OPTIMIZER) | (not x.frozen)


def weights_to_fill(c: Columns, x: Scenario) -> Mask:
    return ~fills(c) | (not x.frozen)


def modules_alike(c: Columns, x: Scenario) -> Mask:
    return (c["recompute_modules"] == 0) | (not x.frozen)


def parameters_sharded(c: Columns, _x: Scenario) -> Mask:
    return (c["offload"] != EVERYTHING) | (c["zero_stage"] == 3)


def offloads_alike(c: Columns, _x: Scenario) -> Mask:
    return (c["offload"] != ACTIVATIONS) | (c["recompute"] != Recompute.PARTIAL)


def order_matters(c: Columns, _x: Scenario) -> Mask:
    return (c["rank_order"] == 0) | ((c["pp"] > 1) & (c["dp"] > 1))


def shards_anew(c: Columns, _x: Scenario) -> Mask:
    return c["sharding_degree"] != REPEATS


def shards_something(c: Columns, _x: Scenario) -> Mask:
    return (c["zero_stage"] == 0) == (c["sharding_degree"] == 1)


def shard_divides(c: Columns, _x: Scenario) -> Mask:
    return (c["dp"] * c["cp"]) % np.maximum(c["sharding_degree"], 1) == 0


def stack_shards(c: Columns, x: Scenario) -> Mask:
    return np.isin(c["zero_stage"], x.stack.supports.zero_stages)


def gradients_accumulate(c: Columns, x: Scenario) -> Mask:
    looped = (c["schedule"] != _code("1f1b")) & (c["schedule"] != _code("gpipe"))
    whole = x.stack.supports.zero3_in_pipelines & (c["zero_stage"] == SHARDED_PARAMETERS) & ~looped
    return (c["zero_stage"] < SHARDED_GRADIENTS) | (c["pp"] == 1) | (c["schedule"] == _code("breadth-first")) | whole


def _code(name: str) -> int:
    return SCHEDULE_NAMES.index(name)


def one_width(c: Columns, _x: Scenario) -> Mask:
    return c["ranks"] == c["widest"]


def batch_reaches(c: Columns, _x: Scenario) -> Mask:
    return c["batch_width"] % c["dp"] == 0


def groups_chunk_evenly(c: Columns, x: Scenario) -> Mask:
    return x.model.num_layers % c["vpp"] == 0


def groups_in_order(c: Columns, _x: Scenario) -> Mask:
    return c["rank_order"] == 0


def groups_in_turn(c: Columns, _x: Scenario) -> Mask:
    return ~fills(c) & (c["schedule"] != _code("breadth-first"))


def groups_keep_ends(c: Columns, _x: Scenario) -> Mask:
    return c["vocabulary"] == 0


def groups_keep_states(c: Columns, _x: Scenario) -> Mask:
    return c["offload"] == 0
