"""How the states of a Trainer's job are sharded: by DeepSpeed's file, Accelerate's, FSDP's options, or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from planner.errors import BadRequest
from planner.frameworks.registry import FRAMEWORKS
from planner.jobs.accelerate.read import Find, accelerate_job, deepspeed_document
from planner.jobs.data import data, words
from planner.jobs.deepspeed.read import AUTO, deepspeed_job
from planner.jobs.imported import ImportedJob
from planner.jobs.options import Document
from planner.jobs.reader import Context
from planner.jobs.transformers.trainer import FORMATS, Trainer, zero
from planner.jobs.values import truth

STACK: Final = "transformers"
_SIZES: Final = {"train_micro_batch_size_per_gpu": "micro_batch_size", "gradient_accumulation_steps": "steps"}
_HERE: Final = frozenset({"", "true", "none", "false"})
"""What ``deepspeed`` says where it is a switch and the file has an option of its own."""


def sharded_job(
    at: Document,
    trainer: Trainer,
    accelerate: Mapping[str, Any] | None,
    context: Context,
    beside: Path | None = None,
    hidden: int | None = None,
) -> ImportedJob:
    """Precision and sharding of a job.

    Args:
        at: its options.
        trainer: that reads them.
        accelerate: the configuration of ``accelerate launch``, where that starts it.
        context: with the files that it names.
        beside: the file that the options stand in.
        hidden: width of the model's layers, of which a bucket that is left open has the square; None: not known.
    """
    named, find = at("deepspeed"), partial(context.find, beside=beside)
    kind = str((accelerate or {}).get("distributed_type", "")).upper()
    if isinstance(named, Mapping) or (named is not None and str(named).lower() not in _HERE):
        return _of_deepspeed(_document(named, trainer, context, find), str(named), at, hidden)
    if kind == "DEEPSPEED" and accelerate is not None:
        name = (accelerate.get("deepspeed_config") or {}).get("deepspeed_config_file")
        return _of_deepspeed(deepspeed_document(accelerate, find), str(name), at, hidden)
    if str(named).lower() == "true" or at("zero_stage") is not None:
        return _of_deepspeed(_only(context) or _by_options(at), "the file of --deepspeed_config", at, hidden)
    if kind == "MEGATRON_LM" and accelerate is not None:
        return accelerate_job(accelerate, find)
    fsdp = _fsdp(at, trainer, find) or (accelerate if kind == "FSDP" else None)
    return _of_pytorch(fsdp, at, trainer, accelerate or {})


def _document(named: Any, trainer: Trainer, context: Context, find: Find) -> Mapping[str, Any] | None:
    """DeepSpeed's document: a table, JSON in words, a file, one that the trainer brings, or the only one given."""
    if isinstance(named, Mapping):
        return named
    if str(named).lstrip().startswith("{"):
        return _parsed("deepspeed", str(named))
    if (file := find(str(named))) is not None:
        return file.document
    short = str(named).rpartition("/")[2].removesuffix(".json")
    return trainer.deepspeed.get(short) or _only(context)


def _parsed(option: str, text: str) -> Mapping[str, Any]:
    """The table that an option has as JSON."""
    try:
        found: Mapping[str, Any] = json.loads(text)
    except ValueError as error:
        raise BadRequest(f"{option}: no JSON: {error}") from None
    return found


def _only(context: Context) -> Mapping[str, Any] | None:
    """DeepSpeed's document among the job's files, which nothing names."""
    file = context.holding("zero_optimization")
    return file.document if file else None


def _by_options(at: Document) -> Mapping[str, Any] | None:
    """DeepSpeed's document of a script that makes it of options: the stage, what is offloaded, the format."""
    if at("zero_stage") is None:
        return None
    word = FORMATS.get(str(at("weights") or "").rpartition(".")[2].lower(), "fp16")
    format_ = next((one for one in ("bf16", "fp16") if at(one)), word)
    return {**zero(at("zero_stage"), offload=bool(at("offload"))), "bf16": {"enabled": format_ == "bf16"},
            "fp16": {"enabled": format_ == "fp16"}}  # fmt: skip


def _of_deepspeed(document: Mapping[str, Any] | None, name: str, at: Document, hidden: int | None) -> ImportedJob:
    stack = {"stack": FRAMEWORKS["deepspeed"].stack}
    if document is None:
        said = f"deepspeed {name} says how states are sharded, but is not here; give that file too"
        own = next((one for one in ("bf16", "fp16") if at(one)), None)
        fields = stack | ({"precision": own} if own else {})
        return ImportedJob(fields, {}, missing=(said,), framework="deepspeed")
    found = deepspeed_job(filled(document, at, hidden))
    silent = ("train_", "neither train", "gradient_acc", "no optimizer")
    assumed = tuple(one for one in found.assumed if not one.startswith(silent))
    return ImportedJob(
        {**stack, **found.fields}, found.pins, assumed=assumed, unpriced=found.unpriced, framework="deepspeed"
    )


def filled(document: Mapping[str, Any], at: Document, hidden: int | None = None) -> Mapping[str, Any]:
    """DeepSpeed's document with what is left to the Trainer filled in from its options, and from the model's width."""
    made = {key: value for key, value in document.items() if key != "train_batch_size" or value != AUTO}
    for key, field in _SIZES.items():
        own, given = made.get(key), at.raw(field)
        if own in {None, AUTO}:
            if given is not None or own == AUTO or "train_batch_size" not in made:
                made[key] = at(field)
        elif given is not None and own != given:
            raise BadRequest(f"{key} is {own} in DeepSpeed's file, but {given} in the options; give one of them")
    zero = made.get("zero_optimization")
    if isinstance(zero, Mapping) and zero.get("reduce_bucket_size") == AUTO and hidden:
        made["zero_optimization"] = {**zero, "reduce_bucket_size": hidden * hidden}
    return made | _formats(made, at)


def _formats(document: Mapping[str, Any], at: Document) -> dict[str, Any]:
    """The tables of bf16 and fp16, of which one that is left open is as the options say."""
    found = {}
    tables = {name: document.get(name) for name in ("bf16", "fp16")}
    said = any(truth((table or {}).get("enabled")) for table in tables.values() if isinstance(table, Mapping))
    for name, table in tables.items():
        own = table.get("enabled", False) if isinstance(table, Mapping) else None
        if own == AUTO or (own is None and at(name) and not said):
            found[name] = {**(table or {}), "enabled": bool(at(name))}
    return found


def _fsdp(at: Document, trainer: Trainer, find: Find) -> Mapping[str, Any] | None:
    """Accelerate's document of what ``fsdp`` and ``fsdp_config`` say; None where nothing is sharded."""
    said = at("fsdp")
    brought = trainer.fsdp.get(str(said), {})
    said = " ".join(map(str, said)) if isinstance(said, list | tuple) else str(said or "")
    config = dict(brought or _table(at("fsdp_config"), find))
    said = "full_shard" if brought else said
    if truth(said) is False or not (said.strip() or config):
        return None
    named = {f"fsdp_{str(key).removeprefix('fsdp_')}": value for key, value in config.items()}
    for older, key in _OLDER.items():
        if older in named:
            named[key] = named.pop(older)
    strategy = next((word for word in said.lower().split() if word.endswith(("shard", "op", "zero2"))), "")
    named |= {"fsdp_sharding_strategy": strategy} if strategy else {}
    named |= {"fsdp_offload_params": True} if "offload" in said.lower().split() else {}
    kept = {key: value for key, value in named.items() if key not in _LEFT and not key.startswith("fsdp__")}
    return {"distributed_type": "FSDP", "fsdp_config": kept}


def _table(given: Any, find: Find) -> Mapping[str, Any]:
    """A table that is given as one, in JSON, or as the name of a file."""
    if isinstance(given, str) and given.lstrip().startswith("{"):
        given = _parsed("fsdp_config", given)
    elif isinstance(given, str) and given:
        file = find(given)
        if file is None or file.document is None:
            raise BadRequest(f"fsdp_config {given} says how states are sharded, but is not here; give that file too")
        given = file.document
    return given if isinstance(given, Mapping) else {}


_OLDER: Final = {"fsdp_cpu_offload": "fsdp_offload_params"}
"""Keys of ``fsdp_config`` by Accelerate's own."""
_LEFT: Final = frozenset(words(data("transformers/words")["fsdp_harmless"]))
"""Keys of ``fsdp_config`` that change no price on GPUs."""


def _of_pytorch(
    fsdp: Mapping[str, Any] | None, at: Document, trainer: Trainer, accelerate: Mapping[str, Any]
) -> ImportedJob:
    """DDP or FSDP of Transformers' models in the precision that the options say, else Accelerate's."""
    document = {"distributed_type": "NO", **accelerate, **(fsdp or {})}
    document = document if fsdp else {**document, "distributed_type": "NO"}
    own = "bf16" if at("bf16") else "fp16" if at("fp16") else None
    mixed = str(document.get("mixed_precision") or "no").lower()
    weights = str(at("weights") or "").rpartition(".")[2].lower()
    narrow = FORMATS.get(weights) if FORMATS.get(weights) != "fp32" else None
    usual = trainer.precision if at.raw("bf16") is None and at.raw("fp16") is None else "fp32"
    precision = own or (mixed if mixed not in {"no", "false"} else None) or narrow or usual
    found = accelerate_job({**document, "mixed_precision": {"fp32": "no"}.get(precision, precision)})
    why = f"the model is loaded in {narrow}" if narrow else f"{trainer.title} then takes it"
    silent = f"neither bf16 nor fp16 is switched on; {precision} is priced, as {why}; --precision changes it"
    said = () if own or mixed not in {"no", "false"} else (silent,)
    fields = {**found.fields, "stack": STACK}
    pins = {name: pin for name, pin in found.pins.items() if name != "recompute" or pin != "none"}
    filled = frozenset({"precision"} if said else ())
    return ImportedJob(fields, pins, assumed=said, unpriced=found.unpriced, framework="accelerate", filled=filled)
