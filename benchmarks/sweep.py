"""How many points of a study are answered a second, and that nothing that happens on the way changes an answer.

python benchmarks/sweep.py              searches of GPT-3 175B in one process: shared against independent
python benchmarks/sweep.py --study      all of benchmarks/sweep.toml on this machine
python benchmarks/sweep.py --kills 20   the same, killed with SIGKILL twenty times on the way
python benchmarks/sweep.py --ray        the same on a local Ray cluster
python benchmarks/sweep.py --many       a study of 100,000 points: seconds and memory of a run and of a resumed one
"""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DENSE = {
    "model": "175b",
    "cluster": ["dgx-a100-80gb", "dgx-h100"],
    "gpus": [1024, 2048, 4096],
    "global_batch": [2048, 3072],
}
MACHINES = {"fabric": {"bandwidth": ["0.5x", "1x", "2x", "4x"]}, "memory_bandwidth": ["1x", "1.5x"]}
MANY = """
model = "llama3-8b"
mode = "predict"
gpus = 64
tp = [1, 2, 4, 8]
pp = [1, 2]
global_batch = { from = 64, to = 64000, step = 64 }
cluster.price = { from = 1, to = 13, step = 1 }
"""


def rates() -> None:
    """Searches a second, sharing and alone, in turns so that other programs slow both alike."""
    from planner.studies.answer import Shared, Task, answered
    from planner.studies.study import points_of
    from planner.studies.study_file import study_of

    study = study_of(
        {**{k: v for k, v in DENSE.items() if k != "cluster"}, "clusters": DENSE["cluster"], "cluster": MACHINES}
    )
    tasks = [Task(point.index, "", "search", point.fields) for point in points_of(study)]
    shared, spent = Shared(), {"shared": 0.0, "alone": 0.0, "plan": 0.0}
    answered(tasks[0], Shared())
    for number, task in enumerate(tasks):
        started = time.process_time()
        first = answered(task, shared)
        spent["shared"] += time.process_time() - started
        started = time.process_time()
        second = answered(task, Shared())
        spent["alone"] += time.process_time() - started
        if number % 8 == 0:
            spent["plan"] += 8 * _whole(task)
        assert first == second, task
    count = len(tasks)
    print(f"{count} searches of GPT-3 175B on 1,024 to 4,096 GPUs, one process, processor time")
    for name, what in (("shared", "in a sweep"), ("alone", "without sharing"), ("plan", "as `plan` answers them")):
        print(
            f"  {count / spent[name]:6.1f} per core-second {what}, {spent[name] / spent['shared']:.2f} times the time"
        )
    print(f"  peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def _whole(task: object) -> float:
    from planner import plan
    from planner.studies.question import request_of

    started = time.process_time()
    plan(request_of(task.fields))
    return time.process_time() - started


def whole(*options: str, kills: int = 0, seed: int = 175) -> None:
    """All of the study, as often killed as asked, and a digest of what the store holds in the end."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "runs.sqlite"
        command = [sys.executable, "-m", "planner", "sweep", str(HERE / "sweep.toml"), "-o", str(store), *options]
        started, dice = time.perf_counter(), random.Random(seed)  # noqa: S311 - moments of kills
        for number in range(kills):
            process = subprocess.Popen([*command, "-q"], stdout=subprocess.DEVNULL)
            target = (number + 1) * 2016 // (kills + 1)
            while process.poll() is None and answers(store) < target:
                time.sleep(0.2 * dice.random())
            process.send_signal(signal.SIGKILL)
            process.wait()
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        seconds, count = time.perf_counter() - started, answers(store)
        print(f"{count} points in {seconds:.0f} s, {count / seconds:.1f} a second, killed {kills} times,", end=" ")
        print(f"exit code {done.returncode}, answers {digest(store)}")


def answers(store: Path) -> int:
    try:
        with sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True) as connection:
            count: int = connection.execute("SELECT count(*) FROM results").fetchone()[0]
    except sqlite3.Error:
        return 0
    connection.close()
    return count


def digest(store: Path) -> str:
    """What all answers say, without how long they took and when."""
    found = hashlib.sha256()
    with sqlite3.connect(store) as connection:
        for row in connection.execute("SELECT key, status, document, error FROM results ORDER BY key"):
            found.update(repr(row).encode())
    connection.close()
    return found.hexdigest()[:16]


def many() -> None:
    """A study of about a hundred thousand fixed strategies, and the same once more."""
    with tempfile.TemporaryDirectory() as folder:
        study, store = Path(folder) / "many.toml", Path(folder) / "runs.sqlite"
        study.write_text(MANY.replace("{ from = 1, to = 13, step = 1 }", str([f"{n} $/h" for n in range(1, 14)])))
        for _ in range(2):
            started = time.perf_counter()
            command = [sys.executable, "-m", "planner", "sweep", str(study), "-o", str(store), "--format", "csv"]
            subprocess.run([*command, "--results", str(Path(folder) / "runs.csv")], check=True)
            print(f"{answers(store):,} answers in the store after {time.perf_counter() - started:.0f} s")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"largest process {peak:.0f} MiB, store {store.stat().st_size / 2**20:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--study", action="store_true")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--many", action="store_true")
    asked = parser.parse_args()
    if asked.many:
        many()
    elif asked.ray:
        whole("--engine", "ray", "--address", "local")
    elif asked.study or asked.kills:
        whole(kills=asked.kills)
    else:
        rates()


if __name__ == "__main__":
    main()
