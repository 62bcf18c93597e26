"""DeepSpeed's JSON as a question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.deepspeed.options import ONE_BIT, OPTIONS
from planner.jobs.imported import ImportedJob
from planner.jobs.options import Document, applicable, present, typed
from planner.jobs.reader import Context, reader_of_tables
from planner.jobs.values import data, each_name, unpriced

AUTO: Final = "auto"
"""What Hugging Face fills in from its own arguments."""
OF_SCRIPT: Final = {
    "global_batch_size": "--global-batch-size says the batch, which the script has",
    "seq_length": "--seq-length says the length of sequences, which the script has",
}
"""What a file that only says how states are sharded leaves to the script."""
_STAGES: Final = 3
_SIZES: Final = ("global_batch_size", "micro_batch_size", "steps")
_BATCH, _MICRO, _STEPS = (OPTIONS[field].word for field in _SIZES)
_KEYS: Final = frozenset({"zero_optimization", _BATCH, _MICRO})
_OF_MODEL: Final = ("num_layers", "num-layers", "pipe_parallel_size", "pipe-parallel-size")
"""What a file has of GPT-NeoX, which passes DeepSpeed's own keys on."""


def deepspeed_job(document: Mapping[str, Any], *, of_script: bool = False) -> ImportedJob:
    """The job of a DeepSpeed configuration; it knows neither model nor machines.

    ``of_script``: the sizes of the batch are a script's, and what the file leaves open of them is not said.
    """
    if not _KEYS & set(document):
        raise BadRequest("it has no key of DeepSpeed, such as zero_optimization")
    if isinstance(switch := document.get("zero_optimization"), bool):  # the older words for the stages 1 and 0
        document = {**document, "zero_optimization": {"stage": int(switch)}}
    document = typed(document, OPTIONS, words=False)
    at = Document(document, OPTIONS)
    stage, tp, cp = at("zero_stage"), at("tp") or 1, at("cp")
    if stage > _STAGES:
        raise BadRequest(f"zero_optimization.stage: {stage} does not exist; 0, 1, 2 and 3 do")
    sizes, left_open = _batch(at, tp)
    assumed = [] if of_script else left_open
    precision, more = _precision(at)
    assumed += more
    if at.raw("reduce_bucket") == AUTO:
        assumed.append("zero_optimization.reduce_bucket_size is auto, the square of a layer's width; 5e8 is priced")
    if not at("optimizer"):
        assumed.append("no optimizer in the DeepSpeed configuration; Adam is priced, --optimizer changes it")
    batch, degree = sizes.pop("global_batch_size", None), at("sharding_degree")
    own = at.each("optimizer", "main_grads", "offload_fraction")
    changes = _changes(at, stage, precision) or None
    fields = present(global_batch_size=batch, precision=precision, **own, changes=changes)
    pins = present(
        **sizes,
        **at.each("dp", "zero_stage"),
        sharding_degree=degree if degree and degree > 0 else None,
        tp=tp,
        cp=cp,
        cp_kind="a2a" if cp > 1 else None,
        sequence_parallel="false",
        offload=_offload(at, stage),
    )
    said = data("deepspeed/words")
    effects = (
        *unpriced(document, each_name(said["unpriced"])),
        *_effects_of_values(at, stage),
        *at.left(said["harmless"]),
    )
    left = AUTO in (at.raw("bf16"), at.raw("fp16")) and not any(at.raw(one) is True for one in ("bf16", "fp16"))
    filled = frozenset({"precision"} if left else ())
    return ImportedJob(fields, pins, assumed=tuple(assumed), unpriced=effects, filled=filled)


def _changes(at: Document, stage: int, precision: str) -> dict[str, Any]:
    """Switches of the stack: what overlaps, the buffers of buckets, the nodes' own copies."""
    overlap = "stack.overlap_zero3" if stage == _STAGES else "stack.overlap_grad_reduce"
    bucket = None if at.raw("reduce_bucket") == AUTO else at("reduce_bucket")
    changes = {
        overlap: None if at.raw("overlap_comm") in (None, AUTO) else at("overlap_comm"),
        "stack.reduce_bucket_size": None if bucket is None else f"{bucket * (4 if precision == 'fp32' else 2)} B",
        "stack.zero_hpz": (at("second_shard") or 1) > 1 or None,
    }
    return {path: value for path, value in changes.items() if value is not None and stage}


def _effects_of_values(at: Document, stage: int) -> list[str]:
    """What values do that are not priced."""
    optimizer = str(at.table("optimizer").get("type") or "").lower()
    kinds = {
        name: at.table(f"zero_optimization.{name}").get("device") for name in ("offload_optimizer", "offload_param")
    }
    said = "is priced like host memory; a disk makes the step longer"
    on_disk = [name for name, kind in kinds.items() if str(kind or "").lower() == "nvme"]
    disks = [f"zero_optimization.{name}.device nvme {said}" for name in on_disk]
    effects = {
        f"optimizer.type {optimizer}: after a warm-up gradients are sent in one bit; this is not priced, so the "
        "iteration is shorter": optimizer in ONE_BIT,
        "zero_optimization.reduce_scatter false reduces whole gradients; this is not priced, so there is more "
        "communication": (at.raw("reduce_scatter") is False and 0 < stage < _STAGES),
        "activation_checkpointing says how the script recomputes, not whether it does; --recompute full says so": (
            bool(at.table("").get("activation_checkpointing"))
        ),
        "pipeline: the script sets the stages; --pp gives their number": bool(at.table("").get("pipeline")),
    }
    return [*disks, *applicable(effects)]


def _offload(at: Document, stage: int) -> str:
    """What is kept in the hosts' memory."""
    states, parameters = (at(name) or at(f"older_{name}") for name in ("states_on_host", "parameters_on_host"))
    if parameters and stage < _STAGES:
        raise BadRequest(f"zero_optimization.offload_param needs stage 3, the stage is {stage}")
    if parameters and not states:
        raise BadRequest("zero_optimization.offload_param is priced only together with offload_optimizer; offload both")
    return "optimizer+parameters" if parameters else "optimizer" if states else "none"


def _batch(at: Document, tp: int) -> tuple[dict[str, Any], list[str]]:
    """Batch, micro-batch and steps; those that are left out follow as in DeepSpeed, once the ranks are known."""
    auto = [field for field in _SIZES if at.raw(field) == AUTO]
    batch, micro, steps = (None if field in auto else at(field) for field in _SIZES)
    left = f"is {AUTO}, which Hugging Face fills in; here it counts as not given"
    remarks = [f"{OPTIONS[field].word} {left}" for field in auto]
    if batch is None and micro is None:
        return present(steps=steps), remarks
    if batch and micro and steps and tp > 1:
        remarks.append(f"{_BATCH} is not read with AutoTP, whose ranks DeepSpeed counts as replicas; {_STEPS} is read")
        batch = None
    if steps is None and (batch is None or micro is None):
        remarks.append(f"{_STEPS} is not given; 1 is priced, DeepSpeed's default")
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
        return "fp32", ["neither bf16 nor fp16 is enabled; fp32 is priced, DeepSpeed's default"]
    return auto[0], [f"{auto[0]}.enabled is {AUTO}, which Hugging Face fills in; {auto[0]} is priced"]


def _read(document: Mapping[str, Any], _: Context) -> ImportedJob:
    found = deepspeed_job(document)
    sized = {"global_batch_size", "micro_batch_size"} & {*found.fields, *found.pins}
    return found if sized else replace(found, unsaid=OF_SCRIPT)


READERS: Final = (
    reader_of_tables(
        "deepspeed", "a configuration of DeepSpeed", "deepspeed",
        lambda document: bool(_KEYS & document.keys()) and not document.keys() & set(_OF_MODEL), _read,
    ),
)  # fmt: skip
