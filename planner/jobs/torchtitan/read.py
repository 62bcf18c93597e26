"""torchtitan's TOML as a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from costmodels.names import SHARDED_PARAMETERS
from hardware.errors import meant
from planner.answer.text import plural
from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob, Length
from planner.jobs.options import Document, applicable, present
from planner.jobs.reader import Context, DocumentReader, JobFile
from planner.jobs.torchtitan.options import FOLDED, MODELS, OPTIONS

_SHARDED = 2
"""The ZeRO stages that keep gathered parameters, and that do not."""
_ONE_CHUNK: Final = ("gpipe", "1f1b")
_OF_RUN: Final = r"dataset.*|max_norm|gc_.*|deterministic|seed|debug.*|disable_loss_parallel"
"""Keys of torchtitan's ``training`` and ``parallelism`` that change no price."""
_LINEAR: Final = {"quantize.linear.float8": "float8", "float8": "float8", "quantize.linear.mx": "mx", "mx": "mx"}
_GROUPED: Final = {"quantize.grouped_mm.float8": "float8", "quantize.grouped_mm.mx": "mx"}
"""Converters by the format that they make: of a layer's products, and of the experts'."""


class _Ranks(NamedTuple):
    """Data-parallel ranks: groups that hold copies, ranks that share one (None: all that are left), pins."""

    replicas: int
    shard: int | None
    pins: dict[str, Any]


def torchtitan_job(document: Mapping[str, Any]) -> ImportedJob:
    """The job of a torchtitan TOML, as of 0.2.

    Raises:
        BadRequest: it has no table of torchtitan, or a value that torchtitan would refuse or that is not priced.
    """
    if not {"parallelism", "training"} & set(document):
        raise BadRequest("no table of torchtitan in it, such as [parallelism]")
    at = Document(document, OPTIONS)
    for table in ("training", "parallelism", "activation_checkpoint", "model"):
        _ = at.table(table)
    cp, pp, ep, etp, rotation = (at(axis) for axis in ("cp", "pp", "ep", "etp", "cp_kind"))
    ranks = _ranks(at, cp=cp, pp=pp)
    pipeline, layers, about_layers = _pipeline(at, pp)
    sizes, batch, about_batch = _batch(at, pp, ranks)
    precision, gathered, about_precision = _precision(at, ep)
    pins = present(
        tp=at("tp"),
        cp=cp,
        pp=pp,
        ep=ep,
        etp=etp if ep > 1 else 1,
        **pipeline,
        **sizes,
        **ranks.pins,
        cp_kind=rotation if cp > 1 else None,
        recompute=at("recompute"),
        offload="optimizer+parameters" if at("offload") else "none",
    )
    named = (str(at.raw("model")), str(at.raw("flavor")))
    fields = present(
        model=next((known for known, flavor in MODELS.items() if flavor == named), None),
        global_batch_size=batch,
        seq_length=at("seq_length"),
        precision=precision,
        fp8_param_gather=gathered or None,
    )
    remarks = (*about_layers, *about_batch, *about_precision, *_assumed(at))
    # Its own 10,000 steps are of a trial.
    length = Length(at("steps"), "iterations", "training.steps") if at("steps") else None
    unread = (*at.unread("training", _OF_RUN), *at.unread("parallelism", _OF_RUN))
    return ImportedJob(fields, pins, layers, remarks=(*remarks, *unread), length=length, lacks=_unknown(at))


def _unknown(at: Document) -> str:
    """That a model or its flavor is not known here; nothing where it is, or none is named."""
    name, flavor = ("" if name is None else str(name) for name in (at.raw("model"), at.raw("flavor")))
    flavors = [size for known, size in MODELS.values() if known == name]
    if not flavor or flavor in flavors:
        return ""
    if not flavors:
        every = ", ".join(" ".join(known) for known in MODELS.values())
        return f"model {name!r:.40} is not known here; {every} are; --model says any other"
    near = meant(flavor, flavors, otherwise=f"{', '.join(flavors)} are;")
    return f"flavor {flavor!r:.40} of {name} is not known here; {near} --model says any other"


def _ranks(at: Document, *, cp: int, pp: int) -> _Ranks:
    """Data-parallel ranks and what they share: context ranks always do."""
    replicas, shard, reshard = at("replicas"), at("shard"), at("reshard")
    if shard == 0:
        raise BadRequest("parallelism.data_parallel_shard_degree: 0 does not exist; -1 is all ranks that are left")
    zero = SHARDED_PARAMETERS if reshard == "always" or (reshard == "default" and pp == 1) else _SHARDED
    if shard < 0:
        return _Ranks(replicas, None, {"zero_stage": zero, "copies": replicas})
    sharded = {"zero_stage": zero, "sharding_degree": shard * cp} if shard * cp > 1 else {"zero_stage": 0}
    return _Ranks(replicas, shard, {"dp": replicas * shard, **sharded})


def _pipeline(at: Document, pp: int) -> tuple[dict[str, Any], tuple[int, ...] | None, list[str]]:
    """Schedule and chunks, the layers of every stage where modules are named, and remarks."""
    schedule, parts = at("schedule"), _parts(at, pp)
    if pp == 1:
        return {"schedule": "none"}, None, []
    if parts is None:
        vpp = 1 if schedule in _ONE_CHUNK else 2
        words = f"parallelism.module_fqns_per_model_part is not given; priced are stages of {plural(vpp, 'chunk')}"
        return {"schedule": schedule, "vpp": vpp}, None, [f"{words}, split as a search does"]
    pins = {"schedule": schedule, "vpp": len(parts) // pp}
    return pins, None if schedule in FOLDED else _layers(parts, pp), []


def _parts(at: Document, pp: int) -> list[list[str]] | None:
    """Modules of every chunk, where they are named."""
    name, parts = OPTIONS["modules"].word, at("modules")
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


def _batch(at: Document, pp: int, ranks: _Ranks) -> tuple[dict[str, Any], int | None, list[str]]:
    """Micro-batch and how often a rank takes one, the global batch where it is given, and remarks.

    A pipeline's micro-batches are cut out of the local batch; without a global batch every rank takes one local batch.
    """
    local, batch = at("local_batch_size"), at("global_batch_size")
    micro = at("micro_batch_size") if pp > 1 else local
    if local % micro:
        raise BadRequest(f"micro-batches of {micro} sequences do not divide training.local_batch_size {local}")
    unset = at.raw("local_batch_size") is None
    remarks = [f"training.local_batch_size is not given; {local} is priced"] if unset else []
    if batch < 0:
        remarks.append("training.global_batch_size is not given; one local batch of every data-parallel rank is priced")
        return {"micro_batch_size": micro, "steps": local // micro}, None, remarks
    if batch == 0:
        raise BadRequest("training.global_batch_size: 0 does not exist; -1 is one local batch of every rank")
    if pp > 1 and ranks.shard and batch > local * ranks.replicas * ranks.shard:
        remarks.append("every local batch fills and drains the pipeline by itself; all are priced as one pipeline")
    return {"micro_batch_size": micro, "local": local}, batch, remarks


def _assumed(at: Document) -> tuple[str, ...]:
    """What is filled in, and what the price has otherwise."""
    _ = at("optimizer")
    given = at.raw("selective_option")
    option = "2" if given is None else str(given)
    selective = at("recompute") == "selective"
    if selective and option != "op" and not (option.isascii() and option.isdecimal() and int(option) > 0):
        raise BadRequest(f"activation_checkpoint.selective_ac_option: expected op or a number, got {option!r:.40}")
    layers = f"selective_ac_option {option} recomputes one layer in {option} whole; operators are priced"
    remarks = {
        f"training.seq_len is not given; {at('seq_length')} is priced": at.raw("seq_length") is None,
        f"activation_checkpoint.{layers}": selective and option != "op",
        "compile.enable is not set; compiled kernels are priced": not (at("compile") or at("older_compile")),
        "optimizer.early_step_in_backward is not priced": at("early_step"),
        "training.dtype bfloat16 is not priced; states are in fp32": at("dtype") == "bfloat16",
        "parallelism.enable_async_tensor_parallel is not priced; the stack's overlap is": at("async_tensor_parallel"),
    }
    return applicable(remarks)


def _precision(at: Document, ep: int) -> tuple[str, bool, list[str]]:
    """The recipe of the products, whether weights are gathered in 8 bits, and remarks.

    Raises:
        BadRequest: a converter or a recipe that is not priced.
    """
    used, width = _converters(at), at("width")
    if not used:
        return "fp32" if width == "float32" else "bf16", False, []
    linear, grouped = ([known[name] for name in used if name in known] for known in (_LINEAR, _GROUPED))
    if len({*linear, *grouped}) > 1:
        raise BadRequest(f"model.converters: {' and '.join(used)} are of two formats, which torchtitan refuses")
    if not linear:
        raise BadRequest(f"model.converters: {used[0]} alone is not priced; {next(iter(_LINEAR))} beside it is")
    remarks = ["quantize: every product of a layer is priced in 8 bits, those of filter_fqns too"]
    if ep > 1 and not grouped:
        remarks = ["model.converters leave experts in 16 bits; every product of a layer is priced in 8 bits"]
    recipe = at(f"{linear[0]}_recipe")
    if linear[0] == "mx":
        return recipe, False, remarks
    gathered = at("fp8_param_gather")
    if gathered and at.raw("float8_recipe") is not None:
        word = OPTIONS["fp8_param_gather"].word
        raise BadRequest(f"{word} excludes recipe_name; leave out one of them")
    return recipe, gathered, remarks


def _converters(at: Document) -> list[str]:
    found = at.raw("converters") or []
    names = found.split(",") if isinstance(found, str) else found
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise BadRequest(f'model.converters: expected names such as ["quantize.linear.float8"], got {found!r:.40}')
    known = (*_LINEAR, *_GROUPED)
    for name in (stripped := [name.strip() for name in names]):
        if name not in known:
            raise BadRequest(f"model.converters: {name!r:.60} is not priced; {', '.join(known)} are")
    return stripped


_TABLES: Final = frozenset({"job", "parallelism", "training", "activation_checkpoint", "experimental", "metrics"})


def _recognises(file: JobFile) -> bool:
    at = file.document or {}
    tables = [name for name in _TABLES if isinstance(at.get(name), Mapping)]
    degrees = at.get("parallelism")
    return "training" in tables or (bool(tables) and isinstance(degrees, Mapping) and "tp" not in degrees)


def _read(file: JobFile, _: Context) -> ImportedJob:
    return torchtitan_job(file.document or {})


READERS: Final = (DocumentReader("torchtitan", "a configuration of torchtitan", "torchtitan", _recognises, _read),)
