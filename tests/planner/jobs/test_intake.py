"""What is exported is read back as the same strategy; what is not a configuration is refused in a line."""

import json
import tomllib

import pytest
from click.testing import CliRunner

from costmodels.model.catalogue import model
from costmodels.model.parameters import parameters
from planner import PlanRequest
from planner import plan as ask
from planner.analyses.compare_with_best import compare_with_best
from planner.cli import main
from planner.errors import BadRequest
from planner.jobs.deepspeed.read import deepspeed_job
from planner.jobs.imported import complete
from planner.jobs.registry import export
from planner.jobs.torchtitan.read import torchtitan_job
from planner.request.tables import model_of
from tests.conformance.plans import label, random_plans
from tests.each import each
from tests.planner.jobs.scripts import megatron_job
from tests.planner.jobs.test_export_choices import planned

AXES = ("tp", "cp", "pp", "vpp", "ep", "zero_stage", "micro_batch_size", "offload")


def agree(plan, given, axes=AXES):
    fields, pins = complete(given.fields | {"gpus": plan.request["gpus"]}, {"pp": plan.strategy.pp} | given.pins)
    at = plan.strategy
    for axis in axes:
        assert str(pins.get(axis, 1)) == str(getattr(at, axis)), (axis, label(plan))
    assert fields.get("global_batch_size", at.global_batch_size) == at.global_batch_size, label(plan)
    assert fields["precision"] == plan.request["precision"]
    if given.layers:
        assert given.layers == tuple(stage.layers for stage in at.stages)
    return fields, pins


@pytest.mark.parametrize("precision", ["bf16", "fp32", "fp8-current", "fp8-rowwise", "mxfp8"])
def test_the_products_of_a_torchtitan_toml_are_read_back(precision):
    plan = planned("torchtitan", {"precision": precision})
    given = torchtitan_job(tomllib.loads(export(plan, "torchtitan", version="0.2").files["torchtitan.toml"]))
    assert given.fields["precision"] == precision


def test_states_that_muon_shares_out_itself_are_read_back_as_shared():
    plan = planned("megatron-lm", {"optimizer": "muon"})
    given = megatron_job(export(plan, "megatron-lm").files["megatron-args.sh"])
    assert (given.fields["optimizer"], given.pins["zero_stage"]) == ("muon", 1)


@pytest.mark.parametrize(
    "name", ["llama3-8b", "qwen2.5-7b", "gpt3-13b", "deepseek-v3", "qwen3-30b-a3b", "mixtral-8x7b"]
)
def test_the_model_of_the_arguments_costs_what_the_catalogues_does(name):
    (plan,) = random_plans("megatron-lm", 1, seed=1, models=(name,), precisions=("bf16",))
    read = model_of(megatron_job(export(plan, "megatron-lm").files["megatron-args.sh"]).fields["model"])
    known = model(name)
    for field in ("num_layers", "hidden_size", "ffn_hidden_size", "num_query_groups", "vocab_size", "mla", "qkv_width"):
        assert getattr(read, field) == getattr(known, field), field
    assert (read.moe is None) == (known.moe is None)


def test_what_gpt_oss_alone_does_is_read_back():
    (plan,) = random_plans("megatron-lm", 1, seed=1, models=("gpt-oss-20b",), precisions=("bf16",))
    read = model_of(megatron_job(export(plan, "megatron-lm").files["megatron-args.sh"]).fields["model"])
    alone = (
        "moe", "sliding_window", "sliding_window_every", "attention_sinks", "activation", "clamped_activation",
        "qkv_bias", "ffn_bias",
    )  # fmt: skip
    known = model("gpt-oss-20b")
    for field in alone:
        assert getattr(read, field) == getattr(known, field), field


HYBRIDS = ("nemotron-h-8b", "nemotron-3-nano-30b-a3b", "nemotron-3-super-120b-a12b")


@each("plan", random_plans("megatron-lm", 16, seed=1, models=HYBRIDS, precisions=("bf16",)), ids=range(16))
def test_a_hybrid_is_read_back_with_its_stages_and_chunks(plan):
    given = megatron_job(export(plan, "megatron-lm").files["megatron-args.sh"])
    agree(plan, given, (*AXES, "schedule"))
    if plan.strategy.pp > 1:
        assert given.layers == tuple(stage.layers for stage in plan.strategy.stages)
    read, known = model_of(given.fields["model"]), model(plan.request["model"]["name"])
    for field in ("layer_pattern", "num_layers", "hidden_size", "mamba", "position", "mtp_layers"):
        assert getattr(read, field) == getattr(known, field), field
    assert parameters(read) == pytest.approx(parameters(known), rel=1e-3)


@pytest.mark.parametrize(
    ("pattern", "reason"), [("M*X-", "'X' is not one of M, [*], -, E"), ("M|*|-", "3 chunks for 2 stages")]
)
def test_a_pattern_that_no_pipeline_has_is_refused(pattern, reason):
    with pytest.raises(BadRequest, match=reason):
        megatron_job(f"{SIZES} --pipeline-model-parallel-size 2 --hybrid-layer-pattern '{pattern}'")


def test_the_part_of_a_latent_head_that_rotates_is_no_share_of_it():
    (plan,) = random_plans("megatron-lm", 1, seed=1, models=("deepseek-v2-lite",), precisions=("bf16",))
    written = export(plan, "megatron-lm").files["megatron-args.sh"]
    assert "--rotary-percent" not in written
    assert "--qk-pos-emb-head-dim 64" in written


SIZES = "--num-layers 2 --hidden-size 8 --num-attention-heads 2 --seq-length 8 --position-embedding-type rope"


@each(
    ("words", "fields"),
    [
        ("--rotary-percent 0.5", {"rotary_fraction": 0.5}),
        ("--window-size 127,0", {"sliding_window": 128}),
        ("--window-size '(127, 0)' --window-attn-skip-freq 2", {"sliding_window": 128, "sliding_window_every": 2}),
        ("--window-size=-1,0", {}),
        ("--position-embedding-type yarn", {"position": "rotary", "rotary_scaled": True}),
        ("--quick-geglu", {"activation": "swiglu", "clamped_activation": False}),
    ],
)
def test_switches_of_a_model_are_read(words, fields):
    read = megatron_job(f"{SIZES} {words}").fields["model"]
    assert fields.items() <= read.items()
    assert ("sliding_window" in read) == ("sliding_window" in fields)


@pytest.mark.parametrize(
    "wrong", ["--rotary-percent 2", "--rotary-percent half", "--window-size all", "--window-size=-7,0"]
)
def test_a_share_or_a_window_that_is_none_is_refused(wrong):
    with pytest.raises(BadRequest, match="--rotary-percent" if "rotary" in wrong else "--window-size"):
        megatron_job(f"{SIZES} {wrong}")


def laid_out(layout, pp):
    pipeline = f"--pipeline-model-parallel-size {pp} --pipeline-model-parallel-layout '{layout}'"
    return megatron_job(f"--micro-batch-size 1 {pipeline}")


@pytest.mark.parametrize(
    ("layout", "pp", "layers"),
    [("E|t*16|t*16|L", 4, (0, 16, 16, 0)), ("Et*3|(tt|)*6t*3L", 2, (9, 9)), ("Ett|tt|ttL", 3, (2, 2, 2))],
)
def test_a_layout_is_layers_of_every_stage(layout, pp, layers):
    assert laid_out(layout, pp).layers == layers


@pytest.mark.parametrize(("layout", "pp"), [("Ett|xx|ttL", 3), ("Ett|ttL", 3)])
def test_a_wrong_layout_is_refused(layout, pp):
    with pytest.raises(BadRequest, match="pipeline-model-parallel-layout"):
        laid_out(layout, pp)


def run(*arguments):
    return CliRunner().invoke(main, ["predict", *arguments])


def test_a_configuration_is_priced_compare_with_best(tmp_path):
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4,
                                "zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}))  # fmt: skip
    done = run("--from", "deepspeed", str(path), "--model", "llama3-8b", "--gpus", "8", "--format", "json",
               "--recompute", "full", "--seq-len", "2048")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["strategy"]["zero_stage"] == 3
    assert plan["strategy"]["global_batch_size"] == 32
    assert plan["alternatives"][0]["iteration_seconds"] <= plan["prediction"]["iteration_seconds"]
    assert plan["why_not"][0]["subject"] == "the best plan"


def test_the_best_itself_is_not_listed_beside_itself():
    asked = PlanRequest(model="llama3-8b", gpus=8, reasons=False)
    best = ask(asked)
    said = compare_with_best(best, asked)
    assert said.alternatives == ()
    assert said.why_not[0].text.startswith("it is as good as the best plan")


def test_a_model_of_hugging_face_is_a_source_too(tmp_path):
    path = tmp_path / "config.json"
    sizes = {"hidden_size": 2048, "num_hidden_layers": 16, "vocab_size": 32000, "num_attention_heads": 16}
    more = {"num_key_value_heads": 8, "intermediate_size": 5504, "max_position_embeddings": 4096}
    path.write_text(json.dumps({"model_type": "llama", **sizes, **more}))
    done = run("--from", "hf", str(path), "--gpus", "8", "--tp", "2", "--format", "json", "-q")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["strategy"]["tp"] == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--from", "deepspeed"), "needs a FILE"),
        (("run.sh",), "run.sh: no such file"),
        (("--from", "deepspeed", "/nowhere/ds.json"), "no such file"),
    ],
)
def test_half_a_question_is_refused_in_a_line(arguments, said):
    done = run(*arguments, "--model", "llama3-8b", "--gpus", "8")
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("megatron-args", "--lr 1"),
        ("megatron-args", "--num-layers many --hidden-size 8"),
        ("megatron-args", "echo 'open"),
        ("deepspeed", "{}"),
        ("deepspeed", "{"),
        ("deepspeed", "[1]"),
        ("torchtitan", "x = 1"),
        ("torchtitan", "x ="),
    ],
)
def test_a_file_of_something_else_is_refused_in_a_line(form, text, tmp_path):
    path = tmp_path / "file"
    path.write_text(text)
    done = run("--from", form, str(path), "--model", "llama3-8b", "--gpus", "8")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


WORDS = (
    "pretrain_gpt.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --bf16 "
    "--max-position-embeddings 2048 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --lr 1e-4 "
)


def test_stages_hold_equal_layers_where_nothing_else_is_said():
    assert megatron_job(WORDS).layers == (6, 6, 6, 6)
    ends = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
    assert megatron_job(WORDS.replace("24", "26") + ends).layers == (6, 7, 7, 6)
    with pytest.raises(BadRequest, match="--num-layers 25 do not divide over 4 stages; 24 or 28 would"):
        megatron_job(WORDS.replace("24", "25"))


@pytest.mark.parametrize(
    ("more", "remark"),
    [
        (
            "--expert-model-paralel-size 2",
            "--expert-model-paralel-size is not known; did you mean --expert-model-parallel-size?",
        ),
        (
            "--data-paralel-sharding-strategy x --use-megatron-fsdp",
            "--data-paralel-sharding-strategy is not known; did you mean --data-parallel-sharding-strategy?",
        ),
        ("--foo-bar 3 --baz", "not read, so their effect on time and memory is not priced: --foo-bar, --baz"),
    ],
)
def test_arguments_that_are_not_read_are_named(more, remark):
    assert remark in megatron_job(WORDS + more).unpriced


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ("--attention-dropout 0.1 --hidden-dropout 0", {"stack.dropout": True}),
        ("--attention-dropout 0.0 --hidden-dropout 0.0", {"stack.dropout": False}),
        ("--attention-dropout 0", {"stack.dropout": True}),
        ("", {"stack.dropout": True}),
    ],
)
def test_dropout_is_priced_as_the_arguments_say_and_a_tenth_where_they_do_not(given, changes):
    job = megatron_job(WORDS + given)
    assert changes.items() <= job.fields["changes"].items()
    said = any("0.1 is priced, Megatron-LM's default" in line for line in job.assumed)
    assert said == (given.count("dropout") < 2)


def test_a_dropout_that_is_no_number_is_refused():
    with pytest.raises(BadRequest, match=r"--hidden-dropout: expected a number, got 'high'"):
        megatron_job(WORDS + "--hidden-dropout high")


def test_a_second_shard_of_the_weights_is_read():
    zero = {"stage": 3, "zero_hpz_partition_size": 8}
    assert deepspeed_job({"zero_optimization": zero}).fields["changes"] == {"stack.zero_hpz": True}


def test_arguments_around_the_model_need_no_remark():
    sizes = "--vocab-size 51200 --micro-batch-size 1 --global-batch-size 64"
    overlaps = "--overlap-grad-reduce --overlap-param-gather"
    around = "--train-iters 10 --save /x --log-interval 1 --weight-decay 0.1 --attention-dropout 0 --hidden-dropout 0"
    assert megatron_job(f"{WORDS} {sizes} {around} {overlaps}").lines == ()


def test_experts_are_as_wide_as_the_dense_layers_unless_said():
    assert megatron_job(WORDS + "--num-experts 8").fields["model"]["moe"]["expert_ffn_hidden_size"] == 4096


def test_two_precisions_at_once_are_refused():
    with pytest.raises(BadRequest, match="--bf16 and --fp16 cannot be used together"):
        megatron_job(WORDS + "--fp16")


def test_keys_that_are_not_read_are_named():
    zero = {"stage": 2, "stge": 3, "overlap_comm": True}
    given = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "optimizer": {"type": "AdamW"}}
    given |= {"bf16": {"enabled": True}}
    job = deepspeed_job({"zero_optimization": zero, "foo": 1, "gradient_clipping": 1.0, "train_batch_sise": 8} | given)
    assert job.unpriced == (
        "train_batch_sise is not known; did you mean train_batch_size?",
        "not read, so their effect on time and memory is not priced: foo",
        "zero_optimization.stge is not known; did you mean zero_optimization.stage?",
    )
    parallel = {"tensor_paralel_degree": 2, "data_parallel_replicate_degree": 2}
    told = "parallelism.tensor_paralel_degree is not known; did you mean parallelism.tensor_parallel_degree?"
    assert told in torchtitan_job({"parallelism": parallel}).remarks


def test_states_on_disks_are_priced_as_the_hosts_memory_and_said():
    zero = {"stage": 3, "offload_optimizer": {"device": "nvme"}}
    job = deepspeed_job({"zero_optimization": zero})
    assert job.pins["offload"] == "optimizer"
    assert "zero_optimization.offload_optimizer.device nvme is priced like host memory" in "".join(job.unpriced)
