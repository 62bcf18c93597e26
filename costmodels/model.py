"""The architecture of a dense transformer decoder, as the cost formulas read it.

A `Model` is a frozen record of sizes and switches. It knows nothing of machines, strategies or software.
Layers of another kind (mixture of experts, latent attention, state-space) would join it as optional
sub-records; every field below keeps its meaning for the dense part.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from hardware.errors import MeshwrightError, flatten
from hardware.kernels import Record

# Bounds far above any model keep products of sizes within what arrays of floats and integers hold.
Count = Annotated[int, Field(strict=True, gt=0, lt=2**31)]
CountOrZero = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
Total = Annotated[int, Field(strict=True, gt=0, lt=2**62)]
Switch = Annotated[bool, Field(strict=True)]
Fraction = Annotated[float, Field(strict=True, ge=0.0, le=1.0)]

Position = Literal["learned", "rotary", "alibi", "none"]
Norm = Literal["layernorm", "rmsnorm"]
QkNorm = Literal["none", "head", "full"]
Activation = Literal["gelu", "relu", "silu", "squared_relu", "swiglu", "geglu", "reglu"]

GATED_ACTIVATIONS = frozenset({"swiglu", "geglu", "reglu"})


class BadModel(MeshwrightError):
    """A model description that is incomplete, contradictory or of a kind that is not supported."""


class Model(Record):
    """Sizes and switches of one dense decoder-only transformer.

    Build one with `from_shape` (a mapping, usual values filled in, one-line errors), `Model.dense` (typed
    arguments) or the catalogue (`costmodels.model_catalogue.model`).

    Attributes:
        name: Name in the catalogue, or the user's own.
        title: Name as people write it.
        family: Family in the catalogue ("gpt3", "llama2", ...).
        source: Where the sizes are published.
        num_layers: Transformer layers.
        hidden_size: Width of the residual stream.
        num_heads: Attention (query) heads.
        num_query_groups: Key/value heads; `num_heads` is multi-head, 1 is multi-query attention.
        head_dim: Width of one head; `num_heads * head_dim` may differ from `hidden_size`.
        ffn_hidden_size: Inner width of the feed-forward network (of each branch when gated).
        gated_ffn: Two input matrices instead of one (SwiGLU, GeGLU).
        activation: Non-linearity of the feed-forward network.
        vocab_size: Tokens the tokeniser knows, as published.
        padded_vocab_size: Rows of the embedding that the published training run allocated, when stated.
        seq_length: Sequence length the model is usually trained at, tokens.
        max_positions: Rows of the learned position table; 0 without such a table.
        position: How positions enter.
        rotary_fraction: Share of each head that is rotated.
        tied_embeddings: The output head shares the embedding's weights.
        norm: Kind of normalisation.
        norm_weight: The norms have a learned scale.
        norm_bias: The norms have a learned shift.
        num_norms: Norms of width `hidden_size` per layer: 1 (shared by a parallel block), 2, or 4
            (before and after each block).
        qk_norm: Norm on queries and keys: one shared by all heads ("head"), or over the full width ("full").
        qkv_bias: Biases of the query, key and value projections.
        output_bias: Bias of the attention output projection.
        ffn_bias: Biases of the feed-forward network.
        head_bias: Bias of the output head.
        embedding_norm: A norm follows the embedding (BLOOM).
        final_norm: A norm precedes the output head.
        parallel_block: Attention and feed-forward read the same input and are summed together.
        sliding_window: Tokens a local layer attends to, including the current one; None is full attention.
        sliding_window_every: Every n-th layer attends globally; None applies the window to all layers.
        localized_filtering: Two causal convolutions before queries and keys (Yuan 2.0).
        embedding_size: Width of a factorised embedding, projected to and from `hidden_size`; None is
            `hidden_size`, no projection.
        tokens: Published number of training tokens.
        published_parameters: Published number of parameters, for checking; never used for a cost.
    """

    name: str
    title: str = ""
    family: str = "custom"
    source: str = ""
    num_layers: Count
    hidden_size: Count
    num_heads: Count
    num_query_groups: Count
    head_dim: Count
    ffn_hidden_size: Count
    gated_ffn: Switch = False
    activation: Activation = "gelu"
    vocab_size: Count
    padded_vocab_size: Count | None = None
    seq_length: Count
    max_positions: CountOrZero = 0
    position: Position = "rotary"
    rotary_fraction: Fraction = 1.0
    tied_embeddings: Switch = False
    norm: Norm = "layernorm"
    norm_weight: Switch = True
    norm_bias: Switch = False
    num_norms: Annotated[int, Field(strict=True, ge=1, le=4)] = 2
    qk_norm: QkNorm = "none"
    qkv_bias: Switch = False
    output_bias: Switch = False
    ffn_bias: Switch = False
    head_bias: Switch = False
    embedding_norm: Switch = False
    final_norm: Switch = True
    parallel_block: Switch = False
    sliding_window: Count | None = None
    sliding_window_every: Count | None = None
    localized_filtering: Switch = False
    embedding_size: Count | None = None
    tokens: Total | None = None
    published_parameters: Total | None = None

    @classmethod
    def dense(
        cls,
        *,
        num_layers: int,
        hidden_size: int,
        num_heads: int,
        num_query_groups: int | None = None,
        head_dim: int | None = None,
        ffn_hidden_size: int | None = None,
        gated_ffn: bool = False,
        vocab_size: int = 51200,
        seq_length: int = 2048,
        name: str = "custom",
    ) -> "Model":
        """A model from its sizes alone, with the usual values of `from_shape` for everything else."""
        shape = {
            "name": name,
            "num_layers": num_layers,
            "hidden_size": hidden_size,
            "num_heads": num_heads,
            "num_query_groups": num_query_groups,
            "head_dim": head_dim,
            "ffn_hidden_size": ffn_hidden_size,
            "gated_ffn": gated_ffn,
            "vocab_size": vocab_size,
            "seq_length": seq_length,
        }
        return from_shape(shape)

    @property
    def attention_width(self) -> int:
        """Width of all queries together, `num_heads * head_dim`."""
        return self.num_heads * self.head_dim

    @property
    def key_value_width(self) -> int:
        """Width of all keys (equally: all values) together, `num_query_groups * head_dim`."""
        return self.num_query_groups * self.head_dim

    @property
    def qkv_width(self) -> int:
        """Output width of the fused query, key and value projection."""
        return self.attention_width + 2 * self.key_value_width

    @property
    def fc1_width(self) -> int:
        """Output width of the first feed-forward matrix; both branches of a gated one."""
        return self.ffn_hidden_size * (2 if self.gated_ffn else 1)

    @property
    def embedding_width(self) -> int:
        """Width of one row of the embedding table."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @property
    def linear_bias(self) -> bool:
        """Whether both the attention output and the feed-forward network have biases."""
        return self.output_bias and self.ffn_bias

    @property
    def num_global_layers(self) -> int:
        """Layers that attend to the whole sequence."""
        if self.sliding_window is None:
            return self.num_layers
        return 0 if self.sliding_window_every is None else self.num_layers // self.sliding_window_every

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
                f"max_positions {self.max_positions} contradicts position {self.position!r}: "
                "a learned table has rows, any other kind has none"
            )
        self._check_vocabulary_and_window()
        return self

    def _check_vocabulary_and_window(self) -> None:
        if self.padded_vocab_size is not None and self.padded_vocab_size < self.vocab_size:
            raise ValueError(f"padded_vocab_size {self.padded_vocab_size} is less than vocab_size {self.vocab_size}")
        if self.sliding_window is None and self.sliding_window_every is not None:
            raise ValueError(f"sliding_window_every {self.sliding_window_every} needs a sliding_window")
        if self.num_norms == 1 and not self.parallel_block:
            raise ValueError("num_norms 1 needs parallel_block: serial blocks read a norm each")


def _divisors(number: int) -> str:
    return ", ".join(str(size) for size in range(1, number + 1) if number % size == 0)


# What descriptions of measured runs say beside the sizes: remarks, and sizes of an unreduced model.
REMARKS = frozenset(
    {"kind", "params_b", "notes", "attention", "full_model_layers", "params_reduced_model", "description"}
)

POSITION_NAMES: dict[str, Position] = {
    "learned": "learned",
    "rotary": "rotary",
    "rope": "rotary",
    "alibi": "alibi",
    "none": "none",
    # A relative bias of a few hundred numbers costs nothing that is counted here.
    "relative": "none",
}


def from_shape(shape: Mapping[str, object], *, name: str = "custom") -> Model:
    """A model from a mapping of sizes, the unsaid filled with the usual values.

    `num_layers`, `hidden_size`, `num_heads`, `vocab_size` and `seq_length` must be there; None counts as
    unsaid. Unsaid values: as many query groups as heads, `head_dim = hidden_size / num_heads`; then a gated
    model is filled like LLaMA (rotary, RMSNorm, no biases, untied, inner width 8/3 of the hidden size
    rounded up to 256), an ungated one like GPT-3 (learned positions, LayerNorm, biases, tied, 4 times).

    The remarks and spellings of measured-run descriptions are understood (`kind`, `params_b`, `notes`,
    `position = "rope"`, `qk_layernorm`, `sliding_window_pattern = "5 local : 1 global"`, `linear_bias`).

    Args:
        shape: Fields of `Model` by name.
        name: Name of the model when `shape` has none.

    Raises:
        BadModel: A field is missing, unknown, of the wrong type or contradicts another one, or `kind` is
            not "dense". One line.
    """
    label = str(shape.get("name") or name)
    kind = shape.get("kind", "dense")
    if kind != "dense":
        raise BadModel(f"model {label!r} is of kind {kind!r}; only dense models are described here")
    said = {key: value for key, value in shape.items() if value is not None and key not in REMARKS}
    fields = _spelled_out(said) | {"name": label}
    return checked(_usual(fields, label), label=label)


def checked(fields: Mapping[str, object], *, label: str) -> Model:
    """The model of complete `fields`; `BadModel` says on one line what is wrong with them."""
    try:
        return Model.model_validate(dict(fields))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        contradiction = not first["loc"]
        reason = first["msg"].removeprefix("Value error, ") if contradiction else flatten(error)
        raise BadModel(f"model {label!r}: {reason}") from None


def _spelled_out(said: Mapping[str, object]) -> dict[str, object]:
    fields = dict(said)
    position = fields.get("position")
    if isinstance(position, str):
        fields["position"] = POSITION_NAMES.get(position, position)
    if "linear_bias" in fields:
        both = fields.pop("linear_bias")
        fields.setdefault("output_bias", both)
        fields.setdefault("ffn_bias", both)
    if "qk_layernorm" in fields:
        fields["qk_norm"] = "head" if fields.pop("qk_layernorm") is True else "none"
    pattern = fields.pop("sliding_window_pattern", None)
    if isinstance(pattern, str) and pattern.split()[0].isdigit():
        fields.setdefault("sliding_window_every", int(pattern.split()[0]) + 1)
    return fields


def _usual(fields: Mapping[str, object], label: str) -> dict[str, object]:
    hidden_size, num_heads = _count(fields, "hidden_size", label), _count(fields, "num_heads", label)
    if "head_dim" not in fields and hidden_size % num_heads:
        raise BadModel(
            f"model {label!r}: num_heads {num_heads} does not divide hidden_size {hidden_size}; give head_dim"
        )
    gated = fields.get("gated_ffn", str(fields.get("activation")) in GATED_ACTIVATIONS) is True
    filled: dict[str, object] = {
        "title": label,
        "num_query_groups": num_heads,
        "head_dim": hidden_size // num_heads,
        **(_like_llama(hidden_size) if gated else _like_gpt(hidden_size)),
    }
    filled |= fields
    filled.setdefault("norm_bias", filled["norm"] == "layernorm")
    if filled["position"] == "learned":
        filled.setdefault("max_positions", filled.get("seq_length"))
    return filled


def _count(fields: Mapping[str, object], field: str, label: str) -> int:
    value = fields.get(field)
    if value is None:
        raise BadModel(f"model {label!r}: {field}: missing")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadModel(f"model {label!r}: {field}: expected a positive whole number, got {value!r:.60}")
    return value


def _like_gpt(hidden_size: int) -> dict[str, object]:
    return {
        "ffn_hidden_size": 4 * hidden_size,
        "gated_ffn": False,
        "activation": "gelu",
        "position": "learned",
        "tied_embeddings": True,
        "norm": "layernorm",
        "qkv_bias": True,
        "output_bias": True,
        "ffn_bias": True,
    }


def _like_llama(hidden_size: int) -> dict[str, object]:
    multiple = 256
    return {
        "ffn_hidden_size": -(-8 * hidden_size // (3 * multiple)) * multiple,
        "gated_ffn": True,
        "activation": "swiglu",
        "position": "rotary",
        "tied_embeddings": False,
        "norm": "rmsnorm",
    }
