"""How many strategies one core prices per second at full fidelity: seconds of every term and bytes of every stage.

A million distinct valid strategies for GPT-3 175B on 12,288 GPUs, drawn at random from all that the rules
admit, go through the same calls in chunks of the same size as in a search: ``price`` (seconds, term by term),
``row_bytes`` and ``even_peaks`` (bytes). Nothing is carried over from one chunk to the next.

    python benchmarks/pricing.py [--rows N] [--chunk N] [--repeats N] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Iterable, Iterator

import numpy as np

import planner.cli  # noqa: F401  # which collects garbage as rarely here as where somebody asks for a plan
from costmodels.memory.even_peaks import even_peaks
from costmodels.memory.limits import memory_limit
from costmodels.memory.rows import row_bytes
from costmodels.names import SCHEDULE_NAMES
from costmodels.pricing import price
from costmodels.scenario import Scenario
from costmodels.strategy import AXES, Strategies
from planner.request.pins import parse_pins
from planner.request.request import PlanRequest
from planner.request.resolve import resolve
from planner.search.best_first import CHUNK
from planner.space.lattice import build

SEED = 175
OPTIONS = 3
"""Sharding options of one core, about: a search prices ``CHUNK`` cores with all of theirs at a time."""


def scenario() -> Scenario:
    return resolve(PlanRequest(model="175b", gpus=12288)).scenario


def random_rows(question: Scenario, count: int) -> Strategies:
    """Distinct valid strategies in random order: every allowed pair of a core and a sharding degree."""
    pins = {"sharding_degree": "1..", "schedule": ",".join(SCHEDULE_NAMES), "recompute": "none,selective,full"}
    space = build(question, parse_pins(pins))
    core, option = np.nonzero(space.allowed)
    if len(core) < count:
        raise SystemExit(f"the space holds {len(core)} strategies, {count} were asked for")
    drawn = np.random.default_rng(SEED).choice(len(core), count, replace=False)
    return space.rows(core[drawn], option[drawn])


def price_all(chunks: Iterable[Strategies], question: Scenario) -> tuple[float, int]:
    """The fastest iteration of all, and how many strategies fit."""
    fastest, fitting = np.inf, 0
    for rows in chunks:
        prices = price(rows, question)
        peaks = even_peaks(rows, row_bytes(rows, question), question.model.num_layers)
        fits = peaks <= memory_limit(question, rows)
        fitting += int(fits.sum())
        fastest = min(fastest, float(prices.iteration[fits].min(initial=np.inf)))
    return fastest, fitting


def chunked(rows: Strategies, size: int) -> Iterator[Strategies]:
    """The rows, so many at a time, each let go before the next as in a search."""
    return (rows.take(slice(start, start + size)) for start in range(0, len(rows), size))


def distinct(rows: Strategies) -> int:
    columns = np.stack([getattr(rows, name).astype(np.float64) for name in AXES])
    order = np.lexsort(columns)
    return 1 + int(np.any(np.diff(columns[:, order], axis=1) != 0, axis=0).sum())


def measure(rows: Strategies, question: Scenario, *, chunk: int, repeats: int) -> None:
    print(f"{len(rows):,} strategies, {distinct(rows):,} distinct, in chunks of {chunk:,}")
    best = 0.0
    for _ in range(repeats):
        chunks = chunked(rows, chunk)
        wall, core = time.perf_counter(), time.process_time()
        fastest, fitting = price_all(chunks, question)
        wall, core = time.perf_counter() - wall, time.process_time() - core
        best = max(best, len(rows) / core)
        print(f"{len(rows) / core:>12,.0f} per core-second  ({wall:.3f} s wall, {core:.3f} s processor)")
    print(f"{best:>12,.0f} per core-second at best; {fitting:,} fit, the fastest of them takes {fastest:.4g} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--chunk", type=int, default=OPTIONS * CHUNK)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    asked = parser.parse_args()
    question = scenario()
    rows = random_rows(question, asked.rows)
    price_all([rows.take(slice(0, asked.chunk))], question)
    if asked.profile:
        with cProfile.Profile() as profile:
            price_all(chunked(rows, asked.chunk), question)
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)
    measure(rows, question, chunk=asked.chunk, repeats=asked.repeats)


if __name__ == "__main__":
    main()
