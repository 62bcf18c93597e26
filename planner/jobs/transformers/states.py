"""States of a Trainer's job: how they are sharded, in which formats, and what trains of a model: all or adapters."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from costmodels.stack.adapters import ADAPTED, OF_ATTENTION
from hardware.errors import not_parsed
from planner.errors import BadRequest
from planner.frameworks.registry import FRAMEWORKS
from planner.jobs.accelerate.read import SHARDS, Find, accelerate_job, deepspeed_document
from planner.jobs.deepspeed.read import AUTO, deepspeed_job
from planner.jobs.imported import ImportedJob
from planner.jobs.options import Document
from planner.jobs.reader import Context, not_here
from planner.jobs.transformers.trainer import EVERYWHERE, FORMATS, TARGETS, Trainer, zero
from planner.jobs.values import data, pattern, real, truth, words

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
    """Precision and sharding of a job, by its options, files that they name and what ``accelerate launch`` is given.

    A bucket that is left open has the square of the layers' width, ``hidden``, where that is known.
    """
    named, find = at("deepspeed"), partial(context.find, beside=beside)
    kind = str((accelerate or {}).get("distributed_type", "")).upper()
    if isinstance(named, Mapping) or (named is not None and str(named).lower() not in _HERE):
        return _of_deepspeed(_document(named, trainer, context, find), str(named), at, hidden)
    if kind == "DEEPSPEED" and accelerate is not None:
        name = (accelerate.get("deepspeed_config") or {}).get("deepspeed_config_file")
        return _of_deepspeed(deepspeed_document(accelerate, find), str(name), at, hidden)
    if str(named).lower() == "true" or at("zero_stage") is not None:
        own = _only(context)
        found = _of_deepspeed(own or _by_options(at), "the file of --deepspeed_config", at, hidden)
        silent = own is None and at("zero_stage") is not None and not (at("weights") or at("bf16") or at("fp16"))
        silent = silent and "precision" not in context.known
        said = "neither bf16 nor fp16 is given; fp16 is priced, as is usual with --zero_stage; --precision changes it"
        return replace(found, assumed=(*found.assumed, said), filled=frozenset({"precision"})) if silent else found
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
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{option}: {not_parsed('JSON', error)}") from None
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
        said = not_here(f"deepspeed {name}", SHARDS)
        own = next((one for one in ("bf16", "fp16") if at(one)), None)
        fields = stack | ({"precision": own} if own else {})
        return ImportedJob(fields, {}, missing=(said,), framework="deepspeed")
    found = deepspeed_job(filled(document, at, hidden), of_script=True)
    assumed = tuple(one for one in found.assumed if not one.startswith("no optimizer"))  # the Trainer has one
    fields = {**stack, **found.fields}
    return replace(found, fields=fields, assumed=assumed, framework="deepspeed", filled=frozenset())


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
            raise BadRequest(not_here(f"fsdp_config {given}", SHARDS))
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


_WHOLE: Final = frozenset({"full", "none", "false", "all"})
LAST_LAYERS: Final = "freeze"
"""Only some layers train, the last ones usually."""
_LOW_RANK, _NO_PRICE = (frozenset(words(data("transformers/words")[name])) for name in ("low_rank", "no_price"))
"""Ways to train adapters of low rank, and a few weights of a frozen model that are none."""
_OF_ADAPTERS: Final = frozenset({"lora", "qlora", "dora", "peft", "adapter", "adapters"})
_OFF: Final = _WHOLE - {"all"} | {"0", "no", "off", "null"}
_NARROW: Final = (4, 8)
_PEFT: Final = ("linear_qkv",)
"""PEFT's own modules of Llama's kind, queries and values, where none are named."""


def adapted_job(
    at: Document, trainer: Trainer, sharded: ImportedJob, *, experts: bool = False, said: bool = False
) -> ImportedJob:
    """Adapters and the format of frozen weights, or the formats of all states where everything trains.

    Adapters of ``experts`` are not priced; those that the user has ``said`` stand.
    """
    method = str(at("method") or "").lower()
    loaded, format_remarks = _loaded(at, trainer, sharded)
    if not said and not _adapts(at, trainer, method):
        return _all_train(at, trainer, sharded, loaded, format_remarks)
    modules, assumed, unpriced = adapted_modules(at("targets"))
    if experts and len(left := [name for name in modules if name in OF_ATTENTION]) < len(modules):
        modules = left or OF_ATTENTION
        unpriced += ("adapters of experts are not priced: more time and memory if there are any",)
    narrow = sharded.framework == "deepspeed" and sharded.fields.get("precision") != "fp32"
    base = _base(at, trainer, method, "bf16" if narrow else loaded)
    dropout = "+dropout" if real(at("lora_dropout")) > 0 else ""
    kernels = "16-bit" if sharded.framework == "deepspeed" else "autocast"
    adapters = f"{at('rank') or trainer.rank}:{','.join(modules)}/{kernels}{dropout}"
    if said:
        assumed = ()
    elif not at("rank"):
        assumed += (f"no rank of adapters is given; {trainer.rank} is priced, the default of {trainer.title}",)
    fields = {"adapters": adapters, **({"base_precision": base} if base else {})}
    pins = {}
    if sharded.pins.get("offload", "none") != "none":
        pins = {"offload": "none"}
        unpriced += ("with adapters, states and weights are priced on the GPU, though some are offloaded: less memory",)
    why = format_remarks if base in {None, "bf16", "fp32"} else ()
    return ImportedJob(fields, pins, assumed=(*why, *assumed), unpriced=unpriced)


def _all_train(at: Document, trainer: Trainer, sharded: ImportedJob, loaded: str, said: tuple[str, ...]) -> ImportedJob:
    """The job where all weights train, or are priced so."""
    method = str(at("method") or "").lower()
    other = bool(method) and method not in _WHOLE | {LAST_LAYERS}
    effect = f"{method} trains only some weights; all are priced, so it takes less memory and time"
    rank, switch = (trainer.options[field].word for field in ("rank", "use_peft"))
    silent = at.raw("use_peft") is None and not method and not trainer.own_adapters
    idle = at("rank") is not None and silent
    more = (f"{rank} has no effect without {switch}; all weights train",) if idle else ()
    fields = _states(loaded, at, trainer, sharded)
    return ImportedJob(fields, assumed=(*said, *more), unpriced=(effect,) if other else ())


def asked_adapters(at: Document, trainer: Trainer, known: Collection[str]) -> ImportedJob:
    """What must be said of adapters that a script has words of its own for: whether they train, and their rank."""
    if {"adapters", "task"} & set(known):
        return ImportedJob()
    if (other := str(at("method") or "").lower()) in _NO_PRICE:
        said = f"{other} has no price; --adapters RANK prices adapters of low rank, --task finetune all weights"
        return ImportedJob(missing=(said,))
    if not trainer.own_adapters:
        return ImportedJob()
    method, switched = str(at("method") or "").lower(), at.raw("use_peft")
    if _adapts(at, trainer, method):
        said = "adapters are on, but no rank is given; --adapters RANK gives it"
        return ImportedJob(missing=(said,) if switched and not at("rank") and trainer.adapters == "named" else ())
    found = _own_words(at, trainer) if switched is None and not method else []
    said = f"{', '.join(found)} may or may not switch adapters on, depending on the script"
    ways = "--adapters RANK says that adapters train, --task finetune that all weights do"
    return ImportedJob(missing=(f"{said}; {ways}",) if found else ())


def _own_words(at: Document, trainer: Trainer) -> list[str]:
    """Options that are about adapters by their names or values, and are not off."""
    dull = re.compile(pattern(trainer.harmless))
    found = []
    for name, value in at.table("").items():
        parts, word = set(name.lower().split("_")), str(value).lower()
        named = bool(parts & _OF_ADAPTERS) and "mm" not in parts  # LLaVA's projector is an adapter by name only
        if value and word not in _OFF and (named or (word in _LOW_RANK and not dull.fullmatch(name))):
            found.append(name)
    return found


def _adapts(at: Document, trainer: Trainer, method: str) -> bool:
    if method:
        return method in _LOW_RANK
    if at.raw("use_peft") is not None:
        return bool(at("use_peft"))
    narrow = at("four_bits") or at("eight_bits") or at("bits") in _NARROW
    return trainer.adapters == "unless" or bool(narrow) or (trainer.adapters == "named" and bool(at("rank")))


def _loaded(at: Document, trainer: Trainer, sharded: ImportedJob) -> tuple[str, tuple[str, ...]]:
    """The format that weights are loaded in, and what was assumed of it."""
    precision = sharded.fields.get("precision", "fp32")
    word = str(at("weights") or "").rpartition(".")[2].lower()
    if word in FORMATS:
        return FORMATS[word], ()
    usual = dict.fromkeys(("products", "masters", "kept"), precision).get(trainer.weights, trainer.weights)
    usual = usual if usual in {"bf16", "fp16", "fp32"} else "bf16"
    if word == "auto":
        return "bf16", ("weights are loaded in the format of the checkpoint; bf16 is priced",)
    shown = sharded.framework == "accelerate" and precision != "fp32"
    remark = f"no format of weights is given; {usual} is priced, the default of {trainer.title}; dtype changes it"
    return usual, ((remark,) if shown else ())


def _states(loaded: str, at: Document, trainer: Trainer, sharded: ImportedJob) -> dict[str, Any]:
    """States of 16 bits where the optimizer steps the loaded weights themselves: neither DeepSpeed nor FSDP does."""
    alone = not sharded.pins.get("zero_stage") or trainer.weights == "kept"
    pure = sharded.fields.get("stack") == STACK and alone and loaded != "fp32"
    if sharded.fields.get("stack") != STACK:
        return {}
    if not pure or trainer.weights == "masters":
        return {} if sharded.pins.get("zero_stage") else {"main_grads": "fp32"}
    narrow = str(at("optimizer") or "adamw").lower()
    eight = any(one in narrow for one in ("8bit", "4bit", "adafactor", "sgd", "lion", "muon"))
    changes = {"stack.states.weight_bytes": 2, "stack.states.optimizer_bytes": 8, "stack.gradients.ddp_bucket_bytes": 2}
    return {"main_grads": "bf16", "changes": changes} | ({} if eight else {"optimizer": "adam-bf16"})


def _base(at: Document, trainer: Trainer, method: str, loaded: str) -> str | None:
    """The format of frozen weights."""
    bits = at("bits")
    if at("four_bits") or bits == 4 or method == "qlora":
        return "nf4-double" if _doubled(at, usual=trainer.double) else "nf4"
    if at("eight_bits") or bits == 8:
        return "int8"
    return {"fp32": "fp32"}.get(loaded)


def _doubled(at: Document, *, usual: bool) -> bool:
    """Whether the constants of blocks are quantised too."""
    names = words("use_bnb_nested_quant double_quantization bnb_4bit_use_double_quant double_quant use_nested_quant")
    places = (at.table(""), at.table("bnb_config_kwargs"))
    said = [value for place in places for name in names if (value := truth(place.get(name, ""))) is not None]
    return said[0] if said else usual


def adapted_modules(given: Any) -> tuple[Sequence[str], tuple[str, ...], tuple[str, ...]]:
    """Megatron's names of the adapted modules, what was assumed of them, and what is not priced of them."""
    if given is None:
        said = "no modules of adapters are named; queries, keys and values are priced, though PEFT takes two of these"
        return list(_PEFT), (f"{said} for models like Llama; --adapters changes it",), ()
    listed = given if isinstance(given, list | tuple) else str(given).split()
    parts = [part for one in listed for part in str(one).replace(";", ",").split(",") if part.strip()]
    names = [part.strip().strip("'\"[]()").lower() for part in parts]
    if EVERYWHERE & set(names):
        return list(ADAPTED), (), ()
    meant = {name: TARGETS.get(name) or TARGETS.get(name.rpartition(".")[2]) for name in names}
    found = {module for modules in meant.values() if modules for module in modules.split(",")}
    unknown = [name for name, modules in meant.items() if not modules]
    if not found:
        return list(ADAPTED), (), (f"modules {', '.join(unknown)} are not known; adapters of all modules are priced",)
    unpriced = (f"adapters of {', '.join(unknown)} are not priced: a little more memory",) if unknown else ()
    return [name for name in ADAPTED if name in found], (), unpriced
