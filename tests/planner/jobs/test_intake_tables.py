"""DeepSpeed's JSON and torchtitan's TOML: what they leave open is their own default, and what is wrong is refused."""

import json
import tomllib

import pytest
from click.testing import CliRunner

from planner.cli import main
from planner.errors import BadRequest
from planner.jobs.deepspeed.read import deepspeed_job
from planner.jobs.imported import complete
from planner.jobs.torchtitan.read import torchtitan_job
from tests.each import each

RANKS = {"gpus": 16}
MODEL = '[model]\nname = "llama3"\nflavor = "8B"\n'


def refusal(job, document):
    def read():
        given = job(document)
        return complete(given.fields | RANKS, given.pins)

    with pytest.raises(BadRequest) as refused:
        read()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def sizes(document):
    given = deepspeed_job({"zero_optimization": {"stage": 1}} | document)
    fields, pins = complete(given.fields | RANKS, given.pins)
    return fields.get("global_batch_size"), pins.get("micro_batch_size")


BATCH, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


@each(
    ("document", "found"),
    [
        ({BATCH: 64, MICRO: 1, STEPS: 4}, (64, 1)),
        ({BATCH: 64, MICRO: 2}, (64, 2)),
        ({BATCH: 64, STEPS: 2}, (64, 2)),
        ({MICRO: 2, STEPS: 3}, (96, 2)),
        ({BATCH: 64}, (64, 4)),
        ({MICRO: 2}, (32, 2)),
        ({MICRO: 2, BATCH: "auto", STEPS: "auto"}, (32, 2)),
    ],
)
def test_of_batch_micro_batch_and_steps_deepspeed_works_out_what_is_left_out(document, found):
    assert sizes(document) == found


@each(
    ("document", "said"),
    [
        ({BATCH: 512, MICRO: 1, STEPS: 4}, "a batch of 512 contradicts 1 sequence x 4 steps x 16 data-parallel ranks"),
        ({BATCH: 512, MICRO: 1, STEPS: 4}, "= 64; a batch of 64 or 32 steps would do"),
        ({BATCH: 16, MICRO: 1, STEPS: 4}, "a batch of 64 or 1 step or 4 pipeline stages (--pp) would do"),
        ({BATCH: 64, STEPS: 3}, "a batch of 64 does not divide into 3 steps x 16 data-parallel ranks"),
        ({BATCH: "64"}, "train_batch_size: expected a whole number from 1 on, got '64'"),
        ({BATCH: True}, "train_batch_size: expected a whole number from 1 on, got True"),
        ({MICRO: 0}, "train_micro_batch_size_per_gpu: expected a whole number from 1 on, got 0"),
        ({MICRO: 1.5}, "train_micro_batch_size_per_gpu: expected a whole number"),
        ({"zero_optimization": 3}, "zero_optimization: expected a table with keys such as stage, got 3"),
        ({"zero_optimization": {"stage": "3"}}, "zero_optimization.stage: expected a whole number"),
        ({"zero_optimization": {"stage": 4}}, "zero_optimization.stage: 4 does not exist; 0, 1, 2 and 3 do"),
        (
            {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}},
            "only together with offload_optimizer",
        ),
        (
            {"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}},
            "offload_param needs stage 3, the stage is 2",
        ),
        ({"zero_optimization": {"stage": 2, "offload_optimizer": "cpu"}}, "offload_optimizer: expected a table"),
        ({MICRO: 1, "bf16": {"enabled": True}, "fp16": {"enabled": True}}, "bf16 and fp16 are both enabled"),
        ({MICRO: 1, "bf16": True}, "bf16: expected a table"),
        ({MICRO: 1, "bf16": {"enabled": "maybe"}}, "bf16.enabled: expected true or false, got 'maybe'"),
        ({MICRO: 1, "optimizer": {"type": "foo"}}, "optimizer.type: 'foo' is not priced; Adam, AdamW"),
        ({MICRO: 1, "optimizer": "adam"}, "optimizer: expected a table"),
        ({MICRO: 1, "tensor_parallel": {"autotp_size": "2"}}, "tensor_parallel.autotp_size: expected a whole number"),
        ({MICRO: 1, "sequence_parallel_size": 0}, "sequence_parallel_size: expected a whole number from 1 on, got 0"),
        ({MICRO: 1, "data_types": {"grad_accum_dtype": "fp8"}}, "data_types.grad_accum_dtype: 'fp8' is not priced"),
    ],
)
def test_what_deepspeed_refuses_or_no_price_has_is_refused_with_its_key(document, said):
    assert said in refusal(deepspeed_job, document)


@each(
    ("document", "fields"),
    [
        ({"optimizer": {"type": "SGD"}}, {"optimizer": "sgd"}),
        ({"optimizer": {"type": "adamw"}}, {"optimizer": "adam"}),
        ({"data_types": {"grad_accum_dtype": "bf16"}}, {"main_grads": "bf16"}),
        ({"fp16": {"enabled": True}}, {"precision": "fp16"}),
        ({"bf16": {"enabled": "auto"}, "fp16": {"enabled": False}}, {"precision": "bf16"}),
        ({"fp16": {"enabled": "auto"}}, {"precision": "fp16"}),
    ],
)
def test_optimizer_and_formats_of_a_deepspeed_json_are_read(document, fields):
    assert fields.items() <= deepspeed_job({MICRO: 1} | document).fields.items()


@pytest.mark.parametrize(
    ("document", "remark"),
    [
        ({MICRO: 1}, "gradient_accumulation_steps is not given; 1 is priced, DeepSpeed's default"),
        ({MICRO: 1}, "no optimizer in the DeepSpeed configuration; Adam is priced, --optimizer changes it"),
        ({MICRO: 1}, "neither bf16 nor fp16 is enabled; fp32 is priced, DeepSpeed's default"),
        ({MICRO: "auto", BATCH: 16}, "train_micro_batch_size_per_gpu is auto, which Hugging Face fills in"),
        ({MICRO: 1, "bf16": {"enabled": "auto"}}, "bf16.enabled is auto, which Hugging Face fills in; bf16 is priced"),
    ],
)
def test_what_a_deepspeed_json_leaves_open_is_told(document, remark):
    assert any(told.startswith(remark) for told in deepspeed_job(document).assumed)


@pytest.mark.parametrize(("older", "stage"), [(True, 1), (False, 0)])
def test_the_older_switch_of_zero_is_its_first_stage(older, stage):
    assert deepspeed_job({MICRO: 1, "zero_optimization": older}).pins["zero_stage"] == stage


def titan(training="", parallel="", model="", more="", mode="full"):
    text = (
        f"{MODEL}{model}\n[training]\nseq_len = 4096\n{training}\n[parallelism]\n{parallel}\n"
        f'[activation_checkpoint]\nmode = "{mode}"\n{more}\n'
    )
    return tomllib.loads(text)


def settled_titan(*arguments, **more):
    given = torchtitan_job(titan(*arguments, **more))
    return complete(given.fields | RANKS, given.pins)


@each(
    ("training", "parallel", "batch", "micro"),
    [
        ("local_batch_size = 1", "", 16, 1),
        ("local_batch_size = 2", "tensor_parallel_degree = 4", 8, 2),
        ("", "", 128, 8),
        ("local_batch_size = 4", "pipeline_parallel_degree = 2", 32, 1),
        ("local_batch_size = 4", "pipeline_parallel_degree = 2\npipeline_parallel_microbatch_size = 2", 32, 2),
        ("local_batch_size = 2\nglobal_batch_size = 64", "", 64, 2),
        ("local_batch_size = 2\nglobal_batch_size = -1", "context_parallel_degree = 2", 16, 2),
    ],
)
def test_without_a_global_batch_every_rank_takes_its_local_one(training, parallel, batch, micro):
    fields, pins = settled_titan(training, parallel)
    assert (fields["global_batch_size"], pins["micro_batch_size"]) == (batch, micro)


def test_a_toml_without_a_global_batch_is_priced_with_its_local_ones_and_says_so(tmp_path):
    path = tmp_path / "titan.toml"
    path.write_text(f'{MODEL}[training]\nlocal_batch_size = 1\n[activation_checkpoint]\nmode = "full"\n')
    asked = ["predict", "--from", "torchtitan", str(path), "--gpus", "16", "--format", "json"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["strategy"]["global_batch_size"] == 16
    assert told["request"]["seq_length"] == 2048
    assert "training.global_batch_size is not given; one local batch of every data-parallel rank" in done.stderr
    assert "training.seq_len is not given; 2048 is priced" in done.stderr


@pytest.mark.parametrize(
    ("parallel", "pins"),
    [
        ("data_parallel_replicate_degree = 4", {"sharding_degree": 4, "zero_stage": 3}),
        ("data_parallel_replicate_degree = 16", {"zero_stage": 0}),
        ("data_parallel_replicate_degree = 4\ncontext_parallel_degree = 4", {"sharding_degree": 4, "zero_stage": 3}),
        ("data_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 8", {"sharding_degree": 8, "dp": 16}),
        ("data_parallel_shard_degree = 1\ndata_parallel_replicate_degree = 16", {"zero_stage": 0, "dp": 16}),
    ],
)
def test_replicas_share_what_the_degrees_of_torchtitan_say(parallel, pins):
    assert pins.items() <= settled_titan("local_batch_size = 1", parallel)[1].items()


LINEAR = 'converters = ["quantize.linear.float8"]'


@each(
    ("model", "more", "precision", "gathered"),
    [
        ("", "", "bf16", None),
        (LINEAR, "", "fp8-current", None),
        ('converters = "float8"', "", "fp8-current", None),
        (LINEAR, "[quantize.linear.float8]\nenable_fsdp_float8_all_gather = true", "fp8-current", True),
        (LINEAR, '[quantize.linear.float8]\nrecipe_name = "rowwise"', "fp8-rowwise", None),
        ('converters = ["float8"]', '[float8]\nrecipe_name = "rowwise"', "fp8-rowwise", None),
        ('converters = ["quantize.linear.mx"]', "", "mxfp8", None),
    ],
)
def test_a_converter_of_the_model_is_the_precision(model, more, precision, gathered):
    fields = torchtitan_job(titan(model=model, more=more)).fields
    assert (fields["precision"], fields.get("fp8_param_gather")) == (precision, gathered)


@each(
    ("document", "said"),
    [
        (titan(model='converters = ["nosuch"]'), "model.converters: 'nosuch' is not priced; quantize.linear.float8"),
        (titan(model="converters = 8"), "model.converters: expected names"),
        (titan(model='converters = ["quantize.grouped_mm.float8"]'), "alone is not priced"),
        (titan(model='converters = ["quantize.linear.float8", "quantize.grouped_mm.mx"]'), "of two formats"),
        (titan(model=LINEAR, more='[quantize.linear.float8]\nrecipe_name = "x"'), "recipe_name: 'x' is not priced"),
        (
            titan("local_batch_size = 2\nglobal_batch_size = 100"),
            "a global batch of 100 is no multiple of 2 sequences x 16 data-parallel ranks; 96 is",
        ),
        (titan("global_batch_size = 0"), "training.global_batch_size: 0 does not exist"),
        (titan("local_batch_size = '8'"), "training.local_batch_size: expected a whole number"),
        (
            titan("local_batch_size = 8", "pipeline_parallel_degree = 2\npipeline_parallel_microbatch_size = 3"),
            "micro-batches of 3 sequences do not divide training.local_batch_size 8",
        ),
        (
            titan(parallel="tensor_parallel_degree = true"),
            "parallelism.tensor_parallel_degree: expected a whole number",
        ),
        (titan(parallel="data_parallel_shard_degree = 0"), "parallelism.data_parallel_shard_degree: 0 does not exist"),
        (titan(parallel="fsdp_reshard_after_forward = 'x'"), "fsdp_reshard_after_forward: 'x' is not priced"),
        (
            titan(parallel="pipeline_parallel_schedule = 'Foo'"),
            "pipeline_parallel_schedule: 'Foo' is not priced; GPipe",
        ),
        (titan(parallel="context_parallel_rotate_method = 'x'"), "context_parallel_rotate_method: 'x'"),
        (
            titan(parallel="pipeline_parallel_degree = 2\nmodule_fqns_per_model_part = [['layers.0'], [], []]"),
            "module_fqns_per_model_part has 3 parts for 2 stages",
        ),
        (titan(parallel="module_fqns_per_model_part = 'layers'"), "module_fqns_per_model_part: expected lists"),
        (titan(mode="memory_budget"), "activation_checkpoint.mode: 'memory_budget' is not priced"),
        (titan(mode="selective", more='selective_ac_option = "x"'), "selective_ac_option: expected op or a number"),
        (titan(more='[optimizer]\nname = "SGD"'), "optimizer.name: 'SGD' is not priced; AdamW, Adam are"),
        ({"training": 3}, "training: expected a table with keys such as local_batch_size, got 3"),
    ],
)
def test_what_torchtitan_refuses_or_no_price_has_is_refused_with_its_key(document, said):
    assert said in refusal(torchtitan_job, document)


@each(
    ("document", "remark"),
    [
        (
            titan(mode="selective", parallel="pipeline_parallel_degree = 2"),
            "activation_checkpoint.selective_ac_option 2 recomputes one layer in 2 whole",
        ),
        (titan(), "compile.enable is not given; eager kernels are priced"),
        (
            titan(parallel="pipeline_parallel_degree = 2\nfsdp_reshard_after_forward = 'always'"),
            "parallelism.fsdp_reshard_after_forward always is not priced under a pipeline",
        ),
        (titan(model=LINEAR, parallel="expert_parallel_degree = 2"), "model.converters leave experts in 16 bits"),
        (titan(parallel="pipeline_parallel_degree = 2"), "parallelism.module_fqns_per_model_part is not given"),
        (titan(more="[optimizer]\nearly_step_in_backward = true"), "optimizer.early_step_in_backward is not priced"),
        (
            titan(
                "local_batch_size = 2\nglobal_batch_size = 64",
                "pipeline_parallel_degree = 2\ndata_parallel_shard_degree = 8",
            ),
            "each local batch fills and drains the pipeline",
        ),
    ],
)
def test_what_a_torchtitan_toml_leaves_open_or_no_price_has_is_told(document, remark):
    assert any(told.startswith(remark) for told in torchtitan_job(document).lines)


def test_a_batch_that_somebody_asks_for_is_not_the_file_s():
    fields, pins = complete(
        {"gpus": 16, "global_batch_size": 256}, {"micro_batch_size": 1, "steps": 4}, asked={"global_batch_size"}
    )
    assert (fields["global_batch_size"], pins["micro_batch_size"]) == (256, 1)


def test_degrees_that_are_no_single_numbers_are_refused_later_in_a_line(tmp_path):
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({MICRO: 1, "zero_optimization": {"stage": 1}}))
    done = CliRunner().invoke(
        main, ["predict", "--from", "deepspeed", str(path), "--model", "llama3-8b", "--gpus", "8", "--tp", "4,8"]
    )
    assert done.exit_code == 2
    assert ": one strategy is priced at a time; give one value" in done.stderr
