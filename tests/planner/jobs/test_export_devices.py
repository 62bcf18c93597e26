"""Frameworks and stacks on accelerators that they make no programs for: refused in a line, with what runs there."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from hardware.catalogue import accelerator, names
from planner.api import plan, predict
from planner.cli import main
from planner.errors import BadRequest
from planner.frameworks.registry import FRAMEWORKS
from planner.frameworks.vendors import NO_GPUS
from planner.jobs.job import Inexpressible, job_of
from planner.jobs.maxtext.write import axes
from planner.jobs.preview import launch
from planner.jobs.registry import TARGETS, export
from planner.request.request import PlanRequest
from planner.request.resolve import resolve

ASKED = {"model": "llama3-8b", "gpus": 64, "cluster": "tpu-v5p-pod", "reasons": False, "top": 0}


@pytest.fixture(scope="module")
def planned():
    return plan(PlanRequest(**ASKED))


def moved(answer, device):
    """The same answer as if it had been for other accelerators, of a stack that says no device is wrong."""
    cluster = answer.request["cluster"] | {"accelerator": device}
    return answer.model_copy(update={"request": answer.request | {"cluster": cluster}})


def run(*arguments):
    return CliRunner().invoke(main, [*map(str, arguments)])


def test_the_usual_stack_on_tpus_is_the_one_that_runs_there(planned):
    assert planned.request["stack"] == "maxtext"
    assert "stack maxtext (for tpu-v5p)" in planned.defaults
    assert plan(PlanRequest(**ASKED | {"cluster": "dgx-h100"})).request["stack"] == "megatron-core"


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ("atlas800t-a2", "stack megatron-core (as it runs on GPUs; --stack mindformers was measured on Huawei's)"),
        ("gaudi3-8x", "stack megatron-core (as it runs on GPUs)"),
        ("mi300x-8x", "stack megatron-core"),
        ("dgx-h100", "stack megatron-core"),
    ],
)
def test_a_stack_that_is_made_for_other_devices_is_said_to_be_priced_as_there(cluster, said):
    asked = {"model": "llama3-8b", "gpus": 16, "cluster": cluster}
    assert said in resolve(PlanRequest(**asked)).defaults
    assert not any(line.startswith("stack") for line in resolve(PlanRequest(**asked, stack="mindformers")).defaults)


@pytest.mark.parametrize(
    ("said", "what"),
    [
        (("--stack", "megatron-core"), "stack megatron-core"),
        (("--stack", "fsdp"), "stack fsdp"),
        (("--for", "deepspeed"), "framework deepspeed"),
        (("--for", "megatron-lm", "--stack", "maxtext"), "framework megatron-lm"),
    ],
)
@pytest.mark.parametrize("command", ["solve", "predict"])
def test_a_stack_without_programs_for_tpus_is_refused_in_a_line(command, said, what):
    done = run(command, "--model", "llama3-8b", "--gpus", 64, "--cluster", "tpu-v5e-pod", *said, "-q")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"plan: {what} makes no programs for tpu-v5e; maxtext does\n"


def test_tpus_are_planned_for_under_no_framework_in_particular_and_under_ones_own():
    from costmodels.stack.stack import stack

    assert plan(PlanRequest(**ASKED, stack="generic")).request["stack"] == "generic"
    mine = stack("megatron-core").changed({"name": "mine"})
    assert predict(PlanRequest(**ASKED, stack=mine)).request["stack"]["name"] == "mine"


@pytest.mark.parametrize("stack", ["maxtext", "generic"])
def test_no_arguments_of_megatron_are_written_for_tpus(stack):
    answer = plan(PlanRequest(**ASKED, stack=stack))
    with pytest.raises(BadRequest, match="no tpu-v5p, which has no CUDA; maxtext runs on TPUs"):
        launch(answer, answer.strategy)


def test_the_screen_offers_no_arguments_of_megatron_for_tpus():
    done = run("--model", "llama3-8b", "--gpus", 64, "--cluster", "tpu-v5p-pod")
    assert "plan export --to maxtext writes its YAML" in done.stdout
    assert "--tensor-model-parallel-size" not in done.stdout
    assert "--format args" not in done.stdout


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "maxtext"])
def test_no_other_target_takes_a_plan_for_tpus(planned, name):
    with pytest.raises(Inexpressible, match="maxtext"):
        export(planned, name)


def test_maxtext_is_told_of_tpus_and_started_once_a_host(planned):
    files = export(planned, "maxtext").files
    document = yaml.safe_load(files["maxtext.yml"])
    assert (document["hardware"], document["attention"]) == ("tpu", "flash")
    assert not {"CUDA", "MASTER_ADDR", "SLURM"} & set(files["maxtext.sh"].replace("_", " ").split())
    gpu = export(plan(PlanRequest(**ASKED | {"cluster": "dgx-h100"}, framework="maxtext")), "maxtext").files
    assert yaml.safe_load(gpu["maxtext.yml"])["hardware"] == "gpu"
    assert "CUDA_VISIBLE_DEVICES" in gpu["maxtext.sh"]


@pytest.mark.parametrize(("pins", "between"), [({"pp": 1}, "data"), ({"pp": 2, "schedule": "gpipe"}, "pipeline")])
def test_slices_of_tpus_share_out_an_outer_axis(pins, between):
    asked = {
        "gpus": 512,
        "cluster": "tpu-v5e-pod",
        "global_batch_size": 2048,
        "seq_length": 2048,
        "framework": "maxtext",
    }
    answer = plan(PlanRequest(**ASKED | asked, pins=pins | {"zero_stage": "..1", "cp": 1}))
    made = axes(job_of(answer))
    assert made["num_slices"] == 2
    assert made[f"dcn_{between}"] == 2
    sizes = [size for name, size in made.items() if name.startswith("ici")]
    product = 1
    for size in sizes:
        product *= size
    assert product * 2 == 512


@pytest.mark.parametrize("precision", ["fp8", "fp8-current", "mxfp8"])
def test_recipes_of_transformer_engine_are_for_gpus(planned, precision):
    asked = planned.model_copy(update={"request": planned.request | {"precision": precision}})
    with pytest.raises(Inexpressible, match=f"no precision {precision} on tpu-v5p"):
        export(asked, "maxtext")


@pytest.mark.parametrize(
    ("device", "refused"),
    [
        ("trainium2", {"megatron-lm", "megatron-bridge", "deepspeed", "nanotron", "maxtext"}),
        ("gaudi2", {"nanotron", "maxtext"}),
        ("ascend-910b", {"nanotron", "maxtext"}),
        ("mi300x", set()),
    ],
)
def test_a_framework_is_refused_where_its_own_code_stops(planned, device, refused):
    for name in FRAMEWORKS:
        asked = planned.model_copy(update={"request": planned.request | {"stack": FRAMEWORKS[name].stack}})
        try:
            export(moved(asked, device), name)
            why = ""
        except Inexpressible as error:
            why = str(error)
        assert (f"no {device}" in why) == (name in refused), (name, why)


def test_a_port_of_megatron_is_asked_for_where_there_is_no_cuda(planned):
    asked = planned.model_copy(update={"request": planned.request | {"stack": "megatron-core"}})
    remarks = " ".join(export(moved(asked, "ascend-910b"), "megatron-lm").remarks)
    assert "Megatron-LM needs CUDA: ascend-910b needs the port of Huawei" in remarks
    assert "port of" not in " ".join(export(moved(asked, "mi300x"), "megatron-lm").remarks)


def test_megatron_loops_over_experts_where_there_are_no_kernels_of_grouped_products():
    asked = {"model": "mixtral-8x7b", "gpus": 64, "precision": "fp16", "reasons": False, "top": 0}
    for cluster, loops in (("v100-dgx2", True), ("dgx-h100", False)):
        made = export(plan(PlanRequest(cluster=cluster, stack="megatron-core", **asked)), "megatron-lm")
        assert ("--moe-grouped-gemm" in made.program) != loops
        assert any("one after another" in line for line in made.remarks) == loops


def test_every_maker_in_the_catalogue_has_gpus_or_is_known_to_have_none():
    makers = {accelerator(name).vendor for name in names("accelerator")}
    assert makers == {"NVIDIA", "AMD", *NO_GPUS}


def test_the_rule_is_no_part_of_a_price():
    room = Path(__file__).resolve().parents[3] / "costmodels"
    assert not [path.name for path in room.glob("*.py") if "makes no programs" in path.read_text(encoding="utf-8")]
