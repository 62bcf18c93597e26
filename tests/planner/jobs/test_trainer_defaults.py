"""Recipes of trainers on Transformers: each with its trainer's own defaults and words."""

import json
from pathlib import Path

import pytest

from planner.jobs.reader import Context, DocumentReader, JobFile
from planner.jobs.readers import READERS
from tests.planner.jobs.test_transformers import RECIPE, TRAIN, command, document, files


def test_a_recipe_of_trl_is_bf16_and_recomputes_unless_it_says_otherwise():
    job = document("sft/config.yaml", RECIPE)
    assert (job.fields["precision"], job.fields["seq_length"], job.fields["task"]) == ("bf16", 1024, "finetune")
    assert job.pins["recompute"] == "full"
    assert any(
        line.startswith("neither bf16 nor fp16 is given; bf16 is priced, the default of TRL") for line in job.assumed
    )
    assert any(line.startswith("nothing here shards states") for line in job.assumed)
    idle = command("trl sft --config a.yaml --lora_r 16", *files(a_yaml=RECIPE))
    assert "adapters" not in idle.fields
    assert any("lora_r has no effect without use_peft" in line for line in idle.assumed)
    assert not idle.missing


@pytest.mark.parametrize("words", [{"train_mode": "lora"}, {"lora_r": 16}, {"adapter": "lora", "lora_alpha": 32}])
def test_a_recipe_with_words_of_its_own_for_adapters_asks_whether_they_train(words):
    asked = document("config.yaml", RECIPE | words).missing
    assert [next(iter(words)) in line and "--adapters RANK" in line for line in asked] == [True]
    for said in ({"use_peft": False}, {"use_peft": True}):
        assert not document("config.yaml", RECIPE | words | said).missing


def test_a_rank_beside_a_switch_of_a_script_s_own_is_taken_and_a_switch_without_one_asks():
    line = f"{TRAIN} --bf16 --per_device_train_batch_size 1"
    ranked = command(f"{line} --peft_enabled True --peft_lora_r 32")
    assert (ranked.fields["adapters"].partition(":")[0], ranked.missing) == ("32", ())
    assert any("no rank is given" in one for one in command(f"{line} --lora_enable True").missing)
    assert any("my_lora_size" in one for one in command(f"{line} --my_lora_size 32").missing)
    for off in ("--lora_enable False --lora_alpha 16", "--tune_mm_mlp_adapter True", "--lora_path none"):
        assert not command(f"{line} {off}").missing


def test_who_says_what_trains_is_not_asked():
    file = JobFile(Path("a.yaml"), json.dumps(RECIPE | {"train_mode": "lora", "lora_r": 16}))
    reader = next(one for one in READERS if isinstance(one, DocumentReader) and one.recognises(file))
    for known in ("adapters", "task"):
        assert not reader.read(file, Context(known={known})).missing
    said = reader.read(file, Context(known={"adapters"}))
    assert "stack.states.weight_bytes" not in said.fields.get("changes", {})
    assert not any("adapters" in line for line in said.assumed)


def test_what_generates_its_samples_is_said():
    job = document("grpo/config.yaml", RECIPE | {"num_generations": 8, "max_prompt_length": 512,
                                                 "max_completion_length": 1024})  # fmt: skip
    assert (job.fields["task"], job.fields["seq_length"]) == ("finetune", 1536)
    assert any("grpo generates its samples" in line for line in job.unpriced)


FACTORY = {"model_name_or_path": "qwen2.5-7b", "stage": "sft", "finetuning_type": "lora", "cutoff_len": 1024,
           "per_device_train_batch_size": 1, "bf16": True}  # fmt: skip


def test_a_recipe_of_llama_factory_has_its_defaults():
    job = document("a.yaml", FACTORY)
    assert job.fields["adapters"].startswith("8:linear_qkv")
    assert job.pins["recompute"] == "full"
    plain = document("a.yaml", FACTORY | {"disable_gradient_checkpointing": True, "quantization_bit": 4})
    assert (plain.pins["recompute"], plain.fields["base_precision"]) == ("none", "nf4-double")
    pair = document("a.yaml", FACTORY | {"stage": "dpo", "pref_loss": "orpo"})
    assert pair.fields["task"] == "orpo"
    sharded = document(
        "a.yaml", FACTORY | {"finetuning_type": "full", "deepspeed": "examples/deepspeed/ds_z3_config.json"}
    )
    assert (sharded.framework, sharded.pins["zero_stage"]) == ("deepspeed", 3)


def test_a_script_with_a_recipe_is_the_recipe_s_trainer_s():
    beside = files(recipe_yaml=FACTORY)
    job = command("torchrun --nproc_per_node 8 src/train.py recipe.yaml cutoff_len=2048", *beside)
    assert (job.fields["gpus"], job.fields["seq_length"]) == (8, 2048)
    assert job.fields["adapters"].startswith("8:")


AXOLOTL = {"base_model": "llama2-7b", "sequence_len": 4096, "micro_batch_size": 2, "datasets": [], "bf16": "auto",
           "adapter": "qlora", "load_in_4bit": True, "lora_r": 32, "lora_target_linear": True,
           "flash_attention": True}  # fmt: skip


def test_llama_factory_adapts_every_module_where_none_are_named():
    job = document("a.yaml", FACTORY)
    assert job.fields["adapters"].startswith("8:linear_qkv,linear_proj,linear_fc1,linear_fc2")
    line = "llamafactory-cli train --model_name_or_path qwen2.5-7b --finetuning_type lora --lora_rank 4"
    assert command(line).fields["adapters"].startswith("4:linear_qkv,linear_proj,linear_fc1,linear_fc2")


def test_adapters_that_are_not_of_low_rank_are_asked_about():
    assert "oft has no price; --adapters RANK" in document("a.yaml", FACTORY | {"finetuning_type": "oft"}).missing[0]


def test_the_batch_of_older_axolotl_files_says_the_steps_of_accumulation():
    job = document("a.yml", AXOLOTL | {"batch_size": 8})
    assert (job.pins["micro_batch_size"], job.pins["steps"]) == (2, 4)


@pytest.mark.parametrize(
    ("more", "task"), [({}, "finetune"), ({"reward_model": True}, "reward"), ({"rl": "dpo"}, "dpo"),
                       ({"pretraining_dataset": [{"path": "c4"}]}, "pretrain")]
)  # fmt: skip
def test_axolotl_s_files_say_what_is_learnt(more, task):
    assert document("a.yml", AXOLOTL | more).fields["task"] == task


def test_a_default_that_moves_the_price_is_told():
    said = document("a.yml", RECIPE).assumed
    assert any(line.startswith("gradient_checkpointing is not given; layers are recomputed, as TRL") for line in said)
    assert any(line.startswith("max_length is not given; 1024 is priced, the default of TRL") for line in said)


def test_a_recipe_of_a_loop_of_its_own_is_not_taken_for_trl_s():
    job = document("a.yml", RECIPE | {"with_tracking": True, "checkpointing_steps": "epoch"})
    assert job.pins["recompute"] == "none"


def test_axolotl_s_switches_are_words_of_transformers():
    job = document("a.yml", AXOLOTL)
    assert job.fields["adapters"].startswith("32:linear_qkv,linear_proj,linear_fc1,linear_fc2")
    assert (job.fields["precision"], job.fields["base_precision"]) == ("bf16", "nf4-double")
    assert job.pins["recompute"] == "none"
    full = document(
        "a.yml", AXOLOTL | {"adapter": None, "load_in_4bit": False, "deepspeed": "deepspeed_configs/zero2.json"}
    )
    assert ("adapters" in full.fields, full.pins["zero_stage"]) == (False, 2)


def test_ms_swift_makes_up_a_batch_of_sixteen_and_brings_deepspeed_s_files():
    job = command(
        "swift sft --model qwen2.5-7b --deepspeed zero2 --max_length 2048", environment={"NPROC_PER_NODE": "4"}
    )
    assert (job.fields["gpus"], job.pins["micro_batch_size"], job.pins["steps"]) == (4, 1, 4)
    assert (job.pins["zero_stage"], job.fields["precision"]) == (2, "bf16")
    assert job.fields["adapters"].startswith("8:linear_qkv,linear_proj,linear_fc1,linear_fc2")
    alone = command("swift sft --model qwen2.5-7b", environment={"CUDA_VISIBLE_DEVICES": "0,1"})
    assert any("one process places the layers" in line for line in alone.unpriced)
