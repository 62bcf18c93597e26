"""What strategies a framework offers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from costmodels.stack.fields import Offloads, RecomputeModules, Schedules, ZeroStages
from hardware.kernels import Record

CpKind = Literal["p2p", "a2a", "all-gather", "a2a+p2p"]
RankOrder = Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "tp-cp-ep-sharding-pp-dp"]


class Supports(Record):
    """What a strategy may choose under a framework."""

    zero_stages: ZeroStages = (0, 1)
    """Stages of ZeRO; 0 is plain data parallelism."""
    zero3_in_pipelines: bool = False
    """Stages of a pipeline shard parameters too (ZeRO stage 3): gathered for both passes of every micro-batch, and
    gradients scattered behind its backward pass [Paddle21]."""
    schedules: Schedules = ("none", "gpipe", "1f1b", "interleaved-1f1b")
    """Schedules of a pipeline."""
    uneven_stages: bool = False
    """Stages may hold different numbers of layers."""
    stage_cut: Literal["planned", "balanced"] = "planned"
    """Where uneven stages come from: the plan, or the framework, which spreads layers as evenly as they go, more of
    them on the first stages (DeepSpeed's ``partition_balanced`` over the layers of one type)."""
    empty_ends: bool = False
    """The first and the last stage may hold the embedding and the head alone, without a layer."""
    ends_as_layers: bool = False
    """The embedding may take a layer's place in the first chunk, the head in the last, for equal chunks [Megatron]."""
    vocabulary: Annotated[tuple[Literal["ends", "spread"], ...], Field(min_length=1)] = ("ends",)
    """Where embedding and head can be: at the ends of the model, or split over all stages [Yeung24]."""
    sequence_parallel: bool = True
    """Tensor ranks can share what lies between products by tokens."""
    cp_kinds: Annotated[tuple[CpKind, ...], Field(min_length=1)] = ("p2p",)
    """Forms of context parallelism, the usual one first."""
    rank_orders: Annotated[tuple[RankOrder, ...], Field(min_length=1)] = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
    """Orders of ranks that a launcher can ask for, the usual one first."""
    recompute_groups: bool = False
    """Layers that are recomputed can share one stored input, several at a time (Megatron's uniform method)."""
    recompute_modules: RecomputeModules = ()
    """Modules that selective recomputation can name, of ``costmodels.names.MODULES``."""
    offloads: Offloads = ()
    """What can be moved to the memory of the host, of ``costmodels.names.OFFLOADS``."""
