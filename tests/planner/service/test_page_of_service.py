"""The page of the service and what it asks for; uploads are read, never run, and reach nothing of the server's."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from planner.service.answers import answer
from planner.service.metrics import Counts
from planner.service.page import docs, page
from planner.service.pool import Pool, Settings
from tests.each import each
from tests.planner.jobs.logs.written import dump, megatron
from tests.planner.service.test_service import SMALL, Served, children

SCRIPT = (
    "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size 8 --num-layers 32 "
    "--hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 "
    "--micro-batch-size 1 --global-batch-size 128 --bf16 --vocab-size 50257\n"
)


@pytest.fixture(scope="module")
def served():
    service = Served("--workers", "1", "--time-limit", "20s")
    yield service
    code, log = service.stop()
    assert code == 0
    assert "Traceback" not in log


def asked(kind, body):
    status, document = answer(kind, json.dumps(body).encode(), 20.0)
    return status, json.loads(document)


def read(files, **more):
    status, found = asked("read", {"files": files, **more})
    assert status == 200, found
    return found


def refusal(kind, body):
    status, found = asked(kind, body)
    assert status == 422, found
    return found["error"]


def test_the_page_asks_nobody_but_the_service_and_runs_what_stands_in_it(served):
    got = served.client.get("/")
    policy = got.headers["content-security-policy"]
    assert got.headers["content-type"] == "text/html; charset=utf-8"
    assert {"default-src 'none'", "frame-ancestors 'none'", "form-action 'none'"} <= set(policy.split("; "))
    assert "unsafe" not in policy
    assert not re.findall(r"""(?:src|href)=["'](?!/docs|data:|#)""", got.text)
    assert len(got.content) < 200_000
    plain = served.client.get("/", headers={"accept-encoding": "identity"})
    assert (got.headers["content-encoding"], plain.headers.get("content-encoding")) == ("gzip", None)
    assert got.text == plain.text
    again = served.client.get("/", headers={"if-none-match": got.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_pages_are_for_the_hosts_of_the_service_too(served):
    for path in ("/", "/docs", "/metrics"):
        assert served.client.get(path, headers={"host": "evil.example"}).status_code == 400


def test_the_description_is_a_page_without_a_script(served):
    text = served.client.get("/docs").text
    assert "<script" not in text
    for path in served.client.get("/openapi.json").json()["paths"]:
        assert f" {path}</code>" in text


def test_names_in_the_description_cannot_become_markup():
    field = {"type": "string", "description": "<script>alert(1)</script>"}
    schemas = {"PlanRequest": {"properties": {"<b>": field}}}
    assert "<script>alert" not in docs({"components": {"schemas": schemas}, "paths": {}}).text


def test_scripts_of_the_page_stay_small():
    folder = Path(sys.modules["planner.service.page"].__file__).parent
    assert all(len(file.read_text().splitlines()) < 400 for file in folder.iterdir() if file.is_file())
    assert page() is page()


def test_metrics_count_questions_by_kind_and_status(served):
    served.ask("plan", SMALL)
    served.ask("plan", {"model": "no-such-model", "gpus": 8})
    text = served.client.get("/metrics").text
    assert 'meshwright_questions_total{question="plan",status="200"} 1' in text
    assert 'meshwright_questions_total{question="plan",status="422"} 1' in text
    assert 'meshwright_answer_seconds_count{question="plan"} 2' in text
    assert all(re.fullmatch(r"#.*|[a-z_]+(\{[^}]*\})? [0-9.e+-]+", line) for line in text.splitlines())


def test_a_refusal_counts_with_its_status():
    counts = Counts()
    refused = type("Refused", (Exception,), {"status": 413})
    with pytest.raises(refused), counts.counting("plan"):
        raise refused
    assert 'status="413"} 1' in counts.text(Pool(Settings()))


@each(
    ("fields", "field"),
    [
        ({"model": "lama3"}, "model"),
        ({"gpus": 0}, "gpus"),
        ({"gpus": 63}, "gpus"),
        ({"cluster": "dgx"}, "cluster"),
        ({"stack": "mega"}, "stack"),
        ({"precision": "fp9"}, "precision"),
        ({"seq_length": "8x"}, "seq_length"),
        ({"pins": {"tp": 3}}, "tp"),
        ({"pins": {"schedule": "abc"}}, "schedule"),
        ({"adapters": "x"}, "adapters"),
        ({"price": "much"}, "price"),
        ({"precision": "fp8", "cluster": "dgx-a100-80gb"}, "precision"),
    ],
)
def test_an_error_names_the_field_that_caused_it(fields, field):
    assert refusal("plan", {"model": "llama3-8b", "gpus": 64, **fields})["field"] == field


def test_a_hub_id_of_the_catalogue_is_a_name():
    status, found = asked("plan", {"model": "Qwen/Qwen3-8B", "gpus": 16, "reasons": False})
    assert (status, found["request"]["model"]["name"]) == (200, "qwen3-8b")
    for path in ("../Qwen3-8B", "/Qwen3-8B", "a/b/Qwen3-8B", "..\\x/Qwen3-8B", "Qwen/Qwen3-8B.json"):
        assert "looks like a file" in refusal("plan", {"model": path, "gpus": 16})["message"]


def test_the_form_offers_what_there_is():
    _, offered = asked("choices", {})
    assert ["llama3-8b", "Llama 3 8B"] in offered["model"]
    assert {one["name"]: one["price"] for one in offered["cluster"]}["dgx-h100"] > 0
    assert "megatron-lm" in {one["name"] for one in offered["exporters"]}


def test_an_answer_is_exported_as_the_command_line_does():
    _, found = asked("plan", SMALL)
    status, made = asked("export", {"plan": found, "to": "megatron-lm"})
    assert status == 200
    assert "--tensor-model-parallel-size" in made["files"]["megatron-args.sh"]
    assert "unknown exporter" in refusal("export", {"plan": found, "to": "no-such"})["message"]
    assert "expected the name of an exporter" in refusal("export", {"plan": found, "to": 7})["message"]
    assert "expected an answer" in refusal("export", {"plan": "plan.json", "to": "megatron-lm"})["message"]


def test_unless_one_is_named_the_first_exporter_that_can_writes_the_plan():
    _, found = asked("plan", SMALL)
    assert asked("export", {"plan": found})[1]["to"] == "megatron-lm"
    tuned = {"model": "qwen3-8b", "gpus": 8, "adapters": "16", "base_precision": "nf4", "reasons": False}
    _, found = asked("plan", tuned)
    assert "cannot start this plan" in refusal("export", {"plan": found, "to": "megatron-lm"})["message"]
    assert asked("export", {"plan": found})[1]["to"] == "accelerate"


def test_an_answer_that_was_changed_is_not_exported():
    _, found = asked("plan", SMALL)
    found["request"]["model"] = "/etc/passwd"
    assert "looks like a file" in refusal("export", {"plan": found, "to": "slurm"})["message"]
    assert "looks like a file" in refusal("drawn", {"plan": found})["message"]


def test_what_is_drawn_has_the_terms_of_every_other_plan():
    _, found = asked("plan", SMALL)
    _, drawn = asked("drawn", {"plan": found})
    assert len(drawn["points"]) == 1 + len(found["alternatives"])


def test_a_script_is_priced_and_compared_with_the_best_plan():
    found = read({"run.sh": SCRIPT})
    assert found["files"] == [{"name": "run.sh", "title": "arguments of Megatron-LM, line 1"}]
    assert (found["request"]["gpus"], found["request"]["pins"]["tp"]) == (16, 8)
    assert any("nothing names the machines" in line for line in found["assumed"])
    best = found["answer"]["why_not"][0]
    assert best["iteration_seconds"] < found["answer"]["prediction"]["iteration_seconds"]


def test_a_log_is_compared_with_its_prediction_and_says_what_to_change():
    log = dump() + "".join(megatron(step, 600.0) for step in range(1, 40))
    asked = read({"train.log": log})
    assert any("--cluster" in line for line in asked["missing"])
    assert not any("machines" in line for line in asked["assumed"])
    found = read({"train.log": log}, cluster="dgx-h100")
    assert found["measured"]["iteration_seconds"] == pytest.approx(0.6)
    assert found["examined"]["measured_seconds"] == pytest.approx(0.6)
    assert found["examined"]["changes"][0]["saved"] > 0
    assert found["answer"]["why_not"]


def test_fields_given_with_the_files_win_over_them():
    found = read({"run.sh": SCRIPT}, gpus=32, cluster="dgx-a100-80gb")
    assert (found["request"]["gpus"], found["request"]["cluster"]) == (32, "dgx-a100-80gb")
    assert found["origins"]["cluster"] == "form"
    assert not any("nothing names the machines" in line for line in found["assumed"])


def test_what_is_missing_is_named_and_nothing_priced():
    found = read({"run.sh": SCRIPT.replace("--nproc_per_node 8 --nnodes 2", "")})
    assert found["answer"] is None
    assert any("--gpus" in line for line in found["missing"])


def test_a_configuration_of_a_model_becomes_a_table():
    sizes = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
    shape = {"model_type": "llama", "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 8192}
    found = read({"config.json": json.dumps({**shape, **sizes})}, gpus=8)
    assert found["request"]["model"]["num_layers"] == 16
    assert found["answer"]["status"] == "feasible"


MINE = """
name = "mine"
accelerator = "h100-sxm"
gpus_per_node = 8
nodes = 4
price = "2 $/h"
[network]
bandwidth = "400 Gb/s"
"""


def test_a_cluster_file_becomes_the_table_of_a_question():
    status, found = asked("machines", {"text": MINE})
    assert status == 200
    assert (found["words"], found["gpus"]) == ("4 nodes of 8 NVIDIA H100 SXM5 80 GB", 32)
    assert found["usd_per_gpu_hour"] == pytest.approx(2.0)
    status, answered = asked("plan", {**SMALL, "gpus": 32, "cluster": found["cluster"], "reasons": False})
    assert (status, answered["request"]["cluster"]["name"]) == (200, "mine")
    assert asked("machines", {"text": json.dumps(found["cluster"])})[1] == found


def test_a_profile_brings_its_stack_along():
    text = "schema = 'profile/1'\n[stack]\nname = 's'\n[cluster]\n" + MINE.replace("[network]", "[cluster.network]")
    assert asked("machines", {"text": text})[1]["stack"] == {"name": "s"}


@each(
    ("text", "message"),
    [
        (7, "expected what a cluster file holds"),
        (" ", "expected what a cluster file holds"),
        ("gpus", "your file: not TOML"),
        (MINE.replace('"400 Gb/s"', "400"), "network: bandwidth: expected a bandwidth"),
        (MINE.replace("h100-sxm", "h10"), "unknown accelerator 'h10'"),
        (MINE.replace("h100-sxm", "/etc/passwd"), "unknown accelerator '/etc/passwd'"),
        (MINE.replace("nodes = 4", "nods = 4"), "nods: there is no such field"),
        ("schema = 'profile/1'", "this profile has no [cluster] table"),
        ("PARTITION GRES NODES\nbatch gpu:h100:8 4\n", "`plan init FILE` makes a cluster file of it"),
    ],
)
def test_a_text_that_is_no_cluster_file_is_refused_in_one_line(text, message):
    assert message in refusal("machines", {"text": text})["message"]


def test_a_script_is_priced_on_the_machines_of_a_cluster_file_given_with_it():
    found = read({"mine.toml": MINE, "run.sh": SCRIPT})
    assert found["files"][1] == {"name": "mine.toml", "title": "machines: 4 nodes of 8 NVIDIA H100 SXM5 80 GB"}
    assert (found["request"]["cluster"]["name"], found["origins"]["cluster"]) == ("mine", "mine.toml")
    assert found["answer"]["request"]["cluster"]["name"] == "mine"
    assert not any("nothing names the machines" in line for line in found["assumed"])
    assert "unknown accelerator" in refusal("read", {"files": {"a.toml": MINE.replace("h100", "h10")}})["message"]
    assert "both tell of machines" in refusal("read", {"files": {"a.toml": MINE, "b.toml": MINE}})["message"]


def test_a_cluster_file_alone_is_read_as_machines_and_asks_for_a_job():
    found = read({"mine.toml": MINE})
    assert (found["request"]["cluster"]["name"], found["answer"]) == ("mine", None)
    assert any("what is to be trained" in line for line in found["missing"])


@pytest.mark.parametrize("name", ["__proto__", "constructor", "a b.sh", "..", "-rf", "%2e%2e"])
def test_a_file_of_any_name_is_read(name):
    assert read({name: SCRIPT})["files"][0]["name"] == name


@each(
    ("body", "message"),
    [
        ({}, "files: expected names"),
        ({"files": {}}, "files: expected names"),
        ({"files": {"a.sh": 5}}, "files: expected names"),
        ({"files": {f"{n}.sh": "x" for n in range(17)}}, "17 are more than the 16"),
        ({"files": {"": "x"}}, "is no name of a file"),
        ({"files": {"a/x.sh": "x", "b/x.sh": "y"}}, "two of them have the same name"),
        ({"files": {"x.sh": "a\0b"}}, "is not a text file"),
        ({"files": {"x.sh": SCRIPT}, "launch": "1"}, "launch: expected a whole number"),
        ({"files": {"x.sh": SCRIPT}, "environment": ["A=1"]}, "environment is a table"),
        ({"files": {"x.sh": SCRIPT}, "speed": 1}, "there is no field 'speed'"),
        ({"files": {"x.txt": "hello"}}, "it looks like plain text"),
    ],
)
def test_uploads_that_cannot_be_read_are_refused_in_one_line(body, message):
    assert message in refusal("read", body)["message"]


def test_an_uploaded_script_is_not_run(served, tmp_path):
    mark = tmp_path / "ran"
    evil = f"touch {mark}\n$(touch {mark})\nX=`touch {mark}`\neval 'touch {mark}'\npython -c \"open('{mark}', 'w')\"\n"
    found = served.ask("read", {"files": {"run.sh": evil + SCRIPT}}).json()
    assert found["schema"] == "reading/1"
    assert not mark.exists()
    program = f"import os\nos.system('touch {mark}')\nmodel = dict(num_layers=4)\n"
    assert served.ask("read", {"files": {"run.py": program}}).status_code in {200, 422}
    assert not mark.exists()
    assert len(children(served.process.pid)) == 1


NAMED = [
    "source {path}\n" + SCRIPT,
    "bash {path}\n" + SCRIPT,
    SCRIPT.replace("pretrain_gpt.py", "pretrain_gpt.py $(cat {path})"),
    "deepspeed --num_gpus 8 train.py --deepspeed {path} --model_name_or_path llama3-8b\n",
    "deepspeed --num_gpus 8 train.py --model_name_or_path {path} --per_device_train_batch_size 1\n",
    "accelerate launch --config_file {path} train.py --model_name_or_path llama3-8b\n",
    SCRIPT.replace("--bf16", "--bf16 --deepspeed --deepspeed_config {path}"),
    '{{"model": "{path}", "gpus": 8}}',
    '{{"model": "llama3-8b", "gpus": 8, "cluster": "{path}"}}',
    '{{"model": "llama3-8b", "gpus": 8, "profile": "{path}"}}',
    "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file {path}\n",
]


@pytest.mark.parametrize("text", NAMED)
def test_what_a_file_names_is_as_if_it_were_not_there(served, tmp_path, text):
    """A file of the server's that an upload names is not read, and answered like one that does not exist."""
    there, gone = (tmp_path / side / "same.json" for side in ("side0", "side1"))
    there.parent.mkdir()
    there.write_text(json.dumps({"train_micro_batch_size_per_gpu": 77, "num_layers": 7, "secret": "SECRET"}))
    said = []
    for path in (there, gone):
        got = served.ask("read", {"files": {"run.sh": text.format(path=path)}}).text
        assert "SECRET" not in got
        said.append(re.sub("side[01]", "SIDE", got))  # long names are cut, anywhere
    assert said[0] == said[1]


def test_a_worker_tells_nothing_of_processes():
    code = (
        "from planner.service.guard import confine\n"
        "confine()\n"
        "from planner.request.budget import Budget\n"
        "Budget(1.0)\n"
        "for path in ('/proc/self/environ', '/proc/self/cmdline', '/proc/1/status'):\n"
        "    try: open(path).read()\n"
        "    except PermissionError: continue\n"
        "    raise SystemExit(path)\n"
        "import os\n"
        "try: os.listdir('/')\n"
        "except PermissionError: raise SystemExit(0)\n"
        "raise SystemExit('listed')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
