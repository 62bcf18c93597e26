"""Layers of every stage where a fork moves some off the last stage, which holds the head [VocabularyParallelism]."""

from __future__ import annotations


def stage_layers(layers: int, pp: int, last: int) -> list[int]:
    """Layers of every stage where the last is given ``last``, as ``--final-stage-num-layers`` is.

    The others share the rest evenly; what is left over goes to the latest of them, one each, so that early stages,
    which hold the most micro-batches, hold no further layers (``get_num_layers_to_build`` [VocabularyParallelism]).
    """
    each, over = divmod(layers - last, pp - 1)
    return [each] * (pp - 1 - over) + [each + 1] * over + [last]
