"""Results as Parquet, read back by pyarrow."""

import subprocess
import sys

import pyarrow.parquet as pq
from click.testing import CliRunner

from planner.cli import main
from tests.planner.sweep_studies import TOML, written


def test_parquet_holds_a_typed_row_for_every_point(tmp_path):
    path = written(tmp_path, TOML.replace("[8, 16]", "[8, 12]"))
    store, place = tmp_path / "runs.sqlite", tmp_path / "runs.parquet"
    arguments = ["sweep", str(path), "-o", str(store), "--workers", "1", "-q", "--format", "parquet"]
    done = CliRunner().invoke(main, [*arguments, "--results", str(place)])
    assert done.exit_code == 0, done.stderr
    table = pq.read_table(place)
    assert table.num_rows == 8
    types = {field.name: str(field.type) for field in table.schema}
    assert (types["gpus"], types["tp"], types["mfu"], types["cluster.price"]) == ("int64", "int64", "double", "string")
    rows = table.to_pylist()
    assert [row["status"] for row in rows] == ["optimal"] * 4 + ["failed"] * 4
    assert rows[0]["mfu"] > 0
    assert rows[4]["tp"] is None
    piped = subprocess.run([sys.executable, "-m", "planner", *arguments], capture_output=True, check=True)
    assert piped.stdout == place.read_bytes()
