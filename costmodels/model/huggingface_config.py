"""Typed reading of a Hugging Face `config.json`, and the pieces that several model families share."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any

from costmodels.model.parts import LARGEST, MOST_LAYERS, Activation, BadModel

# A configuration states how far positions reach, not the length the model was trained at.
LONGEST_DEFAULT_SEQUENCE = 8192

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "relu2": "squared_relu",
    "swigluoai": "silu",
    "xielu": "xielu",
    # Both branches are held within bounds by a hyperbolic tangent, in the same kernel.
    "situ": "silu",
}
GATED: dict[Activation, Activation] = {"gelu": "geglu", "silu": "swiglu", "relu": "reglu"}

# How families that have experts spell their number; some nest it in `ffn_config`.
EXPERT_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts")

Fields = dict[str, object]
_WHOLE = "a positive whole number"
_SHARE = "a number from 0 to 1"


class UnsupportedFamily(BadModel):
    """A Hugging Face model family whose layers a `Model` cannot describe."""


def model_type(config: Mapping[str, object], known: Iterable[str]) -> str:
    """The family of a configuration, from `model_type` or else the first of `architectures`.

    ``known`` are families among which a class name ("LlamaForCausalLM") is recognised.

    Raises:
        BadModel: It has neither.
    """
    family = config.get("model_type")
    if isinstance(family, str) and family:
        return family
    classes = config.get("architectures")
    if isinstance(classes, list) and classes and isinstance(classes[0], str):
        stem = re.sub("(ForCausalLM|LMHeadModel|ForConditionalGeneration)$", "", classes[0]).lower()
        return next((name for name in known if name.replace("_", "") == stem), stem)
    raise BadModel("not a Hugging Face configuration: it names no family, neither as model_type nor as architectures")


class Entries(dict[str, object]):
    """The entries of a configuration, which remember what was asked for."""

    def __init__(self, entries: Mapping[str, object]) -> None:
        super().__init__(entries)
        self.asked: set[str] = set()

    def get(self, key: str, default: object = None) -> object:
        """The entry of that name."""
        self.asked.add(key)
        return super().get(key, default)


@dataclass(frozen=True)
class Config:
    """Typed reading of one configuration; every wrong or missing field is one line."""

    entries: Mapping[str, object]
    label: str
    seq_length: int | None = None
    """Tokens of the sequence that is asked for, where one is."""
    spelled: Mapping[str, str] | None = None
    """The file's own names of keys that are asked for by a common one."""

    def get(self, field: str) -> object:
        """The raw entry, None when absent."""
        return self.entries.get(field)

    def wrong(self, field: str, expected: str) -> BadModel:
        """The error for an entry of the wrong type."""
        return BadModel(f"{self.label}: {field}: expected {expected}, got {self.get(field)!r:.60}")

    def checked(self, field: str, kinds: type | UnionType, expected: str) -> Any:
        """An entry of the expected type, None when absent or null; true and false are no numbers."""
        value = self.get(field)
        if value is not None and (not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool)):
            raise self.wrong(field, expected)
        return value

    def count(self, *spellings: str, default: int | None = None) -> int:
        """A positive whole number under the first spelling present; null counts as absent."""
        for field in spellings:
            if (value := self.checked(field, int, _WHOLE)) is not None:
                if not 1 <= value < LARGEST:
                    raise self.wrong(field, _WHOLE if value < 1 else f"a whole number below {LARGEST:,}")
                return int(value)
        if default is None:
            own = (self.spelled or {}).get(spellings[0], spellings[0])
            raise BadModel(f"{self.label}: {own}: missing from the Hugging Face configuration")
        return default

    def few_layers(self) -> None:
        """Refuse a number of layers that no model has, before a list of them is made."""
        layers = self.get("num_hidden_layers")
        if isinstance(layers, int) and layers > MOST_LAYERS:
            raise self.wrong("num_hidden_layers", f"at most {MOST_LAYERS:,} layers")

    def reach(self, *spellings: str) -> int:
        """How far positions reach, at least as far as the sequence that is asked for where nothing says it."""
        if self.seq_length is None and all(self.get(field) is None for field in spellings):
            own = (self.spelled or {}).get(spellings[0], spellings[0])
            raise BadModel(
                f"{self.label}: {own}: missing from the Hugging Face configuration; add it, or give --seq-len 4096"
            )
        return self.count(*spellings, default=self.seq_length)

    def count_or_zero(self, field: str) -> int:
        """A whole number that may be 0; null and absent are 0."""
        return 0 if self.get(field) in (None, 0) and self.get(field) is not False else self.count(field)

    def switch(self, field: str, *, default: bool) -> bool:
        """True or false."""
        value = self.checked(field, bool, "true or false")
        return default if value is None else bool(value)

    def fraction(self, field: str, *, default: float) -> float:
        """A number from 0 to 1."""
        value = self.checked(field, int | float, _SHARE)
        if value is not None and not 0 <= value <= 1:
            raise self.wrong(field, _SHARE)
        return default if value is None else float(value)

    def inner(self, field: str) -> "Config":
        """A nested configuration; absent or null is an empty one."""
        value = self.checked(field, Mapping, "an object")
        return Config({}, self.label) if value is None else Config(value, f"{self.label}: {field}")

    def activation(self, field: str, *, default: str, gated: bool) -> Activation:
        """The non-linearity, as the gated unit it is part of when `gated`."""
        value = self.get(field)
        plain = ACTIVATIONS.get(value if isinstance(value, str) else default)
        if plain is None or not isinstance(value, str | None) or (gated and plain not in GATED):
            raise self.wrong(field, f"one of {', '.join(ACTIVATIONS)}")
        return GATED[plain] if gated else plain


def refuse_experts(config: Config, family: str) -> None:
    """Refuse a configuration that states experts under a family whose layers have none.

    Raises:
        BadModel: It does; planned as it stands, it would be a dense model of a fraction of the size.
    """
    for part in (config, config.inner("ffn_config")):
        for field in EXPERT_COUNTS:
            if part.count_or_zero(field) > 1:
                raise BadModel(
                    f"{part.label}: {field} {part.get(field)}: model_type {family!r} has no experts; "
                    f"name a family that has them, such as mixtral or qwen3_moe, or leave the field out"
                )


def sequence(reach: int) -> Fields:
    """The default length where positions reach that far, and how far they do where it is held to less."""
    longer = reach > LONGEST_DEFAULT_SEQUENCE
    return {"seq_length": LONGEST_DEFAULT_SEQUENCE, "reach": reach} if longer else {"seq_length": reach}


def partial_rotary(config: Config, *, default: float) -> float:
    """Share of each head that is rotated, in the older or the newer place of the configuration."""
    newer = config.inner("rope_parameters").fraction("partial_rotary_factor", default=default)
    return config.fraction("partial_rotary_factor", default=newer)


def rotary_scaled(config: Config) -> bool:
    """Whether sines and cosines get a factor: YaRN's, unless two of them cancel (DeepSeek), and LongRoPE's."""
    for field in ("rope_parameters", "rope_scaling"):
        entry = config.inner(field)
        if (entry.get("rope_type") or entry.get("type")) in ("yarn", "longrope"):
            return entry.get("mscale") is None or entry.get("mscale") != entry.get("mscale_all_dim")
    return False
