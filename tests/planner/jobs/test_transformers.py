"""Hugging Face's TrainingArguments on command lines and in files, with the files they name."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import PlanRequest, predict
from planner.errors import BadRequest
from planner.jobs.imported import complete
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch
from planner.jobs.readers import READERS, read_job
from planner.jobs.transformers.arguments import started, values_of
from planner.jobs.transformers.trainer import OPTIONS, zero
from planner.jobs.values import truth, whole
from tests.each import each


def files(**documents):
    """Files of a job, by names whose last underscore stands for a dot."""
    return tuple(JobFile(Path(".".join(name.rsplit("_", 1))), json.dumps(each)) for name, each in documents.items())


def command(words, *beside, environment=None, **more):
    launch = Launch(tuple(words.split()), environment=environment or {}, **more)
    reader = next(one for one in READERS if isinstance(one, CommandReader) and one.recognises(launch))
    return reader.read(launch, Context(files=beside))


def form(words):
    launch = Launch(tuple(words.split()))
    return next(one for one in READERS if isinstance(one, CommandReader) and one.recognises(launch)).form


def document(name, table, *beside):
    file = JobFile(Path(name), json.dumps(table))
    readers = [one for one in READERS if isinstance(one, DocumentReader) and one.recognises(file)]
    assert len(readers) == 1, [one.form for one in readers]
    return readers[0].read(file, Context(files=beside))


def price(job, **given):
    fields, pins = complete({"gpus": 8, **job.fields, **given}, job.pins)
    return predict(PlanRequest(**fields, framework=job.framework, pins=pins, reasons=False, top=0))


TRAIN = "torchrun --nproc_per_node=8 train.py --model_name_or_path llama2-7b --model_max_length 2048"
RECIPE = {"model_name_or_path": "mistral-7b", "dataset_name": "some", "per_device_train_batch_size": 2}


@each(("word", "meant"), [("True", True), ("false", False), ("1", True), ("no", False), ("maybe", None), (True, True)])
def test_switches_are_those_of_the_argument_parser(word, meant):
    assert truth(word) is meant


@each(
    ("word", "meant"),
    [("300_000_000", 300_000_000), ("1e6", 10**6), ("8", 8), (2e8, 2 * 10**8), ("x", None), (1.5, None)],
)
def test_numbers_are_those_of_python(word, meant):
    assert whole(word) == meant


def test_options_have_one_value_several_or_none():
    words = [
        "--bf16",
        "--fp16=False",
        "--no_tf32",
        "--lora_target_modules",
        "q_proj",
        "v_proj",
        "--max_steps",
        "-1",
        "--no_name",
        "x",
    ]
    found = values_of(words, OPTIONS)
    assert found == {
        "bf16": True, "fp16": "False", "tf32": False, "lora_target_modules": ["q_proj", "v_proj"], "max_steps": "-1",
        "no_name": "x",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "program"),
    [
        ("accelerate launch --num_processes 8 train.py --x 1", "train.py"),
        ("python -m torch.distributed.run --nproc_per_node 8 a/run_clm.py --x 1", "a/run_clm.py"),
        ("accelerate launch -m axolotl.cli.train a.yml", "axolotl.cli.train"),
        ("swift rlhf --external_plugins plugin.py", "swift"),
        ("python3 train.py", "train.py"),
    ],
)
def test_what_a_line_starts_stands_behind_its_launchers(words, program):
    assert started(words.split()).program == program


def test_a_line_of_fsdp_is_priced_as_transformers_models_sharded():
    job = command(
        f"{TRAIN} --bf16 True --per_device_train_batch_size 4 --gradient_accumulation_steps 8 --fsdp full_shard "
        "--gradient_checkpointing True --learning_rate 2e-5"
    )
    assert job.fields["gpus"] == 8
    assert (job.fields["stack"], job.framework, job.fields["seq_length"]) == ("transformers", "accelerate", 2048)
    assert (job.pins["zero_stage"], job.pins["recompute"]) == (3, "full")
    answer = price(job)
    assert (answer.strategy.global_batch_size, answer.strategy.micro_batch_size) == (256, 4)
    assert not job.missing


def test_without_bf16_and_fp16_fp32_is_priced_and_said():
    job = command(f"{TRAIN} --per_device_train_batch_size 1")
    assert job.fields["precision"] == "fp32"
    assert any(line.startswith("neither bf16 nor fp16 is switched on; fp32") for line in job.assumed)
    assert "precision" in job.filled
    with pytest.raises(BadRequest, match="bf16 and fp16 are both switched on"):
        command(f"{TRAIN} --bf16 --fp16 --per_device_train_batch_size 1")


def test_weights_that_are_loaded_in_16_bits_have_states_of_16_bits():
    line = f"{TRAIN} --bf16 --per_device_train_batch_size 1 --gradient_checkpointing"
    whole_ones, narrow = (price(command(f"{line} --torch_dtype {one}")) for one in ("float32", "bfloat16"))
    held = [answer.memory_bytes[0].optimizer + answer.memory_bytes[0].weights for answer in (whole_ones, narrow)]
    assert held[0] - held[1] == pytest.approx(8 * 6.74e9, rel=0.02)


@pytest.mark.parametrize(
    ("optim", "priced"),
    [
        ("adamw_bnb_8bit", "adam-8bit"),
        ("paged_adamw_8bit", "adam-8bit"),
        ("adafactor", "adafactor"),
        ("lion_32bit", "lion"),
    ],
)
def test_optimizers_are_priced_by_their_names(optim, priced):
    job = command(f"{TRAIN} --bf16 --per_device_train_batch_size 1 --optim {optim}")
    assert job.fields["optimizer"] == priced
    assert ("priced on the GPU" in "".join(job.unpriced)) == optim.startswith("paged")


@pytest.mark.parametrize("optim", ["galore_adamw", "apollo_adamw", "something_new"])
def test_an_optimizer_without_a_price_is_said_with_what_stands_for_it(optim):
    job = command(f"{TRAIN} --bf16 --per_device_train_batch_size 1 --optim {optim}")
    assert any(optim in line and "priced like" in line for line in job.unpriced)


def test_deepspeed_s_file_has_what_is_left_open_from_the_options():
    beside = files(ds_json=zero(3, reduce_bucket_size="auto", overlap_comm=False))
    job = command(f"{TRAIN} --bf16 --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --deepspeed ds.json",
                  *beside)  # fmt: skip
    assert (job.framework, job.fields["precision"], job.pins["zero_stage"]) == ("deepspeed", "bf16", 3)
    assert not any("optimizer" in line for line in job.assumed)
    assert (job.pins["micro_batch_size"], job.pins["steps"]) == (2, 4)
    assert job.fields["changes"] == {
        "stack.overlap_zero3": False, "stack.reduce_bucket_size": f"{2 * 4096 * 4096} B"
    }  # fmt: skip
    assert not job.missing


def test_what_deepspeed_s_file_says_otherwise_is_refused_as_transformers_refuses_it():
    beside = files(ds_json={**zero(2), "train_micro_batch_size_per_gpu": 4})
    with pytest.raises(BadRequest, match="train_micro_batch_size_per_gpu is 4 in DeepSpeed's file, but 2"):
        command(f"{TRAIN} --bf16 --per_device_train_batch_size 2 --deepspeed ds.json", *beside)


def test_a_file_that_is_not_here_is_asked_for():
    job = command(f"{TRAIN} --bf16 --per_device_train_batch_size 2 --deepspeed other.json")
    assert job.missing == ("deepspeed other.json says how states are sharded, but is not here; give that file too",)
    job = command(
        "accelerate launch --config_file a.yaml train.py --model_name llama2-7b --per_device_train_batch_size 1"
    )
    assert "a.yaml says how accelerate shards, but is not here; give that file too" in job.missing


def test_accelerate_s_file_shards_and_its_options_stand_above_it():
    plugin = {"zero_stage": 2, "offload_optimizer_device": "cpu", "gradient_accumulation_steps": 1}
    beside = files(a_yaml={"distributed_type": "DEEPSPEED", "deepspeed_config": plugin, "num_processes": 8,
                           "mixed_precision": "bf16"})  # fmt: skip
    line = "train.py --model_name llama2-7b --per_device_train_batch_size 1 --gradient_accumulation_steps 1"
    job = command(f"accelerate launch --config_file a.yaml --num_processes 4 --zero_stage 3 {line}", *beside)
    assert (job.fields["gpus"], job.fields["precision"]) == (4, "bf16")
    assert (job.pins["zero_stage"], job.pins["offload"]) == (3, "optimizer")


def test_adapters_beside_weights_of_four_bits():
    line = f"{TRAIN} --bf16 --per_device_train_batch_size 1 --use_peft --lora_r 64 --lora_dropout 0.05"
    job = command(f"{line} --load_in_4bit --lora_target_modules q_proj,v_proj,down_proj")
    assert job.fields["adapters"] == "64:linear_qkv,linear_fc2/autocast+dropout"
    assert job.fields["base_precision"] == "nf4"
    assert price(job).memory_bytes[0].weights < 0.75 * 6.74e9
    usual = command(line)
    assert usual.fields["base_precision"] == "fp32"
    assert any("no modules of adapters are named" in said for said in usual.assumed)


def test_adapters_of_experts_are_left_to_attention_and_said():
    line = "torchrun --nproc_per_node 8 train.py --model_name mixtral-8x7b --bf16 --per_device_train_batch_size 1"
    job = command(f"{line} --lora_r 8 --lora_target all-linear")
    assert job.fields["adapters"].startswith("8:linear_qkv,linear_proj/")
    assert any("adapters of experts are not priced" in line for line in job.unpriced)


def test_an_option_that_nobody_knows_is_never_called_harmless():
    job = command(f"{TRAIN} --bf16 --per_device_train_batch_size 1 --learning_rate 1e-5 --frobnicate 3")
    assert job.unpriced == ("not read, so their effect on time and memory is not priced: frobnicate",)


def test_what_a_script_does_not_say_is_asked_for_by_name():
    words = (
        "torchrun --nproc_per_node 8 t.py --model_name llama2-7b --per_device_train_batch_size ${B} --output_dir ${D}"
    )
    job = command(words, unknown={"${B}": "--env B=VALUE", "${D}": "--env D=VALUE"})
    assert job.missing == ("--per_device_train_batch_size is ${B}; give --env B=VALUE",)


def test_liger_attention_and_compilation_are_switches():
    line = "--use_liger_kernel --attn_implementation flash_attention_2 --torch_compile"
    job = command(f"{TRAIN} --bf16 --per_device_train_batch_size 1 {line}")
    assert job.fields["loss"] == "fused"
    assert job.fields["changes"] == {"stack.attention_backend": ["flash-2", "flash-1"], "stack.fused_elementwise": True}


@pytest.mark.parametrize(
    ("words", "gpus"),
    [
        ("torchrun --nnodes 2 --nproc_per_node 8 t.py", 16),
        ("deepspeed --num_gpus 4 t.py", 4),
        ("deepspeed --include localhost:0,1,2 t.py", 3),
        ("python t.py", 1),
        ("deepspeed t.py", None),
    ],
)
def test_gpus_are_those_that_the_launcher_starts(words, gpus):
    job = command(f"{words} --model_name llama2-7b --per_device_train_batch_size 1")
    assert job.fields.get("gpus") == gpus


@each(
    ("words", "kind"),
    [
        ("trl sft --model_name_or_path a", "trl"),
        ("accelerate launch scripts/run_dpo.py recipe.yaml", "trl"),
        ("llamafactory-cli train recipe.yaml", "llamafactory"),
        ("swift sft --model a", "swift"),
        ("axolotl train a.yml", "axolotl"),
        ("accelerate launch src/train.py recipe.yaml", "transformers"),
        ("python run_clm_sft_with_peft.py --lora_rank 8 --per_device_train_batch_size 1", "transformers"),
    ],
)
def test_a_program_has_its_own_reader(words, kind):
    assert form(words) == kind


def test_megatron_s_lines_are_not_these():
    launch = Launch(
        ("deepspeed", "pretrain_gpt.py", "--num-layers", "24", "--deepspeed", "--deepspeed_config", "ds.json")
    )
    own = {"transformers", "trl", "llamafactory", "axolotl", "swift"}
    assert not [one for one in READERS if isinstance(one, CommandReader) and one.form in own and one.recognises(launch)]


def test_sequences_are_split_as_the_sharding_allows():
    line = "swift sft --model qwen2.5-7b --sequence_parallel_size 2 --max_length 8192"
    job = command(line, environment={"NPROC_PER_NODE": "4"})
    assert (job.pins["cp"], job.pins["cp_kind"], job.framework) == (2, "a2a", None)
    assert price(job).strategy.cp == 2
    job = command(f"{line} --deepspeed zero3", environment={"NPROC_PER_NODE": "4"})
    assert (job.pins["cp_kind"], job.framework) == ("a2a", "deepspeed")


@pytest.mark.parametrize(
    ("more", "precision"), [("", "fp16"), ("--dtype bf16", "bf16"), ("--dtype bfloat16", "bf16"), ("--bf16", "bf16")]
)
def test_a_script_that_makes_deepspeed_s_configuration_of_options(more, precision):
    line = f"deepspeed --num_gpus 8 main.py --model_name_or_path llama2-7b --per_device_train_batch_size 4 {more}"
    job = command(f"{line} --zero_stage 3 --deepspeed --offload --lora_dim 0 --max_seq_len 512")
    assert (job.fields["precision"], job.pins["zero_stage"], job.pins["micro_batch_size"]) == (precision, 3, 4)
    assert job.pins["offload"] == "optimizer+parameters"
    assert "adapters" not in job.fields
    said = "neither bf16 nor fp16 is given; fp16 is priced, as is usual with --zero_stage; --precision changes it"
    assert (said in job.assumed) == (more == "")


WORDS = [word for row in OPTIONS for word in (row.word, *row.older)]
VALUES = (
    *(
        None,
        True,
        False,
        0,
        -1,
        8,
        10**12,
        1.5,
        2e8,
        float("nan"),
        float("inf"),
        "",
        "auto",
        "none",
        "x",
        "1e6",
        "{",
        "[1]",
    ),
    *([], ["q_proj"], {}, {"a": 1}, {"stage": 3}, {"enabled": True}, "full_shard offload", "bfloat16", "lora"),
)


@given(st.dictionaries(st.sampled_from(WORDS), st.sampled_from(VALUES), max_size=4))
def test_whatever_a_file_says_is_read_or_refused(values):
    file = JobFile(Path("a.json"), json.dumps({"per_device_train_batch_size": 1, **values}))
    reader = next(one for one in READERS if isinstance(one, DocumentReader) and one.form == "transformers")
    with suppress(BadRequest):
        assert reader.read(file, Context(known={"model"})).pins


@pytest.mark.parametrize(
    ("script", "task"),
    [("dpo_training.py", "dpo"), ("train_orpo.py", "orpo"), ("reward_modeling.py", "reward"), ("train.py", "finetune")],
)
def test_a_script_that_is_called_by_its_task_has_that_task(script, task):
    job = command(f"torchrun training/{script} --model_name_or_path llama3-8b --per_device_train_batch_size 1")
    assert job.fields.get("task") == task


def test_a_script_that_generates_its_samples_is_priced_without_and_that_is_said():
    job = command("python ppo_training.py --model_name_or_path llama3-8b --per_device_train_batch_size 1")
    assert any(line.startswith("ppo generates its samples") for line in job.unpriced)


def test_a_rank_of_adapters_that_nobody_said_is_said():
    line = "python train.py --model_name_or_path llama3-8b --per_device_train_batch_size 1 --bf16 --load_in_4bit True"
    assert any("no rank of adapters is given; 8 is priced" in one for one in command(line).assumed)
    assert not any("no rank" in one for one in command(f"{line} --lora_r 32").assumed)


def test_a_batch_that_a_script_calls_its_own_way_is_asked_for():
    job = command(
        "torchrun --nproc_per_node 8 a.py --model_name_or_path gpt2 --train_batch_size 4 --num_train_epochs 1"
    )
    assert any(line.startswith("train_batch_size may be a GPU's or all GPUs' batch") for line in job.missing)
    plain = command("torchrun --nproc_per_node 8 a.py --model_name_or_path gpt2 --per_device_train_batch_size 4")
    assert plain.missing == ()


def test_words_of_trainers_of_images_recompute_pack_and_freeze():
    script = "torchrun --nproc_per_node 8 train.py --model_name_or_path llama3-8b --per_device_train_batch_size 1 "
    script += "--max_seq_length 4096 --grad_checkpoint True --use_packed_ds True --freeze_llm True --num_train_epochs 1"
    job = read_job([JobFile(Path("run.sh"), script)], Context(disk=False)).job
    assert job.pins["recompute"] == "full"
    assert not any("shorter ones take less time" in line for line in job.assumed)
    assert job.unpriced == (
        "freeze_llm is read and not priced: the language model is frozen: less memory, a shorter backward pass",
    )
