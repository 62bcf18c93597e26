"""Logs of torchtitan, whose lines repeat for every rank and have the time of day in front."""

from __future__ import annotations

import json

import pytest

from tests.planner.jobs.logs.written import measured, read, titan


def test_the_clock_between_lines_tells_the_time(tmp_path):
    text = titan(1, 0.0) + "".join(titan(step, 40.0 + 25.0 * (step // 10)) for step in range(10, 110, 10))
    found = measured(tmp_path, text)
    assert found["iteration_seconds"] == pytest.approx(2.5)
    assert found["peak_memory"] == {
        "bytes": 61.40 * 2**30,
        "kind": "reserved",
        "rounding": pytest.approx(0.005 / 61.4),
        "stage": 0,
    }


@pytest.mark.parametrize(
    "prefixes", [[f"[rank{rank}]:[titan] " for rank in range(4)], ["[titan] "] * 4, ["0: ", "1: "]]
)
def test_lines_of_all_ranks_are_one_run(tmp_path, prefixes):
    lines = [
        titan(step, 2.0 * step + 0.001 * place, prefix=prefix)
        for step in range(1, 12)
        for place, prefix in enumerate(prefixes)
    ]
    job = read(tmp_path, "".join(lines))
    assert job.measured["iteration_seconds"] == pytest.approx(2.0)
    assert not any("begin" in line for line in job.remarks)


def test_ranks_that_lag_are_one_run_too(tmp_path):
    first, other = ([titan(step, 2.0 * step, prefix="[titan] ") for step in range(1, 12)] for _ in range(2))
    lagging = [line for pair in zip([*first, ""], ["", *other], strict=True) for line in pair]
    job = read(tmp_path, "".join(lagging))
    assert job.measured["iteration_seconds"] == pytest.approx(2.0)
    assert not any("begin" in line for line in job.remarks)


def test_colours_of_a_terminal_are_passed_over(tmp_path):
    plain = titan(1, 0.0) + "".join(titan(step, 2.0 * step) for step in range(2, 12))
    lost = plain.replace("step:", "\x1b[36mstep:").replace("memory:", "[33mmemory:")  # one copied out of a terminal
    assert measured(tmp_path, lost)["iteration_seconds"] == pytest.approx(2.0)


def test_a_checkpoint_between_two_lines_is_left_out(tmp_path):
    saved = "[rank0]:[titan] 2025-06-01 12:00:12,500 - root - INFO - Saving the checkpoint\n"
    late = "".join(titan(step, 2.0 * step + 30.0) for step in range(7, 20))
    job = read(tmp_path, "".join(titan(step, 2.0 * step) for step in range(1, 7)) + saved + late)
    assert job.measured["iteration_seconds"] == pytest.approx(2.0)
    assert any("left out for a checkpoint" in line for line in job.remarks)


def test_the_printed_configuration_goes_through_the_reader_of_its_files(tmp_path):
    settings = {
        "model": {"name": "llama3", "flavor": "8B"},
        "training": {"local_batch_size": 2, "seq_len": 8192},
        "parallelism": {"tensor_parallel_degree": 2},
        "activation_checkpoint": {"mode": "full"},
    }
    begin = (
        f"[rank0]:[titan] 2025-06-01 11:59:00,000 - root - INFO - Running with args: {json.dumps(settings, indent=2)}\n"
    )
    mesh = (
        "[rank0]:[titan] 2025-06-01 11:59:01,000 - root - INFO - Building device mesh with ['dp_shard', 'tp'], [4, 2]\n"
    )
    job = read(tmp_path, begin + mesh + "".join(titan(step, 2.0 * step) for step in range(1, 12)))
    assert job.fields["model"] == "llama3-8b"
    assert job.fields["gpus"] == 8
    assert (job.pins["tp"], job.pins["recompute"], job.fields["seq_length"]) == (2, "full", 8192)


@pytest.mark.parametrize(
    ("mesh", "pins"),
    [
        ("pp=1, dp_replicate=2, dp_shard=4, cp=2, tp=1, ep=1, etp=1", {"zero_stage": 3, "sharding_degree": 8}),
        ("pp=2, dp_replicate=1, dp_shard=4, cp=1, tp=1, ep=1, etp=1", {"zero_stage": 1, "micro_batch_size": 1}),
        ("pp=1, dp_replicate=8, dp_shard=1, cp=1, tp=1, ep=1, etp=1", {"zero_stage": 0, "micro_batch_size": 2}),
    ],
)
def test_the_mesh_that_it_prints_says_what_is_shared(tmp_path, mesh, pins):
    front = "[titan] 2025-06-01 11:59:01,000 - root - INFO - "
    begin = (
        f"{front}Building device mesh with parallelism: {mesh}\n"
        f"{front}Trainer is initialized with local batch size 2, global batch size 64, sequence length 4096\n"
    )
    job = read(tmp_path, begin + "".join(titan(step, 2.0 * step) for step in range(1, 12)))
    assert pins.items() <= job.pins.items()
    assert not any("--zero" in line or "--micro-batch" in line for line in job.missing)


def test_what_it_says_at_the_start_stands_in_for_the_configuration(tmp_path):
    begin = (
        "[titan] 2025-06-01 11:59:00,000 - root - INFO - Model llama3 8B size: 8,030,261,248 total parameters\n"
        "[titan] 2025-06-01 11:59:01,000 - root - INFO - Training starts at step 1, with local batch size 1, "
        "global batch size 8, sequence length 8192, total steps 1000 (warmup 200)\n"
    )
    job = read(tmp_path, begin + "".join(titan(step, 2.0 * step) for step in range(1, 12)))
    assert (job.fields["model"], job.fields["global_batch_size"], job.fields["seq_length"]) == ("llama3-8b", 8, 8192)


def test_a_log_that_lacks_much_asks_for_the_configuration_of_its_job(tmp_path):
    text = "".join(titan(step, 2.0 * step) for step in range(1, 12))
    said = "(or the job's configuration together with the log, which says most of these)"
    assert said in read(tmp_path, text).missing[-1]
