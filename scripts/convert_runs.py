"""Measured runs in free text to documents of schema ``run/1``, one a line.

    python scripts/convert_runs.py OLD.jsonl... -o NEW.jsonl[.gz]

A run keeps its id and group, and whether it is complete or suspect. What its source says stands under ``said``,
what had to be assumed under ``assumed`` with the reason, what no rule understood under ``unread``, for a person to
complete. A run whose words make no request is kept with the reason under ``unpriced``, and named on stderr.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from run_words.document import Row, converted
from run_words.rows import read_rows

from hardware.errors import MeshwrightError
from planner.runs.schema import run_of


def convert(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The documents of all runs of some files, in their order.

    Raises:
        BadFile: a file that cannot be read as such runs.
    """
    rows = [row for path in paths for row in read_rows(path)]
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[str(row["group"])].append(row)
    return [_checked(converted(row, groups[str(row["group"])])) for row in rows]


def _checked(document: dict[str, Any]) -> dict[str, Any]:
    """The document, without a request that no document may hold."""
    try:
        run_of(document)
    except ValueError as error:
        return {name: value for name, value in document.items() if name != "request"} | {"unpriced": str(error)}
    return document


def packed(documents: Iterable[dict[str, Any]], name: str) -> bytes:
    """JSON lines; gzipped without a name or a time where the name of the file says so."""
    text = "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in documents).encode("utf-8")
    return gzip.compress(text, mtime=0) if name.endswith(".gz") else text


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: files in, one file out; 2 where one cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    try:
        documents = convert(given.runs)
    except MeshwrightError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    given.output.write_bytes(packed(documents, given.output.name))
    for document in documents:
        if reason := document.get("unpriced"):
            sys.stderr.write(f"{document['group']} {document['id']}: not converted: {reason}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
