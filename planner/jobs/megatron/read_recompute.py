"""What Megatron-LM's arguments say of recomputation, as its transformer_config.py checks it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from planner.errors import BadRequest
from planner.jobs.given import said
from planner.jobs.megatron.options import Options, number, word
from planner.jobs.megatron.read_layout import Pipeline

_KIND: Final = "recompute-granularity"
_METHOD: Final = "recompute-method"
_COUNT: Final = "recompute-num-layers"
_MODULES: Final = "recompute-modules"
_LIGHT: Final = ("recompute-activations", "moe-layer-recompute")
"""Older words for selective recomputation: of attention, and of the experts too."""


class Recomputation(NamedTuple):
    """Pins, recomputed layers of every stage where these are partial and known, and remarks."""

    pins: dict[str, Any]
    layers: tuple[int, ...] | None = None
    remarks: tuple[str, ...] = ()


def recomputation(at: Options, pipeline: Pipeline) -> Recomputation:
    """The recomputation that is asked for.

    Raises:
        BadRequest: two kinds of it, or words that are missing or belong to the other kind.
    """
    light = next((name for name in _LIGHT if name in at), "")
    kind = word(at, _KIND) or ("selective" if light else "")
    if light and kind == "full":
        raise BadRequest(f"--{light} is selective recomputation, --{_KIND} is full; leave out one of them")
    if not kind:
        stray = [f"--{name} has no effect without --{_KIND}" for name in (_METHOD, _COUNT, _MODULES) if name in at]
        return Recomputation({"recompute": "none"}, None, tuple(stray))
    return _whole_layers(at, pipeline) if kind == "full" else _selective(at)


def _selective(at: Options) -> Recomputation:
    if wrong := [name for name in (_METHOD, _COUNT) if name in at]:
        raise BadRequest(f"--{wrong[0]} is of --{_KIND} full, not of selective; leave it out")
    modules = list(at.get(_MODULES, ()))
    if _LIGHT[1] in at and "moe" not in modules:
        modules = [*(modules or ["core_attn"]), "moe"]
    return Recomputation({"recompute": "selective", **said(recompute_modules=",".join(modules))})


def _whole_layers(at: Options, pipeline: Pipeline) -> Recomputation:
    method, layers = word(at, _METHOD), number(at, _COUNT)
    if not method or layers is None:
        lacks = f"--{_COUNT}, such as 1" if method else f"--{_METHOD} uniform or block"
        raise BadRequest(f"--{_KIND} full needs {lacks}")
    if method == "uniform":
        return Recomputation({"recompute": "full"} | ({} if layers == 1 else {"recompute_num_layers": layers}))
    if pipeline.chunks is None:
        words = f"{layers} layers of every chunk are recomputed; priced is the least number that fits"
        return Recomputation({"recompute": "partial"}, None, (words,))
    again = pipeline.by_stage([min(layers, held) for held in pipeline.chunks])
    if again == pipeline.layers:
        return Recomputation({"recompute": "full"})
    return Recomputation({"recompute": "partial"}, again)
