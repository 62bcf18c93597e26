"""Models by the names that files have for them: of the catalogue, of a hub, or a folder called after one."""

from __future__ import annotations

from costmodels.model.catalogue import model as find_model
from costmodels.model.model import Model
from hardware.errors import MeshwrightError


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
