"""DeepSpeed's JSON as a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.given import AUTO, Asked, Given, flag, said, table, whole, word

_OFFLOADED: Final = {"offload_optimizer": "cpu_offload", "offload_param": "cpu_offload_param"}
"""Tables of what lives in the hosts' memory, and the older switch of each."""
_PLACES: Final = ("cpu", "none")
_STAGES: Final = 3
_BATCH: Final = "train_batch_size"
_MICRO: Final = "train_micro_batch_size_per_gpu"
_STEPS: Final = "gradient_accumulation_steps"
_OPTIMIZERS: Final = {
    "Adam": "adam",
    "AdamW": "adam",
    "FusedAdam": "adam",
    "DeepSpeedCPUAdam": "adam",
    "MuAdam": "adam",
    "MuAdamW": "adam",
    "Lamb": "lamb",
    "FusedLamb": "lamb",
    "SGD": "sgd",
    "MuSGD": "sgd",
    "Adafactor": "adafactor",
    "Muon": "muon",
}
_ADDED_UP: Final = {"fp32": "fp32", "float32": "fp32", "bf16": "bf16", "bfloat16": "bf16"}
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


def deepspeed_job(document: Mapping[str, Any]) -> Given:
    """The job of a DeepSpeed configuration; it knows neither model nor machines.

    Raises:
        BadRequest: it has no key of DeepSpeed, or a value that DeepSpeed would refuse or that is not priced.
    """
    if not {"zero_optimization", _BATCH, _MICRO} & set(document):
        raise BadRequest("no key of DeepSpeed in it, such as zero_optimization")
    document = Asked(document)
    zero, tensor = _zero(document), table(document, "tensor_parallel", such_as='{"autotp_size": 2}')
    tp = whole(tensor, "autotp_size", 0, least=0, within="tensor_parallel.") or 1
    cp = whole(document, "sequence_parallel_size", 1)
    sizes, remarks = _sizes(document, tp)
    precision, more = _precision(document)
    optimizer, assumed = _optimizer(document)
    states = table(zero, "offload_optimizer", such_as='{"device": "cpu"}')
    fields = said(
        global_batch_size=sizes.pop("batch", None),
        precision=precision,
        optimizer=optimizer,
        main_grads=_added_up(document),
        offload_fraction=states.get("ratio"),
    )
    pins = said(
        **sizes,
        dp=whole(document, "data_parallel_size"),
        zero_stage=_stage(zero),
        tp=tp,
        cp=cp,
        cp_kind="a2a" if cp > 1 else None,
        sequence_parallel="false",
        offload=_offload(zero),
    )
    unread = (*document.unread(_HARMLESS), *zero.unread(_OVERLAPPED, prefix="zero_optimization."))
    return Given(fields, pins, remarks=(*remarks, *more, *assumed, *unread))


def _zero(document: Mapping[str, Any]) -> Asked:
    """Its table; true and false are the older words for the stages 1 and 0."""
    found = document.get("zero_optimization")
    if isinstance(found, bool):
        return Asked({"stage": int(found)})
    return table(document, "zero_optimization", such_as='{"stage": 3}')


def _stage(zero: Mapping[str, Any]) -> int:
    stage: int = whole(zero, "stage", 0, least=0, within="zero_optimization.")
    if stage > _STAGES:
        raise BadRequest(f"zero_optimization.stage: {stage} does not exist; 0, 1, 2 and 3 do")
    return stage


def _offload(zero: Mapping[str, Any]) -> str:
    """What is kept in the hosts' memory."""
    states, parameters = (_on_host(zero, name, older) for name, older in _OFFLOADED.items())
    if parameters and _stage(zero) < _STAGES:
        raise BadRequest(f"zero_optimization.offload_param needs stage 3, the stage is {_stage(zero)}")
    if parameters and not states:
        raise BadRequest("zero_optimization.offload_param is priced beside offload_optimizer only; offload both")
    return "optimizer+parameters" if parameters else "optimizer" if states else "none"


def _on_host(zero: Mapping[str, Any], name: str, older: str) -> bool:
    at = table(zero, name, such_as='{"device": "cpu"}')
    where = f"zero_optimization.{name}."
    return word(at, "device", _PLACES, "none", within=where) == "cpu" or flag(zero, older, within="zero_optimization.")


def _sizes(document: Mapping[str, Any], tp: int) -> tuple[dict[str, Any], list[str]]:
    """Batch, micro-batch and steps; those that are left out follow as in DeepSpeed, once the ranks are known."""
    batch, micro, steps = (_size(document, name) for name in (_BATCH, _MICRO, _STEPS))
    told = [f"{name} is {AUTO}, which Hugging Face fills in; it counts as not given here"
            for name in (_BATCH, _MICRO, _STEPS) if document.get(name) == AUTO]  # fmt: skip
    if batch is None and micro is None:
        told.append(f"neither {_BATCH} nor {_MICRO} is given; the micro-batch is 1 and the batch the usual one")
        return {}, told
    if batch and micro and steps and tp > 1:
        told.append(f"{_BATCH} is not read beside AutoTP, whose ranks DeepSpeed counts as replicas; {_STEPS} is")
        batch = None
    if steps is None and (batch is None or micro is None):
        told.append(f"{_STEPS} is not given; 1 is priced, as DeepSpeed takes it")
        steps = 1
    return said(batch=batch, micro_batch_size=micro, steps=steps), told


def _size(document: Mapping[str, Any], name: str) -> int | None:
    found: int | None = None if document.get(name) == AUTO else whole(document, name)
    return found


def _precision(document: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The format that is switched on; of what Hugging Face switches, the first."""
    switched = {name: table(document, name, such_as='{"enabled": true}') for name in ("bf16", "fp16")}
    on = [name for name, at in switched.items() if at.get("enabled") != AUTO and flag(at, "enabled", within=f"{name}.")]
    if len(on) > 1:
        raise BadRequest("bf16 and fp16 are both enabled, which DeepSpeed refuses; enable one of them")
    auto = [name for name, at in switched.items() if at.get("enabled") == AUTO]
    if on:
        return on[0], []
    if not auto:
        return "fp32", ["neither bf16 nor fp16 is enabled; fp32 is priced, as DeepSpeed takes it"]
    return auto[0], [f"{auto[0]}.enabled is {AUTO}, which Hugging Face fills in; {auto[0]} is priced"]


def _optimizer(document: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    at = table(document, "optimizer", such_as='{"type": "AdamW"}')
    if at.get("type") is None:
        return None, ["no optimizer in it; Adam is priced, --optimizer says otherwise"]
    return _OPTIMIZERS[word(at, "type", _OPTIMIZERS, "Adam", within="optimizer.")], []


def _added_up(document: Mapping[str, Any]) -> str | None:
    at = table(document, "data_types", such_as='{"grad_accum_dtype": "fp32"}')
    found = word(at, "grad_accum_dtype", _ADDED_UP, "", within="data_types.")
    return _ADDED_UP[found] if found else None
