"""What Transformers' TrainingArguments and the scripts around them say, and what trainers on them do their own way.

As of Transformers 5; older names are read. Trainers have these options too, with a few of their own added or in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from planner.jobs.options import Option, Options, rows
from planner.jobs.values import data, each_name, words

_SAID: Final = data("transformers/words")


def training_options(*own: Option) -> Options:
    """TrainingArguments with a trainer's own options, each in the place of the one of its field if there is one."""
    return Options(*({row.field: row for row in rows(_SAID["options"])} | {row.field: row for row in own}).values())


OPTIONS: Final = training_options()
RANKED: Final[Mapping[str, str]] = _SAID["ranked"]
"""By the beginning of its name, what an optimizer is priced as whose states are fewer than any bytes per parameter."""
PAGED: Final = "paged_"
"""Begins the names of optimizers whose states move to the host where the device runs out."""
ATTENTION: Final = {"": ()} | {
    word: words(kernels) for kernels, names in _SAID["attention"].items() for word in words(names)
}
"""Kernels by what ``attn_implementation`` says; none: as PyTorch's scaled_dot_product_attention chooses."""
FORMATS: Final = {word: meant for meant, names in _SAID["formats"].items() for word in words(names)}
"""Formats by what ``dtype`` says."""
TARGETS: Final = {name: meant for meant, names in _SAID["targets"].items() for name in words(names)}
"""Modules of Transformers' models by the names of Megatron's."""
EVERYWHERE: Final = frozenset(words(_SAID["everywhere"]))
EFFECTS: Final[Mapping[str, str]] = each_name(_SAID["unpriced"])
"""What options do that are read and not priced."""
HARMLESS: Final = words(_SAID["harmless"])
"""Options that change neither time nor memory of an iteration."""


@dataclass(frozen=True)
class Trainer:
    """A trainer.

    Attributes:
        title: what people call it.
        options: its options, by the fields of ``planner.jobs.transformers.trainer``.
        harmless: names of options that change no price, as ``words`` has them.
        effects: what options do that are read and not priced.
        precision: of the products where neither bf16 nor fp16 is said.
        switches: whether it switches bf16 on itself where neither is said.
        weights: the format that a model is loaded in where nothing is said of it: bf16, fp16, fp32, or "products" for
            that of the products; "masters" where weights that train are kept in fp32 whatever they are loaded in,
            "kept" where they train in the format that they are loaded in, sharded or not.
        adapters: "named" where a rank alone asks for them, "asked" where an option must, "unless" where they train
            unless an option says full.
        own_adapters: whether a script may have words of its own for adapters, so that those that nothing here switches
            on leave open what trains.
        rank: of adapters where none is said.
        double: whether weights of 4 bits have quantised constants where nothing is said of it.
        deepspeed: DeepSpeed's files that it brings, by the name that an option has for them.
        fsdp: tables of ``fsdp_config`` that it brings, by the name that ``fsdp`` has for them.
        recompute: whether it recomputes layers unless a job says not to.
        seq_length: of a job that says none; None: the model's.
        batch: sequences of an iteration, which accumulation makes up where no steps are said; None: one step.
        translated: its options in the words of ``options``, where some mean what no word there does.
    """

    title: str
    options: Options
    harmless: tuple[str, ...] = HARMLESS
    effects: Mapping[str, str] = field(default_factory=lambda: EFFECTS)
    precision: Literal["fp32", "bf16"] = "fp32"
    switches: bool = False
    weights: Literal["bf16", "fp32", "products", "masters", "kept"] = "fp32"
    adapters: Literal["named", "asked", "unless"] = "named"
    own_adapters: bool = False
    rank: int = 8
    double: bool = False
    deepspeed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fsdp: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    recompute: bool = False
    seq_length: int | None = None
    batch: int | None = None
    translated: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict


def zero(stage: int, *, offload: bool = False, bf16: bool | str = "auto", **more: Any) -> dict[str, Any]:
    """A DeepSpeed document of the kind that trainers bring: everything but the stage is left to the Trainer."""
    host = {"device": "cpu", "pin_memory": True}
    away = {"offload_optimizer": host, **({"offload_param": host} if stage == 3 else {})} if offload else {}
    left = dict.fromkeys(("train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto")
    tables = {"bf16": {"enabled": bf16}, "fp16": {"enabled": "auto"}}
    return {**left, **tables, "zero_optimization": {"stage": stage, **away, **more}}


TRANSFORMERS = Trainer("Transformers' Trainer", OPTIONS, own_adapters=True)
