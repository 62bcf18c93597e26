"""The Python interface."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import planner


@pytest.mark.parametrize("name", planner.__all__)
def test_no_public_name_is_also_a_module_s(name):
    """Else importing what lives in the module puts the module in the name's place."""
    assert importlib.util.find_spec(f"planner.{name}") is None


@pytest.mark.parametrize(
    "line",
    [
        "from planner import Replan, replan; assert callable(replan)",
        "import planner.cli.app, planner.service.answers, planner; assert callable(planner.replan)",
        "from planner import *; assert all(callable(one) for one in (replan, plan, predict, allocate, calibrate))",
    ],
)
def test_a_function_is_imported_as_one_whatever_was_imported_before(line):
    subprocess.run([sys.executable, "-c", line], check=True, cwd=Path(__file__).parents[2])
