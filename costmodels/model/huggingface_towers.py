"""Vision towers of a decoder: their sizes and parameters, and what projects their output into the decoder.

Where the projection is part of the tower's own module it is counted with it, else by the family of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from costmodels.model.huggingface_config import Config, Fields
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


PROJECTIONS: Final[Mapping[str, Callable[[int, int], tuple[int, int]]]] = {
    "llava": lambda v, h: (v * h + h * h, 2 * h),
    "llava_next": lambda v, h: (v * h + h * h, 3 * h),
    "gemma3": lambda v, h: (v * h, v),
    "paligemma": lambda v, h: (v * h, h),
    "mistral3": lambda v, h: (4 * v * v + v * h + h * h, v),
}
"""By family, of the tower's and the decoder's width: weights that a token multiplies, and other parameters."""


def tower_of(config: Mapping[str, object]) -> Fields | None:
    """The fields of a configuration's vision tower; None where it is of no known kind."""
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping) or config.get("model_type") in SEVERAL:
        return None
    known = next((TOWERS[kind] for name in (vision, config) if (kind := _kind(name)) in TOWERS), None)
    if known is None:
        return None
    try:
        return _described(Config(config, "configuration"), Config(vision, "vision_config"), known)
    except BadModel:  # sizes that are the default are left out of many files
        return None


def _described(whole: Config, config: Config, tower: Tower) -> Fields:
    h, decoder = config.count(tower.width), whole.inner("text_config").get("hidden_size") or whole.get("hidden_size")
    weights, others = 0, 0
    if (projection := PROJECTIONS.get(str(whole.get("model_type")))) and isinstance(decoder, int):
        weights, others = projection(h, decoder)
    patches, merged = _patches_of(whole, config, tower)
    return {
        "num_layers": config.count(tower.depth),
        "hidden_size": h,
        "num_heads": config.count("num_attention_heads", "num_heads", default=max(h // 64, 1)),
        "ffn_hidden_size": _width(config, h),
        "gated_ffn": tower.gated,
        "parameters": _counted(config, tower) + weights + others,
        "projection": _merger_weights(config, tower, h) if tower.merger else weights,
        "patches_per_token": merged,
        "image_tokens": None if patches is None else max(patches // merged, 1),
    }


def _patches_of(whole: Config, config: Config, tower: Tower) -> tuple[int | None, int]:
    """Patches of an image, None where images keep their own size, and how many of them make a token."""
    fixed = tower.positions == "square"
    side = config.count("image_size") // config.count("patch_size", "spatial_patch_size") if fixed else None
    patches = None if side is None else side * side
    if patches and isinstance(tokens := whole.get("mm_tokens_per_image"), int):
        return patches, max(patches // tokens, 1)
    merge = config.count("spatial_merge_size", default=whole.count("spatial_merge_size", default=2 * tower.merger or 1))
    return patches, merge * merge


def _width(config: Config, h: int) -> int:
    ratio = config.get("mlp_ratio")
    return int(ratio * h) if isinstance(ratio, int | float) else config.count("intermediate_size")


def _kind(config: Mapping[str, object]) -> str:
    return str(config.get("model_type", "")).removesuffix("_vision").removesuffix("_vision_encoder")


def _counted(config: Config, tower: Tower) -> int:
    """Parameters of the tower's own module."""
    h, layers = config.count(tower.width), config.count(tower.depth)
    f = _width(config, h)
    weights = 4 * h * h + (3 if tower.gated else 2) * h * f
    biases = (4 * h + (2 if tower.gated else 1) * f + h) * int(tower.bias)
    layer = weights + biases + 2 * tower.norm * h
    outside = _patches(config, tower, h) + tower.outer_norms * tower.norm * h
    if tower.pooled and config.switch("vision_use_head", default=True):
        outside += h + 4 * h * h + 4 * h + 2 * h + 2 * h * f + f + h
    if tower.merger:
        outside += _merger(config, tower, h)
    return layers * layer + outside


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


def _merger_weights(config: Config, tower: Tower, h: int) -> int:
    """Weights of the last merger, which a token multiplies."""
    wide = h * config.count("spatial_merge_size", default=2) ** 2
    return wide * wide + wide * config.count("hidden_size" if tower.width == "embed_dim" else "out_hidden_size")


def unknown_tower(config: Mapping[str, object]) -> str:
    """What a configuration has besides its decoder where no tower of a known kind was read."""
    multimodal = any(isinstance(config.get(part), Mapping) for part in ("text_config", "vision_config"))
    return "vision tower" if multimodal and tower_of(config) is None else ""
