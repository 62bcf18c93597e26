"""What does a layer cost the host, and how fast are hosts? Tests of models that are too small to keep a device busy.

``host_calls.csv`` holds what Megatron-LM's functional tests took (tests/functional_tests/test_cases, iteration times of
golden_values_*.json as of April 2026, medians over the steps, with the arguments that decide them): layers of width
512 on eight devices, all bound by their hosts. One form for all of them: a step, every layer and micro-batch by its
parts, the hops of a pipeline, all times a factor for the host. Fitted robustly to the logarithms.

    python benchmarks/host_calls.py
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

HOSTS = ("dgx-h100", "gb200", "dgx-a100")
"""The first is the measure of the others."""
PARTS = ("tp", "cp", "latent", "experts", "deterministic", "fp8", "overlapped", "full_recompute")
ROBUST = 0.05
LAUNCH = 6e-6
"""Of the stacks: a call of a forward pass is three with its backward pass."""
FORWARD = 3
"""So that a layer that is recomputed whole is a third longer, and by what its checkpoint costs."""


def parts(test: dict[str, str]) -> list[float]:
    """How often each constant counts in a test: a step, layers, layers by their parts, hops."""
    many, stages, chunks = (float(test[name]) for name in ("micro_batches", "pp", "vpp"))
    layers = (many + (stages - 1) / chunks) * float(test["layers"]) / stages
    has = [float(test[name]) > (1 if name in {"tp", "cp"} else 0) for name in PARTS]
    hops = (many * chunks + stages - 1) * (stages > 1)
    return [1.0, layers * (1 + float(test["full_recompute"]) / FORWARD), *(layers * on for on in has), hops]


def fit(tests: list[dict[str, str]]) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of every part on the first host with the factors of the others, and the errors of the tests."""
    counts = np.array([parts(test) for test in tests])
    measured = np.array([float(test["seconds"]) for test in tests])
    host = np.array([HOSTS.index(test["host"]) for test in tests])

    def wrong(x: np.ndarray) -> np.ndarray:
        factors = np.concatenate([[1.0], x[counts.shape[1] :]])
        return np.log(np.maximum(counts @ x[: counts.shape[1]] * factors[host], 1e-9) / measured)

    start = np.concatenate([[0.01], np.full(counts.shape[1] - 1, 0.002), np.full(len(HOSTS) - 1, 1.5)])
    found = least_squares(wrong, start, loss="soft_l1", f_scale=ROBUST, bounds=(0.0, 10.0))
    return found.x, np.expm1(wrong(found.x))


def main() -> int:
    with (Path(__file__).parent / "host_calls.csv").open(encoding="utf-8") as file:
        tests = list(csv.DictReader(file))
    found, errors = fit(tests)
    names = ["step", "layer", *PARTS, "hop"]
    median, most = np.quantile(abs(errors), [0.5, 0.9])
    print(f"{len(tests)} tests: median error {median:.1%}, 90th percentile {most:.1%}")
    for name, seconds in zip(names, found, strict=False):
        print(f"  {name:14s} {1e3 * seconds:6.2f} ms  {seconds / LAUNCH / 3:6.0f} calls of a forward pass")
    for name, factor in zip(HOSTS[1:], found[len(names) :], strict=True):
        print(f"  {name:14s} {factor:6.2f} times the time of {HOSTS[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
