"""Idle seconds of a stage per iteration, for equal stages: what each order of passes costs besides its work.

Every function takes ``(p, m, v, forward, backward, weight)``, arrays that broadcast, and ``barrier``: p stages, m
micro-batches, v chunks of a stage, and the seconds f, b and w of its forward, input-gradient and weight-gradient passes
for one micro-batch through all its chunks (of DualPipe through one of a stage's two pieces, their mean). It returns
seconds per iteration, in the arguments' common shape.

Without sending, the time from pass to pass of a fixed order is a longest path, so each form is the largest of a few
sums; they were read off the simulation of the orders and checked against it on 9,186 pipelines of p <= 16 and
m <= 6 p, with 0.8 to 1.4 times the forward's seconds for the gradient of the input and 0.6 to 1.1 times for that of the
weights. All agree to rounding, but for V-Half (0.19 % of the iteration at most) and V-Min (0.57 %), and these two agree
at 1 : 1 : 1 and at 1 : 1.2 : 0.8 as well.

The time of an iteration can end in two ways. If a stage may begin the next iteration when it has finished its
own (the optimizer does not wait for a global norm first: the post-validation of [Qi23]), the iteration repeats
after the longest span from a stage's first pass to its last. If all stages wait for each other at a ``barrier``, it
repeats after the makespan. The older schedules start and end on stage 0 and do not care.

Sources:
    [Huang19] GPipe; [NarayananBW21] 1F1B; [Narayanan21] interleaving, section 2.2.2.
    [Qi23] P. Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, table 1.
    [Qi24] P. Qi et al., "Pipeline Parallelism with Controllable Memory", arXiv 2405.15362, table 1.
    [DeepSeek24] DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, table 2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import numpy as np
from numpy.typing import ArrayLike

from costmodels.arrays import Floats

_Terms = tuple[Floats | float, ...]


def _longest(paths: Callable[..., _Terms]) -> Callable[..., Floats]:
    """The largest of the sums of passes that ``paths`` returns for floats in their common shape."""

    @wraps(paths)
    def idle(
        p: ArrayLike,
        m: ArrayLike,
        v: ArrayLike,
        forward: ArrayLike,
        backward: ArrayLike,
        weight: ArrayLike,
        *,
        barrier: bool = False,
    ) -> Floats:
        given = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (p, m, v, forward, backward, weight)))
        terms = paths(*given, barrier)
        return np.asarray(np.maximum.reduce(np.broadcast_arrays(given[0], *terms)[1:]))

    return idle


@_longest
def fill_and_drain(p: Floats, _m: Floats, v: Floats, f: Floats, b: Floats, w: Floats, _barrier: bool) -> _Terms:
    """GPipe, 1F1B and the interleaved schedule, whose bubble no weight gradients fill.

        (p - 1) / v (f + b + w)

    >>> float(fill_and_drain(8, 32, 1, 1.0, 1.0, 1.0)), float(fill_and_drain(8, 32, 2, 1.0, 1.0, 1.0))
    (21.0, 10.5)
    """
    return ((p - 1) / v * (f + b + w),)


@_longest
def zb_1p(p: Floats, m: Floats, _v: Floats, f: Floats, b: Floats, w: Floats, barrier: bool) -> _Terms:
    """ZB-H1, whose weight gradients fill what 1F1B waits [Qi23].

        (p - 1) max(f + b - w, b),  at a barrier  (p - 1) max(f + b - w, b, f)

    With fewer than p micro-batches, see ``_warmed_up``.

    >>> float(zb_1p(8, 32, 1, 1.0, 1.0, 1.0))  # a third of 1F1B's 21
    7.0
    """
    return *_warmed_up(np.minimum(m, p), p, f, b, w), *(((p - 1) * f,) if barrier else ())


@_longest
def zb_2p(p: Floats, m: Floats, _v: Floats, f: Floats, b: Floats, w: Floats, barrier: bool) -> _Terms:
    """ZB-H2, which holds twice the activations to wait for nothing [Qi23].

        (p - 1) max(f + b - 2 w, b - f, 0),  at a barrier  (p - 1) max(f + b - 2 w, f), as ZB-H1 for equal passes

    With fewer than 2 p - 1 micro-batches, see ``_warmed_up``.

    >>> float(zb_2p(8, 32, 1, 1.0, 1.0, 1.0)), float(zb_2p(8, 32, 1, 1.0, 1.2, 0.8).round(9))
    (0.0, 4.2)
    """
    return *_warmed_up(np.minimum(m, 2 * p - 1), p, f, b, w), (p - 1) * f if barrier else 0.0


@_longest
def zb_v(p: Floats, _m: Floats, _v: Floats, f: Floats, b: Floats, w: Floats, barrier: bool) -> _Terms:
    """ZB-V, which holds as much as 1F1B and waits for nothing where the three passes are equal [Qi23, section 5].

        (p - 1) max(|f - b| / 2, f - w, b - w, (w - f) / 2, f - (b + w) / 2)
        at a barrier  (p - 1) max(f - b / 2, b / 2, w / 2, f - w, b - w)

    >>> float(zb_v(8, 32, 2, 1.0, 1.0, 1.0)), float(zb_v(8, 32, 2, 1.0, 1.2, 0.8).round(9))
    (0.0, 2.8)
    """
    ends = (f - b / 2, b / 2, w / 2) if barrier else (abs(f - b) / 2, (w - f) / 2, f - (b + w) / 2)
    return tuple((p - 1) * term for term in (*ends, f - w, b - w))


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


@_longest
def v_half(p: Floats, m: Floats, _v: Floats, f: Floats, b: Floats, w: Floats, _barrier: bool) -> _Terms:
    """About ``(p - 1) (f + 3 b - w) / 2``, half the bubble of 1F1B, and more where passes do not fit the block [Qi24].

    Every micro-batch then costs another ``f - b``, or ``b - f - w / 2``, whichever is positive. Off by 0.19 %
    of the iteration at most, where w is the longest pass or b is more than 1.3 f.
    """
    basis, passes = np.stack([m, p - 1, np.ones_like(p)], axis=-1), np.stack([f, b, w], axis=-1)
    odd, even = (
        np.einsum("kij,...j,...i->...k", paths, basis, passes).max(axis=-1) for paths in (_ODD_HALVES, _EVEN_HALVES)
    )
    return (np.where(p % 2 == 1, odd, even),)


@_longest
def v_min(p: Floats, m: Floats, _v: Floats, f: Floats, b: Floats, w: Floats, _barrier: bool) -> _Terms:
    """About two thirds of the bubble of 1F1B, and ``3 max(f, b) - f - b - w`` more for every micro-batch [Qi24].

    Off by 0.57 % of the iteration at most, where w is the longest pass or b is shorter than f.
    """
    less, more = np.minimum(f, b), np.maximum(f, b)
    shift = np.where(p % 3 == 0, 1.5, 0.0)
    once = (p + shift) * less + (p - 3 - shift) * more + w / 2
    return (once + m * np.maximum(2 * more - less - w, 0.0),)


@_longest
def dualpipe(p: Floats, _m: Floats, _v: Floats, f: Floats, b: Floats, w: Floats, barrier: bool) -> _Terms:
    """DualPipe, which sends micro-batches from both ends.

        max(q (f + b - w), q f + ceil(q / 2) (b - w), q (2 b - w) - f)  with q = p / 2 - 1, at a barrier q f in between

    [DeepSeek24] has ``q (f + 2 b - w)`` in these symbols, when no pass overlaps another: its backward
    passes send on when the gradients of the weights are done too. Here they send on before that.

    >>> float(dualpipe(8, 32, 1, 1.0, 1.0, 1.0))
    3.0
    """
    q = p / 2 - 1
    between = q * f if barrier else q * f + np.ceil(q / 2) * (b - w)
    return q * (f + b - w), between, q * (2 * b - w) - f, 0.0


@_longest
def dualpipe_v(p: Floats, m: Floats, v: Floats, f: Floats, b: Floats, w: Floats, barrier: bool) -> _Terms:
    """DualPipeV: as DualPipe on 2 p ranks with half a stage each."""
    return (dualpipe(2 * p, m, v, f / 2, b / 2, w / 2, barrier=barrier),)


@_longest
def interleaved_zb(p: Floats, m: Floats, v: Floats, f: Floats, b: Floats, w: Floats, barrier: bool) -> _Terms:
    """Interleaving with weight gradients apart: ZB-H1 shared by the chunks.

    (p - 1) / v max(f + b - w, b),  at a barrier  (p - 1) / v max(f + b - w, b, f, w)
    """
    if barrier:
        return tuple((p - 1) / v * term for term in (f + b - w, b, f, w))
    return (zb_1p(p, m, v, f, b, w) / v,)


def _warmed_up(n: Floats, p: Floats, f: Floats, b: Floats, w: Floats) -> tuple[Floats, Floats]:
    """What a first stage waits that has n forward passes until its first gradient comes.

    Gradients come as fast as the last stage makes them, one in ``f + b``, with weights' gradients in between; or the
    first one comes late, ``p f + (p - 1) b`` after the start. With p and 2 p - 1 they are the terms of [Qi23] and their
    neighbours, with fewer those of a pipeline that m micro-batches do not fill.
    """
    return (p - 1) * (f + b) - (n - 1) * w, p * f + (p - 1) * b - n * f
