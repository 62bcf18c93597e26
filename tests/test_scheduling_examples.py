"""The examples for schedulers run: submit filters in Python and Lua, admission, Ray, cron, and a shell."""

import base64
import importlib.util
import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from lupa import LuaRuntime

from planner.cli import ending

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PLAN = f"{shlex.quote(sys.executable)} -m planner"


def run(*command, stdin="", **environment):
    known = {**os.environ, **environment}
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, env=known, timeout=120)


def filtered(question, nodes=2):
    script = f"#!/bin/bash\n#SBATCH --nodes={nodes} --gpus-per-node=8\n{question}\necho tp=$TP dp=$DP\n"
    return script, run(sys.executable, str(EXAMPLES / "submit_filter.py"), stdin=script)


def test_the_submit_filter_passes_what_fits_with_its_degrees():
    _, done = filtered("#PLAN --model llama2-7b")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("#!/bin/bash\n#SBATCH --nodes=2")
    ran = run("bash", "-c", done.stdout)
    assert ran.stdout.startswith("tp=")
    degrees = dict(line.removeprefix("export ").split("=") for line in done.stdout.splitlines() if "export" in line)
    assert int(degrees["TP"]) * int(degrees["CP"]) * int(degrees["PP"]) * int(degrees["DP"]) == 16


def test_the_submit_filter_leaves_other_scripts_alone():
    script, done = filtered("")
    assert (done.returncode, done.stdout) == (0, script)


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ("#PLAN --model llama2-70b --offload none", ending.INFEASIBLE),
        ("#PLAN --model no-such-model", ending.BAD_REQUEST),
        ("#PLAN --model llama2-7b --time-limit 1s --gpus 12", ending.BAD_REQUEST),
    ],
)
def test_the_submit_filter_refuses_with_the_planners_code_and_line(question, code):
    _, done = filtered(question, nodes=1)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("plan: ")
    assert done.stderr.count("\n") == 1


class Slurm:
    """What Slurm gives to its Lua filters, as far as the example uses it."""

    def __init__(self, plan=PLAN):
        self.lua = LuaRuntime()
        self.said = []
        told = self.lua.table_from({"SUCCESS": 0, "ERROR": -1})
        told["log_info"] = told["log_error"] = lambda form, *words: self.said.append(form % words)
        self.lua.globals().slurm = told
        self.lua.globals().io.popen = self.popen  # the Lua in Python is built without it
        text = (EXAMPLES / "cli_filter.lua").read_text()
        self.lua.execute(text.replace('os.getenv("PLAN_COMMAND")', json.dumps(plan)))

    def popen(self, command):
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        return self.lua.table_from({"read": lambda _pipe, _form: done.stdout, "close": lambda _pipe: None})

    def submit(self, **options):
        given = {name.replace("_", "-"): value for name, value in options.items()}
        return self.lua.globals().slurm_cli_pre_submit(self.lua.table_from(given), 0)


def test_the_lua_filter_passes_what_fits():
    slurm = Slurm()
    assert slurm.submit(comment="plan:llama2-7b:dgx-h100", nodes="2", gpus_per_node="h100:8") == 0
    assert slurm.said[0].startswith("plan: tp ")
    assert Slurm().submit(nodes="2") == 0


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ("plan:145.6b:dgx-a100-40gb", "infeasible"),
        ("plan:llama2-7:dgx-h100", "unknown model"),
        ("plan:x;touch pwned:dgx-h100", "needs --nodes"),
        ("plan:$(touch pwned):dgx-h100", "needs --nodes"),
    ],
)
def test_the_lua_filter_refuses_what_cannot_run_and_executes_no_comment(comment, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    slurm = Slurm()
    assert slurm.submit(comment=comment, nodes="1", gpus_per_node="8") == -1
    assert said in slurm.said[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("code", [ending.OUT_OF_TIME, ending.UNEXPECTED])
def test_the_lua_filter_lets_pass_what_is_nobodys_fault(code):
    assert Slurm(f"sh -c 'exit {code}' #").submit(comment="plan:a:b", nodes="1", gpus_per_node="8") == 0


def admitted(annotations, pods=2):
    box = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    spec = {"parallelism": pods, "template": {"spec": {"containers": [box]}}}
    job = {"metadata": {"annotations": annotations}, "spec": spec}
    document = {"request": {"uid": "7", "object": job}}
    done = run(sys.executable, str(EXAMPLES / "admission.py"), stdin=json.dumps(document))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["kind"], answer["response"]["uid"]) == ("AdmissionReview", "7")
    return answer["response"]


def test_admission_patches_the_degrees():
    response = admitted({"plan/model": "llama2-7b"})
    patch = json.loads(base64.b64decode(response["patch"]))
    degrees = {step["path"].rpartition("~1")[2]: int(step["value"]) for step in patch}
    assert response["allowed"]
    assert degrees["tp"] * degrees["pp"] * degrees["dp"] == 16
    assert admitted({}) == {"uid": "7", "allowed": True}


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"plan/model": "llama2-7"}, "unknown model"),
        ({"plan/model": "/etc/x.toml"}, "catalogue names"),
        ({"plan/model": "llama2-7b", "plan/speed": "9"}, "speed"),
        ({"plan/model": "175b"}, "GiB"),
    ],
)
def test_admission_denies_with_one_line(annotations, said):
    response = admitted(annotations, pods=1)
    assert not response["allowed"]
    assert said in response["status"]["message"]
    assert "\n" not in response["status"]["message"]


def test_the_ray_example_plans_every_count(monkeypatch, capsys):
    started = []

    def remote(**_resources):
        return lambda function: SimpleNamespace(remote=lambda *words: (function, words))

    stand_in = SimpleNamespace(
        init=lambda: started.append(True),
        remote=remote,
        get=lambda tasks: [function(*words) for function, words in tasks],
    )
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    spec = importlib.util.spec_from_file_location("ray_plans", EXAMPLES / "ray_plans.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main("llama2-7b", [8, 16])
    lines = capsys.readouterr().out.splitlines()
    assert started
    assert [int(line.split()[0]) for line in lines] == [8, 16]
    assert all("s per iteration" in line for line in lines)


@pytest.fixture
def night(tmp_path):
    """A folder for divisions, and a ``plan`` on the path."""
    command = tmp_path / "bin" / "plan"
    command.parent.mkdir()
    command.write_text(f'#!/bin/bash\nexec {PLAN} "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "current.json").write_text("old")
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"

    def divided(*jobs, **settings):
        queue = tmp_path / "queue.json"
        queue.write_text(json.dumps({"cluster": "dgx-h100", "gpus": 16, "jobs": jobs}))
        known = {"PATH": path, "QUEUE": str(queue), "PLANS": str(tmp_path), **settings}
        done = run("bash", str(EXAMPLES / "nightly.sh"), **known)
        return done, (tmp_path / "current.json").read_text()

    return divided


def test_the_nightly_script_keeps_a_good_division(night):
    done, current = night({"name": "a", "model": "gpt3-125m"})
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert json.loads(current)["objective"] == "weighted-finish"


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ({"model": "175b", "may_wait": False, "pins": {"offload": "none"}}, ending.INFEASIBLE),
        ({"model": "gpt"}, ending.BAD_REQUEST),
    ],
)
def test_the_nightly_script_keeps_the_old_division_and_tells_why(night, job, code):
    done, current = night({"name": "a", **job})
    assert (done.returncode, current) == (code, "old")
    assert f"exit code {code}" in done.stdout


def test_a_shell_script_reads_env_and_args():
    script = f"""
set -euo pipefail
settings=$({PLAN} --model llama2-7b --gpus 16 --no-reasons --format env)
eval "$settings"
arguments=$({PLAN} --model llama2-7b --gpus 16 --no-reasons --format args)
eval "arguments=($arguments)"
echo "$PLAN_STATUS $((TP * CP * PP * DP)) ${{#arguments[@]}}"
{PLAN} --model llama2-70b --gpus 8 --offload none --format env >/dev/null 2>&1 || echo "code $?"
"""
    done = run("bash", "-c", script)
    status, gpus, words = done.stdout.splitlines()[0].split()
    assert (status, gpus) == ("optimal", "16"), done.stderr
    assert int(words) > 6
    assert done.stdout.splitlines()[1] == f"code {ending.INFEASIBLE}"
