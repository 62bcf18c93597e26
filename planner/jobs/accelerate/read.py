"""The YAML of ``accelerate launch`` as a question."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from costmodels.names import SHARDED_PARAMETERS
from planner.errors import BadRequest
from planner.frameworks.registry import FRAMEWORKS
from planner.jobs.accelerate.options import BACKENDS, OPTIONS
from planner.jobs.deepspeed.read import OF_SCRIPT, deepspeed_job
from planner.jobs.imported import ImportedJob, joined
from planner.jobs.options import Document, present, typed
from planner.jobs.reader import Context, DocumentReader, JobFile, not_here
from planner.jobs.values import data, put, words

_SAID: Final = data("accelerate/words")
_PLUGIN: Final[Mapping[str, str]] = _SAID["plugin"]
_KEYS: Final = frozenset({"distributed_type", "mixed_precision"})
SHARDS: Final = "says how states are sharded"
Find = Callable[[str], JobFile | None]
"""The file that another one names, None where it is not there."""


def accelerate_job(document: Mapping[str, Any], find: Find = lambda _: None) -> ImportedJob:
    """The job of a configuration of ``accelerate launch``; model, batch and sequence are the script's."""
    if not _KEYS & set(document):
        raise BadRequest("it has no key of Accelerate, such as distributed_type")
    document = typed(document, OPTIONS, words=False)
    at = Document(document, OPTIONS)
    of_type = {"deepspeed": _of_deepspeed, "megatron": _of_megatron}.get(at("distributed"), _of_pytorch)
    found = of_type(at, find)
    compiled = str(at("compiler") or "no").lower() not in {"no", "none", "eager"}
    more = {"gpus": at("gpus"), "changes": {"stack.fused_elementwise": True} if compiled else None}
    _ = [at.raw(field) for field in ("tp", "cp", "sp", "shard", "replicas", "cp_kind")]
    return joined(found, ImportedJob(present(**more), unpriced=at.left(_SAID["harmless"])))


def deepspeed_document(document: Mapping[str, Any], find: Find = lambda _: None) -> Mapping[str, Any] | None:
    """What DeepSpeed is given: the file that the configuration names, or its plugin's keys as DeepSpeed's own.

    None where it names a file that is not there.
    """
    plugin = document.get("deepspeed_config")
    plugin = plugin if isinstance(plugin, Mapping) else {}
    if name := plugin.get("deepspeed_config_file"):
        file = find(str(name))
        return None if file is None else file.document or {}
    made: dict[str, Any] = {"zero_optimization": {}}
    for word, key in _PLUGIN.items():
        value = plugin.get(word)
        if value in {None, "none", "auto", ""}:
            continue
        put(made, key.split("."), int(value) if str(value).isdecimal() else value)
    precision = str(document.get("mixed_precision") or "no").lower()
    return made | ({precision: {"enabled": True}} if precision in {"bf16", "fp16"} else {})


def _of_deepspeed(at: Document, find: Find) -> ImportedJob:
    """The plugin's job; its micro-batch is the script's, and is not reported as missing."""
    plugin = at.table("deepspeed_config")
    made = deepspeed_document(at.table(""), find)
    if made is None:
        name = plugin.get("deepspeed_config_file")
        missing = (not_here(f"deepspeed_config_file {name}", SHARDS),)
        return ImportedJob({"stack": FRAMEWORKS["deepspeed"].stack}, missing=missing, framework="deepspeed")
    _ = {plugin.get(word) for word in (*_PLUGIN, *words(_SAID["left"]))}
    steps, precision = made.get("gradient_accumulation_steps"), at("precision")
    found = deepspeed_job({"train_micro_batch_size_per_gpu": "auto", **made}, of_script=True)
    pins = {name: pin for name, pin in found.pins.items() if name != "steps"}
    pins |= present(steps=steps if steps != "auto" else None)
    sp = at("sp")
    pins |= {"cp": sp, "cp_kind": "a2a"} if sp > 1 else {}
    fields = {"stack": FRAMEWORKS["deepspeed"].stack, **found.fields}
    fields |= {"precision": precision} if precision != "fp32" else {}
    effects = (*found.unpriced, *plugin.unread("", prefix="deepspeed_config."))
    filled = found.filled if precision == "fp32" else frozenset()
    return replace(found, fields=fields, pins=pins, unpriced=effects, framework="deepspeed", filled=filled)


def _of_megatron(at: Document, _find: Find) -> ImportedJob:
    tp = at("megatron_tp")
    pins = present(
        **{axis: at(f"megatron_{axis}") for axis in ("tp", "pp", "ep", "cp", "steps")},
        zero_stage=int(at("megatron_zero")),
        sequence_parallel=str(at("megatron_sequences") and tp > 1).lower(),
        recompute="selective" if at("megatron_recompute") else "none",
    )
    fields = {"stack": FRAMEWORKS["megatron-lm"].stack, "precision": at("precision")}
    return ImportedJob(fields, pins, unpriced=at.left(_SAID["megatron"]), framework="megatron-lm")


def _of_pytorch(at: Document, _find: Find) -> ImportedJob:
    precision, sharded, cp = at("precision"), at("distributed") == "fsdp", at("cp")
    narrow = precision == "fp8"
    fields = present(
        stack=FRAMEWORKS["accelerate"].stack,
        precision=BACKENDS[at("backend")] if narrow else precision,
        fp8_param_gather=(at("fp8_param_gather") or None) if narrow else None,
    )
    pins = present(
        **at.each("tp", "cp"),
        pp=1,
        ep=1,
        cp_kind=at("cp_kind") if cp > 1 else None,
        **(_sharding(at, cp) if sharded else {"zero_stage": 0}),
        dp=at("replicas") * at("shard") if at.table("parallelism_config") else None,
    )
    return ImportedJob(fields, pins, framework="accelerate")


def _sharding(at: Document, cp: int) -> dict[str, Any]:
    """How FSDP shards, recomputes and offloads; context ranks share states too, and without sizes all ranks do."""
    stage = _stage(at)
    degree = at("shard") * cp if at.table("parallelism_config") else None
    hybrid = stage < 0 and at("nodes") is not None
    return {
        "zero_stage": 0 if degree == 1 else abs(stage),
        "sharding_degree": degree if stage and degree != 1 else None,
        "copies": at("nodes") if hybrid and degree is None and at("nodes") > 1 else None,
        "recompute": "full" if at("recompute") else "none",
        "offload": "optimizer+parameters" if at("offload") else "none",
    }


def _stage(at: Document) -> int:
    """The ZeRO stage, negative where every node has a copy; FSDP2 says it as whether it reshards, FSDP1 by name."""
    for field, word in [(field, at.raw(field)) for field in ("strategy", "reshard")]:
        if word is not None:
            found = _SAID["sharding"].get(str(word).strip().lower())
            if found is None:
                known = "FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD, HYBRID_SHARD_ZERO2, NO_SHARD, true, false"
                raise BadRequest(f"{OPTIONS[field].word}: {word!r:.40} is not priced; {known} are")
            return found
    return SHARDED_PARAMETERS


def _read(file: JobFile, context: Context) -> ImportedJob:
    find = partial(context.find, beside=file.path)
    return replace(accelerate_job(file.document or {}, find), unsaid=OF_SCRIPT)


READERS: Final = (
    DocumentReader(
        "accelerate", "a configuration of Accelerate", "",
        lambda file: "distributed_type" in (file.document or ()), _read,
    ),
)  # fmt: skip
