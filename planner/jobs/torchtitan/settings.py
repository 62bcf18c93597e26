"""torchtitan's configuration as a question, whatever it was written in: TOML, Python or words of a command line."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

from costmodels.model.catalogue import model as find_model
from costmodels.names import SHARDED_PARAMETERS
from hardware.errors import meant
from planner.answer.text import plural
from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob, Length
from planner.jobs.models import known_model
from planner.jobs.options import Document, applicable, present
from planner.jobs.torchtitan.options import EAGER, EAGER_LOSS, FOLDED, NARROW_STATES, OPTIONS, READ_MODELS
from planner.jobs.values import data

_SHARDED = 2
"""The ZeRO stages that keep gathered parameters, and that do not."""
_ONE_CHUNK: Final = ("gpipe", "1f1b")
_LAYERWISE: Final = "breadth-first"
"""The schedule whose micro-batches end a layer together, so that its gradients are reduced once anyway."""
_READ: Final = ("training", "parallelism", "experimental")
_LINEAR: Final = {"quantize.linear.float8": "float8", "float8": "float8", "quantize.linear.mx": "mx", "mx": "mx"}
_GROUPED: Final = {"quantize.grouped_mm.float8": "float8", "quantize.grouped_mm.mx": "mx"}
"""Converters by the format that they make: of a layer's products, and of the experts'."""
_TABLES: Final = ("training", "parallelism", "activation_checkpoint", "model", "compile", "experimental", "float8")


def torchtitan_job(document: Mapping[str, Any]) -> ImportedJob:
    """The job of a torchtitan configuration of any version."""
    if not {"parallelism", "training"} & set(document):
        raise BadRequest("it has no table of torchtitan, such as [parallelism]")
    at = Document(_in_sequences(document), OPTIONS)
    _ = [at.table(table) for table in _TABLES]
    cp, pp, ep, rotation = (at(axis) for axis in ("cp", "pp", "ep", "cp_kind"))
    schedule = at("schedule") if pp > 1 else "none"
    ranks = _ranks(at, cp=cp, schedule=schedule)
    model = _model(at)
    pipeline, layers, about_layers = _pipeline(at, pp, model)
    sizes, batch, about_batch = _batch(at, pp, ranks.get("dp"))
    precision, gathered, about_precision = _precision(at, ep)
    again, recomputed, about_again = _recomputation(at, pp, model)
    pins = present(
        **at.each("tp", "cp", "pp", "ep"),
        etp=_expert_tensor(at, model),
        **pipeline,
        **sizes,
        **ranks,
        cp_kind=rotation if cp > 1 else None,
        **again,
        offload="optimizer+parameters" if at("offload") else "none",
    )
    fields = present(
        model=model,
        global_batch_size=batch,
        seq_length=at("seq_length"),
        precision=precision,
        fp8_param_gather=gathered or None,
        **_software(at),
    )
    # Its own 10,000 steps are of a trial.
    length = Length(at("steps"), "iterations", "training.steps") if at("steps") else None
    harmless = data("torchtitan/words")["harmless"]
    assumed, effects = (*about_batch, *_assumed(at, pp)), (*about_again, *_unpriced(at, pp))
    _ = at.raw("etp")  # of no effect without experts
    return ImportedJob(
        fields,
        pins,
        layers or (recomputed and (find_model(str(model)).num_layers,)),
        recomputed=recomputed,
        remarks=(*about_layers, *about_precision, *at.left(dict.fromkeys(_READ, harmless))),
        assumed=assumed,
        unpriced=effects,
        length=length,
        lacks=_unknown(at),
    )


def _in_sequences(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The newest versions count tokens: here they are sequences of the longest context, as the older ones have them."""
    training, parallelism = (document.get(name) for name in ("training", "parallelism"))
    at = Document(document, OPTIONS)
    if not isinstance(training, Mapping) or at.raw("micro_batch_tokens") is None:
        return document
    length, tokens, batch = at("context_length") or 2048, at("micro_batch_tokens"), at("batch_tokens")
    micro = tokens // length
    if tokens % length or (batch > 0 and batch % length):
        word = OPTIONS["micro_batch_tokens"].word
        raise BadRequest(f"{word} {tokens:,} is no multiple of training.max_context_length {length:,}")
    staged = at("num_pp_microbatches") or 1 if at("pp") > 1 else 1
    of_tokens = {"num_tokens_per_microbatch_per_dp_rank", "num_tokens_per_train_step", "max_context_length"}
    kept = {name: value for name, value in training.items() if name not in of_tokens}
    sizes = {"local_batch_size": micro * staged, "seq_len": length}
    sizes |= {"global_batch_size": batch // length} if batch > 0 else {}
    split = dict(parallelism) if isinstance(parallelism, Mapping) else {}
    split.pop("num_pp_microbatches", None)
    return {**document, "training": kept | sizes, "parallelism": split | {"pipeline_parallel_microbatch_size": micro}}


def _model(at: Document) -> str | None:
    """The model of the catalogue that a name and a flavor are, or a hub's name alone."""
    named = tuple("" if (said := at.raw(field)) is None else str(said) for field in ("model", "flavor"))
    hub = known_model(named[0]) if "/" in named[0] and not named[1] else None
    said = (named[0].lower(), named[1].lower())
    found = (one for one, (name, flavor) in READ_MODELS.items() if (name.lower(), flavor.lower()) == said)
    return next(found, hub and hub[0])


def _unknown(at: Document) -> str:
    """That a model or its flavor is not known here; nothing where it is, or none is named."""
    name, flavor = ("" if name is None else str(name) for name in (at.raw("model"), at.raw("flavor")))
    flavors = [size for known, size in READ_MODELS.values() if known == name]
    if not name or _model(at):
        return ""
    if not flavors:
        every = ", ".join(" ".join(known) for known in READ_MODELS.values())
        return f"model {name!r:.40} is not known here; {every} are; --model says any other"
    if not flavor:
        return f"{name} is named without its flavor; {', '.join(flavors)} are known; --model says any"
    near = meant(flavor, flavors, otherwise=f"{', '.join(flavors)} are;")
    return f"flavor {flavor!r:.40} of {name} is not known here; {near} --model says any other"


def _expert_tensor(at: Document, model: str | None) -> int | None:
    """Tensor ranks of an expert: all of a layer's where experts are not spread, else as said; 1 of dense models.

    Of a model that is not known here nothing is said: whether it has experts decides it.
    """
    if model is None:
        return int(at("etp")) if at("ep") > 1 else 1 if at("tp") == 1 else None
    if find_model(model).moe is None:
        return 1
    return int(at("etp") if at("ep") > 1 else at("tp"))


def _ranks(at: Document, *, cp: int, schedule: str) -> dict[str, Any]:
    """Data-parallel ranks and what they share: context ranks always do.

    Under a pipeline parameters stay gathered for all micro-batches, and gradients are summed up whole and reduced once
    (torchtitan's ``pipeline_parallel``, PyTorch's ``backward_maybe_with_nosync``): as ZeRO stage 1 has it.
    """
    replicas, shard, reshard = at("replicas"), at("shard"), at("reshard")
    if shard == 0:
        raise BadRequest("parallelism.data_parallel_shard_degree: 0 does not exist; -1 is all ranks that are left")
    pipelined = schedule not in {"none", _LAYERWISE}
    zero = SHARDED_PARAMETERS if reshard == "always" or (reshard == "default" and schedule == "none") else _SHARDED
    zero = 1 if pipelined else zero
    if shard < 0:
        return {"zero_stage": zero, "copies": replicas}
    sharded = {"zero_stage": zero, "sharding_degree": shard * cp} if shard * cp > 1 else {"zero_stage": 0}
    return {"dp": replicas * shard, **sharded}


def _pipeline(
    at: Document, pp: int, model: str | None
) -> tuple[dict[str, Any], tuple[int, ...] | None, tuple[str, ...]]:
    """Schedule and chunks, the layers of every stage where they are said, and remarks."""
    schedule, parts = at("schedule"), _parts(at, pp)
    if pp == 1:
        return {"schedule": "none"}, None, ()
    if parts is None:
        chunks = _split(at, pp, model)
        if chunks:
            layers = tuple(sum(chunks[stage::pp]) for stage in range(pp))
            return {"schedule": schedule, "vpp": len(chunks) // pp}, None if schedule in FOLDED else layers, ()
        vpp = 1 if schedule in _ONE_CHUNK else 2
        words = f"parallelism.module_fqns_per_model_part is not given; priced are stages of {plural(vpp, 'chunk')}"
        return {"schedule": schedule, "vpp": vpp}, None, (f"{words}, split as a search does",)
    held = [sum(str(name).startswith("layers.") for name in part) for part in parts]
    layers = tuple(sum(held[stage::pp]) for stage in range(pp))
    return {"schedule": schedule, "vpp": len(parts) // pp}, None if schedule in FOLDED else layers, ()


def _split(at: Document, pp: int, model: str | None) -> tuple[int, ...]:
    """Layers of every chunk by the points at which an older version splits; empty where they are not said."""
    points = at.raw("split_points")
    if not points or model is None:
        return ()
    names = points.split(",") if isinstance(points, str) else points
    places = [str(name).strip().removeprefix("layers.") for name in names]
    layers = find_model(model).num_layers
    ends = [0, *(int(place) for place in places if place.isdecimal()), layers]
    held = tuple(after - before for before, after in pairwise(ends))
    if len(held) != len(places) + 1 or len(held) % pp or min(held) < 0:
        word = OPTIONS["split_points"].word
        raise BadRequest(f"{word}: {', '.join(places):.40} makes no chunks of {pp} stages and {layers} layers")
    return held


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


def _batch(at: Document, pp: int, dp: int | None) -> tuple[dict[str, Any], int | None, list[str]]:
    """Micro-batch and how often a rank takes one, the global batch where it is given, and what is assumed.

    A pipeline's micro-batches are cut out of the local batch; without a global batch every rank takes one local batch.
    """
    local, batch = at("local_batch_size"), at("global_batch_size")
    micro = _micro_batch(at, local, pp) if pp > 1 else local
    if local % micro:
        raise BadRequest(f"micro-batches of {micro} sequences do not divide training.local_batch_size {local}")
    unset = at.raw("local_batch_size") is None
    remarks = [f"training.local_batch_size is not given; {local} is priced"] if unset else []
    if batch < 0:
        remarks.append("training.global_batch_size is not given; one local batch of every data-parallel rank is priced")
        return {"micro_batch_size": micro, "steps": local // micro}, None, remarks
    if batch == 0:
        raise BadRequest("training.global_batch_size: 0 does not exist; -1 is one local batch of every rank")
    if pp > 1 and dp and batch > local * dp:
        remarks.append("each local batch fills and drains the pipeline; they are priced as one pipeline")
    return {"micro_batch_size": micro, "local": local}, batch, remarks


def _micro_batch(at: Document, local: int, pp: int) -> int:
    """Sequences of a pipeline's micro-batch; the first versions say how many there are, as many as stages if not."""
    older = at.table("experimental") or at.raw("micro_batches") is not None
    if not older:
        return int(at("micro_batch_size"))
    count = at("micro_batches") or pp
    if local % count:
        raise BadRequest(f"{count} micro-batches do not divide training.batch_size {local}")
    return int(local // count)


def _recomputation(
    at: Document, pp: int, model: str | None
) -> tuple[dict[str, Any], tuple[int, ...] | None, tuple[str, ...]]:
    """What is recomputed: selective of every so many layers is full recomputation of some of them."""
    mode, given = at("recompute"), at.raw("selective_option")
    option = "2" if given is None else str(given)
    if mode != "selective" or option == "op":
        return {"recompute": mode}, None, ()
    if not (option.isascii() and option.isdecimal() and int(option) > 0):
        raise BadRequest(f"activation_checkpoint.selective_ac_option: expected op or a number, got {option!r:.40}")
    if option == "1":
        return {"recompute": "full"}, None, ()
    if pp == 1 and model is not None:
        return {"recompute": "partial"}, (find_model(model).num_layers // int(option),), ()
    said = f"activation_checkpoint.selective_ac_option {option} recomputes one layer in {option} whole; operators are"
    return {"recompute": "selective"}, None, (f"{said} priced: less memory and less repeated than that",)


def _software(at: Document) -> dict[str, Any]:
    """Fields of the stack that the configuration decides: what is compiled, the width of states, the dispatcher."""
    components = at("compiled")
    parts = components if isinstance(components, list) else ["model", "loss"]
    compiled = at("compile")
    changes = {} if compiled and "model" in parts else dict(EAGER)
    changes |= {} if compiled and "loss" in parts else EAGER_LOSS
    narrow = at("dtype") == "bfloat16"
    changes |= NARROW_STATES if narrow else {}
    changes |= {"stack.dispatcher": at("dispatch")} if at("dispatch") != "alltoall" and at("ep") > 1 else {}
    return {"changes": changes or None, "optimizer": "adam-bf16" if narrow else None}


def _assumed(at: Document, pp: int) -> tuple[str, ...]:
    """What is left to torchtitan, with what it takes."""
    _ = at("optimizer")
    return applicable({
        f"training.seq_len is not given; {at('seq_length')} is priced": at.raw("seq_length") is None,
        "compile.enable is not given; eager kernels are priced, --set stack.fused_elementwise=true changes it": (
            at.raw("compile") is None
        ),
        "the schedule is that of torchtitan's default, 1F1B": pp > 1 and at.raw("schedule") is None,
    })  # fmt: skip


def _unpriced(at: Document, pp: int) -> tuple[str, ...]:
    """What is said and not priced, with its likely effect."""
    again = pp > 1 and at("reshard") == "always" and at("shard") != 1
    return applicable({
        "optimizer.early_step_in_backward is not priced: gradients would take less memory": at("early_step"),
        "parallelism.enable_async_tensor_parallel is not priced: tensor ranks would wait less for each other": (
            at("async_tensor_parallel") and at("tp") > 1
        ),
        "parallelism.fsdp_reshard_after_forward always is not priced under a pipeline: parameters would take less "
        "memory, and be gathered for every micro-batch": again,
    })  # fmt: skip


def _precision(at: Document, ep: int) -> tuple[str, bool, list[str]]:
    """The recipe of the products, whether weights are gathered in 8 bits, and remarks."""
    used, width = _converters(at), at("width")
    if not used and (at("older_float8") or at.raw("oldest_float8")):
        used = ["float8"]
    if not used:
        return "fp32" if width == "float32" else "bf16", False, []
    linear, grouped = ([known[name] for name in used if name in known] for known in (_LINEAR, _GROUPED))
    if len({*linear, *grouped}) > 1:
        raise BadRequest(f"model.converters: {' and '.join(used)} are of two formats, which torchtitan refuses")
    if not linear:
        raise BadRequest(f"model.converters: {used[0]} alone is not priced; {next(iter(_LINEAR))} with it is")
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
