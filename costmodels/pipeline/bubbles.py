"""Idle seconds of a stage per iteration, for equal stages: what each order of passes costs beside its work.

Every function takes ``(p, m, v, forward, backward, weight)``, arrays that broadcast: stages, micro-batches,
chunks, and the stage's seconds of forward, input-gradient and weight-gradient passes for one micro-batch
through all its chunks. Without sending, the time from pass to pass of a fixed order is a longest path,
so each form is the largest of a few sums; they were read off the simulation of the orders and checked against
it on 9,186 pipelines of p <= 16 and m <= 6 p, with 0.8 to 1.4 times the forward's seconds for the gradient of
the input and 0.6 to 1.1 times for that of the weights. All agree to rounding, but for V-Half (0.19 % of the
iteration at most) and V-Min (0.57 %), and these two agree at 1 : 1 : 1 and at 1 : 1.2 : 0.8 as well.

The time of an iteration can end in two ways. If a stage may begin the next iteration when it has finished its
own (the optimizer does not wait for a global norm first: the post-validation of [Qi23]), the iteration repeats
after the longest span from a stage's first pass to its last. If all stages wait for each other, it repeats
after the makespan: those are the forms named ``..._at_barrier``. The older schedules start and end on stage 0
and do not care.

Sources:
    [Qi23] P. Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, table 1.
    [Qi24] P. Qi et al., "Pipeline Parallelism with Controllable Memory", arXiv 2405.15362, table 1.
    [DeepSeek24] DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, table 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from costmodels.arrays import Floats


def fill_and_drain(
    p: ArrayLike, m: ArrayLike, v: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> Floats:
    """Idle seconds of GPipe, 1F1B and the interleaved schedule, which none of their weight gradients fills.

        (p - 1) / v (f + b + w)

    Args:
        p: stages.
        m: micro-batches.
        v: chunks of a stage.
        forward: f, seconds of a stage's forward pass of one micro-batch through all its chunks.
        backward: b, of the gradient of its input.
        weight: w, of the gradient of its weights.

    Returns:
        Seconds per iteration, in the arguments' common shape.

    Source:
        [Huang19], [NarayananBW21]; interleaved: [Narayanan21], section 2.2.2.

    >>> float(fill_and_drain(8, 32, 1, 1.0, 1.0, 1.0)), float(fill_and_drain(8, 32, 2, 1.0, 1.0, 1.0))
    (21.0, 10.5)
    """
    p, m, v, f, b, w = _floats(p, m, v, forward, backward, weight)
    return _longest(m, (p - 1) / v * (f + b + w))


def zb_1p(
    p: ArrayLike, m: ArrayLike, v: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> Floats:
    """Idle seconds of ZB-H1, whose weight gradients fill what 1F1B waits.

        (p - 1) max(f + b - w, b);  with fewer than p micro-batches, see ``_warmed_up``

    Args:
        p: stages.
        m: micro-batches.
        v: chunks of a stage, 1.
        forward: f, seconds of a stage's forward pass of one micro-batch.
        backward: b, of the gradient of its input.
        weight: w, of the gradient of its weights.

    Returns:
        Seconds per iteration, in the arguments' common shape.

    Source:
        [Qi23], table 1, has the first term.

    >>> float(zb_1p(8, 32, 1, 1.0, 1.0, 1.0))  # a third of 1F1B's 21
    7.0
    """
    p, m, v, f, b, w = _floats(p, m, v, forward, backward, weight)
    return _longest(m * v, *_warmed_up(np.minimum(m, p), p, f, b, w))


def zb_1p_at_barrier(
    p: ArrayLike, m: ArrayLike, v: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> Floats:
    """ZB-H1 where all stages wait for each other: ``(p - 1) max(f + b - w, b, f)``, or as ``_warmed_up`` says."""
    p, m, v, f, b, w = _floats(p, m, v, forward, backward, weight)
    return _longest(m * v, *_warmed_up(np.minimum(m, p), p, f, b, w), (p - 1) * f)


def zb_2p(
    p: ArrayLike, m: ArrayLike, v: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> Floats:
    """Idle seconds of ZB-H2, which holds twice the activations to wait for nothing.

        (p - 1) max(f + b - 2 w, b - f, 0);  with fewer than 2 p - 1 micro-batches, see ``_warmed_up``

    Args:
        p: stages.
        m: micro-batches.
        v: chunks of a stage, 1.
        forward: f, seconds of a stage's forward pass of one micro-batch.
        backward: b, of the gradient of its input.
        weight: w, of the gradient of its weights.

    Returns:
        Seconds per iteration, in the arguments' common shape.

    Source:
        [Qi23], table 1, has the first term.

    >>> float(zb_2p(8, 32, 1, 1.0, 1.0, 1.0)), float(zb_2p(8, 32, 1, 1.0, 1.2, 0.8).round(9))
    (0.0, 4.2)
    """
    p, m, v, f, b, w = _floats(p, m, v, forward, backward, weight)
    return _longest(m * v, *_warmed_up(np.minimum(m, 2 * p - 1), p, f, b, w), 0.0)


def zb_2p_at_barrier(
    p: ArrayLike, m: ArrayLike, v: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> Floats:
    """ZB-H2 where all stages wait for each other: ``(p - 1) max(f + b - 2 w, f)``, as ZB-H1 for equal passes.

    With fewer than 2 p - 1 micro-batches, see ``_warmed_up``.
    """
    p, m, v, f, b, w = _floats(p, m, v, forward, backward, weight)
    return _longest(m * v, *_warmed_up(np.minimum(m, 2 * p - 1), p, f, b, w), (p - 1) * f)


def zb_v(
    p: ArrayLike, m: ArrayLike, v: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> Floats:
    """Idle seconds of ZB-V, which holds as much as 1F1B and waits for nothing where the three passes are equal.

        (p - 1) max(|f - b| / 2, f - w, b - w, (w - f) / 2, f - (b + w) / 2)

    Args:
        p: stages.
        m: micro-batches, which count by their shape alone.
        v: chunks of a stage, 2.
        forward: f, seconds of a stage's forward passes of one micro-batch through both chunks.
        backward: b, of the gradients of their inputs.
        weight: w, of the gradients of their weights.

    Returns:
        Seconds per iteration, in the arguments' common shape.

    Source:
        [Qi23], section 5; read off the simulation where passes differ.

    >>> float(zb_v(8, 32, 2, 1.0, 1.0, 1.0)), float(zb_v(8, 32, 2, 1.0, 1.2, 0.8).round(9))
    (0.0, 2.8)
    """
    p, m, v, f, b, w = _floats(p, m, v, forward, backward, weight)
    terms = (abs(f - b) / 2, f - w, b - w, (w - f) / 2, f - (b + w) / 2)
    return _longest(m * v, *((p - 1) * term for term in terms))


def zb_v_at_barrier(
    p: ArrayLike, m: ArrayLike, v: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> Floats:
    """ZB-V where all stages wait for each other: ``(p - 1) max(f - b / 2, b / 2, w / 2, f - w, b - w)``."""
    p, m, v, f, b, w = _floats(p, m, v, forward, backward, weight)
    return _longest(m * v, *((p - 1) * term for term in (f - b / 2, b / 2, w / 2, f - w, b - w)))


_ODD_HALVES = np.array(
    [
        [[0, 0.5, 0], [0, 1.5, 0], [0, -0.5, -0.5]],
        [[0, 0.5, 0], [0, 1, 0], [0, 0, -0.5]],
        [[0, 0.5, 0.5], [0, 1, -1], [0, 0, 0]],
        [[1, 0.5, -0.5], [-1, 1, 0], [0, 0, 0]],
        [[1, 1, -1], [-1, 1, 1], [0, -0.5, -0.5]],
        [[1, 1, -1], [-1, 1, 0], [0, -0.5, 0.5]],
        [[-1, 1, 1], [1, 1, -1], [-0.5, -0.25, -0.5]],
    ]
)
_EVEN_HALVES = np.array(
    [
        [[0, 0.5, 0], [0, 1.5, -0.5], [0, -0.5, -0.5]],
        [[0, 0.5, 0.5], [0, 1.5, -0.5], [0, -0.5, -1]],
        [[0, 0.5, 0], [0, 1, -1.5], [0, 0, 0.5]],
        [[1, 0.5, -2], [-1, 1, 1.5], [0, 0, -0.5]],
        [[1, 1, -3], [-1, 1, 3], [0, -0.5, -1]],
        [[1, 1, -3], [-1, 1, 1.5], [0, -0.5, 0.5]],
        [[-1, 1, 2], [1, 1, -2], [-0.5, -0.25, -0.25]],
    ]
)
"""Longest paths of V-Half for odd and even p: how many f, b and w, each as a sum of m, p - 1 and 1."""


def v_half(
    p: ArrayLike, m: ArrayLike, v: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> Floats:
    """About ``(p - 1) (f + 3 b - w) / 2``, half the bubble of 1F1B, and more where passes do not fit the block.

    Every micro-batch then costs another ``f - b``, or ``b - f - w / 2``, whichever is positive. Off by 0.19 %
    of the iteration at most, where w is the longest pass or b is more than 1.3 f.
    """
    p, m, v, f, b, w = _floats(p, m, v, forward, backward, weight)
    p, m, _, f, b, w = np.broadcast_arrays(p, m, v, f, b, w)
    basis, passes = np.stack([m, p - 1, np.ones_like(p)], axis=-1), np.stack([f, b, w], axis=-1)
    odd, even = (
        np.einsum("kij,...j,...i->...k", paths, basis, passes).max(axis=-1) for paths in (_ODD_HALVES, _EVEN_HALVES)
    )
    return np.where(p % 2 == 1, odd, even)


def v_min(
    p: ArrayLike, m: ArrayLike, v: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> Floats:
    """About two thirds of the bubble of 1F1B, and ``3 max(f, b) - f - b - w`` more for every micro-batch.

    Off by 0.57 % of the iteration at most, where w is the longest pass or b is shorter than f.
    """
    p, m, v, f, b, w = _floats(p, m, v, forward, backward, weight)
    less, more = np.minimum(f, b), np.maximum(f, b)
    shift = np.where(p % 3 == 0, 1.5, 0.0)
    once = (p + shift) * less + (p - 3 - shift) * more + w / 2
    return _longest(v, once + m * np.maximum(2 * more - less - w, 0.0))


def dualpipe(
    p: ArrayLike, m: ArrayLike, v: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> Floats:
    """Idle seconds of DualPipe, which sends micro-batches from both ends.

        max(q (f + b - w), q f + ceil(q / 2) (b - w), q (2 b - w) - f)  with q = p / 2 - 1

    [DeepSeek24] has ``q (f + 2 b - w)`` in these symbols, when no pass overlaps another: its backward
    passes send on when the gradients of the weights are done too. Here they send on before that.

    Args:
        p: stages, an even number.
        m: micro-batches, which count by their shape alone.
        v: chunks of a stage, 1.
        forward: f, seconds of a forward pass of one micro-batch through one of a stage's two pieces, their mean.
        backward: b, of the gradient of its input.
        weight: w, of the gradient of its weights.

    Returns:
        Seconds per iteration, in the arguments' common shape.

    Source:
        [DeepSeek24], table 2.

    >>> float(dualpipe(8, 32, 1, 1.0, 1.0, 1.0))
    3.0
    """
    p, m, v, f, b, w = _floats(p, m, v, forward, backward, weight)
    q = p / 2 - 1
    return _longest(m * v, q * (f + b - w), q * f + np.ceil(q / 2) * (b - w), q * (2 * b - w) - f, 0.0)


def dualpipe_at_barrier(
    p: ArrayLike, m: ArrayLike, v: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> Floats:
    """DualPipe where all stages wait for each other: ``q f`` for the second term."""
    p, m, v, f, b, w = _floats(p, m, v, forward, backward, weight)
    q = p / 2 - 1
    return _longest(m * v, q * (f + b - w), q * f, q * (2 * b - w) - f, 0.0)


def dualpipe_v(
    p: ArrayLike, m: ArrayLike, v: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> Floats:
    """Idle seconds of DualPipeV: those of DualPipe on 2 p ranks with half a stage each."""
    f, b, w = (np.asarray(x) / 2 for x in (forward, backward, weight))
    return dualpipe(2 * np.asarray(p), m, v, f, b, w)


def dualpipe_v_at_barrier(
    p: ArrayLike, m: ArrayLike, v: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> Floats:
    """DualPipeV where all stages wait for each other: DualPipe on 2 p ranks with half a stage each."""
    f, b, w = (np.asarray(x) / 2 for x in (forward, backward, weight))
    return dualpipe_at_barrier(2 * np.asarray(p), m, v, f, b, w)


def interleaved_zb(
    p: ArrayLike, m: ArrayLike, v: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> Floats:
    """Idle seconds of interleaving with weight gradients apart: those of ZB-H1, shared by the chunks."""
    return np.asarray(zb_1p(p, m, v, forward, backward, weight) / np.asarray(v))


def interleaved_zb_at_barrier(
    p: ArrayLike, m: ArrayLike, v: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> Floats:
    """Interleaving with weight gradients apart, at a barrier: ``(p - 1) / v max(f + b - w, b, f, w)``."""
    p, m, v, f, b, w = _floats(p, m, v, forward, backward, weight)
    return _longest(m, *((p - 1) / v * term for term in (f + b - w, b, f, w)))


def _warmed_up(n: Floats, p: Floats, f: Floats, b: Floats, w: Floats) -> tuple[Floats, Floats]:
    """What a first stage waits that has n forward passes until its first gradient comes.

    Gradients come as fast as the last stage makes them, one in ``f + b``, with weights' gradients in between; or the
    first one comes late, ``p f + (p - 1) b`` after the start. With p and 2 p - 1 they are the terms of [Qi23] and those
    beside them, with fewer those of a pipeline that m micro-batches do not fill.
    """
    return (p - 1) * (f + b) - (n - 1) * w, p * f + (p - 1) * b - n * f


def _floats(*arrays: ArrayLike) -> tuple[Floats, ...]:
    return tuple(np.asarray(array, dtype=np.float64) for array in arrays)


def _longest(shape: ArrayLike, *terms: ArrayLike) -> Floats:
    """The largest term; ``shape`` is an argument that counts by its shape alone."""
    everywhere = np.broadcast_arrays(shape, *terms)
    return np.maximum.reduce(everywhere[1:]).astype(np.float64)
