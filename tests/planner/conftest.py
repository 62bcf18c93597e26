"""Sequences of the tests are short; every kind of context parallelism is searched on them all the same."""

from collections.abc import Iterator

import pytest

from planner.space import lattice


@pytest.fixture(autouse=True, scope="module")
def every_kind_of_context_parallelism() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice, "LONG_SEQUENCE", 1)
        yield
