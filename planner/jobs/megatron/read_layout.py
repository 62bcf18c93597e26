"""Megatron's pipeline as layers of every stage and chunk, by whichever of its ways they are said."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from planner.errors import BadRequest
from planner.jobs.megatron.options import Options, count, number, word
from planner.jobs.megatron.read_hybrid import hybrid_chunks, hybrid_option, hybrid_pattern
from planner.space.divisors import nearest_divisor

_LAYOUT: Final = "pipeline-model-parallel-layout"
_PER_CHUNK: Final = "num-layers-per-virtual-pipeline-stage"
_CHUNKS: Final = "num-virtual-stages-per-pipeline-rank"
_OUTER: Final = ("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers")
_ENDS: Final = ("account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split")

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


class Pipeline(NamedTuple):
    """Stages, and layers of chunk after chunk, chunk i on stage i modulo ``pp``.

    None where the arguments do not say how many layers there are.
    """

    pp: int
    vpp: int
    chunks: Sequence[int] | None

    @property
    def layers(self) -> tuple[int, ...] | None:
        """Layers of every stage."""
        return None if self.chunks is None else self.by_stage(self.chunks)

    def by_stage(self, chunks: Sequence[int]) -> tuple[int, ...]:
        """The sum over the chunks of every stage."""
        return tuple(sum(chunks[stage :: self.pp]) for stage in range(self.pp))


def pipeline_of(at: Options) -> Pipeline:
    """The pipeline that the arguments describe, as Megatron-LM checks it.

    Raises:
        BadRequest: it is said in two ways, or stages or chunks would be unequal where they must not be.
    """
    pp = count(at, "pipeline-model-parallel-size")
    _check_ways(at)
    if text := word(at, _LAYOUT):
        held = [chunk.count("t") for chunk in layout_chunks(text)]
        _ = layout_layers(text, pp)
        if sum(held) != (total := number(at, "num-layers", sum(held))):
            raise BadRequest(f"--{_LAYOUT} has {sum(held)} layers, --num-layers is {total}")
        return _checked(Pipeline(pp, len(held) // pp, held))
    if len(drawn := hybrid_chunks(at)) > 1:
        if len(drawn) % pp:
            raise BadRequest(f"--{hybrid_option(at)} has {len(drawn)} chunks for {pp} stages")
        return _checked(Pipeline(pp, len(drawn) // pp, [len(chunk) for chunk in drawn]))
    total = number(at, "num-layers", len(hybrid_pattern(at)) or None)
    total = len(hybrid_pattern(at)) or total
    if total is None:
        if _PER_CHUNK in at:
            raise BadRequest(f"--{_PER_CHUNK} says nothing without --num-layers; give that, or --vpp")
        return Pipeline(pp, count(at, _CHUNKS), None)
    held = _stages(at, total, pp)
    places = [held[0] + (_ENDS[0] in at), *held[1:]]
    places[-1] += _ENDS[1] in at
    vpp = _depth(at, places)
    chunks = [each // vpp for each in places] * vpp
    chunks[0] -= _ENDS[0] in at
    chunks[-1] -= _ENDS[1] in at
    return _checked(Pipeline(pp, vpp, chunks))


def _check_ways(at: Options) -> None:
    """Refuse two ways to say the same."""
    ways = [name for name in (hybrid_option(at), _LAYOUT, _PER_CHUNK, _CHUNKS) if name in at]
    if len(ways) > 1:
        raise BadRequest(f"--{ways[0]} and --{ways[1]} both say what chunks there are; leave out one of them")
    outer = [name for name in (*_OUTER, *_ENDS) if name in at]
    apart = _LAYOUT in at or _PER_CHUNK in at or len(hybrid_chunks(at)) > 1
    if apart and outer and not (_PER_CHUNK in at and set(outer) <= set(_ENDS)):
        raise BadRequest(f"--{ways[0]} says what the outer stages hold; leave out --{outer[0]}")


def _checked(found: Pipeline) -> Pipeline:
    if found.pp == 1 and found.vpp > 1:
        needs = "interleaving needs --pipeline-model-parallel-size 2 or more"
        raise BadRequest(f"{found.vpp} chunks on one stage: {needs}")
    return found


def _stages(at: Options, total: int, pp: int) -> list[int]:
    """Layers of every stage: as many on each, or on each but the outer ones."""
    first, last = (number(at, name) for name in _OUTER)
    if first is None and last is None:
        return _even(at, total, pp)
    inner = pp - (first is not None) - (last is not None)
    left = total - (first or 0) - (last or 0)
    if left < 0 or (inner and left % inner) or (not inner and left):
        raise BadRequest(f"{left} layers do not split over the {inner} other stages")
    middle = [left // inner] * inner if inner else []
    return [*([] if first is None else [first]), *middle, *([] if last is None else [last])]


def _even(at: Options, total: int, pp: int) -> list[int]:
    """As many layers on every stage; the embedding and the head stand for one each where the arguments say so."""
    before, behind = (int(name in at) for name in _ENDS)
    each, left = divmod(total + before + behind, pp)
    if left:
        near = [n for n in (total - left, total + pp - left) if n > 0]
        raise BadRequest(
            f"--num-layers {total} do not divide over {pp} stages; {' or '.join(map(str, near))} would, or "
            "--decoder-last-pipeline-num-layers"
        )
    held = [each] * pp
    held[0] -= before
    held[-1] -= behind
    return held


def _depth(at: Options, places: Sequence[int]) -> int:
    """Chunks of every stage, of as many layers each; an end that counts as a layer is one."""
    if (per_chunk := number(at, _PER_CHUNK)) is not None:
        if places[0] % per_chunk:
            near = nearest_divisor(places[0], per_chunk)
            raise BadRequest(f"--{_PER_CHUNK} {per_chunk} does not divide the {places[0]} layers of a stage; {near}")
        return places[0] // per_chunk
    vpp = count(at, _CHUNKS)
    if odd := [each for each in places if each % vpp]:
        near = nearest_divisor(odd[0], vpp)
        raise BadRequest(f"--{_CHUNKS} {vpp} does not divide the {odd[0]} layers of a stage; {near}")
    return vpp
