"""Megatron-LM's programs that train more than a decoder of text: Mamba layers by shares of kinds, vision towers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from planner.errors import BadRequest
from planner.jobs.megatron.dialect import OF_VISION, Words

_MULTIMODAL: Final = frozenset({"pretrain_vlm"})
_LENGTHS: Final = ("decoder-seq-length", "dataloader-seq-length", "seq-length")
"""Options of the language model's length, the first that is given; the last two are of text alone."""
_TOWER: Final = frozenset({*_LENGTHS, "encoder-seq-length", "encoder-num-layers", "decoder-num-layers"})
VISION: Final = "only the language model is priced, not the vision tower and its projection: more memory and time"


def is_multimodal(given: Mapping[str, Sequence[str]], programs: Collection[str]) -> bool:
    """Whether a language model has a vision tower, by the program's name or its options."""
    return bool(_MULTIMODAL & set(programs)) or bool(OF_VISION.keys() & given.keys())


def of_language(given: Mapping[str, Sequence[str]]) -> Words:
    """Options of a multimodal program as those of its language model (pretrain_vlm.py: ``model_provider``)."""
    length = next((name for name in _LENGTHS if name in given), "")
    if not length and "encoder-seq-length" in given:
        length = " ".join(given["encoder-seq-length"])
        raise BadRequest(
            f"--encoder-seq-length {length:.40} is for the vision tower; --decoder-seq-length is for the language model"
        )
    layers = next((name for name in ("decoder-num-layers", "num-layers") if name in given), "")
    own = {name: list(values) for name, values in given.items() if name not in _TOWER}
    own |= {"seq-length": list(given[length])} if length else {}
    return own | ({"num-layers": list(given[layers])} if layers else {})


def said_of_vision(given: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What a price of the language model leaves out."""
    yield VISION
    if "decoder-seq-length" not in given and any(name in given for name in _LENGTHS):
        yield "--seq-length is priced; image tokens may come on top, --decoder-seq-length counts them all"


HYBRID: Final = frozenset({"pretrain_mamba", "pretrain_hybrid"})
"""Programs of Mamba layers."""
_RATIOS: Final = ("hybrid-attention-ratio", "hybrid-mlp-ratio")


def of_hybrid(given: Words) -> Words:
    """Options with the pattern of layers that ratios stand for, where no pattern is given.

    A program of Mamba layers (``--is-hybrid-model``) has nothing but these without ratios.
    """
    said = {name: " ".join(given[name]) for name in _RATIOS if name in given}
    left = {name: values for name, values in given.items() if name not in _RATIOS}
    layers = " ".join(given.get("num-layers", ()))
    if left.keys() & _PATTERNS or not (layers.isascii() and layers.isdecimal()):
        return left
    shares = [_ratio(name, said.get(name, "0")) for name in _RATIOS]
    if not (any(shares) or "is-hybrid-model" in given):
        return left
    if sum(shares) > 1 or int(layers) > _MOST:
        shown = f"shares of {shares[0]:g} and {shares[1]:g} of {layers:.9} layers"
        raise BadRequest(
            f"--{' and --'.join(_RATIOS)}: {shown} are not a model; --hybrid-layer-pattern says the layers"
        )
    return left | {"hybrid-layer-pattern": [pattern_of(int(layers), *shares)]}


_PATTERNS: Final = frozenset({"hybrid-layer-pattern", "hybrid-override-pattern"})
_MOST: Final = 10_000
"""Layers of a model, more than any has."""


def _ratio(name: str, text: str) -> float:
    with suppress(ValueError):
        if 0 <= float(text) <= 1:
            return float(text)
    raise BadRequest(f"--{name}: expected a share up to 1, got {text!r:.40}; --hybrid-layer-pattern says the layers")


def pattern_of(layers: int, attention: float, mlp: float) -> str:
    """Letters of layers by the shares of two kinds; the rest is Mamba (Megatron-Core: ``allocate_layers``).

    Attention is spread evenly between Mamba layers, first and last of which are Mamba; what is feed-forward then takes
    the place of Mamba layers, evenly and as late as possible.
    """
    letters = ["M"] * layers
    attending = round(layers * attention)
    _spread(letters, "*", (layers - attending) / (attending + 1))
    if feeding := round(layers * mlp):
        _spread(letters, "-", (layers - attending - feeding) / feeding)
    return "".join(letters)


def _spread(letters: list[str], letter: str, gap: float) -> None:
    """Make a Mamba layer another kind behind every ``gap`` that stay, rounded."""
    left = gap
    for place, one in enumerate(letters):
        if one == "M":
            turn = left < 0.5
            letters[place] = letter if turn else one
            left += gap if turn else -1
