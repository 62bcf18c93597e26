import json
import os
import re
import signal
import subprocess
import sys
import time

import click
import pytest
from click.testing import CliRunner

import planner.api
from planner.cli import main
from planner.cli.app import COMMANDS
from planner.errors import BadRequest, OutOfTime
from tests.each import each
from tests.planner.fake_plan import fake_plan, infeasible_plan

HEAVY = {"numpy", "ortools", "scipy", "pydantic", "rich", "pandas", "hardware.catalogue", "costmodels.model.model"}
ASK = ["--model", "175b", "--gpus", "12288"]


def run(*args, env=None):
    return CliRunner().invoke(main, list(args), env=env)


@pytest.fixture
def asked(monkeypatch):
    """Requests that reach a `plan` that answers without a search."""
    requests = []

    def plan(request):
        requests.append(request)
        return fake_plan()

    monkeypatch.setattr(planner.api, "plan", plan)
    return requests


def python(code, *args):
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_importing_the_command_line_loads_nothing_heavy():
    done = python("import sys, planner.cli; print(*sys.modules)")
    assert HEAVY & set(done.stdout.split()) == set()


def test_help_loads_nothing_heavy_and_comes_quickly():
    code = "import sys, planner.cli as c\ntry: c.main(sys.argv[1:])\nfinally: print(*sys.modules, file=sys.stderr)"
    for args in (["--help"], ["solve", "--help"], ["list", "--help"], ["--version"]):
        before = os.times()
        done = python(code, *args)
        assert done.returncode == 0
        assert HEAVY & set(done.stderr.split()) == set()
        assert os.times().children_user - before.children_user < 1.0, "a generous limit: it takes 0.1 s"


@each("command", COMMANDS)
def test_every_option_of_every_command_explains_itself(command):
    for param in command.params:
        assert isinstance(param, click.Argument) or param.help, param.name
    assert command.help
    assert command.short_help
    whole = any(getattr(param, "expert", False) for param in command.params)
    shown = run(command.name, "--help-all" if whole else "--help")
    assert shown.exit_code == 0
    assert all(param.opts[0] in shown.stdout for param in command.params if isinstance(param, click.Option))


def test_help_names_every_command_and_the_exit_codes():
    shown = run("--help").stdout
    assert all(command.name in shown for command in COMMANDS)
    assert "130 interrupted" in shown


def test_options_of_a_command_s_own_stand_under_a_heading():
    text = CliRunner().invoke(main, ["export", "--help"]).stdout
    assert "\nOptions:\n  --to NAME" in text
    assert "\n:\n" not in text


def test_help_begins_with_what_everybody_needs_and_leaves_the_rest_to_another():
    for args in ([], ["solve"], ["size"], ["predict"]):
        shown = run(*args, "--help").stdout
        first = shown.split("Start with these:\n")[1].split("\n\n")[0].splitlines()
        assert [line.split()[0] for line in first] == ["-m,", "-g,", "-c,", "--global-batch"]
    usual, whole = run("solve", "--help").stdout, run("solve", "--help-all").stdout
    assert "--rank-order" not in usual
    assert "--rank-order" in whole
    assert "more options: plan solve --help-all" in usual


def test_short_names_mean_the_same(asked):
    run("-m", "175b", "-g", "64", "-c", "dgx-a100")
    run("--model", "175b", "--gpus", "64", "--cluster", "dgx-a100")
    assert asked[0] == asked[1]


def test_solve_is_the_default_command(asked):
    for args in (ASK, ["solve", *ASK], ["-q", *ASK]):
        assert run(*args).exit_code == 0
    assert len(asked) == 3
    assert asked[0] == asked[1] == asked[2]


def test_every_option_reaches_the_request(asked):
    given = {
        "--cluster": "dgx-a100", "--stack": "nemo", "--global-batch": "6144", "--seq-len": "2048",
        "--tokens": "1.4T",
        "--precision": "fp16", "--objective": "cost", "--top": "0", "--time-limit": "2min",
        "--tp": "..8", "--cp": "1", "--pp": "4,8", "--vpp": "2..6", "--dp": "192", "--zero": "1",
        "--sharding-degree": "8", "--micro-batch": "2", "--schedule": "1f1b", "--recompute": "full",
        "--rank-order": "tp-cp-ep-pp-dp",
    }  # fmt: skip
    done = run(*ASK, *(word for pair in given.items() for word in pair), "--no-sequence-parallel")
    assert done.exit_code == 0, done.stderr
    (request,) = asked
    assert (request.cluster, request.stack, request.precision, request.objective) == (
        "dgx-a100",
        "nemo",
        "fp16",
        "cost",
    )
    assert (request.global_batch_size, request.seq_length, request.tokens) == (6144, 2048, 1_400_000_000_000)
    assert (request.top, request.time_limit) == (0, 120.0)
    assert dict(request.pins) == {
        "tp": "..8", "cp": "1", "pp": "4,8", "vpp": "2..6", "dp": "192", "zero_stage": "1",
        "sharding_degree": "8",
        "micro_batch_size": "2", "schedule": "1f1b", "recompute": "full", "rank_order": "tp-cp-ep-pp-dp",
        "sequence_parallel": "false",
    }  # fmt: skip


def test_megatrons_names_mean_the_same(asked):
    ours = "--tp 8 --pp 8 --cp 2 --vpp 6 --micro-batch 1 --global-batch 64 --recompute full"
    theirs = (
        "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --context-parallel-size 2 "
        "--num-layers-per-virtual-pipeline-stage 2 --micro-batch-size 1 --global-batch-size 64 "
        "--recompute-granularity full"
    )
    run(*ASK, *ours.split())
    run(*ASK, *theirs.split())
    assert asked[0] == asked[1]


def test_layers_per_chunk_that_do_not_divide_are_refused(asked):
    done = run(*ASK, "--pp", "8", "--num-layers-per-virtual-pipeline-stage", "5")
    assert done.exit_code == 2
    assert "5 x --pp 8 = 40 does not divide 96 layers" in done.stderr
    assert not asked


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("2min", 120.0), ("45", 45.0), ("0.5", 0.5), ("1 h", 3600)]
)
def test_time_limits_are_read(asked, text, seconds):
    assert run(*ASK, "--time-limit", text).exit_code == 0
    assert asked[0].time_limit == seconds


def test_why_not_without_a_choice_says_how_to_ask_about_one():
    done = CliRunner().invoke(main, ["why-not", "--model", "llama3.2-1b", "--gpus", "8"])
    assert (done.exit_code, done.stderr.count("\n")) == (0, 1)
    assert "no choice was asked about" in done.stderr
    assert not CliRunner().invoke(main, ["why-not", "--model", "llama3.2-1b", "--gpus", "8", "--tp", "2"]).stderr


@pytest.mark.parametrize(("short", "name"), [("megatron", "megatron-lm"), ("nemo", "megatron-bridge")])
def test_frameworks_have_the_short_names_that_their_exporters_have(asked, short, name):
    assert run(*ASK, "--for", short).exit_code == 0
    assert asked[0].framework == name


def test_a_reason_is_said_once_on_the_screen():
    for command in ("why-not", "predict"):
        asked = [command, "--model", "175b", "--gpus", "1024", "--tp", "8", "--pp", "8", "--vpp", "5"]
        said = " ".join(CliRunner().invoke(main, asked).stdout.split())
        assert said.count("vpp 5 does not divide the 96 layers") == 1, said


def test_options_win_over_variables_and_variables_over_the_file(asked, tmp_path):
    config = tmp_path / "job.toml"
    config.write_text(
        'model = "22b"\ngpus = 64\ncluster = "dgx-b200"\nstack = "nemo"\ntokens = "1B"\n'
        '[pins]\ntp = "..8"\npp = [2, 4]\n'
    )
    env = {"PLAN_STACK": "fsdp", "PLAN_CLUSTER": "dgx-a100", "PLAN_TP": "4"}
    done = run("--config", str(config), "--cluster", "dgx-h100", env=env)
    assert done.exit_code == 0, done.stderr
    (request,) = asked
    assert (request.model, request.gpus, request.tokens) == ("22b", 64, 10**9)
    assert (request.cluster, request.stack) == ("dgx-h100", "fsdp")
    assert dict(request.pins) == {"tp": "4", "pp": [2, 4]}


def test_a_json_configuration_does_as_well(asked, tmp_path):
    config = tmp_path / "job.json"
    config.write_text(json.dumps({"model": "22b", "gpus": 64, "pins": {"sequence_parallel": True}}))
    assert run("--config", str(config)).exit_code == 0
    assert dict(asked[0].pins) == {"sequence_parallel": "true"}


def test_dry_run_writes_tokens_in_letters_and_the_margin_to_a_tenth_of_a_per_cent():
    said = run("--model", "llama3-8b", "--gpus", "64", "--memory-margin", "7.6%", "--dry-run").stdout
    assert re.search(r"memory_margin +7\.6%  ", said)
    assert re.search(r"tokens +15 T  ", said)


def test_dry_run_shows_every_value_with_its_origin_and_does_not_search(asked):
    done = run(
        "--model", "175b", "--gpus", "64", "--tp", "4", "--dry-run", "--format", "json", env={"PLAN_STACK": "nemo"}
    )
    assert done.exit_code == 0, done.stderr
    shown = json.loads(done.stdout)
    origins = {name: row["origin"] for name, row in shown.items()}
    assert origins["gpus"] == "--gpus"
    assert origins["stack"] == "PLAN_STACK"
    assert origins["pins.tp"] == "--tp"
    assert origins["cluster"] == "default"
    assert shown["model"]["value"] == "gpt3-175b (96 layers)"
    assert not asked


def test_an_infeasible_answer_is_printed_before_exit_3(monkeypatch):
    monkeypatch.setattr(planner.api, "plan", lambda _request: infeasible_plan())
    done = run(*ASK, "--format", "json")
    assert done.exit_code == 3
    assert json.loads(done.stdout)["status"] == "infeasible"
    assert done.stderr.count("\n") == 1
    assert run(*ASK).exit_code == 3


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OutOfTime("no plan in 1 s"), 4, "plan: no plan in 1 s\n"),
        (BadRequest("two\nlines"), 2, "plan: two lines\n"),
        (KeyboardInterrupt(), 130, "plan: interrupted\n"),
        (RuntimeError("boom"), 1, "plan: internal error: RuntimeError: boom; run with -v for the traceback\n"),
        (OSError(2, "No such file", "x.toml"), 2, "plan: x.toml: No such file\n"),
    ],
)
def test_every_error_has_its_exit_code_and_one_line(monkeypatch, error, code, said):
    def plan(_request):
        raise error

    monkeypatch.setattr(planner.api, "plan", plan)
    done = run(*ASK)
    assert (done.exit_code, done.stdout, done.stderr) == (code, "", said)


def test_verbose_shows_the_traceback_of_an_unexpected_error(monkeypatch):
    def plan(_request):
        raise RuntimeError("boom")

    monkeypatch.setattr(planner.api, "plan", plan)
    assert "Traceback" in run(*ASK, "-v").stderr


@pytest.mark.usefixtures("asked")
def test_quiet_changes_the_talk_only_and_verbose_shows_more():
    usual, quiet, verbose = run(*ASK), run(*ASK, "-q"), run(*ASK, "-v")
    assert usual.stdout == quiet.stdout
    assert "What would help" in verbose.stdout
    assert "What would help" not in usual.stdout
    assert run(*ASK, "-v", "--format", "json").stdout == run(*ASK, "--format", "json").stdout
    assert usual.stderr == quiet.stderr == ""
    assert "catalogue 0123456789ab" in verbose.stderr


@pytest.mark.usefixtures("asked")
def test_an_output_file_is_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "plan.json"
    target.write_text("old")
    done = run(*ASK, "--format", "json", "-o", str(target))
    assert (done.exit_code, done.stdout) == (0, "")
    assert json.loads(target.read_text())["schema"] == "plan/1"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_file_that_cannot_be_written_is_told_before_the_search(asked, tmp_path):
    for target in (tmp_path, tmp_path / "missing" / "plan.json"):
        assert run(*ASK, "-o", str(target)).exit_code == 2
    assert not asked


def test_predict_hands_over_the_layers(monkeypatch):
    seen = []

    def predict(request, **_how):
        seen.append(request.layers_per_stage)
        return fake_plan(proof=None)

    monkeypatch.setattr(planner.api, "predict", predict)
    assert run("predict", *ASK, "--pp", "4", "--layers-per-stage", "24,24,23,25").exit_code == 0
    assert run("predict", *ASK).exit_code == 0
    assert seen == [(24, 24, 23, 25), None]


FAKE = """
import sys, time, planner.api, planner.cli
from tests.planner.fake_plan import fake_plan
planner.api.plan = {body}
planner.cli.main(sys.argv[1:])
"""


def test_a_reader_who_leaves_is_nobodys_error():
    code = FAKE.format(body="lambda request: fake_plan()")
    command = f"\"{sys.executable}\" -c '{code}' --model 175b --gpus 12288 | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_full_disk_is_told_in_one_line():
    code = FAKE.format(body="lambda request: fake_plan()")
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            [sys.executable, "-c", code, *ASK], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "plan: the answer cannot be written: No space left on device\n"


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_with_130_and_one_line(sent):
    body = "lambda request: (print('searching', file=sys.stderr, flush=True), time.sleep(30))"
    process = subprocess.Popen(
        [sys.executable, "-c", FAKE.format(body=body), *ASK],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(sent, signal.SIG_DFL),  # noqa: PLW1509 - a background job ignores SIGINT
    )
    assert process.stderr.readline() == "searching\n"
    os.kill(process.pid, sent)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", "plan: interrupted\n")


def test_an_interrupt_that_the_end_of_an_object_drops_comes_again(monkeypatch):
    class Ended:
        def __del__(self):
            raise KeyboardInterrupt

    def plan(_request):
        Ended()
        time.sleep(1)
        raise AssertionError

    monkeypatch.setattr(planner.api, "plan", plan)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        done = run(*ASK)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "plan: interrupted\n")


def test_python_dash_m_is_the_same_command():
    done = subprocess.run([sys.executable, "-m", "planner", "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("plan ")
