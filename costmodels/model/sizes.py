"""What is published of a model, its sizes, its vocabulary and positions, and its norms."""

from typing import Annotated

from pydantic import Field

from costmodels.model.parts import Count, CountOrZero, Fraction, Layers, Norm, Position, Switch, Total
from hardware.kernels import Label, Record


class Published(Record):
    """Names, sources and figures of a model's own training; none of them enters a formula of costs."""

    name: Label
    """Name in the catalogue, or the user's own."""
    title: Label = ""
    """Name as people write it."""
    family: Label = "custom"
    """Family in the catalogue ("gpt3", "llama2", ...)."""
    source: str = ""
    """Where the sizes are published."""
    tokens: Total | None = None
    """Published number of training tokens."""
    batch_tokens: Total | None = None
    """Published number of tokens of an iteration of that training, at its end where it grew."""
    published_parameters: Total | None = None
    """Published number of parameters, for checking."""


class Sizes(Record):
    """Depth and width, and how long a sequence is."""

    num_layers: Layers
    """Transformer layers."""
    hidden_size: Count
    """Width of the residual stream."""
    seq_length: Count
    """Sequence length the model is usually trained at, tokens."""
    reach: Count | None = None
    """Tokens that positions reach, where `seq_length` is held to fewer for want of a published training length
    (Hugging Face's configurations); None elsewhere."""


class Vocabulary(Sizes):
    """The ends of a model: embedding, positions, output head."""

    vocab_size: Count
    """Tokens the tokeniser knows, as published."""
    padded_vocab_size: Count | None = None
    """Rows of the embedding that the published training run allocated, when stated."""
    tied_embeddings: Switch = False
    """The output head shares the embedding's weights."""
    embedding_size: Count | None = None
    """Width of a factorised embedding, projected to and from `hidden_size`; None is `hidden_size`, no projection."""
    embedding_norm: Switch = False
    """A norm follows the embedding (BLOOM)."""
    head_bias: Switch = False
    """Bias of the output head."""
    position: Position = "rotary"
    """How positions enter."""
    max_positions: CountOrZero = 0
    """Rows of the learned position table; 0 without such a table."""
    rotary_fraction: Fraction = 1.0
    """Share of each head that is rotated."""
    rotary_scaled: Switch = False
    """Sines and cosines have a factor, as YaRN's have for longer sequences (GPT-OSS)."""
    per_layer_embedding: CountOrZero = 0
    """Width of the embedding that every layer adds for itself, out of one table for all (Gemma 3n); 0 without one."""
    per_layer_vocab_size: CountOrZero = 0
    """Rows of that table."""
    model_vectors: CountOrZero = 0
    """Further learned numbers outside of layers that multiply no token by a matrix; only their states are priced."""

    @property
    def embedding_width(self) -> int:
        """Width of one row of the embedding table."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size


class Norms(Record):
    """The norms of every layer, and the last one."""

    norm: Norm = "layernorm"
    """Kind of normalisation."""
    norm_weight: Switch = True
    """The norms have a learned scale."""
    norm_bias: Switch = False
    """The norms have a learned shift."""
    num_norms: Annotated[int, Field(strict=True, ge=1, le=4)] = 2
    """Norms of width `hidden_size` per layer: 1 (shared by a parallel block), 2, or 4 (before and after each block)."""
    final_norm: Switch = True
    """A norm precedes the output head."""
    layer_vectors: CountOrZero = 0
    """Further learned numbers of a layer that multiply no token by a matrix: scales of residuals, of an activation,
    norms within a block. Only their states are priced."""
