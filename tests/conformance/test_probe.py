"""The program that measures a machine, on processors with gloo: every section, all collectives, and a second start."""

import json
import subprocess
import sys

import pytest

from planner.cli.probe import PROGRAM
from planner.runs.probe.program import program
from planner.runs.probe.records import SCHEMA

pytest.importorskip("torch")
MEASURED = ("matrix", "attention", "memory", "grouped", "optimizer", "copies", "host", "collectives-2")
COLLECTIVES = {"all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv"}


def measured(folder, *, ranks, only=()):
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    chosen = ["--only", ",".join(only)] if only else []
    (folder / "measure.py").write_text(program(), encoding="utf-8")
    command = [sys.executable, *torchrun, "measure.py", "-o", "probe.json", *chosen]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads((folder / "probe.json").read_text(encoding="utf-8")), done.stderr


def test_every_section_and_collective_is_measured(tmp_path):
    document, _ = measured(tmp_path, ranks=2)
    assert (document["schema"], document["small"], document["machine"]["ranks"]) == (SCHEMA, True, 2)
    for name in MEASURED:
        section = document["sections"][name]
        whole = [entry for entry in section["entries"] if "error" not in entry]
        assert whole, name
        assert "error" not in section
        for entry in whole:
            for found in [entry, *(value for value in entry.values() if isinstance(value, dict))]:
                if "p10" in found:
                    assert 0.0 < found["p10"] <= found["seconds"] <= found["p90"]
    exchanged = document["sections"]["collectives-2"]["entries"]
    assert {entry["what"] for entry in exchanged if "error" not in entry} == COLLECTIVES


def test_a_second_start_measures_only_what_is_missing(tmp_path):
    first, _ = measured(tmp_path, ranks=1, only=["copies"])
    second, said = measured(tmp_path, ranks=1, only=["copies", "grouped"])
    assert second["sections"]["copies"] == first["sections"]["copies"]
    assert "grouped" in second["sections"]
    assert "copies" not in said


@pytest.mark.parametrize(
    "text", ["[3]", "no JSON", '{"schema": "probe/1", "machine": {"torch": "1.0"}, "sections": {}}']
)
def test_a_file_of_something_else_is_left_alone(tmp_path, text):
    path = tmp_path / "probe.json"
    path.write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", PROGRAM, "-o", path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("give another -o")
    assert "Traceback" not in done.stderr
    assert path.read_text(encoding="utf-8") == text
