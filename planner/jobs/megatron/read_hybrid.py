"""Megatron's pattern of a hybrid model: a letter a layer, a bar between chunks, a slash before predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from planner.errors import BadRequest

LETTERS: Final = "M*-E"
"""Mamba, attention, a feed-forward layer, one of experts."""
_OPTIONS: Final = ("hybrid-layer-pattern", "hybrid-override-pattern")
"""The present option and the one of before, which has no bars."""


def hybrid_option(at: Mapping[str, Sequence[str]]) -> str:
    """The option that has the pattern, "" where there is none."""
    return next((option for option in _OPTIONS if option in at), "")


def hybrid_chunks(at: Mapping[str, Sequence[str]]) -> list[str]:
    """Letters of chunk after chunk, those of stages within one another chunk-major; none where no pattern is given.

    Raises:
        BadRequest: a letter that is not known.
    """
    name = hybrid_option(at)
    text = "".join(at.get(name, ()))
    chunks = text.partition("/")[0].split("|") if text else []
    if wrong := set("".join(chunks)) - set(LETTERS):
        raise BadRequest(f"--{name}: {min(wrong)!r} is none of {', '.join(LETTERS)}")
    return chunks


def hybrid_pattern(at: Mapping[str, Sequence[str]]) -> str:
    """Letters of all layers in the order of the depth, empty where there is no pattern."""
    return "".join(hybrid_chunks(at))


def hybrid_predictions(at: Mapping[str, Sequence[str]]) -> int:
    """Modules that predict further tokens, each behind a slash."""
    return "".join(at.get(hybrid_option(at), ())).count("/")
