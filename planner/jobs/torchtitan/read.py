"""torchtitan's TOML as a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hardware.errors import meant
from planner.answer.text import plural
from planner.errors import BadRequest
from planner.jobs.fields import flag, table, whole, word
from planner.jobs.given import Asked, Given, Length, said
from planner.jobs.torchtitan.read_precision import precision
from planner.jobs.torchtitan.write_words import PARAMETERS, SCHEDULES

_MODELS: Final = {
    ("llama3", "8B"): "llama3-8b",
    ("llama3", "70B"): "llama3-70b",
    ("llama3", "405B"): "llama3.1-405b",
    ("deepseek_v3", "671B"): "deepseek-v3",
}
_ROTATIONS: Final = {"allgather": "all-gather", "alltoall": "p2p"}
_SHARDED: Final = 2
_ONE_CHUNK: Final = ("gpipe", "1f1b")
_FOLDED: Final = ("zb-v", "dualpipe-v")
_BATCH, _LENGTH = 8, 2048
"""Sequences of a local batch and tokens of a sequence where nothing is said (job_config.py)."""
_OF_RUN: Final = r"dataset.*|max_norm|gc_.*|deterministic|seed|debug.*|disable_loss_parallel"
"""Keys of torchtitan's ``training`` and ``parallelism`` that change no price."""


class _Ranks(NamedTuple):
    """Data-parallel ranks: groups that hold copies, ranks that share one (None: all that are left), pins."""

    replicas: int
    shard: int | None
    pins: dict[str, Any]


def torchtitan_job(document: Mapping[str, Any]) -> Given:
    """The job of a torchtitan TOML, as of 0.2.

    Raises:
        BadRequest: it has no table of torchtitan, or a value that torchtitan would refuse or that is not priced.
    """
    if not {"parallelism", "training"} & set(document):
        raise BadRequest("no table of torchtitan in it, such as [parallelism]")
    training = table(document, "training", such_as="local_batch_size = 8")
    parallel = table(document, "parallelism", such_as="tensor_parallel_degree = 2")
    again = table(document, "activation_checkpoint", such_as='mode = "full"')
    model = table(document, "model", such_as='flavor = "8B"')
    cp, pp, ep = (_degree(parallel, name) for name in ("context", "pipeline", "expert"))
    ranks = _ranks(parallel, cp=cp, pp=pp)
    pipeline, layers, told = _pipeline(parallel, pp)
    sizes, batch, more = _sizes(training, parallel, pp, ranks)
    narrow, gathered, quantised = precision(document, model, training, ep)
    rotation = word(parallel, "context_parallel_rotate_method", _ROTATIONS, "allgather", within="parallelism.")
    etp = _degree(parallel, "expert_tensor")
    pins = said(
        tp=_degree(parallel, "tensor"),
        cp=cp,
        pp=pp,
        ep=ep,
        etp=etp if ep > 1 else 1,
        **pipeline,
        **sizes,
        **ranks.pins,
        cp_kind=_ROTATIONS[rotation] if cp > 1 else None,
        recompute=word(again, "mode", ("none", "selective", "full"), "selective", within="activation_checkpoint."),
        offload="optimizer+parameters" if flag(training, "enable_cpu_offload", within="training.") else "none",
    )
    fields = said(
        model=_MODELS.get((str(model.get("name")), str(model.get("flavor")))),
        global_batch_size=batch,
        seq_length=whole(training, "seq_len", _LENGTH, within="training."),
        precision=narrow,
        fp8_param_gather=gathered or None,
    )
    remarks = (*told, *more, *quantised, *_assumed(document, training, parallel, again))
    length = _length(training)
    unread = (*training.unread(_OF_RUN, prefix="training."), *parallel.unread(_OF_RUN, prefix="parallelism."))
    return Given(fields, pins, layers, remarks=(*remarks, *unread), length=length, lacks=_unknown(model))


def _unknown(model: Mapping[str, Any]) -> str:
    """That a model or its flavor is not known here; nothing where it is, or none is named."""
    name, flavor = str(model.get("name", "")), str(model.get("flavor", ""))
    flavors = [size for known, size in _MODELS if known == name]
    if not flavor or flavor in flavors:
        return ""
    if not flavors:
        every = ", ".join(" ".join(known) for known in _MODELS)
        return f"model {name!r:.40} is not known here; {every} are; --model says any other"
    near = meant(flavor, flavors, otherwise=f"{', '.join(flavors)} are;")
    return f"flavor {flavor!r:.40} of {name} is not known here; {near} --model says any other"


def _length(training: Mapping[str, Any]) -> Length | None:
    """How many iterations it runs, where it says so: its own 10,000 are of a trial."""
    steps = whole(training, "steps", within="training.")
    return Length(steps, "iterations", "training.steps") if steps else None


def _degree(parallel: Mapping[str, Any], name: str) -> int:
    found: int = whole(parallel, f"{name}_parallel_degree", 1, within="parallelism.")
    return found


def _ranks(parallel: Mapping[str, Any], *, cp: int, pp: int) -> _Ranks:
    """Data-parallel ranks and what they share: context ranks always do."""
    replicas = whole(parallel, "data_parallel_replicate_degree", 1, within="parallelism.")
    shard = whole(parallel, "data_parallel_shard_degree", -1, least=-1, within="parallelism.")
    if shard == 0:
        raise BadRequest("parallelism.data_parallel_shard_degree: 0 does not exist; -1 is all ranks that are left")
    kept = word(
        parallel, "fsdp_reshard_after_forward", ("default", "always", "never"), "default", within="parallelism."
    )
    zero = PARAMETERS if kept == "always" or (kept == "default" and pp == 1) else _SHARDED
    if shard < 0:
        return _Ranks(replicas, None, {"zero_stage": zero, "copies": replicas})
    sharded = {"zero_stage": zero, "sharding_degree": shard * cp} if shard * cp > 1 else {"zero_stage": 0}
    return _Ranks(replicas, shard, {"dp": replicas * shard, **sharded})


def _pipeline(parallel: Mapping[str, Any], pp: int) -> tuple[dict[str, Any], tuple[int, ...] | None, list[str]]:
    """Schedule and chunks, the layers of every stage where modules are named, and remarks."""
    theirs = word(parallel, "pipeline_parallel_schedule", SCHEDULES.values(), "1F1B", within="parallelism.")
    ours = next(name for name, spelled in SCHEDULES.items() if spelled == theirs)
    parts = _parts(parallel, pp)
    if pp == 1:
        return {"schedule": "none"}, None, []
    if parts is None:
        vpp = 1 if ours in _ONE_CHUNK else 2
        words = f"parallelism.module_fqns_per_model_part is not given; priced are stages of {plural(vpp, 'chunk')}"
        return {"schedule": ours, "vpp": vpp}, None, [f"{words}, split as a search does"]
    pins = {"schedule": ours, "vpp": len(parts) // pp}
    return pins, None if ours in _FOLDED else _layers(parts, pp), []


def _parts(parallel: Mapping[str, Any], pp: int) -> list[list[str]] | None:
    """Modules of every chunk, where they are named."""
    name = "parallelism.module_fqns_per_model_part"
    parts = parallel.get("module_fqns_per_model_part")
    if not parts:
        return None
    if not (isinstance(parts, list) and all(isinstance(part, list) for part in parts)):
        raise BadRequest(f'{name}: expected lists such as [["tok_embeddings", "layers.0"], ...], got {parts!r:.40}')
    if len(parts) % pp:
        raise BadRequest(f"{name} has {len(parts)} parts for {pp} stages; a multiple of {pp} works")
    return parts


def _layers(parts: list[list[str]], pp: int) -> tuple[int, ...]:
    held = [sum(str(name).startswith("layers.") for name in part) for part in parts]
    return tuple(sum(held[stage::pp]) for stage in range(pp))


def _sizes(
    training: Mapping[str, Any], parallel: Mapping[str, Any], pp: int, ranks: _Ranks
) -> tuple[dict[str, Any], int | None, list[str]]:
    """Micro-batch and how often a rank takes one, the global batch where it is given, and remarks.

    A pipeline's micro-batches are cut out of the local batch; without a global batch every rank takes one local batch.
    """
    local = whole(training, "local_batch_size", _BATCH, within="training.")
    micro = whole(parallel, "pipeline_parallel_microbatch_size", 1, within="parallelism.") if pp > 1 else local
    if local % micro:
        raise BadRequest(f"micro-batches of {micro} sequences do not divide training.local_batch_size {local}")
    batch = whole(training, "global_batch_size", -1, least=-1, within="training.")
    told = [] if "local_batch_size" in training else [f"training.local_batch_size is not given; {_BATCH} is priced"]
    if batch < 0:
        told.append("training.global_batch_size is not given; one local batch of every data-parallel rank is priced")
        return {"micro_batch_size": micro, "steps": local // micro}, None, told
    if batch == 0:
        raise BadRequest("training.global_batch_size: 0 does not exist; -1 is one local batch of every rank")
    if pp > 1 and ranks.shard and batch > local * ranks.replicas * ranks.shard:
        told.append("every local batch fills and drains the pipeline by itself; all are priced as one pipeline")
    return {"micro_batch_size": micro, "local": local}, batch, told


def _assumed(document: Mapping[str, Any], training: Asked, parallel: Asked, again: Asked) -> list[str]:
    """What is filled in, and what the price has otherwise."""
    step = table(document, "optimizer", such_as='name = "AdamW"')
    _ = word(step, "name", ("AdamW", "Adam"), "AdamW", within="optimizer.")
    compiled = table(document, "compile", such_as="enable = true")
    option = str(again.get("selective_ac_option", "2"))
    selective = again.get("mode", "selective") == "selective"
    if selective and option != "op" and not (option.isascii() and option.isdecimal() and int(option) > 0):
        raise BadRequest(f"activation_checkpoint.selective_ac_option: expected op or a number, got {option!r:.40}")
    layers = f"selective_ac_option {option} recomputes one layer in {option} whole; operators are priced"
    told = {
        f"training.seq_len is not given; {_LENGTH} is priced": "seq_len" not in training,
        f"activation_checkpoint.{layers}": selective and option != "op",
        "compile.enable is not set; compiled kernels are priced": not (
            flag(compiled, "enable", within="compile.") or flag(training, "compile", within="training.")
        ),
        "optimizer.early_step_in_backward is not priced": flag(step, "early_step_in_backward", within="optimizer."),
        "training.dtype bfloat16 is not priced; states are in fp32": (
            word(training, "dtype", ("float32", "bfloat16"), "float32", within="training.") == "bfloat16"
        ),
        "parallelism.enable_async_tensor_parallel is not priced; the stack's overlap is": flag(
            parallel, "enable_async_tensor_parallel", within="parallelism."
        ),
    }
    return [text for text, holds in told.items() if holds]
