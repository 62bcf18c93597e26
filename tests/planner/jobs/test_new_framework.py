"""A framework is added as CONTRIBUTING says: its rules and their row, its options, reader and writer and their row."""

import json
from typing import Any

import pytest

from planner import PlanRequest, plan, predict
from planner.errors import BadRequest
from planner.frameworks import conditions as when
from planner.frameworks.conditions import FrameworkRule
from planner.frameworks.registry import FRAMEWORKS, Framework
from planner.jobs import readers
from planner.jobs.imported import ImportedJob, complete
from planner.jobs.job import Export, Inexpressible
from planner.jobs.options import Document, Options, rows
from planner.jobs.reader import DocumentReader
from planner.jobs.registry import TARGETS, Target, export
from tests.planner.jobs.scripts import import_job

RULES = (
    FrameworkRule("toy-pipeline", ("pp",), "no pipeline; pp is {pp}", "toy.parallel", when.one("pp")),
    FrameworkRule("toy-context", ("cp",), "no context ranks {cp}", "toy.parallel", when.one("cp")),
    when.usual("toy-recompute", "toy.remat", "none", "full"),
    when.usual("toy-offload", "toy.memory", "none"),
)  # fmt: skip

TABLE = {
    "mesh.tensor": {"number": "tp", "default": 1},
    "mesh.data": {"number": "dp"},
    "batch.sequences": {"number": "micro_batch_size", "default": 1},
    "batch.all": {"number": "global_batch_size"},
    "batch.tokens": {"number": "seq_length"},
    "memory.zero": {"number": "zero_stage", "default": 0, "least": 0},
    "memory.remat": {"choice": "recompute", "values": {"off": "none", "all": "full"}, "default": "none"},
    "mesh.norms": {"choice": "sequence_parallel", "values": {"split": "true", "whole": "false"}, "default": "false"},
}
OPTIONS = Options(*rows(TABLE))
AXES = ("tp", "dp", "micro_batch_size", "zero_stage", "recompute")


def write(job, version):
    at = job.strategy
    values: dict[str, Any] = {axis: getattr(at, axis) for axis in AXES}
    values |= {"global_batch_size": at.global_batch_size, "seq_length": job.seq_length}
    values["sequence_parallel"] = str(at.sequence_parallel).lower()
    return Export(files={"toy.json": json.dumps(OPTIONS.document(values, version)) + "\n"}, program=("toy", "toy.json"))


def read(file, _context):
    at = Document(file.document, OPTIONS)
    pins = {axis: at(axis) for axis in (*AXES, "sequence_parallel")}
    return ImportedJob({"global_batch_size": at("global_batch_size"), "seq_length": at("seq_length")}, pins)


@pytest.fixture
def toy(monkeypatch):
    """The rows of a new framework; all go with the test."""
    monkeypatch.setitem(FRAMEWORKS, "toy", Framework(("megatron-core",), RULES, "whole"))
    monkeypatch.setitem(TARGETS, "toy", Target("toy", "Toy JSON", ("1.0",), "its own reader", write=write))
    reader = DocumentReader("toy", "a file of Toy", "toy", lambda file: "mesh" in file.document, read)
    monkeypatch.setattr(readers, "READERS", [*readers.READERS, reader])
    return "toy"


JOB = {"model": "llama3-8b", "gpus": 32, "reasons": False}


def test_a_framework_of_three_rows_is_planned_for_written_and_read_back(toy, tmp_path):
    found = plan(PlanRequest(**JOB, framework=toy))
    assert (found.strategy.pp, found.strategy.cp, found.strategy.offload) == (1, 1, "none")
    path = tmp_path / "toy.json"
    path.write_text(export(found, toy).files["toy.json"])
    job = import_job(toy, path)
    fields, pins = complete(job.fields | {"gpus": 32}, job.pins)
    assert fields["stack"] == "megatron-core"
    again = predict(PlanRequest(**JOB | fields, framework=job.framework, pins=pins))
    assert again.strategy == found.strategy
    assert again.prediction.iteration_seconds == found.prediction.iteration_seconds


def test_what_it_refuses_is_searched_around_and_refused_in_its_files(toy):
    asked = {**JOB, "model": "llama3-70b", "pins": {"pp": 2}}
    assert plan(PlanRequest(**asked, framework=toy)).status == "infeasible"
    with pytest.raises(Inexpressible, match="toy cannot start this plan: it takes no pipeline; pp is 2"):
        export(plan(PlanRequest(**asked)), toy)
    started = export(plan(PlanRequest(**JOB, framework=toy)), "torchrun").files
    assert set(started) == {"torchrun.sh", "toy.json"}
    assert "PROGRAM=(\n  toy toy.json\n)" in started["torchrun.sh"]


def test_it_is_gone_with_its_rows(tmp_path):
    with pytest.raises(ValueError, match="'trl' trains on accelerate: give accelerate here"):
        PlanRequest(model="llama3-8b", gpus=8, framework="trl")
    with pytest.raises(ValueError, match="unknown framework 'toy'"):
        PlanRequest(**JOB, framework="toy")
    with pytest.raises(BadRequest, match=r"--from: unknown kind 'toy'; there are megatron-args, .*, hf, .*"):
        import_job("toy", tmp_path / "toy.json")
