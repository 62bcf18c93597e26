"""The service as a client meets it: right answers, one line for what is wrong, limits, and nothing run or read."""

import concurrent.futures
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from planner import PlanRequest, plan
from tests.each import each
from tests.planner.service.processes import children, resident, worked

SMALL = {"model": "gpt3-125m", "gpus": 8}
HEAVY = {"model": "megatron-1008b", "gpus": 3072, "cluster": "dgx-a100-80gb", "global_batch_size": 3072}


class Served:
    """A service in a process of its own."""

    def __init__(self, *options, **settings):
        command = [sys.executable, "-m", "planner", "serve", "--port", "0", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **settings)
        line = self.process.stderr.readline()
        self.url = re.search(r"http://\S+", line)[0]
        self.client = httpx.Client(base_url=self.url, timeout=120)
        self.client.get("/v1/health")  # answered when the workers are ready

    def ask(self, kind, body):
        return self.client.post(f"/v1/{kind}", json=body)

    def raw(self, kind, content, **headers):
        return self.client.post(f"/v1/{kind}", content=content, headers={"content-type": "application/json", **headers})

    def stop(self):
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        with self.process.stderr as stream:
            log = stream.read()
        return self.process.wait(30), log


@pytest.fixture(scope="module")
def served():
    service = Served("--workers", "1", "--waiting", "2", "--time-limit", "20s", "--body", "100000")
    yield service
    code, log = service.stop()
    assert code == 0
    assert "Traceback" not in log


def said(response):
    error = response.json()
    assert error["schema"] == "error/1"
    assert "\n" not in error["error"]["message"]
    return error["error"]["message"]


def test_a_plan_is_the_one_that_the_library_finds(served):
    got = served.ask("plan", SMALL).json()
    own = json.loads(plan(PlanRequest(**SMALL)).to_json())
    assert {name: got[name] for name in ("strategy", "prediction", "why_not")} == {
        name: own[name] for name in ("strategy", "prediction", "why_not")
    }


def test_every_question_is_answered(served):
    found = served.ask("plan", SMALL).json()
    assert served.ask("predict", SMALL | {"pins": {"tp": 2}, "layers_per_stage": [12]}).json()["strategy"]["tp"] == 2
    objection = served.ask("why-not", SMALL | {"pins": {"tp": 2}}).json()
    assert objection["schema"] == "why-not/1"
    assert "verdict" in objection
    queue = {"cluster": "dgx-h100", "gpus": 16, "jobs": [{"name": "a", "model": "gpt3-125m"}]}
    assert served.ask("allocate", queue).json()["jobs"][0]["placed"]["gpus"] == 16
    assert served.ask("replan", {"plan": found, "gpus": 16}).json()["nearest"]["gpus"] == 16
    assert {"gpt3-175b"} <= {row["name"] for row in served.client.get("/v1/models").json()}
    assert {"megatron-lm"} <= {row["name"] for row in served.client.get("/v1/exporters").json()}
    assert {"fleet-cpu"} <= {row["name"] for row in served.client.get("/v1/servers").json()}


def test_infeasible_is_an_answer(served):
    found = served.ask("plan", {"model": "llama2-70b", "gpus": 8, "pins": {"offload": "none"}})
    assert (found.status_code, found.json()["status"]) == (200, "infeasible")


def test_a_table_stands_for_a_model_and_a_cluster(served):
    sizes = {"num_layers": 4, "hidden_size": 64, "num_heads": 8, "vocab_size": 1000, "seq_length": 128}
    mine = {"name": "m/n", "accelerator": "h100-sxm", "gpus_per_node": 8, "nodes": 1}
    assert served.ask("plan", {"model": sizes, "gpus": 8, "cluster": mine}).status_code == 422
    found = served.ask("plan", {"model": sizes, "gpus": 8, "cluster": mine | {"name": "mine"}})
    assert found.json()["request"]["cluster"]["name"] == "mine"


PATHS = ["/etc/passwd", "../../secret.toml", "~/.ssh/config.json", "x.TOML", "a\\b", "examples/my-model.toml"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("field", ["model", "cluster", "stack"])
def test_no_file_is_read_for_a_client(served, field, path):
    found = served.ask("plan", SMALL | {field: path})
    assert found.status_code == 422
    assert "looks like a file; the service reads none" in said(found)


def test_no_file_is_read_for_a_job_of_a_queue_or_an_old_answer(served):
    queue = {"cluster": "dgx-h100", "gpus": 16, "jobs": [{"name": "a", "model": "/srv/x.toml"}]}
    assert "looks like a file" in said(served.ask("allocate", queue))
    old = served.ask("plan", SMALL).json()
    old["request"]["stack"] = "/srv/x.toml"
    assert "looks like a file" in said(served.ask("replan", {"plan": old, "gpus": 8}))


WRONG = [
    (b"", "the body is not JSON"),
    (b"{", "the body is not JSON"),
    (b"[1]", "expected an object of fields, got list"),
    (b"\xff\xfe", "the body is not JSON"),
    (b'{"model": "175b", "gpus": NaN}', "NaN is not a number"),
    (b'{"model": "175b"}', "gpus: required, but missing"),
    (b'{"model": "175", "gpus": 8}', "unknown model '175': did you mean 175b"),
    (b'{"model": "175b", "gpus": 8, "speed": 1}', "there is no field 'speed'"),
    (b'{"model": "175b", "gpus": 8, "global_batch": 8}', "did you mean global_batch_size?"),
    (b'{"model": "175b", "gpus": 8, "tp": 8}', "it belongs under pins"),
    (b'{"model": "175b", "gpus": 1e30}', "gpus"),
    (b'{"model": "175b", "gpus": 8, "pins": {"tp": "__import__"}}', "tp"),
    (b'{"model": "175b", "gpus": "8"}', "gpus: expected a whole number, got '8'"),
    (b'{"model": "175b", "gpus": 8, "reasons": "false"}', "reasons: expected true or false, got 'false'"),
    (b'{"model": "175b", "gpus": 8, "reasons": 0}', "reasons: expected true or false, got 0"),
    (b'{"model": "175b", "gpus": 8, "top": "3"}', "top: expected a whole number, got '3'"),
    (b'{"model": "175b", "gpus": 8, "expert_capacity": "2"}', "expert_capacity: expected a number, got '2'"),
    (b'{"model": "175b", "gpus": 8, "tokens": "1.5"}', "tokens: expected a whole number such as 300B, got '1.5'"),
    (b'{"model": "175b", "gpus": 8, "changes": {"nonsense": {}}}', "'nonsense': expected stack. or model."),
    (b'{"model": "175b", "gpus": 8, "pin": {"tp": 8}}', "there is no field 'pin'; did you mean pins?"),
    (b'{"model": "175b", "gpus": 8, "pins": {"zero": 1}}', "cannot pin 'zero'; did you mean zero_stage?"),
    (b'{"model": "175b", "gpus": 8, "pins": 8}', "pins: expected a table of fields, got 8"),
    (b'{"model": "175b", "gpus": 8.5}', "gpus: expected a whole number, got 8.5"),
    (b'{"model": "175b", "gpus": 8, "changes": "2x"}', "changes: expected paths and values"),
    (b'{"model": "175b", "gpus": 8, "changes": ["2x"]}', "changes: expected paths and values"),
    (
        b'{"model": "175b", "gpus": 8, "changes": {"model.norm": "2x"}}',
        "2x is a multiple of 'layernorm', which is not a number",
    ),
    (b'{"model": "175b", "gpus": 8, "stability": {"broken": true}}', "stability.broken: expected a number, got true"),
    (b'{"model": "175b", "gpus": 8, "stability": {"broken": "1"}}', "stability.broken: expected a number, got '1'"),
    (b"[" * 100_000, "the body is JSON nested too deeply"),
    (b'{"a":' * 70 + b"1" + b"}" * 70, "the body is JSON nested too deeply"),
]


@each(("content", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_is_wrong_is_said_in_one_line(served, content, message):
    found = served.raw("plan", content)
    assert found.status_code in (413, 422)
    assert message in said(found)
    assert found.json()["error"]["exit_code"] == 2


def mutations(count):
    """Bodies that are almost right, by a fixed seed: bytes changed, fields swapped, values of wrong kinds."""
    rng = random.Random(0)  # noqa: S311 - not for secrets
    odd = [None, True, -1, 0, 1e308, "", "x" * 3000, [], {}, [[]], "8", "💥", "\u202e", {"a": 1}, "$(reboot)", "%s%n"]
    fields = ["model", "gpus", "cluster", "stack", "pins", "precision", "tokens", "seq_length", "stability", "top"]
    for n in range(count):
        body = SMALL | {"reasons": False, rng.choice(fields): rng.choice(odd)}
        text = bytearray(json.dumps(body).encode())
        if n % 2:
            for _ in range(rng.randint(1, 4)):
                text[rng.randrange(len(text))] = rng.randrange(256)
        yield bytes(text[: rng.randrange(len(text))] if n % 7 == 0 else text)


def test_hundreds_of_malformed_bodies_do_no_harm(served):
    sizes = []
    for n, body in enumerate(mutations(400)):
        kind = ("plan", "predict", "why-not", "allocate", "replan")[n % 5]
        found = served.raw(kind, body)
        assert found.status_code in (200, 422), (body, found.text)
        if found.status_code == 422:
            said(found)
        if n % 40 == 39:
            (worker,) = children(served.process.pid)
            sizes.append(resident(worker) + resident(served.process.pid))
    assert max(sizes) < 1.2 * sizes[0] + 50e6


def test_bodies_are_bounded(served):
    assert served.raw("plan", b" " * 100_001).status_code == 413

    host, port = re.search(r"//(.*):(\d+)", served.url).groups()
    head = b"POST /v1/plan HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(head + b"content-length: 100001\r\n\r\n")  # and nothing of the body
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(head + b"transfer-encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"c350\r\n" + b" " * 50_000 + b"\r\n")
            pytest.fail("the service went on reading")


def test_what_people_write_as_text_is_read_over_http_too(served):
    written = {"tokens": "1.5T", "time_limit": "10s", "memory_margin": "5%", "pins": {"tp": "..4", "pp": "1,2"}}
    assert served.ask("plan", SMALL | written | {"reasons": False}).status_code == 200


def test_a_queue_is_read_as_strictly_as_a_question(served):
    queue = {
        "cluster": "dgx-h100",
        "gpus": 16,
        "jobs": [{"name": "a", "model": "llama3-8b", "global_batch_size": "4096"}],
    }
    found = served.ask("allocate", queue)
    assert found.status_code == 422
    assert "job a: global_batch_size: expected a whole number, got '4096'" in said(found)
    found = served.ask("replan", {"plan": "plan.json", "gpus": 8})
    assert "plan: expected an answer of /v1/plan, got 'plan.json'" in said(found)


def test_requests_that_are_turned_away_get_the_document_of_every_error(served):
    other = served.client.get("/v1/health", headers={"host": "evil.com"})
    packed = served.raw("plan", b"{}", **{"content-encoding": "gzip"})
    assert (other.status_code, packed.status_code) == (400, 415)
    assert "'evil.com' is not served here" in said(other)
    assert "content-encoding 'gzip'" in said(packed)
    described = served.client.get("/openapi.json").json()["paths"]
    assert all(path.startswith("/v1/") for path in described)
    assert "400" in described["/v1/health"]["get"]["responses"]
    assert {"400", "415"} <= set(described["/v1/plan"]["post"]["responses"])
    assert served.raw("plan", json.dumps(SMALL).encode(), **{"content-encoding": "identity"}).status_code == 200


def test_only_json_for_a_host_of_ours(served):
    assert served.client.post("/v1/plan", content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    assert served.client.get("/v1/health", headers={"host": "evil.example"}).status_code == 400
    assert served.client.get("/v1/health", headers={"host": "[::1]:8642"}).status_code == 200
    assert served.client.get("/v2/plan").status_code == 404
    assert served.client.get("/v1/plan").status_code == 405


def test_a_flood_is_turned_away_and_the_service_lives(served):
    def one(n):
        return served.ask("plan", HEAVY | {"tokens": 10**9 + n, "reasons": False}).status_code

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        codes = list(pool.map(one, range(24)))
    assert set(codes) <= {200, 429}
    assert {200, 429} == set(codes)
    assert served.ask("plan", SMALL).status_code == 200


def test_equal_questions_are_answered_from_memory(served):
    body = SMALL | {"tokens": 123456789}
    first = served.ask("plan", body)
    (worker,) = children(served.process.pid)
    before = worked(worker)
    assert served.ask("plan", body).content == first.content
    assert worked(worker) <= before + 1  # a plan takes several


def test_work_ends_when_its_client_leaves(served):
    host, port = re.search(r"//(.*):(\d+)", served.url).groups()
    body = json.dumps(HEAVY | {"tokens": 77}).encode()
    head = f"POST /v1/plan HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        until(lambda: served.client.get("/v1/health").json()["busy"] == 1)
    until(lambda: served.client.get("/v1/health").json()["busy"] == 0, within=2.0)
    assert served.ask("plan", SMALL | {"tokens": 5}).status_code == 200


def test_a_client_that_has_said_all_is_answered(served):
    host, port = served.url.removeprefix("http://").split(":")
    body = json.dumps(SMALL | {"tokens": 78}).encode()
    head = f"POST /v1/plan HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(head.encode() + b"\r\n\r\n" + body)
        client.shutdown(socket.SHUT_WR)
        answered = client.makefile("rb").read()  # until the service closes it
    heads, _, document = answered.replace(b"HTTP/1.1 102 Processing\r\n\r\n", b"").partition(b"\r\n\r\n")
    assert heads.startswith(b"HTTP/1.1 200 ")
    assert json.loads(document)["status"] == "optimal"


def test_a_client_that_leaves_within_its_body_leaves_no_traceback(served):
    host, port = served.url.removeprefix("http://").split(":")
    head = b"POST /v1/plan HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(head)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(4096) == b""  # and `served` looks into the log


def test_what_is_no_request_is_refused_in_the_form_of_all_errors(served):
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(b"GET /\0 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answered = client.makefile("rb").read()
    assert answered.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answered.partition(b"\r\n\r\n")[2])["error"]["kind"] == "bad-request"


def until(holds, within=10.0):
    deadline = time.perf_counter() + within
    while not holds():
        assert time.perf_counter() < deadline
        time.sleep(0.005)


def test_a_first_question_waits_for_no_module():
    code = """
import json, sys
from planner.service import worker
worker._warm()
known = set(sys.modules)
asked = {"model": "llama3-70b", "gpus": 128}
found = json.loads(worker.answer("plan", json.dumps(asked).encode(), 60.0)[1])
for kind, body in (("drawn", {"plan": found}), ("export", {"plan": found}), ("why-not", asked | {"pins": {"tp": 8}})):
    assert worker.answer(kind, json.dumps(body).encode(), 60.0)[0] == 200
print(sorted(name for name in set(sys.modules) - known if name.startswith(("planner", "costmodels", "ortools"))))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_worker_that_is_killed_is_replaced(served):
    for pid in children(served.process.pid):
        os.kill(pid, signal.SIGKILL)
    codes = [served.ask("plan", SMALL | {"tokens": 1000 + n}).status_code for n in range(3)]
    assert codes[-1] == 200
    assert set(codes) <= {200, 422}


def test_the_description_has_every_endpoint_and_valid_references(served):
    described = served.client.get("/openapi.json").json()
    assert {"/v1/plan", "/v1/predict", "/v1/why-not", "/v1/allocate", "/v1/replan", "/v1/health"} <= set(
        described["paths"]
    )
    for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(described)):
        assert name in described["components"]["schemas"], name


def test_an_address_that_is_taken_is_a_bad_request(served):
    port = served.url.rpartition(":")[2]
    command = [sys.executable, "-m", "planner", "serve", "--port", port]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("plan: --port: cannot listen on 127.0.0.1")


def test_a_service_ends_what_it_works_on_when_it_is_told_to_stop():
    service = Served("--workers", "1")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(service.ask, "plan", HEAVY | {"reasons": False})
        until(lambda: httpx.get(f"{service.url}/v1/health").json()["busy"] == 1)
        service.process.send_signal(signal.SIGTERM)
        assert asked.result().status_code == 200
    assert service.stop()[0] == 0
    assert not children(service.process.pid)


def test_the_head_of_a_request_comes_in_time(served):
    host, port = served.url.removeprefix("http://").split(":")
    started, clients = time.monotonic(), []
    for sent in (b"", b"GET /v1/health HTTP/1.1\r\nhost: local"):
        clients.append(socket.create_connection((host, int(port)), timeout=30))
        clients[-1].sendall(sent)
    for client in clients:
        with client:
            answered = client.makefile("rb").read()  # until the service closes it
        assert 8.0 < time.monotonic() - started < 20.0
        assert answered.startswith(b"HTTP/1.1 408 ")
        assert json.loads(answered.partition(b"\r\n\r\n")[2])["error"]["kind"] == "too-slow"


def test_a_head_that_comes_in_pieces_is_answered_and_the_connection_goes_on(served):
    host, port = served.url.removeprefix("http://").split(":")
    head = b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as client:
        for _ in range(2):
            for place in range(0, len(head), 7):
                client.sendall(head[place : place + 7])
                time.sleep(0.02)
            assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
