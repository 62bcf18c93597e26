"""What a model may have besides attention, mixers and networks: compressed keys, shared weights, streams, a tower."""

from typing import Literal

from costmodels.model.parts import Count, CountOrZero, Switch, Total
from hardware.kernels import Record


class CompressedKeys(Record):
    """Attention in a window and to keys that each stand for many tokens; values are the keys (DeepSeek-V4).

    Attributes:
        query_rank: Width of the latent vector of the queries.
        output_groups: Groups of heads whose outputs are projected apart.
        output_rank: Width that each group is projected to; all of them together are projected to the hidden size.
        dense_rate: Tokens that a key stands for where all keys are attended to.
        sparse_rate: The same where an indexer selects.
    """

    query_rank: Count
    output_groups: Count = 1
    output_rank: Count
    dense_rate: Count = 128
    sparse_rate: Count = 4


class Streams(Record):
    """Several copies of the residual stream.

    Attributes:
        count: How many.
        kind: Weighed anew around every block ("hyper", arXiv 2409.19606), or one of them computed and the others
            predicted, layer by layer ("alternating", arXiv 2301.13310), or each the sum of a run of layers, of which
            every block reads a softmax over those so far ("attended", arXiv 2603.15031).
    """

    count: Count
    kind: Literal["hyper", "alternating", "attended"]


class SharedBlocks(Record):
    """Blocks of attention and a network that several layers run with one set of weights (Zamba, arXiv 2405.16712).

    They read a token next to its embedding, twice the hidden size, and every layer has a square matrix behind them.

    Attributes:
        count: Sets of weights, which take turns.
        attention_rank: Width of low-rank additions to queries, keys and values that every layer has for itself.
        network_rank: The same of the network's first matrices (Zamba2, arXiv 2411.15242); 0 without them.
    """

    count: Count = 1
    attention_rank: CountOrZero = 0
    network_rank: CountOrZero = 0


class Receptance(Record):
    """A recurrence of every channel, weighted by a receptance; the network behind it has one too (RWKV, 2305.13048).

    Attributes:
        width: Channels.
    """

    width: Count


class VisionTower(Record):
    """An encoder of images in front of the first layer, and what projects its output into the decoder.

    Attributes:
        num_layers: Its layers: attention without a mask, and a network.
        hidden_size: Its width.
        num_heads: Heads.
        head_dim: Width of one; None is what divides its width evenly.
        ffn_hidden_size: Inner width of its networks.
        gated_ffn: Three matrices in them, not two.
        parameters: All its parameters, the projection's included.
        projection: Weights that a token multiplies on its way into the decoder.
        patches_per_token: Patches that one token of the sequence stands for.
        image_tokens: Tokens of an image; None where images keep their own size.
    """

    num_layers: Count
    hidden_size: Count
    num_heads: Count
    head_dim: Count | None = None
    ffn_hidden_size: Count
    gated_ffn: Switch = False
    parameters: Total
    projection: CountOrZero = 0
    patches_per_token: Count = 1
    image_tokens: Count | None = None
