"""Megatron-LM: a shell file with the variables and the arguments of ``pretrain_gpt.py``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from planner.jobs.changed import dispatch_of
from planner.jobs.job import Export, Job, refuse
from planner.jobs.launchers import shell
from planner.jobs.megatron.write_model import model_arguments
from planner.jobs.megatron.write_savers import chosen_of, saver_arguments, savers_unsaid, shards_by_itself
from planner.jobs.megatron.write_stack import stack_arguments
from planner.jobs.megatron.write_words import megatron_arguments, unsaid

FILE: Final = "megatron-args.sh"
_BLACKWELL: Final = ("b200", "b300", "gb200", "gb300")


def megatron(job: Job, version: str) -> Export:
    """Arguments and variables of one rank, as of Megatron-Core 0.17.

    Raises:
        Inexpressible: Megatron-LM lacks a part of the plan.
    """
    strategy, moe = job.strategy, job.model.moe
    lacks = (*unsaid(strategy, experts=moe is not None), *savers_unsaid(strategy, job.plan.request))
    refuse("megatron-lm cannot start this plan:", ((True, lack) for lack in lacks))
    sizes, about = model_arguments(job.model, seq_length=job.seq_length)
    words, _ = megatron_arguments(
        strategy,
        precision=job.precision,
        experts=moe is not None,
        mtp_layers=job.model.mtp_layers,
        layer_pattern=job.model.layer_pattern,
        expert_capacity=chosen_of(job.plan.request, "expert_capacity"),
        dispatch=dispatch_of(job.plan.request),
        by_itself=shards_by_itself(job.plan.request),
    )
    more, narrow = saver_arguments(strategy, job.plan.request)
    assumed, beside = stack_arguments(strategy, job.plan.request)
    more = [*more, *assumed, *_dropout(job)]
    script = "pretrain_mamba.py" if job.model.layer_pattern else "pretrain_gpt.py"
    environment = dict(_environment(job))
    remarks = (*about, *narrow, *beside, *_ported(job), *_in_turn(job), _left_out(job))
    lines = [*shell.header(f"Megatron-LM, Megatron-Core {version}"), *shell.remarks(remarks)]
    how = [f'# source {FILE}; torchrun ... {script} "${{MEGATRON_ARGS[@]}}" {" ".join(_own_words(job))}']
    arguments = shell.array("MEGATRON_ARGS", [*sizes, *words, *more])
    return Export(
        files={FILE: shell.text([*lines, *how], shell.exports(environment), arguments)},
        program=(script, *sizes, *words, *more),
        environment=environment,
        remarks=remarks,
    )


def _environment(job: Job) -> Iterator[tuple[str, str]]:
    """Its parser refuses TP or CP without one connection before Blackwell, and both FSDPs with it."""
    strategy = job.strategy
    blackwell = all(part.accelerator.startswith(_BLACKWELL) for part in job.nodes)
    if strategy.tp * strategy.cp > 1 and strategy.zero_stage <= 1 and not blackwell:
        yield "CUDA_DEVICE_MAX_CONNECTIONS", "1"


def _dropout(job: Job) -> list[str]:
    """Megatron-LM drops a tenth of attention's weights and of what a layer adds unless it is told otherwise."""
    dropped = job.priced is not None and job.priced.switches.dropout
    return [] if dropped else ["--attention-dropout", "0.0", "--hidden-dropout", "0.0"]


def _ported(job: Job) -> tuple[str, ...]:
    if job.vendor in {"", "NVIDIA", "AMD"}:
        return ()
    return (f"Megatron-LM asks for CUDA: {job.nodes[0].accelerator} wants the port of {job.vendor}",)


def _own_words(job: Job) -> list[str]:
    """Options that a plan knows no value of: none of them costs anything."""
    names = ["--data-path", "--lr", *(["--rotary-base"] if job.model.position == "rotary" else [])]
    return [f"{name} ..." for name in names]


def _left_out(job: Job) -> str:
    base = "; Megatron-LM's own base is 10000, which few models of today have" if job.model.position == "rotary" else ""
    return f"add what is the run's own: {', '.join(_own_words(job))}{base}"


def _in_turn(job: Job) -> tuple[str, ...]:
    if len(job.nodes) < 2:
        return ()
    return (f"rank nodes by node group, in the order of the pipeline: {', then '.join(n.group for n in job.nodes)}",)
