"""Feed-forward networks as a model has them, dense ones and experts."""

from costmodels.model.parts import Activation, Count, CountOrZero, Experts, Switch
from costmodels.model.sizes import Sizes


class Networks(Sizes):
    """The networks of every layer."""

    ffn_hidden_size: Count
    """Inner width of the feed-forward network (of each branch when gated) of a dense layer."""
    gated_ffn: Switch = False
    """Two input matrices instead of one (SwiGLU, GeGLU)."""
    activation: Activation = "gelu"
    """Non-linearity of the feed-forward network."""
    clamped_activation: Switch = False
    """Both branches of the gated activation are clamped (GPT-OSS)."""
    ffn_bias: Switch = False
    """Biases of the feed-forward networks, those of experts included."""
    moe: Experts | None = None
    """Mixture-of-experts layers; None has only dense ones."""
    parallel_block: Switch = False
    """Attention and feed-forward read the same input and are summed together."""
    narrow_branch: CountOrZero = 0
    """Width of a branch of two matrices in every layer (Gemma 3n); 0 without one."""

    @property
    def fc1_width(self) -> int:
        """Output width of the first feed-forward matrix of a dense layer; both branches of a gated one."""
        return self.ffn_hidden_size * self.ffn_branches

    @property
    def ffn_branches(self) -> int:
        """Input matrices of a feed-forward network: 2 when gated."""
        return 2 if self.gated_ffn else 1

    @property
    def router_steered(self) -> bool:
        """Whether a bias of the router is moved to balance the load, without a gradient (DeepSeek-V3).

        A learned one belongs to models whose experts have biases too (GPT-OSS).
        """
        return self.moe is not None and (self.moe.router_steered or (self.moe.router_bias and not self.ffn_bias))

    @property
    def expert_hidden_size(self) -> int:
        """Width of the tokens that routed experts read and write."""
        latent = None if self.moe is None else self.moe.latent_size
        return self.hidden_size if latent is None else latent
