"""What one trainer that is built on Transformers' does its own way, as a record; ``job`` makes a job with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from planner.jobs.options import Options
from planner.jobs.transformers import options as usual


@dataclass(frozen=True)
class Trainer:
    """A trainer.

    Attributes:
        title: what people call it.
        options: its options, by the fields of ``planner.jobs.transformers.options``.
        harmless: pattern of names that change no price.
        effects: what options do that are read and not priced.
        precision: of the products where neither bf16 nor fp16 is said.
        weights: the format that a model is loaded in where nothing is said of it: bf16, fp16, fp32, or "products" for
            that of the products; "masters" where weights that train are kept in fp32 whatever they are loaded in.
        adapters: "named" where a rank alone asks for them, "asked" where an option must, "unless" where they train unless
            an option says full.
        rank: of adapters where none is said.
        deepspeed: DeepSpeed's files that it brings, by the name that an option has for them.
        recompute: whether it recomputes layers unless told not to.
        seq_length: of a job that says none; None: the model's.
        stages: what is trained, by the words of its option, as ``STAGES`` has it.
    """

    title: str
    options: Options
    harmless: str = usual.HARMLESS
    effects: Mapping[str, str] = field(default_factory=lambda: usual.EFFECTS)
    precision: Literal["fp32", "bf16"] = "fp32"
    weights: Literal["bf16", "fp32", "products", "masters"] = "fp32"
    adapters: Literal["named", "asked", "unless"] = "named"
    rank: int = 8
    deepspeed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    recompute: bool = False
    seq_length: int | None = None


TRANSFORMERS = Trainer("Transformers' Trainer", usual.OPTIONS)
