"""Megatron-LM's multimodal programs: a vision tower with its own length, and the language model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from planner.errors import BadRequest
from planner.jobs.megatron.dialect import Words
from planner.jobs.megatron.effects import OF_VISION

_MULTIMODAL: Final = frozenset({"pretrain_vlm"})
_LENGTHS: Final = ("decoder-seq-length", "dataloader-seq-length", "seq-length")
"""Options of the language model's length, the first that is given; the last two are of text alone."""
_TOWER: Final = frozenset({*_LENGTHS, "encoder-seq-length", "encoder-num-layers", "decoder-num-layers"})
VISION: Final = "only the language model is priced, not the vision tower and its projection: more memory and time"


def is_multimodal(given: Mapping[str, Sequence[str]], programs: Collection[str]) -> bool:
    """Whether a language model has a vision tower, by the program's name or its options."""
    return bool(_MULTIMODAL & set(programs)) or bool(OF_VISION.keys() & given.keys())


def of_language(given: Mapping[str, Sequence[str]]) -> Words:
    """Options of a multimodal program as those of its language model (pretrain_vlm.py: ``model_provider``).

    Raises:
        BadRequest: only the vision tower's length is given.
    """
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
