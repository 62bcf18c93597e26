"""Rows that are priced together against the price of each alone: the even split, its memory, and any split's terms."""

import numpy as np
import pytest

from costmodels.layout.split import Assignment
from costmodels.memory.even_peaks import even_peaks
from costmodels.memory.footprint import footprint
from costmodels.memory.rows import row_bytes
from costmodels.names import Recompute
from costmodels.pricing import price, price_strategy, row_assignment
from tests.scenarios import random_rows


def even_split(rows, index, scenario):
    return row_assignment(rows.take(np.array([index])), scenario.model.num_layers)


def random_assignment(row, num_layers, chance):
    """Layers in any number of slices per stage, any of them recomputed where the row recomputes."""
    slices = num_layers // row["vpp"]
    layers = row["vpp"] * (1 + chance.multinomial(slices - row["pp"], np.ones(row["pp"]) / row["pp"]))
    free = row["recompute"] == Recompute.FULL
    return Assignment(layers, chance.integers(0, layers + 1) if free else np.zeros_like(layers))


def check_prices(rows, scenario):
    """The price of many rows is the price of each under the even split."""
    prices = price(rows, scenario)
    for index in range(len(rows)):
        even = price_strategy(rows, scenario, even_split(rows, index, scenario), row=index)
        assert prices.iteration[index] == pytest.approx(even.iteration, rel=1e-12)
        assert prices.slowest[index] == pytest.approx(even.stage_seconds.max(), rel=1e-12)
        assert prices.total[index] == pytest.approx(even.stage_seconds.sum(), rel=1e-12)


def check_peaks(rows, scenario):
    """The even peak of every row is what the fullest stage of its even split allocates."""
    memory = row_bytes(rows, scenario)
    peaks = even_peaks(rows, memory, scenario.model.num_layers)
    for index in range(len(rows)):
        split = even_split(rows, index, scenario)
        stages = footprint(rows, memory, scenario, row=index, layers=split.layers, recomputed=split.recomputed)
        assert peaks[index] == pytest.approx(stages.allocated.max(), rel=1e-12)


def quotes_that_add_up(scenario, seed, count):
    """(row, split, price) of so many strategies under splits of any kind, once their terms were seen to add up."""
    rows, chance = random_rows(scenario, count, seed), np.random.default_rng(seed)
    for index in range(len(rows)):
        split = random_assignment(rows.row(index), scenario.model.num_layers, chance)
        priced = price_strategy(rows, scenario, split, row=index)
        assert sum(priced.breakdown.values()) == pytest.approx(priced.iteration, rel=1e-12)
        assert min(priced.breakdown.values()) >= -1e-12 * priced.iteration
        yield rows.take([index]), split, priced
