"""Megatron-LM: a shell file with the variables and the arguments of ``pretrain_gpt.py``, as of Megatron-Core 0.19."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any, Final

from costmodels.pipeline.interleaving import group_size
from costmodels.stack.fields import SENT_ONCE
from planner.answer.plan import Strategy
from planner.errors import BadRequest
from planner.frameworks.conditions import BEFORE_AMPERE
from planner.jobs.job import Export, Job, groups_in_turn, looped_chunks, refuse, switches_of
from planner.jobs.launchers import shell
from planner.jobs.megatron.options import OPTIONS, PRECISIONS
from planner.jobs.megatron.write_model import model_values
from planner.jobs.megatron.write_stack import (
    Values,
    changed_values,
    shards_by_itself,
    stack_values,
    state_lacks,
    state_values,
)
from planner.jobs.models import model_constants
from planner.jobs.options import applicable

FILE: Final = "megatron-args.sh"
_BLACKWELL: Final = ("b200", "b300", "gb200", "gb300")
_WORTH_REPEATING: Final = 3
"""Chunks in a row from which a layout is shorter with a repetition."""
_OWN_ORDERS: Final = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
_OWN_SCHEDULES: Final = frozenset({"none", "1f1b", "interleaved-1f1b", "interleaved-groups"})


def megatron(job: Job, version: str) -> Export:
    """Arguments and variables of one rank, as of Megatron-Core 0.19."""
    strategy, request = job.strategy, job.plan.request
    refuse_lacks("megatron-lm", job)
    model, about_model = model_values(job.model, seq_length=job.seq_length)
    states, about_states = state_values(strategy, request)
    assumed, about_stack = stack_values(strategy, request)
    values = model | strategy_values(strategy, request)[0] | states | assumed | dropout_values(job)
    # Parts in graphs were called a scope until 0.18.
    values |= {"cuda_graph_modules": values.get("cuda_graph_scope")} if version >= "0.19" else {}
    looped = bool(job.model.moe) and job.architecture in BEFORE_AMPERE
    values |= {"moe_grouped_gemm": False} if looped else {}
    words = OPTIONS.words(values, version)
    script = "pretrain_mamba.py" if job.model.layer_pattern else "pretrain_gpt.py"
    environment = _environment(job)
    note = model_constants(job.model.name).get("releases")  # a plan does not know which of them is meant
    releases = (f"{job.model.name}: {note}",) if note else ()
    base = " (the default --rotary-base, 10000, is not that of most recent models)" if _base_unknown(job) else ""
    left_out = f"add your own options: {', '.join(_own_words(job))}{base}"
    own = job.vendor in {"", "NVIDIA", "AMD"}
    ported = f"Megatron-LM needs CUDA: {job.nodes[0].accelerator} needs the port of {job.vendor}"
    one_by_one = (
        f"{job.nodes[0].accelerator} has no kernels of grouped products: the experts of a rank run one after another. "
        "Grouped ones are priced, so the run takes longer"
    )
    about_job = (
        *(() if own else (ported,)),
        *((one_by_one,) if looped else ()),
        *groups_in_turn(job.nodes),
        *releases,
        left_out,
    )
    remarks = (*about_model, *about_states, *about_stack, *about_job)
    lines = [*shell.header(f"Megatron-LM, Megatron-Core {version}"), *shell.remarks(remarks)]
    how = [f'# source {FILE}; torchrun ... {script} "${{MEGATRON_ARGS[@]}}" {" ".join(_own_words(job))}']
    arguments = shell.array("MEGATRON_ARGS", words)
    return Export(
        files={FILE: shell.text([*lines, *how], shell.exports(environment), arguments)},
        program=(script, *words),
        environment=environment,
        remarks=remarks,
    )


def refuse_lacks(target: str, job: Job) -> None:
    """Refuse what no argument of Megatron-Core says."""
    lacks = (*strategy_lacks(job.strategy, job.plan.request), *state_lacks(job.strategy, job.plan.request))
    refuse(f"{target} cannot start this plan:", ((True, lack) for lack in lacks))


def dropout_values(job: Job) -> dict[str, str]:
    """Megatron-LM drops a tenth of attention's weights and of what a layer adds unless an option says otherwise."""
    return {} if job.switches.dropout else {"attention_dropout": "0.0", "hidden_dropout": "0.0"}


def _environment(job: Job) -> dict[str, str]:
    """Its parser refuses TP or CP without one connection before Blackwell, and both FSDPs with it."""
    strategy = job.strategy
    blackwell = all(part.accelerator.startswith(_BLACKWELL) for part in job.nodes)
    single = strategy.tp * strategy.cp > 1 and strategy.zero_stage <= 1 and not blackwell
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if single else {}


def _own_words(job: Job) -> list[str]:
    """Options that a plan knows no value of: none of them costs anything."""
    unknown = ["--rotary-base", "--norm-epsilon"] if _base_unknown(job) else []
    return [f"{name} ..." for name in ("--data-path", "--tokenizer-model", "--lr", "--train-iters", *unknown)]


def _base_unknown(job: Job) -> bool:
    """Whether a model turns its positions by a base that nobody said."""
    return job.model.position == "rotary" and not model_constants(job.model.name)


def strategy_values(strategy: Strategy, request: Mapping[str, Any]) -> Values:
    """A strategy by the fields of Megatron-LM's options, and remarks on what they cannot say.

    The request's model and stack say how experts are sent tokens.
    """
    model = _model(request)
    pattern, predicting = str(model.get("layer_pattern") or ""), int(model.get("mtp_layers") or 0)
    switches, grouped = switches_of(request), strategy.schedule == "interleaved-groups"
    capacity = switches.expert_capacity
    precision = str(request.get("precision") or "bf16")
    values = {
        **{axis: getattr(strategy, axis) for axis in ("tp", "pp", "micro_batch_size", "global_batch_size")},
        **(_context(strategy) if strategy.cp > 1 else {}),
        **(_experts(strategy, switches.dispatcher) if model.get("moe") or strategy.ep > 1 else {}),
        **({} if capacity is None else {"expert_capacity": capacity, "moe_pad_expert_input_to_capacity": True}),
        **(_pattern(strategy, pattern, predicting) if pattern else _pipeline(strategy, predicting)),
        "sequence_parallel": strategy.sequence_parallel,
        **PRECISIONS["fp8-current" if precision == "fp8-rowwise" else precision],
        **_sharding(strategy, by_itself=shards_by_itself(request)),
        **_recompute(strategy)[0],
        # Micro-batches that pass one chunk before the next, where Megatron's default, the stages, would not do.
        "chunk_group": int(group_size(strategy.pp, strategy.num_microbatches)) if grouped else None,
        "use_tp_pp_dp_mapping": strategy.rank_order == "tp-cp-ep-pp-dp",
        **changed_values(request),
    }
    hybrid = "a hybrid model is started by pretrain_hybrid.py; its pattern has the stages, a bar between two"
    return values, (*strategy_lacks(strategy, request), *((hybrid,) if pattern else ()), *_variables(strategy))


def strategy_lacks(strategy: Strategy, request: Mapping[str, Any]) -> tuple[str, ...]:
    """What of a strategy Megatron-LM's arguments cannot say."""
    whole_norms = bool(_model(request).get("moe")) and strategy.tp > 1 and not strategy.sequence_parallel
    runs = "interleaved 1F1B" if strategy.vpp > 1 else "1F1B"
    return applicable({
        "Megatron-LM trains experts under TP only with --sequence-parallel, which the plan leaves out": whole_norms,
        **dict.fromkeys(_recompute(strategy)[1], True),
        f"Megatron-LM has no {strategy.schedule} schedule; these arguments run {runs}": (
            strategy.schedule not in _OWN_SCHEDULES
        ),
        f"Megatron-LM has no rank order {strategy.rank_order}; these arguments run {_OWN_ORDERS[0]}": (
            strategy.rank_order not in _OWN_ORDERS
        ),
        "Megatron-LM keeps embedding and head at the ends; the zero-bubble fork has --enable-vocab-parallel": (
            strategy.vocabulary != "ends"
        ),
    })  # fmt: skip


def _model(request: Mapping[str, Any]) -> Mapping[str, Any]:
    given = request.get("model")
    return given if isinstance(given, Mapping) else {}


def _context(strategy: Strategy) -> dict[str, Any]:
    """Left out, the kind is p2p."""
    kind = strategy.cp_kind
    levels = (strategy.cp_near, strategy.cp // strategy.cp_near) if kind == "a2a+p2p" else None
    own = kind if kind != "p2p" else None
    return {"cp": strategy.cp, "cp_kind": own, "hierarchical_context_parallel_sizes": levels}


def _pattern(strategy: Strategy, pattern: str, mtp_layers: int) -> dict[str, Any]:
    """Megatron's hybrid pattern: a bar between chunks, chunk-major, a slash in front of what predicts further."""
    ends = list(accumulate(_chunks([stage.layers for stage in strategy.stages], strategy.vpp)))
    pieces = [pattern[start:end] for start, end in pairwise([0, *ends])]
    ahead = "/*E" if "E" in pattern else "/*-"
    return {"layer_pattern": "|".join(pieces) + ahead * mtp_layers}


def _experts(strategy: Strategy, dispatch: str) -> dict[str, Any]:
    """Left out, the expert tensor size is the tensor size, and the dispatcher gathers instead of exchanging."""
    ranks = {"ep": strategy.ep, "etp": strategy.etp}
    if dispatch not in SENT_ONCE:
        return {**ranks, "dispatch": dispatch}
    if strategy.ep * strategy.etp == 1:  # the flexible one asks for other ranks to send to
        return {**ranks, "dispatch": "alltoall"}
    return {**ranks, "dispatch": "deepep", "flex_backend": dispatch}


def _pipeline(strategy: Strategy, mtp_layers: int) -> dict[str, Any]:
    layers = [stage.layers for stage in strategy.stages]
    if len(set(layers)) == 1 and layers[0] % strategy.vpp == 0:
        return {"layers_per_chunk": layers[0] // strategy.vpp if strategy.vpp > 1 else None}
    # Chunk-major, E the embedding, t a layer, m a layer that predicts further, L the loss.
    chunks = [_times("t", held) for held in _chunks(layers, strategy.vpp)]
    chunks[0] = f"E{chunks[0]}"
    chunks[-1] += f"{_times('m', mtp_layers)}L"
    return {"layout": "|".join(_repeated(text, len(list(same))) for text, same in groupby(chunks))}


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


def _sharding(strategy: Strategy, *, by_itself: bool) -> dict[str, Any]:
    data_ranks = strategy.dp * strategy.cp
    # States on the host are the distributed optimizer's on one rank too, which copies as it would send.
    overlaps = data_ranks > 1 or strategy.offload.startswith("optimizer")
    values: dict[str, Any] = {"overlap_grad_reduce": overlaps}
    if strategy.zero_stage == 0 and data_ranks > 1:
        return values
    values["overlap_param_gather"] = overlaps
    if strategy.zero_stage == 0:
        return values
    if by_itself:
        return values
    values["use_distributed_optimizer"] = True
    if strategy.zero_stage > 1:
        values |= {"use_megatron_fsdp": True, "zero_stage": strategy.zero_stage, "ckpt_format": "fsdp_dtensor"}
    copies = data_ranks // max(strategy.sharding_degree, 1)
    return values | ({"copies": copies} if copies > 1 else {})


def _recompute(strategy: Strategy) -> Values:
    """Full recomputation of the first layers of every chunk; Megatron knows one number for all stages."""
    stages = strategy.stages
    planned = [stage.recompute_layers for stage in stages]
    if not any(planned):
        selective = strategy.recompute == "selective"
        named = {"recompute": "selective", "recompute_modules": strategy.recompute_modules or None}
        return (named if selective else {}), ()
    if all(stage.recompute_layers == stage.layers for stage in stages):
        together = strategy.recompute_num_layers
        return {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": together}, ()
    most = -(-max(planned) // strategy.vpp)
    values = {"recompute": "full", "recompute_method": "block", "recompute_num_layers": most}
    done = [min(most * strategy.vpp, stage.layers) for stage in stages]
    if done == planned:
        return values, ()
    held = sum(stage.layers for stage in stages)
    where = "chunk" if strategy.vpp > 1 else "stage"
    remark = (
        f"Megatron-LM has one number for all stages: --recompute-num-layers {most} recomputes {most} layers of every "
        f"{where}, {sum(done)} of {held} in all, where the plan recomputes {sum(planned)} "
        f"({','.join(map(str, planned))} per stage); no stage stores more layers than planned, but the iteration "
        f"is longer than predicted"
    )
    return values, (remark,)


def _variables(strategy: Strategy) -> tuple[str, ...]:
    """What its parser requires in addition to the arguments."""
    if strategy.zero_stage > 1:
        return ("Megatron-FSDP refuses CUDA_DEVICE_MAX_CONNECTIONS=1; leave the variable unset",)
    if strategy.tp * strategy.cp == 1:
        return ()
    return ("set CUDA_DEVICE_MAX_CONNECTIONS=1: before Blackwell, Megatron-LM refuses TP or CP without it",)
