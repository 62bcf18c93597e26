"""A vision tower as a model of its own: its layers are those of an encoder."""

from functools import lru_cache

from costmodels.model.mechanisms import VisionTower
from costmodels.model.model import Model, from_shape


@lru_cache(maxsize=8)
def encoder(tower: VisionTower) -> Model:
    """The tower's layers; patches stand for tokens, there is no vocabulary to speak of."""
    return from_shape(
        {
            "name": "vision tower",
            "num_layers": tower.num_layers,
            "hidden_size": tower.hidden_size,
            "num_heads": tower.num_heads,
            "head_dim": tower.head_dim or max(tower.hidden_size // tower.num_heads, 1),
            "ffn_hidden_size": tower.ffn_hidden_size,
            "gated_ffn": tower.gated_ffn,
            "activation": "swiglu" if tower.gated_ffn else "gelu",
            "position": "none",
            "vocab_size": 1,
            "seq_length": 1,
            "bidirectional": True,
        }
    )
