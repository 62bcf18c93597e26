"""The architecture of a transformer decoder, as the cost formulas read it.

A `Model` is a frozen record of sizes and switches. It knows nothing of machines, strategies or software.
Mixture-of-experts layers, latent attention and mixers other than attention are optional sub-records of it
(`costmodels.model.parts`).
"""

from collections.abc import Mapping
from typing import Self

from pydantic import ValidationError, model_validator

from costmodels.model.architecture import Architecture
from costmodels.model.parts import GATED_ACTIVATIONS, BadModel, Experts, LatentAttention, Mamba
from costmodels.model.shape import complete
from costmodels.model.spellings import check_names
from hardware.errors import flatten

__all__ = ["BadModel", "Experts", "LatentAttention", "Mamba", "Model", "checked", "from_shape"]

_DESCRIBED = {
    "MB": "mamba",
    "SP": "selective",
    "D": "delta",
    "L": "linear",
    "C": "convolution",
    "R": "recurrent",
    "W": "receptance",
    "stx": "indexer",
    "cx": "compressed",
    "wcx": "sliding_window",
}
"""Letters of `mixer_pattern` and the field that describes such layers."""


class Model(Architecture):
    """Sizes and switches of one decoder-only transformer that contradict neither each other.

    Build one with `from_shape` (a mapping, usual values filled in, one-line errors) or the catalogue
    (`costmodels.model.catalogue.model`).
    """

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.num_heads % self.num_query_groups:
            raise ValueError(
                f"num_query_groups {self.num_query_groups} does not divide num_heads {self.num_heads}; "
                f"{_divisors(self.num_heads)} do"
            )
        if self.gated_ffn != (self.activation in GATED_ACTIVATIONS):
            raise ValueError(f"activation {self.activation!r} contradicts gated_ffn {self.gated_ffn}")
        if (self.position == "learned") != (self.max_positions > 0):
            raise ValueError(
                f"max_positions {self.max_positions} contradicts position {self.position!r}: only learned positions "
                "have a table"
            )
        self._check_vocabulary_and_window()
        self._check_pattern()
        self._check_experts_and_latent_attention()
        return self

    def _check_vocabulary_and_window(self) -> None:
        if self.padded_vocab_size is not None and self.padded_vocab_size < self.vocab_size:
            raise ValueError(f"padded_vocab_size {self.padded_vocab_size} is less than vocab_size {self.vocab_size}")
        if self.sliding_window is None and self.sliding_window_every is not None:
            raise ValueError(f"sliding_window_every {self.sliding_window_every} needs a sliding_window")
        if self.num_norms == 1 and not self.parallel_block:
            raise ValueError("num_norms 1 needs parallel_block: serial blocks have a norm each")

    def _check_pattern(self) -> None:
        self._check_classic_patterns()
        if self.mixer_pattern:
            return
        pattern, described = self.layer_pattern, {"M": self.mamba, "E": self.moe}
        if pattern and len(pattern) != self.num_layers:
            raise ValueError(f"layer_pattern has {len(pattern)} letters, but there are {self.num_layers} layers")
        if pattern and self.sliding_window_every is not None:
            raise ValueError("sliding_window_every contradicts layer_pattern, whose attention layers are equal")
        for letter, part in described.items():
            if (letter in pattern) != (part is not None) and (pattern or letter == "M"):
                name = {"M": "mamba", "E": "moe"}[letter]
                raise ValueError(f"{name}: layer_pattern {pattern!r:.60} has {pattern.count(letter)} such layers")

    def _check_classic_patterns(self) -> None:
        """A place a layer in every pattern, and nothing that contradicts it."""
        for name in ("mixer_pattern", "ffn_pattern", "variant_pattern"):
            letters = getattr(self, name)
            if letters and len(letters) != self.num_layers:
                raise ValueError(f"{name} has {len(letters)} entries, but there are {self.num_layers} layers")
            if letters and self.layer_pattern:
                raise ValueError(f"{name} contradicts layer_pattern, whose layers are one part each")
        if self.mixer_pattern and self.sliding_window_every is not None:
            raise ValueError("sliding_window_every contradicts mixer_pattern, which already names the local layers")
        if any(place > len(self.variants) for place in self.variant_pattern):
            raise ValueError(f"variant_pattern names more than {len(self.variants)} variants")
        self._check_described()

    def _check_described(self) -> None:
        """A description of every mixer that has a letter, and heads that groups divide in every variant."""
        for letters, field in _DESCRIBED.items():
            if any(letter in self.mixer_pattern for letter in letters) and getattr(self, field) is None:
                raise ValueError(f"{field}: missing for layers {letters[0]!r} of mixer_pattern")
        if "E" in self.ffn_pattern and self.moe is None:
            raise ValueError("moe: missing for layers 'E' of ffn_pattern")
        for variant in range(1, len(self.variants) + 1):
            sizes = self.with_sizes_of(variant)
            if sizes.num_heads % sizes.num_query_groups:
                raise ValueError(f"variants: {sizes.num_query_groups} groups do not divide {sizes.num_heads} heads")

    def _check_experts_and_latent_attention(self) -> None:
        if self.moe is not None and self.num_moe_layers == 0:
            raise ValueError(
                f"moe: dense_layers {self.moe.dense_layers} and moe_every {self.moe.moe_every} leave none of the "
                f"{self.num_layers} layers with experts"
            )
        if self.mla is None:
            return
        if self.head_dim != self.mla.qk_head_dim:
            raise ValueError(f"head_dim {self.head_dim} contradicts mla: its queries are {self.mla.qk_head_dim} wide")
        if self.num_query_groups != self.num_heads:
            raise ValueError(
                f"num_query_groups {self.num_query_groups} contradicts mla, in which each of the {self.num_heads} "
                "heads has a key"
            )
        if self.qk_norm != "none":
            raise ValueError(f"qk_norm {self.qk_norm!r} contradicts mla, whose norms are on the latent vectors")


def _divisors(number: int) -> str:
    return ", ".join(str(size) for size in range(1, number + 1) if number % size == 0)


def from_shape(shape: Mapping[str, object], *, name: str = "custom") -> Model:
    """A model from a mapping of sizes, the unsaid filled with the usual values.

    `num_layers`, `hidden_size`, `num_heads`, `vocab_size` and `seq_length` must be there; None counts as
    unsaid. Unsaid values: as many query groups as heads, `head_dim = hidden_size / num_heads`; then a gated
    model is filled like LLaMA (rotary, RMSNorm, no biases, untied, inner width 8/3 of the hidden size
    rounded up to 256), an ungated one like GPT-3 (learned positions, LayerNorm, biases, tied, 4 times).

    Experts and latent attention are mappings under `moe` and `mla`. Unsaid of them: the width of shared
    experts is their number times the width of a routed one.

    Other spellings are understood: `position = "rope"`, `qk_layernorm`, `linear_bias`,
    `sliding_window_pattern = "5 local : 1 global"`; experts as `experts`, `top_k`, `expert_ffn`, `shared_experts`,
    `shared_expert_ffn` (all together), `dense_layers`, `moe_latent` next to the other sizes; `mla` with `q_lora`,
    `kv_lora`, `qk_nope`, `qk_rope`, `v`. `notes` and `description` are for people.

    ``name`` is the model's where ``shape`` has none.

    Raises:
        BadModel: A field is missing, unknown, of the wrong type or contradicts another one. One line.
    """
    label = str(shape.get("name") or name)
    check_names(shape, Model.model_fields, label)
    return checked(complete(shape, label=label), label=label)


def checked(fields: Mapping[str, object], *, label: str) -> Model:
    """The model of complete `fields`; `BadModel` says on one line what is wrong with them."""
    check_names(fields, Model.model_fields, label)
    try:
        return Model.model_validate(dict(fields))
    except ValidationError as error:
        raise BadModel(f"model {label!r}: {flatten(error).removeprefix('the file: ')}") from None
