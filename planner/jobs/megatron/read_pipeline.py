"""Megatron's pipeline as layers of every stage and chunk, by whichever of its ways they are given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from planner.errors import BadRequest
from planner.jobs.options import Arguments, present
from planner.rules.divisors import nearest_divisor

LETTERS: Final = "M*-E"
"""Mamba, attention, a feed-forward layer, one of experts."""
_ENDS: Final = ("embedding_as_layer", "loss_as_layer")
_OUTER: Final = ("first_stage_layers", "last_stage_layers", *_ENDS)


_GROUP: Final = re.compile(r"\(([^()]*)\)\*(\d+)")
_LETTER: Final = re.compile(r"([A-Za-z])\*(\d+)")


def hybrid_chunks(at: Arguments) -> list[str]:
    """Letters of chunk after chunk, those of stages within one another chunk-major; none where no pattern is given."""
    return _chunks(at, "layer_pattern", "".join(at.words("layer_pattern")).partition("/")[0], LETTERS)


def hybrid_pattern(at: Arguments) -> str:
    """Letters of all layers in the order of the depth, empty where there is no pattern."""
    return "".join(hybrid_chunks(at))


def layout_chunks(at: Arguments) -> list[str]:
    """Letters of chunk after chunk of a pipeline layout, repetitions written out; none where no layout is given."""
    plain = at.text("layout").replace(",", "").replace(" ", "")
    while _GROUP.search(plain):
        plain = _GROUP.sub(lambda found: found[1] * int(found[2]), plain)
    plain = _LETTER.sub(lambda found: found[1] * int(found[2]), plain)
    return _chunks(at, "layout", plain, "EtmL")


def _chunks(at: Arguments, field: str, text: str, known: str) -> list[str]:
    if wrong := set(text) - set(known) - {"|"}:
        raise BadRequest(f"--{at.word_of(field)}: {min(wrong)!r} is not one of {', '.join(known)}")
    return text.split("|") if text else []


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


def empty_layers(at: Arguments) -> tuple[int, ...]:
    """Layers that hold places and nothing else, of those that ``--num-layers`` counts."""
    words = [part for word in at.words("empty_layers") for part in re.split(r"[,\s]+", word) if part]
    total = at("num_layers") or 0
    if wrong := [word for word in words if not word.isdecimal() or int(word) >= total]:
        why = f"is not a layer; there are {total}, counted from 0"
        raise BadRequest(f"--{at.word_of('empty_layers')}: {wrong[0]!r:.20} {why}")
    return tuple(sorted({int(word) for word in words}))


def pipeline_of(at: Arguments, *, balanced: bool = False, layers: int = 0) -> Pipeline:
    """The pipeline that the arguments describe, as Megatron-LM checks it; balanced: uneven layers are spread out.

    ``layers`` are those of a model that is named, which count where the arguments give the outer stages'.
    """
    pp = at("pp")
    _check_ways(at)
    drawn = hybrid_chunks(at)
    if laid_out := layout_chunks(at):
        found = _drawn(at, "layout", [chunk.count("t") for chunk in laid_out], pp)
        if (count := sum(found.chunks or ())) != (stated := at("num_layers") or count):
            raise BadRequest(f"--{at.word_of('layout')} has {count} layers, --num-layers is {stated}")
        return found
    if len(drawn) > 1:
        return _drawn(at, "layer_pattern", [len(chunk) for chunk in drawn], pp)
    outer = any(at.given(field) for field in _OUTER)
    total = sum(map(len, drawn)) or at("num_layers") or (layers if outer else 0)
    if not total:
        if at.given("layers_per_chunk"):
            word = at.word_of("layers_per_chunk")
            raise BadRequest(f"--{word} has no effect without --num-layers; give --num-layers or --vpp")
        return Pipeline(pp, at("vpp"), None)
    places = _with_ends(at, _listed(at, total, pp) or _stages(at, total, pp, balanced=balanced))
    vpp = _chunks_per_stage(at, places)
    chunks = _with_ends(at, [each // vpp for each in places] * vpp, -1)
    return _checked(Pipeline(pp, vpp, _without(chunks, empty_layers(at))))


def left_even(at: Arguments, pipeline: Pipeline) -> Iterator[str]:
    """Options that set the layers of stages, where nothing says how many there are in all."""
    if pipeline.chunks is None and (outer := [f"--{at.word_of(field)}" for field in _OUTER if at.given(field)]):
        yield f"{' and '.join(outer)} not priced without --num-layers: stages are even; --layers-per-stage sets them"


def _with_ends(at: Arguments, held: Sequence[int], count: int = 1) -> list[int]:
    """Layers of stages or chunks, with the embedding and the head counted as one each, or no longer counted."""
    made = list(held)
    for place, end in zip((0, -1), _ENDS, strict=True):
        made[place] += count * at.given(end)
    return made


def _without(chunks: Sequence[int], empty: Sequence[int]) -> list[int]:
    """Chunks, in the order of the depth, without the layers that are empty."""
    found, end = [], 0
    for held in chunks:
        start, end = end, end + held
        found.append(held - sum(start <= place < end for place in empty))
    return found


def _listed(at: Arguments, total: int, pp: int) -> list[int]:
    """Layers of every stage where they are written out."""
    words = [part for word in at.words("layer_list") for part in word.split(",") if part]
    if not words:
        return []
    if not all(word.isdecimal() for word in words) or len(words) != pp or sum(map(int, words)) != total:
        raise BadRequest(f"--{at.word_of('layer_list')} {','.join(words):.40}: expected {total} layers on {pp} stages")
    return [int(word) for word in words]


def _drawn(at: Arguments, field: str, chunks: list[int], pp: int) -> Pipeline:
    """The pipeline of chunks that are written out."""
    if len(chunks) % pp:
        raise BadRequest(f"--{at.word_of(field)} has {len(chunks)} chunks for {pp} stages")
    return _checked(Pipeline(pp, len(chunks) // pp, chunks))


def _check_ways(at: Arguments) -> None:
    """Refuse two ways to say the same."""
    ways = [field for field in ("layer_pattern", "layout", "layers_per_chunk", "vpp") if at.given(field)]
    if len(ways) > 1:
        one, other = (at.word_of(field) for field in ways[:2])
        raise BadRequest(f"--{one} and --{other} both set the chunks; leave out one of them")
    outer = [field for field in _OUTER if at.given(field)]
    apart = at.given("layout") or at.given("layers_per_chunk") or len(hybrid_chunks(at)) > 1
    if apart and outer and not (at.given("layers_per_chunk") and set(outer) <= set(_ENDS)):
        way, end = at.word_of(ways[0]), at.word_of(outer[0])
        raise BadRequest(f"--{way} already sets what the outer stages hold; leave out --{end}")


def _checked(found: Pipeline) -> Pipeline:
    if found.pp == 1 and found.vpp > 1:
        needs = "interleaving needs --pipeline-model-parallel-size 2 or more"
        raise BadRequest(f"{found.vpp} chunks on one stage: {needs}")
    return found


def _stages(at: Arguments, total: int, pp: int, *, balanced: bool) -> list[int]:
    """Layers of every stage: as many on each, or on each but the outer ones."""
    first, last = (at(field) for field in _OUTER[:2])
    if first is None and last is None:
        return _even(at, total, pp, balanced=balanced)
    inner = pp - (first is not None) - (last is not None)
    left = total - (first or 0) - (last or 0)
    if left < 0 or (inner and left % inner) or (not inner and left):
        raise BadRequest(f"{left} layers do not split over the other {inner} stages")
    middle = [left // inner] * inner if inner else []
    return [*([] if first is None else [first]), *middle, *([] if last is None else [last])]


def _even(at: Arguments, total: int, pp: int, *, balanced: bool) -> list[int]:
    """As many layers on every stage, ends that stand for one each among them, or as evenly as they go."""
    counted = total + sum(at.given(end) for end in _ENDS)
    if (left := counted % pp) and not balanced:
        near = [n for n in (total - left, total + pp - left) if n > 0]
        ways = f"{' or '.join(map(str, near))} would, or --decoder-last-pipeline-num-layers"
        raise BadRequest(f"--num-layers {total} do not divide over {pp} stages; {ways}")
    return _with_ends(at, [(counted + pp - 1 - stage) // pp for stage in range(pp)], -1)


def _chunks_per_stage(at: Arguments, places: Sequence[int]) -> int:
    """Chunks of every stage, of as many layers each; an end that counts as a layer is one."""
    per_chunk, vpp = at("layers_per_chunk"), at("vpp")
    field, size = ("vpp", vpp) if per_chunk is None else ("layers_per_chunk", per_chunk)
    checked = places if per_chunk is None else places[:1]
    if odd := [each for each in checked if each % size]:
        near = nearest_divisor(odd[0], size)
        raise BadRequest(f"--{at.word_of(field)} {size} does not divide the {odd[0]} layers of a stage; {near}")
    return vpp if per_chunk is None else places[0] // per_chunk


class Recomputation(NamedTuple):
    """Pins, recomputed layers of every stage where these are partial and known, and remarks."""

    pins: dict[str, Any]
    layers: tuple[int, ...] | None = None
    remarks: tuple[str, ...] = ()


def recomputation(at: Arguments, pipeline: Pipeline) -> Recomputation:
    """The recomputation that is asked for; older words stand for the selective one, of attention or of experts too."""
    light = next((field for field in ("recompute_activations", "moe_layer_recompute") if at.given(field)), "")
    kind = at("recompute") or ("selective" if light else "")
    word = at.word_of("recompute")
    if light and kind == "full":
        both = f"--{at.word_of(light)} means selective recomputation and --{word} full"
        raise BadRequest(f"{both}; leave out one of them")
    if not kind:
        parts = ("recompute_method", "recompute_num_layers", "recompute_modules")
        stray = [f"--{at.word_of(field)} has no effect without --{word}" for field in parts if at.given(field)]
        return Recomputation({"recompute": "none"}, None, tuple(stray))
    return _whole_layers(at, pipeline) if kind == "full" else _selective(at)


def _selective(at: Arguments) -> Recomputation:
    if wrong := [field for field in ("recompute_method", "recompute_num_layers") if at.given(field)]:
        word = at.word_of(wrong[0])
        raise BadRequest(f"--{word} goes with --recompute-granularity full, not with selective; leave it out")
    modules = list(at.words("recompute_modules"))
    if at.given("moe_layer_recompute") and "moe" not in modules:
        modules = [*(modules or ["core_attn"]), "moe"]
    return Recomputation({"recompute": "selective", **present(recompute_modules=",".join(modules))})


def _whole_layers(at: Arguments, pipeline: Pipeline) -> Recomputation:
    method, layers = at("recompute_method"), at("recompute_num_layers")
    if not method or layers is None:
        lacks = "--recompute-num-layers, such as 1" if method else "--recompute-method uniform or block"
        raise BadRequest(f"--recompute-granularity full needs {lacks}")
    if not layers:
        return Recomputation({"recompute": "none"}, None, ("--recompute-num-layers 0 recomputes none",))
    if method == "uniform":
        return Recomputation({"recompute": "full"} | ({} if layers == 1 else {"recompute_num_layers": layers}))
    if pipeline.chunks is None:
        remark = f"{layers} layers of every chunk are recomputed; the smallest number that fits is priced"
        return Recomputation({"recompute": "partial"}, None, (remark,))
    again = pipeline.by_stage([min(layers, held) for held in pipeline.chunks])
    if at("recompute_layers_of_ranks"):
        again = tuple(min(layers, held) for held in pipeline.layers or ())
    if again == pipeline.layers:
        return Recomputation({"recompute": "full"})
    return Recomputation({"recompute": "partial"}, again)
