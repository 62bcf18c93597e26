"""Choices of a sparse model that the solver need not see: those that ask for no less than another of the same place.

Of a small table it is all one, in the solver's units, how many of its rows lie in which tier; of a large one it seldom
is. What is left out is dominated to the last unit, so that the solver's answer and its bounds stay what they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.sparse.layout import Choice

Ints = NDArray[np.int64]
_LARGEST: Final = 2.0**61
"""Units; what asks for more is hopeless whatever its number."""


def demands(choices: Sequence[Choice], rate: float, *, unit: float, page: float) -> Ints:
    """What every choice asks for in the solver's whole numbers, the less the better, shape (choices, columns).

    Node-seconds per second by part, group and resource, and of a step in all, rounded as the solver rounds them; what
    stays on its node counts for a choice, so its negative stands here; bytes stored and copied.
    """
    rows = []
    for choice in choices:
        load = choice.load
        spent = np.concatenate([load.work.ravel(), load.work.sum(axis=2).ravel()])
        spent = np.floor(np.minimum(rate * spent * unit, _LARGEST))
        stays = -np.ceil(np.minimum(rate * load.inside.ravel() * unit, _LARGEST))
        held = np.floor(np.concatenate([load.stored.ravel(), load.copies.ravel()]) / page)
        rows.append(np.concatenate([spent, stays, held]))
    return np.array(rows).astype(np.int64)


def undominated(choices: Sequence[Choice], asked: Ints) -> list[int]:
    """Places of the choices that no other of the same group and home dominates; of equal ones the first.

    Requests and staleness are alike where group and home are.
    """
    kept: list[int] = []
    for group in dict.fromkeys((choice.group, choice.home) for choice in choices):
        mine = [index for index, choice in enumerate(choices) if (choice.group, choice.home) == group]
        mine.sort(key=lambda index: (int(asked[index].sum()), index))
        front: list[int] = []
        for index in mine:
            if not any((asked[other] <= asked[index]).all() for other in front):
                front.append(index)
        kept += front
    return sorted(kept)
