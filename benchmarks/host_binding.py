"""What does it cost a host that processes are not bound to the processors beside their device?

NCCL before 2.30 left a process on those processors once it had set up a communicator; from 2.30 on a launcher has to
bind it [Megatron-Bridge-0.5.1]. ``host_binding.csv`` holds iteration times of Megatron-LM's
functional tests (tests/functional_tests/test_cases, golden_values_*.json, medians over the steps) before its image went
from 26.02 to 26.04, which brought that NCCL (``before``, 14 to 17 April 2026), and after it: where pull requests are
tested (``runners``, 7 May 2026, 5fe3f06), and on the cluster of nightly tests (``cluster``, 8 to 29 May 2026). Models
are so small that all tests are bound by their hosts.

    python benchmarks/host_binding.py
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

PAIRS = (("runners", "cluster"), ("runners", "before"), ("cluster", "before"))


def ratios(tests: list[dict[str, str]], over: str, under: str) -> Iterator[tuple[str, np.ndarray]]:
    """By host, how many times as long each test took in one place as in another."""
    for host in sorted({test["host"] for test in tests}):
        both = [test for test in tests if test["host"] == host and test[over] and test[under]]
        if both:
            yield host, np.array([float(test[over]) / float(test[under]) for test in both])


def main() -> int:
    with (Path(__file__).parent / "host_binding.csv").open(encoding="utf-8") as file:
        tests = list(csv.DictReader(file))
    for over, under in PAIRS:
        for host, found in ratios(tests, over, under):
            low, middle, high = np.quantile(found, [0.1, 0.5, 0.9])
            print(f"{over:8s} over {under:8s} {host:9s} {len(found):3d} tests: {middle:.2f} ({low:.2f} to {high:.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
