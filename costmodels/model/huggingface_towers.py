"""Vision towers beside a decoder, as far as they are told: their parameters, and FLOP of a patch.

A tower is no part of a `Model`: what trains or freezes it is not priced. Counted are the tower's own module and, where
it is part of that, the merger into the decoder's width; projectors that stand apart are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from costmodels.model.huggingface_config import Config
from costmodels.model.parts import BadModel


class Tower(NamedTuple):
    """What the implementation of one kind of tower fixes."""

    depth: str = "num_hidden_layers"
    """Key of its layers."""
    width: str = "hidden_size"
    """Key of its width."""
    gated: bool = False
    """Three matrices in the feed-forward network, not two."""
    bias: bool = True
    """Biases of all matrices of a layer."""
    norm: int = 2
    """Learned numbers of a norm per value: a scale, and perhaps a shift."""
    patch_bias: bool = True
    positions: str = "square"
    """Learned positions: of an image's patches, under a key, or none."""
    class_token: bool = False
    outer_norms: int = 1
    """Norms around the layers."""
    pooled: bool = False
    """A head of attention by one query follows unless it is switched off."""
    merger: bool = False
    """Neighbouring patches are merged into the decoder's width by two matrices."""


TOWERS: Final[Mapping[str, Tower]] = {
    "clip_vision_model": Tower(patch_bias=False, class_token=True, outer_norms=2),
    "pixtral": Tower(gated=True, bias=False, norm=1, patch_bias=False, positions=""),
    "qwen2_5_vl": Tower("depth", gated=True, norm=1, patch_bias=False, positions="", outer_norms=0, merger=True),
    "qwen2_vl": Tower("depth", "embed_dim", patch_bias=False, positions="", outer_norms=0, merger=True),
    "qwen3_5": Tower("depth", positions="num_position_embeddings", outer_norms=0, merger=True),
    "qwen3_5_moe": Tower("depth", positions="num_position_embeddings", outer_norms=0, merger=True),
    "qwen3_vl": Tower("depth", positions="num_position_embeddings", outer_norms=0, merger=True),
    "qwen3_vl_moe": Tower("depth", positions="num_position_embeddings", outer_norms=0, merger=True),
    "siglip2_vision_model": Tower(positions="num_patches", pooled=True),
    "siglip_vision_model": Tower(pooled=True),
}
"""By `model_type` of the vision configuration, or of the whole."""
SEVERAL: Final = frozenset({"deepseek_vl_hybrid", "video_llava"})
"""Families with a tower more."""


def tower_of(config: Mapping[str, object]) -> tuple[int, float] | None:
    """Parameters of a configuration's vision tower and forward FLOP of one patch; None where it is of no known kind.

    FLOP are those of the layers' matrices; attention among patches grows with an image and is left out.
    """
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping) or config.get("model_type") in SEVERAL:
        return None
    known = next((TOWERS[kind] for name in (vision, config) if (kind := _kind(name)) in TOWERS), None)
    if known is None:
        return None
    try:
        return _counted(Config(vision, "vision_config"), known)
    except BadModel:  # sizes that are the default are left out of many files
        return None


def _kind(config: Mapping[str, object]) -> str:
    return str(config.get("model_type", "")).removesuffix("_vision").removesuffix("_vision_encoder")


def _counted(config: Config, tower: Tower) -> tuple[int, float]:
    h, layers = config.count(tower.width), config.count(tower.depth)
    ratio = config.get("mlp_ratio")
    f = int(ratio * h) if isinstance(ratio, int | float) else config.count("intermediate_size")
    weights = 4 * h * h + (3 if tower.gated else 2) * h * f
    biases = (4 * h + (2 if tower.gated else 1) * f + h) * int(tower.bias)
    layer = weights + biases + 2 * tower.norm * h
    outside = _patches(config, tower, h) + tower.outer_norms * tower.norm * h
    if tower.pooled and config.switch("vision_use_head", default=True):
        outside += h + 4 * h * h + 4 * h + 2 * h + 2 * h * f + f + h
    if tower.merger:
        outside += _merger(config, tower, h)
    return layers * layer + outside, 2.0 * layers * weights


def _patches(config: Config, tower: Tower, h: int) -> int:
    """The embedding of patches and their learned positions."""
    side = config.count("patch_size", "spatial_patch_size")
    channels, frames = (
        config.count("in_channels", "num_channels", default=3),
        config.count("temporal_patch_size", default=1),
    )
    places = 0
    if tower.positions == "square":
        places = (config.count("image_size") // side) ** 2
    elif tower.positions:
        places = config.count(tower.positions)
    places += int(tower.class_token)
    return h * (channels * frames * side**2 + int(tower.patch_bias) + places + int(tower.class_token))


def _merger(config: Config, tower: Tower, h: int) -> int:
    """Mergers of square neighbourhoods: the last, and those of inner layers, whose norms are as wide as they."""
    wide = h * config.count("spatial_merge_size", default=2) ** 2
    out = config.count("hidden_size" if tower.width == "embed_dim" else "out_hidden_size")
    inner = config.get("deepstack_visual_indexes")
    count = len(inner) if isinstance(inner, list) else 0
    matrices = wide * wide + wide + wide * out + out
    return (1 + count) * matrices + tower.norm * h + count * tower.norm * wide


def describe_tower(config: Mapping[str, object]) -> str:
    """The vision tower that a configuration has beside its decoder, with its size where that is known."""
    counted = tower_of(config)
    if counted is None:
        return "vision tower" if isinstance(config.get("text_config") or config.get("vision_config"), Mapping) else ""
    count, flops = counted
    return f"vision tower ({count / 1e6:,.0f} M parameters, {flops / 1e9:.2g} GFLOP a patch, forward)"
