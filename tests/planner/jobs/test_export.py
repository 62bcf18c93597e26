"""The export command: what it writes, where, and what it refuses."""

import json
import re
import subprocess
from dataclasses import replace

import pytest
import yaml
from click.testing import CliRunner

from planner import plan as best
from planner.answer.plan import Plan
from planner.cli import main
from planner.errors import BadRequest
from planner.frameworks.registry import FRAMEWORKS
from planner.jobs.job import Inexpressible, chunk_layers, job_of, switches_of
from planner.jobs.launchers.torchrun import locality
from planner.jobs.megatron.options import OPTIONS
from planner.jobs.megatron.write_stack import stack_values
from planner.jobs.registry import TARGETS, export, target
from planner.jobs.yaml_text import yaml_text
from planner.request.request import PlanRequest
from tests.conformance.plans import random_plans
from tests.each import each
from tests.planner.fake_plan import infeasible_plan


class Drawn(dict):
    """Plans by the framework that they are for, drawn when they are asked for."""

    def __missing__(self, name):
        self[name] = random_plans(name, 12, seed=3, models=("llama3-8b", "mixtral-8x7b"), precisions=("bf16",))
        return self[name]


PLANS = Drawn()


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(PLANS["megatron-lm"][0].to_json())
    return path


def run(*arguments, stdin=None):
    return CliRunner().invoke(main, ["export", *map(str, arguments)], input=stdin)


@each("name", FRAMEWORKS)
def test_every_plan_for_a_framework_is_written_for_it(name):
    for plan in PLANS[name]:
        exported = export(plan, name)
        assert all(text.endswith("\n") and "meshwright" in text for text in exported.files.values() if text[0] != "{")
        assert exported == export(plan, name)


@each("name", [name for name, target in TARGETS.items() if target.kind == "launcher"])
@each("framework", FRAMEWORKS)
def test_a_launcher_starts_the_program_of_the_plans_framework(name, framework):
    for plan in PLANS[framework][:4]:
        text = "".join(export(plan, name).files.values())
        program = export(plan, framework).program
        assert all(word in text for word in program[:1])
        assert str(plan.request["cluster"]["nodes"]) in text


def test_of_a_plan_for_any_framework_a_launcher_starts_its_stack_s():
    made = best(PlanRequest(model="gpt3-760m", gpus=8, global_batch_size=64, framework="any"))
    assert "pretrain_gpt.py" in next(iter(export(made, "torchrun").files.values()))


@each(
    ("model", "name"),
    [
        ("Llama 3.1 8B", "llama-3-1-8b"),
        ("01-model", "train-01-model"),
        ("7b", "train-7b"),
        ("Модель", "train"),
        ("Модель-7b", "train-7b"),
        ("Ministral--" + 60 * "x", "ministral-" + 28 * "x"),
    ],
)
def test_a_job_is_called_what_every_scheduler_takes_with_the_numbers_of_its_pods(model, name):
    job = job_of(PLANS["megatron-lm"][0])
    called = replace(job, model=job.model.model_copy(update={"name": model})).name
    assert called == f"{name}-{job.gpus}"
    assert re.fullmatch(r"[a-z][-a-z0-9]{,62}", f"{called}-node-{2**24 - 1}-0-abcde")


@each("name", TARGETS)
def test_every_target_states_its_version_and_who_checked_it(name):
    target = TARGETS[name]
    assert target.versions
    assert len(target.checked) > 10
    with pytest.raises(BadRequest, match=f"version {target.versions[0]}"):
        export(PLANS["megatron-lm"][0], name, version="0.0.1")


def test_a_pytorch_module_holds_what_the_plan_uses_and_no_more():
    whole = random_plans("pytorch", 2, models=("llama3-8b",), precisions=("bf16",), pins=(("pp", 1),))
    for plan in PLANS["pytorch"] + whole:
        text = export(plan, "pytorch").files["torch_plan.py"]
        compile(text, "torch_plan.py", "exec")
        assert ("fully_shard(" in text) == (plan.strategy.zero_stage > 0)
        assert ("get_schedule_class(" in text) == (plan.strategy.pp > 1)
        assert "if not" not in text
    assert {plan.strategy.pp > 1 for plan in PLANS["pytorch"] + whole} == {True, False}


@pytest.mark.parametrize("name", ["pytorch", "torchtitan"])
def test_two_blank_lines_at_most_stand_in_a_module(name):
    for plan in PLANS[name]:
        assert "\n\n\n\n" not in "".join(export(plan, name).files.values())


def test_a_plan_from_a_file_goes_to_stdout(saved):
    done = run(saved, "--to", "megatron-lm")
    assert done.exit_code == 0, done.stderr
    assert "MEGATRON_ARGS=(" in done.stdout
    assert subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=False).returncode == 0


def test_a_plan_from_stdin_goes_to_a_folder_once(saved, tmp_path):
    folder = tmp_path / "run"
    done = run("-", "--to", "slurm", "-o", folder, stdin=saved.read_text())
    assert (done.exit_code, done.stdout) == (0, "")
    (script,) = folder.iterdir()
    before = script.read_text()
    again = run(saved, "--to", "slurm", "-o", folder)
    assert again.exit_code == 2
    assert "--force overwrites it" in again.stderr
    script.write_text("mine\n")
    assert run(saved, "--to", "slurm", "-o", folder, "--force").exit_code == 0
    assert script.read_text() == before


@pytest.mark.parametrize(("name", "file"), [("torchrun", "torchrun.sh"), ("slurm", "job.sbatch")])
def test_a_launch_script_says_where_its_processes_are_priced(name, file):
    text = export(PLANS["megatron-lm"][0], name).files[file]
    assert any(line.startswith("#") and "--numa-binding node" in line for line in text.splitlines())
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


def test_what_a_target_lacks_is_refused_with_what_it_takes(saved):
    plan = next(plan for plan in PLANS["megatron-lm"] if plan.strategy.pp > 1)
    saved.write_text(plan.to_json())
    done = run(saved, "--to", "accelerate")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "accelerate cannot start this plan: it takes no pipeline" in done.stderr
    assert "--for accelerate" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "megatron-l"), "did you mean megatron-lm"),
        (("--to", "slurm", "--target-version", "9"), "22.05 and 24.05"),
        (("--to", "slurm", "-o", "/nowhere/at/all"), "there is no folder /nowhere/at"),
    ],
)
def test_a_wrong_question_is_refused_in_a_line(saved, arguments, said):
    done = run(saved, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_nothing_is_launched_where_nothing_fits():
    with pytest.raises(Inexpressible, match="infeasible"):
        export(infeasible_plan(), "megatron-lm")


def test_degrees_of_each_node_group_are_no_launchers():
    plan = PLANS["megatron-lm"][0]
    stages = [{**stage.model_dump(), "tp": 2} for stage in plan.strategy.stages]
    document = json.loads(plan.to_json())
    document["strategy"]["stages"] = stages
    with pytest.raises(Inexpressible, match="differ between node groups"):
        job_of(Plan.model_validate(document))


def test_recomputation_that_differs_by_stage_is_refused_by_megatron():
    plan = next(plan for plan in PLANS["megatron-lm"] if plan.strategy.pp > 1)
    stages = [
        {"layers": s.layers, "recompute_layers": n == 0, "group": s.group} for n, s in enumerate(plan.strategy.stages)
    ]
    strategy = plan.strategy.model_dump() | {"stages": stages, "recompute": "partial", "recompute_modules": ()}
    with pytest.raises(Inexpressible, match="one number for all stages"):
        export(Plan.model_validate(json.loads(plan.to_json()) | {"strategy": strategy}), "megatron-lm")


@each("framework", FRAMEWORKS)
def test_the_tightest_group_spans_a_divisor_of_the_nodes(framework):
    for plan in PLANS[framework]:
        job = job_of(plan)
        assert job.node_count % locality(job) == 0


def test_chunks_hold_the_layers_of_their_stages():
    plan = next(plan for plan in PLANS["torchtitan"] if plan.strategy.vpp > 1)
    held = chunk_layers(plan.strategy, folded=plan.strategy.schedule in {"zb-v", "dualpipe-v"})
    assert sum(held) == plan.request["model"]["num_layers"]


def test_yaml_keeps_scripts_as_they_stand_and_puts_lists_below_their_key():
    document = {"run": "a \\\n  b\n", "list": [{"c": "1"}], "none": None, "tiny": 1e-8}
    text = yaml_text(document)
    assert text == 'run: |\n  a \\\n    b\nlist:\n  - c: "1"\nnone: null\ntiny: 1.0e-08\n'
    assert yaml.safe_load(text) == document
    odd = ["yes", "null", "1f1b", "1e3", "0x1", "~", "*", "{", "#", "x: y", "'", '"', "", " a ", "two\nlines\n", "é"]
    assert yaml.safe_load(yaml_text({"odd": odd})) == {"odd": odd}


def test_the_exporters_are_listed():
    done = CliRunner().invoke(main, ["list", "exporters", "--format", "json"])
    assert [row["name"] for row in json.loads(done.stdout)] == list(TARGETS)


def test_nanotron_divides_the_layers_and_the_search_takes_its_word():
    """The best plan for it is the best of those with nanotron's own split, found by pricing each of them."""
    from planner.api import plan, predict
    from planner.frameworks.nanotron import stage_layers

    asked = {"model": "llama3-70b", "gpus": 128, "framework": "nanotron"}
    found = plan(PlanRequest(**asked, reasons=False))
    best, stages = found.strategy, [stage.layers for stage in found.strategy.stages]
    assert best.pp > 1
    assert stages != [80 // best.pp] * best.pp
    assert stages == stage_layers(job_of(found).model, best.pp)
    names = ("tp", "dp", "zero_stage", "micro_batch_size", "sequence_parallel", "recompute")
    pins = {name: getattr(best, name) for name in names} | {"schedule": "1f1b"}
    for pp in (best.pp, 2 * best.pp):
        one = pins | {"pp": pp, "dp": best.dp * best.pp // pp}
        priced = predict(PlanRequest(**asked, pins=one))
        assert [stage.layers for stage in priced.strategy.stages] == stage_layers(job_of(found).model, pp)
        assert priced.prediction.iteration_seconds >= found.prediction.iteration_seconds * (1 - 1e-9)


def changed(plan, **changes):
    """The plan as if it had been made under ``--set`` of these paths, dots for double underscores."""
    made = {path.replace("__", "."): value for path, value in changes.items()}
    return plan.model_copy(update={"request": dict(plan.request) | {"changes": made}})


def test_changes_that_a_launch_file_cannot_say_are_named():
    plan = changed(PLANS["megatron-lm"][0], stack__recompute_policy="projections", model__sliding_window=1024)
    assert "stack.recompute_policy=projections, which" in export(plan, "megatron-lm").remarks[-1]
    for other in ("megatron-bridge", "slurm"):
        assert "stack.recompute_policy=projections" in export(plan, other).remarks[-1]
    assert "model.sliding_window=1024" in export(plan, "megatron-bridge").remarks[-1]
    assert not any("priced with" in remark for remark in export(PLANS["megatron-lm"][0], "megatron-lm").remarks)


def test_changes_that_megatron_can_say_are_in_its_file():
    (plan,) = random_plans("megatron-lm", 1, seed=3, models=("mixtral-8x7b",), precisions=("bf16",))
    update = {"tp": 2, "ep": 2, "sequence_parallel": True, "stages": plan.strategy.stages}
    plan = plan.model_copy(update={"strategy": plan.strategy.model_copy(update=update)})
    asked = changed(plan, stack__dispatcher="deepep", stack__overlap__tp_forward="0.1").request
    assert switches_of(asked).dispatcher == "deepep"
    assert OPTIONS.words(stack_values(plan.strategy, asked)[0]) == ["--tp-comm-overlap"]
    assert OPTIONS.words(stack_values(plan.strategy, plan.request)[0]) == []


def test_targets_have_the_short_names_that_people_use():
    assert {name: target(name).name for name in ("megatron", "NeMo", "kubernetes")} == {
        "megatron": "megatron-lm",
        "NeMo": "megatron-bridge",
        "kubernetes": "jobset",
    }
