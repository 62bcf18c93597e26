import io
import json
import re
import shlex
import subprocess
import sys
from itertools import pairwise

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

import planner.api
from costmodels.model.catalogue import model
from costmodels.stack.stack import stack_names
from planner.answer.plan import Plan, Strategy
from planner.cli import main
from planner.errors import BadRequest
from planner.jobs.megatron.options import OPTIONS
from planner.jobs.megatron.write import strategy_values
from planner.jobs.preview import block
from planner.render.terminal.formats import written
from planner.render.terminal.terminal import render
from tests.each import each
from tests.planner.fake_plan import fake_plan, infeasible_plan, request, strategy

MIXTURE = model("mixtral-8x7b").model_dump(exclude_defaults=True)


def screen(plan):
    sheet = io.StringIO()
    render(plan, Console(file=sheet, width=100, highlight=False))
    return sheet.getvalue()


def arguments(*, precision="bf16", experts=False, mtp_layers=0, layer_pattern="", **changes):
    asked = Strategy.model_validate(strategy(**changes))
    shape = {"moe": experts, "mtp_layers": mtp_layers, "layer_pattern": layer_pattern}
    values, remarks = strategy_values(asked, {"precision": precision, "model": shape})
    return shlex.join(OPTIONS.words(values)), tuple(
        remark for remark in remarks if "CUDA_DEVICE_MAX_CONNECTIONS" not in remark
    )


def stages(*layers, recompute=()):
    counts = recompute or (0,) * len(layers)
    return [{"layers": n, "recompute_layers": r, "group": "g"} for n, r in zip(layers, counts, strict=True)]


def test_json_reads_back_as_the_same_plan():
    text, remarks = written(fake_plan(), "json")
    assert Plan.model_validate_json(text) == fake_plan()
    assert remarks == ()


def test_yaml_says_the_same_as_json():
    assert yaml.safe_load(written(fake_plan(), "yaml")[0]) == json.loads(written(fake_plan(), "json")[0])


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
        "--global-batch-size 6144 --bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
    )
    assert arguments() == (expected, ())


@each(
    ("changes", "holds", "lacks"),
    [
        ({"vpp": 1}, "--pipeline-model-parallel-size 8", "virtual"),
        ({"cp": 2}, "--context-parallel-size 2", "expert"),
        ({"cp": 2}, "--context-parallel-size 2", "cp-comm-type"),
        ({"cp": 2, "cp_kind": "a2a"}, "--cp-comm-type a2a", "hierarchical"),
        ({"cp": 2, "cp_kind": "all-gather"}, "--cp-comm-type all_gather", "hierarchical"),
        (
            {"cp": 16, "cp_kind": "a2a+p2p", "cp_near": 4},
            "--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 4 4",
            "expert",
        ),
        ({"sequence_parallel": False}, "--micro-batch-size 1", "--sequence-parallel"),
        ({"zero_stage": 0, "sharding_degree": 1}, "--overlap-grad-reduce", "--use-distributed-optimizer"),
        ({"dp": 1, "sharding_degree": 1, "zero_stage": 0}, "--global-batch-size 6144", "--overlap-grad-reduce"),
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


@each(
    ("precision", "flags"),
    [
        ("fp32", []),
        ("fp16", ["--fp16"]),
        ("bf16", ["--bf16"]),
        ("fp8", ["--bf16", "--fp8-format", "hybrid"]),
        ("mxfp8", ["--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "mxfp8"]),
        ("nvfp4", ["--bf16", "--fp4-format", "e2m1"]),
    ],
)
def test_args_train_in_the_planned_precision(precision, flags):
    words = shlex.split(arguments(precision=precision)[0])
    start = words.index("--global-batch-size") + 2
    assert words[start : words.index("--use-distributed-optimizer")] == flags


def test_the_precision_comes_from_the_request():
    assert " --bf16 --fp8-format hybrid " in written(fake_plan(request=request() | {"precision": "fp8"}), "args")[0]


def test_a_model_with_experts_names_both_expert_sizes_even_where_they_are_one():
    mixture = request() | {"model": MIXTURE}
    text, _ = written(fake_plan(request=mixture), "args")
    assert "--expert-model-parallel-size 1 --expert-tensor-parallel-size 1" in text
    assert "expert" not in written(fake_plan(), "args")[0]


def test_expert_parallelism_exchanges_tokens_as_it_was_priced():
    text, _ = arguments(ep=8, etp=2, experts=True)
    assert "--expert-model-parallel-size 8 --expert-tensor-parallel-size 2" in text
    assert "--moe-token-dispatcher-type alltoall" in text


def test_the_dispatcher_of_the_stack_and_the_capacity_of_the_request_are_arguments():
    mixture = request() | {"model": MIXTURE, "expert_capacity": 1.25}
    spread = fake_plan().strategy.model_copy(update={"ep": 8})
    text, _ = written(fake_plan(request=mixture | {"stack": "nemo"}, strategy=spread), "args")
    assert "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep" in text
    assert "--moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity" in text
    plain, _ = written(fake_plan(request=mixture | {"stack": "my-own"}, strategy=spread), "args")
    assert "--moe-token-dispatcher-type alltoall" in plain


def test_experts_under_tensor_parallelism_without_sequence_parallelism_are_remarked_on():
    assert arguments(experts=True)[1] == ()
    (remark,) = arguments(experts=True, sequence_parallel=False)[1]
    assert "only with --sequence-parallel" in remark


def test_layers_recomputed_everywhere_need_no_remark_even_on_uneven_stages():
    uneven = stages(11, 12, 12, 13, recompute=[11, 12, 12, 13])
    text, remarks = arguments(pp=4, vpp=1, recompute="full", stages=uneven)
    assert "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1" in text
    assert remarks == ()


def test_recomputed_layers_are_counted_per_chunk():
    text, remarks = arguments(recompute="full", stages=stages(*[12] * 8, recompute=[6] * 8))
    assert "--recompute-granularity full --recompute-method block --recompute-num-layers 1" in text
    assert remarks == ()


def test_recomputation_that_differs_by_stage_is_remarked_on():
    uneven = stages(20, 20, 20, 20, recompute=[7, 3, 0, 0])
    text, (remark,) = arguments(pp=4, vpp=1, recompute="full", stages=uneven)
    assert "--recompute-num-layers 7" in text
    assert "28 of 80 in all, where the plan recomputes 10 (7,3,0,0 per stage)" in remark


def test_no_stage_recomputes_less_than_planned_when_chunks_do_not_divide_the_number():
    text, (remark,) = arguments(pp=2, vpp=2, recompute="full", stages=stages(8, 8, recompute=[3, 3]))
    assert "--recompute-num-layers 2" in text
    assert "8 of 16 in all" in remark


@pytest.mark.parametrize("schedule", ["gpipe", "zb-1p", "zb-v"])
def test_a_schedule_that_megatron_lacks_is_remarked_on(schedule):
    _, (remark,) = arguments(schedule=schedule, vpp=1)
    assert schedule in remark


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tp": 8}, "set CUDA_DEVICE_MAX_CONNECTIONS=1"),
        ({"tp": 1, "cp": 2}, "set CUDA_DEVICE_MAX_CONNECTIONS=1"),
        ({"zero_stage": 3}, "refuses CUDA_DEVICE_MAX_CONNECTIONS=1"),
        ({"tp": 1, "sequence_parallel": False}, ""),
    ],
)
def test_args_name_the_variable_that_megatron_insists_on(changes, said):
    _, remarks = written(fake_plan(strategy=strategy(**changes)), "args")
    assert said in " ".join(remarks)
    assert bool(remarks) == bool(said)


@each("stack", ["deepspeed", "fsdp", "maxtext", "paddle", "internevo", "generic", "my-own"])
def test_args_for_another_framework_say_that_they_are_megatrons(stack):
    text, remarks = written(fake_plan(request=request() | {"stack": stack}), "args")
    assert text.startswith("--tensor-model-parallel-size 8")
    assert remarks[0].startswith(f"these are arguments of Megatron-LM, not of stack {stack}")


def test_every_stack_of_the_catalogue_has_its_launch_told():
    for name in stack_names():
        text, remarks = written(fake_plan(request=request() | {"stack": name}), "args")
        assert name in {"megatron-core", "torchtitan"} or "Megatron" in remarks[0]
        assert not any("not known" in remark for remark in remarks)
        assert text.startswith("--parallelism." if name == "torchtitan" else "--tensor-model-parallel-size")


@pytest.mark.parametrize(
    ("stack", "changes", "holds", "lacks", "absent"),
    [
        ("megatron-lm-2022", {}, "--use-distributed-optimizer", "--overlap", ""),
        ("megatron-lm-2021", {}, "-per-virtual-pipeline-stage 2", "--use-dist", "--use-distributed-optimizer"),
        ("megatron-lm-2020", {"stages": stages(*[12] * 8, recompute=[12] * 8), "recompute": "full"},
         "--checkpoint-activations", "--recompute", "--bf16"),
        ("megatron-deepspeed-2021", {}, "--bf16", "--overlap", "--use-distributed-optimizer"),
        ("megatron-deepspeed", {"cp": 2, "cp_kind": "a2a"}, "--ds-sequence-parallel-size 2", "--context", ""),
        ("zero-bubble", {"vpp": 1, "stages": stages(13, *[12] * 6, 11)}, "--overlap-grad", "layout", "parallel-layout"),
    ],
)  # fmt: skip
def test_the_code_of_a_stack_is_given_only_options_that_it_has(stack, changes, holds, lacks, absent):
    text, remarks = written(fake_plan(request=request() | {"stack": stack}, strategy=strategy(**changes)), "args")
    assert holds in text
    assert lacks not in text
    assert absent in " ".join(said for said in remarks if said.startswith("its parser has no"))


def titan(**changes):
    plan = fake_plan(request=request() | {"stack": "torchtitan"}, strategy=strategy(**changes))
    text, remarks = written(plan, "args")
    words = shlex.split(text)
    return dict(pairwise(words)), " ".join(remarks)


def test_torchtitan_gets_its_own_overrides():
    values, remarks = titan(
        tp=4, pp=2, dp=16, cp=2, cp_kind="all-gather", zero_stage=3, sharding_degree=8, vpp=2, num_microbatches=8,
        micro_batch_size=2,
    )  # fmt: skip
    assert "megatron" not in " ".join(values).lower() + remarks.lower()
    degrees = ("data_parallel_replicate", "data_parallel_shard", "tensor_parallel", "context_parallel")
    assert [values[f"--parallelism.{name}_degree"] for name in degrees] == ["4", "4", "4", "2"]
    assert values["--parallelism.pipeline_parallel_schedule"] == "Interleaved1F1B"
    assert values["--parallelism.pipeline_parallel_layers_per_stage"] == "6"
    assert values["--training.local_batch_size"] == "16"
    assert remarks.count("cannot start this plan") == 1  # the model shares its head with the embedding
    assert "no 2 pipeline stages of a model whose head shares the embedding" in remarks


def test_torchtitan_gathers_keys_and_values_and_is_told_of_no_other_way():
    values, remarks = titan(cp=2, cp_kind="all-gather", zero_stage=3)
    assert "--parallelism.context_parallel_rotate_method" not in values
    assert "context ranks" not in remarks


@pytest.mark.parametrize("kind", ["a2a", "p2p"])
def test_torchtitan_remarks_on_a_kind_of_context_parallelism_that_it_lacks(kind):
    _, remarks = titan(cp=2, cp_kind=kind)
    assert f"no context ranks of kind {kind}; all-gather works" in remarks


def test_both_sizes_of_a_hierarchy_are_on_the_screen():
    text, _ = arguments(cp=16, cp_kind="a2a+p2p", cp_near=4)
    lines = block(shlex.split(text), 80)
    assert any("--hierarchical-context-parallel-sizes 4 4" in line for line in lines)


@pytest.mark.parametrize(
    ("changes", "lack"),
    [
        ({"rank_order": "tp-cp-ep-sharding-pp-dp"}, "no rank order tp-cp-ep-sharding-pp-dp"),
        ({"rank_order": "tp-cp-ep-pp-dp", "cp": 2, "dp": 96}, "no rank order tp-cp-ep-pp-dp with 2 context ranks"),
        ({"schedule": "zb-v"}, "no schedule zb-v"),
    ],
)
def test_there_are_no_args_for_what_megatron_refuses_and_a_way_to_what_it_takes(changes, lack):
    refused = fake_plan(strategy=strategy(**changes))
    with pytest.raises(BadRequest, match=lack) as caught:
        written(refused, "args")
    assert "--for megatron-lm" in str(caught.value)
    assert lack in " ".join(screen(refused).split())
    assert "--tensor-model-parallel-size" not in screen(refused)
    forked = fake_plan(strategy=strategy(**changes), request=request() | {"stack": "megascale"})
    assert "MegaScale itself is not public" in " ".join(written(forked, "args")[1])


def test_args_that_only_come_near_the_plan_point_to_one_that_they_can_say():
    uneven = strategy(recompute="full", stages=stages(*[12] * 8, recompute=[6, *[0] * 7]))
    assert "--for megatron-lm" in " ".join(written(fake_plan(strategy=uneven), "args")[1])
    assert "--for" not in " ".join(written(fake_plan(), "args")[1])


def test_torchtitan_remarks_on_what_it_cannot_do():
    values, remarks = titan(pp=2, vpp=1, stages=stages(47, 49, recompute=[3, 0]), recompute="full", zero_stage=1)
    assert "--parallelism.pipeline_parallel_layers_per_stage" not in values
    for said in ("47,49 layers", "3,0 layers per stage"):
        assert said in remarks


def layers_of(layout):
    """Layers per chunk of a Megatron layout, expanded by hand."""
    flat = re.sub(r"\(([^)]*)\)\*(\d+)", lambda m: m[1] * int(m[2]), layout)
    return [sum(int(n or 1) for n in re.findall(r"t(?:\*(\d+))?", part)) for part in flat.split("|")]


@each(
    ("layers", "vpp", "chunks"),
    [
        ((23, 25, 25, 23), 1, [23, 25, 25, 23]),
        ((24, 23, 24, 25), 1, [24, 23, 24, 25]),
        ((22, 26, 26, 22), 2, [11, 13, 13, 11] * 2),
        ((20, 25, 25, 25, 1), 1, [20, 25, 25, 25, 1]),
        ((1, 1, 1, 1, 92), 1, [1, 1, 1, 1, 92]),
        ((0, 48, 48, 0), 1, [0, 48, 48, 0]),
    ],
)
def test_uneven_stages_become_a_layout_in_chunk_order(layers, vpp, chunks):
    text, _ = arguments(pp=len(layers), vpp=vpp, stages=stages(*layers))
    layout = shlex.split(text.split("--pipeline-model-parallel-layout ")[1])[0]
    assert layers_of(layout) == chunks
    assert (layout[0], layout[-1]) == ("E", "L")
    assert "--num-layers-per-virtual" not in text


@pytest.mark.parametrize(
    ("layers", "layout"),
    [
        ((8, 9, 9, 6), "Et*8|t*9|t*9|t*6L"),
        ((8, 9, 9, 9, 6), "Et*8|(t*9|)*2t*9|t*6L"),
        ((2, 1, 1, 2), "Et*2|t|t|t*2L"),
        ((0, 1, 1, 0), "E|t|t|L"),
    ],
)
def test_a_layout_repeats_only_what_repeats(layers, layout):
    assert arguments(pp=4, vpp=1, stages=stages(*layers))[0].count(shlex.quote(layout)) == 1


def test_a_layout_places_further_prediction_on_the_last_stage():
    text, _ = arguments(pp=2, vpp=1, mtp_layers=1, stages=stages(31, 30))
    assert "'Et*31|t*30mL'" in text


def test_a_hybrid_pattern_has_a_bar_between_chunks_and_a_slash_in_front_of_what_predicts_further():
    parts = {"pp": 2, "vpp": 2, "stages": stages(4, 2), "layer_pattern": "MEM*E-", "mtp_layers": 2}
    words, remarks = arguments(**parts, schedule="interleaved-1f1b")
    assert "--hybrid-layer-pattern 'ME|M|*E|-/*E/*E'" in words
    assert "layout" not in words
    assert any("pretrain_hybrid.py" in remark for remark in remarks)
    with pytest.raises(BadRequest, match="cannot say how 5 layers split over 2 chunks"):
        arguments(**parts | {"stages": stages(5, 1)}, schedule="interleaved-1f1b")


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
