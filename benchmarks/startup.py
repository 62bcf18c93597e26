"""How much processor time whole planning processes take beyond the imports that they cannot do without, and memory.

Every measurement is a fresh process. Questions and the bare imports of the planner's libraries run in turns, so that
whatever else the machine does hits both; the least of each is compared, which a busy machine disturbs least.

    python benchmarks/startup.py [--rounds N]
"""

from __future__ import annotations

import argparse
import compileall
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMPORTS = "import numpy, pydantic, click, rich.console; from ortools.sat.python import cp_model"
QUESTIONS = {
    "--model 175b --gpus 12288": (2.2, 230),
    "--model 175b --gpus 12288 --no-reasons": (1.5, 200),
    "--model deepseek-v3 --gpus 2048": (3.6, 270),
    "--model llama3.1-405b --gpus 16384": (2.1, 250),
    "--model 22b --gpus 128 --cluster a100-h100-mixed": (3.5, 280),
    "--model 175b --gpus 1048576": (2.2, 250),
}
"""Command lines with what they may take: times the imports alone, and MiB at the peak."""


def run(arguments: list[str]) -> tuple[float, float]:
    """Seconds of processor time and peak memory in MiB of one process."""
    with Path(os.devnull).open("wb") as nowhere:
        process = subprocess.Popen(arguments, cwd=ROOT, stdout=nowhere)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{arguments} ended with {process.returncode}")
    kib = usage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return usage.ru_utime + usage.ru_stime, kib / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    for package in ("hardware", "costmodels", "planner"):
        compileall.compile_dir(ROOT / package, quiet=2)
    commands = {"imports alone": [sys.executable, "-c", IMPORTS]}
    commands |= {asked: [sys.executable, "-m", "planner", *asked.split()] for asked in QUESTIONS}
    found = [{name: run(command) for name, command in commands.items()} for _ in range(rounds)]
    bare = min(one["imports alone"][0] for one in found)
    print(f"{'':50} CPU s  times imports (budget)  MiB (budget)")
    for name in commands:
        seconds, memory = min(one[name][0] for one in found), max(one[name][1] for one in found)
        times, most = QUESTIONS.get(name, (1.0, 150))
        print(f"{name:50} {seconds:5.2f}  {seconds / bare:7.2f} ({times:g}){'':13}  {memory:4.0f} ({most})")


if __name__ == "__main__":
    main()
