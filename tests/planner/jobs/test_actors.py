"""Trainers that learn from samples and judgements, on DeepSpeed and on FSDP: what trains of them."""

from pathlib import Path

import pytest

from planner.errors import BadRequest
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch
from planner.jobs.readers import READERS, read_job


def read(words, **more):
    launch = Launch(tuple(words.split()), **more)
    (reader,) = (one for one in READERS if isinstance(one, CommandReader) and one.recognises(launch))
    return reader.read(launch, Context())


SFT = "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft "
OLD = "--max_len 2048 --train_batch_size 256 --micro_train_batch_size 2 --pretrain llama3-8b --zero_stage 3 --bf16"
NEW = (
    "--data.max_len 2048 --train.batch_size 256 --train.micro_batch_size 2 --model.model_name_or_path llama3-8b "
    "--ds.zero_stage 3 --ds.param_dtype bf16"
)


@pytest.mark.parametrize(
    ("words", "kernels", "recompute"),
    [
        (OLD, ["unfused"], "none"),
        (f"{OLD} --flash_attn --gradient_checkpointing", ["flash-2", "flash-1"], "full"),
        (f"{NEW} --model.gradient_checkpointing_enable", ["flash-2", "flash-1"], "full"),
    ],
)
def test_openrlhf_s_options_of_both_ages_say_the_same_job(words, kernels, recompute):
    job = read(SFT + words)
    assert (job.fields["gpus"], job.fields["global_batch_size"], job.fields["seq_length"]) == (8, 256, 2048)
    assert (job.pins["micro_batch_size"], job.pins["zero_stage"], job.pins["recompute"]) == (2, 3, recompute)
    assert job.fields["changes"]["stack.attention_backend"] == kernels
    assert (job.framework, job.fields["precision"], job.fields["task"]) == ("deepspeed", "bf16", "finetune")
    assert not job.unpriced


def test_openrlhf_s_defaults_are_its_own():
    job = read(
        "deepspeed --num_gpus 8 openrlhf/cli/train_dpo.py --model.model_name_or_path llama3-8b --ds.lora.rank 16"
    )
    assert (job.fields["global_batch_size"], job.pins["micro_batch_size"], job.pins["zero_stage"]) == (128, 8, 2)
    assert job.fields["adapters"].startswith("16:linear_qkv,linear_proj,linear_fc1,linear_fc2")
    assert job.fields["task"] == "dpo"


def test_the_actor_of_openrlhf_trains_on_its_own_devices():
    job = read(
        "python3 -m openrlhf.cli.train_ppo_ray --actor_num_nodes 2 --actor_num_gpus_per_node 4 --pretrain llama3-8b "
        "--prompt_max_len 512 --generate_max_len 1024 --adam_offload --ring_attn_size 2"
    )
    assert (job.fields["gpus"], job.fields["seq_length"]) == (8, 1536)
    assert (job.pins["offload"], job.pins["cp"]) == ("optimizer", 2)
    assert any("ppo generates its samples" in line for line in job.unpriced)


PPO = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=llama3-8b "
    "data.max_prompt_length=512 data.max_response_length=1024 actor_rollout_ref.actor.ppo_mini_batch_size=64 "
    "actor_rollout_ref.rollout.n=4 trainer.nnodes=2 "
)


def test_the_actor_of_verl_trains_on_fsdp_with_all_its_samples():
    job = read(f"{PPO} actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2")
    assert (job.fields["gpus"], job.fields["global_batch_size"], job.fields["seq_length"]) == (16, 256, 1536)
    assert (job.pins["micro_batch_size"], job.pins["zero_stage"], job.pins["recompute"]) == (2, 3, "full")
    assert "steps" not in job.pins
    assert not any("on one GPU" in line for line in job.assumed)


def test_what_verl_s_fsdp_is_told_is_read():
    more = (
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2 actor_rollout_ref.actor.fsdp_config.fsdp_size=8 "
        "actor_rollout_ref.actor.ppo_micro_batch_size=32 actor_rollout_ref.model.lora_rank=32 "
        "actor_rollout_ref.actor.fsdp_config.param_offload=True"
    )
    job = read(PPO + more)
    assert (job.pins["cp"], job.pins["cp_kind"], job.pins["sharding_degree"]) == (2, "a2a", 8)
    assert job.pins["micro_batch_size"] == 4
    assert job.fields["adapters"].startswith("32:")
    assert any("param_offload" in line and "during rollouts" in line for line in job.unpriced)


def test_supervised_tuning_of_verl_counts_sequences():
    job = read(
        "torchrun --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=llama3-8b "
        "data.train_batch_size=128 data.max_length=2048"
    )
    assert (job.fields["gpus"], job.fields["global_batch_size"], job.pins["micro_batch_size"]) == (8, 128, 4)
    assert job.fields["task"] == "finetune"


ROLL = """
prompt_length: 512
response_length: 1024
pretrain: llama3-8b
actor_train:
  model_args: {{disable_gradient_checkpointing: false}}
  training_args: {{per_device_train_batch_size: 2, gradient_accumulation_steps: 8}}
  strategy_args: {{strategy_name: {}, strategy_config: {{{}}}}}
  device_mapping: list(range(0,16))
"""


def read_roll(name, config):
    file = JobFile(Path("roll.yaml"), ROLL.format(name, config))
    (reader,) = (one for one in READERS if isinstance(one, DocumentReader) and one.recognises(file))
    return reader.read(file, Context())


def test_the_actor_of_roll_trains_on_megatron_core():
    degrees = "tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2, use_distributed_optimizer: true"
    job = read_roll("megatron_train", f"{degrees}, recompute_granularity: full")
    assert (job.fields["gpus"], job.fields["model"], job.fields["seq_length"]) == (16, "llama3-8b", 1536)
    found = {"tp": 2, "pp": 2, "micro_batch_size": 2, "steps": 8, "zero_stage": 1, "recompute": "full"}
    assert found.items() <= job.pins.items()


def test_the_actor_of_roll_trains_on_fsdp():
    job = read_roll("fsdp2_train", "fsdp_size: 8, offload_policy: true")
    found = {"zero_stage": 3, "sharding_degree": 8, "offload": "optimizer+parameters", "recompute": "full"}
    assert found.items() <= job.pins.items()
    assert (job.pins["micro_batch_size"], job.pins["steps"]) == (2, 8)


def test_another_strategy_of_roll_is_refused_by_name():
    with pytest.raises(BadRequest, match="strategy_name: 'hf_train' is not priced; megatron_train"):
        read_roll("hf_train", "")


ACTOR = """
data: {max_prompt_length: 512, max_response_length: 512, train_batch_size: 64}
actor_rollout_ref:
  model: {path: Qwen3-8B, enable_gradient_checkpointing: true, lora_rank: 0}
  actor: {strategy: ENGINE, ppo_mini_batch_size: "${data.train_batch_size}", ppo_micro_batch_size_per_gpu: MICRO,
          megatron: {tensor_model_parallel_size: 4}}
  rollout: {n: 4}
trainer: {nnodes: 2, n_gpus_per_node: 8}
"""


def of_file(engine, micro="2", **more):
    text = ACTOR.replace("ENGINE", engine).replace("MICRO", micro)
    return read_job([JobFile(Path("a.yaml"), text)], Context(disk=False, **more)).job


@pytest.mark.parametrize(("engine", "tp", "zero"), [("fsdp", 1, 3), ("megatron", 4, 1)])
def test_a_configuration_of_verl_is_read_as_its_overrides_are(engine, tp, zero):
    job = of_file(engine)
    assert (job.fields["gpus"], job.fields["global_batch_size"], job.fields["seq_length"]) == (16, 256, 1024)
    assert (job.fields["model"], job.pins["micro_batch_size"], job.missing) == ("Qwen3-8B", 2, ())
    assert (job.pins.get("tp", 1), job.pins["zero_stage"]) == (tp, zero)
    assert not any("lora" in line for line in job.assumed)


@pytest.mark.parametrize(
    ("said", "adapters"),
    [
        ("rank: 0", None),
        ("rank: 32", "32"),
        ("rank: 8, target_modules: [linear_qkv, linear_fc1]", "8:linear_qkv,linear_fc1"),
    ],
)
def test_an_actor_of_verl_on_megatron_trains_the_adapters_that_its_file_names(said, adapters):
    text = ACTOR.replace("ENGINE", "megatron").replace("MICRO", "2").replace("lora_rank: 0", f"lora: {{{said}}}")
    job = read_job([JobFile(Path("a.yaml"), text)], Context(disk=False)).job
    assert job.fields.get("adapters") == adapters


def test_a_micro_batch_that_a_configuration_of_verl_leaves_open_is_asked_for():
    assert of_file("fsdp", "null").missing == ("no micro-batch is given; --micro-batch-size gives it",)
    assert of_file("fsdp", "null", known={"pins.micro_batch_size"}).missing == ()


POLICY = """
grpo: {num_prompts_per_step: 32}
policy:
  model_name: Qwen/Qwen3-8B
  train_global_batch_size: 512
  train_micro_batch_size: 2
  max_total_sequence_length: 4096
  precision: bfloat16
  dtensor_cfg: {enabled: true, tensor_parallel_size: 2, activation_checkpointing: true, cpu_offload: false}
  megatron_cfg: {enabled: false, tensor_model_parallel_size: "${policy.dtensor_cfg.tensor_parallel_size}",
                 pipeline_model_parallel_size: 2, activation_checkpointing: true, sequence_parallel: true,
                 optimizer: {optimizer: adam, lr: 1e-6, bf16: true, use_distributed_optimizer: true},
                 distributed_data_parallel_config: {overlap_grad_reduce: true, grad_reduce_in_fp32: false}}
  optimizer: {name: torch.optim.AdamW, kwargs: {lr: 5e-6}}
cluster: {gpus_per_node: 8, num_nodes: 4}
"""
CORE = "defaults: below.yaml\npolicy: {megatron_cfg: {enabled: true}, dtensor_cfg: {enabled: false}}\n"


def of_files(*texts):
    names = ("above.yaml", "below.yaml")
    files = [JobFile(Path(name), text) for name, text in zip(names, texts, strict=False)]
    return read_job(files, Context(disk=False)).job


def test_the_policy_of_nemo_rl_trains_on_all_that_the_cluster_has():
    job = of_files(POLICY)
    assert (job.fields["gpus"], job.fields["global_batch_size"], job.fields["seq_length"]) == (32, 512, 4096)
    assert (job.fields["model"], job.fields["precision"], job.pins["micro_batch_size"]) == ("Qwen/Qwen3-8B", "bf16", 2)
    assert (job.pins["tp"], job.pins["zero_stage"], job.pins["recompute"]) == (2, 3, "full")
    assert any(line.startswith("grpo generates its samples") for line in job.unpriced)


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [("{num_nodes: 1, gpus_per_node: 8}", 24), ("{gpus_per_node: 4}", None), ("{}", None), ("{num_nodes: 4}", None)],
)
def test_gpus_that_only_generate_do_not_train(resources, gpus):
    apart = f"  generation: {{colocated: {{enabled: false, resources: {resources}}}}}\ncluster:"
    assert of_files(POLICY.replace("cluster:", apart)).fields.get("gpus") == gpus


def test_adapters_of_nemo_rl_on_megatron_have_the_rank_that_its_file_says():
    adapted = "{enabled: true, peft: {enabled: true, dim: 16, target_modules: [linear_qkv]}}"
    job = of_files(CORE.replace("{enabled: true}", adapted), POLICY)
    assert job.fields["adapters"] == "16:linear_qkv"
    assert not any("peft" in line for line in job.unpriced)


@pytest.mark.parametrize("said", ["expert_parallel_size: 8", "pipeline_parallel_size: 2", "sequence_parallel: true"])
def test_what_dtensor_splits_besides_is_said_to_have_no_price(said):
    def unpriced(more):
        found = of_files(POLICY.replace("tensor_parallel_size: 2, act", f"tensor_parallel_size: 2, {more}, act"))
        return [line for line in found.unpriced if line.startswith("dtensor_cfg.")]

    name, _, _ = said.partition(":")
    (line,) = unpriced(said)
    assert line.startswith(f"dtensor_cfg.{name} is read and not priced")
    assert not unpriced(f"{name}: {'false' if name == 'sequence_parallel' else 1}")


def test_nemo_rl_takes_one_backend():
    with pytest.raises(BadRequest, match="both dtensor_cfg and megatron_cfg are enabled"):
        of_files(CORE.replace(", dtensor_cfg: {enabled: false}", ""), POLICY)


def test_a_command_line_of_nemo_rl_stands_above_its_file():
    line = (
        "uv run examples/run_grpo_math.py --config above.yaml cluster.num_nodes=2 ++policy.train_micro_batch_size=1\n"
    )
    files = [JobFile(Path("run.sh"), f"#!/bin/bash\n{line}"), JobFile(Path("above.yaml"), POLICY)]
    job = read_job(files, Context(disk=False)).job
    assert (job.fields["gpus"], job.pins["micro_batch_size"], job.missing) == (16, 1, ())


def test_a_file_of_nemo_rl_stands_above_the_one_that_it_builds_on():
    job = of_files(CORE, POLICY)
    assert (job.fields["gpus"], job.fields["global_batch_size"], job.missing) == (32, 512, ())
    assert {axis: job.pins[axis] for axis in ("tp", "pp", "zero_stage", "recompute")} == {
        "tp": 2, "pp": 2, "zero_stage": 1, "recompute": "full"}  # fmt: skip
    assert not any("not read" in line for line in job.unpriced)
    alone = of_files("defaults: below.yaml\nloss_fn: {}\npolicy: {max_total_sequence_length: 8192}\n")
    assert "below.yaml has the rest of the settings, but is not here; give that file too" in alone.missing


@pytest.mark.parametrize(
    ("more", "recompute", "precision"),
    [
        ("recompute_granularity: full", "full", "bf16"),
        ("recompute_granularity: selective, recompute_modules: [core_attn]", "selective", "bf16"),
        ("activation_checkpointing: false, recompute_granularity: full", "none", "bf16"),
        ("fp8_cfg: {enabled: true, fp8: e4m3, fp8_recipe: blockwise, fp8_param: false}", "full", "fp8-block"),
        ("fp8_cfg: {enabled: false, fp8: e4m3, fp8_recipe: blockwise, fp8_param: false}", "full", "bf16"),
    ],
)
def test_nemo_rl_on_megatron_recomputes_and_narrows_only_what_is_switched_on(more, recompute, precision):
    job = of_files(CORE.replace("megatron_cfg: {enabled: true}", f"megatron_cfg: {{enabled: true, {more}}}"), POLICY)
    assert (job.pins["recompute"], job.fields["precision"]) == (recompute, precision)


def test_settings_of_nemo_rl_need_no_policy_of_their_own():
    above = "defaults: below.yaml\ndata_plane: {enabled: true}\n"
    assert of_files(above, POLICY).fields["gpus"] == 32
    assert of_files(above).missing == ("below.yaml has the rest of the settings, but is not here; give that file too",)


def test_the_last_of_several_files_that_settings_build_on_counts():
    texts = {"top": "defaults: [low.yaml, high.yaml]\ngrpo: {}\n", "low": POLICY, "high": "cluster: {num_nodes: 2}\n"}
    files = [JobFile(Path(f"{name}.yaml"), text) for name, text in texts.items()]
    assert read_job(files[:1], Context(disk=False)).job.missing
    assert read_job(files, Context(disk=False)).job.fields["gpus"] == 16


def test_a_file_that_settings_build_on_names_its_own_from_where_it_lies(tmp_path):
    texts = {"a/top.yaml": "defaults: ../b/mid.yaml\ngrpo: {}\n", "b/mid.yaml": "defaults: c/low.yaml\n"}
    for name, text in (texts | {"b/c/low.yaml": POLICY}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert read_job([tmp_path / "a" / "top.yaml"], Context()).job.fields["gpus"] == 32
