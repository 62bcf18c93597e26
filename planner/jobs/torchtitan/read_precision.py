"""The number format of a torchtitan TOML: what its model converters do to the products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.fields import flag, table, word

_LINEAR: Final = {"quantize.linear.float8": "float8", "float8": "float8", "quantize.linear.mx": "mx", "mx": "mx"}
_GROUPED: Final = {"quantize.grouped_mm.float8": "float8", "quantize.grouped_mm.mx": "mx"}
_RECIPES: Final = {"tensorwise": "fp8-current", "rowwise": "fp8-rowwise"}
_BLOCKS: Final = ("mxfp8_cublas", "mxfp8_cublas_rceil", "mxfp8_emulated", "mxfp8")


def precision(
    document: Mapping[str, Any], model: Mapping[str, Any], training: Mapping[str, Any], ep: int
) -> tuple[str, bool, list[str]]:
    """The recipe, whether weights are gathered in 8 bits, and remarks.

    Raises:
        BadRequest: a converter or a recipe that is not priced.
    """
    used = _converters(model)
    width = word(training, "mixed_precision_param", ("bfloat16", "float32"), "bfloat16", within="training.")
    if not used:
        return "fp32" if width == "float32" else "bf16", False, []
    linear, grouped = ([known[name] for name in used if name in known] for known in (_LINEAR, _GROUPED))
    if len({*linear, *grouped}) > 1:
        raise BadRequest(f"model.converters: {' and '.join(used)} are of two formats, which torchtitan refuses")
    if not linear:
        raise BadRequest(f"model.converters: {used[0]} alone is not priced; {next(iter(_LINEAR))} beside it is")
    told = ["quantize: every product of a layer is priced in 8 bits, those of filter_fqns too"]
    if ep > 1 and not grouped:
        told = ["model.converters leave experts in 16 bits; every product of a layer is priced in 8 bits"]
    at = _settings(document, linear[0])
    if linear[0] == "mx":
        _ = word(at, "recipe_name", _BLOCKS, _BLOCKS[0], within="quantize.linear.mx.")
        return "mxfp8", False, told
    where = "quantize.linear.float8."
    recipe = _RECIPES[word(at, "recipe_name", _RECIPES, "tensorwise", within=where)]
    gathered = flag(at, "enable_fsdp_float8_all_gather", within=where)
    if gathered and at.get("recipe_name") is not None:
        raise BadRequest(f"{where}enable_fsdp_float8_all_gather excludes recipe_name; leave out one of them")
    return recipe, gathered, told


def _converters(model: Mapping[str, Any]) -> list[str]:
    found = model.get("converters") or []
    names = found.split(",") if isinstance(found, str) else found
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise BadRequest(f'model.converters: expected names such as ["quantize.linear.float8"], got {found!r:.40}')
    known = (*_LINEAR, *_GROUPED)
    for name in (stripped := [name.strip() for name in names]):
        if name not in known:
            raise BadRequest(f"model.converters: {name!r:.60} is not priced; {', '.join(known)} are")
    return stripped


def _settings(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Settings of one kind of linear layers, under ``quantize`` since 0.2, at the top before."""
    linear = table(table(document, "quantize", such_as="linear"), "linear", such_as="float8")
    return table(linear if name in linear else document, name, such_as='recipe_name = "rowwise"')
