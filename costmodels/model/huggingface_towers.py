"""Vision towers in front of a decoder: their sizes and parameters, and what projects their output into the decoder.

`TOWERS` has what the implementation of each kind of tower fixes, `PROJECTIONS` what each family puts behind it. Sizes
that a file leaves out are those of the tower's own configuration class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Final, NamedTuple

from costmodels.model.huggingface_config import Config, Fields
from costmodels.model.huggingface_table import defaults
from costmodels.model.parts import BadModel


class Tower(NamedTuple):
    """What the implementation of one kind of tower fixes; names are keys of its configuration, spellings by commas."""

    layers: str = "num_hidden_layers"
    width: str = "hidden_size"
    gated: bool = False
    """Three matrices in the feed-forward network, not two."""
    bias: bool | str = True
    """Biases of all matrices of a layer, or the key that says so."""
    qkv_bias: bool | str | None = None
    """The same of queries, keys and values alone; None is as `bias`."""
    norm: int = 2
    """Learned numbers of a norm per value: a scale, and perhaps a shift."""
    vectors: int = 0
    """Learned vectors of a layer beyond two norms: further norms, scales of the residual."""
    head_norms: bool = False
    """Norms of queries and keys, of one head's width."""
    patch_bias: bool = True
    positions: str = "square"
    """Learned positions: "square" as an image has patches, a product of keys and numbers, or none."""
    class_token: bool = False
    outer_norms: int = 1
    """Norms around the layers."""
    pooled: bool = False
    """A head of attention by one query follows unless it is switched off."""
    network: str = "intermediate_size"
    """Inner width of its networks."""
    heads: str = "num_attention_heads,num_heads"
    attention: str = ""
    """Width of all heads together where it is not the tower's."""


_MERGED = Tower("depth", patch_bias=True, positions="num_position_embeddings", outer_norms=0)
_GLM = Tower("depth", gated=True, bias=False, qkv_bias="attention_bias", norm=1, network="out_hidden_size")
_KIMI = Tower(
    *("vt_num_hidden_layers,num_hidden_layers", "vt_hidden_size,hidden_size"),
    positions="init_pos_emb_height,pos_emb_height*init_pos_emb_width,pos_emb_width",
    network="vt_intermediate_size,intermediate_size",
    heads="vt_num_attention_heads,num_attention_heads",
)
TOWERS: Final[Mapping[str, Tower]] = {
    "clip_vision_model": Tower(patch_bias=False, class_token=True, outer_norms=2),
    "gemma4": Tower(
        gated=True,
        bias=False,
        norm=1,
        vectors=2,
        head_norms=True,
        patch_bias=False,
        positions="2*position_embedding_size",
        outer_norms=0,
    ),
    "minimax_m3_vl": Tower(patch_bias=False, positions=""),
    "step3p7": Tower(vectors=2, patch_bias=False),
    "glm4v": _GLM._replace(outer_norms=2),
    "glm_ocr": _GLM._replace(bias="attention_bias", head_norms=True, positions="", network="intermediate_size"),
    "idefics3": Tower(),
    "internvl": Tower(qkv_bias="attention_bias", vectors=2, class_token=True, outer_norms=0),
    "kimi_k25": _KIMI,
    "kimi_k3": _KIMI._replace(bias=False, norm=1, patch_bias=False, attention="qkv_hidden_size"),
    "llama4_vision_model": Tower(patch_bias=False, class_token=True, outer_norms=2),
    "pixtral": Tower(gated=True, bias=False, norm=1, patch_bias=False, positions=""),
    "qwen2_5_omni": Tower("depth", gated=True, norm=1, patch_bias=False, positions="", outer_norms=0),
    "qwen2_5_vl": Tower("depth", gated=True, norm=1, patch_bias=False, positions="", outer_norms=0),
    "qwen2_vl": Tower("depth", "embed_dim", network="mlp_ratio", patch_bias=False, positions="", outer_norms=0),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe", "qwen3_omni_moe", "qwen3_vl", "qwen3_vl_moe"), _MERGED),
    "siglip2_vision_model": Tower(positions="num_patches", pooled=True),
    "siglip_vision_model": Tower(pooled=True),
    "smolvlm": Tower(),
}
"""By `model_type` of the vision configuration, or of the whole."""
ALIKE: Final = {
    "glm46v": "glm4v",
    "glm4v_moe": "glm4v",
    "glmga": "glm4v",
    "lfm2_vl": "siglip2_vision_model",
    "llama4": "llama4_vision_model",
}
"""Kinds of the same implementation as another one, and families whose towers need not name their kind."""
MERGED: Final = {
    **dict.fromkeys(("aya_vision", "cohere2_vision", "idefics3", "internvl", "lfm2_vl", "llama4", "minimax_m3_vl"), 2),
    "lighton_ocr": 2,
    "mistral3": 2,
    "smolvlm": 2,
    "step3p7": 4,
}
"""Patches along a side that one token stands for, of families whose files do not say so."""
SEVERAL: Final = frozenset({"deepseek_vl_hybrid", "video_llava"})
"""Families with a tower more."""


class Projection(NamedTuple):
    """What leads from a tower into the decoder."""

    weights: int = 0
    """Weights that a token multiplies."""
    vectors: int = 0
    """Further learned numbers."""
    other: int = 0
    """Weights that no token of the decoder multiplies."""


Projects = Callable[[Config, Config, int, int], Projection]
"""Of the whole configuration, the tower's, the tower's width and the decoder's."""


def _two(whole: Config, _: Config, v: int, h: int, *, newline: int = 0, layers: int = 1) -> Projection:
    """Two matrices into the decoder's width, and perhaps a learned line break."""
    biases = 2 * h * whole.switch("multimodal_projector_bias", default=True)
    chosen = whole.get("vision_feature_layer")
    layers = len(chosen) if isinstance(chosen, list) else layers
    return Projection(layers * v * h + h * h, biases + newline * h + (2 * layers * v if layers > 1 else 0))


def _shuffled(v: int, h: int, inner: int, *, norm: bool = True, bias: bool = True) -> Projection:
    """Four neighbouring patches as one, perhaps a norm, two matrices (pixel shuffle)."""
    return Projection(4 * v * inner + inner * h, 8 * v * norm + (inner + h) * bias)


def _two_twice(v: int, inner: int, h: int) -> Projection:
    """Two matrices for every patch, and two for four of them together (MiniMax-M3)."""
    return Projection(v * inner + 5 * inner * inner + inner * h, 3 * inner + h)


def _gated(whole: Config, v: int, h: int) -> Projection:
    """Four neighbouring patches as one, two gated branches, one matrix."""
    inner = whole.count("alignment_intermediate_size", default=36864)
    norm = 8 * v if whole.get("model_type") == "aya_vision" else 0
    return Projection(4 * v * inner + inner // 2 * h, norm + inner + h)


def _merger(_: Config, tower: Config, v: int, h: int) -> Projection:
    """Square neighbourhoods merged by two matrices: the last, and those of inner layers with wider norms (Qwen-VL)."""
    kind = str(tower.get("model_type"))
    wide = v * tower.count("spatial_merge_size", default=2) ** 2
    out = tower.count("hidden_size" if tower.get("embed_dim") and "2_vl" in kind else "out_hidden_size", default=h)
    inner = tower.get("deepstack_visual_indexes")
    usual = 3 if kind.startswith(("qwen3_vl", "qwen3_omni")) else 0
    count, norm = len(inner) if isinstance(inner, list) else usual, 1 if "2_5" in kind else 2
    weights, biases = wide * (wide + out), wide + out
    return Projection(weights, (1 + count) * biases + norm * (v + count * wide), count * weights)


def _glm(tower: Config, v: int, *, inner: int) -> Projection:
    """A convolution over square neighbourhoods, a matrix and a gated network (GLM-4V)."""
    out, side = tower.count("out_hidden_size"), tower.count("spatial_merge_size", default=2)
    return Projection(v * side * side * out + out * out + 3 * out * inner, 3 * out)


def _kimi(tower: Config, v: int, h: int) -> Projection:
    """Norms and two matrices over square neighbourhoods (Kimi-K2.5), or a norm behind them (Kimi-K3)."""
    merge = tower.get("merge_kernel_size")
    wide = v * (prod(merge) if isinstance(merge, list) else 4)
    behind = tower.get("mm_projector_type") == "patchmergerv2"
    return Projection(wide * (wide + h), h if behind else 2 * v + wide + h)


def _llama4(tower: Config, h: int) -> Projection:
    """Four neighbouring patches as one, an adapter of two matrices and one into the decoder."""
    inner = tower.count("projector_input_dim")
    output = tower.count("projector_output_dim")
    return Projection(
        tower.count("intermediate_size") * inner + inner * output + tower.count("vision_output_dim") * h, 0
    )


def _square(whole: Config, v: int, h: int) -> Projection:
    """One matrix over square neighbourhoods."""
    return Projection(v * whole.count("scale_factor", default=2) ** 2 * h)


_GLM4V = lambda _, tower, v, __: _glm(tower, v, inner=tower.count("intermediate_size"))  # noqa: E731

PROJECTIONS: Final[Mapping[str, Projects]] = {
    **dict.fromkeys(("aya_vision", "cohere2_vision"), lambda whole, _, v, h: _gated(whole, v, h)),
    **dict.fromkeys(("deepseek_vl", "llava"), _two),
    **dict.fromkeys(("gemma3", "shieldgemma2"), lambda _, __, v, h: Projection(v * h, v)),
    "gemma4": lambda _, __, v, h: Projection(v * h),
    **dict.fromkeys(("glm46v", "glm4v", "glm4v_moe", "glmga"), _GLM4V),
    "glm_ocr": lambda _, tower, v, __: _glm(tower, v, inner=3 * tower.count("out_hidden_size")),
    **dict.fromkeys(("idefics3", "smolvlm"), lambda whole, _, v, h: _square(whole, v, h)),
    "internvl": lambda _, __, v, h: _shuffled(v, h, h),
    **dict.fromkeys(("kimi_k25", "kimi_k3"), lambda _, tower, v, h: _kimi(tower, v, h)),
    "lfm2_vl": lambda whole, _, v, h: _shuffled(
        *(v, h, whole.count("projector_hidden_size", default=2560)),
        norm=whole.switch("projector_use_layernorm", default=True),
        bias=whole.switch("projector_bias", default=True),
    ),
    **dict.fromkeys(("lighton_ocr", "mistral3"), lambda _, __, v, h: Projection(4 * v * v + v * h + h * h, v)),
    "llama4": lambda _, tower, __, h: _llama4(tower, h),
    **dict.fromkeys(("llava_next", "llava_next_video", "llava_onevision"), lambda *sizes: _two(*sizes, newline=1)),
    "minimax_m3_vl": lambda whole, _, v, h: _two_twice(v, whole.count("projector_hidden_size", default=h), h),
    "paligemma": lambda _, __, v, h: Projection(v * h, h),
    **dict.fromkeys(("qwen2_5_omni_thinker", "qwen2_5_vl", "qwen2_vl", "qwen3_5", "qwen3_5_moe"), _merger),
    **dict.fromkeys(("qwen3_omni_moe_thinker", "qwen3_vl", "qwen3_vl_moe"), _merger),
    "step3p7": lambda _, __, v, h: Projection(4 * v * h, 6 * v, 9 * (2 * v * v + 8 * v * v)),
    "vipllava": lambda *sizes: _two(*sizes, layers=5),
}
"""By family of the whole, or else by kind of tower."""


def tower_of(config: Mapping[str, object]) -> Fields | None:
    """The fields of a configuration's vision tower; None where it is of no known kind."""
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping) or config.get("model_type") in SEVERAL:
        return None
    kind = next((kind for name in (config, vision) if (kind := _kind(name)) in TOWERS), None)
    if kind is None:
        return None
    family = next((name for name in (f"{kind}_vision", f"{kind}_vision_encoder", kind) if name in defaults()), "")
    filled = {**defaults().get(family, {}), "model_type": kind}
    filled |= {name: value for name, value in vision.items() if value is not None}
    try:
        return _described(Config(config, "configuration"), Config(filled, "vision_config"), TOWERS[kind])
    except BadModel:
        return None


def _projects(whole: Config, config: Config) -> Projects | None:
    """What projects: of the whole family, or else of the tower's kind."""
    return PROJECTIONS.get(str(whole.get("model_type"))) or PROJECTIONS.get(str(config.get("model_type")))


def _kind(config: Mapping[str, object]) -> str:
    name = str(config.get("model_type", "")).removesuffix("_encoder").removesuffix("_vision").removesuffix("_thinker")
    return ALIKE.get(name, name)


def _described(whole: Config, config: Config, tower: Tower) -> Fields:
    h = config.count(*tower.width.split(","))
    decoder = whole.inner("text_config").get("hidden_size") or whole.get("hidden_size")
    projection = Projection()
    if (projects := _projects(whole, config)) and isinstance(decoder, int):
        projection = projects(whole, config, h, decoder)
    patches, merged = _patches_of(whole, config, tower)
    heads = config.count(*tower.heads.split(","), default=max(h // 64, 1))
    wide = config.count(tower.attention) if tower.attention else h
    return {
        "num_layers": config.count(*tower.layers.split(",")),
        "hidden_size": h,
        "num_heads": heads,
        "head_dim": max(wide // heads, 1),
        "ffn_hidden_size": _network(config, tower, h),
        "gated_ffn": tower.gated,
        "parameters": _counted(config, tower, wide, heads) + sum(projection),
        "projection": projection.weights,
        "patches_per_token": merged,
        "image_tokens": None if patches is None else max(patches // merged, 1),
    }


def _patches_of(whole: Config, config: Config, tower: Tower) -> tuple[int | None, int]:
    """Patches of an image, None where images keep their own size, and how many of them make a token."""
    patches = _side(config) ** 2 if tower.positions == "square" else None
    if patches and isinstance(tokens := whole.get("mm_tokens_per_image"), int):
        return patches, max(patches // tokens, 1)
    merge = config.get("merge_kernel_size")
    if isinstance(merge, list):
        return patches, prod(merge)
    for part, key in ((config, "spatial_merge_size"), (whole, "spatial_merge_size"), (config, "pooling_kernel_size")):
        if part.get(key) is not None:
            return patches, part.count(key) ** 2
    family, merges = str(whole.get("model_type")), _projects(whole, config) in (_merger, _GLM4V)
    square = whole.count("scale_factor", default=MERGED.get(family, 2 if merges else 1))
    return patches, square * square


def _network(config: Config, tower: Tower, h: int) -> int:
    """Inner width of the tower's networks."""
    if tower.network != "mlp_ratio":
        return config.count(*tower.network.split(","))
    ratio = config.get("mlp_ratio")
    return int(ratio * h) if isinstance(ratio, int | float) else 4 * h


def _switched(config: Config, said: bool | str) -> bool:
    """What the implementation fixes, or what a key of the configuration says."""
    return config.switch(said, default=False) if isinstance(said, str) else said


def _counted(config: Config, tower: Tower, wide: int, heads: int) -> int:
    """Parameters of the tower's own module, for `wide` values of all heads together."""
    h = config.count(*tower.width.split(","))
    f = _network(config, tower, h)
    branches, biased = 2 if tower.gated else 1, _switched(config, tower.bias)
    qkv = biased if tower.qkv_bias is None else _switched(config, tower.qkv_bias)
    weights = 4 * h * wide + (branches + 1) * h * f
    biases = 3 * wide * qkv + (2 * h + branches * f) * biased
    vectors = (2 * tower.norm + tower.vectors) * h + 2 * (wide // heads) * tower.head_norms
    outside = _patches(config, tower, h) + tower.outer_norms * tower.norm * h
    if tower.pooled and config.switch("vision_use_head", default=True):
        outside += h + 4 * h * h + 4 * h + 2 * h + 2 * h * f + f + h
    return config.count(*tower.layers.split(",")) * (weights + biases + vectors) + outside


def _patches(config: Config, tower: Tower, h: int) -> int:
    """The embedding of patches and their learned positions."""
    channels = config.count("in_channels", "num_channels", default=3)
    values = channels * config.count("temporal_patch_size", default=1) * _length(config, "patch_size") ** 2
    places = int(tower.class_token)
    if tower.positions == "square":
        places += _side(config) ** 2
    elif tower.positions:
        places += prod(
            int(part) if part.isdigit() else config.count(*part.split(",")) for part in tower.positions.split("*")
        )
    return h * (values + int(tower.patch_bias) + places + int(tower.class_token))


def _side(config: Config) -> int:
    """Patches along a side of an image."""
    return _length(config, "image_size") // _length(config, "patch_size")


def _length(config: Config, key: str) -> int:
    """A side in pixels, which some files give for both directions."""
    sides = config.get(key)
    return int(sides[0]) if isinstance(sides, list) else config.count(key, "spatial_patch_size")


def left_out_parts(config: Mapping[str, object]) -> list[str]:
    """What a configuration has in front of its decoder and is not counted: towers of no known kind or of sound."""
    several = any(isinstance(config.get(part), Mapping) for part in ("text_config", "vision_config", "img_processor"))
    unknown = several and tower_of(config) is None
    projected = unknown or not several or config.get("model_type") in PROJECTIONS
    said = {
        "vision tower": unknown,
        "projection of images": not projected,
        "audio tower": isinstance(config.get("audio_config"), Mapping),
    }
    return [part for part, left_out in said.items() if left_out]
