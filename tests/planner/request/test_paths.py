"""Files named by other files, and profiles named by configurations and studies."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from costmodels.stack.stack import stack
from hardware.catalogue import cluster
from planner.allocation.queue import queue_in
from planner.cli import main
from planner.request.files import with_relative_files
from planner.runs.calibrate.profile import profile
from planner.studies.study import points_of
from planner.studies.study_file import read_study


@pytest.fixture
def folder(tmp_path):
    shutil.copy("examples/my-model.toml", tmp_path / "mine.toml")
    shutil.copy("examples/my-cluster.toml", tmp_path / "nodes.toml")
    slow = stack("megatron-core").changed({"name": "slow", "calibrated.kernel_efficiency": 0.5})
    (tmp_path / "profile.toml").write_text(profile(cluster("dgx-a100-80gb"), slow, (), ()))
    return tmp_path


def asked(path):
    done = CliRunner().invoke(main, ["--config", str(path), "--top", "0", "--no-reasons", "--format", "json"])
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["request"]


def put(path, document):
    path.write_text(json.dumps(document))
    return path


def test_a_configuration_finds_files_beside_itself(folder):
    path = put(folder / "job.json", {"model": "mine.toml", "gpus": 16, "cluster": "nodes.toml"})
    assert asked(path)["model"]["name"] == "my-model"
    assert asked(path)["cluster"]["name"] == "my-cluster"


def test_a_study_finds_files_beside_itself_and_its_conditions_mean_them(folder):
    path = put(folder / "study.json", {"models": ["mine.toml", "22b"], "gpus": 16, "where": ["model != 'mine.toml'"]})
    found = list(points_of(read_study(path)))
    assert [point.axes["model"] for point in found] == ["22b"]


def test_a_queue_finds_files_beside_itself(folder):
    jobs = [{"name": "one", "model": "mine.toml"}]
    queue = queue_in(str(put(folder / "queue.json", {"cluster": "nodes.toml", "gpus": 16, "jobs": jobs})))
    assert queue.cluster.name == "my-cluster"
    assert queue.jobs[0].question.model == str(folder / "mine.toml")


def test_files_from_the_working_directory_and_names_stay_as_they_are():
    document = {"model": "22b", "cluster": "examples/my-cluster.toml", "name": "mine.toml"}
    assert with_relative_files(document, Path("examples/sweep.toml")) == document


def test_a_file_that_is_called_as_a_model_of_the_catalogue_is_not_taken_for_it(folder):
    (folder / "22b").write_text("notes")
    assert asked(put(folder / "job.json", {"model": "22b", "gpus": 16}))["model"]["name"] == "megatron-22b"


def test_a_configuration_names_a_profile_and_what_it_says_itself_wins(folder):
    path = put(folder / "job.json", {"model": "22b", "gpus": 16, "profile": "profile.toml"})
    assert asked(path)["stack"]["name"] == "slow"
    assert asked(path)["cluster"]["name"] == "dgx-a100-80gb"
    path = put(folder / "job.json", {"model": "22b", "gpus": 16, "profile": "profile.toml", "stack": "fsdp"})
    assert asked(path)["stack"] == "fsdp"


def test_a_study_names_a_profile(folder):
    path = put(folder / "study.json", {"model": "22b", "gpus": [8, 16], "profile": "profile.toml"})
    done = CliRunner().invoke(
        main, ["sweep", str(path), "-o", str(folder / "runs.sqlite"), "--workers", "1", "--format", "json", "--quiet"]
    )
    assert done.exit_code == 0, done.stderr
    assert "stack slow" in done.stdout


def test_a_profile_that_is_none_is_refused_in_one_line(folder):
    for given, said in ((7, "expected the file"), ("mine.toml", "no profile; `plan calibrate")):
        path = put(folder / "job.json", {"model": "22b", "gpus": 16, "profile": given})
        done = CliRunner().invoke(main, ["--config", str(path)])
        assert (done.exit_code, said in done.stderr, done.stderr.count("\n")) == (2, True, 1)
