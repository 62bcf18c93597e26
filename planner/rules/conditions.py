"""The longer conditions of the feasibility rules: each answers which strategies pass.

``Columns`` are arrays that broadcast against each other, or the scalars of one strategy; a condition has the shape of
what it reads. Its name, sentence and source stand in ``planner.rules.core``, as do the conditions of one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from costmodels.layer.context import BOTH, RING, ULYSSES, near_ranks
from costmodels.layout.split import places_of_ends
from costmodels.model.mixers import Mixer, mixer_of
from costmodels.names import SCHEDULE_NAMES, SHARDED_GRADIENTS, SHARDED_PARAMETERS, VALUE_NAMES, Recompute
from costmodels.pipeline.schedules import FILLING, SCHEDULES
from costmodels.scenario import Scenario
from costmodels.step.offload import ACTIVATIONS
from costmodels.strategy import Ints

Columns = Mapping[str, NDArray[np.int64]]
Mask = NDArray[np.bool_]

HOST_OPTIMIZERS = ("adam", "adam-bf16", "lamb", "sgd", "adagrad", "lion")
"""Optimizers that step on CPUs (DeepSpeed has Adam, Adagrad and Lion); 8-bit states and orthogonalisation are of the
device."""
PLAIN = ("gpipe", "1f1b", "zb-1p", "zb-2p", "dualpipe")
"""Schedules of one chunk per stage."""
LOOPED = ("interleaved-1f1b", "breadth-first", "interleaved-groups", "interleaved-zb")
"""Schedules of two chunks per stage or more, which a micro-batch passes in a loop."""
FOLDED = ("zb-v", "v-half", "v-min", "dualpipe-v")
"""Schedules that place two chunks of a stage in a V."""
SEVERAL_PIECES = (*FOLDED, "dualpipe")
"""Schedules whose stages hold pieces of the model that lie apart and are not looped."""

REPEATS = 0
"""Sharding degree that stands for a group which another row already covers."""


def among(c: Columns, axis: str, names: Iterable[str]) -> Mask:
    """Whether the value of an axis is one of these names."""
    return np.asarray(_wanted(axis, tuple(names))[c[axis]])


@cache
def _wanted(axis: str, names: tuple[str, ...]) -> Mask:
    return np.array([name in names for name in VALUE_NAMES[axis]])


def micro_batches(c: Columns, global_batch_size: int) -> Ints:
    """Micro-batches of every replica in an iteration."""
    return np.asarray(global_batch_size // (c["micro_batch_size"] * c["dp"]))


def divides_groups(c: Columns, x: Scenario) -> Mask:
    groups = x.model.num_query_groups
    return (groups % c["tp"] == 0) | (c["tp"] % groups == 0)


def experts_in_order(c: Columns, x: Scenario) -> Mask:
    if x.model.moe is None:
        return np.ones(np.shape(c["rank_order"]), dtype=bool)
    together = c["ep"] * c["etp"] == c["tp"] * c["cp"]
    return (c["rank_order"] == 0) | (c["pp"] == 1) | together


def expert_width(c: Columns, x: Scenario) -> Mask:
    width = x.model.moe.expert_ffn_hidden_size if x.model.moe else 1
    return (c["etp"] == 1) | ((width % c["etp"] == 0) & (c["etp"] <= c["tp"]))


def heads_divide(c: Columns, x: Scenario) -> Mask:
    """Heads of every layer with attention, whose number may differ from layer to layer."""
    divided = c["tp"] > 0
    for kind in x.depth.kinds:
        if kind.attends:
            divided = divided & (x.model.with_sizes_of(kind.variant).num_heads % c["tp"] == 0)
    return divided


def mixers(x: Scenario) -> tuple[Mixer, ...]:
    """The model's mixers other than attention, each once."""
    names = dict.fromkeys(kind.other_mixer for kind in x.depth.kinds if kind.other_mixer)
    return tuple(mixer_of(x.model, name) for name in names)


def mixers_divide(c: Columns, x: Scenario) -> Mask:
    divided = c["tp"] > 0
    for mixer in mixers(x):
        divided = divided & (mixer.groups % c["tp"] == 0)
    return divided


def mixers_exchange(c: Columns, x: Scenario) -> Mask:
    shared = c["cp"] > 0
    for mixer in mixers(x):
        heads, groups = mixer.heads // c["tp"], np.maximum(mixer.groups // c["tp"], 1)
        shared = shared & (heads % c["cp"] == 0) & ((groups % c["cp"] == 0) | (c["cp"] % groups == 0))
    return shared


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


def has_stage(c: Columns, x: Scenario) -> Mask:
    stages = range(SHARDED_PARAMETERS + 1)
    return np.asarray(np.array([stage in x.stack.supports.zero_stages for stage in stages])[c["zero_stage"]])


def shards(c: Columns, x: Scenario) -> Mask:
    """Stage 0 shares states with nobody, other stages with somebody."""
    return ((c["zero_stage"] == 0) == (c["sharding_degree"] == 1)) | alone(c, x)


def alone(c: Columns, x: Scenario) -> Mask:
    """One GPU, on which DeepSpeed runs ZeRO to offload states."""
    one = c["tp"] * c["pp"] * np.maximum(c["sharding_degree"], 1) == 1
    return one & (x.gpus == 1) & x.stack.offload.gradients_offloaded


def order_shards(c: Columns, _x: Scenario) -> Mask:
    shards = np.maximum(c["sharding_degree"], 1)
    inner = np.gcd(shards // np.gcd(shards, c["cp"]), c["dp"])
    return ~among(c, "rank_order", ["tp-cp-ep-sharding-pp-dp"]) | ((inner > 1) & (inner < c["dp"]))


def ends_take_places(c: Columns, x: Scenario) -> Mask:
    """One of the two ends on a stage of its own, and layers that are recomputed all alike."""
    plain = (c["vocabulary"] == 0) & (c["recompute"] != Recompute.PARTIAL)
    back = among(c, "schedule", FOLDED)
    return (x.model.num_layers % c["vpp"] == 0) | (plain & ~back)


def places(c: Columns, x: Scenario) -> Ints:
    """Layers, with the embedding and the head where the stack lets them take a layer's place."""
    if not x.stack.supports.ends_as_layers:
        return np.full(np.shape(c["vpp"]), x.model.num_layers)
    return np.asarray(x.model.num_layers + sum(places_of_ends(x.model.num_layers, np.asarray(c["vpp"]))))


def ends_alone(x: Scenario) -> int:
    """Stages that may hold no layer, where layers go one a stage: those of the embedding and the head.

    A framework that balances layers counts both as layers then; where a plan says the cut, nobody asked for more stages
    than layers.
    """
    stack = x.stack.supports
    return 2 * (stack.stage_cut == "balanced" and stack.ends_as_layers)


def whole_groups(c: Columns, x: Scenario) -> Mask:
    batches = micro_batches(c, x.global_batch_size)
    return ~among(c, "schedule", ["interleaved-1f1b"]) | (batches % c["pp"] == 0)


def schedule_runs(c: Columns, _x: Scenario) -> Mask:
    pipelined, chunked = c["pp"] > 1, c["vpp"] > 1
    plain, chunks, fold = (among(c, "schedule", kind) for kind in (PLAIN, LOOPED, FOLDED))
    alone = among(c, "schedule", ["none"]) & ~chunked & ~pipelined
    return alone | (pipelined & ((plain & ~chunked) | (chunks & chunked) | (fold & (c["vpp"] == 2))))


def enough_batches(c: Columns, x: Scenario) -> Mask:
    batches = micro_batches(c, x.global_batch_size)
    passes = np.ones(np.broadcast_shapes(batches.shape, c["pp"].shape, c["schedule"].shape), dtype=bool)
    present, *_ = np.bincount(np.ravel(c["schedule"])).nonzero()
    for code in {*present.tolist()} - _ASKED_ELSEWHERE:
        allowed = SCHEDULES[SCHEDULE_NAMES[code]].allowed(c["pp"], batches, c["vpp"])
        passes = passes & ((c["schedule"] != code) | allowed)
    return passes


_ASKED_ELSEWHERE = {SCHEDULE_NAMES.index(name) for name in ("none", "interleaved-1f1b")}
"""Schedules of which `schedule_runs` and `whole_groups` say all that there is to say."""


def groups_differ(c: Columns, x: Scenario) -> Mask:
    batches = micro_batches(c, x.global_batch_size)
    same = among(c, "schedule", ["interleaved-groups"]) & (batches % c["pp"] == 0)
    return ~same | ("interleaved-1f1b" not in x.stack.supports.schedules)


def selective_saves(c: Columns, x: Scenario) -> Mask:
    saves = x.rates.attention is None or x.stack.switches.recompute_policy != "attention"
    return (c["recompute"] != Recompute.SELECTIVE) | (c["recompute_modules"] > 0) | saves


def partly_as_well(c: Columns, x: Scenario) -> Mask:
    """Not where layers could be recomputed one by one, and idle time does not depend on how many are."""
    alone = (c["offload"] == ACTIVATIONS) | (x.model.num_layers % c["vpp"] > 0)  # goes without PARTIAL
    return (c["recompute"] != Recompute.FULL) | alone | (c["recompute_num_layers"] > 1) | fills(c)


def fills(c: Columns) -> Mask:
    """Whether weight gradients fill the schedule's idle time, which then depends on what is recomputed."""
    return among(c, "schedule", FILLING)


def groups_are_full(c: Columns, _x: Scenario) -> Mask:
    whole = (c["recompute"] == Recompute.FULL) & (c["offload"] != ACTIVATIONS)
    return (c["recompute_num_layers"] == 1) | whole


def groups_divide(c: Columns, x: Scenario) -> Mask:
    stages = 1 if x.stack.supports.uneven_stages else c["pp"]
    each = c["vpp"] * c["recompute_num_layers"]
    divides = (x.model.num_layers % (stages * each) == 0) & (c["pp"] * each <= x.model.num_layers)
    return (c["recompute_num_layers"] == 1) | divides


def gradients_accumulate(c: Columns, x: Scenario) -> Mask:
    looped = ~among(c, "schedule", ("1f1b", "gpipe"))
    whole = x.stack.supports.zero3_in_pipelines & (c["zero_stage"] == SHARDED_PARAMETERS) & ~looped
    return (c["zero_stage"] < SHARDED_GRADIENTS) | (c["pp"] == 1) | among(c, "schedule", ["breadth-first"]) | whole
