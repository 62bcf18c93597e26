"""Whole nodes of several groups, held against trying every number of nodes."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from hardware.filling import filled, neighbours
from tests.each import each

GROUPS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=3)


def every(groups):
    """Devices by the nodes of each group."""
    choices = product(*(range(nodes + 1) for _, nodes in groups))
    return {counts: sum(size * n for (size, _), n in zip(groups, counts, strict=True)) for counts in choices}


@given(GROUPS, st.data())
def test_the_first_groups_give_the_most_that_lets_the_others_fill_whole_nodes(groups, data):
    sums = every(groups)
    n = data.draw(st.integers(1, max(sums.values())))
    assert filled(groups, n) == max((counts for counts, total in sums.items() if total == n), default=None)
    near = (max(t for t in sums.values() if t < n), min((t for t in sums.values() if t > n), default=0))
    assert neighbours(groups, n) == tuple(total for total in near if total)


@each(
    ("n", "nodes"),
    [(7, (1, 0)), (10, (0, 2)), (12, (1, 1)), (15, (0, 3)), (19, (2, 1)), (22, (1, 3)), (29, (2, 3)), (8, None)],
)
def test_a_slower_group_serves_where_the_faster_one_leaves_a_part_of_a_node(n, nodes):
    assert filled([(7, 2), (5, 3)], n) == nodes


def test_as_many_nodes_as_there_can_be_are_filled_at_once():
    assert filled([(7, 2**24), (5, 2**24)], 2**24) == (2396743, 3)
