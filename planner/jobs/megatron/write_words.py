"""A strategy as arguments of Megatron-LM's ``pretrain_gpt.py``, as of Megatron-Core 0.17."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Final

from costmodels.pipeline.interleaving import group_size
from planner.answer.plan import Strategy
from planner.errors import BadRequest
from planner.jobs.megatron.chunks import looped_chunks

Arguments = tuple[list[str], tuple[str, ...]]
"""Words of a command line, and remarks on what they cannot say."""

_PARAMETERS: Final = 3
"""The ZeRO stage that shards the parameters too."""
_WORTH_REPEATING: Final = 3
"""Chunks in a row from which a layout is shorter with a repetition."""
_OWN_ORDERS: Final = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
_OWN_SCHEDULES: Final = frozenset({"none", "1f1b", "interleaved-1f1b", "interleaved-groups"})

_PRECISIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "fp32": (),
    "fp16": ("--fp16",),
    "bf16": ("--bf16",),
    "fp8": ("--bf16", "--fp8-format", "hybrid"),
    "fp8-current": ("--bf16", "--fp8-format", "hybrid", "--fp8-recipe", "tensorwise"),
    "fp8-block": ("--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "blockwise"),
    "fp8-rowwise": ("--bf16", "--fp8-format", "hybrid", "--fp8-recipe", "tensorwise"),
    "mxfp8": ("--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "mxfp8"),
    "nvfp4": ("--bf16", "--fp4-format", "e2m1"),
}
"""Megatron-LM trains in fp32 unless told otherwise; the narrow formats come on top of bf16."""


def megatron_arguments(
    strategy: Strategy,
    *,
    precision: str = "bf16",
    experts: bool = False,
    mtp_layers: int = 0,
    layer_pattern: str = "",
    expert_capacity: float | None = None,
    dispatch: str = "alltoall",
    by_itself: bool = False,
) -> Arguments:
    """Megatron-LM arguments of a strategy, and remarks on what they cannot say.

    Args:
        strategy: degrees, switches and stages.
        precision: number format of the matrix products, one of ``costmodels.stack.stack.PRECISIONS``.
        experts: whether the model has mixture-of-experts layers.
        mtp_layers: multi-token-prediction layers, all on the last stage.
        layer_pattern: a hybrid model's layers, one letter each; stages are then written into the pattern.
        expert_capacity: tokens that every expert computes over the mean; None drops none.
        dispatch: how the stack sends tokens to experts, as in ``costmodels.stack.stack.Stack``.
        by_itself: whether the optimizer shares its states out itself (``megatron_savers.shards_by_itself``).

    Raises:
        BadRequest: the split of layers over stages and chunks cannot be written as a pipeline layout.
    """
    recompute, remarks = _recompute(strategy)[0], tuple[str, ...]()
    words = [
        *("--tensor-model-parallel-size", str(strategy.tp)),
        *("--pipeline-model-parallel-size", str(strategy.pp)),
        *(_context(strategy) if strategy.cp > 1 else ()),
        *(_experts(strategy, dispatch) if experts or strategy.ep > 1 else ()),
        *(_capacity(expert_capacity) if expert_capacity is not None else ()),
        *(_pattern(strategy, layer_pattern, mtp_layers) if layer_pattern else _pipeline(strategy, mtp_layers)),
        *(("--sequence-parallel",) if strategy.sequence_parallel else ()),
        *("--micro-batch-size", str(strategy.micro_batch_size)),
        *("--global-batch-size", str(strategy.global_batch_size)),
        *_PRECISIONS[precision],
        *_sharding(strategy, by_itself=by_itself),
        *recompute,
        *_groups(strategy),
        *(("--use-tp-pp-dp-mapping",) if strategy.rank_order == "tp-cp-ep-pp-dp" else ()),
    ]
    if layer_pattern:
        remarks += ("a hybrid model is started by pretrain_hybrid.py; its pattern has the stages, a bar between two",)
    return words, (*unsaid(strategy, experts=experts), *remarks, *_environment(strategy))


def unsaid(strategy: Strategy, *, experts: bool = False) -> tuple[str, ...]:
    """What of a strategy these arguments cannot say."""
    alone = experts and strategy.tp > 1 and not strategy.sequence_parallel
    why = "Megatron-LM trains experts under TP only with --sequence-parallel, which the plan leaves out"
    of_stages = (*_recompute(strategy)[1], *_schedule(strategy), *_order(strategy), *_vocabulary(strategy))
    return (*((why,) if alone else ()), *of_stages)


def _context(strategy: Strategy) -> list[str]:
    """Left out, the kind is p2p; Transformer Engine spells the gather with an underscore."""
    kind = strategy.cp_kind
    sizes = (str(strategy.cp_near), str(strategy.cp // strategy.cp_near))
    return [
        *("--context-parallel-size", str(strategy.cp)),
        *(("--cp-comm-type", kind.replace("-", "_")) if kind != "p2p" else ()),
        *(("--hierarchical-context-parallel-sizes", *sizes) if kind == "a2a+p2p" else ()),
    ]


def _pattern(strategy: Strategy, pattern: str, mtp_layers: int) -> list[str]:
    """Megatron's hybrid pattern: a bar between chunks, chunk-major, a slash in front of what predicts further."""
    ends = list(accumulate(_chunks([stage.layers for stage in strategy.stages], strategy.vpp)))
    pieces = [pattern[start:end] for start, end in pairwise([0, *ends])]
    ahead = "/*E" if "E" in pattern else "/*-"
    return ["--hybrid-layer-pattern", "|".join(pieces) + ahead * mtp_layers]


_DISPATCHERS: Final[Mapping[str, tuple[str, ...]]] = {
    "allgather": ("allgather",),
    "alltoall": ("alltoall",),
    "deepep": ("flex", "--moe-flex-dispatcher-backend", "deepep"),
    "hybridep": ("flex", "--moe-flex-dispatcher-backend", "deepep"),  # priced apart, written alike
}


def _experts(strategy: Strategy, dispatch: str) -> list[str]:
    """Left out, the expert tensor size is the tensor size, and the dispatcher gathers instead of exchanging."""
    return [
        *("--expert-model-parallel-size", str(strategy.ep)),
        *("--expert-tensor-parallel-size", str(strategy.etp)),
        *(("--moe-token-dispatcher-type", *_DISPATCHERS[dispatch]) if strategy.ep > 1 else ()),
    ]


def _capacity(factor: float) -> list[str]:
    return ["--moe-expert-capacity-factor", f"{factor:g}", "--moe-pad-expert-input-to-capacity"]


def _pipeline(strategy: Strategy, mtp_layers: int) -> list[str]:
    layers = [stage.layers for stage in strategy.stages]
    if len(set(layers)) == 1 and layers[0] % strategy.vpp == 0:
        per_chunk = str(layers[0] // strategy.vpp)
        return ["--num-layers-per-virtual-pipeline-stage", per_chunk] if strategy.vpp > 1 else []
    return ["--pipeline-model-parallel-layout", _layout(layers, strategy.vpp, mtp_layers)]


def _groups(strategy: Strategy) -> list[str]:
    """Micro-batches that pass one chunk before the next, where Megatron's default of p would not do."""
    if strategy.schedule != "interleaved-groups":
        return []
    size = int(group_size(strategy.pp, strategy.num_microbatches))
    return ["--microbatch-group-size-per-virtual-pipeline-stage", str(size)]


def _layout(layers: Sequence[int], vpp: int, mtp_layers: int) -> str:
    """Megatron's layout: chunk-major, E the embedding, t a layer, m a layer that predicts further, L the loss."""
    chunks = [_times("t", held) for held in _chunks(layers, vpp)]
    chunks[0] = f"E{chunks[0]}"
    chunks[-1] += f"{_times('m', mtp_layers)}L"
    return "|".join(_repeated(text, len(list(same))) for text, same in groupby(chunks))


def _chunks(layers: Sequence[int], vpp: int) -> list[int]:
    try:
        return looped_chunks(layers, vpp)
    except ValueError as reason:
        raise BadRequest(f"Megatron-LM arguments cannot say how {reason}; --format json holds the stages") from None


def _times(letter: str, count: int) -> str:
    return f"{letter}*{count}" if count > 1 else letter * count


def _repeated(chunk: str, count: int) -> str:
    if not chunk or count < _WORTH_REPEATING:
        return "|".join([chunk] * count)
    return f"({chunk}|)*{count - 1}{chunk}"


def _sharding(strategy: Strategy, *, by_itself: bool) -> list[str]:
    data_ranks = strategy.dp * strategy.cp
    words = ["--overlap-grad-reduce"] if data_ranks > 1 else []
    if strategy.zero_stage == 0:
        return words
    gathers = ["--overlap-param-gather"] if data_ranks > 1 else []
    if by_itself:
        return [*words, *gathers]
    words = ["--use-distributed-optimizer", *words, *gathers]
    if strategy.zero_stage > 1:
        shared = "optim_grads" if strategy.zero_stage < _PARAMETERS else "optim_grads_params"
        words += ["--use-megatron-fsdp", "--data-parallel-sharding-strategy", shared, "--ckpt-format", "fsdp_dtensor"]
    copies = data_ranks // max(strategy.sharding_degree, 1)
    return words + (["--num-distributed-optimizer-instances", str(copies)] if copies > 1 else [])


def _recompute(strategy: Strategy) -> Arguments:
    """Full recomputation of the first layers of every chunk; Megatron knows one number for all stages."""
    stages = strategy.stages
    planned = [stage.recompute_layers for stage in stages]
    if not any(planned):
        selective = strategy.recompute == "selective"
        named = ["--recompute-modules", *strategy.recompute_modules] if strategy.recompute_modules else []
        return (["--recompute-granularity", "selective", *named] if selective else []), ()
    if all(stage.recompute_layers == stage.layers for stage in stages):
        uniform = ["--recompute-granularity", "full", "--recompute-method", "uniform"]
        return [*uniform, "--recompute-num-layers", str(strategy.recompute_num_layers)], ()
    most = -(-max(planned) // strategy.vpp)
    words = ["--recompute-granularity", "full", "--recompute-method", "block", "--recompute-num-layers", str(most)]
    done = [min(most * strategy.vpp, stage.layers) for stage in stages]
    if done == planned:
        return words, ()
    held = sum(stage.layers for stage in stages)
    where = "chunk" if strategy.vpp > 1 else "stage"
    remark = (
        f"Megatron-LM has one number for all stages: --recompute-num-layers {most} recomputes {most} layers of every "
        f"{where}, {sum(done)} of {held} in all, where the plan recomputes {sum(planned)} "
        f"({','.join(map(str, planned))} per stage); no stage stores more layers than planned, but the iteration "
        f"is longer than predicted"
    )
    return words, (remark,)


def _schedule(strategy: Strategy) -> tuple[str, ...]:
    if strategy.schedule in _OWN_SCHEDULES:
        return ()
    runs = "interleaved 1F1B" if strategy.vpp > 1 else "1F1B"
    return (f"Megatron-LM has no {strategy.schedule} schedule; these arguments run {runs}",)


def _order(strategy: Strategy) -> tuple[str, ...]:
    if strategy.rank_order in _OWN_ORDERS:
        return ()
    return (f"Megatron-LM has no rank order {strategy.rank_order}; these arguments run {_OWN_ORDERS[0]}",)


def _vocabulary(strategy: Strategy) -> tuple[str, ...]:
    if strategy.vocabulary == "ends":
        return ()
    return ("Megatron-LM keeps embedding and head at the ends; the zero-bubble fork has --enable-vocab-parallel",)


def _environment(strategy: Strategy) -> tuple[str, ...]:
    """What its parser insists on beside the arguments."""
    if strategy.zero_stage > 1:
        return ("Megatron-FSDP refuses CUDA_DEVICE_MAX_CONNECTIONS=1; leave the variable unset",)
    if strategy.tp * strategy.cp == 1:
        return ()
    return ("set CUDA_DEVICE_MAX_CONNECTIONS=1: before Blackwell, Megatron-LM refuses TP or CP without it",)
