"""What trains of a model: all of it, or low-rank adapters on frozen weights, and in which formats."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, Final

from costmodels.stack.adapters import ADAPTED, OF_ATTENTION
from planner.jobs.data import data, pattern, words
from planner.jobs.imported import ImportedJob
from planner.jobs.options import Document
from planner.jobs.transformers.sharding import STACK
from planner.jobs.transformers.trainer import EVERYWHERE, FORMATS, TARGETS, Trainer
from planner.jobs.values import real, truth

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
    modules, assumed, unpriced = _modules(at("targets"))
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


def _modules(given: Any) -> tuple[Sequence[str], tuple[str, ...], tuple[str, ...]]:
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
