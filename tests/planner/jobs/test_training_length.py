"""How long a file has the training decides days and cost, unless the tokens are given too."""

import pytest
from click.testing import CliRunner

from planner.cli import main
from planner.errors import BadRequest
from planner.jobs.imported import complete
from planner.jobs.torchtitan.read import torchtitan_job
from tests.planner.jobs.scripts import megatron_job

WORDS = (
    "pretrain_gpt.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --bf16 "
    "--max-position-embeddings 2048 --micro-batch-size 2 --global-batch-size 64 --use-distributed-optimizer "
)
TITAN = """
[training]
local_batch_size = 2
seq_len = 4096
steps = 1000
[parallelism]
"""


def predict(form, text, tmp_path, *arguments):
    path = tmp_path / "file"
    path.write_text(text)
    return CliRunner().invoke(main, ["predict", "--from", form, str(path), "--gpus", "8", *arguments])


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        ("--train-iters 500", 500 * 64 * 2048),
        ("--train-samples 1000000", 1000000 * 2048),
        ("--train-tokens 3000000", 3000000),
        ("ITERS=500\n", None),
        ("--train-iters 0", None),
    ],
)
def test_tokens_follow_from_megatrons_words(said, tokens):
    job = megatron_job(WORDS + said)
    fields, _ = complete(job.fields | {"gpus": 8}, job.pins, length=job.length)
    assert fields.get("tokens") == tokens


def test_megatron_counts_in_one_way():
    with pytest.raises(BadRequest, match="--train-iters and --train-samples cannot be used together"):
        megatron_job(WORDS + "--train-iters 5 --train-samples 6")


def test_a_length_that_nothing_sets_is_told():
    job = megatron_job(WORDS + "--train-iters $STEPS")
    assert job.length is None


def test_a_batch_beside_the_file_counts():
    job = megatron_job(WORDS + "--train-iters 500")
    fields, _ = complete(job.fields | {"gpus": 8, "global_batch_size": 128}, job.pins, length=job.length)
    assert fields["tokens"] == 500 * 128 * 2048


def test_steps_of_torchtitan_are_of_its_batch(tmp_path):
    done = predict("torchtitan", TITAN, tmp_path, "--model", "llama3-8b")
    assert done.exit_code == 0, done.stderr
    assert "training.steps: 1,000 x 16 x 4,096 = 65,536,000 training tokens" in done.stderr
    assert "1,000 iterations" in done.stdout
    assert "training tokens (" not in done.stdout
    assert torchtitan_job({"training": {}}).length is None


def test_tokens_that_are_given_win_and_it_is_said(tmp_path):
    done = predict("megatron-args", WORDS + "--train-iters 500", tmp_path, "--tokens", "131072000", "-q")
    assert "1,000 iterations" in done.stdout
    done = predict("megatron-args", WORDS + "--train-iters 500", tmp_path, "--tokens", "131072000")
    assert "--train-iters is not read, since --tokens says the tokens" in done.stderr


def test_without_a_length_of_sequences_there_are_no_tokens(tmp_path):
    words = "--tensor-model-parallel-size 1 --micro-batch-size 1 --global-batch-size 8 --bf16 --train-iters 5 "
    done = predict("megatron-args", words + "--use-distributed-optimizer", tmp_path, "--model", "gpt3-1.3b")
    assert "--train-iters counts nothing, as no sequence length is said" in done.stderr, done.stderr
