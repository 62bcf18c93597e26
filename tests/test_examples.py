"""Examples run: one that does not run does not exist."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from planner.cli import ending, main

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
TESTED_ELSEWHERE = {
    "admission.py",
    "cli_filter.lua",
    "nightly.sh",
    "first-plan.ipynb",
    "ray_plans.py",
    "submit_filter.py",
    "run.json",
}
"""In test_scheduling_examples.py, and the run by the commands that test_readme.py tries."""
TESTED = {
    "ads-10tb.toml",
    "ads-6tb.toml",
    "ctr-dnn.toml",
    "embed.py",
    "job.toml",
    "kubernetes-job.yaml",
    "my-cluster.toml",
    "my-mixed-cluster.toml",
    "my-model.toml",
    "queue.toml",
    "my-servers.toml",
    "plan-to-launch.sh",
    "queue_filter.py",
    "run.json",
    "sbatch.sh",
    "sparse-plans.md",
    "sweep-array.sh",
    "sweep.toml",
    "trillion.toml",
}


def script(name, *arguments, stdin=""):
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=120)


def plan(*arguments):
    return CliRunner().invoke(main, [*arguments, "--format", "json"])


def test_every_example_is_tested_here():
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == TESTED | TESTED_ELSEWHERE


def test_the_model_and_the_cluster_of_ones_own_are_planned():
    question = ("--model", str(EXAMPLES / "my-model.toml"), "--cluster", str(EXAMPLES / "my-cluster.toml"))
    document = json.loads(plan(*question, "--gpus", "128").stdout)
    assert document["status"] == "optimal"
    assert document["request"]["model"]["num_query_groups"] == 8
    assert document["request"]["cluster"]["name"] == "my-cluster"


def test_the_mixed_cluster_of_ones_own_is_planned_over_both_its_groups():
    question = ("--model", "llama2-13b", "--cluster", str(EXAMPLES / "my-mixed-cluster.toml"), "--gpus", "64")
    document = json.loads(plan(*question).stdout)
    assert document["status"] == "optimal"
    assert {stage["group"] for stage in document["strategy"]["stages"]} == {"old", "new"}


def test_the_queue_is_divided(monkeypatch):
    monkeypatch.chdir(EXAMPLES.parent)
    document = json.loads(plan("allocate", "examples/queue.toml").stdout)
    assert document["status"] == "optimal"
    assert {job["name"]: job["change"] for job in document["jobs"]}["chat"] == "starts"
    assert all(group["used"] <= group["gpus"] for group in document["groups"])


def test_the_job_file_is_planned_within_its_pins():
    document = json.loads(plan("--config", str(EXAMPLES / "job.toml")).stdout)
    strategy = document["strategy"]
    assert (strategy["tp"], strategy["recompute"]) == (8, "none")
    assert strategy["pp"] <= 8
    assert strategy["global_batch_size"] == 1024


def test_the_job_file_can_be_launched():
    done = CliRunner().invoke(main, ["--config", str(EXAMPLES / "job.toml"), "--format", "args"])
    assert done.exit_code == 0, done.stderr
    assert "--tensor-model-parallel-size 8" in done.stdout


@pytest.mark.parametrize("model", ["ctr-dnn", "trillion"])
def test_sparse_models_are_planned_on_servers_of_ones_own(model):
    question = ("--model", str(EXAMPLES / f"{model}.toml"), "--cluster", str(EXAMPLES / "my-servers.toml"))
    document = json.loads(plan("sparse", *question, "--min-throughput", "1M").stdout)
    assert document["status"] == "optimal"
    assert document["examples_per_second"] >= 1e6


def test_embedding_chooses_the_fastest_cluster():
    done = script("embed.py", "llama3-8b", "16", "dgx-a100-80gb", "dgx-h100", "dgx-nothing")
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert rows[-1] == "fastest: dgx-h100"
    assert "unknown cluster" in rows[2]


def test_embedding_ends_with_the_code_for_infeasible_where_nothing_fits():
    assert script("embed.py", "175b", "8", "dgx-h100").returncode == ending.INFEASIBLE


def test_the_queue_hook_answers_line_by_line():
    jobs = [
        {"id": "loose", "model": "gpt3-1.3b", "gpus": [32, 16], "tokens": 10**9},
        {"id": "tight", "model": "gpt3-1.3b", "gpus": [16, 32], "tokens": 10**12, "deadline_days": 0.01},
        {"id": "big", "model": "175b", "gpus": [8]},
        {"id": "wrong", "model": "no-such-model", "gpus": [8]},
    ]
    done = script("queue_filter.py", stdin="".join(f"{json.dumps(job)}\n" for job in jobs))
    assert done.returncode == 0, done.stderr
    loose, tight, big, wrong = map(json.loads, done.stdout.splitlines())
    assert (loose["feasible"], loose["gpus"]) == (True, 16)
    assert loose["strategy"]["global_batch_size"] >= 16
    assert (tight["feasible"], big["feasible"], wrong["feasible"]) == (False, False, False)
    assert "0.01 allowed" in tight["reason"]
    assert "unknown model" in wrong["reason"]


@pytest.fixture
def slurm(tmp_path):
    """A folder of stand-ins for what Slurm and the environment bring, and an environment that finds them."""
    stand_ins = {
        "srun": 'printf "%s\\n" "$@" > launched.txt',
        "scontrol": "echo node-1",
        "plan": f'exec "{sys.executable}" -m planner "$@"',
    }
    for name, body in stand_ins.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    granted = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "4", "SLURM_JOB_NODELIST": "node-[1-4]"}
    quick = {"PLAN_REASONS": "false", "PLAN_WORKERS": "1"}
    return tmp_path, {**os.environ, **granted, **quick, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}


def batch(slurm, **settings):
    folder, environment = slurm
    command = ["bash", str(EXAMPLES / "sbatch.sh")]
    known = {**environment, **settings}
    return subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, check=False, timeout=120)


def test_the_study_is_answered_by_an_array_of_parts_as_by_one_process(slurm):
    folder, environment = slurm
    whole = (EXAMPLES / "sweep.toml").read_text(encoding="utf-8")
    study = folder / "sweep.toml"
    study.write_text(whole.replace('["llama3-8b", "22b"]', '["gpt3-1.3b"]'), encoding="utf-8")
    command = ["bash", str(EXAMPLES / "sweep-array.sh")]
    for task in "12":
        known = environment | {"SLURM_ARRAY_TASK_ID": task, "SLURM_ARRAY_TASK_COUNT": "2"}
        subprocess.run([*command, study], cwd=folder, env=known, capture_output=True, check=True, timeout=120)
    subprocess.run([*command, "--merge", study], cwd=folder, env=environment, check=True, timeout=120)
    assert len(list((folder / "parts").glob("*.sqlite"))) == 2
    merged = CliRunner().invoke(
        main, ["sweep", str(study), "-o", str(folder / "sweep.sqlite"), "--workers", "1", "--format", "json"]
    )
    assert "0 answered now" in merged.stderr
    alone = CliRunner().invoke(
        main, ["sweep", str(study), "-o", str(folder / "one.sqlite"), "--workers", "1", "--format", "json", "-q"]
    )
    assert alone.stdout == merged.stdout
    found = json.loads(alone.stdout)["results"]
    assert len(found) == 12
    assert all(one["speedup"] == 1.0 for one in found if one["point"]["cluster"] == "dgx-a100-80gb")


def test_the_batch_script_launches_with_the_plan(slurm):
    done = batch(slurm, MODEL="gpt3-1.3b", MEGATRON_ARGS="--bf16")
    assert done.returncode == 0, done.stderr
    recorded = json.loads((slurm[0] / "plan-7.json").read_text())
    launched = (slurm[0] / "launched.txt").read_text().split()
    at = recorded["strategy"]
    assert at["tp"] * at["cp"] * at["pp"] * at["dp"] == 32
    assert launched[:5] == ["torchrun", "--nnodes", "4", "--nproc-per-node", "8"]
    assert launched[launched.index("--tensor-model-parallel-size") + 1] == str(at["tp"])
    assert launched[-1] == "--bf16"
    assert f"tp {at['tp']} cp {at['cp']} pp {at['pp']} dp {at['dp']}" in done.stdout


def test_the_batch_script_unquotes_a_pipeline_layout(slurm):
    done = batch(slurm, MODEL="llama3.1-405b", SLURM_JOB_NUM_NODES="32", BATCH="512")
    assert done.returncode == 0, done.stderr
    launched = (slurm[0] / "launched.txt").read_text().split()
    assert launched[launched.index("--global-batch-size") + 1] == "512"
    assert not any(mark in word for word in launched for mark in ("'", '"'))


def test_the_batch_script_ends_where_nothing_fits(slurm):
    done = batch(slurm, MODEL="175b", SLURM_JOB_NUM_NODES="1")
    assert done.returncode == ending.INFEASIBLE
    assert not (slurm[0] / "launched.txt").exists()


def test_a_model_becomes_a_batch_script(slurm):
    folder, environment = slurm
    command = ["bash", str(EXAMPLES / "plan-to-launch.sh")]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (folder / "run").iterdir()} == {"job.sbatch", "megatron-args.sh"}
    script = (folder / "run" / "job.sbatch").read_text()
    assert "#SBATCH --nodes=2" in script
    assert "--tensor-model-parallel-size" in script


def test_the_kubernetes_job_reacts_to_every_exit_code_once():
    job = yaml.safe_load((EXAMPLES / "kubernetes-job.yaml").read_text())
    rules = job["spec"]["podFailurePolicy"]["rules"]
    codes = {code: rule["action"] for rule in rules if "onExitCodes" in rule for code in rule["onExitCodes"]["values"]}
    assert codes[ending.BAD_REQUEST] == codes[ending.INFEASIBLE] == "FailJob"
    assert codes[ending.OUT_OF_TIME] == "Count"
    assert set(codes) == {1, 2, 3, 4, 130}
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # a failure policy needs it
    assert [box["name"] for box in pod["containers"]] == ["plan"]


def test_the_command_of_the_kubernetes_job_runs(tmp_path):
    job = yaml.safe_load((EXAMPLES / "kubernetes-job.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    arguments = [text.replace("/plans", str(tmp_path)) for text in container["args"]]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert json.loads((tmp_path / "llama3-8b.json").read_text())["status"] == "optimal"
