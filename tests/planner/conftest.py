"""Sequences of the tests are short; every kind of context parallelism is searched on them all the same."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from planner.search import best_first
from planner.space import lattice

FEW = 24
"""Cores of a chunk at most where bounds are to leave some out."""


@pytest.fixture(autouse=True, scope="module")
def every_kind_of_context_parallelism() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice, "LONG_SEQUENCE", 1)
        yield


@pytest.fixture(scope="module")
def few_cores_at_a_time() -> Iterator[None]:
    """For searches of small lattices: at the usual pace all is priced before any bound leaves something out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best_first, "ONE_GROUP", replace(best_first.ONE_GROUP, first=1, chunk=FEW, ordered=FEW))
        yield
