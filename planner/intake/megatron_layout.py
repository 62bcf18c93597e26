"""Megatron's pipeline layout as layers of every stage."""

from __future__ import annotations

import re
from typing import Final

from planner.errors import BadRequest

_GROUP: Final = re.compile(r"\(([^()]*)\)\*(\d+)")
_LETTER: Final = re.compile(r"([A-Za-z])\*(\d+)")


def layout_chunks(text: str) -> list[str]:
    """Letters of chunk after chunk, repetitions written out.

    Raises:
        BadRequest: a letter that the layout does not know.
    """
    plain = text.replace(",", "").replace(" ", "")
    while _GROUP.search(plain):
        plain = _GROUP.sub(lambda found: found[1] * int(found[2]), plain)
    plain = _LETTER.sub(lambda found: found[1] * int(found[2]), plain)
    if wrong := set(plain) - set("EtmL|"):
        raise BadRequest(f"--pipeline-model-parallel-layout: {min(wrong)!r} is none of E, t, m, L")
    return plain.split("|")


def layout_layers(text: str, pp: int) -> tuple[int, ...]:
    """Layers of every stage; chunk i is the stage's of rank i modulo ``pp``.

    Raises:
        BadRequest: the chunks are no multiple of the stages.
    """
    chunks = layout_chunks(text)
    if len(chunks) % pp:
        raise BadRequest(f"--pipeline-model-parallel-layout has {len(chunks)} chunks for {pp} stages")
    return tuple(sum(chunk.count("t") for chunk in chunks[stage::pp]) for stage in range(pp))


def layout_depth(text: str, pp: int) -> int:
    """Chunks of every stage."""
    return len(layout_chunks(text)) // pp
