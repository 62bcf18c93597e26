"""Files of measured runs."""

import gzip
import json

import pytest

from hardware.errors import BadFile
from planner.validation.rows import read_rows

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
