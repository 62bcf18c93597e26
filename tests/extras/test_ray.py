"""Ray: the same answers, whatever dies on the way. Every driver is a process of its own."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from planner.studies.running import run
from planner.studies.study_file import study_of
from tests.planner.sweep_studies import answers

ROOT = Path(__file__).resolve().parents[2]
STUDY = {
    "model": "llama3-8b",
    "gpus": {"from": 8, "to": 64, "step": 8},
    "global_batch": 960,
    "cluster": {"fabric": {"bandwidth": ["25 GB/s", "100 GB/s"]}, "memory": ["1x", "2x"]},
}
HEAD = f"""
import os, signal, sys
from pathlib import Path
from planner.studies.running import run
from planner.studies.study_file import study_of
STUDY = {STUDY!r}
def below(pid):
    for task in Path(f"/proc/{{pid}}/task").glob("*/children"):
        for child in task.read_text().split():
            yield int(child)
            yield from below(child)
def killed(names):
    for pid in below(os.getpid()):
        words = Path(f"/proc/{{pid}}/cmdline").read_text()
        if any(name in words for name in names):
            os.kill(pid, signal.SIGKILL)
            return 1
    return 0
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "runs.sqlite"
    assert run(study_of(STUDY), path, workers=1).answered == 32
    return answers(path)


def driver(body, *arguments):
    """What a driver prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HEAD + body, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_local_cluster_finds_what_one_process_finds(tmp_path, undisturbed):
    body = "print(run(study_of(STUDY), sys.argv[1], engine='ray', address='local', workers=2).answered)"
    assert driver(body, tmp_path / "runs.sqlite").split()[-1] == "32"
    assert answers(tmp_path / "runs.sqlite") == undisturbed


def test_workers_that_are_killed_lose_nothing(tmp_path, undisturbed):
    body = """
seen = []
def watch(progress):
    if progress.answered and len(seen) < 3:
        seen.append(killed(["ray::answer_batch", "ray::IDLE"]))
done = run(study_of(STUDY), sys.argv[1], engine="ray", address="local", workers=2, watch=watch)
print(done.answered, done.failed, sum(seen))
"""
    answered, failed, kills = map(int, driver(body, tmp_path / "runs.sqlite").split()[-3:])
    assert (answered, failed) == (32, 0)
    assert kills >= 1
    assert answers(tmp_path / "runs.sqlite") == undisturbed


def test_a_node_that_is_killed_loses_nothing(tmp_path, undisturbed):
    body = """
import ray
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
node = cluster.add_node(num_cpus=1)
seen = []
def watch(progress):
    if progress.answered and not seen:
        seen.append(1)
        cluster.remove_node(node, allow_graceful=False)
done = run(study_of(STUDY), sys.argv[1], engine="ray", address=cluster.address, watch=watch)
print(done.answered, done.failed, len(seen))
"""
    assert driver(body, tmp_path / "runs.sqlite").split()[-3:] == ["32", "0", "1"]
    assert answers(tmp_path / "runs.sqlite") == undisturbed


def test_no_more_is_given_to_ray_than_it_works_on(tmp_path):
    body = """
drawn, most = 0, 0
def watch(progress):
    global most
    most = max(most, drawn - progress.answered)
import planner.studies.running as module
real = module._unanswered
def counted(*arguments, **named):
    global drawn
    for one in real(*arguments, **named):
        drawn += 1
        yield one
module._unanswered = counted
run(study_of(STUDY), sys.argv[1], engine="ray", address="local", workers=2, watch=watch)
print(drawn, most)
"""
    drawn, most = map(int, driver(body, tmp_path / "runs.sqlite").split()[-2:])
    assert drawn == 32
    assert most <= (2 * 2 + 1) * 4


def test_a_cluster_that_is_gone_is_not_waited_for(tmp_path):
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
    body = """
os.environ["RAY_TMPDIR"] = sys.argv[1]
from planner.studies.ray_engine import _running_here
print(_running_here())
"""
    assert driver(body, tmp_path).split() == ["None"]


def test_an_address_without_a_cluster_is_refused_in_one_line(tmp_path):
    (tmp_path / "study.toml").write_text('model = "llama3-8b"\ngpus = 8\n')
    command = ["-m", "planner", "sweep", str(tmp_path / "study.toml"), "-o", str(tmp_path / "runs.sqlite")]
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, *command, "--engine", "ray", "--address", "127.0.0.1:1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr[-2000:]
    assert "127.0.0.1:1" in done.stderr.splitlines()[-1]
    assert time.monotonic() - started < 100
