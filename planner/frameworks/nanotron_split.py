"""How nanotron divides layers over pipeline stages."""

from __future__ import annotations

from costmodels.model.model import Model


def stage_layers(model: Model, pp: int, *, reached: bool = False) -> list[int]:
    """Layers of every stage, by nanotron's own count of what blocks cost.

    A layer costs its weights with as many heads of keys as of queries and three feed-forward matrices, the head the
    vocabulary's. Blocks fill a stage until the sum of all so far exceeds its share, the block that does so included
    [nanotron]; with ``reached``, until it has that share.
    """
    h = model.hidden_size
    layer = 4 * model.attention_width * h + 3 * model.ffn_hidden_size * h
    total = model.num_layers * layer + model.vocab_size * h
    held = [0] * pp
    stage = 0
    for placed in range(1, model.num_layers + 1):
        held[stage] += 1
        if placed * layer * pp > total * (stage + 1) - reached:
            stage += 1
    return held
