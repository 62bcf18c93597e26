"""How frameworks that cut a list of modules evenly divide layers over pipeline stages."""

from __future__ import annotations

from itertools import pairwise


def stage_layers(num_layers: int, pp: int, *, before: int, behind: int) -> list[int]:
    """Layers of every stage where ``before`` modules, the layers and ``behind`` modules count alike.

    Stages hold equally many modules, the first ones one more where they do not divide. Aleph Alpha's framework lists
    the embedding, the layers, the last norm and the head [scaling, pipe_partition_uniform].
    """
    low, longer = divmod(before + num_layers + behind, pp)
    ends = [stage * low + min(stage, longer) for stage in range(pp + 1)]
    inside = [min(max(end - before, 0), num_layers) for end in ends]
    return [end - start for start, end in pairwise(inside)]
