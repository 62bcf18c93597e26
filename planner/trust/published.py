"""Published training runs that people compare with, picked out of the shipped measurements."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from planner.trust.table import read_rows

_TABLE = Path(__file__).with_name("published.csv")


class Landmark(NamedTuple):
    """One published run; the fields are the columns of ``published.csv``."""

    source: str
    model: str
    billions: float
    """Parameters, experts included, in billions."""
    gpus: int
    accelerator: str
    """Catalogue name of the accelerator."""
    family: str
    """Vendor and architecture: "NVIDIA Hopper"."""
    precision: str
    """Number format of the matrices; empty where the source does not say."""
    result: str
    """What was measured, in the source's own measure: "55.2 % MFU"."""

    @property
    def size(self) -> str:
        """The parameters in three digits: "8.03B", "1.03T"."""
        rounded = float(f"{self.billions:.3g}")
        return f"{rounded:g}B" if rounded < 1000.0 else f"{rounded / 1000.0:g}T"


@cache
def landmarks() -> tuple[Landmark, ...]:
    """The published runs, read once; ``scripts/refresh_landmarks.py`` writes the table."""
    return tuple(
        Landmark(**row | {"billions": float(row["billions"]), "gpus": int(row["gpus"])}) for row in read_rows(_TABLE)
    )
