"""Models, clusters and stacks within a request, and an answer's request asked again."""

import json

import pytest
from click.testing import CliRunner

from costmodels.model.catalogue import model
from costmodels.model.model import from_shape
from costmodels.model.parameters import parameters
from costmodels.stack.stack import stack
from hardware.catalogue import cluster
from hardware.records import BadNodeCount
from planner.analyses.compare import side_of_plan
from planner.analyses.replan import replan
from planner.answer.plan import Plan
from planner.api import plan
from planner.cli import main
from planner.errors import BadRequest
from planner.render.terminal.panels import machine_facts
from planner.request.request import PlanRequest
from planner.request.resolve import resolve
from tests.each import each

NODE = {"name": "mine", "accelerator": "h100-sxm", "gpus_per_node": 8}
SIZES = {"num_layers": 4, "hidden_size": 64, "num_heads": 8, "vocab_size": 1000, "seq_length": 128}
QUICK = ["--gpus", "16", "--top", "0", "--no-reasons", "--format", "json"]


def answered(*args):
    done = CliRunner().invoke(main, list(args))
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def chosen(document):
    return {name: document[name] for name in ("request", "strategy", "prediction", "breakdown_seconds")}


@pytest.mark.parametrize("part", ["the answer", "its request"])
@pytest.mark.parametrize(
    "args",
    [
        ["--model", "llama2-7b", *QUICK, "--tp", "1,2", "--tokens", "1B"],
        ["--model", "gpt2-124m", *QUICK[2:], "--gpus", "4", "--cluster", "dgx-a100", "--stack", "fsdp"],
        ["--model", "mixtral", *QUICK, "--objective", "cost", "--seq-len", "1024"],
    ],
    ids=["pinned", "part of a node", "experts"],
)
def test_an_answer_can_be_asked_again(tmp_path, args, part):
    first = answered(*args)
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(first if part == "the answer" else first["request"]))
    again = answered("--config", str(path), *QUICK[2:])
    assert chosen(again) == chosen(first)


@pytest.mark.parametrize("margin", ["0", "10%"])
def test_an_answer_on_a_cluster_of_ones_own_is_asked_again_from_itself_alone(tmp_path, margin):
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps(NODE | {"nodes": 2, "network": {"bandwidth": "200 Gb/s"}}))
    first = answered("--model", "llama2-7b", *QUICK, "--cluster", str(mine), "--memory-margin", margin)
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(first))
    mine.unlink()
    again = answered("--config", str(path), *QUICK[2:])
    assert chosen(again) == chosen(first)
    assert again["request"]["cluster"] == first["request"]["cluster"]


def test_a_short_cluster_that_differs_from_the_catalogue_is_not_taken_for_it():
    known = cluster("dgx-h100").with_gpus(64).groups[0]
    tiers = [{"name": t.name, "gpus": t.domain, "bandwidth": f"{t.link.bandwidth} B/s"} for t in known.tiers]
    short = {"name": "dgx-h100", "accelerator": "h100-sxm", "gpus_per_node": 8, "nodes": 8, "tiers": tiers}
    assert PlanRequest(model="22b", gpus=64, cluster=short).cluster == "dgx-h100"
    tiers[-1]["bandwidth"] = "1 GB/s"
    with pytest.raises(BadRequest, match="'dgx-h100' only in short"):
        PlanRequest(model="22b", gpus=64, cluster=short)


def test_a_table_is_read_as_the_file_of_a_cluster_would_be():
    asked = PlanRequest(model="22b", gpus=16, cluster=NODE | {"nodes": 2, "network": {"bandwidth": "200 Gb/s"}})
    assert resolve(asked).scenario.group.tiers[-1].link.bandwidth == 25e9


@pytest.mark.parametrize("known", [model("mixtral"), from_shape(SIZES), from_shape(SIZES | {"gated_ffn": True})])
def test_a_dumped_model_is_the_model_with_or_without_its_number_of_parameters(known):
    table = known.model_dump(exclude_defaults=True)
    assert PlanRequest(model=table, gpus=8).model == known
    assert PlanRequest(model=table | {"parameters": parameters(known)}, gpus=8).model == known


def test_a_model_of_sizes_alone_is_filled_as_its_file_would_be():
    assert PlanRequest(model=SIZES, gpus=8).model == from_shape(SIZES)


def test_an_inline_record_bounds_the_gpus_and_a_shipped_name_does_not():
    sixteen = cluster("dgx-h100").with_gpus(16)
    assert resolve(PlanRequest(model="22b", gpus=16, cluster=sixteen)).cluster == sixteen
    with pytest.raises(
        BadNodeCount, match="dgx-h100 has 2 nodes x 8 = 16 GPUs; 12288 were asked for; at most 16 works"
    ):
        resolve(PlanRequest(model="22b", gpus=12288, cluster=sixteen))
    assert resolve(PlanRequest(model="22b", gpus=12288, cluster="dgx-h100")).scenario.group.nodes == 1536


@each("field", ["gpus", "global_batch_size", "seq_length", "tokens", "top", "time_limit"])
def test_true_is_no_number(field):
    with pytest.raises(BadRequest, match="expected a number such as 64, got true"):
        PlanRequest(**({"model": "22b", "gpus": 64} | {field: True}))


@pytest.mark.parametrize("field", ["model", "cluster", "stack"])
@pytest.mark.parametrize("wrong", [None, 3, ["a"], {"zzz": 1}])
def test_what_is_neither_name_nor_record_is_told_in_words_and_once(field, wrong):
    with pytest.raises(BadRequest) as caught:
        PlanRequest(**({"model": "22b", "gpus": 64} | {field: wrong}))
    said = str(caught.value)
    assert said.startswith(f"{field}: ")
    assert said.count(f"{field}: ") == 1
    assert "function-after" not in said


def test_the_worst_network_that_is_plausible_is_planned_without_a_warning(tmp_path):
    path = tmp_path / "mine.json"
    worst = {"bandwidth": "1 Mb/s", "latency": "1 s", "base_latency": "1 s", "efficiency": 0.001, "saturation": "1 TB"}
    worst |= {"like": "ib-ndr400", "point_to_point": 0.001, "group_penalty": 0.9}
    path.write_text(json.dumps(NODE | {"network": worst}))
    answer = answered("--model", "llama2-7b", *QUICK, "--cluster", str(path))
    assert 0 < answer["prediction"]["iteration_seconds"] < 1e9


@pytest.fixture
def slow_kernels(tmp_path):
    """A file with the usual stack's name whose products take longer."""
    path = tmp_path / "mine.json"
    usual = stack("megatron-core").model_dump(mode="json", exclude_defaults=True)
    path.write_text(json.dumps(usual | {"calibrated": usual["calibrated"] | {"kernel_efficiency": 0.5}}))
    return path


def test_an_answer_on_a_stack_of_ones_own_is_asked_again_from_itself_alone(tmp_path, slow_kernels):
    first = answered("--model", "llama2-7b", *QUICK, "--stack", str(slow_kernels), "--set", "stack.overlap.pp=0.5")
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(first))
    slow_kernels.unlink()
    again = answered("--config", str(path), *QUICK[2:])
    assert chosen(again) == chosen(first)
    assert first["request"]["stack"]["calibrated"]["kernel_efficiency"] == 0.5


def test_a_plan_on_a_stack_of_ones_own_is_compared_and_planned_anew_on_it(slow_kernels):
    mine, usual = (
        plan(PlanRequest(model="llama2-7b", gpus=16, stack=it, top=0)) for it in (str(slow_kernels), "megatron-core")
    )
    side = side_of_plan(Plan.model_validate_json(mine.to_json()), "mine")
    assert side.price().iteration == pytest.approx(mine.prediction.iteration_seconds)
    assert side.price().iteration > 1.2 * usual.prediction.iteration_seconds
    assert replan(mine, 16).fastest.iteration_seconds == pytest.approx(mine.prediction.iteration_seconds)


def test_an_answer_on_a_catalogue_stack_names_it(tmp_path):
    path = tmp_path / "copy.json"
    path.write_text(json.dumps(stack("fsdp").model_dump(mode="json", exclude_defaults=True)))
    assert answered("--model", "llama2-7b", *QUICK, "--stack", str(path))["request"]["stack"] == "fsdp"


def test_the_screen_says_that_the_stack_is_ones_own(slow_kernels):
    done = CliRunner().invoke(main, ["--model", "llama2-7b", "--gpus", "16", "--stack", str(slow_kernels)])
    assert "stack megatron-core, as you gave it" in done.stdout


def test_the_screen_says_how_many_runs_a_stack_was_fitted_to():
    fitted = {"name": "megatron-core", "calibrated": {"own_runs": 2}}
    assert machine_facts({"stack": fitted, "gpus": 8})[1:] == [
        "8 GPUs",
        "stack megatron-core, fitted to 2 runs of yours",
    ]


@pytest.mark.parametrize("field", ["memory_margin", "offload_fraction"])
def test_a_share_is_written_as_a_number_or_in_per_cent(field):
    read = [getattr(PlanRequest(model="22b", gpus=8, **{field: share}), field) for share in ("50%", "0.5", 0.5)]
    assert read == [0.5, 0.5, 0.5]
    for strange in ("150%", True, "half", [1]):
        with pytest.raises(BadRequest, match=field):
            PlanRequest(model="22b", gpus=8, **{field: strange})
