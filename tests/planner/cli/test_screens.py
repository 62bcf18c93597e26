"""No screen is wider than 80 columns, whatever is asked; a plan's has 60 lines at most."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import main
from planner.render.catalogue import KINDS

EXAMPLES = Path(__file__).parents[3] / "examples"
SMALL = ("-m", "llama3-8b", "-g", "8", "--tokens", "1B", "--global-batch", "64")
MEASURED = EXAMPLES / "calibrate" / "runs.jsonl"


def run(*words):
    return CliRunner().invoke(main, [*map(str, words)], env={"COLUMNS": "80"})


def widest(text):
    return max(map(len, text.splitlines()))


@pytest.fixture(autouse=True)
def _a_coarse_radius(monkeypatch):
    monkeypatch.setattr("planner.analyses.robust.STEPS", 0)  # every halving prices all corners anew


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "an-answer-with-quite-a-long-name-of-its-own.json"
    assert run(*SMALL, "--no-reasons", "--format", "json", "-o", path).exit_code == 0
    return path


@pytest.mark.parametrize(
    "words",
    [
        SMALL,
        (*SMALL, "-v"),
        (*SMALL, "--goodput"),
        (*SMALL, "--objective", "memory"),
        (*SMALL, "--task", "finetune", "--lora", "16"),
        ("-m", "mixtral-8x7b", "-g", "32", "--cp", "1"),
        ("-m", "llama3-8b", "-g", "64", "-c", "tpu-v5p", "--no-reasons"),
        ("-m", "llama2-7b", "-g", "128", "-c", "a100-h100-mixed", "--no-reasons"),
        ("-m", "llama3-70b", "-g", "4"),
        ("predict", *SMALL, "--tp", "2", "--recompute", "full"),
        ("predict", *SMALL, "--tp", "1"),
    ],
    ids=" ".join,
)
def test_a_plan_fits_eighty_columns_and_sixty_lines(words):
    done = run(*words)
    assert done.exit_code in {0, 3}, done.stderr
    assert widest(done.stdout) <= 80
    assert len(done.stdout.splitlines()) <= 60 or "-v" in words


@pytest.mark.parametrize(
    "words",
    [
        (*SMALL, "--dry-run"),
        (*SMALL, "--what-if"),
        (*SMALL, "--robust", "20%", "--pp", "1", "--cp", "1", "--recompute", "none", "--zero", "1"),
        ("why-not", *SMALL, "--tp", "4"),
        ("size", "-m", "llama3-8b", "--tokens", "20B", "--deadline", "5d", "-g", "64", "--goodput"),
        ("read", EXAMPLES / "my-job" / "train.sh", "-v"),
        ("compare", EXAMPLES / "my-job" / "train.sh"),
        ("sparse", "--model", EXAMPLES / "ctr-dnn.toml", "--cluster", "fleet-cpu", "--min-throughput", "2M"),
        ("allocate", EXAMPLES / "queue.toml", "--time-limit", "20s"),
        ("sweep", EXAMPLES / "sweep.toml", "--dry-run"),
        ("validate", MEASURED),
        ("calibrate", MEASURED),
        ("show", "dgx-h100"),
        ("show", "megatron-core", "-v"),
        *(("list", kind) for kind in KINDS),
    ],
    ids=lambda words: " ".join(Path(str(word)).name for word in words),
)
def test_every_other_answer_fits_eighty_columns(words):
    done = run(*words)
    assert done.exit_code == 0, done.stderr
    assert widest(done.stdout) <= 80


def test_answers_about_an_answer_fit_eighty_columns(plan):
    other = plan.with_name("other.json")
    document = json.loads(plan.read_text())
    document["prediction"]["iteration_seconds"] *= 2
    other.write_text(json.dumps(document))
    for words in (("compare", plan, other), ("replan", plan, "-g", "6")):
        done = run(*words)
        assert done.exit_code in {0, 3}, done.stderr
        assert widest(done.stdout) <= 80


def test_a_study_fits_eighty_columns(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(
        'models = ["llama3-8b"]\ngpus = [8, 16]\nclusters = ["dgx-a100-80gb", "dgx-h100"]\ntokens = "1B"\n'
    )
    done = run("sweep", study, "-o", tmp_path / "runs.sqlite", "--workers", "1")
    assert done.exit_code == 0, done.stderr
    assert widest(done.stdout) <= 80
    assert widest(run("sweep", "status", study, "-o", tmp_path / "runs.sqlite").stdout) <= 80
