"""Logs of Megatron-LM and its relatives: what ran is what the dump says, how long it took what the lines say."""

from __future__ import annotations

import gzip
import json

import pytest

from planner.jobs.reader import Context, job_file
from planner.jobs.readers import read_job
from tests.planner.jobs.logs.written import dump, measured, megatron, read


def steps(*, first: float = 9000.0, each: float = 1250.0, count: int = 12) -> str:
    return megatron(1, first) + "".join(megatron(step, each) for step in range(2, count + 1))


def test_the_dump_says_what_ran(tmp_path):
    job = read(tmp_path, dump() + steps())
    assert job.fields["gpus"] == 16
    assert job.fields["precision"] == "bf16"
    assert {axis: job.pins[axis] for axis in ("tp", "pp", "micro_batch_size", "zero_stage", "recompute")} == {
        "tp": 2,
        "pp": 4,
        "micro_batch_size": 2,
        "zero_stage": 1,
        "recompute": "none",
    }
    model = job.fields["model"]
    assert (model["num_layers"], model["vocab_size"], model["position"], model["ffn_bias"]) == (
        24,
        50304,
        "rotary",
        False,
    )


def test_sends_are_not_hidden_only_where_chunks_interleave_and_the_dump_says_so(tmp_path):
    off = {"overlap_p2p_comm": "False"}  # Megatron-LM turns it off itself where nothing interleaves
    plain = read(tmp_path, dump(**off, virtual_pipeline_model_parallel_size="None") + steps())
    chunked = read(tmp_path, dump(**off, virtual_pipeline_model_parallel_size="2") + steps())
    assert "stack.overlap.pp_interleaved" not in plain.fields["changes"]
    assert chunked.fields["changes"]["stack.overlap.pp_interleaved"] == 1.0


def test_the_time_is_that_of_the_lines(tmp_path):
    found = measured(tmp_path, dump() + steps())
    assert found["iteration_seconds"] == 1.25


def test_memory_is_that_of_the_fullest_rank_that_tells(tmp_path):
    memory = "".join(
        f"[Rank {rank}] (after 10 iterations) memory (MB) | allocated: 9000.0 | max allocated: {most} | "
        f"reserved: 20000.0 | max reserved: 21000.0"  # ranks write into each other's lines
        for rank, most in ((0, "17000.5"), (4, "18000.25"))
    )
    found = measured(tmp_path, dump() + steps() + memory + "\n")
    assert found["peak_memory"]["bytes"] == 18000.25 * 2**20
    assert found["peak_memory"]["kind"] == "allocated"
    assert "stage" not in found["peak_memory"]


def test_rank_0_alone_tells_of_the_first_stage(tmp_path):
    line = (
        "[Rank 0] (after 10 iterations) memory (MB) | allocated: 9.0 | max allocated: 17000.0 | max reserved: 21000.0\n"
    )
    found = measured(tmp_path, dump() + steps() + line)
    assert found["peak_memory"]["stage"] == 0


def test_what_the_driver_shows_is_memory_of_the_device(tmp_path):
    shown = steps().replace(
        " | learning rate", " | rocm mem usage/free/total/usage_ratio: 150.5GB/41.5GB/192GB/78% | learning rate"
    )
    found = measured(tmp_path, dump() + shown.replace("(ms): 1250.0", "(ms): 1250.0/1300.0"))
    assert found["iteration_seconds"] == 1.25
    assert (found["peak_memory"]["bytes"], found["peak_memory"]["kind"]) == (150.5 * 2**30, "device")


def test_other_sizes_in_front_of_the_dump_are_not_the_model(tmp_path):
    other = '{"n_layer": 12, "n_embd": 768, "n_head": 12}\n  num_layers ...................... 12\n'
    assert read(tmp_path, other + dump() + steps()).fields["model"]["num_layers"] == 24


def test_a_stage_of_zero_counts_only_with_deepspeed(tmp_path):
    off = read(tmp_path, dump(deepspeed="False", zero_stage="1", use_distributed_optimizer="False") + steps())
    with_file = {"zero_stage": "1", "use_distributed_optimizer": "False", "deepspeed_config": "ds_config.json"}
    on = read(tmp_path, dump(deepspeed="True", **with_file) + steps())
    assert (off.pins["zero_stage"], on.pins["zero_stage"]) == (0, 1)
    assert on.fields["stack"] == "megatron-deepspeed"
    assert any("ds_config.json" in line for line in on.unpriced)


def test_what_deepspeed_s_engine_prints_stands_in_for_its_file(tmp_path):
    settings = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": True}}
    printed = f"[2025-06-01 12:00:00,000] [INFO] [config.py:752:print]   json = {json.dumps(settings, indent=4)}\n"
    text = dump(deepspeed="True", zero_stage="2", deepspeed_config="ds_config.json", use_distributed_optimizer="False")
    job = read(tmp_path, text + printed + steps())
    assert (job.pins["zero_stage"], job.pins["offload"]) == (2, "optimizer")
    assert not any("ds_config.json" in line for line in job.unpriced)


def test_older_names_of_arguments_are_read(tmp_path):
    older = dump(checkpoint_activations="True", checkpoint_num_layers="1", num_key_value_heads="4", num_experts="[1]")
    job = read(tmp_path, older + steps())
    assert job.pins["recompute"] == "full"
    assert job.fields["model"]["num_query_groups"] == 4
    assert "moe" not in job.fields["model"]
    assert job.fields["stack"] == "megatron-lm-2021"


@pytest.mark.parametrize(
    "prefix", ["0: ", "localhost: ", "[default0]:", "\x1b[36m[1,0]<stdout>:\x1b[0m ", "worker-0 | "]
)
def test_what_a_launcher_puts_in_front_is_passed_over(tmp_path, prefix):
    text = dump(prefix) + "".join(prefix + line + "\n" for line in steps().splitlines())
    job = read(tmp_path, text)
    assert job.pins["pp"] == 4
    assert job.measured["iteration_seconds"] == 1.25


def test_iterations_whose_update_was_dropped_are_left_out(tmp_path):
    text = dump() + megatron(10, 900.0, skipped=10) + megatron(20, 800.0, skipped=8)
    text += "".join(megatron(step, 1250.0) for step in range(30, 80, 10))
    job = read(tmp_path, text)
    assert job.measured["iteration_seconds"] == 1.25


def test_of_several_starts_the_longest_counts(tmp_path):
    text = dump() + steps(count=5, each=2000.0) + dump(micro_batch_size="4") + steps(count=20)
    job = read(tmp_path, text)
    assert job.measured["iteration_seconds"] == 1.25
    assert job.pins["micro_batch_size"] == 4
    assert any("start 2 times" in line for line in job.remarks)


def test_a_resumed_run_is_one_run_and_its_pause_no_iteration(tmp_path):
    again = "using world size: 16, data-parallel-size: 2\n" + megatron(13, 8000.0)
    job = read(tmp_path, dump() + steps() + again + "".join(megatron(step, 1250.0) for step in range(14, 20)))
    assert job.measured["iteration_seconds"] == 1.25
    assert any("left out for a new start" in line for line in job.remarks)


def test_out_of_memory_is_a_measurement(tmp_path):
    error = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79 GiB\n"
    )
    job = read(tmp_path, dump() + error)
    assert job.measured == {"out_of_memory": True}
    assert any("before the first iteration" in line for line in job.remarks)


def test_out_of_memory_in_an_earlier_start_is_history(tmp_path):
    error = "torch.cuda.OutOfMemoryError: CUDA out of memory.\n"
    assert "out_of_memory" not in measured(tmp_path, dump() + error + dump(micro_batch_size="1") + steps())


def test_one_line_is_no_measurement(tmp_path):
    job = read(tmp_path, dump() + megatron(100, 1250.0))
    assert "iteration_seconds" not in job.measured
    assert any("one line of time is not enough" in line for line in job.remarks)


def test_what_the_log_does_not_say_is_named_with_its_option(tmp_path):
    bare = read(tmp_path, steps())
    assert {word for line in bare.missing for word in line.split() if word.startswith("--")} == {
        "--model",
        "--gpus",
        "--cluster",
        "--seq-len",
        "--tp",
        "--pp",
        "--micro-batch",
        "--zero",
        "--recompute",
    }
    assert read(tmp_path, dump() + steps(), known=["cluster"]).missing == ()


def test_a_packed_log_that_is_longer_than_a_description_is_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("planner.jobs.reader.LARGEST", 2**14)
    path = tmp_path / "train.log.gz"
    noise = "a warning that says nothing of the run\n" * 1000
    with gzip.open(path, "wt", compresslevel=1) as stream:
        stream.write(dump() + megatron(1, 9000.0) + noise + "".join(megatron(step, 1250.0) for step in range(2, 9)))
    assert not job_file(path).whole
    run = read_job([path], Context()).run
    assert run is not None
    assert run["measured"]["iteration_seconds"] == 1.25


def test_defaults_of_what_is_off_say_nothing(tmp_path):
    idle = {
        "num_query_groups": "1",
        "group_query_attention": "False",
        "num_experts": "None",
        "moe_router_topk": "2",
        "moe_token_dispatcher_type": "allgather",
        "moe_layer_freq": "1",
        "multi_latent_attention": "False",
        "kv_lora_rank": "32",
        "v_head_dim": "128",
        "mamba_head_dim": "64",
        "attention_backend": "AttnBackend.auto",
        "exp_avg_dtype": "torch.float32",
        "main_grads_dtype": "torch.float32",
        "cp_comm_type": "['p2p']",
        "normalization": "RMSNorm",
    }
    job = read(tmp_path, dump(**idle) + steps())
    model = job.fields["model"]
    assert (model["num_query_groups"], model["norm"], "experts" in model, "mla" in model) == (
        16,
        "rmsnorm",
        False,
        False,
    )
    assert not [line for line in job.lines if "moe" in line or "lora" in line or "mamba" in line]


def test_what_has_no_price_is_said_of_a_dump_too(tmp_path):
    job = read(tmp_path, dump(deepspeed="True", zero_stage="3", checkpoint_in_cpu="True", kd="False") + steps())
    assert any("--checkpoint-in-cpu" in line for line in job.unpriced)
    assert not any("--kd" in line for line in job.unpriced)


def test_experts_are_read_as_a_command_line_has_them(tmp_path):
    moe = {
        "num_experts": "64",
        "moe_router_topk": "6",
        "moe_ffn_hidden_size": "1408",
        "expert_model_parallel_size": "8",
    }
    job = read(tmp_path, dump(**moe, moe_grouped_gemm="True", expert_tensor_parallel_size="1") + steps())
    assert job.pins["ep"] == 8
    assert job.fields["model"]["moe"]["num_experts"] == 64


def test_arguments_that_make_no_job_leave_the_measurement(tmp_path):
    job = read(tmp_path, dump(position_embedding_type="sinusoidal") + steps())
    assert job.measured["iteration_seconds"] == 1.25
    assert (job.fields["gpus"], job.pins["tp"]) == (16, 2)
    assert any("do not make a job" in line for line in job.missing)


def test_gpt_neox_prints_who_set_a_value(tmp_path):
    updated = {
        "num_layers": "24",
        "hidden_size": "2048",
        "num_attention_heads": "16",
        "seq_length": "2048",
        "max_position_embeddings": "2048",
        "pos_emb": "rotary",
        "model_parallel_size": "2",
        "pipe_parallel_size": "4",
        "train_batch_size": "512",
        "train_micro_batch_size_per_gpu": "4",
        "zero_optimization": "{'stage': 1, 'overlap_comm': True}",
        "precision": "fp16",
        "global_num_gpus": "32",
    }
    lines = [f"  {name} {'.' * (40 - len(name))} {value}{'.' * 20}updated\n" for name, value in updated.items()]
    lines += ["  rotary_pct ................... 1.0..........default\n", "  norm ....... layernorm.....default\n"]
    head, foot = f"{'-' * 24} arguments {'-' * 24}\n", f"{'-' * 20} end of arguments {'-' * 20}\n"
    job = read(tmp_path, head + "".join(lines) + foot + steps())
    assert (job.fields["gpus"], job.pins["tp"], job.pins["pp"], job.pins["micro_batch_size"]) == (32, 2, 4, 4)
    assert (job.fields["model"]["num_layers"], job.fields["model"]["position"], job.fields["stack"]) == (
        24,
        "rotary",
        "gpt-neox",
    )
    assert job.measured["iteration_seconds"] == 1.25
