"""Constants of a model that cost nothing and that the files of a training must say: bases of positions, epsilons."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from planner.jobs.data import data


@cache
def known_constants() -> Mapping[str, Mapping[str, Any]]:
    """The constants that are known, by the catalogue's names of the models."""
    return {name: row for row in data("model_constants")["constants"] for name in row["models"]}


def model_constants(name: str) -> Mapping[str, Any]:
    """The constants of a model of the catalogue; none of a model of which no source was read.

    Returns:
        ``rotary_base``, ``norm_epsilon``, ``rotary_scaling`` (Llama 3's factor), ``yarn`` (factor and mscale) and
        ``releases`` (how releases of the same sizes differ), as far as they are the model's.
    """
    return known_constants().get(name, {})
