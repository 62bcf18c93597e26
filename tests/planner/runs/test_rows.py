"""Files of measured runs, and what their figures count."""

import gzip
import json

import pytest

from hardware.errors import BadFile
from planner.runs.judge import shipped
from planner.runs.row_fields import unknown_fields
from planner.runs.rows import convention, read_rows
from tests.planner.measured_run import run

RUN = json.dumps({section: {} for section in ("cluster", "stack", "model", "strategy", "measured")})


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("name", ["runs.jsonl", "runs.jsonl.gz"])
def test_runs_are_read_plain_or_packed_with_or_without_a_byte_order_mark(tmp_path, name, encoding):
    content = f"{RUN}\n\n{RUN}".encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert len(list(read_rows(tmp_path / name))) == 2


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_a_run_says_so(tmp_path, content):
    path = tmp_path / "runs.jsonl"
    path.write_text(content)
    with pytest.raises(BadFile, match="no runs in it; JSON lines are expected, one run a line"):
        list(read_rows(path))


def test_a_field_that_nothing_reads_is_told_with_the_nearest_one_that_is_read():
    row = json.loads(RUN)
    row["strategy"] |= {"tp": 2, "micro_batch": 1, "colour": "blue"}
    told = unknown_fields(row)
    assert told == ("strategy.micro_batch is not read; did you mean micro_batch_size?", "strategy.colour is not read")


def test_a_field_in_the_wrong_table_is_told_with_the_table_that_it_belongs_to():
    row = json.loads(RUN)
    row["strategy"] |= {"seq_length": 32768}
    assert unknown_fields(row) == ("strategy.seq_length is not read; model.seq_length is",)


def test_all_fields_of_the_published_runs_are_known():
    assert not {note for path in shipped() for row in read_rows(path) for note in unknown_fields(row)}


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (None, "model"),
        ("model (6N plus attention)", "model"),
        ("model_noncausal_attention", "model"),
        ("model_causal_attention", "model-causal"),
        ("model (6*N*tokens)", "6N"),
        ("hardware (8*N*tokens, counts recompute)", "8N"),
        ("megatron-formula-with-recompute", "hardware"),
        ("Megatron paper formula without recompute", "model"),
        ("Megatron-LM throughput log", "model"),
        ("6N", "6N"),
        ("6ND", "6N"),
        ("6N without attention", "6N"),
        ("6N plus attention", "model"),
        ("8N", "8N"),
        ("8ND", "8N"),
        ("MFU", "model"),
        ("HFU", "hardware"),
        ("model, causal attention", "model-causal"),
        ("model, non-causal attention (MaxText)", "model"),
        ("model (attention not halved)", "model"),
        ("6*N*D + 12*l*h*s", "model"),
        ("DeepSpeed flops profiler", "hardware"),
        ("6PD", "6N"),
        ("6 x parameters x tokens", "6N"),
        ("6*N_active*D", "6N"),
        ("8 * parameters * tokens", "8N"),
        ("model FLOPs, 6N per token, attention excluded", "6N"),
        ("6 params plus attention", "model"),
        ("96Bslh^2(1 + s/6h + V/16lh)", "hardware"),
        ("72Bslh^2(1 + s/6h + V/12lh)", "model"),
        ("Narayanan et al., with activation recomputation", "hardware"),
        ("achieved TFLOP/s incl. recompute", "hardware"),
        ("4x forward", "hardware"),
        ("excluding activation recompute", "model"),
        ("recompute is not counted", "model"),
        ("w/o rematerialisation", "model"),
        ("non-causal attention", "model"),
        ("MaxText count (causal or not: not stated)", ""),
        ("recompute not needed", ""),
        ("960 sequences", ""),
        ("without a checkpoint of the optimizer's", ""),
        ('stated "up to"; convention not given', ""),
        ("unknown", ""),
    ],
)
def test_what_a_source_counts_as_flop_names_a_definition(said, name):
    assert convention(run(measured={"flops_convention": said})) == name
