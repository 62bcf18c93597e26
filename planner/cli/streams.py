"""Long answers, written as they are made: to stdout, or to a file in one step."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from planner.cli.answer import opened, put
from planner.cli.ending import unwritten

if TYPE_CHECKING:
    from planner.studies import Result, Study


def text_to(pieces: Iterable[str], place: str | None) -> None:
    """Pieces of text to a file, all of them or none, or to stdout."""
    if place is not None:
        with _replacing(Path(place).expanduser()) as stream:
            stream.writelines(piece.encode() for piece in pieces)
        return
    for piece in pieces:
        put(piece)
    opened().flush()


def parquet_to(found: Iterable[Result], study: Study, place: str | None) -> None:
    """A Parquet file, or its bytes on stdout."""
    from planner.studies.table import write_parquet

    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "results.parquet"
        write_parquet(found, study, whole)
        if place is not None:
            with whole.open("rb") as source, _replacing(Path(place).expanduser()) as stream:
                stream.writelines(source)
            return
        with whole.open("rb") as source:
            opened().buffer.writelines(source)
            opened().buffer.flush()


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose content takes the place of a file when all of it is written."""
    try:
        if path.exists() and not path.is_file():  # a pipe or /dev/stdout cannot be replaced
            with path.open("wb") as stream:
                yield stream
            return
        path = Path(os.path.realpath(path)) if path.is_symlink() else path  # as a whole answer is written
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as temporary:
            whole = Path(temporary.name)
            try:
                yield temporary.file
                temporary.flush()
                whole.chmod(0o644)
                whole.replace(path)
            finally:
                whole.unlink(missing_ok=True)
    except OSError as error:
        raise unwritten("--results", path, error) from None
