"""What CONTRIBUTING says of adding things is all that it takes: tried in a copy of the packages."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("hardware", "costmodels", "planner")
RELATIVES = {
    "accelerator": ("hardware/catalogue/accelerators", "h100-pcie", "toy-device"),
    "cluster": ("hardware/catalogue/clusters", "l40-8x", "toy-cluster"),
    "model": ("costmodels/model/models", "llama3.2-1b", "toy-model"),
    "stack": ("costmodels/stack/stacks", "fsdp", "toy-stack"),
}
"""Folder of the catalogue, the relative that is copied, and the name of the new file."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A checkout of which files can come and go while other tests read the real one."""
    folder = tmp_path_factory.mktemp("copy")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package)
    return folder


def ask(copy, *words):
    command = (sys.executable, "-m", "planner", *words)
    return subprocess.run(command, cwd=copy, env={"PYTHONPATH": str(copy)}, capture_output=True, text=True, check=False)


@pytest.fixture
def added(copy):
    """A toy accelerator, the cluster of it, a model and a stack: one file each, gone afterwards."""
    paths = []
    for folder, relative, name in RELATIVES.values():
        text = (copy / folder / f"{relative}.toml").read_text().replace(f'"{relative}"', f'"{name}"')
        path = copy / folder / f"{name}.toml"
        path.write_text(text.replace('accelerator = "l40"', 'accelerator = "toy-device"'))
        paths.append(path)
    yield [path.stem for path in paths]
    for path in paths:
        path.unlink()


def test_one_file_adds_an_accelerator_a_cluster_a_model_and_a_stack(copy, added):
    question = ("--model", "toy-model", "--cluster", "toy-cluster", "--stack", "toy-stack", "--gpus", "16")
    answer = ask(copy, *question, "--no-reasons", "--format", "json")
    assert answer.returncode == 0, answer.stderr
    request = json.loads(answer.stdout)["request"]
    assert (request["cluster"]["name"], request["cluster"]["accelerator"]) == ("toy-cluster", "toy-device")
    assert (request["stack"], request["gpus"]) == ("toy-stack", 16)
    for name in added[:1]:  # the question above found the others
        shown = ask(copy, "show", name)
        assert shown.returncode == 0, shown.stderr
        assert name in shown.stdout


def test_what_is_taken_away_again_is_not_known(copy):
    gone = ask(copy, "--model", "toy-model", "--gpus", "16")
    assert gone.returncode == 2
    assert "unknown model 'toy-model'" in gone.stderr
