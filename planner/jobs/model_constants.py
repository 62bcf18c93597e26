"""Constants of a model that cost nothing and that the files of a training must say: bases of positions, epsilons."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

_FILE: Final = Path(__file__).with_suffix(".toml")


@cache
def known_constants() -> Mapping[str, Mapping[str, Any]]:
    """The constants that are known, by the catalogue's names of the models."""
    rows = tomllib.loads(_FILE.read_text(encoding="utf-8"))["constants"]
    return {name: row for row in rows for name in row["models"]}


def model_constants(name: str) -> Mapping[str, Any]:
    """The constants of a model of the catalogue; none of a model of which no source was read.

    Returns:
        ``rotary_base``, ``norm_epsilon``, ``rotary_scaling`` (Llama 3's factor), ``yarn`` (factor and mscale) and
        ``releases`` (how releases of the same sizes differ), as far as they are the model's.
    """
    return known_constants().get(name, {})
