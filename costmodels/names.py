"""Names and codes that strategies, stacks and schedules share, and the width of a value in training."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

RANK_ORDERS = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "tp-cp-ep-sharding-pp-dp")
"""Which dimension varies fastest over neighbouring ranks, inner to outer.

The first is Megatron's default, the second its ``--use-tp-pp-dp-mapping``. In the third the data ranks that share
their states lie inside the pipeline and whole replicas outside it, as in PaddlePaddle fleet and MaxText.
"""

SHARDING_INSIDE = 2
"""The code of the rank order that takes data parallelism apart."""

CP_KINDS = ("p2p", "a2a", "all-gather", "a2a+p2p")
"""How context-parallel ranks exchange what attention needs, by the code in the ``cp_kind`` column: keys and values
around a ring; all-to-alls that exchange tokens for heads; a gather of all keys and values; all-to-alls among near
ranks and a ring of such groups."""

SCHEDULE_NAMES = (
    *("none", "gpipe", "1f1b", "interleaved-1f1b", "zb-1p", "zb-2p", "zb-v", "v-half", "v-min"),
    *("dualpipe", "dualpipe-v", "breadth-first", "interleaved-groups", "interleaved-zb"),
)
"""Pipeline schedules by their code in the ``schedule`` column."""

MODULES = ("core_attn", "mlp", "layernorm", "moe", "moe_act", "mla_up_proj", "shared_experts")
"""What selective recomputation can name, by Megatron-Core's names (``--recompute-modules``)."""

OFFLOADS = ("none", "activations", "optimizer", "optimizer+parameters")
"""What lives in the memory of the host, by its code in the ``offload`` column."""

VOCABULARIES = ("ends", "spread")
"""Where embedding and head are: on the stages at the model's ends, or split over all stages [Yeung24]."""


class Recompute(IntEnum):
    """What the backward pass computes again instead of having stored it."""

    NONE = 0
    SELECTIVE = 1
    FULL = 2
    """Every layer whole."""
    PARTIAL = 3
    """Some layers whole: as many on each stage as memory asks for. Counts as FULL where stages are split evenly."""


VALUE_NAMES: Mapping[str, tuple[str, ...]] = {
    "cp_kind": CP_KINDS,
    "schedule": SCHEDULE_NAMES,
    "recompute": tuple(kind.name.lower() for kind in Recompute),
    "rank_order": RANK_ORDERS,
    "vocabulary": VOCABULARIES,
    "sequence_parallel": ("false", "true"),
    "offload": OFFLOADS,
}
"""Columns whose values are names; the code of a value is its place."""

WORD = 2.0
"""Bytes of one activation value in 16-bit training."""

SHARDED_GRADIENTS, SHARDED_PARAMETERS = 2, 3
"""ZeRO stages from which gradients, and parameters, are sharded."""
