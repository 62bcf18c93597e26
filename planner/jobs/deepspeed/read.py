"""DeepSpeed's JSON as a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.deepspeed.options import OPTIONS
from planner.jobs.imported import ImportedJob
from planner.jobs.options import Document, present
from planner.jobs.reader import Context, DocumentReader, JobFile

AUTO: Final = "auto"
"""What Hugging Face fills in from its own arguments."""
_STAGES: Final = 3
_SIZES: Final = ("global_batch_size", "micro_batch_size", "steps")
_BATCH, _MICRO, _STEPS = (OPTIONS[field].word for field in _SIZES)
_HARMLESS: Final = (
    r"scheduler|gradient_clipping|steps_per_print|wall_clock_breakdown|tensorboard|wandb|csv_monitor|comet|"
    r"flops_profiler|comms_logger|zero_allow_untested_optimizer|dump_state|memory_breakdown|checkpoint|aio|"
    r"prescale_gradients|gradient_predivide_factor|zero_force_ds_cpu_optimizer|elasticity"
)
"""Keys of DeepSpeed that change no price."""
_OVERLAPPED: Final = (
    r".*bucket_size|.*bucket_elements|overlap_comm|contiguous_gradients|reduce_scatter|allgather_partitions|stage3_.*|"
    r"sub_group_size|round_robin_gradients|ignore_unused_parameters|elastic_checkpoint"
)
"""Keys of its ``zero_optimization`` that are priced as the stack has them."""


_KEYS: Final = frozenset({"zero_optimization", _BATCH, _MICRO})
_OF_MODEL: Final = ("num_layers", "num-layers", "pipe_parallel_size", "pipe-parallel-size")
"""What a file has of GPT-NeoX, which passes DeepSpeed's own keys on."""


def deepspeed_job(document: Mapping[str, Any]) -> ImportedJob:
    """The job of a DeepSpeed configuration; it knows neither model nor machines.

    Raises:
        BadRequest: it has no key of DeepSpeed, or a value that DeepSpeed would refuse or that is not priced.
    """
    if not _KEYS & set(document):
        raise BadRequest("no key of DeepSpeed in it, such as zero_optimization")
    at = Document(_with_stage(document), OPTIONS)
    stage, tp, cp = _stage(at), at("tp") or 1, at("cp")
    sizes, remarks = _batch(at, tp)
    precision, more = _precision(at)
    assumed = [] if at("optimizer") else ["no optimizer in it; Adam is priced, --optimizer says otherwise"]
    fields = present(
        global_batch_size=sizes.pop("global_batch_size", None),
        precision=precision,
        optimizer=at("optimizer"),
        main_grads=at("main_grads"),
        offload_fraction=at("offload_fraction"),
        changes={"stack.zero_hpz": True} if (at("second_shard") or 1) > 1 else None,
    )
    pins = present(
        **sizes,
        dp=at("dp"),
        zero_stage=stage,
        tp=tp,
        cp=cp,
        cp_kind="a2a" if cp > 1 else None,
        sequence_parallel="false",
        offload=_offload(at, stage),
    )
    unread = (*at.unread("", _HARMLESS), *at.unread("zero_optimization", _OVERLAPPED))
    return ImportedJob(fields, pins, remarks=(*remarks, *more, *assumed, *unread))


def _with_stage(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """True and false are the older words for the stages 1 and 0."""
    found = document.get("zero_optimization")
    return {**document, "zero_optimization": {"stage": int(found)}} if isinstance(found, bool) else document


def _stage(at: Document) -> int:
    stage: int = at("zero_stage")
    if stage > _STAGES:
        raise BadRequest(f"zero_optimization.stage: {stage} does not exist; 0, 1, 2 and 3 do")
    return stage


def _offload(at: Document, stage: int) -> str:
    """What is kept in the hosts' memory."""
    states, parameters = (at(name) or at(f"older_{name}") for name in ("states_on_host", "parameters_on_host"))
    if parameters and stage < _STAGES:
        raise BadRequest(f"zero_optimization.offload_param needs stage 3, the stage is {stage}")
    if parameters and not states:
        raise BadRequest("zero_optimization.offload_param is priced beside offload_optimizer only; offload both")
    return "optimizer+parameters" if parameters else "optimizer" if states else "none"


def _batch(at: Document, tp: int) -> tuple[dict[str, Any], list[str]]:
    """Batch, micro-batch and steps; those that are left out follow as in DeepSpeed, once the ranks are known."""
    auto = [field for field in _SIZES if at.raw(field) == AUTO]
    batch, micro, steps = (None if field in auto else at(field) for field in _SIZES)
    remarks = [f"{OPTIONS[field].word} is {AUTO}, which Hugging Face fills in; it counts as not given here"
            for field in auto]  # fmt: skip
    if batch is None and micro is None:
        remarks.append(f"neither {_BATCH} nor {_MICRO} is given; the micro-batch is 1 and the batch the usual one")
        return {}, remarks
    if batch and micro and steps and tp > 1:
        remarks.append(f"{_BATCH} is not read beside AutoTP, whose ranks DeepSpeed counts as replicas; {_STEPS} is")
        batch = None
    if steps is None and (batch is None or micro is None):
        remarks.append(f"{_STEPS} is not given; 1 is priced, as DeepSpeed takes it")
        steps = 1
    return present(global_batch_size=batch, micro_batch_size=micro, steps=steps), remarks


def _precision(at: Document) -> tuple[str, list[str]]:
    """The format that is switched on; of what Hugging Face switches, the first."""
    auto = [name for name in ("bf16", "fp16") if at.raw(name) == AUTO]
    on = [name for name in ("bf16", "fp16") if name not in auto and at(name)]
    if len(on) > 1:
        raise BadRequest("bf16 and fp16 are both enabled, which DeepSpeed refuses; enable one of them")
    if on:
        return on[0], []
    if not auto:
        return "fp32", ["neither bf16 nor fp16 is enabled; fp32 is priced, as DeepSpeed takes it"]
    return auto[0], [f"{auto[0]}.enabled is {AUTO}, which Hugging Face fills in; {auto[0]} is priced"]


def _recognises(file: JobFile) -> bool:
    keys = set(file.document or ())
    return bool(_KEYS & keys) and not keys.intersection(_OF_MODEL)


def _read(file: JobFile, _: Context) -> ImportedJob:
    return deepspeed_job(file.document or {})


READERS: Final = (DocumentReader("deepspeed", "a configuration of DeepSpeed", "deepspeed", _recognises, _read),)
