"""Interrupts that C code drops are not lost, and further processes end with what asked for them."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path

import numpy as np
import pytest

import planner.api
from planner.processes import _started, check_interrupt, forget_interrupts, map_in_processes, remembered_interrupts
from planner.request.budget import Budget
from planner.studies.engines import _started as _worker_started
from tests.planner.cli.test_cli import ASK, run
from tests.planner.elsewhere import deaf, squared

ROOT = Path(__file__).resolve().parents[2]


class Dropping:
    """What numpy asks whether it is an array, and drops whatever the asking raises."""

    def __getattr__(self, name):
        if name == "__array_interface__":
            signal.raise_signal(signal.SIGTERM)
        raise AttributeError(name)


def dropped(_request):
    np.asarray(Dropping())
    Budget().spent()
    raise AssertionError("the search went on")


def dropped_at_the_end(_request):
    np.asarray(Dropping())
    sys.exit(0)


@pytest.mark.parametrize("answer", [dropped, dropped_at_the_end])
def test_an_interrupt_that_numpy_drops_ends_the_command(monkeypatch, answer):
    monkeypatch.setattr(planner.api, "plan", answer)
    done = run(*ASK, "--format", "json")
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "plan: interrupted\n")


def test_an_interrupt_is_of_one_command(monkeypatch):
    monkeypatch.setattr(planner.api, "plan", dropped)
    assert run(*ASK).exit_code == 130
    check_interrupt()
    monkeypatch.undo()
    assert run(*ASK, "--no-reasons").exit_code == 0


def test_results_come_in_order_and_from_other_processes():
    found = map_in_processes(squared, range(10), workers=2, chunk=3)
    assert [square for square, _ in found] == [number**2 for number in range(10)]
    assert os.getpid() not in {process for _, process in found}


@pytest.mark.parametrize(
    ("odd", "error", "words"), [(-1, ValueError, "negative"), (100, RuntimeError, "a process ended")]
)
def test_what_goes_wrong_in_a_process_is_raised_here(odd, error, words):
    with pytest.raises(error, match=words):
        map_in_processes(squared, [1, 2, odd, 3], workers=2)


SLOW = """
import time
from planner.cli.ending import Ending
from planner.processes import map_in_processes
if __name__ == "__main__":
    with Ending(verbose=False):
        print("begun", flush=True)
        map_in_processes(time.sleep, [0.01] * 400 + [60] * 400, workers=2, chunk=50)
"""


@pytest.mark.parametrize("after", [0.0, 0.3, 1.0])
def test_a_signal_to_all_its_processes_ends_a_command_at_once(tmp_path, after):
    script = tmp_path / "slow.py"
    script.write_text(SLOW, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "begun\n"
    time.sleep(after)
    os.killpg(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "plan: interrupted\n")


def test_interrupts_of_the_terminal_are_for_the_one_that_asks():
    assert map_in_processes(deaf, range(4), workers=2) == [True] * 4
    assert not deaf(None)


@pytest.fixture
def interrupts_heard():
    """Of a shell's background job they are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts_heard")
@pytest.mark.parametrize("started", [lambda: _started(squared), _worker_started])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_until_a_process_has_started(monkeypatch, started, number):
    start, begun = SpawnProcess.start, []

    def hit(process):
        signal.raise_signal(number)
        start(process)
        begun.append(process)

    monkeypatch.setattr(SpawnProcess, "start", hit)
    with remembered_interrupts(), pytest.raises(KeyboardInterrupt):
        started()
    forget_interrupts()
    (process,) = begun
    process.terminate()
    process.join(20)
    assert process.exitcode in {0, -signal.SIGTERM}
