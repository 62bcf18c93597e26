"""A framework is priced as what it runs, and a configuration is compared with what its own framework starts."""

import json

import pytest
from click.testing import CliRunner

from costmodels.stack.stack import stack_names
from planner import PlanRequest
from planner.cli import main
from planner.errors import BadRequest
from planner.frameworks.registry import FRAMEWORKS, goes_with
from planner.request.resolve import resolve

TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
[activation_checkpoint]
mode = "full"
"""


def run(*arguments, **environment):
    return CliRunner().invoke(main, arguments, env=environment)


def test_every_framework_goes_with_its_own_stack_and_names_stacks_that_exist():
    for name, framework in FRAMEWORKS.items():
        assert goes_with(name, framework.stack)
        assert set(framework.stacks) <= set(stack_names())


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(("--stack", "torchtitan"), {}), ((), {"PLAN_STACK": "torchtitan"}), (("--config", "{file}"), {})],
)
def test_a_framework_with_the_stack_of_another_is_refused_in_a_line(arguments, environment, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text('stack = "torchtitan"\n')
    said = [one.replace("{file}", str(path)) for one in arguments]
    done = run("--model", "llama3-8b", "--gpus", "64", "--for", "megatron-lm", "--format", "args", *said, **environment)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "framework megatron-lm does not go with stack torchtitan; megatron-core, nemo" in done.stderr
    assert done.stderr.count("\n") == 1


def test_python_refuses_it_too_also_of_a_record():
    torchtitan = resolve(PlanRequest(model="llama3-8b", gpus=8, stack="torchtitan")).software
    for stack in ("torchtitan", torchtitan):
        with pytest.raises(BadRequest, match="does not go with stack torchtitan"):
            resolve(PlanRequest(model="llama3-8b", gpus=8, stack=stack, framework="megatron-lm"))


def test_a_stack_of_ones_own_goes_with_any_framework():
    own = resolve(PlanRequest(model="llama3-8b", gpus=8)).software.changed({"name": "ours"})
    for framework in ("megatron-lm", "torchtitan"):
        assert resolve(PlanRequest(model="llama3-8b", gpus=8, stack=own, framework=framework)).scenario
        assert resolve(PlanRequest(model="llama3-8b", gpus=8, stack="generic", framework=framework)).scenario


def test_a_file_stands_compare_with_best_that_its_framework_starts(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(f"{TITAN}[compile]\nenable = true\n")
    done = run("predict", "--from", "torchtitan", str(path), "--gpus", "64", "--format", "json", "-q")
    own = run("--model", "llama3-8b", "--gpus", "64", "--for", "torchtitan", "--global-batch", "64", "--seq-len",
              "8192", "--no-reasons", "--format", "json", "-q")  # fmt: skip
    found, best = json.loads(done.stdout), json.loads(own.stdout)
    assert found["alternatives"][0]["iteration_seconds"] == pytest.approx(best["prediction"]["iteration_seconds"])
    assert found["alternatives"][0]["strategy"]["cp"] == 1
    assert found["why_not"][0]["text"].endswith("(of those that torchtitan starts)")


def test_a_file_priced_as_another_stack_stands_compare_with_best_of_that(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(TITAN)
    done = run("predict", "--from", "torchtitan", str(path), "--gpus", "8", "--stack", "fsdp", "--format",
               "json", "-q")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "starts" not in json.loads(done.stdout)["why_not"][0]["text"]


def test_a_model_of_hugging_face_is_priced_as_the_framework_asked_for(tmp_path):
    path = tmp_path / "config.json"
    sizes = {"hidden_size": 2048, "num_hidden_layers": 16, "vocab_size": 32000, "num_attention_heads": 16}
    more = {"num_key_value_heads": 8, "intermediate_size": 5504, "max_position_embeddings": 4096}
    path.write_text(json.dumps({"model_type": "llama", **sizes, **more}))
    done = run("predict", "--from", "hf", str(path), "--gpus", "8", "--for", "torchtitan", "--format", "json", "-q")
    assert done.exit_code in (0, 3), done.stderr  # plain strategies need not suit a framework
    assert json.loads(done.stdout)["request"]["stack"] == "torchtitan"
