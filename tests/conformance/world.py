"""One process that is any rank of any world: torch's fake process group."""

from contextlib import contextmanager

import torch
from torch.testing._internal.distributed.fake_pg import FakeStore


@contextmanager
def rank_of(rank, world):
    """This process as one rank of a world, for as long as the block runs."""
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()
