"""Communication beside computation: what of it lengthens a step."""

from __future__ import annotations

import numpy as np

from costmodels.strategy import Bools, Floats


def exposed(seconds: Floats, window: Floats, share: Floats, *, slow: Floats, hidden: bool) -> Floats:
    """What of a collective lengthens the iteration: all of it, or one bucket's share and what outlasts the window.

    What is hidden slows the computation beside it, by ``slow``.
    """
    if not hidden:
        return seconds
    first = share * seconds
    rest = seconds - first
    return first + np.maximum(rest - window, 0.0) + slowdown(np.minimum(rest, window), slow)


def slowdown(hidden: Floats, slow: Floats | float) -> Floats:
    """Seconds by which ``hidden`` seconds of communication hold up the computation they run beside."""
    return hidden * slow / (1.0 + slow)


def prefetched(seconds: Floats, window: Floats, *, slow: Floats, hidden: Bools) -> Floats:
    """Exposed seconds of one collective, started a layer ahead where it is hidden."""
    left = np.maximum(seconds - window, 0.0) + slowdown(np.minimum(seconds, window), slow)
    return np.where(hidden, left, seconds)
