"""What does it cost a host that processes are not bound to the processors next to their device?

NCCL before 2.30 left a process on those processors once it had set up a communicator; from then on, and by NVIDIA's
known issues from PyTorch's image 26.04, a launcher has to bind it [Megatron-Bridge-0.5.1]. ``host_binding.csv`` holds
iteration times of Megatron-LM's functional tests (tests/functional_tests/test_cases, golden_values_*.json, medians over
the steps) with image 26.02 (``before``, 14 to 17 April 2026) and with 26.04: as recorded on 7 May (``may_7``, 5fe3f06),
and by updates of 8 to 29 May (``later``; three of them speak of nightly tests). Models are so small that all tests are
bound by their hosts.

Where a test ran is not said: that one machine binds and the other does not is inferred from their speeds. The seven
pairs on H100 are of 6e091e1, which brings Transformer Engine 2.16 too; without them, 1.48 over ``before`` and
1.06 of the updates that speak of nightly tests, each of other tests, give 1.40. An update of 25 July (``july_25``,
cd4afff, image 26.06, Transformer Engine 2.18) has tests on H100 as slow as on 7 May again; BERT's, recorded three days
before it (96d4159), are as fast as ever.

    python benchmarks/host_binding.py
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

PAIRS = (("may_7", "later"), ("may_7", "before"), ("later", "before"), ("july_25", "later"), ("july_25", "may_7"))


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
            print(f"{over:7s} over {under:6s} {host:9s} {len(found):3d} tests: {middle:.2f} ({low:.2f} to {high:.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
