"""The HTTP service under load: requests a second, latencies, memory, and what a flood and bad bodies do to it.

Starts `plan serve` on a free port and ends it. Client and service share the machine: the figures are a lower bound.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

BIG = {"model": "175b", "gpus": 1024, "reasons": False}


class Service:
    """A service and its processes."""

    def __init__(self, workers: int) -> None:
        command = [sys.executable, "-m", "planner", "serve", "--port", "0", "--workers", str(workers)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr
        found = re.search(r"http://\S+", self.process.stderr.readline())
        assert found
        self.client = httpx.Client(base_url=found[0], timeout=120, limits=httpx.Limits(max_connections=256))
        self.client.get("/v1/health")

    def resident(self) -> float:
        """MB of the service and its workers."""
        listed = subprocess.run(
            ["/bin/ps", "-o", "rss=", "--pid", str(self.process.pid), "--ppid", str(self.process.pid)],
            capture_output=True,
            text=True,
            check=True,
        )
        return sum(map(float, listed.stdout.split())) / 1024


def load(service: Service, bodies: list[bytes], clients: int) -> tuple[Counter[int], list[float], float]:
    """Statuses, sorted latencies in ms, and requests a second."""

    def one(body: bytes) -> tuple[int, float]:
        started = time.perf_counter()
        status = service.client.post("/v1/plan", content=body, headers={"content-type": "application/json"}).status_code
        return status, (time.perf_counter() - started) * 1e3

    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        found = list(pool.map(one, bodies))
    seconds = time.perf_counter() - started
    return Counter(status for status, _ in found), sorted(ms for _, ms in found), len(bodies) / seconds


def spoiled(count: int) -> list[bytes]:
    """Bodies with bytes changed or cut off, by a fixed seed."""
    rng = random.Random(0)  # noqa: S311 - a benchmark
    bodies = []
    for _ in range(count):
        text = bytearray(json.dumps(BIG).encode())
        text[rng.randrange(len(text))] = rng.randrange(256)
        bodies.append(bytes(text[: rng.randrange(len(text))]))
    return bodies


def show(name: str, service: Service, found: tuple[Counter[int], list[float], float]) -> None:
    statuses, ms, rate = found
    p50, p99 = ms[len(ms) // 2], ms[min(int(len(ms) * 0.99), len(ms) - 1)]
    codes = ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items()))
    print(f"{name:34s} {rate:8.1f}/s   p50 {p50:7.1f} ms   p99 {p99:7.1f} ms   {service.resident():5.0f} MB   {codes}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    service = Service(parser.parse_args().workers)

    def bodies(count: int, first: int = 1) -> list[bytes]:
        return [json.dumps(dict[str, Any](BIG, tokens=10**9 + first + n)).encode() for n in range(count)]

    try:
        show("175B, one after the other, warm", service, load(service, bodies(50), 1))
        show("175B, 8 clients", service, load(service, bodies(200, 1000), 8))
        show("the same question, 8 clients", service, load(service, bodies(1) * 2000, 8))
        show("1,000 spoiled bodies", service, load(service, spoiled(1000), 8))
        show("flood of 128 clients", service, load(service, bodies(1000, 5000), 128))
        show("175B after all that", service, load(service, bodies(20, 9000), 1))
    finally:
        service.process.terminate()
        service.process.wait()
    print(f"log: {service.process.stderr.read() or 'empty'}" if service.process.stderr else "")
    print(f"from {Path(__file__).name}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
