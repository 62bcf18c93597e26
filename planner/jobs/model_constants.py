"""Constants of a model that cost nothing and that the files of a training must say: bases of positions, epsilons."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

_FILE: Final = Path(__file__).with_suffix(".toml")


@cache
def _known() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def model_constants(name: str) -> Mapping[str, Any]:
    """The constants of a model of the catalogue, by the longest beginning of its name that is known; else none.

    Returns:
        ``rotary_base``, ``norm_epsilon``, ``rotary_scaling`` (Llama 3's factor) and ``yarn`` (factor and mscale), as
        far as they are the model's.
    """
    fits = [start for start in _known() if name.startswith(start)]
    return _known()[max(fits, key=len)] if fits else {}
