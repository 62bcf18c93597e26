"""What trains of a model: all of it, or low-rank adapters beside weights that are frozen, and in which formats."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from costmodels.stack.adapters import ADAPTED
from planner.jobs.imported import ImportedJob
from planner.jobs.options import Document
from planner.jobs.transformers.options import EVERYWHERE, TARGETS
from planner.jobs.transformers.sharding import STACK
from planner.jobs.transformers.trainer import Trainer

_WHOLE: Final = frozenset({"full", "none", "false", "all"})
_LOW_RANK: Final = frozenset({"lora", "qlora", "adalora", "dora", "longlora", "lora+", "pissa", "rslora"})
_FORMATS: Final = {
    **dict.fromkeys(("bfloat16", "bf16"), "bf16"),
    **dict.fromkeys(("float16", "fp16", "half"), "fp16"),
    **dict.fromkeys(("float32", "fp32", "float"), "fp32"),
}
_PEFT: Final = ("linear_qkv",)
"""PEFT's own modules of Llama's kind, queries and values, where none are named."""


def adapted_job(at: Document, trainer: Trainer, sharded: ImportedJob) -> ImportedJob:
    """Adapters and the format of frozen weights, or the formats of all states where everything trains."""
    method = str(at("method") or "").lower()
    trains = _adapts(at, trainer, method)
    loaded, said = _loaded(at, trainer, sharded)
    if not trains:
        other = method and method not in _WHOLE
        told = (
            (f"{method} trains a part of the weights; all are priced: less memory and time than that",) if other else ()
        )
        return ImportedJob(_states(loaded, at, trainer, sharded), assumed=said, unpriced=told)
    rank = at("rank") or trainer.rank
    modules, more = _modules(at("targets"))
    kernels = "16-bit" if sharded.framework == "deepspeed" else "autocast"
    dropout = "+dropout" if _number(at("lora_dropout")) > 0 else ""
    fields: dict[str, Any] = {"adapters": f"{rank}:{','.join(modules)}/{kernels}{dropout}"}
    fields |= {"base_precision": base} if (base := _base(at, method, loaded)) else {}
    pins, unpriced = {}, more
    if sharded.pins.get("offload", "none") != "none":
        pins = {"offload": "none"}
        unpriced += ("states of adapters are priced on the device, though the file offloads: less memory than priced",)
    return ImportedJob(
        fields, pins, assumed=said if base is None or base in {"bf16", "fp32"} else (), unpriced=unpriced
    )


def _adapts(at: Document, trainer: Trainer, method: str) -> bool:
    if method:
        return method in _LOW_RANK
    if at.raw("use_peft") is not None:
        return bool(at("use_peft"))
    narrow = at("four_bits") or at("eight_bits") or at("bits")
    return trainer.adapters == "unless" or bool(narrow) or (trainer.adapters == "named" and at("rank") is not None)


def _loaded(at: Document, trainer: Trainer, sharded: ImportedJob) -> tuple[str, tuple[str, ...]]:
    """The format that weights are loaded in, and what was assumed of it."""
    precision = sharded.fields.get("precision", "fp32")
    word = str(at("weights") or "").rpartition(".")[2].lower()
    if word in _FORMATS:
        return _FORMATS[word], ()
    usual = {"products": precision, "masters": precision}.get(trainer.weights, trainer.weights)
    usual = usual if usual in {"bf16", "fp16", "fp32"} else "bf16"
    if word == "auto":
        return "bf16", ("weights are loaded as their checkpoint has them; bf16 is priced",)
    shown = sharded.framework == "accelerate" and precision != "fp32"
    told = f"no format of weights is said; {usual} is priced, as {trainer.title} loads them; dtype says otherwise"
    return usual, ((told,) if shown else ())


def _states(loaded: str, at: Document, trainer: Trainer, sharded: ImportedJob) -> dict[str, Any]:
    """States of 16 bits where the optimizer steps the loaded weights themselves: neither DeepSpeed nor FSDP does."""
    pure = sharded.fields.get("stack") == STACK and not sharded.pins.get("zero_stage") and loaded != "fp32"
    if sharded.fields.get("stack") != STACK:
        return {}
    if not pure or trainer.weights == "masters":
        return {} if sharded.pins.get("zero_stage") else {"main_grads": "fp32"}
    narrow = str(at("optimizer") or "adamw").lower()
    eight = any(one in narrow for one in ("8bit", "4bit", "adafactor", "sgd", "lion", "muon"))
    changes = {"stack.states.weight_bytes": 2, "stack.states.optimizer_bytes": 8, "stack.gradients.ddp_bucket_bytes": 2}
    return {"main_grads": "bf16", "changes": changes} | ({} if eight else {"optimizer": "adam-bf16"})


def _base(at: Document, method: str, loaded: str) -> str | None:
    """The format of frozen weights."""
    bits = at("bits")
    if at("four_bits") or bits == 4 or method == "qlora":
        return "nf4-double" if _doubled(at) else "nf4"
    if at("eight_bits") or bits == 8:
        return "int8"
    return {"fp32": "fp32"}.get(loaded)


def _doubled(at: Document) -> bool:
    names = ("use_bnb_nested_quant", "double_quantization", "bnb_4bit_use_double_quant", "double_quant")
    return any(str(at.table("").get(name)).lower() == "true" for name in names)


def _modules(given: Any) -> tuple[list[str], tuple[str, ...]]:
    """Megatron's names of the adapted modules, and what is not priced of them."""
    if given is None:
        said = "no modules of adapters are named; queries and values are, as PEFT adapts Llama's kind"
        return list(_PEFT), (said, "adapters of queries and values are priced on queries, keys and values")
    words = [word for one in _listed(given) for word in str(one).replace(";", ",").split(",") if word.strip()]
    names = [word.strip().strip("'\"[]()").lower() for word in words]
    if EVERYWHERE & set(names):
        return list(ADAPTED), ()
    found = {TARGETS[name] for name in names if name in TARGETS}
    unknown = [name for name in names if name not in TARGETS]
    if not found:
        return list(ADAPTED), (f"modules {', '.join(unknown)} are not known; adapters of all modules are priced",)
    told = (f"adapters of {', '.join(unknown)} are not priced: a little more memory",) if unknown else ()
    return [name for name in ADAPTED if name in found], told


def _listed(given: Any) -> Iterable[Any]:
    return given if isinstance(given, list | tuple) else str(given).split()


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0
