"""Logs of MaxText, NeMo, nanotron, DeepSpeed and the Trainer's family, each with its own trap."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.errors import BadFile
from planner.jobs.reader import Context, JobFile
from planner.jobs.readers import read_job
from tests.planner.jobs.logs.written import measured, read


def test_maxtext_s_first_steps_are_handed_over_and_not_waited_for(tmp_path):
    seconds = [0.31, 0.002, 11.2, *[5.7] * 7]
    lines = [
        f"completed step: {step}, seconds: {value:.3f}, TFLOP/s/device: 135.0, Tokens/s/device: 8600.0, loss: 10.0\n"
        for step, value in enumerate(seconds)
    ]
    assert measured(tmp_path, "".join(lines))["iteration_seconds"] == 5.7


def test_maxtext_s_settings_go_through_the_reader_of_its_files(tmp_path):
    sizes = {
        "base_emb_dim": 4096,
        "base_num_query_heads": 32,
        "base_num_kv_heads": 8,
        "base_mlp_dim": 14336,
        "base_num_decoder_layers": 32,
        "head_dim": 128,
        "vocab_size": 128256,
        "logits_via_embedding": False,
    }
    others = {"model_name": "default", "per_device_batch_size": 2.0, "max_target_length": 4096, "steps": 20}
    settings = sizes | others | {"ici_fsdp_parallelism": -1, "ici_tensor_parallelism": 4, "unheard_of": "x"}
    lines = [
        f"I0317 10:00:00.000000 1 pyconfig.py:413] Config param {name}: {value}\n" for name, value in settings.items()
    ]
    done = [f"completed step: {step}, seconds: 2.5, loss: 9.0\n" for step in range(10)]
    job = read(tmp_path, "Num_devices: 16, shape (1, 1, 4)\n" + "".join(lines + done))
    assert job.fields["model"]["num_layers"] == 32
    assert (job.fields["gpus"], job.pins["tp"], job.fields["seq_length"]) == (16, 4, 4096)
    short = read(tmp_path, "".join(lines[1:] + done))
    assert "model" not in short.fields


def test_nemo_prints_a_mean_of_the_last_steps(tmp_path):
    seconds = [20.0, 12.0, 9.0, 7.5, 6.0, 3.1, 3.1, 3.1, 3.1, 3.1]
    lines = [
        f"Training epoch 0, iteration {step}/99 | lr: 1e-05 | global_batch_size: 256 | global_step: {step} | "
        f"reduced_train_loss: 11.0 | train_step_timing in s: {value}\n"
        for step, value in enumerate(seconds)
    ]
    job = read(tmp_path, "".join(lines))
    assert job.measured["iteration_seconds"] == 3.1
    assert job.fields["global_batch_size"] == 256
    assert any("mean over the last 5 steps" in line for line in job.remarks)


def test_nemo_s_bar_draws_over_itself(tmp_path):
    parts = [
        f"Epoch 0: : {step}%|##   | {step}/100 [00:{2 * step:02d}<10:00, reduced_train_loss=9.0, "
        f"global_step={step}.0, train_step_timing in s={30.0 if step < 6 else 2.0}]"
        for step in range(1, 25)
    ]
    assert measured(tmp_path, "\r".join(parts) + "\n")["iteration_seconds"] == 2.0


def test_settings_that_dllogger_writes_go_through_the_reader_of_nemo_s_files(tmp_path):
    sizes = {"num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "encoder_seq_length": 2048}
    split = {"tensor_model_parallel_size": 4, "pipeline_model_parallel_size": 2, "micro_batch_size": 1}
    more = {"global_batch_size": 256, "max_position_embeddings": 2048, "precision": "bf16-mixed", "mcore_gpt": True}
    data = {f"cfg/{name}": value for name, value in (sizes | split | more).items()}
    data["cfg/optim/name"] = "distributed_fused_adam"
    head = f"DLLL {json.dumps({'type': 'LOG', 'step': 'PARAMETER', 'data': data})}\n"
    lines = [
        f"DLLL {json.dumps({'step': step, 'data': {'global_step': float(step), 'train_step_timing in s': 3.1}})}\n"
        for step in range(12)
    ]
    job = read(tmp_path, head + "".join(lines))
    assert job.measured["iteration_seconds"] == 3.1
    assert job.fields["model"]["num_layers"] == 32
    assert (job.pins["tp"], job.pins["pp"], job.pins["zero_stage"], job.fields["precision"]) == (4, 2, 1, "bf16")


def test_nanotron_rounds_to_thousands(tmp_path):
    front = "06/01/2025 12:00:00 [INFO|DP=0|PP=0|TP=0|node-7]:"
    lines = [
        f"{front} iteration: {step} / 50 | consumed_tokens: 1.05M | elapsed_time_per_iteration_ms: 1.47K | "
        "tokens_per_sec: 357K | tokens_per_sec_per_gpu: 44.6K | global_batch_size: 256 | lm_loss: 9.1\n"
        f"{front}  Memory usage: 9000.00MiB. Peak allocated 21000.50MiB. Peak reserved: 22000.00MiB\n"
        for step in range(1, 12)
    ]
    found = measured(tmp_path, "".join(lines))
    assert found["iteration_seconds"] == 1.47
    assert found["rounding"] == pytest.approx(5 / 1470)
    assert found["peak_memory"]["bytes"] == 21000.50 * 2**20


def test_deepspeed_s_timer_is_read_by_its_clock(tmp_path):
    lines = [
        f"[2025-06-01 12:{step // 10:02d}:00,000] [INFO] [timer.py:260:stop] epoch=0/micro_step={step}/"
        f"global_step={step}, RunningAvgSamplesPerSec=9.9, CurrSamplesPerSec=11.0, "
        "MemAllocated=6.01GB, MaxMemAllocated=19.52GB\n"
        for step in range(10, 110, 10)
    ]
    settings = (
        "[2025-06-01 11:59:00,000] [INFO] [config.py:997:print] DeepSpeedEngine configuration:\n"
        "[2025-06-01 11:59:00,000] [INFO] [config.py:1001:print]   train_batch_size ............. 64\n"
        "[2025-06-01 11:59:00,000] [INFO] [config.py:1001:print]   zero_optimization_stage ...... 2\n"
    )
    job = read(tmp_path, settings + "".join(lines))
    assert job.measured["iteration_seconds"] == pytest.approx(6.0)
    assert job.measured["peak_memory"]["bytes"] == 19.52 * 2**30
    assert (job.fields["global_batch_size"], job.pins["zero_stage"]) == (64, 2)


def swift(step: int, clock: float, **more: object) -> str:
    speed = {"memory(GiB)": 41.5, "train_speed(iter/s)": round(step / clock, 6), "elapsed_time": f"{round(clock)}s"}
    return json.dumps({"loss": 1.0, "global_step/max_steps": f"{step}/200", **speed, **more}) + "\n"


def test_ms_swift_s_speed_is_an_average_since_the_start(tmp_path):
    lines = [swift(1, 61.0), *(swift(step, 61.0 + 2.0 * (step - 1)) for step in range(5, 105, 5))]
    found = measured(tmp_path, "".join(lines), name="logging.jsonl")
    assert found["iteration_seconds"] == pytest.approx(2.0, rel=1e-3)
    assert found["peak_memory"]["kind"] == "reserved"


def test_an_evaluation_is_no_training(tmp_path):
    before = [swift(step, 2.03 * step) for step in range(5, 55, 5)]
    evaluated = json.dumps(
        {"eval_loss": 1.0, "eval_runtime": 90.0, "global_step/max_steps": "50/200", "elapsed_time": "190s"}
    )
    after = [swift(step, 90.0 + 2.03 * step) for step in range(55, 105, 5)]
    job = read(tmp_path, "".join([*before, evaluated + "\n", *after]), name="logging.jsonl")
    assert job.measured["iteration_seconds"] == pytest.approx(2.03, rel=1e-3)
    assert any("left out for an evaluation" in line for line in job.remarks)
    assert not any("begin" in line for line in job.remarks)


def test_llama_factory_s_clock_is_coarse(tmp_path):
    lines = [
        json.dumps(
            {
                "current_steps": step,
                "total_steps": 2000,
                "eval_loss": None,
                "elapsed_time": f"0:{step * 3 // 300:02d}:{step * 3 // 5 % 60:02d}",
            }
        )
        for step in range(5, 400, 5)
    ]
    found = measured(tmp_path, "\n".join(lines), name="trainer_log.jsonl")
    assert found["iteration_seconds"] == pytest.approx(0.6, rel=0.02)


def test_a_bar_of_the_trainer_is_read_and_a_bar_of_loading_is_not(tmp_path):
    loading = "Loading checkpoint shards: 100%|####| 4/4 [00:40<00:00, 10.00s/it]\r"
    bars = "\r".join(
        f" {step}%|#   | {step}/100 [{step // 10:02d}:{step * 6 % 60:02d}<10:00,  6.00s/it]" for step in range(1, 60)
    )
    assert measured(tmp_path, f"***** Running training *****\n{loading}\n{bars}\n")[
        "iteration_seconds"
    ] == pytest.approx(6.0, rel=0.02)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("'memory/max_mem_allocated(gib)': 31.25", "allocated"),
        ("'memory/max_allocated (GiB)': '31.25'", "allocated"),
        ("'memory/device_reserved (GiB)': 31.25", "reserved"),
    ],
)
def test_memory_that_axolotl_prints_has_its_kind(tmp_path, said, kind):
    lines = f"***** Running training *****\n{{'loss': 1.0, {said}, 'epoch': 0.1}}\n"
    found = measured(tmp_path, lines)
    assert (found["peak_memory"]["bytes"], found["peak_memory"]["kind"]) == (31.25 * 2**30, kind)


def test_a_state_of_the_trainer_has_the_mean_of_all(tmp_path):
    entries = [{"step": 200, "loss": 1.0}, {"step": 200, "eval_runtime": 100.0}, {"step": 400, "train_runtime": 900.0}]
    state = {"global_step": 400, "log_history": entries, "train_batch_size": 4, "num_input_tokens_seen": 0}
    job = read(tmp_path, json.dumps(state, indent=1), name="trainer_state.json")
    assert job.measured["iteration_seconds"] == 2.0
    assert job.pins["micro_batch_size"] == 4
    assert any("the mean of all 400" in line for line in job.remarks)


def test_a_log_without_settings_has_no_price_until_they_are_said(tmp_path):
    said = ("model", "gpus", "cluster", "global_batch_size", "seq_length", "pins.zero_stage", "pins.micro_batch_size")
    (lacks,) = read(tmp_path, "".join(swift(step, 2.03 * step) for step in range(5, 55, 5)), known=said).missing
    assert "--recompute" in lacks


def test_what_the_trainer_prints_at_its_end_is_a_mean_and_no_measurement(tmp_path):
    end = "{'train_runtime': 1100.0, 'train_samples_per_second': 3.6, 'train_steps_per_second': 0.45, 'epoch': 1.0}\n"
    evaluated = "{'eval_loss': 1.0, 'eval_runtime': 110.0, 'epoch': 0.5}\n"
    job = read(tmp_path, "***** Running training *****\n" + evaluated + end)
    assert job.measured["iteration_seconds"] == pytest.approx(990 / (1100 * 0.45))
    assert job.measured["rounding"] == pytest.approx(0.005 / 0.45)
    assert job.suspect


def test_a_state_without_its_end_has_no_time(tmp_path):
    state = {"global_step": 400, "log_history": [{"step": 400, "loss": 1.0}], "train_batch_size": 4}
    job = read(tmp_path, json.dumps(state, indent=1), name="trainer_state.json")
    assert job.measured == {}
    assert any("only at the end of a whole run" in line for line in job.remarks)


def test_nemo_s_configuration_that_names_a_loss_is_no_log(tmp_path):
    model = {"micro_batch_size": 1, "num_layers": 2, "hidden_size": 256, "num_attention_heads": 2}
    lengths = {"encoder_seq_length": 1024, "max_position_embeddings": 1024}
    settings = {"trainer": {"devices": 8, "num_nodes": 1}, "model": model | lengths}
    settings["exp_manager"] = {"checkpoint_callback_params": {"monitor": "reduced_train_loss"}}
    path = tmp_path / "gpt.yaml"
    path.write_text(json.dumps(settings))
    assert read_job([path], Context()).job.fields["gpus"] == 8


@pytest.mark.parametrize("name", ["train_runtime", "eval_runtime"])
def test_a_trainer_s_state_whose_clock_is_no_number_has_no_time(tmp_path, name):
    state = {"log_history": [{"step": 100, name: "an hour"}], "train_batch_size": 4, "global_step": 100}
    assert "iteration_seconds" not in measured(tmp_path, json.dumps(state))


@pytest.mark.parametrize(
    "text", ["-" * 300_000, "9" * 300_000, "\n" * 60_000, "step: 1 " * 40_000, "iteration 1/" * 40_000]
)
def test_what_repeats_itself_is_told_at_once(text):
    with pytest.raises(BadFile, match="looks like"):
        read_job([JobFile(Path("run.txt"), text)], Context(disk=False))


def composer(step: int, of: int, **said: object) -> str:
    lines = [f"\t Train {name.replace('__', '/')}: {value}\n" for name, value in said.items()]
    return f"[batch={step}/{of}]:\n{''.join(lines)}"


def test_a_batch_of_composer_s_console_goes_over_many_lines(tmp_path):
    text = "num_gpus_per_node: 8\nnum_nodes: 2\n" + "".join(
        composer(
            step,
            100,
            time__batch=step - 1,
            time__sample=256 * (step - 1),
            time__token=256 * 2048 * (step - 1),
            memory__peak_allocated_mem="44.6420",
            memory__peak_reserved_mem="51.3280",
            trainer__device_train_microbatch_size=8,
            throughput__batches_per_sec="0.2500" if step > 12 else "0.1000",
            throughput__device__batches_per_sec="0.0156",
        )
        for step in range(1, 60)
    )
    job = read(tmp_path, text)
    assert job.measured["iteration_seconds"] == 4.0
    assert job.measured["peak_memory"]["bytes"] == pytest.approx(44.642e9)
    assert (job.fields["gpus"], job.fields["global_batch_size"], job.fields["seq_length"]) == (16, 256, 2048)
    assert job.pins["micro_batch_size"] == 8
    assert any("give --model" in line for line in job.missing)


@pytest.mark.parametrize(
    ("line", "each"),
    [
        ("[batch={step}/500]:\n\t Train loss/train/total: 9.8\n\t Train time/train: {hours:.4f}\n", 72.0),
        ("0: [batch={step}/500]:\n0:\t Train time/batch: {before}\n0:\t Train time/train: {hours:.4f}\n", 72.0),
        ("[batch={step}/500]: wall_clock/train: {seconds:.4f}\n[batch={step}/500]: loss/train/total: 9.8\n", 72.0),
    ],
)
def test_composer_tells_the_time_since_the_start(tmp_path, line, each):
    at = [{"step": one, "before": one - 1, "hours": one * each / 3600, "seconds": one * each} for one in range(1, 40)]
    text = "".join(line.format(**one) for one in at)
    assert measured(tmp_path, text)["iteration_seconds"] == pytest.approx(each, rel=0.01)
