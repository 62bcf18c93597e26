"""Join files of measured runs into one that is shipped: sorted, every run once, without a time of making.

    python -m planner.runs.dataset A.jsonl B.jsonl.gz -o planner/runs/data/runs.jsonl.gz

Runs are sorted by group and id. One id with two contents is an error.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from planner.runs.files import json_lines, run_in


def joined(paths: Iterable[Path]) -> list[Mapping[str, Any]]:
    """The runs of all files by group and id.

    Raises:
        ValueError: two different runs have one group and id.
    """
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for path in paths:
        for number, document in json_lines(path):
            run = run_in(path, f"line {number}", document)
            if found.setdefault((run.group, run.id), document) != document:
                raise ValueError(f"{path}: {run.id} of {run.group} is there already, with other contents")
    return [found[key] for key in sorted(found)]


def packed(documents: Iterable[Mapping[str, Any]]) -> bytes:
    """JSON lines, gzipped without a name or a time."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in documents)
    return gzip.compress(text.encode("utf-8"), mtime=0)


def main() -> None:
    """Command line: files in, one file out."""
    parser = argparse.ArgumentParser(description="Join files of measured runs.")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    given.output.write_bytes(packed(joined(given.runs)))


if __name__ == "__main__":
    main()
