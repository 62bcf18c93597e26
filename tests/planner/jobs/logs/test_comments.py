"""What a comment of a script says of a run is passed on."""

from __future__ import annotations

import pytest

from planner.jobs.script import figures_in
from tests.planner.jobs.logs.written import read


@pytest.mark.parametrize("said", ["8 * 80GiB, 3.2s/it", "4 * 64GiB; train_speed(iter/s): 0.98", "18GB GPU memory"])
def test_figures_of_a_run_are_passed_on(said):
    (remark,) = figures_in(f"#!/bin/bash\n# {said}\ntorchrun train.py\n")
    assert remark.startswith(f'line 2 says of a run: "{said}"')


@pytest.mark.parametrize("said", ["use 8 GPUs", "needs 80GB", "lr 1e-5", "see https://example.org/it/s"])
def test_other_comments_are_not(said):
    assert not [*figures_in(f"# {said}\n")]


def test_a_script_says_them_beside_its_job(tmp_path):
    words = "--tensor-model-parallel-size 2 --num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 128"
    more = "--max-position-embeddings 128 --micro-batch-size 1"
    job = read(
        tmp_path, f"#!/bin/bash\n# 8 * 80GiB, 3.2s/it\ntorchrun pretrain_gpt.py {words} {more}\n", name="train.sh"
    )
    assert any("3.2s/it" in line for line in job.remarks)
