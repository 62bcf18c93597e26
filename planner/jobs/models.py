"""Models by the names that files have for them, and their constants that cost nothing and that files must say."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from costmodels.model.catalogue import model as find_model
from costmodels.model.model import Model
from hardware.errors import MeshwrightError
from planner.jobs.values import data


def known_model(name: str) -> tuple[str, Model] | None:
    """The model of a name or of its last part, with the name that the catalogue knows; None where it has none."""
    for candidate in dict.fromkeys((name, name.rstrip("/").rpartition("/")[2])):
        try:
            return candidate, find_model(candidate)
        except (MeshwrightError, OSError):
            continue
    return None


def taken_to_be(name: str, candidate: str) -> tuple[str, ...]:
    """That a longer name stands for a model; nothing where it is the model's own."""
    return () if candidate == name else (f"{name} is taken to be {candidate}; --model changes it",)


@cache
def known_constants() -> Mapping[str, Mapping[str, Any]]:
    """The constants that are known, by the catalogue's names of the models."""
    return {name: row for row in data("models")["constants"] for name in row["models"]}


def model_constants(name: str) -> Mapping[str, Any]:
    """The constants of a model of the catalogue; none of a model of which no source was read.

    They are ``rotary_base``, ``norm_epsilon``, ``rotary_scaling`` (Llama 3's factor), ``yarn`` (factor and mscale) and
    ``releases`` (how releases of the same sizes differ).
    """
    return known_constants().get(name, {})
