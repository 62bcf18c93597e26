"""How long a whole planning process takes beside the imports that it cannot do without, and how it grows.

Every measurement is a fresh process. Planning and the bare imports of its libraries run in turns, so that
whatever else the machine does hits both; the median of the ratios is reported, with the peak memory of the
planning process and the growth from 12,288 to 1,048,576 GPUs.

    python benchmarks/startup.py [--pairs N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SMALL, LARGE = 12_288, 1_048_576
IMPORTS = "import numpy, pydantic, click, rich.console; from ortools.sat.python import cp_model"
ASK = "from planner import plan, PlanRequest; print(plan(PlanRequest(model='175b', gpus={gpus})).to_json())"


def command(gpus: int) -> list[str]:
    """The command line of the planner, or the same question through Python where there is none."""
    if (ROOT / "planner" / "cli").is_dir() or (ROOT / "planner" / "cli.py").exists():
        return [sys.executable, "-m", "planner", "--model", "175b", "--gpus", str(gpus), "--format", "json"]
    return [sys.executable, "-c", ASK.format(gpus=gpus)]


def run(arguments: list[str]) -> tuple[float, float]:
    """Wall seconds and peak memory in MiB of one process."""
    with tempfile.TemporaryFile() as out:
        started = time.perf_counter()
        process = subprocess.Popen(arguments, cwd=ROOT, stdout=out, stderr=subprocess.PIPE)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(process.stderr.read().decode())
        process.stderr.close()
    kib = usage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return wall, kib / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=15)
    pairs = parser.parse_args().pairs
    bare = [sys.executable, "-c", IMPORTS]
    for warm in (bare, command(SMALL), command(LARGE)):
        run(warm)
    rounds = [(run(bare), run(command(SMALL)), run(command(LARGE))) for _ in range(pairs)]
    imports, small, large = (statistics.median(r[k][0] for r in rounds) for k in range(3))
    ratio = statistics.median(r[1][0] / r[0][0] for r in rounds)
    growth = statistics.median(r[2][0] / r[1][0] for r in rounds)
    memory = [max(r[k][1] for r in rounds) for k in range(3)]
    print(f"imports alone         {imports:7.3f} s   {memory[0]:7.0f} MiB at its peak")
    print(f"plan, {SMALL:>9,} GPUs {small:7.3f} s   {memory[1]:7.0f} MiB at its peak   {ratio:.2f} x the imports")
    print(f"plan, {LARGE:>9,} GPUs {large:7.3f} s   {memory[2]:7.0f} MiB at its peak   {growth:.2f} x {SMALL:,} GPUs")


if __name__ == "__main__":
    main()
