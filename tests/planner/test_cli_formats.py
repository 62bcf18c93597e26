import builtins
import json
import re
import shlex
import subprocess
import sys

import pytest
import yaml
from click.testing import CliRunner

import planner.api
from planner.cli import main
from planner.document import Plan, Strategy
from planner.report.formats import megatron_arguments, written
from tests.planner.fake_plan import fake_plan, infeasible_plan, strategy


def arguments(**changes):
    words, remarks = megatron_arguments(Strategy.model_validate(strategy(**changes)))
    return shlex.join(words), remarks


def stages(*layers, recompute=()):
    counts = recompute or (0,) * len(layers)
    return [{"layers": n, "recompute_layers": r, "group": "g"} for n, r in zip(layers, counts, strict=True)]


def test_json_reads_back_as_the_same_plan():
    text, remarks = written(fake_plan(), "json")
    assert Plan.model_validate_json(text) == fake_plan()
    assert remarks == ()


def test_yaml_says_the_same_as_json():
    assert yaml.safe_load(written(fake_plan(), "yaml")[0]) == json.loads(written(fake_plan(), "json")[0])


def test_yaml_without_its_package_says_how_to_get_it(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "yaml":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(planner.api, "plan", lambda _request: fake_plan())
    monkeypatch.setattr(builtins, "__import__", without)
    done = CliRunner().invoke(main, ["--model", "175b", "--gpus", "12288", "--format", "yaml"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "meshwright[yaml]" in done.stderr


def test_env_is_what_a_shell_reads_back():
    group = {"layers": 12, "recompute_layers": 0, "group": "my group; rm -rf $HOME"}
    plan = fake_plan(strategy=strategy(stages=[group] * 8))
    script = written(plan, "env")[0] + 'echo "$TP|$PP|$SEQUENCE_PARALLEL|$LAYERS_PER_STAGE|$SCHEDULE|$GROUPS_PER_STAGE"'
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True)
    groups = ",".join(["my group; rm -rf $HOME"] * 8)
    assert done.stdout == f"8|8|1|12,12,12,12,12,12,12,12|interleaved-1f1b|{groups}\n"


def test_env_of_an_infeasible_plan_assigns_nothing_but_the_status():
    assert written(infeasible_plan(), "env")[0] == "PLAN_STATUS=infeasible\n"


def test_args_of_an_infeasible_plan_are_empty():
    text, remarks = written(infeasible_plan(), "args")
    assert text == ""
    assert remarks


def test_args_of_the_usual_plan():
    expected = (
        "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 "
        "--num-layers-per-virtual-pipeline-stage 2 --sequence-parallel --micro-batch-size 1 "
        "--global-batch-size 6144 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
    )
    assert arguments() == (expected, ())


@pytest.mark.parametrize(
    ("changes", "holds", "lacks"),
    [
        ({"vpp": 1}, "--pipeline-model-parallel-size 8", "virtual"),
        ({"cp": 2}, "--context-parallel-size 2", "expert"),
        ({"sequence_parallel": False}, "--micro-batch-size 1", "--sequence-parallel"),
        ({"zero_stage": 0, "sharding_degree": 1}, "--overlap-grad-reduce", "--use-distributed-optimizer"),
        (
            {"dp": 1, "sharding_degree": 1, "zero_stage": 0},
            "--global-batch-size 6144",
            "--overlap-grad-reduce",
        ),
        ({"sharding_degree": 48}, "--num-distributed-optimizer-instances 4", "fsdp"),
        ({"zero_stage": 3}, "--data-parallel-sharding-strategy optim_grads_params", "instances"),
        ({"recompute": "selective"}, "--recompute-granularity selective", "--recompute-method"),
        ({"rank_order": "tp-cp-ep-pp-dp"}, "--use-tp-pp-dp-mapping", "fsdp"),
    ],
)
def test_args_follow_the_strategy(changes, holds, lacks):
    text, _ = arguments(**changes)
    assert holds in text
    assert lacks not in text


def test_recomputed_layers_are_counted_per_chunk():
    text, remarks = arguments(recompute="full", stages=stages(*[12] * 8, recompute=[12] * 8))
    assert "--recompute-granularity full --recompute-method block --recompute-num-layers 2" in text
    assert remarks == ()


def test_recomputation_that_differs_by_stage_is_remarked_on():
    text, (remark,) = arguments(pp=2, vpp=1, recompute="full", stages=stages(48, 48, recompute=[5, 0]))
    assert "--recompute-num-layers 5" in text
    assert "5,0 per stage" in remark


def layers_of(layout):
    """Layers per chunk of a Megatron layout, expanded by hand."""
    flat = re.sub(r"\(([^)]*)\)\*(\d+)", lambda m: m[1] * int(m[2]), layout)
    return [sum(int(n) for n in re.findall(r"t\*(\d+)", part)) for part in flat.split("|")]


@pytest.mark.parametrize(
    ("layers", "vpp", "chunks"),
    [
        ((23, 25, 25, 23), 1, [23, 25, 25, 23]),
        ((24, 23, 24, 25), 1, [24, 23, 24, 25]),
        ((22, 26, 26, 22), 2, [11, 13, 13, 11] * 2),
        ((20, 25, 25, 25, 1), 1, [20, 25, 25, 25, 1]),
    ],
)
def test_uneven_stages_become_a_layout_in_chunk_order(layers, vpp, chunks):
    text, _ = arguments(pp=len(layers), vpp=vpp, stages=stages(*layers))
    layout = shlex.split(text.split("--pipeline-model-parallel-layout ")[1])[0]
    assert layers_of(layout) == chunks
    assert layout.startswith("Et")
    assert layout.endswith("L")
    assert "--num-layers-per-virtual" not in text


def test_stages_that_no_layout_can_say_are_refused(monkeypatch):
    plan = fake_plan(strategy=strategy(pp=2, vpp=2, stages=stages(47, 49)))
    monkeypatch.setattr(planner.api, "plan", lambda _request: plan)
    asked = ["--model", "175b", "--gpus", "12288"]
    done = CliRunner().invoke(main, [*asked, "--format", "args"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "47 layers split over 2 chunks" in done.stderr
    assert "cannot say" in CliRunner().invoke(main, asked).stdout


def test_formats_without_tables_do_not_load_rich():
    code = (
        "import sys, planner.api, planner.cli\nfrom tests.planner.fake_plan import fake_plan\n"
        "planner.api.plan = lambda request: fake_plan()\ntry: planner.cli.main(sys.argv[1:])\n"
        "finally: print('rich' in sys.modules, file=sys.stderr)"
    )
    asked = ["--model", "175b", "--gpus", "12288", "--format", "env"]
    done = subprocess.run([sys.executable, "-c", code, *asked], capture_output=True, text=True, check=True)
    assert done.stderr == "False\n"
