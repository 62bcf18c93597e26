"""How Aleph Alpha's framework divides layers over pipeline stages."""

from __future__ import annotations

from itertools import accumulate, pairwise

from costmodels.model.flops import kind_matmul_weights
from costmodels.model.layer_kinds import DENSE
from costmodels.model.model import Model


def stage_layers(model: Model, pp: int) -> list[int]:
    """Layers of every stage, its modules balanced by their parameters.

    The modules are the embedding, the layers, the last norm and the head. Stages take modules in order up to a limit,
    the least under which all fit; stages that are left over at the end stay empty. The framework also knows a cut into
    equally many modules; the paper names neither, and of the runs of the fit split this one leaves less unexplained
    [scaling, pipe_partition_balanced].
    """
    ends = float(model.vocab_size * model.hidden_size)
    layer, norm = float(kind_matmul_weights(model, DENSE)), float(model.hidden_size)
    weights = [ends, *[layer] * model.num_layers, norm, ends]
    # The heaviest stage of the best cut is some run of modules: of all of these the least that is enough.
    sums = [0.0, *accumulate(weights)]
    runs = sorted({high - low for i, low in enumerate(sums) for high in sums[i + 1 :]})
    limit = next(limit for limit in runs if limit >= max(weights) and len(_filled(weights, limit)) <= pp)
    cuts = [*accumulate(_filled(weights, limit))]
    last = [0, *cuts, *[len(weights)] * (pp - len(cuts))]
    inside = [min(max(end - 1, 0), model.num_layers) for end in last]
    return [end - start for start, end in pairwise(inside)]


def _filled(weights: list[float], limit: float) -> list[int]:
    """Modules of every stage where each takes as many as weigh no more than the limit."""
    held, sum_so_far = [0], 0.0
    for weight in weights:
        if sum_so_far + weight > limit * (1.0 + 1e-9):
            held.append(0)
            sum_so_far = 0.0
        held[-1] += 1
        sum_so_far += weight
    return held
