"""Files of measured runs: JSON lines, one ``run/1`` document a line, plain or gzipped; or one JSON document."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, TextIO, cast

from hardware.errors import BadFile, not_parsed
from hardware.files import LARGEST, read, refuse_pipe
from planner.runs.schema import SCHEMA, Run, run_of

STDIN: Final = Path("-")
"""What stands for the runs that come in by a pipe, which can be read once."""
FREE_TEXT: Final = ("cluster", "strategy", "stack", "model", "measured")
"""Sections of a run in free text, which nothing but ``scripts/convert_runs.py`` reads."""


def read_runs(path: Path) -> Iterator[Run]:
    """The runs of one file, or of stdin where the path is "-".

    Raises:
        BadFile: missing, empty, not text, a line that is not JSON or is no run; the message names the line.
    """
    if path.suffix == ".json":
        document = read(path)  # one run, on as many lines as it likes
        if "schema" in document:
            yield run_in(path, "the document", document)
            return
    seen: dict[str, int] = {}
    for number, document in json_lines(path):
        run = run_in(path, f"line {number}", document)
        if seen.setdefault(run.id, number) != number:
            raise BadFile(
                path, f"line {number}: a second run {run.id!r:.60}, as on line {seen[run.id]}; give it an id of its own"
            )
        yield run


def run_in(path: Path, where: str, document: object) -> Run:
    """A parsed run, once it is seen to be one; its file is its group where it names none.

    Raises:
        BadFile: it is no ``run/1`` document; the message begins with ``where`` it stands.
    """
    if not isinstance(document, Mapping):
        raise BadFile(path, f"{where}: expected an object, got {type(document).__name__}")
    if "schema" not in document and "request" not in document and any(name in document for name in FREE_TEXT):
        raise BadFile(
            path, f"{where}: a run in free text; scripts/convert_runs.py {path} -o NEW.jsonl makes it {SCHEMA}"
        )
    schema = str(document.get("schema", SCHEMA))
    if schema.partition("/")[0] != SCHEMA.partition("/")[0]:
        raise BadFile(path, f"{where}: expected a measured run ({SCHEMA}), got {schema:.60}")
    group = document.get("group") or ("stdin" if path == STDIN else Path(path).name)
    try:
        return run_of({**document, "group": group})
    except ValueError as error:
        raise BadFile(path, f"{where}: {error}") from None


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """The number and the document of every line of a file, or of stdin where the path is "-".

    Raises:
        BadFile: missing, empty, not text, or a line that is not JSON; the message names the line.
    """
    try:
        with _opened(path) as lines:
            yield from _documents(path, lines)
    except FileNotFoundError:
        raise BadFile(path, "no such file") from None
    except IsADirectoryError:
        raise BadFile(path, "a folder, where a file of JSON lines is expected") from None
    except gzip.BadGzipFile:
        raise BadFile(path, "not packed by gzip, as its name says; a file of JSON lines is expected") from None
    except (UnicodeDecodeError, EOFError):
        raise BadFile(path, "not text; a file of JSON lines is expected") from None
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from None


def _opened(path: Path) -> AbstractContextManager[TextIO]:
    """The text of a file, unpacked, without the mark of byte order of some editors; of "-" stdin, which stays open."""
    if path == STDIN:
        return nullcontext(sys.stdin)
    refuse_pipe(path)
    if path.suffix == ".gz":
        return cast("TextIO", gzip.open(path, "rt", encoding="utf-8-sig"))
    return path.open(encoding="utf-8-sig")


def _documents(path: Path, lines: TextIO) -> Iterator[tuple[int, Any]]:
    found = False
    # A device that never ends has no end of a line either.
    for number, line in enumerate(iter(lambda: lines.readline(LARGEST + 1), ""), start=1):
        if len(line) > LARGEST:
            raise BadFile(path, f"line {number} is longer than {LARGEST // 2**20} MiB; one run a line is expected")
        if line.strip():
            found = True
            yield number, _parsed(path, number, line.removeprefix("\ufeff") if number == 1 else line)
    if not found:
        raise BadFile(path, "no runs in it; JSON lines are expected, one run a line")


def _parsed(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadFile(path, f"line {number} is {not_parsed('JSON', error)}") from None
    except ValueError:  # Python reads no whole numbers of more than 4,300 digits
        raise BadFile(path, f"line {number} has a whole number too long to be read") from None
