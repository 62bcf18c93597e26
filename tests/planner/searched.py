"""What a search among few strategies has to find, and memory under which only part of them fits."""

import math

import numpy as np
import pytest

from costmodels.memory.even_peaks import even_peaks
from costmodels.memory.host import host_fits
from costmodels.memory.rows import row_bytes
from planner.search.priced import price_pairs
from tests.planner.brute_force import brute_force
from tests.scenarios import changed_device


def tightened(scenario, rows, tightness):
    """The same scenario with so much memory that only part of the rows fits, none of them to the last byte."""
    peaks = even_peaks(rows, row_bytes(rows, scenario), scenario.model.num_layers)
    low, high = float(peaks.min()), float(peaks.max())
    allocated = low * (high / low) ** tightness * (1 + 1e-7)
    return changed_device(
        scenario,
        usable_memory=allocated * (1 + scenario.stack.allocator.fragmentation) + scenario.stack.allocator.reserved,
    )


def tried(rows, scenario):
    """Least seconds of an iteration among all rows and splits that fit; infinite where nothing fits."""
    best = brute_force(rows, scenario)
    return best.iteration if best else math.inf


def agree(outcome, seconds):
    """The search has proved that the best takes so long, infinite where nothing fits."""
    assert outcome.proved
    assert (outcome.best is None) == np.isinf(seconds)
    if outcome.best is None:
        return
    assert outcome.best.iteration == pytest.approx(seconds, rel=3e-9)
    assert outcome.lower_bound <= outcome.best.iteration
    assert outcome.lower_bound == pytest.approx(seconds, rel=3e-9)


def price_cores(space, cores, scenario):
    """Every allowed pair of a core and a sharding option, priced in full, but what does not fit the hosts."""
    place, option = np.nonzero(space.allowed[cores])
    rows = space.rows(cores[place], option)
    fits = np.flatnonzero(host_fits(rows, scenario))
    rows, place = rows.take(fits), place[fits]
    return price_pairs(space.cores.take(cores), place, rows, row_bytes(rows, scenario), scenario)
