"""The lattices of the last questions, kept for the next call of a program that asks again."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Final

from costmodels.scenario import Scenario
from planner.pins import Pin
from planner.space import Space, build

KEPT: Final = 4
MOST_CORES: Final = 400_000
"""Cores that are kept in all: some 50 MB."""

_recent: list[tuple[Scenario, dict[str, Pin], Space]] = []
_lock = Lock()


def recent_space(scenario: Scenario, pins: Mapping[str, Pin]) -> Space:
    """As ``build``; a question like one of the last few, about the same machines, model and stack, gets its lattice."""
    asked = dict(pins)
    known = next((one for one in tuple(_recent) if one[1] == asked and one[0] == scenario), None)
    space = known[2] if known else build(scenario, asked)
    with _lock:
        _recent[:] = [(scenario, asked, space), *(one for one in _recent if one is not known)]
        while _recent and (len(_recent) > KEPT or sum(len(one.cores) for _, _, one in _recent) > MOST_CORES):
            _recent.pop()
    return space
