"""Batches near the one asked for that fewer or more devices divide better."""

from collections.abc import Iterable, Iterator
from typing import Final

from costmodels.training.moving import Layout
from planner.request.request import PlanRequest

NEAR_BATCH: Final = 0.1
"""How much a batch may differ from the old one to be proposed, a share."""
LEAST_DOUBLINGS: Final = 3
"""Of the odd part of a round number of devices, from which a batch that is a multiple of it is tried."""


def near_batches(request: PlanRequest, layout: Layout, node: int, counts: Iterable[int]) -> Iterator[PlanRequest]:
    """The question with the nearest batch that as many copies of the old layout as are left divide, or round numbers.

    A round number of devices is an odd one doubled often. Its batch is a multiple of the odd one doubled as often as
    keeps it near, so that replicas and stages of many sizes divide it.
    """
    row, batch = layout.row, request.global_batch_size or 1
    width = int(row.tp[0] * row.cp[0] * row.pp[0])
    copies = next((n for n in range((request.gpus or 0) // width, 0, -1) if width * n % node == 0), 0)
    each = copies * int(row.micro_batch_size[0]) * (int(row.pp[0]) if row.vpp[0] > 1 else 1)
    pairs = [(width * copies, _multiple(batch, each))] if each else []
    for gpus in counts:
        odd = gpus // (gpus & -gpus)
        doubled = (_multiple(batch, odd << times) for times in range(batch.bit_length(), LEAST_DOUBLINGS - 1, -1))
        near = next((one for one in doubled if abs(one / batch - 1.0) <= NEAR_BATCH / 2), batch)
        pairs.append((gpus, near))
    for gpus, near in dict.fromkeys(pairs):
        if near != batch and abs(near / batch - 1.0) <= NEAR_BATCH:
            yield request.model_copy(update={"gpus": gpus, "global_batch_size": near})


def _multiple(count: int, of: int) -> int:
    return max(round(count / of), 1) * of
