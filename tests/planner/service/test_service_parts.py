"""Parts of the service on their own: what a worker may open, and how long a question may take."""

import asyncio
import contextlib
import json
import math
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from planner import PlanRequest, api, plan
from planner.cli import main
from planner.service import pool as pools
from planner.service.answers import answer
from planner.service.app import Refused, _answered, _for_hosts, log_exhaustion_once
from planner.service.guard import names_only
from planner.service.pool import Busy, Pool, Settings, limit_of
from tests.each import each
from tests.planner.service.test_service import HEAVY, SMALL, Served


def test_a_worker_opens_no_files_even_if_a_path_gets_through(tmp_path):
    secret = tmp_path / "secret.toml"
    secret.write_text("num_layers = 4")
    code = (
        "import sys\n"
        "from planner.service.guard import confine\n"
        "from costmodels.model.catalogue import model\n"
        "from planner.errors import BadFile\n"
        "model('gpt3-125m')\n"
        "confine()\n"
        "import costmodels, os, subprocess, socket\n"
        "from pathlib import Path\n"
        "assert model('gpt3-1.3b')\n"
        "def tried(f):\n"
        "    try: f()\n"
        "    except (PermissionError, BadFile): return\n"
        "    sys.exit('not refused')\n"
        f"tried(lambda: model({str(secret)!r}))\n"
        "tried(lambda: Path('beside.toml').read_text())\n"
        "tried(lambda: Path(costmodels.__path__[0] + '-else').read_text())\n"
        f"tried(lambda: os.open({str(tmp_path / 'new')!r}, os.O_CREAT))\n"
        f"tried(lambda: Path({str(tmp_path / 'new')!r}).write_text('x'))\n"
        f"tried(lambda: os.remove({str(secret)!r}))\n"
        "tried(lambda: os.system('true'))\n"
        "tried(lambda: subprocess.run(['true']))\n"
        "tried(lambda: socket.create_connection(('127.0.0.1', 9)))\n"
    )
    (tmp_path / "beside.toml").write_text("num_layers = 4")
    environment = {**os.environ, "PYTHONPATH": f"{Path(__file__).resolve().parents[3]}:{tmp_path}"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert secret.exists()
    assert not (tmp_path / "new").exists()


@each(
    ("said", "seconds"),
    [
        (b'{"time_limit": "2 min"}', 120.0),
        (b'{"time_limit": 1.5}', 1.5),
        *[(body, math.inf) for body in (b"{}", b'{"time_limit": "soon"}', b'{"time_limit": -1}', b'["time_limit"]')],
        (b'{"time_limit": ' + b"[" * 100_000, math.inf),
    ],
)
def test_a_question_s_own_limit_is_known_before_a_worker_has_it(said, seconds):
    assert limit_of(said) == seconds


def test_the_wait_for_a_worker_counts_in_a_question_s_limit(monkeypatch):
    given = []

    async def answered(_pool, _worker, _kind, _body, seconds):
        given.append(seconds)
        await asyncio.sleep(0.3)
        return 200, b"{}"

    monkeypatch.setattr(Pool, "_asked", answered)
    monkeypatch.setattr(Pool, "_begin_again", lambda pool, worker: pool._free.put_nowait(worker))

    async def three():
        pool = Pool(Settings(workers=1, seconds=30.0))
        bodies = (b"{}", b'{"time_limit": 2}', b'{"time_limit": 0.1}')
        return await asyncio.gather(*(pool.ask("plan", body) for body in bodies))

    *_, late = asyncio.run(three())
    assert given[0] == 30.0
    assert 0.0 < given[1] <= 1.7
    assert len(given) == 2
    assert (late[0], json.loads(late[1])["error"]["kind"]) == (422, "out-of-time")


@pytest.mark.parametrize("waiting", [0, 2])
def test_no_more_questions_wait_for_a_worker_than_may(waiting):
    async def asked():
        pool = Pool(Settings(workers=1, waiting=waiting))
        await pool._free.get()
        tasks = [asyncio.ensure_future(pool.ask("plan", b'{"time_limit": 0.05}')) for _ in range(waiting + 1)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    *others, last = asyncio.run(asked())
    assert isinstance(last, Busy)
    assert [status for status, _ in others] == [422] * waiting


@each(
    ("host", "allowed", "served"),
    [
        ("a.example.org:8642", "*.example.org", True),
        ("example.org", "*.example.org", False),
        ("another-example.org", "*.example.org", False),
        ("anything", "*", True),
        ("mine:1", "mine", True),
        ("wine", "mine", False),
        ("[::1]:8642", "::1", True),
    ],
)
def test_a_request_is_for_a_host_that_is_named_or_below_one_that_is(host, allowed, served):
    check = _for_hosts((allowed,)).dependency(SimpleNamespace(headers={"host": host}))
    with contextlib.nullcontext() if served else pytest.raises(Refused):
        asyncio.run(check)


def test_an_answer_is_remembered_until_others_come_and_an_error_is_not():
    asked = []

    async def ask(_kind, body):
        asked.append(body)
        return 422 if len(asked) == 1 else 200, b"{}"

    async def answers(*bodies):
        pool = SimpleNamespace(settings=Settings(remembered=1), ask=ask)
        known, open_client = OrderedDict(), SimpleNamespace(receive=asyncio.Event().wait)
        for body in bodies:
            await _answered(pool, known, "plan", body, open_client)

    asyncio.run(answers(b"1", b"1", b"1", b"2", b"2", b"1"))
    assert asked == [b"1", b"1", b"2", b"1"]


def test_a_process_that_has_answered_its_tasks_is_replaced(monkeypatch):
    started = []

    async def begin(_pool, worker):
        if worker.process is None:
            started.append(worker)
            worker.process, worker.answered = SimpleNamespace(kill=lambda: None, wait=_nothing), 0
        return worker.process

    async def _nothing(*_given):
        return 200, b"{}"

    monkeypatch.setattr(Pool, "_started", begin)
    monkeypatch.setattr(pools, "_exchange", _nothing)

    async def five():
        asked = Pool(Settings(workers=1, tasks=2))
        for _ in range(5):
            await asked.ask("plan", b"{}")

    asyncio.run(five())
    assert len(started) == 3


@pytest.mark.parametrize("limit", [1000, "1000", "20 min"])
def test_time_is_bounded_and_out_of_it_has_its_code(limit):
    status, document = answer("plan", json.dumps(HEAVY | {"time_limit": limit}).encode(), 1e-6)
    assert status == 422
    assert json.loads(document)["error"] == {
        "kind": "out-of-time",
        "message": json.loads(document)["error"]["message"],
        "exit_code": 4,
    }


@each(("kind", "share"), [("plan", 1.0), ("predict", 1.0), ("why-not", 0.5)])
def test_a_question_of_two_searches_gives_each_half_of_the_service_s_time(kind, share, monkeypatch):
    asked = []
    monkeypatch.setattr(api, kind.replace("-", "_"), lambda request: asked.append(request) or request)
    answer(kind, json.dumps(SMALL).encode(), 30.0)
    assert asked[0].time_limit == 30.0 * share


def test_fields_that_an_error_offers_are_not_what_it_is_about():
    status, document = answer("replan", json.dumps({"model": "llama3-8b"}).encode(), 30.0)
    assert status == 422
    assert "field" not in json.loads(document)["error"]


def test_names_are_no_paths():
    names_only({"model": "175b", "cluster": {"name": "mine", "accelerator": "h100-sxm"}, "stack": "fsdp"})


def test_an_interrupt_while_the_workers_start_leaves_no_traceback():
    command = [sys.executable, "-m", "planner", "serve", "--port", "0"]
    hear = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # a background job ignores it
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **hear) as process:
        assert process.stderr.readline().startswith("plan: listening")
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert "Traceback" not in said
    assert process.returncode in {0, 130}


def test_a_service_that_does_not_start_is_not_called_infeasible(monkeypatch):
    def fail(_server, **_sockets):
        sys.exit(3)

    monkeypatch.setattr("uvicorn.Server.run", fail)
    done = CliRunner().invoke(main, ["serve", "--port", "0"])
    assert done.exit_code == 1
    assert "did not start" in done.stderr


def test_a_profile_given_with_files_is_not_opened():
    status, said = answer(
        "read", json.dumps({"files": {"a.sh": "torchrun x.py"}, "profile": "/etc/passwd"}).encode(), 30.0
    )
    assert status == 422
    assert "the service reads no files" in json.loads(said)["error"]["message"]


def test_answers_with_numbers_beyond_reason_are_refused():
    found = json.loads(plan(PlanRequest(**SMALL)).to_json())
    found["request"]["cluster"]["name"] = True
    assert answer("replan", json.dumps({"plan": found, "gpus": 8}).encode(), 30.0)[0] == 422


def test_a_service_that_stops_without_descriptors_leaves_no_traceback(caplog):
    loop = asyncio.new_event_loop()
    log_exhaustion_once(loop)
    closed = socket.socket()
    closed.close()
    loop.call_soon(loop._start_serving, None, closed)  # as it does a second after it could accept nothing
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert caplog.text == ""
    loop.call_exception_handler({"message": "another", "exception": ValueError("defect")})
    assert "defect" in caplog.text
    assert "no connection" not in caplog.text
    loop.close()


def test_without_descriptors_the_log_says_so_once_and_the_service_goes_on():
    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))}
    service = Served("--workers", "1", **few)
    host, port = service.url.removeprefix("http://").split(":")
    with contextlib.ExitStack() as held:
        for _ in range(60):
            held.enter_context(socket.create_connection((host, int(port)), timeout=10))
        time.sleep(2.5)
    assert service.client.get("/v1/health").json()["status"] == "ok"
    code, log = service.stop()
    assert code == 0
    assert log.count("no connection can be accepted") == 1
    assert len(log.splitlines()) < 5
